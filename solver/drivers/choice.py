"""Multiple choice with few capacities: every group picks options, a handful of rows bind.

FFT's round, Sia's configurations and every choice of a GPU type are this one problem. Prices of
the capacities give a bound and, for every option, its regret: what it costs at these prices beyond
the group's best. Options of small regret form a core that is solved exactly; since the regrets of
a plan add up to its distance from the bound, the options left out are proved useless.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from apportion.solver.errors import ModelError
from apportion.solver.proof.proof import relative_gap
from apportion.solver.status import Status

SPLIT = 1e-6
"""A share this close to a whole number is read as whole (the primal tolerance of an LP)."""

LARGEST_COST_BITS = 40
LARGEST_COST = 2.0**LARGEST_COST_BITS
"""Costs beyond this are solved in a larger unit; a power of two changes no digit of them."""


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
        return self.total is not None and self.total >= float(self.capacity.sum()) - SPLIT

    @cached_property
    def reach(self) -> float:
        """What no plan draws more of: all capacities, or the largest amounts of all copies."""
        most = np.where(self.allowed, self.amount, 0.0).max(axis=1, initial=0.0)
        return min(float(self.capacity.sum()), float(self.count @ most))

    @cached_property
    def unit(self) -> float:
        """Power of two to measure costs in: 1 unless they are all tiny, or too large to solve with.

        Tolerances are absolute at sizes about 1, and codes refuse coefficients beyond 1e15.
        """
        largest = float(np.abs(self.cost[self.allowed]).max(initial=0.0))
        if largest == 0.0 or 1.0 <= largest <= LARGEST_COST:
            return 1.0
        return 2.0 ** (math.frexp(largest)[1] - (1 if largest < 1.0 else LARGEST_COST_BITS))

    def value(self, plan: IntArray) -> float:
        """Cost of a plan, shape (n, options), copies that take each option."""
        taken = plan > 0
        return float((self.cost[taken] * plan[taken]).sum())

    def used(self, plan: IntArray) -> FloatArray:
        """Amount that a plan draws on each resource."""
        drawn = (plan * self.amount).sum(axis=0)
        return weighted_counts(self.resource, drawn, self.capacity.size)

    def feasible(self, plan: IntArray) -> bool:
        """Whether a plan takes allowed options, within counts, capacities and the total."""
        if (plan < 0).any() or (plan[~self.allowed] > 0).any():
            return False
        used = self.used(plan)
        within = bool((plan.sum(axis=1) <= self.count).all()) and bool(
            (used <= self.capacity + SPLIT).all()
        )
        return within and (self.total is None or float(used.sum()) >= self.total - SPLIT)


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
