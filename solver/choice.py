"""Multiple choice with few capacities: every group picks options, a handful of rows bind.

FFT's round, Sia's configurations and every choice of a GPU type are this one problem. Prices of
the capacities give a bound and, for every option, its regret: what it costs at these prices beyond
the group's best. Options of small regret form a core that is solved exactly; since the regrets of
a plan add up to its distance from the bound, the options left out are proved useless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.budget import Budget
from apportion.solver.builder import ModelBuilder
from apportion.solver.errors import ModelError
from apportion.solver.model import Model
from apportion.solver.proof import relative_gap
from apportion.solver.solution import Solution
from apportion.solver.solve import Solver
from apportion.solver.status import Status

WIDE_CORE = 20_000
"""Options above which a core is no longer small and the plain model is as good."""

CORE_ROUNDS = 12
"""Each round at most quadruples the cut-off, so that a dozen reach any regret that matters."""

SAMPLE_FROM = 20_000
"""Options above which the first prices come from a sample of the groups."""

SPLIT = 1e-6
"""A share this close to a whole number is read as whole (the primal tolerance of an LP)."""

COST_EQUALITY = 1e-9
"""Relative difference below which two costs computed in different order are the same."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Groups of identical copies; every copy takes one option or stays idle at no cost.

    Parameters
    ----------
    cost
        Cost of each option for one copy against staying idle, shape (n, options); infinite where
        the option is not allowed.
    amount
        What one copy draws, shape (n, options).
    resource
        The capacity each option draws on, shape (options,).
    capacity
        Shape (resources,).
    count
        Copies of each group, shape (n,).
    total
        Least sum of all amounts drawn, or None. Where it equals the sum of the capacities every
        one of them is an equation.

    Raises
    ------
    ModelError
        On shapes that do not fit, NaN, or amounts and capacities below zero.
    """

    cost: FloatArray
    amount: FloatArray
    resource: IntArray
    capacity: FloatArray
    count: IntArray
    total: float | None = None

    def __post_init__(self) -> None:
        shape = self.cost.shape
        if len(shape) != 2 or self.amount.shape != shape or self.resource.shape != shape[1:]:
            raise ModelError(f"choice: cost {shape}, amount {self.amount.shape} do not fit")
        if self.count.shape != shape[:1]:
            raise ModelError(f"choice: count has shape {self.count.shape}, not {shape[:1]}")
        if np.isnan(self.cost).any() or (self.cost == -np.inf).any():
            raise ModelError("choice: cost must be a number or plus infinity")
        if not (
            (self.amount >= 0).all() and (self.capacity >= 0).all() and (self.count >= 1).all()
        ):
            raise ModelError("choice: amounts and capacities from 0 on, counts from 1 on")

    @cached_property
    def allowed(self) -> BoolArray:
        """Options that exist, shape (n, options)."""
        return np.isfinite(self.cost)

    @cached_property
    def full(self) -> bool:
        """Whether the total forces every capacity to be used up."""
        return self.total is not None and self.total >= float(self.capacity.sum()) - 0.5

    def value(self, plan: IntArray) -> float:
        """Cost of a plan, shape (n, options), copies that take each option."""
        taken = plan > 0
        return float((self.cost[taken] * plan[taken]).sum())

    def used(self, plan: IntArray) -> FloatArray:
        """Amount that a plan draws on each resource."""
        drawn = (plan * self.amount).sum(axis=0)
        return np.bincount(self.resource, weights=drawn, minlength=self.capacity.size)

    def feasible(self, plan: IntArray) -> bool:
        """Whether a plan takes allowed options, within counts, capacities and the total."""
        if (plan < 0).any() or (plan[~self.allowed] > 0).any():
            return False
        used = self.used(plan)
        within = bool((plan.sum(axis=1) <= self.count).all()) and bool(
            (used <= self.capacity + SPLIT).all()
        )
        return within and (self.total is None or float(used.sum()) >= self.total - SPLIT)

    def model(self, name: str = "choice", *, integer: bool = True) -> Model:
        """Give the whole problem as a model."""
        everything = np.ones(self.cost.shape[0], dtype=np.bool_)
        return _restrict(self, self.allowed, everything, name, integer).model


@dataclass(frozen=True, eq=False)
class ChoiceStage:
    """One step: its name, its plan's value, the bound known after it."""

    name: str
    elapsed_s: float
    objective: float | None
    bound: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class ChoiceSolution:
    """The best plan found and what is proved of it.

    Attributes
    ----------
    status
        ``OPTIMAL`` within the solver's gap, ``FEASIBLE``, ``INFEASIBLE`` or ``NO_SOLUTION``.
    plan
        Copies that take each option, shape (n, options), or None.
    objective, bound
        Cost of the plan and a proved lower bound, or None.
    prices
        Price of each resource, shape (resources,), and of the total, at which the bound holds.
    stages
        What was done, in order.
    time_limited
        Whether the clock stopped a step.
    """

    status: Status
    plan: IntArray | None
    objective: float | None
    bound: float | None
    prices: FloatArray | None
    total_price: float
    stages: tuple[ChoiceStage, ...]
    time_limited: bool = False

    @property
    def gap(self) -> float | None:
        """Relative gap, None where nothing is proved."""
        if self.objective is None or self.bound is None:
            return None
        return relative_gap(self.objective, self.bound)


