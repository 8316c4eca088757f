"""Counts as steps from their lower bounds: the columns that all models of Derm share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from apportion.formulations.microservices.derm.requirements import Requirements, sizes
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import laws
from apportion.solver import Axis, ModelBuilder, Solution

MOST_STEPS = 200_000
"""Steps of all microservices together beyond which no model is written."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Steps of every microservice up to the most that a plan within a cost can have.

    Parameters
    ----------
    need
        What a plan must keep.
    most
        Upper bound of each microservice, shape (M,).
    """

    need: Requirements
    most: Ints

    @classmethod
    def within(cls, need: Requirements, cost: float) -> Levels:
        """List the steps of plans that cost no more than a known one."""
        left = cost - need.value(need.low)
        per = need.cost - need.churn_cost
        more = np.floor(left / np.where(per > 0, per, need.cost) * (1 + 1e-9) + 1e-9)
        return cls(need, cast(Ints, np.minimum(need.high, need.low + more.astype(np.int64))))

    @cached_property
    def spread(self) -> Ints:
        """Steps of each microservice, shape (M,)."""
        return self.most - self.need.low

    @cached_property
    def owner(self) -> Ints:
        """Microservice of each step, shape (L,)."""
        return np.repeat(np.arange(self.spread.size), self.spread)

    @cached_property
    def first(self) -> Ints:
        """First step of each microservice, shape (M,)."""
        return cast(Ints, np.cumsum(self.spread) - self.spread)

    @cached_property
    def reached(self) -> Ints:
        """Count that each step leads to, shape (L,)."""
        inside = np.arange(self.owner.size) - self.first[self.owner]
        return self.need.low[self.owner] + inside + 1

    @cached_property
    def fall(self) -> Floats:
        """What each step takes off ``nu = -log rate``, shape (L,)."""
        return self.nu_at(self.reached - 1) - self.nu_at(self.reached)

    def nu_at(self, counts: Ints) -> Floats:
        """Compute nu of each step's microservice at given counts, shape (L,)."""
        round_, m = self.need.round_, self.owner
        own = round_.microservices
        load = round_.calls_per_s[m] / np.maximum(counts, 1)
        load = np.maximum(load, own.least_load_per_s[m])
        return cast(Floats, -np.log(own.rate_at_rest_per_ms[m] + own.rate_slope_per_ms[m] * load))

    def nu(self, counts: Ints) -> Floats:
        """Compute nu of every microservice, shape (M,); 0 where nobody calls."""
        rate = laws.rates(self.need.round_.microservices, laws.loads(self.need.round_, counts))[
            :, 0
        ]
        used = self.need.high > self.need.low
        return cast(
            Floats, np.where(used & (rate > 0), -np.log(np.where(rate > 0, rate, 1.0)), 0.0)
        )

    def add_to(self, builder: ModelBuilder) -> Ints:
        """Add binary steps in order, the capacity of the cluster, and the cost; give the columns."""
        need, ids = self.need, self.need.round_.microservices.id.tolist()
        values, at = np.unique(self.reached, return_inverse=True)
        labels = [str(value) for value in values.tolist()]
        step = builder.columns(
            "step", self.owner.size, integer=True,
            axes=(Axis("microservice", ids, codes=self.owner), Axis("count", labels, codes=at)),
        )  # fmt: skip
        later = np.flatnonzero(self.reached > need.low[self.owner] + 1)
        rows = np.arange(later.size)
        builder.rows(
            "order", later.size, row=np.concatenate((rows, rows)),
            column=np.concatenate((step[later - 1], step[later])),
            value=np.concatenate((np.ones(later.size), -np.ones(later.size))), lower=0.0,
        )  # fmt: skip
        for name, of_one, limit in zip(
            ("cpu_cores", "memory_mib"), sizes(need.round_), need.capacity, strict=True
        ):
            if np.isfinite(limit):
                builder.rows(
                    name, 1, row=np.zeros(step.size, dtype=np.int64), column=step,
                    value=of_one[self.owner], upper=float(limit - of_one @ need.low),
                )  # fmt: skip
        price = need.cost[self.owner].copy()
        if need.churn_cost:
            price += np.where(self.reached <= need.before[self.owner], -1, 1) * need.churn_cost
        builder.objective("cost", column=step, value=price)
        return step

    def counts(self, solution: Solution) -> Ints:
        """Read the counts of a solution."""
        taken = np.round(solution.x[: self.owner.size]).astype(np.int64)
        return cast(
            Ints, self.need.low + np.bincount(self.owner, taken, self.spread.size).astype(np.int64)
        )
