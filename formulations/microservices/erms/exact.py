"""Solving the exact form: near bounds from a good plan, then the model, for one or all orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.microservices.erms.model import LevelModel
from apportion.formulations.microservices.erms.narrowing import narrowed, priced
from apportion.formulations.microservices.erms.problem import Problem
from apportion.formulations.microservices.plain import SLACK, fits
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.solver import Budget, Solution, Solver, Status

MOST_LEVELS = 20_000
"""Steps of a model beyond which it is not tried: HiGHS takes minutes for larger ones."""

MOST_TRIMMED = 200
"""Units up to which first plans are trimmed one by one: each takes a dozen evaluations."""

TIGHTER = -2e-6
"""Slack of targets for a second try: back ends let rows slip by 1e-6, plans may not."""


@dataclass(frozen=True, eq=False)
class Found:
    """Best plan of the exact form.

    Parameters
    ----------
    status
        ``OPTIMAL``, ``FEASIBLE``, ``INFEASIBLE`` or ``NO_SOLUTION``.
    counts
        Containers of the units, None without a plan.
    position
        Order of services it belongs to.
    bound
        Below which no plan costs, None where nothing was proved.
    solutions
        What the solver said, one a model.
    note
        Why there is no proof.
    time_limited
        Whether the clock stopped it.
    """

    status: str
    counts: Ints | None = None
    position: Ints | None = None
    bound: float | None = None
    solutions: tuple[Solution, ...] = ()
    note: str = ""
    time_limited: bool = False


def incumbent(problem: Problem, round_: MicroserviceRound, counts: Floats) -> Ints | None:
    """Make a plan for every target from a first guess, with nothing to spare; None: not found."""
    guess = np.clip(counts, problem.least, problem.most).astype(np.int64)
    grown = problem.grown(guess)
    if grown is None:
        return None
    small = grown.size <= MOST_TRIMMED
    out = problem.padded(problem.trimmed(grown) if small else grown)
    return out if fits_units(problem, round_, out) else None


def fits_units(problem: Problem, round_: MicroserviceRound, counts: Ints) -> bool:
    """Whether a plan of units fits the cluster and the bounds of the microservices."""
    total = problem.totals(counts).astype(np.int64)
    return fits(round_, total) and bool((total <= round_.microservices.most_containers).all())


def solve_one(
    problem: Problem, round_: MicroserviceRound, guess: Floats, best: float, solver: Solver,
    budget: Budget,
) -> Found:  # fmt: skip
    """Find the cheapest plan of one problem, or prove that none costs less than ``best``."""
    if not problem.microservice.size:
        return Found("OPTIMAL", problem.least, bound=0.0)
    start = incumbent(problem, round_, guess)
    limit = np.inf if start is None else float(problem.cost @ start)
    if best < np.inf and limit >= best:  # look for cheaper plans only
        start, limit = None, best - _cost_step(problem.cost)
    nothing = Found("INFEASIBLE" if np.isinf(limit) else "WORSE")
    near = narrowed(problem, round_, limit)
    if near is None:
        return nothing
    bound = float(near.cost @ near.least)
    if np.isfinite(limit):
        around = np.clip(guess, near.least, near.most).astype(np.int64)
        near, bound = priced(
            near, round_, around if start is None else start, limit, solver, budget
        )
    if near is None:
        return nothing
    if float((near.most - near.least).astype(np.float64).sum()) > MOST_LEVELS:
        note = f"the exact form has more than {MOST_LEVELS} steps and was not solved"
        status = "NO_SOLUTION" if start is None else "FEASIBLE"
        return Found(status, start, bound=bound, note=note)
    return _solved(near, round_, start, bound, solver, budget)


def _cost_step(cost: Floats) -> float:
    """Least difference of two plans' costs where all costs are multiples of one, else nothing."""
    unit = float(cost.min())
    whole = bool((cost / unit == np.round(cost / unit)).all())
    return unit * (1.0 - 1e-6) if whole else 0.0


def _solved(
    problem: Problem, round_: MicroserviceRound, start: Ints | None, known: float, solver: Solver,
    budget: Budget,
) -> Found:  # fmt: skip
    said: list[Solution] = []
    bound: float | None = None
    for slack in (SLACK, TIGHTER):
        levels = LevelModel(problem, round_, slack)
        point = None if start is None else levels.point(start)
        answer = solver.solve(levels.model, budget=budget, warm_start=point)
        said.append(answer)
        if bound is None:
            told = answer.bounds[-1] if answer.bounds else None
            bound = known if told is None else max(told, known)
        if answer.point is None:
            break
        counts = levels.counts(answer.point)
        if problem.kept(counts).all():
            status = answer.status.name if slack == SLACK else "FEASIBLE"
            return Found(
                status, counts, bound=bound, solutions=tuple(said),
                time_limited=answer.time_limited,
            )  # fmt: skip
    limited = any(answer.time_limited for answer in said)
    if said[0].status is Status.INFEASIBLE and start is None:
        return Found("INFEASIBLE", solutions=tuple(said))
    status = "NO_SOLUTION" if start is None else "FEASIBLE"
    return Found(status, start, bound=bound, solutions=tuple(said), time_limited=limited)


def cheapest(
    problems: Iterator[tuple[Ints | None, Problem, Floats]], round_: MicroserviceRound,
    solver: Solver, budget: Budget,
) -> Found:  # fmt: skip
    """Solve the problems of several orders, each against the best plan of those before.

    Parameters
    ----------
    problems
        Order, problem, and a first guess of its counts.
    round_, solver, budget
        As everywhere.
    """
    best, value = Found("INFEASIBLE"), np.inf
    bounds: list[float | None] = []
    said: list[Solution] = []
    note, limited = "", False
    for position, problem, guess in problems:
        if bounds and budget.left_s() <= 0:
            bounds.append(None)
            limited = True
            break
        found = solve_one(problem, round_, guess, value, solver, budget)
        said.extend(found.solutions)
        note, limited = note or found.note, limited or found.time_limited
        if found.status in ("WORSE", "INFEASIBLE"):
            continue  # within plans no dearer than the best: there are none
        bounds.append(found.bound)
        if found.counts is None:
            best = best if best.counts is not None else replace(found, position=position)
            continue
        cost = float(problem.cost @ found.counts)
        if cost < value:
            best, value = replace(found, position=position), cost
    return _summed_up(best, value, bounds, said, note, limited, solver.gap)


def _summed_up(
    best: Found, value: float, bounds: list[float | None], said: list[Solution], note: str,
    limited: bool, gap: float,
) -> Found:  # fmt: skip
    if best.counts is None:
        return replace(best, solutions=tuple(said), note=note, time_limited=limited)
    known = [bound for bound in bounds if bound is not None]
    bound = min(known) if len(known) == len(bounds) else None
    bound = None if bound is None else min(bound, value)
    proved = bound is not None and value - bound <= (gap + SLACK) * max(abs(value), SLACK)
    status = "OPTIMAL" if proved and not note else "FEASIBLE"
    return replace(
        best, status=status, bound=bound, solutions=tuple(said), note=note, time_limited=limited
    )
