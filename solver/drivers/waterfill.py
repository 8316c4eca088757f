"""Lexicographic max-min by water-filling, exact, ties included.

The smallest level is made as large as possible, then the second smallest, and so on. At the level
where the water stops, every later point is optimal for the LP of that level, so complementary
slackness says what it looks like: jobs with a positive dual are settled, types with a positive
price are full and closed to all others, and settled jobs use only types without regret (the face
of optimal points). At least one type closes per level, so there are at most as many levels as types
and one LP with moving sides for each. No constraint is ever given slack: slack on frozen jobs is
amplified by 1e4 and more in later levels.

Problem: Gavel (Narayanan et al., OSDI 2020), section 4.3, there with a MILP per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.backends.held_lp import UncertifiedError
from apportion.solver.budget import Budget
from apportion.solver.drivers.aggregate import Classes
from apportion.solver.drivers.face_lp import FaceLP, FacePoint, Filling, Loose
from apportion.solver.drivers.sharing import Sharing
from apportion.solver.errors import ModelError
from apportion.solver.tolerances import COMPARISON

BINDS = 1e-9
"""A dual times its side that counts as positive; over a level they add up to 1. Where none is due
4e-12 at most were measured, and 7e-5 at least where one is."""

REGRET = 1e-9
"""Regret up to which a job that settles may use a type, relative to the terms it consists of."""

LATER_REGRET = 1e-7
"""The same for loose jobs under the duals of a later level, which have either sign and cancel."""

APART = "levels of jobs are too many orders of magnitude apart"

TIED = 1e-13
"""Types whose speed differs by less, relative, are equally fast."""


@dataclass(frozen=True, slots=True, eq=False)
class WaterFilling:
    """A lexicographic max-min solution.

    Attributes
    ----------
    levels
        Level of every job, shape (n,).
    x
        Fractions that give these levels, shape (n, k).
    bottlenecks
        Levels at which types ran out, rising or equal; jobs above the last one have all they can use.
    runs
        LPs solved.
    classes
        Who is identical.
    """

    levels: FloatArray
    x: FloatArray
    bottlenecks: tuple[float, ...]
    runs: int
    classes: Classes


def water_filling(sharing: Sharing, *, budget: Budget) -> WaterFilling:
    """Find the lexicographic max-min levels and fractions that give them.

    Parameters
    ----------
    sharing
        The jobs; identical ones are merged. Those that can run nowhere have level 0, and hold
        nobody back.
    budget
        Deadline for everything.

    Returns
    -------
    The solution; loads, fractions and levels were checked to ``COMPARISON``.

    Raises
    ------
    NoSolutionError
        If the budget ends first.
    UncertifiedError
        If a step cannot be vouched for.
    """
    merged, classes = sharing.merged()
    state = _start(merged)
    bottlenecks: list[float] = []
    runs = 0
    while state.active.any():
        point = _face(state).solve(budget)
        runs += point.runs
        if point.last:
            state.level[point.jobs] = point.cap
            break
        bottlenecks.append(point.level)
        _settle(state, point)
    _require_sound(state)
    return WaterFilling(
        levels=classes.spread(state.level),
        x=classes.spread(state.x),
        bottlenecks=tuple(bottlenecks),
        runs=runs,
        classes=classes,
    )


def _start(sharing: Sharing) -> Filling:
    jobs, types = sharing.gang.size, sharing.capacity.size
    return Filling(
        sharing=sharing,
        speed=np.where(sharing.capacity > 0.0, sharing.speed, 0.0),
        active=sharing.best > 0.0,
        open=sharing.capacity > 0.0,
        used=np.zeros(types),
        level=np.zeros(jobs),
        x=np.zeros((jobs, types)),
    )


def _face(state: Filling) -> FaceLP:
    """Set the next LP up, or refuse needs that numbers cannot hold side by side."""
    where = state.open & (state.speed > 0.0)
    if not where[state.active].any(axis=1).all():
        raise UncertifiedError(f"water-filling: {APART}, and some are left without a type")
    try:
        return FaceLP(state)
    except ModelError as error:
        raise UncertifiedError(f"water-filling: {APART}: {error}") from error


def _settle(state: Filling, point: FacePoint) -> None:
    """Settle jobs at a level, close types, and fix what has no choice left."""
    worth = point.price * state.sharing.capacity
    priced: BoolArray = state.open & (worth > BINDS)
    if not priced.any():
        raise UncertifiedError(f"water-filling: no type runs out at level {point.level}")
    before = list(state.loose)
    earns = point.reward * point.need > BINDS
    for place in np.flatnonzero(point.at_cap | earns).tolist():
        job = int(point.jobs[place])
        state.active[job] = False
        state.level[job] = point.cap[place] if point.at_cap[place] else point.level
        state.loose[job] = _settled(state, point, place, priced, bool(earns[place]))
    for job in before:
        _cut(state, point, job)
    state.implied.add(int(np.argmax(np.where(priced, worth, -np.inf))))
    state.open &= ~priced
    _fix(state)


def _settled(state: Filling, point: FacePoint, place: int, priced: BoolArray, earns: bool) -> Loose:
    """What a job may still do once its level is known."""
    job = int(point.jobs[place])
    speed, need = state.speed[job], float(point.need[place])
    usable = state.open & (speed > 0.0)
    if point.at_cap[place] and need >= speed[usable].max() * (1.0 - TIED):
        fastest = usable & (speed >= need * (1.0 - TIED))
        # of equally fast types the dearer ones are regretted
        price = np.where(priced, point.price, 0.0)
        dear = REGRET * price[fastest].max()
        return Loose(np.flatnonzero(fastest & (price <= price[fastest].min() + dear)), None, True)
    gang, rent = float(state.sharing.gang[job]), float(point.rent[place])
    if not earns:
        # it has all it can use, at no price
        return Loose(np.flatnonzero(usable & ~priced), need, False)
    types: IntArray = np.flatnonzero(usable)
    price = np.where(priced, point.price, 0.0)
    types = _without_regret(types, rent, gang * price, point.reward[place] * speed, REGRET)
    return Loose(types, need, rent > BINDS * gang / state.sharing.capacity.max())


def _cut(state: Filling, point: FacePoint, job: int) -> None:
    """Bring an earlier loose job down to what this level's duals leave it."""
    loose, (reward, rent) = state.loose[job], point.loose[job]
    cost = state.sharing.gang[job] * point.price
    loose.types = _without_regret(loose.types, rent, cost, reward * state.speed[job], LATER_REGRET)
    loose.full |= rent > BINDS


