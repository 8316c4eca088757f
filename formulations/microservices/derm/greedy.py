"""Plans from below and from above: add what helps most for its cost, then drop what is not needed.

Source: the marginal rule of the specification's heuristics; all marginals come from one array
expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.policy import Budget

FAR = 12.0
"""While at least so many best steps are missing, several are taken at once; `trim` repairs that."""

DROPPED, SECOND = 12, 6
"""Microservices tried in exchanges: those whose loss hurts least."""


PLATEAU = 1e-9
"""Part of what is left to do below which the gain of a step is no more than the error of tails."""

NEAR, FAR_TIME = 0.01, 1e15
"""Means are near their least within this part; calls that never end count as so many ms."""

LEAST_PRICE = 1e-6
"""Part of its cost that a container counts at least: where what runs is dear to stop, one more may
cost nothing or less, and a gain is divided by it."""


@dataclass(frozen=True, eq=False)
class Greedy:
    """A plan, whether it keeps every row, and whether the clock struck."""

    containers: Ints
    kept: bool
    time_limited: bool = False


def climb(need: Requirements, budget: Budget, start: Ints | None = None) -> Greedy:
    """Add containers until every row is kept, or no container helps any more."""
    counts = (need.low if start is None else start).copy()
    met = need.met(counts)
    score = _score(need, met)
    while score > 0.0:
        if budget.left_s() <= 0.0:
            return Greedy(counts, kept=False, time_limited=True)
        free = (counts < need.high) & _fits(need, counts)
        scores = _score(need, _neighbours(need, counts, 1, met))
        price = np.maximum(need.step_cost(counts), LEAST_PRICE * need.cost)
        gain = np.where(free, score - scores, -np.inf) / price
        best = int(gain.argmax()) if gain.size else -1
        if best < 0 or not gain[best] * price[best] > PLATEAU * score:
            relief = np.where(free, _relief(need, counts, met), 0.0) / price
            if not relief.max(initial=0.0) > 0.0:
                return Greedy(counts, kept=False)
            gain, best, score = relief, int(relief.argmax()), np.inf
        step = np.zeros_like(counts)
        step[best] = 1
        if score > FAR * gain[best] * price[best]:
            several = np.where(gain >= 0.5 * gain[best], _strides(need, counts), 0)
            if _fits_all(need, counts + several):
                step = np.minimum(several, need.high - counts)
        counts = counts + step
        met = need.met(counts)
        score = _score(need, met)
    return Greedy(counts, kept=_fits_all(need, counts))


def _relief(need: Requirements, counts: Ints, met: Floats) -> Floats:
    """Mean time that one container more takes off the classes of the rows that are missed, shape (M,).

    Where nearly all requests are late no step changes how many are; the mean still falls. Means that
    are as short as can be, but for ``NEAR``, are left alone: what is late then stays late.
    """
    missed = (need.excess(met) > 0.0).astype(np.float64) @ need.weight * (1.0 - met)
    with np.errstate(divide="ignore", invalid="ignore"):
        now, more, least = (
            1.0 / need.tails.rates(np.minimum(count, need.high), need.rank)
            for count in (counts, counts + 1, need.high)
        )
        fall = np.where(
            now > least * (1.0 + NEAR), np.where(np.isinf(now), FAR_TIME, now - more), 0.0
        )
    calls = need.round_.demand[:, need.tails.classes] * missed
    return cast(Floats, (calls * fall).sum(axis=1))


def _strides(need: Requirements, counts: Ints) -> Ints:
    """Steps of a hundredth while the plan is far from what is needed."""
    return cast(Ints, np.maximum(counts // 100, 1))


def trim(need: Requirements, counts: Ints, budget: Budget) -> Greedy:
    """Drop what every row can spare, then exchange two for one and dear for cheap."""
    counts = counts.copy()
    while budget.left_s() > 0.0:
        after = need.excess(_neighbours(need, counts, -1)).max(axis=1, initial=-np.inf)
        saved = need.step_cost(counts - 1)
        loose = (counts > need.low) & (after <= 0.0) & (saved > 0.0)
        if loose.any():
            dearest = loose & (saved >= saved[loose].max())
            counts[int(np.where(dearest, after, np.inf).argmin())] -= 1
            continue
        better = _exchanged(need, counts, np.where(counts > need.low, after, np.inf))
        if better is None:
            return Greedy(counts, kept=True)
        counts = better
    return Greedy(counts, kept=True, time_limited=True)


def kept_running(need: Requirements, counts: Ints) -> Ints:
    """Add what is cheaper to keep than to stop, as far as the cluster goes."""
    counts = counts.copy()
    while True:
        saved = np.where((counts < need.high) & _fits(need, counts), -need.step_cost(counts), 0.0)
        best = int(saved.argmax()) if saved.size else -1
        if best < 0 or not saved[best] > 0.0:
            return counts
        counts[best] += 1


def _exchanged(need: Requirements, counts: Ints, after: Floats) -> Ints | None:
    """Drop one and add a cheaper one, or drop two and add one; None where no exchange helps."""
    value = need.value(counts)
    for m in np.argsort(after, kind="stable")[:DROPPED].tolist():
        if not np.isfinite(after[m]):
            break
        less = counts.copy()
        less[m] -= 1
        found = _one_more(need, less, value)
        if found is not None:
            return found
        second = need.excess(_neighbours(need, less, -1)).max(axis=1, initial=-np.inf)
        second[less <= need.low] = np.inf
        for other in np.argsort(second, kind="stable")[:SECOND].tolist():
            if not np.isfinite(second[other]):
                break
            fewer = less.copy()
            fewer[other] -= 1
            found = _one_more(need, fewer, value)
            if found is not None:
                return found
    return None


def _one_more(need: Requirements, counts: Ints, value: float) -> Ints | None:
    """Add one container so that every row is kept at less than a value; None where none does."""
    cheap = need.value(counts) + need.step_cost(counts) < value * (1.0 - COST_TOLERANCE)
    cheap &= (counts < need.high) & _fits(need, counts)
    if not cheap.any():
        return None
    worst = need.excess(_neighbours(need, counts, 1)).max(axis=1, initial=-np.inf)
    best = int(np.where(cheap, worst, np.inf).argmin())
    if not worst[best] <= 0.0 or not cheap[best]:
        return None
    out = counts.copy()
    out[best] += 1
    return out


COST_TOLERANCE = 1e-9
"""Relative: sums of the same costs in another order must not count as progress."""


def _neighbours(need: Requirements, counts: Ints, step: int, met: Floats | None = None) -> Floats:
    """Probabilities after one microservice alone has ``step`` containers more; shape (M, A)."""
    other = np.clip(counts + step, need.low, need.high)
    if need.rank is not None:
        rows = [_changed(counts, m, int(other[m])) for m in range(counts.size)]
        return np.array([need.met(row) for row in rows]).reshape(counts.size, -1)
    return need.tails.neighbours(need.tails.rates(counts), need.tails.rates(other))


def _changed(counts: Ints, m: int, value: int) -> Ints:
    out = counts.copy()
    out[m] = value
    return out


def _score(need: Requirements, met: Floats) -> Floats:
    """Sum of the relative excesses: what is left to do."""
    return cast(Floats, np.maximum(need.excess(met), 0.0).sum(axis=-1))


def _fits(need: Requirements, counts: Ints) -> Bools:
    """Tell of which microservices the cluster can hold one container more, shape (M,)."""
    over = need.over_capacity(counts)
    size = np.stack((need.round_.microservices.cpu_cores, need.round_.microservices.memory_mib))
    return cast(Bools, (over[:, None] + size <= 0.0).all(axis=0))


def _fits_all(need: Requirements, counts: Ints) -> bool:
    return need.within_capacity(counts)
