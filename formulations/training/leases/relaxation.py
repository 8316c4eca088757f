"""The forced-work problem: an integer per column, a row per set of leases, bounds from its duals.

Multipliers of the rows price GPUs by set. With them every column has a regret, what choosing it
once costs against the best choice of its class, and a bound follows that holds for any multipliers
from zero on. Plans above a target can differ from the best choices by little only, so that few
columns stay open: the core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.training.leases.forced_work import (
    ForcedWork,
    forced_work,
    packed,
    prefixes,
    rising,
    tightest_set,
)
from apportion.formulations.training.leases.lease_classes import LeaseClasses
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import BACKENDS, Budget, Model, ModelBuilder, Solution, Solver, Status
from apportion.solver import available_backends as usable_backends

NOISE = 1e-7
"""Relative error of bounds and regrets in double precision, with room: values sum up to 1e6 terms."""

LP_BACKEND = "glop-dual"
"""Few rows, many columns, and all columns at a bound but a few: 20,000 jobs take .10 CPU seconds,
HiGHS simplex .19 and interior point .34."""

MOST_SETS = 60
"""Sets of leases added one by one to the LP before the bound is taken as it is; 4 to 8 are usual."""


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Maximise ``weight @ y`` over counts that forced work does not refute.

    Parameters
    ----------
    classes
        The classes and columns.
    weight
        What a job of each column is worth, shape (columns,).
    work
        Rows of forced work.
    floors
        Pairs of weights, shape (columns,), and the least that they must add up to.
    """

    classes: LeaseClasses
    weight: Floats
    work: ForcedWork
    floors: tuple[tuple[Floats, float], ...] = ()

    @classmethod
    def of(
        cls,
        classes: LeaseClasses,
        weight: Floats,
        floors: tuple[tuple[Floats, float], ...] = (),
        sets: Bools | None = None,
    ) -> Relaxation:
        """Begin with the first k leases for every k, or with given sets."""
        chosen = prefixes(classes.capacity.size) if sets is None else sets
        work = forced_work(classes.gang, classes.need, classes.due, classes.capacity, chosen)
        return cls(classes, weight, work, floors)

    @property
    def step(self) -> float:
        """Number that all values are multiples of; 0 where they have none."""
        if not self.weight.size or (self.weight != np.rint(self.weight)).any():
            return 0.0
        return float(np.gcd.reduce(self.weight.astype(np.int64)))

    def rounded(self, bound: float) -> float:
        """Lower a bound to the next value that a plan can have."""
        slack = NOISE * max(1.0, abs(bound))
        if self.step <= 2.0 * slack:
            return bound + slack
        return math.floor((bound + slack) / self.step) * self.step

    def with_violated(self, y: Floats | Ints) -> Relaxation | None:
        """Add the set that a point violates most; None where it violates none."""
        classes = self.classes
        if rising(classes.capacity) or not classes.column_count:
            return None
        usable = packed(classes.gang, classes.capacity)
        room, chosen = tightest_set(classes.gang, classes.need, classes.due, y, usable)
        if room >= -NOISE * max(1.0, float(usable.sum())):
            return None
        row = forced_work(
            classes.gang, classes.need, classes.due, classes.capacity, chosen[None, :]
        )
        if bool((self.work.sets == chosen).all(axis=1).any()):
            return None
        work = ForcedWork(
            np.vstack((self.work.sets, row.sets)),
            np.vstack((self.work.coefficient, row.coefficient)),
            np.concatenate((self.work.side, row.side)),
        )
        return replace(self, work=work)

    def tightened(self, gpus: float) -> Relaxation:
        """Take so many GPUs from every row, so that packing has some to spare."""
        return replace(self, work=replace(self.work, side=self.work.side - gpus))


@dataclass(frozen=True, eq=False)
class Priced:
    """Multipliers with the bound and the regrets that follow.

    Attributes
    ----------
    multipliers
        Of the rows of forced work and then of the floors, from 0 on.
    bound
        What no plan can pass.
    regret
        Cost of choosing each column once, shape (columns,).
    none
        Cost of leaving a job of each group out, infinite where it must be in; shape (groups,).
    """

    multipliers: Floats
    bound: float
    regret: Floats
    none: Floats


