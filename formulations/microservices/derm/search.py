"""The cheapest plan with proof: from a greedy plan down, from the tangent bound up.

Source: branch and bound on class budgets and container counts as in the project's speed notes for
Derm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.requirements import Requirements, is_whole
from apportion.formulations.microservices.derm.tangent_bound import (
    Box,
    TangentBound,
    Verdict,
    lanes,
)
from apportion.instances.columns import Ints
from apportion.instances.policy import Budget

ROOT_ROUNDS, NODE_ROUNDS = 25, 6
"""Tangents at the root and in nodes."""

CHUNK_NODES, MORE_NODES = 400, 4
"""Nodes spent on one cost at first, and by which factor more when they do not settle it."""

ROOT_STEP = 1e-4
"""Share of a plan's cost by which the root bound is told where costs have no common unit."""


@dataclass(frozen=True, eq=False)
class Found:
    """The best plan found and what is proved of the cheapest.

    Parameters
    ----------
    containers
        A plan that keeps every row, or None.
    bound
        No plan that keeps every row costs less; None where nothing is known.
    proved
        Whether the plan costs no more than the bound and the gap allow.
    impossible
        Whether no plan within the bounds of the containers keeps every row.
    nodes
        Boxes looked at beyond the root.
    time_limited
        Whether the clock ended the search.
    """

    containers: Ints | None
    bound: float | None
    proved: bool = False
    impossible: bool = False
    nodes: int = 0
    time_limited: bool = False


def cheapest(
    need: Requirements, budget: Budget, *, gap: float = 0.0, most_nodes: int = 100_000
) -> Found:
    """Search the cheapest plan.

    Parameters
    ----------
    need
        What it must keep, in order of arrival.
    budget
        Time; the best plan so far is given when it ends.
    gap
        Relative gap at which the search may stop.
    most_nodes
        Boxes at which it stops: deterministic work.
    """
    if not reachable(need):
        return Found(None, None, impossible=True)
    first = climb(need, budget)
    if not first.kept:
        return Found(None, need.value(need.low), time_limited=first.time_limited)
    best = trim(need, first.containers, budget)
    search = _Search(need, best.containers, budget, gap, most_nodes)
    search.bound_root()
    search.close()
    return search.found()


def reachable(need: Requirements) -> bool:
    """Tell whether the largest counts allowed keep every row; no plan does if they do not."""
    if (need.budget < 0.0).any() or (need.low > need.high).any():
        return False
    return not need.budget.size or bool((need.excess(need.met(need.high)) <= 0.0).all())


