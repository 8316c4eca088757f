"""Estimates of training time: do the quantiles cover what they say, and what does a round cost?

Usage: ``python benchmarks/estimator.py [--curves 500] [--jobs 1000,5000] [--out FOLDER]``

Curves are drawn by the law of ``apportion.instances.training.metric_stops``, and for the other
two families by ranges of a like kind. Each history has 40 points, evenly spread up to a part of
the iterations needed, with 2 % multiplicative noise. An estimate covers when it is not below the
iterations really needed; no cap helps. ``--out`` writes ``estimator_coverage.md`` and
``estimator_coverage.csv`` (coverage: the same on every machine) and ``estimator_cost.md``.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from solver_paths import table, used_machine, yardstick

from apportion.instances.training import Jobs
from apportion.instances.training.curve_fit import CurveOptions, Histories, fit_curves
from apportion.instances.training.curves import FAMILIES, iterations_to, loss_at
from apportion.instances.training.fit import EstimatorOptions, estimate, relative_error

Floats = NDArray[np.float64]

POINTS, NOISE, SEED = 40, 0.02, 3
WINDOWS = ((0.3, 0.8), (0.5, 0.9))
LEVELS = (0.5, 0.8)
AIM = (0.75, 0.85)
RANGES = {
    "inverse": ((0.05, 1.0), (0.5, 2.0)),
    "power": ((0.5, 3.0), (0.2, 1.5)),
    "exponential": ((0.5, 2.0), (0.01, 0.2)),
}
"""a and b of each family, uniform; c lies in [0.05, 0.5] for all."""


@dataclass(frozen=True)
class Drawn:
    """Histories, with what there is to find out."""

    history: Histories
    target: Floats
    needed: Floats


def draw(family: int, curves: int, window: tuple[float, float], seed: int = SEED) -> Drawn:
    """Draw curves, targets at 60 to 95 % of the fall, and histories up to a part of the way."""
    rng = np.random.default_rng((seed, family))
    (a0, a1), (b0, b1) = RANGES[FAMILIES[family]]
    a, b = rng.uniform(a0, a1, curves), rng.uniform(b0, b1, curves)
    c, fallen = rng.uniform(0.05, 0.5, curves), rng.uniform(0.6, 0.95, curves)
    first = 1.0 if FAMILIES[family] == "power" else 0.0  # where the fall begins
    target = (1.0 - fallen) * loss_at(family, a, b, c, first) + fallen * c
    needed = iterations_to(family, a, b, c, target)
    part = np.arange(1, POINTS + 1) / POINTS
    reach = np.maximum(rng.uniform(*window, curves) * needed - first, 0.1)
    k = first + reach[:, None] * part
    loss = loss_at(family, a[:, None], b[:, None], c[:, None], k)
    loss = loss * (1.0 + NOISE * rng.standard_normal(k.shape))
    return Drawn(Histories(k, loss, np.ones(k.shape, dtype=np.bool_)), target, needed)


def running_minimum(loss: Floats) -> Floats:
    """Smooth as the literature offers first."""
    return np.minimum.accumulate(loss, axis=1)


def median_of_three(loss: Floats) -> Floats:
    """Smooth every point by its neighbours."""
    out = loss.copy()
    out[:, 1:-1] = np.median(np.stack([loss[:, :-2], loss[:, 1:-1], loss[:, 2:]]), axis=0)
    return out


SMOOTHING = {
    "outliers only": lambda loss: loss,
    "running minimum": running_minimum,
    "median of three": median_of_three,
}


def coverage(curves: int) -> list[list[str]]:
    """Measure how often the quantiles are not below the truth."""
    rows: list[list[str]] = []
    for family, name in enumerate(FAMILIES):
        for window in WINDOWS:
            for how, smooth in SMOOTHING.items():
                for resamples in (200, 20) if how == "outliers only" else (200,):
                    drawn = draw(family, curves, window)
                    history = drawn.history._replace(loss=smooth(drawn.history.loss))
                    options = CurveOptions(resamples=resamples, seed=SEED)
                    fits = fit_curves(history, drawn.target, np.arange(curves), options)
                    needed = drawn.needed * (1.0 - 1e-9)
                    shares = [float((fits.quantile(q) >= needed).mean()) for q in LEVELS]
                    error = float(np.median(relative_error(fits.iterations, drawn.needed)))
                    inside = AIM[0] <= shares[1] <= AIM[1]
                    rows.append(
                        [
                            name, f"{window[0]:g} to {window[1]:g}", how, str(resamples),
                            f"{shares[0]:.3f}", f"{shares[1]:.3f}", "yes" if inside else "no",
                            f"{error:.3f}", f"{float((fits.family == family).mean()):.3f}",
                        ]
                    )  # fmt: skip
                    print(*rows[-1], file=sys.stderr)
    return rows


def round_of(count: int, points: int, seed: int = SEED) -> Jobs:
    """Jobs in mid-run, with that many points each."""
    drawn = draw(0, count, (0.3, 0.8), seed)
    keep = np.linspace(0, POINTS - 1, points).round().astype(int)
    rng = np.random.default_rng(seed)
    return Jobs.of(
        id=[f"j{i}" for i in range(count)], gang=rng.choice([1, 2, 4, 8], count),
        work=10.0 * drawn.needed, throughput_per_s=np.full((count, 1), 0.01),
        work_done=drawn.history.iteration[:, keep[-1]],
        stop_on_metric=np.ones(count, dtype=bool), metric_target=drawn.target,
        iteration_cap=3.0 * drawn.needed, slo=rng.random(count) < 0.5,
        observed_offsets=np.arange(count + 1) * points,
        observed_iteration=drawn.history.iteration[:, keep].ravel(),
        observed_metric=drawn.history.loss[:, keep].ravel(),
    )  # fmt: skip


def cost(sizes: list[int]) -> list[list[str]]:
    """CPU seconds of a round: everybody new, one job in ten with news, nobody with news."""
    rows: list[list[str]] = []
    for count in sizes:
        options = EstimatorOptions(refits_most=count)
        full, fewer = round_of(count, POINTS), round_of(count, POINTS - 1)
        some = np.arange(count) % 10 == 0
        seconds: list[str] = []
        old = estimate(fewer, None, options)[1]
        new = estimate(full, None, options)[1]
        mixed = {
            name: np.where(some, old[name], new[name]) if new[name].size == count else new[name]
            for name in new
        }
        for memory in (None, mixed, new):
            spent = []
            for _ in range(3):
                began = time.process_time()
                estimate(full, memory, options)
                spent.append(time.process_time() - began)
            seconds.append(f"{statistics.median(spent):.3f}")
        rows.append([str(count), str(POINTS), "20", *seconds])
        print(*rows[-1], file=sys.stderr)
    return rows


def scipy_seconds(histories: int) -> tuple[float, float, float]:
    """CPU seconds of one scipy fit in a known family, of ours in all three, and the worst excess.

    The excess is how much larger our weighted residual is than scipy's, relative to it.
    """
    drawn = draw(0, histories, (0.3, 0.8))
    k, loss = drawn.history.iteration, drawn.history.loss
    keys = np.arange(histories)
    began = time.process_time()
    fits = fit_curves(drawn.history, drawn.target, keys, CurveOptions(resamples=1, half_window=1e9))
    ours = (time.process_time() - began) / histories
    excess, spent = 0.0, 0.0
    for row in range(histories):
        told = loss_at(fits.family[row], fits.a[row], fits.b[row], fits.c[row], k[row])

        def residual(p: Floats, row: int = row, told: Floats = told) -> Floats:
            return (loss_at(fits.family[row], *p, k[row]) - loss[row]) / told

        start = np.maximum([fits.a[row], fits.b[row], fits.c[row]], 1e-9)
        began = time.process_time()
        found = least_squares(residual, start * 1.3, bounds=(0.0, np.inf), xtol=1e-12, ftol=1e-12)
        spent += time.process_time() - began
        at = np.array([fits.a[row], fits.b[row], fits.c[row]])
        mine = float((residual(at) ** 2).sum())
        excess = max(excess, mine / (2.0 * found.cost) - 1.0)
    return spent / histories, ours, excess


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=500)
    parser.add_argument("--jobs", default="1000,5000")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    head = [
        "truth", "seen, part of the way", "smoothing", "fits", "0.5 covers", "0.8 covers",
        "in 0.75 to 0.85", "median error", "family found",
    ]  # fmt: skip
    rows = coverage(asked.curves)
    covered = "\n".join(
        [
            "# Estimates of training time: do the quantiles cover what they say?", "",
            f"{asked.curves} curves a row, {POINTS} points each, {100 * NOISE:g} % noise.",
            "*0.8 covers*: part of the curves whose 0.8 quantile is not below the iterations",
            "needed; *median error*: of the fitted curve itself, relative. The standard error of 0.8 is",
            f"{np.sqrt(0.16 / asked.curves):.3f}. Smoothing other than *outliers only* is shown to",
            "say what it does; it is not what the estimator does.", "", table(head, rows), "",
            "`python benchmarks/estimator.py --out results/reference`", "",
        ]
    )  # fmt: skip
    if asked.out is not None:
        (asked.out / "estimator_coverage.md").write_text(covered)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([head, *rows])
        (asked.out / "estimator_coverage.csv").write_text(text.getvalue())
    costs = cost([int(size) for size in asked.jobs.split(",")])
    theirs, ours, excess = scipy_seconds(30)
    cost_head = [
        "jobs", "points", "bootstrap fits", "all new, CPU s", "a tenth new, CPU s", "no news, CPU s"
    ]  # fmt: skip
    costly = "\n".join(
        [
            "# Estimates of training time: what a round costs", "", table(cost_head, costs), "",
            f"One history, no bootstrap: {1e3 * ours:.2f} ms here for all three families,"
            f" {1e3 * theirs:.2f} ms by `scipy.optimize.least_squares` for the right one from a",
            f"start 30 % off. The weighted residual here is above scipy's by {excess:.1e} of it",
            "at most.", "", used_machine(yardstick()), "",
        ]
    )  # fmt: skip
    print(covered, costly, sep="\n")
    if asked.out is not None:
        (asked.out / "estimator_cost.md").write_text(costly)


if __name__ == "__main__":
    main()
