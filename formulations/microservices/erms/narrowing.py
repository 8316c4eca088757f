"""Narrowing the counts that an optimal plan can have, by a plan and by prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.microservices.erms.latency import latency_ms
from apportion.formulations.microservices.erms.model import LevelModel
from apportion.formulations.microservices.erms.problem import Problem
from apportion.formulations.microservices.plain import SLACK, room
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.solver import Budget, Solver

_ROUNDS = 4
"""Times that prices are computed anew; ranges hardly shrink after the third."""

_MOST_PRICED = 5_000_000
"""Pairs of call and count up to which plans are priced: some hundred megabytes."""


def narrowed(problem: Problem, round_: MicroserviceRound, best: float) -> Problem | None:
    """Cut bounds to what plans that cost no more than ``best`` and fit the cluster can use.

    None where no plan is left. Bounds may stay wide where nothing limits a unit.
    """
    if not problem.kept(problem.most).all():
        return None
    problem = problem.tightened(problem.most)
    for _ in range(2):  # lower upper bounds raise lower ones once more
        most = _most(problem, round_, best)
        if most is None or not problem.kept(most).all():
            return None
        problem = problem.tightened(most)
    return problem


def _most(problem: Problem, round_: MicroserviceRound, best: float) -> Ints | None:
    kinds, row = round_.microservices, problem.microservice
    most = problem.most.astype(np.float64)
    sizes = (problem.cost, kinds.cpu_cores[row], kinds.memory_mib[row])
    for size, limit in zip(sizes, (best, *room(round_)), strict=True):
        left = limit * (1.0 + SLACK) - float(size @ problem.least)
        if left < 0:
            return None
        if np.isfinite(left):
            with np.errstate(divide="ignore", invalid="ignore"):
                more = np.where(size > 0, np.floor(left / size), np.inf)
            most = np.minimum(most, problem.least + more)
    return most.astype(np.int64)


def priced(
    problem: Problem, round_: MicroserviceRound, around: Ints, best: float, solver: Solver,
    budget: Budget,
) -> tuple[Problem | None, float]:  # fmt: skip
    """Leave out counts that no plan up to a given cost has, and bound the cost from below.

    With a millisecond priced for each request, cost and priced latencies add up over units, and
    each unit has its best count by itself; the sum is a bound whatever the prices are. A count of
    a unit can be left out where the bound with that count exceeds the given cost. Prices come from
    a small relaxed model.

    Parameters
    ----------
    problem
        With bounds that plans up to ``best`` keep.
    round_
        The round.
    around
        Counts near which the first relaxed model looks closely.
    best
        The given cost.
    solver, budget
        As everywhere.

    Returns
    -------
    The problem with narrower bounds, None where no plan is left, and a lower bound on the cost of
    all plans within the bounds given.
    """
    limit, bound = best * (1.0 + SLACK), float(problem.cost @ problem.least)
    for _ in range(_ROUNDS):
        around = np.clip(around, problem.least, problem.most)
        if (problem.most == problem.least).all() or _pairs(problem) > _MOST_PRICED:
            break
        coarse = LevelModel(problem, round_, around=around)
        answer = solver.solve(coarse.model, budget=budget)
        if answer.point is None or answer.duals is None:
            break
        around = coarse.counts(answer.point)
        call, request = coarse.multipliers(answer.duals)
        offset = float(request @ problem.target_ms) * (1.0 + SLACK)
        found, told = _cut(problem, call, offset, limit)
        bound = max(bound, told)
        if found is None:
            return None, bound
        problem = found
    return problem, bound


def _pairs(problem: Problem) -> int:
    return int((problem.most - problem.least + 1)[problem.unit].sum())


def _cut(
    problem: Problem, price: Floats, offset: float, limit: float
) -> tuple[Problem | None, float]:
    """Price every count of every unit, and keep those that can be part of a plan up to a limit."""
    size = problem.most - problem.least + 1
    first = np.cumsum(size) - size
    unit = np.repeat(np.arange(size.size), size)
    count = problem.least[unit] + np.arange(unit.size) - first[unit]
    value = problem.cost[unit] * count
    spread = size[problem.unit]
    call = np.repeat(np.arange(spread.size), spread)
    inside = np.arange(call.size) - np.repeat(np.cumsum(spread) - spread, spread)
    at = first[problem.unit[call]] + inside
    load = problem.work[call] / np.maximum(count[at], 1)
    own = latency_ms(problem.linear, problem.forest.microservice[call], load)
    np.add.at(value, at, price[call] * problem.forest.repeats[call] * own)
    least = np.minimum.reduceat(value, first)
    bound = float(least.sum()) - offset
    # rounding of the sums must not cut off the best plan
    room_left = limit - bound + SLACK * (abs(limit) + abs(offset))
    if room_left < 0:
        return None, bound
    kept = np.flatnonzero(value - least[unit] <= room_left)
    low, high = problem.most.copy(), problem.least.copy()
    np.minimum.at(low, unit[kept], count[kept])
    np.maximum.at(high, unit[kept], count[kept])
    return replace(problem, least=low, most=high), bound
