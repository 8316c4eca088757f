"""Max-min of many different jobs by prices of the types.

At given prices every job reaches a level at least cost on one type, or on two whose fractions add
up to 1; both are read off in closed form, and all jobs together bound the level by LP duality,
whatever the prices are. Near the right ones most jobs have one way that is clearly the cheapest:
what they take is then linear in the level, and they leave the LP, which keeps the jobs with near
ties. It ends where the bound, by our own arithmetic over all jobs and types, meets the level of
the point; what was left out is then proved useless.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.budget import Budget
from apportion.solver.models.builder import ModelBuilder
from apportion.solver.solve import Solver
from apportion.solver.tolerances import COMPARISON

if TYPE_CHECKING:
    from apportion.solver.drivers.sharing import Sharing

PRICES_FROM = 4_000
"""Columns from which prices are worth their rounds: the plain LP of fewer takes 0.03 CPU seconds."""

MOST_TYPES = 16
"""Types up to which every job looks at all pairs of them."""

SAMPLE = 4
"""One job in so many gives the first prices, by prices of a sample of their own where many."""

TIES = 400
"""Jobs that the first LP keeps for near ties, where these are more than ``TIED_PART`` of them."""

TIED_PART = 0.08
"""Part of the jobs that the first LP keeps for near ties, else."""

LEAST_CUT = 1e-3
"""First regret that counts as a tie, at least: bad prices make regrets of zero, and it is doubled."""

SPAN = 0.08
"""Part of the level by which the first LP may miss the last one with jobs left out as they are."""

ROUNDS = 10
"""LPs after which the plain one is asked; two to four are usual."""

PRICE_CHANGES = 24
"""Changes of prices in search of a plan that leaves room on every type."""

ROUNDING = 1e-12
"""A level that a job reaches alone may seem to be out of its reach by so much, relative."""

NEWTON_STEPS = 6
"""Steps to the level that first prices pay for; it need not be exact."""


@dataclass(frozen=True, slots=True, eq=False)
class PricedLevel:
    """A level, its fractions, and what proves it.

    Attributes
    ----------
    level
        Level of the LP's point.
    bound
        Level that none exceeds.
    x
        Fractions, shape (n, k).
    price
        Price of a GPU of each type, shape (k,).
    runs
        LPs solved, those of samples aside.
    """

    level: float
    bound: float
    x: FloatArray
    price: FloatArray
    runs: int


def level_by_prices(
    sharing: Sharing, solver: Solver, budget: Budget, start: FloatArray | None = None
) -> PricedLevel | None:
    """Find the best level by prices.

    Parameters
    ----------
    sharing
        The jobs; ceilings are left aside.
    solver
        How the small LPs are solved.
    budget
        Deadline for everything.
    start
        Prices to start from, shape (k,); those of a sample unless given.

    Returns
    -------
    The level, proved to ``COMPARISON``; ``None`` where rounds or budget end without a proof.
    """
    best = least_best(sharing)
    if not 0.0 < best < np.inf or sharing.capacity.size > MOST_TYPES:
        return None
    price = _sampled(sharing, solver, budget) if start is None else np.maximum(start, 0.0)
    if price is None:
        return None
    if not (price * sharing.capacity).any():
        return _with_room(sharing, best)
    search = _Search(sharing, best, price, _paid_for(sharing, price, best))
    for runs in range(1, ROUNDS + 1):
        if budget.expired():
            return None
        search.widen()
        point = _solved(search, solver, budget)
        if point is None:
            search.cut, search.span = 3.0 * search.cut, 2.0 * search.span
            continue
        bound = level_bound(sharing, point.price, cheapest(sharing, point.level, point.price))
        if bound - point.level <= COMPARISON * point.level:
            return PricedLevel(point.level, bound, point.x, point.price, runs)
        search.learn(point, bound)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """Every job's cheapest way to a level at given prices, and what the others cost beyond it.

    Attributes
    ----------
    reward, rent
        Duals of the job's speed and of its time, shape (n,).
    fast, slow
        The type that it uses, and a second one beside it or -1, shape (n,).
    regret
        What each type costs beyond what it earns, in parts of its cost, shape (n, k); infinite
        where there is no GPU.
    """

    reward: FloatArray
    rent: FloatArray
    fast: IntArray
    slow: IntArray
    regret: FloatArray

    def used(self) -> BoolArray:
        """Where the jobs run, shape (n, k)."""
        out = np.zeros(self.regret.shape, dtype=np.bool_)
        rows = np.arange(self.fast.size)
        out[rows, self.fast] = True
        out[rows[self.slow >= 0], self.slow[self.slow >= 0]] = True
        return out


def cheapest(sharing: Sharing, level: float, price: FloatArray) -> Ways:
    """Find every job's cheapest way to a level that each of them reaches if it is alone."""
    speed, need = sharing.speed, level / sharing.scale
    cost = sharing.gang[:, None] * price
    open_ = sharing.capacity > 0.0
    least, reward = np.full(need.size, np.inf), np.zeros(need.size)
    fast, slow = np.zeros(need.size, dtype=np.int64), np.full(need.size, -1, dtype=np.int64)
    for kind in np.flatnonzero(open_).tolist():
        able = (speed[:, kind] >= need * (1.0 - ROUNDING)) & (speed[:, kind] > 0.0)
        for other in (-1, *np.flatnonzero(open_ & (price < price[kind])).tolist()):
            # beside it a slower and cheaper type, or nothing
            base = 0.0 if other < 0 else cost[:, other]
            start = 0.0 if other < 0 else speed[:, other]
            where = able & (start < np.minimum(need, speed[:, kind]))
            rate = np.divide(
                cost[:, kind] - base, speed[:, kind] - start, out=np.zeros_like(need), where=where
            )
            total = base + rate * (need - start)
            better = where & (total < least)
            least[better], reward[better] = total[better], rate[better]
            fast[better], slow[better] = kind, other
    gain = np.where(open_, reward[:, None] * speed - cost, -np.inf)
    rent = np.maximum(gain.max(axis=1, initial=-np.inf), 0.0)
    paid = cost + rent[:, None]
    regret = np.divide(rent[:, None] - gain, paid, out=np.zeros_like(cost), where=paid > 0.0)
    return Ways(reward, rent, fast, slow, np.where(open_, regret, np.inf))


