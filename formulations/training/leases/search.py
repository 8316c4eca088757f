"""The best plan for one goal: bound by the LP, rounding, cores of few columns, exact model last."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from apportion.formulations.training.leases.lease_classes import LeaseClasses
from apportion.formulations.training.leases.models import (
    class_model,
    class_point,
    model_size,
    read_class_plan,
)
from apportion.formulations.training.leases.realise import (
    LeaseColumns,
    Realised,
    laid_late,
    realise,
)
from apportion.formulations.training.leases.relaxation import (
    Priced,
    Relaxation,
    core_bounds,
    priced,
    solve_core,
    solve_relaxed,
)
from apportion.instances import Stage
from apportion.instances.columns import Floats, Ints
from apportion.solver import Budget, Model, Solver, Status

HEADROOM = 16
"""Gangs that must fit a lease for packing to lose nothing as a rule; below, the exact model is
asked. On 8, 16 and 32 GPUs with gangs up to 8 the rows alone missed 3, 4 and 1 of 25 optima."""

MOST_SLOTS = 20_000
"""Variables of the exact model up to which it answers in seconds where there is headroom."""

MOST_SLOTS_CROWDED = 60_000
"""The same where gangs are large for the cluster, and the rows alone are not to be trusted."""

SLACKS = (0.0, 2.0, 8.0, 32.0, 128.0)
"""Distances of a core's target from the bound, in steps of value: optima are mostly 0 to 2 below."""

SPARED = (1, 2, 4, 8, 16)
"""GPUs taken from every row so that packing succeeds, in units of the gangs' common divisor."""

SAME = 1e-9
"""Relative difference up to which two sums of values are the same."""

INEXACT = 1e-6
"""The same for bounds of sums that are no whole numbers: LP codes stop at duals 1e-7 off."""