@dataclass(frozen=True, eq=False)
class _Restricted:
    """A model over the kept options of the groups that still have a choice."""

    model: Model
    groups: IntArray
    options: IntArray
    fixed: IntArray
    fixed_cost: float
    resource_rows: IntArray
    total_row: int | None

    def plan(self, x: FloatArray) -> IntArray:
        out = self.fixed.copy()
        out[self.groups, self.options] = np.round(x).astype(np.int64)
        return out


def _restrict(
    choice: Choice, keep: BoolArray, idle: BoolArray, name: str, integer: bool
) -> _Restricted:
    """Build the model over ``keep`` (n, options) and ``idle`` (n,); a sole option is fixed."""
    ways = keep.sum(axis=1) + idle
    free = ways > 1
    fixed = np.where(keep & ~free[:, None], choice.count[:, None], 0).astype(np.int64)
    groups, options = np.nonzero(keep & free[:, None])
    rows = np.flatnonzero(free)
    row_of = np.zeros(free.size, dtype=np.int64)
    row_of[rows] = np.arange(rows.size)
    count = choice.count[rows].astype(np.float64)
    builder = ModelBuilder(name)
    x = builder.columns("take", groups.size, upper=choice.count[groups], integer=integer)
    builder.rows(
        "pick", rows.size, row=row_of[groups], column=x, value=1.0,
        lower=np.where(idle[rows], 0.0, count), upper=count,
    )  # fmt: skip
    amount = choice.amount[groups, options]
    left = choice.capacity - choice.used(fixed)
    capacity = builder.rows(
        "capacity", left.size, row=choice.resource[options], column=x, value=amount,
        lower=left if choice.full else -np.inf, upper=left,
    )  # fmt: skip
    total_row = None
    if choice.total is not None and not choice.full:
        rest = choice.total - float((fixed * choice.amount).sum())
        total_row = int(builder.rows("total", 1, row=0, column=x, value=amount, lower=rest)[0])
    builder.objective("cost", column=x, value=choice.cost[groups, options])
    return _Restricted(
        builder.build(), groups, options, fixed, choice.value(fixed), capacity, total_row
    )


@dataclass(frozen=True, eq=False)
class _Prices:
    """Prices of the capacities, the bound they prove, and every option's regret."""

    resource: FloatArray
    total: float
    bound: float
    regret: FloatArray
    idle_regret: FloatArray


def _priced(choice: Choice, resource: FloatArray, total: float) -> _Prices:
    """Evaluate prices over all options: weak duality by our own arithmetic."""
    if not choice.full:
        resource, total = np.maximum(resource, 0.0), max(total, 0.0)
    net = resource[choice.resource] - total
    reduced = choice.cost + net * choice.amount
    best = np.minimum(reduced.min(axis=1, initial=np.inf), 0.0)
    bound = float(choice.count @ best - resource @ choice.capacity)
    if choice.total is not None:
        bound += total * choice.total
    return _Prices(resource, total, bound, reduced - best[:, None], -best)


def _relax(
    choice: Choice, keep: BoolArray, idle: BoolArray, solver: Solver, budget: Budget
) -> tuple[_Restricted, Solution] | None:
    part = _restrict(choice, keep, idle, "choice-lp", integer=False)
    if part.model.column_count == 0:
        return None
    answer = solver.solve(part.model, budget=budget)
    return (part, answer) if answer.duals is not None else None


def _prices_of(choice: Choice, part: _Restricted, answer: Solution) -> _Prices:
    assert answer.duals is not None
    total = 0.0 if part.total_row is None else float(answer.duals[part.total_row])
    return _priced(choice, -answer.duals[part.resource_rows], total)


