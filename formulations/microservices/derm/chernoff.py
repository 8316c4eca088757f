"""Chernoff's bound as a MILP: plans that are safe, for long chains quickly, and then trimmed.

For any ``theta`` below the least rate, ``P(L > u) <= exp(-theta u) prod r / (r - theta)``. In
logarithms each factor belongs to one microservice, so that with ``theta`` fixed the counts enter
by steps. A fork counts as the sum of its calls: safe, and far from tight.

Source: the Chernoff form of the specification (reconstructed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.levels import MOST_STEPS, Levels
from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.formulations.microservices.derm.search import Found, reachable
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import laws
from apportion.solver import Model, ModelBuilder, Solver

THETAS = 60
"""Candidates for each class, evenly between zero and its least rate."""

MISSES = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""Where chords of the logarithm meet."""


@dataclass(frozen=True, eq=False)
class _Calls:
    """Calls of the active classes, forks flattened: who, how often, of which class."""

    microservice: Ints
    calls: Floats
    of_class: Ints
    room_ms: Floats

    @classmethod
    def of(cls, need: Requirements) -> _Calls:
        """Flatten the trees; every call waits for every other."""
        round_, own = need.round_, need.tails.classes
        trees = round_.classes.trees
        place = np.full(len(round_.classes), -1)
        place[own] = np.arange(own.size)
        rows = np.flatnonzero(place[trees.class_of] >= 0)
        of_class = place[trees.class_of[rows]]
        shift = np.bincount(of_class, weights=laws.shifts_ms(round_)[rows], minlength=own.size)
        target = round_.services.target_ms[round_.classes.service[own]]
        return cls(
            trees.microservice[rows], trees.per_request[rows], cast(Ints, of_class), target - shift
        )

    def least_rate(self, rate: Floats, count: int) -> Floats:
        """Least rate of each class, shape (A,)."""
        out = np.full(count, np.inf)
        np.minimum.at(out, self.of_class, rate[self.microservice] / self.calls)
        return out


def log_bound(calls: _Calls, rate: Floats, theta: Floats) -> Floats:
    """Logarithm of Chernoff's bound of each class, shape (A,); infinite where theta is too large."""
    share = theta[calls.of_class] * calls.calls / rate[calls.microservice]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(share < 1.0, -np.log1p(-np.minimum(share, 1.0)), np.inf)
    total = np.bincount(calls.of_class, weights=part, minlength=theta.size)
    return total - theta * calls.room_ms


def best_thetas(calls: _Calls, rate: Floats, count: int) -> Floats:
    """Choose theta of each class where its bound is least at given rates, shape (A,)."""
    least = np.where(np.isfinite(calls.least_rate(rate, count)), calls.least_rate(rate, count), 1.0)
    grid = (np.arange(1, THETAS) / THETAS)[:, None] * least
    values = np.array([log_bound(calls, rate, theta) for theta in grid])
    return grid[values.argmin(axis=0), np.arange(count)]


def chernoff_model(levels: Levels, calls: _Calls, theta: Floats) -> Model:
    """Write the safe model for fixed thetas."""
    need, count = levels.need, theta.size
    builder = ModelBuilder("derm_chernoff")
    step = levels.add_to(builder)
    miss = builder.columns("miss", count, lower=MISSES[0], upper=1.0)
    row, k = np.nonzero(need.weight)
    builder.rows(
        "sla", need.budget.size, row=row, column=miss[k], value=need.weight[row, k],
        upper=need.budget,
    )  # fmt: skip
    own = need.round_.microservices
    rows, columns, values, upper = list[Ints](), list[Ints](), list[Floats](), list[float]()
    forced = np.zeros(levels.owner.size, dtype=np.bool_)
    low, high = np.array(MISSES[:-1]), np.array(MISSES[1:])
    slope = (np.log(high) - np.log(low)) / (high - low)
    for at in range(count):
        mine = np.flatnonzero(calls.of_class == at)
        fixed, taken, bad = _log_steps(levels, calls, mine, float(theta[at]), own)
        forced |= bad
        some = np.flatnonzero(taken)
        for j in range(low.size):  # log of the miss, from below: the least chord
            number = at * low.size + j
            rows.append(np.full(some.size + 1, number))
            columns.append(np.append(step[some], miss[at]))
            values.append(np.append(-taken[some], -slope[j]))
            upper.append(
                float(theta[at] * calls.room_ms[at] - fixed + np.log(low[j]) - slope[j] * low[j])
            )
    if rows:
        builder.rows(
            "chernoff", len(rows), row=np.concatenate(rows), column=np.concatenate(columns),
            value=np.concatenate(values), upper=np.array(upper),
        )  # fmt: skip
    must = np.flatnonzero(forced)
    builder.rows(
        "rate", must.size, row=np.arange(must.size), column=step[must], value=1.0, lower=1.0
    )
    return builder.build()


def _log_steps(
    levels: Levels, calls: _Calls, mine: Ints, theta: float, own: object
) -> tuple[float, Floats, np.ndarray]:
    """Log factors of a class at its first good counts, what each step takes off, and forced steps."""
    taken = np.zeros(levels.owner.size)
    forced = np.zeros(levels.owner.size, dtype=np.bool_)
    fixed = 0.0
    before, after = np.exp(-levels.nu_at(levels.reached - 1)), np.exp(-levels.nu_at(levels.reached))
    start = np.exp(-levels.nu(levels.need.low))
    for call in mine.tolist():
        m, n = int(calls.microservice[call]), float(calls.calls[call])
        steps = np.flatnonzero(levels.owner == m)
        good = theta * n < before[steps]
        forced[steps[~good]] = True
        if steps.size and not good[0]:
            first = (
                steps[int(np.flatnonzero(theta * n < after[steps])[0])]
                if (theta * n < after[steps]).any()
                else steps[-1]
            )
            fixed += float(-np.log1p(-theta * n / after[first]))
        else:
            fixed += float(-np.log1p(-theta * n / start[m]))
        live = steps[good]
        taken[live] += np.log1p(-theta * n / after[live]) - np.log1p(-theta * n / before[live])
    return fixed, taken, forced


def by_chernoff(need: Requirements, solver: Solver, budget: Any) -> tuple[Found, Model | None]:
    """Find a safe plan, choose thetas anew at it, and trim the best one.

    The bound of the model is not one of the problem, so that nothing is claimed.
    """
    if not reachable(need):
        return Found(None, None, impossible=True), None
    first = climb(need, budget)
    if not first.kept:
        return Found(None, None, time_limited=first.time_limited), None
    calls, model = _Calls.of(need), None
    best = first.containers
    at = np.minimum(2 * best, need.high)
    for _ in range(3):
        rate = need.tails.rates(at)[:, 0]
        if not (rate[calls.microservice] > 0).all():
            break
        theta = best_thetas(calls, rate, need.tails.classes.size)
        levels = Levels.within(need, 3.0 * need.value(best))
        if not 0 < levels.owner.size <= MOST_STEPS:
            break
        model = chernoff_model(levels, calls, theta)
        solution = solver.solve(model, budget=budget)
        if solution.point is None:
            break
        plan = levels.counts(solution)
        if need.kept(plan):
            trimmed = trim(need, plan, budget).containers
            best = trimmed if need.value(trimmed) < need.value(best) else best
        at = plan
    better = trim(need, best, budget)
    return Found(better.containers, None, time_limited=better.time_limited), model
