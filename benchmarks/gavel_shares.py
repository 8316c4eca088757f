"""Time Gavel's policies and hold them to other codes: ``results/reference/gavel_shares.md``.

Usage: ``python benchmarks/gavel_shares.py [--short] [--only las,ftf,levels] [--out results/reference]``

CPU seconds of this process, imports and the drawing of rounds excluded. ``las`` and ``ftf`` are set
beside the same problems through cvxpy on ECOS and CLARABEL; every level of ``levels`` is found again
by LPs that scipy solves and that know nothing of the others.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, vstack

from apportion.formulations.training.gavel import GavelFTF, GavelLAS
from apportion.formulations.training.gavel.finish_time import Ratios
from apportion.formulations.training.time_shares import Sharers
from apportion.instances import Decision
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Sharing, Solver, water_filling

PARTS = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
"""Part of the GPUs that each type has."""

CODES = ("ECOS", "CLARABEL")
TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}

KNOWN_LEVELS = {
    1.0: (0.50134191, 0.72967496, 1.01936946, 1.60191785),
    0.7: (0.63869699, 0.86570575, 2.1991381),
    3.0: (0.28000042, 0.29416991),
}
"""Levels of 1000 jobs certified in rational numbers, by load."""


HEADS = {
    "las": (
        "| jobs x types | load | gavel-las | ECOS | CLARABEL | level | worst difference |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ),
    "ftf": (
        "| jobs x types | load | gavel-ftf | ratio | gap | ECOS | CLARABEL |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ),
    "levels": (
        "| jobs x 6, load | CPU s | LPs | levels | off what is known | off by an LP per level"
        " | what those of a level could still rise by |",
        "| --: | --: | --: | :-- | --: | --: | --: |",
    ),
}


def draw(n: int, k: int, seed: int, load: float) -> tuple[Any, Any, Any, np.random.Generator]:
    """Draw speeds, gangs and GPUs by the law of the certified levels."""
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.2, 1.3, n)
    noise, size = rng.normal(0.0, 0.15, (n, k)), rng.normal(0.0, 1.0, n)
    speed = np.linspace(1.0, 4.0, k) ** power[:, None] * np.exp(noise) * np.exp(size)[:, None]
    hole = rng.random((n, k)) < 0.1
    hole[np.arange(n), rng.integers(0, k, n)] = False
    speed[hole] = 0.0
    gang = rng.choice([1, 2, 4, 8], n, p=[0.7, 0.1, 0.15, 0.05])
    part = PARTS[:k] / PARTS[:k].sum()
    return speed, gang, np.round(gang.sum() / load * part).astype(int), rng


def round_of(speed: Any, gang: Any, gpus: Any, work: Any = None, **columns: Any) -> TrainingRound:
    """Make a round of these jobs."""
    n = len(gang)
    now_s = columns.pop("now_s", 0.0)
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(count) for i, count in enumerate(gpus)}),
        jobs=Jobs.of(
            id=[f"job-{i}" for i in range(n)], gang=gang, throughput_per_s=speed,
            work=np.full(n, 1e6) if work is None else work, **columns,
        ),
        now_s=now_s,
    )  # fmt: skip


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    start = time.process_time()
    out = work()
    return time.process_time() - start, out


def median(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median CPU seconds, and what the last call returned."""
    runs = [cpu(work) for _ in range(repeats)]
    return statistics.median(took for took, _ in runs), runs[-1][1]


def decided(policy: Any, round_: TrainingRound) -> Decision:
    """Decide a round, from columns to leases."""
    budget = Budget.of(None)
    return policy.compile(round_, None, budget).solve(Solver(gap=0.0), budget)


def conic(name: str, build: Callable[[], Any]) -> str | float:
    """Value that a conic code finds, or what it says instead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = build()
            problem.solve(solver=name)
    except Exception as error:  # whatever it does is a finding
        return type(error).__name__
    return float(problem.value) if problem.status == "optimal" else str(problem.status)


def max_min_problem(speed: Any, gang: Any, gpus: Any, scale: Any) -> Any:
    """Max-min as Gavel's code writes it, by whole arrays."""
    x = cp.Variable(speed.shape, nonneg=True)
    level = cp.multiply(scale, cp.sum(cp.multiply(speed, x), axis=1))
    rules = [cp.sum(x, axis=1) <= 1, gang @ x <= gpus]
    return cp.Problem(cp.Maximize(cp.min(level)), rules)


def cone_problem(x: Any, speed: Any, gang: Any, gpus: Any, ratios: Ratios) -> Any:
    """Finish-time fairness as Gavel's code writes it."""
    rate = cp.sum(cp.multiply(speed, x), axis=1)
    late = ratios.age_s + cp.multiply(ratios.sharers.left, cp.inv_pos(rate))
    rules = [cp.sum(x, axis=1) <= 1, gang @ x <= gpus]
    return cp.Problem(cp.Minimize(cp.max(cp.multiply(1.0 / ratios.isolated_s, late))), rules)


