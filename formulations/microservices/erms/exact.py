"""Solving the exact form: near bounds from a good plan, then the model, for one or all orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.microservices.erms.model import LevelModel
from apportion.formulations.microservices.erms.problem import Problem
from apportion.formulations.microservices.plain import SLACK, fits, room
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
    value = np.inf if start is None else float(problem.cost @ start)
    near = narrowed(problem, round_, min(best, value))
    if near is None:
        # of plans that are no dearer than the best known there is none
        return Found("INFEASIBLE" if np.isinf(best) else "WORSE")
    if float((near.most - near.least).astype(np.float64).sum()) > MOST_LEVELS:
        note = f"the exact form has more than {MOST_LEVELS} steps and was not solved"
        status = "NO_SOLUTION" if start is None else "FEASIBLE"
        return Found(status, start, bound=float(near.cost @ near.least), note=note)
    if start is not None and value > best * (1.0 + SLACK):
        start = None
    return _solved(near, round_, start, solver, budget)


def _solved(
    problem: Problem, round_: MicroserviceRound, start: Ints | None, solver: Solver, budget: Budget
) -> Found:
    said: list[Solution] = []
    bound: float | None = None
    for slack in (SLACK, TIGHTER):
        levels = LevelModel(problem, round_, slack)
        point = None if start is None else levels.point(start)
        answer = solver.solve(levels.model, budget=budget, warm_start=point)
        said.append(answer)
        if bound is None and answer.bounds:
            bound = answer.bounds[-1]
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
    if said[0].status is Status.INFEASIBLE:
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