def _sampled(choice: Choice, solver: Solver, budget: Budget) -> _Prices | None:
    """Get first prices from an evenly spread sample of the groups with scaled capacities."""
    n = choice.cost.shape[0]
    step = max(1, n // max(200, n // 8))
    rows = np.arange(0, n, step)
    scale = float(choice.count[rows].sum()) / float(choice.count.sum())
    total = None if choice.total is None else choice.total * scale
    sample = Choice(
        choice.cost[rows], choice.amount[rows], choice.resource, choice.capacity * scale,
        choice.count[rows], total,
    )  # fmt: skip
    # an equation on a sample may have no solution; a price is a price, whatever it came from
    sample = sample if not choice.full else _loose(sample)
    everything = np.ones(rows.size, dtype=np.bool_)
    relaxed = _relax(sample, sample.allowed, everything, solver, budget)
    if relaxed is None:
        return None
    found = _prices_of(sample, *relaxed)
    return _priced(choice, found.resource, found.total)


def _loose(choice: Choice) -> Choice:
    assert choice.total is not None
    reach = float((choice.count[:, None] * np.where(choice.allowed, choice.amount, 0.0)).max(
        axis=1, initial=0.0
    ).sum())  # fmt: skip
    return replace(choice, total=min(0.95 * choice.total, 0.95 * reach))


def solve_relaxation(
    choice: Choice, solver: Solver, budget: Budget
) -> tuple[_Restricted, Solution, _Prices] | None:
    """Solve the LP relaxation and price all options.

    A large problem starts from the prices of a sample: only groups with near ties stay in the LP,
    all others are fixed to their best option, and the bound over all options certifies the result.

    Returns
    -------
    The restricted LP, its solution and its prices; None where the LP has no usable answer.
    """
    everything = np.ones(choice.cost.shape[0], dtype=np.bool_)
    if int(choice.allowed.sum()) > SAMPLE_FROM:
        prices = _sampled(choice, solver, budget)
        if prices is not None:
            certified = _certified(choice, prices, solver, budget)
            if certified is not None:
                return certified
    relaxed = _relax(choice, choice.allowed, everything, solver, budget)
    return None if relaxed is None else (*relaxed, _prices_of(choice, *relaxed))


def _certified(
    choice: Choice, prices: _Prices, solver: Solver, budget: Budget
) -> tuple[_Restricted, Solution, _Prices] | None:
    n = choice.cost.shape[0]
    ranked = np.partition(np.c_[prices.regret, prices.idle_regret], 1, axis=1)[:, 1]
    cut = float(np.quantile(ranked, min(1.0, max(0.1, 200 / n))))
    keep, idle = prices.regret <= cut, prices.idle_regret <= cut
    for _ in range(CORE_ROUNDS):
        relaxed = _relax(choice, keep & choice.allowed, idle, solver, budget)
        if relaxed is None:
            cut *= 3.0
            keep, idle = keep | (prices.regret <= cut), idle | (prices.idle_regret <= cut)
            continue
        prices = _prices_of(choice, *relaxed)
        value = relaxed[1].objective + relaxed[0].fixed_cost
        if value - prices.bound <= COST_EQUALITY * max(1.0, abs(value)):
            return (*relaxed, prices)
        near = 0.2 * cut
        keep, idle = keep | (prices.regret <= near), idle | (prices.idle_regret <= near)
        cut *= 1.5
    return None


def round_down_and_fill(choice: Choice, shares: FloatArray, regret: FloatArray) -> IntArray:
    """Keep the whole part of an LP plan and offer what is left, least regret per unit first.

    Parameters
    ----------
    choice
        The problem.
    shares
        An LP plan, shape (n, options).
    regret
        Regret of each option at the LP's prices, shape (n, options).

    Returns
    -------
    IntArray
        A plan within counts and capacities; it may miss the total.
    """
    plan = np.floor(shares + SPLIT).astype(np.int64)
    left = (choice.capacity - choice.used(plan)).tolist()
    spare = choice.count - plan.sum(axis=1)
    open_ = choice.allowed & (spare > 0)[:, None] & (choice.amount > 0)
    open_ &= choice.amount <= np.asarray(left)[choice.resource][None, :]
    groups, options = np.nonzero(open_)
    worth = choice.total is not None
    score = regret[groups, options] if worth else choice.cost[groups, options]
    if not worth:
        groups, options, score = groups[score < 0], options[score < 0], score[score < 0]
    order = np.argsort(score / choice.amount[groups, options], kind="stable")
    remaining = spare.tolist()
    for group, option in zip(groups[order].tolist(), options[order].tolist(), strict=True):
        need = float(choice.amount[group, option])
        resource = int(choice.resource[option])
        fits = int(min(remaining[group], (left[resource] + SPLIT) // need))
        if fits > 0:
            plan[group, option] += fits
            remaining[group] -= fits
            left[resource] -= fits * need
    return plan
