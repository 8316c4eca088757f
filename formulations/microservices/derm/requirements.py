"""What a plan of Derm must keep, and what it costs: the same for every search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from apportion.formulations.microservices.plain import room
from apportion.formulations.microservices.tails import Tails
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound, laws

Priority = Literal["budget", "uniform", "worst", "queue"]


@dataclass(frozen=True, eq=False)
class Requirements:
    """Rows ``weight @ tail <= budget`` over the active classes, and bounds of the counts.

    Parameters
    ----------
    tails
        Tails of the active classes, A of them.
    weight, budget
        Shapes (C, A) and (C,). Unmodelled shares are already taken off the budgets.
    service
        Service each row belongs to, shape (C,).
    low, high
        Bounds of the containers, shape (M,): in a cluster without limits a cheapest plan lies
        between them; where nobody calls, both are the count to keep.
    least
        Counts below which a plan is not admissible, shape (M,): less than ``low`` where more run
        that cost less to keep than to stop.
    cost
        Of a container, shape (M,).
    churn_cost, before
        Cost of each container more or less than ``before``, shape (M,); 0: no matter.
    capacity
        Cores and MiB of the cluster, shape (2,).
    rank
        Order of the classes, shape (K,), or None.
    """

    tails: Tails
    weight: Floats
    budget: Floats
    service: Ints
    low: Ints
    high: Ints
    least: Ints
    cost: Floats
    churn_cost: float
    before: Ints
    capacity: Floats
    rank: Ints | None = None

    @property
    def round_(self) -> MicroserviceRound:
        """The round."""
        return self.tails.round_

    def met(self, containers: Ints | Floats) -> Floats:
        """Probability that each active class meets its target, shape (A,)."""
        return self.tails.met(self.tails.rates(containers, self.rank))

    def excess(self, met: Floats) -> Floats:
        """By how much each row is missed, as a share of its budget; shape (..., C)."""
        over = (1.0 - met) @ self.weight.T - self.budget
        return over / np.maximum(self.budget, BUDGET_FLOOR)

    def kept(self, containers: Ints) -> bool:
        """Tell whether a plan within the bounds keeps every row."""
        return bool((self.excess(self.met(containers)) <= 0.0).all())

    def value(self, containers: Ints) -> float:
        """Cost of a plan."""
        moved = np.abs(containers - self.before).sum() if self.churn_cost else 0.0
        return float(self.cost @ containers + self.churn_cost * moved)

    @property
    def lean(self) -> Requirements:
        """The same without a price on changes, from the least counts up: what a small cluster holds."""
        high = np.where(called_by_active(self.round_), self.high, self.least)
        return replace(self, low=self.least, high=high, churn_cost=0.0)

    @property
    def raised(self) -> bool:
        """Whether a cluster that is too small to keep what runs may need a plan below ``low``."""
        return bool(np.isfinite(self.capacity).any() and (self.low > self.least).any())

    def step_cost(self, containers: Ints) -> Floats:
        """Cost of one container more of each microservice, shape (M,)."""
        if not self.churn_cost:
            return self.cost
        return self.cost + np.where(containers < self.before, -1, 1) * self.churn_cost

    def within_capacity(self, containers: Ints) -> bool:
        """Tell whether the cluster as a whole can hold a plan."""
        return bool((self.over_capacity(containers) <= 0.0).all())

    def over_capacity(self, containers: Ints) -> Floats:
        """Cores and MiB that a plan asks beyond the cluster; shape (2,), not positive: fits."""
        size, capacity = sizes(self.round_), self.capacity
        slack = CAPACITY_TOLERANCE * np.where(np.isfinite(capacity), capacity, 0.0)
        return size @ containers - capacity - slack


BUDGET_FLOOR = 1e-12
"""Budgets at or below zero are compared on this scale instead of dividing by nothing."""

CAPACITY_TOLERANCE = 1e-9
"""Relative slack of sums of cores and MiB: decimal sizes do not add up exactly."""


def sizes(round_: MicroserviceRound) -> Floats:
    """Cores and MiB of a container of each microservice, shape (2, M)."""
    own = round_.microservices
    return np.stack((own.cpu_cores, own.memory_mib))


def requirements(
    round_: MicroserviceRound,
    priority: Priority = "budget",
    *,
    floor: float = 0.0,
    churn_cost: float = 0.0,
    tails: Tails | None = None,
) -> Requirements:
    """State what a plan must keep.

    Parameters
    ----------
    round_
        The round; for ``"worst"`` one whose requests all follow the dearest class.
    priority
        ``"uniform"``: every class keeps its service's SLA; else the mixture of the classes does.
    floor
        Least probability with which every class meets its target.
    churn_cost
        Cost of each container started or stopped.
    tails
        Tails of the round, if they are compiled already.
    """
    compiled = Tails.of(round_) if tails is None else tails
    own = compiled.classes
    services, of_class = round_.services, round_.classes.service[own]
    each = np.eye(own.size)
    if priority == "uniform":
        weight, budget = each, services.violation_budget[of_class]
        budget = budget - services.unmodelled_share[of_class]
        owner = of_class
    else:
        owner = np.unique(of_class)
        weight = np.where(of_class == owner[:, None], round_.classes.share[own], 0.0)
        budget = services.violation_budget[owner] - services.unmodelled_share[owner]
    if floor > 0.0:
        weight, budget = (
            np.vstack((weight, each)),
            np.append(budget, np.full(own.size, 1.0 - floor)),
        )
        owner = np.append(owner, of_class)
    low, high, before = bounds(round_)
    if round_.containers is None:
        churn_cost = 0.0  # nobody knows what would change
    least = low
    if churn_cost:  # who costs less to keep than to stop is kept
        kept = np.minimum(before, round_.microservices.most_containers)
        low = np.where(round_.microservices.cost <= churn_cost, np.maximum(low, kept), low)
        high = np.maximum(low, high)  # those that nobody calls too
    return Requirements(
        compiled, cast(Floats, weight), cast(Floats, budget), cast(Ints, owner), low, high,
        least, round_.microservices.cost, churn_cost, before, np.array(room(round_)),
    )  # fmt: skip


def bounds(round_: MicroserviceRound) -> tuple[Ints, Ints, Ints]:
    """Give the least and the most containers worth looking at, and those that run now."""
    own = round_.microservices
    called = called_by_active(round_)
    low = np.maximum(own.least_containers, np.where(called, laws.least_admissible(round_), 0))
    high = own.most_containers.copy()
    high[~called] = low[~called]
    before = own.least_containers if round_.containers is None else round_.containers
    return cast(Ints, np.minimum(low, own.most_containers)), high, before


def called_by_active(round_: MicroserviceRound) -> Bools:
    """Tell which microservices any class that occurs calls, shape (M,)."""
    return cast(Bools, (round_.demand[:, round_.active] > 0).any(axis=1))


def is_whole(cost: Floats) -> float:
    """Give the largest number of which all costs are whole multiples, 0 where none is found."""
    if not cost.size:
        return 1.0
    scaled: Floats = cost / cost.min()
    for factor in (1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 25, 50, 100):
        whole = np.round(scaled * factor).astype(np.int64)
        if np.allclose(whole, scaled * factor, rtol=1e-12, atol=1e-9):
            return float(cost.min()) / factor * math.gcd(*whole.tolist())
    return 0.0