class _Search:
    """One search under way: a plan, its cost, and a cost below which there is none."""

    def __init__(
        self, need: Requirements, plan: Ints, budget: Budget, gap: float, most_nodes: int
    ) -> None:
        self.need, self.budget, self.gap, self.most_nodes = need, budget, gap, most_nodes
        self.plan, self.value = plan, need.value(plan)
        self.unit = is_whole(_prices(need))
        self.bound = need.value(need.low)
        self.nodes = 0
        self.tangents = TangentBound(need)

    # ------------------------------------------------------------------ ends

    @property
    def closed(self) -> bool:
        """Whether bound and plan are as near as asked."""
        return self.value - self.bound <= max(self.gap, self.least_gap) * abs(self.value)

    @property
    def least_gap(self) -> float:
        """Relative difference of costs that counts as none."""
        return SLACK if self.unit > 0.0 else SAME_COST

    @property
    def over(self) -> bool:
        """Whether work or time is used up."""
        return self.nodes >= self.most_nodes or self.budget.left_s() <= 0.0

    def found(self) -> Found:
        """Tell how far it came."""
        bound = (
            self.value
            if self.closed and self.gap <= self.least_gap
            else min(self.bound, self.value)
        )
        return Found(
            self.plan, bound, self.closed, nodes=self.nodes,
            time_limited=not self.closed and self.budget.left_s() <= 0.0,
        )  # fmt: skip

    def accept(self, plan: Ints) -> None:
        """Take a plan that keeps every row, trimmed, if it is the cheapest."""
        if not self.need.within_capacity(plan):
            return
        better = trim(self.need, plan, self.budget).containers
        if self.need.value(better) < self.value * (1.0 - SLACK):
            self.plan, self.value = better, self.need.value(better)

    # ------------------------------------------------------------------ bound at the root

    def bound_root(self) -> None:
        """Raise the bound as far as tangents alone can show."""
        if self.closed or not self.need.budget.size:
            return
        step = self.unit or max(self.gap / 4.0, ROOT_STEP) * abs(self.value)
        low, high = math.floor(self.bound / step), self._below(step)
        while low < high and not self.over:
            middle = (low + high + 1) // 2
            verdict = self.tangents.verdict(self.tangents.root(), middle * step, ROOT_ROUNDS)
            if verdict.state == "none":
                low = middle
                self._refuted(middle * step)
                continue
            high = middle - 1
            if verdict.state == "found" and verdict.plan is not None:
                self.accept(verdict.plan)
                high = min(high, self._below(step))

    def _below(self, step: float) -> int:
        """Number of the last step of a grid of costs that lies below the plan's own."""
        return math.ceil(self.value / step - GRID_SLACK) - 1

    def _refuted(self, cost: float) -> None:
        """Note that no plan costs as little as this."""
        self.bound = max(self.bound, min(cost + self.unit, self.value))

    # ------------------------------------------------------------------ branch and bound

    def close(self) -> None:
        """Raise the bound by units; without a unit, prove the plan itself.

        A step that a few nodes do not settle is tried with more: the bound is what a search that is
        stopped can still tell.
        """
        nodes = CHUNK_NODES
        while not self.closed and not self.over:
            if self.unit > 0.0:
                least = self.unit * math.ceil(self.bound / self.unit - GRID_SLACK)
                cost = min(least, self._below(self.unit) * self.unit)
            else:
                cost = self.value * (1.0 - max(self.gap, self.least_gap) / 2.0)
            done, plan = self._exists(cost, nodes)
            if plan is not None:
                self.accept(plan)
                if self.value > cost * (1.0 + SAME_COST):
                    return  # a plan that the cluster cannot hold
            elif done:
                self._refuted(cost)
            else:
                nodes *= MORE_NODES

    def _exists(self, cost: float, most: int) -> tuple[bool, Ints | None]:
        """Search a plan within a cost, depth first; tell whether the search was whole."""
        waiting = [self.tangents.root()]
        stop = self.nodes + most
        first = True
        while waiting:
            if self.over or self.nodes >= stop:
                return False, None
            box = waiting.pop()
            self.nodes += 1
            verdict = self.tangents.verdict(box, cost, ROOT_ROUNDS // 2 if first else NODE_ROUNDS)
            first = False
            if verdict.state == "found":
                return True, verdict.plan
            if verdict.state == "open":
                waiting += _split(self.need, box, verdict)
        return True, None


SLACK = 1e-9
"""Relative: sums of the same costs in another order are the same cost."""

SAME_COST = 1e-6
"""Relative difference below which costs without a common unit are not told apart: above the
tolerance on costs inside boxes."""

GRID_SLACK = 1e-6
"""Share of a step by which a cost may lie above it: sums of costs are not exact."""

LARGE_PART, LEAST_PART = 0.25, 2e-4
"""A class's budget is split where its chord gives away so much of what is missing, and so much of
the budget at least; else the containers of a microservice are."""


def _split(need: Requirements, box: Box, verdict: Verdict) -> list[Box]:
    """Cut a box in two, the half to look at first last."""
    assert verdict.nu is not None
    assert verdict.z is not None
    assert verdict.given_away is not None
    away = verdict.given_away
    k = int(away.argmax())
    if away[k] > LARGE_PART * verdict.missing and away[k] > LEAST_PART:
        least, most = box.least.copy(), box.most.copy()
        least[k] = most[k] = verdict.z[k]
        return [replace(box, least=least), replace(box, most=most)]
    own, calls = need.round_.microservices, lanes(need)
    most = calls.argmax(axis=1)[:, None]  # with an order, the counts of whoever goes last
    nu, calls = (np.take_along_axis(table, most, axis=1)[:, 0] for table in (verdict.nu, calls))
    slack = np.maximum(own.rate_at_rest_per_ms - np.exp(-nu), 1e-12)
    counts = np.where(calls > 0, -own.rate_slope_per_ms * calls / slack, 0.0)
    wide = box.high > box.low
    score = np.where(wide, np.abs(counts - np.round(counts)), -1.0)
    score += 1e-3 * np.minimum(box.high - box.low, 1000) * wide
    m = int(score.argmax())
    cut = int(np.clip(np.floor(counts[m]), box.low[m], box.high[m] - 1))
    high, low = box.high.copy(), box.low.copy()
    high[m], low[m] = cut, cut + 1
    return [replace(box, high=high), replace(box, low=low)]


def _prices(need: Requirements) -> np.ndarray:
    """All prices a container can have, where it may vary."""
    used = need.high > need.low
    cost = need.cost[used]
    if not need.churn_cost:
        return cost
    return np.concatenate((cost + need.churn_cost, np.abs(cost - need.churn_cost)))
