"""From histories of a metric to the iteration at which it will reach its target, with quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.counters import uniforms
from apportion.instances.errors import InstanceError
from apportion.instances.training.curves import FAMILIES, NO_CURVE, iterations_to, loss_at
from apportion.instances.training.separable import (
    Fitted,
    on_grid,
    parameters,
    polished,
    theta_of,
)

PURPOSE = "bootstrap"
_ROUNDING = 1e-13
"""Residual over loss below which data count as exact: what is left is rounding."""

_AT_ONCE = 256
"""Histories refitted together: few enough for the tables to stay in the cache."""

_OUTLIER_SPREADS = 5.0
"""A point this many standard deviations off its neighbours' median is replaced by it; of honest
normal noise fewer than one point in a thousand goes that far."""

_MEDIAN_TO_SIGMA = 1.4826 / np.sqrt(6.0)
"""Median size of second differences to standard deviation, for normal noise."""


@dataclass(frozen=True)
class CurveOptions:
    """How curves are fitted.

    Parameters
    ----------
    resamples
        Bootstrap copies of each history.
    least_points
        Points below which no curve is fitted.
    half_window
        Points after which a weight has halved; None: half of the history.
    seed
        Root of the random numbers; each job has its own.
    """

    resamples: int = 20
    least_points: int = 5
    half_window: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise InstanceError(f"curves.resamples = {self.resamples}: must be at least 1")
        if self.least_points < 4:
            raise InstanceError(
                f"curves.least_points = {self.least_points}: three parameters need 4 at least"
            )
        if self.half_window is not None and not self.half_window > 0:
            raise InstanceError(f"curves.half_window = {self.half_window}: must be positive")
        if self.seed < 0:
            raise InstanceError(f"curves.seed = {self.seed}: must not be negative")


class Histories(NamedTuple):
    """Histories of J jobs, padded to P points: iterations, losses, and which points there are."""

    iteration: Floats
    loss: Floats
    there: Bools


@dataclass(frozen=True)
class CurveFits:
    """What was fitted to J histories.

    Parameters
    ----------
    family
        Code of the family chosen, ``NO_CURVE`` where none could be fitted, shape (J,).
    a, b, c
        Its parameters, shape (J,).
    points
        Points used, shape (J,).
    iterations
        Iterations to the target, by the chosen curve, shape (J,).
    samples
        The same by each bootstrap copy, rising, shape (J, R); infinite: never.
    """

    family: Ints
    a: Floats
    b: Floats
    c: Floats
    points: Ints
    iterations: Floats
    samples: Floats

    def quantile(self, level: float) -> Floats:
        """Quantile of the iterations to the target, shape (J,): the sample of that rank."""
        return self.samples[:, rank(level, self.samples.shape[1])]


def rank(level: float, samples: int) -> int:
    """Place of the quantile among sorted samples: the (samples + 1) level-th, rounded up.

    With 4 samples, the next draw lies below the largest of them 4 times out of 5; so that is
    the 0.8 quantile, while the usual interpolation would promise too much.
    """
    return int(np.clip(np.ceil((samples + 1) * level - 1e-9) - 1, 0, samples - 1))


def padded(offsets: Ints, iteration: Floats, loss: Floats) -> Histories:
    """Lay ragged histories out as a table; points that cannot belong to a curve are left out.

    Parameters
    ----------
    offsets
        Shape (J + 1,).
    iteration, loss
        All points, one history after the other, iterations rising. Points that are not finite,
        of no iteration at all or of a loss that is not positive are dropped.
    """
    owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    with np.errstate(invalid="ignore"):
        good = np.isfinite(iteration) & np.isfinite(loss) & (iteration > 0) & (loss > 0)
    owner, k, m = owner[good], iteration[good], loss[good]
    order = np.lexsort((k, owner))
    owner, k, m = owner[order], k[order], m[order]
    count = np.bincount(owner, minlength=offsets.size - 1)
    width = int(count.max(initial=0))
    place = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    table = np.ones((2, offsets.size - 1, width))
    table[0, owner, place], table[1, owner, place] = k, m
    there = np.arange(width)[None] < count[:, None]
    return Histories(table[0], table[1], there)


def without_outliers(history: Histories) -> Floats:
    """Losses in which points far off their neighbours are replaced by the median of three.

    Only such points: a median everywhere, or a running minimum, would take away noise that the
    quantiles are to tell of, the minimum with a bias.
    """
    loss, there = history.loss, history.there
    if loss.shape[1] < 3:
        return loss
    logs = np.log(loss)
    inner = there[:, 2:]
    bend = np.abs(logs[:, 2:] - 2.0 * logs[:, 1:-1] + logs[:, :-2])
    spread = np.zeros(loss.shape[0])
    some = inner.any(axis=1)
    spread[some] = np.nanmedian(np.where(inner, bend, np.nan)[some], axis=1) * _MEDIAN_TO_SIGMA
    median = np.median(np.stack([logs[:, 2:], logs[:, 1:-1], logs[:, :-2]]), axis=0)
    out = loss.copy()
    off = np.pad(np.where(inner, np.abs(logs[:, 1:-1] - median), 0.0), ((0, 0), (1, 1)))
    # a spike moves its neighbours' medians too: only the worst of three is the outlier
    worst = (off[:, 1:-1] >= off[:, :-2]) & (off[:, 1:-1] >= off[:, 2:])
    far = worst & (off[:, 1:-1] > _OUTLIER_SPREADS * spread[:, None])
    out[:, 1:-1] = np.where(far & inner, np.exp(median), loss[:, 1:-1])
    return out


def recency(there: Bools, half_window: float | None) -> Floats:
    """Weights ``2 ** (-age / half_window)``, the newest point 1, age in points; 0: no point."""
    count: Floats = there.sum(axis=1).astype(np.float64)[:, None]
    age: Floats = count - 1.0 - np.arange(there.shape[1], dtype=np.float64)[None]
    half = np.maximum(count / 2.0, 1.0) if half_window is None else half_window
    return np.where(there, np.exp2(-age / half), 0.0)


class _Points(NamedTuple):
    """What a fit works on: x = iteration / largest, losses, weights, age weights, counts."""

    x: Floats
    loss: Floats
    weight: Floats
    recent: Floats
    most: Floats
    counts: Ints


def fit_curves(
    history: Histories, target: Floats, keys: Any, options: CurveOptions | None = None
) -> CurveFits:
    """Fit curves and solve them for the target.

    Parameters
    ----------
    history
        J histories of losses.
    target
        Losses to be reached, shape (J,).
    keys
        Whole numbers that are the jobs' own, shape (J,): the random numbers depend on them.
    options
        How.
    """
    how = options or CurveOptions()
    jobs = target.size
    count = cast(Ints, history.there.sum(axis=1))
    rows = np.flatnonzero(count >= how.least_points)
    family = np.full(jobs, NO_CURVE, dtype=np.int64)
    values, samples = np.full((4, jobs), np.nan), np.full((jobs, how.resamples), np.nan)
    if rows.size:
        some = Histories(history.iteration[rows], history.loss[rows], history.there[rows])
        chosen, found, drawn = _fitted(some, target[rows], np.asarray(keys)[rows], how)
        family[rows], values[:, rows], samples[rows] = chosen, found, drawn
    return CurveFits(family, values[0], values[1], values[2], count, values[3], samples)


def _fitted(
    history: Histories, target: Floats, keys: Any, how: CurveOptions
) -> tuple[Ints, Floats, Floats]:
    points = _points(history, how.half_window)
    fits, predicted = _every_family(points)
    best = _scores(points, fits).argmin(axis=0)
    rows = np.arange(target.size)
    a, b, c = (np.stack([getattr(fit, name) for fit in fits])[best, rows] for name in "abc")
    falls = np.stack([fit.free > 1 for fit in fits])[best, rows]
    family = np.where(falls, best, NO_CURVE)
    k = iterations_to(family, a, b, c, target)
    samples = _resampled(points, fits, predicted, best, target, keys, how)
    samples = np.where(falls[:, None], samples, np.nan)
    return family, np.stack([a, b, c, k]), samples


def _points(history: Histories, half_window: float | None) -> _Points:
    there, loss = history.there, without_outliers(history)
    most = np.where(there, history.iteration, 0.0).max(axis=1)
    recent = recency(there, half_window)
    x = np.where(there, history.iteration / most[:, None], 1.0)
    # noise is a part of the loss, not an amount: residuals are counted relative to it
    weight = recent / loss**2
    return _Points(x, loss, weight, recent, most, there.sum(axis=1))


def _every_family(points: _Points) -> tuple[list[Fitted], list[Floats]]:
    """Fit each family; the second pass weighs by the fitted losses, which carry no noise."""
    fits: list[Fitted] = []
    predicted: list[Floats] = []
    for family in range(len(FAMILIES)):
        theta = on_grid(family, points.x, points.loss[:, None], points.weight)[0][:, 0]
        theta, lines = polished(family, theta, points.x, points.loss, points.weight)
        fit = parameters(family, theta, lines, points.most)
        k = points.x * points.most[:, None]
        told = loss_at(family, fit.a[:, None], fit.b[:, None], fit.c[:, None], k)
        weight = points.recent / told**2
        theta, lines = polished(family, theta, points.x, points.loss, weight)
        fit = parameters(family, theta, lines, points.most)
        told = loss_at(family, fit.a[:, None], fit.b[:, None], fit.c[:, None], k)
        fits.append(fit)
        predicted.append(told)
    return fits, predicted


def _scores(points: _Points, fits: list[Fitted]) -> Floats:
    """AICc of each family, shape (families, J); parameters at their bound are not counted."""
    n = points.counts.astype(np.float64)
    total = points.recent.sum(axis=1)
    out: list[Floats] = []
    for fit in fits:
        relative = np.maximum(fit.residual / total, _ROUNDING**2)
        p = fit.free + 1.0  # and the spread of the noise
        small = np.where(n - p - 1.0 > 0, 2.0 * p * (p + 1.0) / np.maximum(n - p - 1.0, 0.5), 0.0)
        out.append(n * np.log(relative) + 2.0 * p + small)
    return np.stack(out)


def _resampled(
    points: _Points, fits: list[Fitted], predicted: list[Floats], best: Ints, target: Floats,
    keys: Any, how: CurveOptions,
) -> Floats:  # fmt: skip
    """Iterations to the target by refitted bootstrap copies, rising, shape (J, R).

    Copies are refitted in the family that was chosen: averaging over the families by their
    Akaike weights covers more than it says.
    """
    out = np.full((target.size, how.resamples), np.inf)
    for family, (fit, told) in enumerate(zip(fits, predicted, strict=True)):
        chosen = np.flatnonzero(best == family)
        for start in range(0, chosen.size, _AT_ONCE):
            rows = chosen[start : start + _AT_ONCE]
            some = _picked(points, rows)
            own = Fitted(*(column[rows] for column in fit))
            loss = _copies(some, told[rows], own.free, np.asarray(keys)[rows], how)
            weight = some.recent / told[rows] ** 2
            # the fitted curve itself goes first: its theta is known, and tells the grid's error
            loss = np.concatenate((told[rows][:, None], loss), axis=1)
            theta, lines = on_grid(family, some.x, loss, weight, theta_of(family, own, some.most))
            again = parameters(family, theta, lines, some.most[:, None])
            k = iterations_to(family, again.a, again.b, again.c, target[rows][:, None])
            out[rows] = np.where(again.free > 1, k, np.inf)[:, 1:]
    return np.sort(out, axis=1)


def _picked(points: _Points, rows: Ints) -> _Points:
    x, loss, weight, recent, most, counts = points
    return _Points(x[rows], loss[rows], weight[rows], recent[rows], most[rows], counts[rows])


def _copies(points: _Points, told: Floats, free: Floats, keys: Any, how: CurveOptions) -> Floats:
    """Histories as they could have come out: fitted losses with residuals drawn anew."""
    there, n = points.recent > 0, points.counts.astype(np.float64)
    relative = np.where(there, points.loss / told - 1.0, 0.0)
    relative = np.where(there, relative - (relative.sum(axis=1) / n)[:, None], 0.0)
    # residuals of a fit are smaller than the noise by the parameters it spent
    relative = relative * np.sqrt(n / np.maximum(n - free, 1.0))[:, None]
    copy = np.arange(how.resamples)[None, :, None]
    place = cast(Ints, np.arange(told.shape[1]))
    drawn = uniforms(how.seed, PURPOSE, keys[:, None, None], copy, place)
    pick = (drawn * points.counts[:, None, None]).astype(np.int64)
    noise = np.take_along_axis(relative[:, None], pick, axis=2)
    return told[:, None] * (1.0 + np.where(there[:, None], noise, 0.0))