@dataclass(eq=False)
class Search:
    """State of the search for one goal.

    Parameters
    ----------
    classes
        Classes and columns.
    weight
        What a job of each column is worth, shape (columns,).
    floors
        Pairs of weights and the least sum that a plan must reach: earlier goals.
    best
        A plan that keeps what must be kept and reaches the floors.
    solver, budget
        Limits.
    """

    classes: LeaseClasses
    weight: Floats
    floors: tuple[tuple[Floats, float], ...]
    best: Realised
    solver: Solver
    budget: Budget
    bound: float | None = None
    priced: tuple[Relaxation, Priced] | None = None
    time_limited: bool = False
    stages: list[Stage] = field(default_factory=list[Stage])

    @property
    def value(self) -> float:
        """Value of the best plan."""
        return float(self.best.y @ self.weight)

    @property
    def proved(self) -> bool:
        """Whether the bound proves the best plan within the solver's gap."""
        return self.within(self.value)

    @property
    def floor(self) -> tuple[Floats, float]:
        """What later goals must keep of this one: the weights, and the least that they add up to.

        Rows of tiny numbers would lie within the tolerance of every solver, so these are made
        larger, by a power of two, which changes no digit.
        """
        top = float(self.weight.max(initial=0.0))
        scale = 2.0 ** -math.floor(math.log2(top)) if 0.0 < top < 1.0 else 1.0
        return self.weight * scale, self.value * scale

    @cached_property
    def tolerance(self) -> float:
        """Relative distance of value and bound up to which they are the same."""
        weight = self.weight
        return SAME if bool((weight == np.rint(weight)).all()) else INEXACT

    @cached_property
    def least(self) -> float:
        """Least that a job is worth which is worth something."""
        return float(self.weight.min(where=self.weight > 0, initial=np.inf))

    def gap_to(self, value: float) -> float | None:
        """Relative gap of a value; None without a bound."""
        if self.bound is None:
            return None
        # nothing is worth less than the least job: below a part of that there is only rounding
        if self.bound - value <= self.tolerance * self.least:
            return 0.0
        return gap_between(value, self.bound, self.tolerance)

    def within(self, value: float) -> bool:
        """Whether the bound proves a value within the solver's gap."""
        gap = self.gap_to(value)
        return gap is not None and gap <= self.solver.gap

    def run(self) -> None:
        """Search until the bound proves the plan, or time or ideas run out."""
        if not (self.weight > 0).any():
            self.bound = 0.0
            return
        if self.budget.expired():
            self.time_limited = True
            return
        self._relax_and_search()
        if not self.proved:
            self._ask_exact_model()

    def _relax_and_search(self) -> None:
        started = time.perf_counter()
        problem = Relaxation.of(self.classes, self.weight, self.floors)
        relaxed = solve_relaxed(problem, self.solver, self.budget)
        self.time_limited |= relaxed.time_limited
        if relaxed.price is None or relaxed.point is None:
            self._told("relaxation", started, relaxed.backend)
            return
        problem, price = relaxed.problem, relaxed.price
        self.priced = problem, priced(problem, price.multipliers)
        self._lower(problem.rounded(price.bound))
        self._take(rounded_down(problem, price, relaxed.point))
        self._told("relaxation", started, relaxed.backend)
        unit = int(np.gcd.reduce(self.classes.gang))
        for gpus in (0, *(spare * unit for spare in SPARED)):
            if self.proved or self._out_of_time():
                return
            if not self._cores(problem, price, gpus):
                return

    def _cores(self, problem: Relaxation, price: Priced, gpus: int) -> bool:
        """Lay the best counts with so many GPUs spared from every row.

        Returns
        -------
        Whether jobs had to be shed, so that sparing more GPUs may help.
        """
        started, tight = time.perf_counter(), problem.tightened(gpus)
        top = tight.rounded(priced_bound(tight, price))
        unit = tight.step or max(float(np.median(self.weight)), SAME * abs(top))
        y, note, backend = None, "", ""
        for slack in SLACKS:
            lowest = self.value + (tight.step or SAME * max(1.0, abs(top)))
            target = max(top - slack * unit, lowest)
            if target > top and gpus:
                break
            tight, y, bound, note, backend = self._one_core(tight, price, min(target, top))
            if not gpus and bound is not None:
                self._lower(bound)
            value = -np.inf if y is None else float(y @ self.weight)
            done = bound is not None and value >= bound - SAME * max(1.0, abs(value))
            within = value > self.value and self.within(value)
            if done or within or self.proved or target <= lowest or self._out_of_time():
                break
        shed = y is not None and self._take(y)
        self._told("cores" if not gpus else f"cores, {gpus} GPUs spared", started, backend, note)
        return shed

    def _one_core(
        self, problem: Relaxation, price: Priced, target: float
    ) -> tuple[Relaxation, Ints | None, float | None, str, str]:
        """Search one core, adding sets of leases that its plans violate."""
        bound: float | None = None
        while True:
            answer = solve_core(problem, price, target, self.solver, self.budget)
            self.time_limited |= answer.time_limited
            bound = answer.bound if bound is None else min(bound, answer.bound)
            note = f"{answer.columns} of {self.classes.column_count} columns open"
            more = None if answer.y is None else problem.with_violated(answer.y)
            if more is None or self._out_of_time():
                return problem, answer.y, bound, note, answer.backend
            multipliers = np.insert(
                price.multipliers, price.multipliers.size - len(self.floors), 0.0
            )
            problem, price = more, replace(price, multipliers=multipliers)

    def _take(self, y: Ints) -> bool:
        """Lay counts into leases, fill up, and keep the plan if it is better.

        Returns
        -------
        Whether jobs had to be shed.
        """
        columns = lease_columns(self.classes, self.weight)
        laid = realise(columns, y, self.classes.capacity)
        shed = bool((laid.y < y).any())
        self._keep(filled(self.classes, columns, laid))
        return shed

    def _keep(self, plan: Realised) -> None:
        if float(plan.y @ self.weight) > self.value and admissible(
            self.classes, plan.y, self.floors
        ):
            self.best = plan

    def _ask_exact_model(self) -> None:
        crowded = HEADROOM * int(self.classes.gang.max()) > int(self.classes.capacity.max())
        most = MOST_SLOTS_CROWDED if crowded else MOST_SLOTS
        if model_size(self.classes) > most or self._out_of_time():
            return
        started, unit = time.perf_counter(), 0.0
        within, target = None, self.value
        if self.priced is not None:
            # plans that are better differ little from what the prices choose
            unit = self.priced[0].step or SAME * max(self.least, self.value)
            target = self.value + unit
            within = core_bounds(self.priced[0], self.priced[1], target)
            if (within[0] > within[1]).any():
                self._lower(target - self.priced[0].step)
                return
        model = class_model(self.classes, within=within)
        model = with_goal(model, self.classes, self.weight, self.floors)
        start = class_point(self.classes, self.best.y, self.best.leases)
        answer = self.solver.solve(model, budget=self.budget, warm_start=start)
        self.time_limited |= answer.time_limited
        below = self.value if unit == 0.0 or self.priced is None else target - self.priced[0].step
        if answer.status is Status.INFEASIBLE:
            self._lower(below)
        elif answer.bounds and answer.bounds[-1] is not None:
            self._lower(max(answer.bounds[-1], below))
        if answer.point is not None:
            self._keep(Realised(*read_class_plan(self.classes, answer.point)))
        self._told("class model", started, answer.backend)

    def _lower(self, bound: float) -> None:
        self.bound = bound if self.bound is None else min(self.bound, bound)

    def _out_of_time(self) -> bool:
        if self.budget.expired():
            self.time_limited = True
            return True
        return False

    def _told(self, name: str, started: float, backend: str = "", note: str = "") -> None:
        self.stages.append(
            Stage(
                name,
                time.perf_counter() - started,
                objective=self.value,
                bound=self.bound,
                gap=self.gap_to(self.value),
                backend=backend or None,
                note=note,
            )
        )


