"""Fix and optimise: most integer columns keep their values, a neighbourhood of the others is solved.

Every step is a small MILP from the best point so far, so that points only get better; the bound is
that of the whole model, from the duals of its relaxation by our own product. Neighbourhoods grow
where they are proved to hold nothing better, up to the whole model, and shrink where a limit stops
them.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from apportion.solver.arrays import BoolArray, FloatArray, dot, floats
from apportion.solver.backends.registry import backend
from apportion.solver.budget import Budget
from apportion.solver.drivers.neighbourhood_solution import (
    NeighbourhoodSolution,
    NeighbourhoodStage,
)
from apportion.solver.drivers.neighbourhoods import Neighbourhood, Neighbourhoods
from apportion.solver.drivers.restriction import Restriction
from apportion.solver.errors import ModelError
from apportion.solver.models.model import Model
from apportion.solver.proof.proof import noise, relative_gap, sharpened
from apportion.solver.proof.recheck import check_point
from apportion.solver.solution import Solution
from apportion.solver.solve import Solver
from apportion.solver.status import Status
from apportion.solver.tolerances import COMPARISON

FIRST_PART = 0.1
"""Part of the integer columns that the first neighbourhoods free."""

GROW, SHRINK = 1.25, 0.5
"""Factors of the size after a neighbourhood that was proved to hold nothing better, and after one
that a limit stopped."""

RELAXATION_SHARE, START_SHARE, STEP_SHARE = 0.4, 0.5, 0.1
"""Parts of the time left that the relaxation, the search for a start, and each step may take; steps
count from the first one, so that the last ones are not starved."""

START_GAP = 0.5
"""Gap that is good enough for a start."""

PATIENCE = 3
"""Cycles without gain, and not to a larger size than any since the last gain, that end a search."""

STEP_GAP = 0.2
"""Gap of a step, as part of the one asked for: what a step leaves open adds up over steps."""

_log = logging.getLogger("apportion.solver")


def fix_and_optimise(
    model: Model,
    neighbourhoods: Neighbourhoods,
    solver: Solver,
    *,
    budget: Budget,
    start: ArrayLike | None = None,
    bound: float | None = None,
    most_steps: int | None = None,
) -> NeighbourhoodSolution:
    """Improve a point of a MILP neighbourhood by neighbourhood, with a bound on what is left.

    Ends when the gap is proved, at the end of the budget or of the steps, after a cycle without
    gain that leaves the size where it was, or after some that only move it to and fro.

    Parameters
    ----------
    model
        A model with one objective; hold those before it by rows.
    neighbourhoods
        Which columns to free, one step after the other.
    solver
        Gap, back end, seed, threads, and work limit of each step; with a work limit or a number
        of steps instead of a budget, runs repeat.
    budget
        Deadline for everything; where it has passed, the start is given back.
    start
        A feasible point, shape (columns,); ``None`` to find one with the solver.
    bound
        What no point can pass, in the model's sense, where it is known: then the relaxation is
        solved only for neighbourhoods that ask for it. A point that contradicts it refutes it.
    most_steps
        Number of neighbourhoods to solve at most.

    Raises
    ------
    ModelError
        If the model has several objectives, the start is not feasible, the bound no number, or a
        neighbourhood names a column that does not exist.
    UnsupportedModelError
        If a back end asked for by name refuses the model's class.
    """
    if len(model.objectives) != 1:
        raise ModelError(f"{model.name}: fix and optimise takes one objective")
    if bound is not None and not math.isfinite(bound):
        raise ModelError(f"{model.name}: bound = {bound}: must be a finite number")
    search = _Search(model, solver, budget, math.inf if most_steps is None else most_steps)
    if start is not None:
        point, fault = check_point(model, floats(start))
        if point is None:
            raise ModelError(f"{model.name}: the start is not feasible: {fault}")
        search.take(point)
    with solver:
        if bound is not None:
            search.bounds["given"] = search.sign * bound
        elif not search.done():
            search.relax()
        if search.point is None and not search.stopped():
            search.find_start()
        if search.point is not None:
            search.run(neighbourhoods)
    return search.solution()


@dataclass(eq=False)
class _Search:
    """The best point and the bounds so far, as a minimisation with its offset."""

    model: Model
    solver: Solver
    budget: Budget
    steps_left: float
    point: FloatArray | None = None
    value: float = math.inf
    bounds: dict[str, float] = field(default_factory=dict[str, float])
    verdict: Status | None = None
    message: str = ""
    time_limited: bool = False
    stages: list[NeighbourhoodStage] = field(default_factory=list[NeighbourhoodStage])

    def __post_init__(self) -> None:
        self.sign = self.model.objectives[0].sign
        self.rng = np.random.default_rng(self.solver.seed)
        self.open = self.model.integer & (self.model.lower < self.model.upper)
        self.count = int(self.open.sum())
        self.size = max(1.0, FIRST_PART * self.count)
        self._relaxed: FloatArray | None = None
        self._asked = False
        self.step_s = math.inf
        # sets of free columns that hold nothing better than the incumbent
        self._settled: set[bytes] = set()

    @property
    def incumbent(self) -> FloatArray:
        """Best point so far."""
        assert self.point is not None
        return self.point

    @property
    def relaxed(self) -> FloatArray | None:
        """Optimum of the relaxation, which is solved when first asked for."""
        if not self._asked and not self.budget.expired():
            self.relax()
        return self._relaxed

    @property
    def most(self) -> int:
        """Number of integer columns to free at most now."""
        return int(self.size)

    @property
    def bound(self) -> float:
        """Best bound that the point does not refute, and no more than its value."""
        slack = self._slack()
        kept = [bound for bound in self.bounds.values() if bound <= self.value + slack]
        return min(self.value, max(kept, default=-math.inf))

    def _slack(self) -> float:
        if self.point is None:
            return math.inf
        cost = self.model.objectives[0].cost
        return noise(cost, self.point, dot(cost, self.point))

    def closed(self) -> bool:
        """Whether the bound proves the point within the gap."""
        if self.point is None or self.bound == -math.inf:
            return False
        near = self.value - self.bound <= self._slack()
        return near or relative_gap(self.value, self.bound) <= self.solver.gap

    def stopped(self) -> bool:
        """Whether nothing more may be done."""
        return self.verdict is not None or self.budget.expired() or self.steps_left <= 0

    def done(self) -> bool:
        """Whether nothing more is to be done."""
        return self.stopped() or self.closed()

    def take(self, point: FloatArray) -> float:
        """Keep a checked point if it is better; give the gain."""
        value = self.sign * self.model.objectives[0].value(point)
        gain = self.value - value
        if gain > 0.0:
            self.point, self.value = point, value
        return gain if 0.0 < gain < math.inf else 0.0

    def relax(self) -> None:
        """Solve the relaxation, for its bound and its point."""
        self._asked, started = True, time.perf_counter()
        lp = replace(self.solver, backend=_lp_backend(self.solver.backend), work_limit=None)
        answer = lp.solve(self.model.relaxed(), budget=self.budget.part(RELAXATION_SHARE))
        if answer.status is Status.OPTIMAL:
            self._relaxed = answer.point
        self.learn("relaxation", answer.bound)
        if answer.status is Status.INFEASIBLE and self.point is None:
            self.verdict, self.message = answer.status, answer.message
        self._record("relaxation", started, 0, answer, 0.0)

    def learn(self, name: str, bound: float | None) -> None:
        """Take note of a bound on the whole model, in its sense."""
        if bound is None:
            return
        objective = self.model.objectives[0]
        shift, cost = self.sign * objective.offset, self.sign * objective.cost
        self.bounds[name] = sharpened(self.model, cost, self.sign * bound - shift) + shift

    def find_start(self) -> None:
        """Ask the solver for a point that need not be good."""
        started, model = time.perf_counter(), self.model
        near_zero, _ = check_point(model, np.clip(0.0, model.lower, model.upper))
        coarse = replace(self.solver, gap=max(START_GAP, self.solver.gap))
        # without any point there is nothing to keep time for
        budget = self.budget if near_zero is None else self.budget.part(START_SHARE)
        answer = coarse.solve(model, budget=budget, warm_start=near_zero)
        self.learn("start", answer.bound)
        if answer.point is not None:
            self.take(answer.point)
        if answer.status is Status.UNBOUNDED or answer.point is None:
            self.verdict, self.message = answer.status, answer.message
        self._record("start", started, self.count, answer, 0.0)

    def run(self, neighbourhoods: Neighbourhoods) -> None:
        """Go from neighbourhood to neighbourhood until there is no more to do."""
        everything = Neighbourhood("everything", np.flatnonzero(self.open))
        self.step_s = STEP_SHARE * self.budget.left_s()
        largest, barren = 0.0, 0
        while not self.done() and barren < PATIENCE:
            value, size = self.value, self.size
            whole = size >= self.count
            for one in iter([everything]) if whole else neighbourhoods.cycle(self):
                self.step(one)
                if self.done():
                    return
            if self._better(value):
                largest, barren = 0.0, 0
            elif self.size == size:
                return
            elif self.size > max(largest, size):
                largest = self.size
            else:
                barren += 1

    def _better(self, before: float) -> bool:
        """Whether the value is better than it was by more than rounding."""
        return before - self.value > COMPARISON * max(abs(before), self._largest_term())

    def _largest_term(self) -> float:
        terms = np.abs(self.model.objectives[0].cost * self.incumbent)
        return float(terms.max(initial=0.0))

    def step(self, neighbourhood: Neighbourhood) -> None:
        """Solve one neighbourhood, unless that is known to be in vain."""
        free = self._free(neighbourhood)
        whole = bool((free == self.open).all())
        if free.tobytes() in self._settled:
            self.size = min(float(self.count), self.size * GROW)
            return
        if not (free.any() or whole):
            return
        self.steps_left -= 1
        started, value = time.perf_counter(), self.value
        part = Restriction(
            self.model, self.incumbent, free | ~self.model.integer, neighbourhood.name
        )
        solver = self.solver if whole else replace(self.solver, gap=STEP_GAP * self.solver.gap)
        budget = self.budget if whole else self._step_budget()
        answer = solver.solve(part.model, budget=budget, warm_start=part.start)
        gain, note = self._taken(part, answer)
        if whole:
            self.learn("everything", answer.bound)
        if answer.status is Status.UNBOUNDED:
            self.verdict, self.message = answer.status, answer.message
        self._adapt(answer.status, free, self._better(value))
        self._record(neighbourhood.name, started, int(free.sum()), answer, gain, note)

    def _step_budget(self) -> Budget:
        return Budget(min(self.budget.deadline_s, time.monotonic() + self.step_s))

    def _free(self, neighbourhood: Neighbourhood) -> BoolArray:
        columns = neighbourhood.columns
        if columns.size and not 0 <= columns.min() <= columns.max() < self.open.size:
            raise ModelError(f"neighbourhood {neighbourhood.name}: a column that does not exist")
        free = np.zeros(self.open.size, dtype=np.bool_)
        free[columns] = True
        return free & self.open

    def _taken(self, part: Restriction, answer: Solution) -> tuple[float, str]:
        """Put a part's point into the whole and check that; give the gain, and what is wrong."""
        if answer.point is None:
            return 0.0, answer.message
        point, fault = check_point(self.model, part.whole(answer.point))
        if point is None:
            _log.warning("%s: a point of %s refused: %s", self.model.name, part.model.name, fault)
            return 0.0, f"refused: {fault}"
        return self.take(point), ""

    def _adapt(self, status: Status, free: BoolArray, better: bool) -> None:
        if better:
            self._settled.clear()
        if status is Status.OPTIMAL:
            self._settled.add(free.tobytes())
            if not better:
                self.size = min(float(self.count), self.size * GROW)
        elif status in (Status.FEASIBLE, Status.NO_SOLUTION):
            self.size = max(1.0, self.size * SHRINK)

    def _record(
        self, name: str, started: float, columns: int, answer: Solution, gain: float, note: str = ""
    ) -> None:
        self.time_limited |= answer.time_limited
        self.stages.append(
            NeighbourhoodStage(
                name=name,
                elapsed_s=time.perf_counter() - started,
                columns=columns,
                status=answer.status,
                gain=gain,
                objective=self._stated(self.value),
                bound=self._stated(self.bound),
                note=note,
            )
        )

    def _stated(self, value: float) -> float | None:
        return self.sign * value if math.isfinite(value) else None

    def solution(self) -> NeighbourhoodSolution:
        """Sum up."""
        proved, refuted = self.closed(), self.bounds.get("given", -math.inf)
        if self.verdict is not None:
            status = self.verdict
        elif self.point is None:
            status = Status.NO_SOLUTION
        else:
            status = Status.OPTIMAL if proved else Status.FEASIBLE
        message = self.message
        if refuted > self.value + self._slack():
            message = f"the bound given, {self.sign * refuted}, is refuted by the point"
            _log.warning("%s: %s", self.model.name, message)
        unbounded = status is Status.UNBOUNDED
        return NeighbourhoodSolution(
            status=status,
            point=self.point,
            objective=self._stated(self.value),
            bound=None if unbounded else self._stated(self.bound),
            stages=tuple(self.stages),
            time_limited=self.time_limited or (self.budget.expired() and not proved),
            message=message,
        )


def _lp_backend(name: str) -> str:
    """Back end for a relaxation: the one asked for if it gives duals, else by the portfolio."""
    return name if name == "auto" or backend(name).capabilities.duals else "auto"