def las(short: bool, repeats: int) -> Iterator[str]:
    """Max-min of contended rounds beside conic codes on the same LP."""
    yield from HEADS["las"]
    for n, load in (
        ((1024, 6.0),) if short else ((1024, 6.0), (8192, 3.0), (8192, 6.0), (8192, 12.0))
    ):
        speed, gang, gpus, rng = draw(n, 3, 0, load)
        weight = rng.choice([1.0, 2.0, 4.0], n, p=[0.7, 0.2, 0.1])
        round_ = round_of(speed, gang, gpus, weight=weight)
        took, decision = median(partial(decided, GavelLAS(), round_), repeats)
        scale = gang / weight / (speed @ (gpus / gpus.sum()))
        cells, apart = [], 0.0
        for code in CODES:
            build = partial(max_min_problem, speed, gang, gpus, scale)
            spent, value = median(partial(conic, code, build), repeats)
            cells.append(f"{spent:.2f} ({spent / took:.1f}x)")
            if isinstance(value, float):
                apart = max(apart, abs(value - decision.objective) / decision.objective)
            else:
                cells[-1] += f" {value}"
        yield (
            f"| {n} x 3 | {load:g} | {took:.3f} {decision.status} | {' | '.join(cells)}"
            f" | {decision.objective:.8f} | {apart:.0e} |"
        )


def ftf(short: bool, repeats: int) -> Iterator[str]:
    """Finish-time fairness beside the cone form that Gavel's code uses."""
    yield from HEADS["ftf"]
    sizes = ((500, 3.0),) if short else tuple(
        (n, load) for n in (1000, 4000) for load in (1.0, 3.0, 10.0, 30.0)
    )  # fmt: skip
    for n, load in sizes:
        speed, gang, gpus, rng = draw(n, 6, 0, load)
        left = speed.max(axis=1) * np.exp(rng.normal(8.0, 1.2, n))
        share = gpus / (n * gang[:, None])
        share = share / np.maximum(1.0, share.sum(axis=1, keepdims=True))
        alone = (speed * share).sum(axis=1)
        done = left * rng.uniform(0.0, 1.0, n)
        age = done / alone * rng.uniform(0.3, 1.5, n)
        now_s = float(age.max())
        round_ = round_of(
            speed, gang, gpus, work=left + done, work_done=done, arrival_s=now_s - age, now_s=now_s
        )  # fmt: skip
        took, decision = median(partial(decided, GavelFTF(), round_), repeats)
        sharers = Sharers.of(round_)
        whole = (done + left) / alone
        ratios = Ratios(sharers, sharers.speed, now_s - round_.jobs.arrival_s, whole)
        cells = []
        for code in CODES:
            x = cp.Variable(speed.shape, nonneg=True)
            build = partial(cone_problem, x, speed, gang, gpus, ratios)
            spent, value = cpu(partial(conic, code, build))
            if isinstance(value, float):
                point = np.where(speed > 0.0, np.maximum(x.value, 0.0), 0.0)
                load_of = np.maximum(1.0, gang @ point / gpus)
                point = point / load_of / np.maximum(1.0, (point / load_of).sum(axis=1))[:, None]
                off = ratios.at(point).max() / decision.objective - 1.0
                cells.append(f"{spent:.2f}, {off:+.0e}")
            else:
                cells.append(f"{spent:.2f}, {value}")
        yield (
            f"| {n} x 6 | {load:g} | {took:.2f} {decision.status} | {decision.objective:.8f}"
            f" | {decision.gap:.0e} | {' | '.join(cells)} |"
        )


