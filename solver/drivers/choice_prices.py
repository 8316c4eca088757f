"""Prices of the capacities of a multiple choice problem, and the regrets they give."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.backends.registry import backend
from apportion.solver.budget import Budget
from apportion.solver.drivers.choice import Choice
from apportion.solver.models.builder import ModelBuilder
from apportion.solver.models.model import Model
from apportion.solver.solve import Solver

CERTIFY_ROUNDS = 12
"""The cut-off grows by half each round, so that a dozen take in every near tie."""

SAMPLE_FROM = 20_000
"""Options above which the first prices come from a sample of the groups."""

COST_EQUALITY = 1e-9
"""Relative difference below which two costs computed in different order are the same."""


@dataclass(frozen=True, eq=False)
class Restricted:
    """A model over the kept options of the groups that still have a choice.

    Attributes
    ----------
    model
        The model.
    groups, options
        What each column stands for, shape (columns,).
    fixed
        Copies of the groups without a choice, shape (n, options).
    left_out
        Cost of a plan beyond the model's objective.
    resource_rows, total_row
        Rows of the capacities, shape (resources,), and of the total.
    """

    model: Model
    groups: IntArray
    options: IntArray
    fixed: IntArray
    left_out: float
    resource_rows: IntArray
    total_row: int | None

    def plan(self, x: FloatArray) -> IntArray:
        """Turn a whole solution into copies for every option, shape (n, options)."""
        out = self.fixed.copy()
        out[self.groups, self.options] = np.round(x).astype(np.int64)
        return out

    def shares(self, x: FloatArray) -> FloatArray:
        """Turn an LP solution into shares for every option, shape (n, options)."""
        out = self.fixed.astype(np.float64)
        out[self.groups, self.options] = x
        return out


def restrict(
    choice: Choice,
    keep: BoolArray,
    idle: BoolArray,
    name: str,
    integer: bool,
    prices: Prices | None = None,
) -> Restricted:
    """Build the model over ``keep`` (n, options) and ``idle`` (n,); a sole option is fixed.

    With ``prices``, and where all plans use up all capacities, the objective is made of costs at
    these prices, which differ by a constant: small numbers, in which codes see small differences.
    """
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
    value, left_out = choice.cost[groups, options], choice.value(fixed)
    if prices is not None and choice.full:
        waits = np.where(free, prices.idle_regret, 0.0)
        value = prices.regret[groups, options] - waits[groups]
        taken = fixed > 0
        left_out = prices.bound + float(choice.count @ waits)
        left_out += float((prices.regret[taken] * fixed[taken]).sum())
    builder.objective("cost", column=x, value=value)
    return Restricted(builder.build(), groups, options, fixed, left_out, capacity, total_row)


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of the capacities, the bound they prove, and every option's regret."""

    resource: FloatArray
    total: float
    bound: float
    regret: FloatArray
    idle_regret: FloatArray


def priced(choice: Choice, resource: FloatArray, total: float) -> Prices:
    """Evaluate prices over all options: weak duality by our own arithmetic."""
    if not choice.full:
        resource, total = np.maximum(resource, 0.0), max(total, 0.0)
    net = resource[choice.resource] - total
    reduced = choice.cost + net * choice.amount
    best = np.minimum(reduced.min(axis=1, initial=np.inf), 0.0)
    bound = float(choice.count @ best - resource @ choice.capacity)
    if choice.total is not None:
        bound += total * choice.total
    return Prices(resource, total, bound, reduced - best[:, None], -best)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The LP relaxation: shares that solve it, its value, and its prices over all options."""

    shares: FloatArray
    value: float
    prices: Prices


def _relax(
    choice: Choice, keep: BoolArray, idle: BoolArray, solver: Solver, budget: Budget
) -> Relaxation | None:
    part = restrict(choice, keep, idle, "choice-lp", integer=False)
    if part.model.column_count == 0 or not _takes_lps(solver):
        return None
    answer = solver.solve(part.model, budget=budget)
    if answer.duals is None or answer.point is None:
        return None
    total = 0.0 if part.total_row is None else float(answer.duals[part.total_row])
    prices = priced(choice, -answer.duals[part.resource_rows], total)
    return Relaxation(part.shares(answer.point), answer.objective + part.left_out, prices)


def _takes_lps(solver: Solver) -> bool:
    return solver.backend == "auto" or backend(solver.backend).capabilities.continuous


def _sampled(choice: Choice, solver: Solver, budget: Budget) -> Prices | None:
    """Get first prices from an evenly spread sample of the groups with scaled capacities."""
    n = choice.cost.shape[0]
    step = max(1, n // max(200, n // 8))
    rows: IntArray = np.arange(0, n, step, dtype=np.int64)
    scale = float(choice.count[rows].sum()) / float(choice.count.sum())
    total = None if choice.total is None else choice.total * scale
    sample = Choice(
        choice.cost[rows], choice.amount[rows], choice.resource, choice.capacity * scale,
        choice.count[rows], total,
    )  # fmt: skip
    # an equation on a sample may have no solution; a price is a price, whatever it came from
    sample = _loose(sample) if sample.full else sample
    everything = np.ones(rows.size, dtype=np.bool_)
    relaxed = _relax(sample, sample.allowed, everything, solver, budget)
    if relaxed is None:
        return None
    return priced(choice, relaxed.prices.resource, relaxed.prices.total)


def _loose(choice: Choice) -> Choice:
    assert choice.total is not None
    return replace(choice, total=0.95 * min(choice.total, choice.reach))


def solve_relaxation(choice: Choice, solver: Solver, budget: Budget) -> Relaxation | None:
    """Solve the LP relaxation and price all options.

    A large problem starts from the prices of a sample: only groups with near ties stay in the LP,
    all others are fixed to their best option, and the bound over all options certifies the result.

    Returns
    -------
    Relaxation, or None where the LP has no usable answer.
    """
    if int(choice.allowed.sum()) > SAMPLE_FROM:
        prices = _sampled(choice, solver, budget)
        certified = None if prices is None else _certified(choice, prices, solver, budget)
        if certified is not None:
            return certified
    everything = np.ones(choice.cost.shape[0], dtype=np.bool_)
    return _relax(choice, choice.allowed, everything, solver, budget)


def _certified(choice: Choice, prices: Prices, solver: Solver, budget: Budget) -> Relaxation | None:
    n = choice.cost.shape[0]
    ranked = np.partition(np.c_[prices.regret, prices.idle_regret], 1, axis=1)[:, 1]
    # a group with one option that exists has no second one to keep
    ranked = ranked[np.isfinite(ranked)]
    cut = float(np.quantile(ranked, min(1.0, max(0.1, 200 / n)))) if ranked.size else 0.0
    keep, idle = prices.regret <= cut, prices.idle_regret <= cut
    for _ in range(CERTIFY_ROUNDS):
        relaxed = _relax(choice, keep & choice.allowed, idle, solver, budget)
        if relaxed is None:
            cut *= 3.0
            keep, idle = keep | (prices.regret <= cut), idle | (prices.idle_regret <= cut)
            continue
        prices = relaxed.prices
        if relaxed.value - prices.bound <= COST_EQUALITY * max(1.0, abs(relaxed.value)):
            return relaxed
        near = 0.2 * cut
        keep, idle = keep | (prices.regret <= near), idle | (prices.idle_regret <= near)
        cut *= 1.5
    return None