def priced(problem: Relaxation, multipliers: Floats) -> Priced:
    """Bound the problem by multipliers, shape (rows + floors,); missing ones count as 0."""
    classes, rows = problem.classes, problem.work.side.size
    work, rest = np.zeros(rows), multipliers[multipliers.size - len(problem.floors) :]
    known = multipliers.size - len(problem.floors)
    work[:known] = np.maximum(multipliers[:known], 0.0)
    reduced = problem.weight - work @ problem.work.coefficient
    bound = float(work @ problem.work.side)
    for (weights, least), price in zip(problem.floors, np.maximum(rest, 0.0), strict=True):
        reduced = reduced + price * weights
        bound -= float(price) * least
    best = np.maximum.reduceat(reduced, classes.starts) if reduced.size else reduced
    must = classes.keep[classes.of_class[classes.starts]]
    best = np.where(must, best, np.maximum(best, 0.0))
    bound += float(best @ classes.limit[classes.starts])
    none = np.where(must, np.inf, best)
    full = np.concatenate((work, np.maximum(rest, 0.0)))
    return Priced(full, bound, best[classes.group] - reduced, none)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Outcome of the LP: the rows it ended with, its point, and what it proved."""

    problem: Relaxation
    point: Floats | None
    price: Priced | None
    time_limited: bool
    backend: str


def solve_relaxed(problem: Relaxation, solver: Solver, budget: Budget) -> Relaxed:
    """Solve the LP, adding sets of leases that its points violate where capacity falls."""
    best: Priced | None = None
    point: Floats | None = None
    answer: Solution | None = None
    for _ in range(MOST_SETS):
        model = _model(problem, *core_bounds(problem, None, 0.0), relaxed=True)
        answer = lp_solver(solver).solve(model, budget=budget)
        if answer.point is None or answer.duals is None:
            break
        rows = problem.work.side.size
        duals = np.concatenate(
            (answer.duals[:rows], -answer.duals[rows : rows + len(problem.floors)])
        )
        point, best = answer.point, priced(problem, duals)
        more = problem.with_violated(point)
        if more is None or budget.expired():
            break
        problem = more
    assert answer is not None
    return Relaxed(problem, point, best, answer.time_limited, answer.backend)


def lp_solver(solver: Solver) -> Solver:
    """Give the solver for LPs: quick, and without a limit on work that is meant for searches.

    A back end that was asked for by name solves the LP too, if it tells duals.
    """
    if solver.backend != "auto" and BACKENDS[solver.backend]().capabilities.duals:
        return replace(solver, work_limit=None)
    quick = LP_BACKEND if LP_BACKEND in usable_backends() else "auto"
    return replace(solver, backend=quick, work_limit=None)


@dataclass(frozen=True, eq=False)
class CoreAnswer:
    """Outcome of a core: counts, what no plan can pass, and how the search ended."""

    y: Ints | None
    bound: float
    time_limited: bool
    columns: int
    backend: str


def solve_core(
    problem: Relaxation, price: Priced, target: float, solver: Solver, budget: Budget
) -> CoreAnswer:
    """Search all plans from a target on.

    Parameters
    ----------
    problem, price
        The problem, and multipliers from its LP.
    target
        Plans worth less are not looked for; the bound is at least the next value below it.
    solver, budget
        Back end and limits.
    """
    price = priced(problem, price.multipliers)
    low, high, least = core_bounds(problem, price, target)
    open_columns = int((high > low).sum())
    below = problem.rounded(target) if problem.step == 0.0 else target - problem.step
    if (low > high).any():
        return CoreAnswer(None, below, False, open_columns, "")
    model = _model(problem, low, high, least, relaxed=False)
    answer = solver.solve(model, budget=budget)
    y = None if answer.point is None else _with_fixed(low, high, answer.point)
    bound = price.bound
    if answer.status is Status.INFEASIBLE:
        bound = below
    elif answer.bounds and answer.bounds[-1] is not None:
        bound = min(bound, max(answer.bounds[-1], below))
    return CoreAnswer(y, problem.rounded(bound), answer.time_limited, open_columns, answer.backend)


def _with_fixed(low: Ints, high: Ints, point: Floats) -> Ints:
    y = low.copy()
    y[high > low] = np.rint(point).astype(np.int64)
    return y


def core_bounds(
    problem: Relaxation, price: Priced | None, target: float
) -> tuple[Ints, Ints, Ints]:
    """Give the least and most of each column, and the least of each group, from a target on.

    Every plan worth the target or more keeps within; without prices they are the bounds of all
    plans. A least above its most says that there is no such plan.

    Returns
    -------
    Shapes (columns,), (columns,) and (groups,).
    """
    classes = problem.classes
    count = classes.limit[classes.starts]
    must = classes.keep[classes.of_class[classes.starts]]
    if price is None:
        high, least = classes.limit.copy(), np.where(must, count, 0)
    else:
        slack = price.bound - target + NOISE * max(1.0, abs(price.bound))
        if slack < 0.0:
            slack = 0.0
        high = _capped(classes.limit, price.regret, slack)
        least = count - _capped(count, price.none, slack)
    low = np.zeros_like(high)
    alone = np.bincount(classes.group, weights=high > 0, minlength=count.size) == 1
    single = (high > 0) & alone[classes.group]
    low[single] = least[classes.group][single]
    # a group whose columns are all closed although some must be chosen closes the search
    closed = (np.bincount(classes.group, weights=high, minlength=count.size) < least)[classes.group]
    low[closed] = high[closed] + 1
    return low, high, least


def _capped(count: Ints, cost: Floats, slack: float) -> Ints:
    """How often something that costs so much can be done within the slack."""
    most = np.full(count.size, np.inf)
    # costs below the noise do not tell anything
    np.divide(slack, cost, out=most, where=cost > NOISE)
    return np.minimum(count, np.floor(most + NOISE)).astype(np.int64)


def _model(problem: Relaxation, low: Ints, high: Ints, least: Ints, *, relaxed: bool) -> Model:
    """Model of the columns that are open; in the LP all are, so that rows keep their places."""
    classes = problem.classes
    rows = np.arange(low.size) if relaxed else np.flatnonzero(high > low)
    fixed = np.where(high > low, 0, low) if not relaxed else np.zeros_like(low)
    builder = ModelBuilder("forced work")
    y = builder.columns("y", rows.size, lower=low[rows], upper=high[rows], integer=not relaxed)
    coefficient = problem.work.coefficient[:, rows]
    row, column = np.nonzero(coefficient)
    builder.rows(
        "forced_work", problem.work.side.size, row=row, column=y[column],
        value=coefficient[row, column], upper=problem.work.side - problem.work.coefficient @ fixed,
    )  # fmt: skip
    weights = np.array([floor for floor, _ in problem.floors]).reshape(-1, low.size)
    sides = np.array([side for _, side in problem.floors])
    row, column = np.nonzero(weights[:, rows])
    builder.rows(
        "floor", sides.size, row=row, column=y[column], value=weights[:, rows][row, column],
        lower=sides - weights @ fixed,
    )  # fmt: skip
    several = np.flatnonzero(classes.several[rows])
    number, row = np.unique(classes.group[rows[several]], return_inverse=True)
    inside = np.bincount(classes.group, weights=fixed, minlength=least.size)[number]
    builder.rows(
        "one_option", number.size, row=row, column=y[several], value=1.0,
        lower=least[number] - inside,
        upper=classes.limit[classes.starts][number] - inside,
    )  # fmt: skip
    builder.objective(
        "weight", column=y, value=problem.weight[rows], maximise=True,
        offset=float(problem.weight @ fixed),
    )  # fmt: skip
    return builder.build()