def levels(short: bool, repeats: int) -> Iterator[str]:
    """Water-filling: known levels, and each one by LPs of its own."""
    yield from HEADS["levels"]
    cases = [(1000, 0.7, False), (1000, 1.0, False), (1000, 3.0, False)]
    if short:
        cases = [(200, 1.0, False), (200, 3.0, True)]
    else:
        cases += [(1000, 1.0, True), (1000, 3.0, True), (4000, 3.0, False)]
    for n, load, ties in cases:
        speed, gang, gpus, rng = draw(n, 6, 0, load)
        weight = rng.choice([1.0, 2.0, 4.0], n, p=[0.7, 0.2, 0.1])
        if ties:  # few different numbers, every job with equals
            speed = np.where(speed > 0.0, np.maximum(0.5, np.round(speed * 2.0) / 2.0), 0.0)
            speed[n // 2 :], gang[n // 2 :], weight[n // 2 :] = (
                speed[: n // 2], gang[: n // 2], weight[: n // 2],
            )  # fmt: skip
            gpus = np.round(gang.sum() / load * PARTS)
        scale = gang / weight / (speed @ (gpus / gpus.sum())) / gang.mean()
        sharing = Sharing(speed, gang.astype(float), gpus.astype(float), scale)
        fill = partial(water_filling, sharing, budget=Budget.of(None))
        took, filled = median(fill, repeats if n <= 1000 else 1)
        known = KNOWN_LEVELS.get(load, ()) if n == 1000 and not ties else ()
        off = max(
            (abs(a - b) / b for a, b in zip(filled.bottlenecks, known, strict=False)), default=None
        )
        again = [checked(sharing, filled, level) for level in filled.bottlenecks]
        told = ", ".join(f"{level:.8f}" for level in filled.bottlenecks)
        yield (
            f"| {n}, {load:g}{', ties' if ties else ''} | {took:.2f} | {filled.runs}"
            f" | {told}; top {filled.levels.max():.6f}"
            f" | {'' if off is None else f'{off:.0e}'}"
            f" | {max(one for one, _ in again):.0e} | {max(two for _, two in again):.0e} |"
        )


def checked(sharing: Sharing, filled: Any, level: float) -> tuple[float, float]:
    """Relative difference of a level from its own LP, and the most its jobs could rise by.

    First LP: jobs settled before keep their levels, all others have at least t; most t. Second: the
    others have at least the level; most levels in sum of those that settle at it.
    """
    before = filled.levels < level * (1.0 - 1e-9)
    at = ~before & (filled.levels <= level * (1.0 + 1e-9))
    best = sharing.best
    least = np.where(before, filled.levels, level) / best
    # the others may ask for the level by t
    rise = linear(sharing, least * before, np.where(before, 0.0, level / best), np.zeros(best.size))
    total = linear(sharing, least, np.zeros(best.size), np.where(at, best / level, 0.0))
    return abs(rise - 1.0), max(0.0, total / np.count_nonzero(at) - 1.0)


def linear(sharing: Sharing, least: Any, slope: Any, gain: Any) -> float:
    """Most ``t + gain @ level / best`` with ``level / best >= least + slope t``."""
    n, k = sharing.speed.shape
    row, kind = np.nonzero(sharing.speed > 0.0)
    size = row.size
    part = (sharing.speed / sharing.speed.max(axis=1, keepdims=True))[row, kind]
    with_t = bool(slope.any())
    pairs = np.arange(size)
    jobs = np.arange(n)
    share = coo_matrix(
        (np.r_[-part, slope], (np.r_[row, jobs], np.r_[pairs, np.full(n, size)])), (n, size + 1)
    )
    one = coo_matrix((np.ones(size), (row, pairs)), (n, size + 1))
    load = coo_matrix((sharing.gang[row], (kind, pairs)), (k, size + 1))
    cost = np.r_[-gain[row] * part, -1.0 if with_t else 0.0]
    found = linprog(
        cost, vstack([share, one, load]).tocsr(), np.r_[-least, np.ones(n), sharing.capacity],
        bounds=np.c_[np.zeros(size + 1), np.full(size + 1, np.inf)], method="highs-ds",
        options=TIGHT,
    )  # fmt: skip
    return float("nan") if found.fun is None else -float(found.fun)


PARTS_OF = {
    "las": ("Max-min (`gavel-las`) beside conic codes", las,
            "From columns to leases under `gavel-las`, against the same LP through cvxpy."
            " CPU seconds, medians; in brackets how many times as long."),
    "ftf": ("Finish-time fairness (`gavel-ftf`) beside its cone form", ftf,
            "From columns to leases, medians. Conic codes: CPU seconds, once; then by how much the"
            " ratio of their point, scaled into the rules, is above ours, or what they said instead"
            " of a point."),
    "levels": ("Water-filling, every level found again", levels,
               "Known: levels of the same rounds certified in rational numbers. `top` is the"
               " largest level of any job. The last two columns are relative."),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small rounds, once each")
    parser.add_argument("--only", default=",".join(PARTS_OF))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = ["# Gavel's policies: time, and other codes' word for it", ""]
    decided(GavelLAS(), round_of(np.ones((2, 1)), np.ones(2, int), [1]))  # imports
    for name in asked.only.split(","):
        title, measure, said = PARTS_OF[name]
        print(title, flush=True)
        rows: list[str] = []
        for row in measure(asked.short, 1 if asked.short else 3):
            print(row, flush=True)
            rows.append(row)
        text += [f"## {title}", "", *rows, "", said, ""]
    flag = " --short" if asked.short else ""
    text += [f"Made by `python benchmarks/gavel_shares.py{flag}`."]
    if asked.out:
        (asked.out / "gavel_shares.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