def level_bound(sharing: Sharing, price: FloatArray, ways: Ways) -> float:
    """Level that none exceeds, by weak duality: true for any prices and rewards from 0 on."""
    weight = float((ways.reward / sharing.scale).sum())
    alone = least_best(sharing)
    if weight <= 0.0:
        return alone
    return min(alone, (float(price @ sharing.capacity) + float(ways.rent.sum())) / weight)


def least_best(sharing: Sharing) -> float:
    """Largest level of the job that reaches least if each is alone, ceilings left aside."""
    usable = np.where(sharing.capacity > 0.0, sharing.speed, 0.0)
    return float((sharing.scale * usable.max(axis=1, initial=0.0)).min(initial=np.inf))


def _paid_for(sharing: Sharing, price: FloatArray, best: float) -> float:
    """Level up to which the capacities' worth pays for the cheapest ways, or a little more."""
    level = best
    for _ in range(NEWTON_STEPS):
        last, level = level, level_bound(sharing, price, cheapest(sharing, level, price))
        if level >= 0.999 * last:
            break
    return level


def _with_room(sharing: Sharing, best: float) -> PricedLevel | None:
    """Look for fractions at the level that one job has alone, which then nothing exceeds.

    Prices of types that are asked for too much rise and others fall, until every type has room.
    """
    open_ = sharing.capacity > 0.0
    price = np.divide(1.0, sharing.capacity, out=np.zeros(open_.size), where=open_)
    for _ in range(PRICE_CHANGES):
        base, slope, _, _ = _lines(sharing, cheapest(sharing, best, price))
        x = base + best * slope
        load = np.divide(sharing.gang @ x, sharing.capacity, out=np.zeros(open_.size), where=open_)
        if load.max() <= 1.0:
            return PricedLevel(best, best, x, np.zeros(open_.size), 0)
        price = price * np.clip(np.sqrt(load), 0.5, 2.0)
    return None