def gap_between(value: float, bound: float, tolerance: float) -> float:
    """Distance of value and bound, relative to the larger; 0 where it is within a tolerance."""
    size = max(abs(value), abs(bound))
    return (bound - value) / size if bound - value > tolerance * size else 0.0


def priced_bound(problem: Relaxation, price: Priced) -> float:
    """Bound that known multipliers give for a problem with other sides."""
    return priced(problem, price.multipliers).bound


def lease_columns(classes: LeaseClasses, weight: Floats) -> LeaseColumns:
    """Columns of the classes with the weights of a goal."""
    keep = classes.keep[classes.of_class]
    return LeaseColumns(classes.gang, classes.need, classes.due, keep, weight)


def filled(classes: LeaseClasses, columns: LeaseColumns, plan: Realised) -> Realised:
    """Add jobs that are not in the plan where leases are free, option by option."""
    chosen = np.bincount(classes.group, weights=plan.y, minlength=classes.starts.size)
    left = (classes.limit[classes.starts] - chosen.astype(np.int64))[classes.group]
    if not classes.several.any():
        return laid_late(columns, plan, plan.y + left, classes.capacity)
    # an option takes jobs away from the others of its class: one place at a time
    for place in range(int(classes.option.max()) + 1):
        chosen = np.bincount(classes.group, weights=plan.y, minlength=classes.starts.size)
        left = (classes.limit[classes.starts] - chosen.astype(np.int64))[classes.group]
        limit = plan.y + np.where(classes.option == place, left, 0)
        plan = laid_late(columns, plan, limit, classes.capacity)
    return plan


def admissible(classes: LeaseClasses, y: Ints, floors: tuple[tuple[Floats, float], ...]) -> bool:
    """Whether counts keep all that must be kept and reach the floors."""
    inside = np.bincount(classes.of_class, weights=y, minlength=classes.count.size)
    if (inside[classes.keep] < classes.count[classes.keep]).any():
        return False
    return all(float(y @ weights) >= least - SAME * max(1.0, least) for weights, least in floors)


def rounded_down(problem: Relaxation, price: Priced, point: Floats) -> Ints:
    """Round an LP point down, then up again where the rows have room, small regrets first."""
    classes = problem.classes
    y = np.floor(point + 1e-6).astype(np.int64)
    y = np.minimum(y, classes.limit)
    inside = np.bincount(classes.group, weights=y, minlength=classes.starts.size)
    left = classes.limit[classes.starts] - inside.astype(np.int64)
    must = classes.keep[classes.of_class[classes.starts]]
    # what must be in the plan goes into the option of which the LP has most
    part = np.lexsort((-(point - y), classes.group))[classes.starts]
    np.add.at(y, part[must], left[must])
    left[must] = 0
    room = problem.work.side - problem.work.coefficient @ y
    order = np.lexsort((price.regret, -(point - np.floor(point + 1e-6))))
    order = order[(left[classes.group] > 0)[order]][:MOST_ROUNDED]
    for column in order.tolist():
        group = int(classes.group[column])
        needs = problem.work.coefficient[:, column]
        used = needs > 0
        if left[group] == 0 or (needs[used] > room[used]).any():
            continue
        more = int(min(left[group], (room[used] / needs[used]).min(initial=np.inf)))
        y[column] += more
        left[group] -= more
        room = room - more * needs
    return y


MOST_ROUNDED = 500
"""Columns that rounding up looks at: an LP vertex has no more fractions than rows."""


def with_goal(
    model: Model, classes: LeaseClasses, weight: Floats, floors: tuple[tuple[Floats, float], ...]
) -> Model:
    """Give the class model another goal, and rows for the goals before it."""
    padding = np.zeros(model.column_count - classes.column_count)
    goal = replace(model.objectives[0], name="goal", cost=np.concatenate((weight, padding)))
    model = replace(model, objectives=(goal,))
    for number, (weights, least) in enumerate(floors):
        row = np.concatenate((weights, padding))
        model = model.with_row(f"floor {number}", row, least - SAME * max(1.0, least), np.inf)
    return model