def _without_regret(
    types: IntArray, rent: float, cost: FloatArray, gain: FloatArray, tolerance: float
) -> IntArray:
    regret = rent + cost[types] - gain[types]
    size = abs(rent) + np.abs(cost[types]) + np.abs(gain[types])
    keep = (regret <= tolerance * size) | (size <= BINDS * BINDS)
    if not keep.any():
        raise UncertifiedError("water-filling: a settled job regrets every type")
    return types[keep]


def _fix(state: Filling) -> None:
    """Determine the jobs that have one type left: they leave the LP."""
    for job, loose in list(state.loose.items()):
        if loose.types.size != 1:
            continue
        kind = int(loose.types[0])
        part = 1.0 if loose.speed is None else loose.speed / float(state.speed[job, kind])
        state.x[job] = 0.0
        state.x[job, kind] = part
        state.used[kind] += state.sharing.gang[job] * part
        del state.loose[job]


def _require_sound(state: Filling) -> None:
    """Take off what jobs have beyond their level, then check everything on the data alone."""
    reached = state.sharing.levels(state.x)
    over = reached > state.level
    state.x[over] *= (state.level[over] / reached[over])[:, None]
    off = np.abs(state.sharing.levels(state.x) - state.level) > COMPARISON * state.level
    if off.any():
        job = int(np.argmax(off))
        raise UncertifiedError(f"water-filling: job {job} misses its level {state.level[job]}")
    excess = state.sharing.excess(state.x)
    if excess > COMPARISON:
        raise UncertifiedError(f"water-filling: a rule is broken by {excess}")
