"""The LP of one level of water-filling: the largest level that all active jobs can have.

Least factor ``theta`` on the open types such that every active job has what the level asks of it,
while settled jobs whose fractions are not determined yet ("loose" ones) keep exactly theirs. The
largest level with ``theta <= 1`` is found by Newton steps from above. See :mod:`waterfill`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray, dot
from apportion.solver.backends.held_lp import HeldLP, LPPoint, UncertifiedError
from apportion.solver.budget import Budget
from apportion.solver.drivers.sharing import Sharing
from apportion.solver.models.builder import ModelBuilder
from apportion.solver.tolerances import COMPARISON

FULL = 1e-11
"""Excess of theta over 1 that counts as none; there is no other slack anywhere."""

SAME = 1e-12
"""Two levels closer than this, relative, are the same: rounding of one division."""

MOST_STEPS = 100
"""Newton steps of one level after which something is wrong; eight are usual."""

LEAST_SIDE = 0.1
"""Part of its row's unit that a need may be at the level: below it the tolerance of the LP, 1e-10 of
that unit, would be more than can be told from the level itself."""

ABOVE = 1e-3
"""Part of a level by which steps in a better unit start above it, to come from above again."""


@dataclass(slots=True, eq=False)
class Loose:
    """A settled job that may still move its fractions between types.

    Attributes
    ----------
    types
        Types that it may use, rising.
    speed
        Speed that it keeps; ``None`` where all types are equally fast and it runs all the time.
    full
        Whether its fractions add up to 1 exactly.
    """

    types: IntArray
    speed: float | None
    full: bool


@dataclass(slots=True, eq=False)
class Filling:
    """What is settled so far.

    Attributes
    ----------
    sharing
        The problem.
    speed
        Speeds, 0 on types without GPUs.
    active
        Jobs whose level may still rise.
    open
        Types of which something may be left for active jobs.
    used
        GPUs of each type that determined jobs use.
    level, x
        Level and fractions of every job.
    loose
        Settled jobs that are not determined.
    implied
        Closed types whose row follows from the others of their bottleneck.
    """

    sharing: Sharing
    speed: FloatArray
    active: BoolArray
    open: BoolArray
    used: FloatArray
    level: FloatArray
    x: FloatArray
    loose: dict[int, Loose] = field(default_factory=dict[int, Loose])
    implied: set[int] = field(default_factory=set[int])


@dataclass(frozen=True, slots=True, eq=False)
class FacePoint:
    """Where one level ends.

    Attributes
    ----------
    level
        The level.
    last
        Whether all active jobs reach the most that open types can give them.
    jobs
        The active jobs; the next five arrays are of their shape.
    cap
        Largest level that open types can give each.
    at_cap
        Whether that is reached.
    need
        Speed that the level asks of each.
    reward
        Dual of each need, ``lambda``.
    rent
        Dual of each job's time, ``mu``.
    price
        Dual of each type's GPUs, of either sign for closed ones; shape (k,).
    loose
        For each loose job, the duals of its speed and of its time.
    runs
        LPs solved.
    """

    level: float
    last: bool
    jobs: IntArray
    cap: FloatArray
    at_cap: BoolArray
    need: FloatArray
    reward: FloatArray
    rent: FloatArray
    price: FloatArray
    loose: dict[int, tuple[float, float]]
    runs: int


class FaceLP:
    """The LP of one level, built from what is settled so far."""

    def __init__(self, state: Filling) -> None:
        self.state = state
        sharing = state.sharing
        self.jobs: IntArray = np.flatnonzero(state.active)
        self.types: IntArray = np.flatnonzero(state.open)
        self.best = state.speed[np.ix_(self.jobs, self.types)].max(axis=1)
        self.scale = sharing.scale[self.jobs]
        if sharing.ceiling is not None:
            self.best = np.minimum(self.best, sharing.ceiling[self.jobs] / self.scale)
        self.cap = self.best * self.scale
        self._runs = 0
        self._build(self._guess())

    def _build(self, level: float) -> None:
        """Write the LP with each need in parts of what it is at a level near the last one."""
        self.unit = np.minimum(level / self.scale, self.best)
        self._builder = ModelBuilder("level of water-filling")
        self._add_active()
        self._add_loose()
        self._add_types()
        self._builder.objective("theta", column=self.theta, value=1.0)
        self.lp = HeldLP(self._builder.build(allow_unbounded=True))

    def _guess(self) -> float:
        """Level up to which what is left pays, if all types are worth as much: no end is above."""
        state = self.state
        speed = state.speed[np.ix_(self.jobs, self.types)]
        left = state.sharing.capacity[self.types] - state.used[self.types]
        cost = state.sharing.gang[self.jobs, None] / np.maximum(
            left, COMPARISON * state.sharing.capacity[self.types]
        )
        rate = np.divide(cost, speed, out=np.full(speed.shape, np.inf), where=speed > 0.0)
        return self._root(rate.min(axis=1) / self.types.size, 0.0)

    def _add_active(self) -> None:
        state, builder = self.state, self._builder
        self.member, place = np.nonzero(state.speed[np.ix_(self.jobs, self.types)] > 0.0)
        self.kind: IntArray = self.types[place]
        # without the bound 1 on x: its dual would be missing in the Newton step
        self.x = builder.columns("x", self.member.size, upper=np.inf)
        speed = state.speed[self.jobs[self.member], self.kind] / self.unit[self.member]
        self.need = builder.rows(
            "need", self.jobs.size, row=self.member, column=self.x, value=speed, lower=0.0
        )
        self.time = builder.rows(
            "time", self.jobs.size, row=self.member, column=self.x, value=1.0, upper=1.0
        )

    def _add_loose(self) -> None:
        state, builder = self.state, self._builder
        self.loose_jobs = list(state.loose)
        kept = list(state.loose.values())
        sizes = [one.types.size for one in kept]
        self.loose_member: IntArray = np.repeat(np.arange(len(kept)), sizes)
        self.loose_kind: IntArray = np.concatenate(
            [np.empty(0, dtype=np.int64), *(one.types for one in kept)]
        )
        self.loose_x = builder.columns("loose", self.loose_kind.size, upper=np.inf)
        jobs = np.array(self.loose_jobs, dtype=np.int64)
        top = state.speed[jobs].max(axis=1, initial=0.0).tolist()
        self.loose_unit = np.array(
            [one.speed or most for one, most in zip(kept, top, strict=True)], dtype=np.float64
        )
        speed = state.speed[jobs[self.loose_member], self.loose_kind]
        sides = [
            (-np.inf, np.inf) if one.speed is None else (one.speed / unit, one.speed / unit)
            for one, unit in zip(kept, self.loose_unit.tolist(), strict=True)
        ]
        self.kept = builder.rows(
            "kept",
            len(kept),
            row=self.loose_member,
            column=self.loose_x,
            value=speed / self.loose_unit[self.loose_member],
            lower=np.array([side[0] for side in sides]),
            upper=np.array([side[1] for side in sides]),
        )
        self.kept_time = builder.rows(
            "kept-time",
            len(kept),
            row=self.loose_member,
            column=self.loose_x,
            value=1.0,
            lower=np.array([1.0 if one.full else -np.inf for one in kept]),
            upper=1.0,
        )

    def _add_types(self) -> None:
        """Loads as parts of the capacity; theta counts on open types only, closed ones are full."""
        state, builder = self.state, self._builder
        capacity = state.sharing.capacity
        moved = np.unique(self.loose_kind)
        ajar = [j for j in moved.tolist() if not state.open[j] and j not in state.implied]
        self.closed: IntArray = np.array(ajar, dtype=np.int64)
        self.theta = builder.columns("theta", 1, lower=-np.inf, upper=np.inf)
        gang = state.sharing.gang
        jobs = np.array(self.loose_jobs, dtype=np.int64)
        column = np.concatenate((self.x, self.loose_x))
        kind = np.concatenate((self.kind, self.loose_kind))
        load = np.concatenate((gang[self.jobs[self.member]], gang[jobs[self.loose_member]]))
        left = np.zeros(capacity.size)
        np.divide(capacity - state.used, capacity, out=left, where=capacity > 0.0)

        def rows(name: str, types: IntArray, theta: bool) -> IntArray:
            place = np.full(capacity.size, -1, dtype=np.int64)
            place[types] = np.arange(types.size)
            inside = place[kind] >= 0
            entry = load[inside] / capacity[kind[inside]]
            side = left[types] - (1.0 if theta else 0.0)
            with_theta = types.size if theta else 0
            return builder.rows(
                name,
                types.size,
                row=np.concatenate((place[kind[inside]], np.arange(with_theta))),
                column=np.concatenate((column[inside], np.repeat(self.theta, with_theta))),
                value=np.concatenate((entry, np.full(with_theta, -1.0))),
                lower=-np.inf if theta else side,
                upper=side,
            )

        self.load = rows("load", self.types, True)
        self.closed_load = rows("closed", self.closed, False)

    def solve(self, budget: Budget) -> FacePoint:
        """Find the level, by Newton steps from above; keeps fractions in the state.

        Raises
        ------
        NoSolutionError
            If the budget ends.
        UncertifiedError
            If an LP has no proved optimum.
        """
        top = float(self.cap.max())
        start = top
        while True:
            level, theta, point = self._steps(start, budget)
            need = np.minimum(level / self.scale, self.best)
            if level <= 0.0 or (need >= LEAST_SIDE * self.unit).all():
                break
            self._build(level)
            start = min(top, level * (1.0 + ABOVE))
        last = theta <= 1.0 + FULL and level >= top * (1.0 - SAME)
        self._keep(point)
        return self._read(point, level, last, need)

    def _steps(self, level: float, budget: Budget) -> tuple[float, float, LPPoint]:
        """Newton steps from above; the level, its theta and its point."""
        for _ in range(MOST_STEPS):
            need = np.minimum(level / self.scale, self.best)
            self.lp.set_sides(self.need, need / self.unit, np.full(need.size, np.inf))
            point = self.lp.solve(budget)
            self._runs += 1
            if point is None:
                raise UncertifiedError("water-filling: settled jobs contradict one another")
            theta = float(point.x[self.theta[0]])
            if theta <= 1.0 + FULL:
                return level, theta, point
            reward = self._reward(point)
            lower = self._root(reward, theta - dot(reward, need))
            if not lower < level:
                return level, theta, point
            level = lower
        raise UncertifiedError(f"water-filling: no end of the steps at level {level}")

    def _reward(self, point: LPPoint) -> FloatArray:
        return np.maximum(point.duals[self.need], 0.0) / self.unit

    def _root(self, reward: FloatArray, constant: float) -> float:
        """Level at which the bound ``reward @ need(level) + constant`` is 1, from its kinks."""
        order = np.argsort(self.cap)
        cap, paid = self.cap[order], reward[order]
        below = np.append(0.0, np.cumsum(paid * self.best[order]))
        slope = np.append(np.cumsum((paid / self.scale[order])[::-1])[::-1], 0.0)
        value = below[:-1] + slope[:-1] * cap + constant
        kink = min(int(np.searchsorted(value, 1.0)), cap.size - 1)
        if not slope[kink] > 0.0:
            return float(cap[kink])
        return float((1.0 - constant - below[kink]) / slope[kink])

    def _keep(self, point: LPPoint) -> None:
        x, jobs = self.state.x, np.array(self.loose_jobs, dtype=np.int64)
        x[self.jobs] = 0.0
        x[self.jobs[self.member], self.kind] = np.maximum(point.x[self.x], 0.0)
        x[jobs] = 0.0
        x[jobs[self.loose_member], self.loose_kind] = np.maximum(point.x[self.loose_x], 0.0)

    def _read(self, point: LPPoint, level: float, last: bool, need: FloatArray) -> FacePoint:
        y, capacity = point.duals, self.state.sharing.capacity
        price = np.zeros(capacity.size)
        price[self.types] = np.maximum(-y[self.load], 0.0) / capacity[self.types]
        price[self.closed] = -y[self.closed_load] / capacity[self.closed]
        speeds, times = y[self.kept] / self.loose_unit, -y[self.kept_time]
        pairs = zip(speeds.tolist(), times.tolist(), strict=True)
        return FacePoint(
            level=level,
            last=last,
            jobs=self.jobs,
            cap=self.cap,
            at_cap=self.cap <= level * (1.0 + SAME),
            need=need,
            reward=self._reward(point),
            rent=np.maximum(-y[self.time], 0.0),
            price=price,
            loose=dict(zip(self.loose_jobs, pairs, strict=True)),
            runs=self._runs,
        )