def _sampled(sharing: Sharing, solver: Solver, budget: Budget) -> FloatArray | None:
    """Get prices from an evenly spread sample of the jobs with as much of the capacities."""
    rows = np.arange(0, sharing.gang.size, SAMPLE)
    part = float(sharing.gang[rows].sum() / sharing.gang.sum())
    few = replace(
        sharing, speed=sharing.speed[rows], gang=sharing.gang[rows], scale=sharing.scale[rows],
        capacity=part * sharing.capacity, ceiling=None,
    )  # fmt: skip
    if few.speed.size >= PRICES_FROM:
        found = level_by_prices(few, solver, budget)
        if found is not None:
            return found.price
    if budget.expired():
        return None
    model = few.max_min_model()
    answer = solver.solve(model, budget=budget)
    if answer.duals is None:
        return None
    return np.maximum(answer.duals[rows.size : rows.size + few.capacity.size], 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """Optimum of an LP over the kept columns; ``at_edge`` where a job left out holds it back."""

    level: float
    price: FloatArray
    x: FloatArray
    at_edge: bool


@dataclass(eq=False)
class _Search:
    """Prices and level so far, and the columns that the LP keeps."""

    sharing: Sharing
    best: float
    price: FloatArray
    level: float
    span: float = SPAN
    cut: float = -1.0
    kept: BoolArray = field(init=False)
    ways: Ways = field(init=False)

    def __post_init__(self) -> None:
        self.kept = np.zeros(self.sharing.speed.shape, dtype=np.bool_)

    def widen(self) -> None:
        """Keep near ties at this level, and at those a little below and above."""
        around = (1.0, 1.0 - self.span, 1.0 + self.span)
        for part in around:
            ways = cheapest(self.sharing, min(self.best, part * self.level), self.price)
            if part == 1.0:
                self.ways = ways
            if self.cut < 0.0:
                self.cut = _first_cut(ways)
            self.kept |= (ways.regret <= self.cut) | ways.used()

    def learn(self, point: _Point, bound: float) -> None:
        """Go on from the LP's prices if they prove more, else keep more columns at the old ones."""
        if point.at_edge:
            self.level, self.span = point.level, 2.0 * self.span
        elif bound < self.level:
            missed = bound / point.level - 1.0
            self.price, self.level = point.price, bound
            self.span, self.cut = min(0.5 * self.span, 2.0 * missed), 0.5 * self.cut
        else:
            self.cut *= 2.0


def _first_cut(ways: Ways) -> float:
    """Regret up to which the wanted number of jobs has a near tie."""
    second = np.where(ways.used(), np.inf, ways.regret).min(axis=1)
    second = second[np.isfinite(second)]
    part = max(TIED_PART, TIES / max(1, second.size))
    cut = float(np.quantile(second, min(1.0, part))) if second.size else 0.0
    return max(cut, LEAST_CUT)


def _solved(search: _Search, solver: Solver, budget: Budget) -> _Point | None:
    """Solve the LP over the kept columns; jobs without a tie take their way at any level."""
    sharing, kept, ways = search.sharing, search.kept, search.ways
    base, slope, least, most = _lines(sharing, ways)
    loose = (kept & ~ways.used()).any(axis=1)
    loose |= (least > search.level * (1.0 - search.span)) | (
        most < search.level * (1.0 + search.span)
    )
    rows, tied = np.flatnonzero(loose), ~loose
    reach = (sharing.scale[:, None] * np.where(kept, sharing.speed, 0.0))[rows].max(axis=1)
    low = float(least[tied].max(initial=0.0))
    top = min(search.best, *(float(a.min(initial=np.inf)) for a in (most[tied], reach)))
    if low > top:
        return None
    row, kind = np.nonzero(kept[rows])
    types: IntArray = np.arange(sharing.capacity.size)
    builder = ModelBuilder("max-min-by-prices")
    x = builder.columns("x", row.size)
    level = builder.columns("level", 1, lower=low, upper=top)
    builder.rows("one", rows.size, row=row, column=x, value=1.0, upper=1.0)
    builder.rows(
        "capacity", types.size,
        row=np.r_[kind, types], column=np.r_[x, np.broadcast_to(level, types.size)],
        value=np.r_[sharing.gang[rows][row], sharing.gang[tied] @ slope[tied]],
        upper=sharing.capacity - sharing.gang[tied] @ base[tied],
    )  # fmt: skip
    earned = sharing.scale[rows, None] * sharing.speed[rows]
    builder.rows(
        "share", rows.size,
        row=np.r_[row, np.arange(rows.size)],
        column=np.r_[x, np.broadcast_to(level, rows.size)],
        value=np.r_[earned[row, kind], np.full(rows.size, -1.0)], lower=0.0,
    )  # fmt: skip
    builder.objective("level", column=level, value=1.0, maximise=True)
    answer = solver.solve(builder.build(), budget=budget)
    if answer.point is None or answer.duals is None:
        return None
    at = float(answer.point[-1])
    whole = np.where(tied[:, None], base + at * slope, 0.0)
    whole[rows[row], kind] = answer.point[:-1]
    price = np.maximum(answer.duals[rows.size : rows.size + types.size], 0.0)
    return _Point(at, price, whole, top < search.best and at >= top * (1.0 - COMPARISON))


def _lines(sharing: Sharing, ways: Ways) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Fractions of each job by its way as base + level * slope, and the levels it is good for."""
    rows, two = np.arange(ways.fast.size), ways.slow >= 0
    fast = sharing.speed[rows, ways.fast]
    slow = np.where(two, sharing.speed[rows, ways.slow], 0.0)
    start, rise = -slow / (fast - slow), 1.0 / (sharing.scale * (fast - slow))
    base, slope = np.zeros(sharing.speed.shape), np.zeros(sharing.speed.shape)
    base[rows, ways.fast], slope[rows, ways.fast] = start, rise
    mixed, other = rows[two], ways.slow[two]
    base[mixed, other], slope[mixed, other] = 1.0 - start[two], -rise[two]
    return base, slope, sharing.scale * slow, sharing.scale * fast
