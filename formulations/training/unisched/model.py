"""The selector's model: a configuration and a deadline for each job, and leases by time.

Time may be cut into buckets of several leases. With buckets of one lease the model is exact; with
wider ones leases inside a bucket are counted together, so that every plan has a point in the
model but not every point is a plan: a relaxation, whose bounds hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.formulations.training.unisched.plan import NONE, SAME, Plan
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Model, ModelBuilder


def bucket_edges(horizon: int, *, doubling: bool) -> Ints:
    """Cut a horizon into single leases, or into buckets of 1, 1, 2, 4, 8, ... leases.

    Returns
    -------
    First lease of each bucket, and the horizon, shape (buckets + 1,).
    """
    if not doubling:
        return np.arange(horizon + 1, dtype=np.int64)
    edges = [0]
    width = 1
    while edges[-1] < horizon:
        edges.append(min(horizon, edges[-1] + width))
        width = max(1, edges[-1])
    return np.array(edges, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Selector:
    """The columns of the model.

    Parameters
    ----------
    slo, best_effort
        The jobs.
    capacity
        GPUs of each type in each lease, shape (k, T).
    edges
        First lease of each bucket, and the horizon, shape (b + 1,).
    """

    slo: SloJobs
    best_effort: BestEffort
    capacity: Ints
    edges: Ints

    @property
    def exact(self) -> bool:
        """Whether every bucket is one lease."""
        return self.edges.size == self.capacity.shape[1] + 1

    @cached_property
    def usable(self) -> Ints:
        """Leases before each time in which a configuration fits at all, shape (c, T + 1)."""
        fits = self.capacity[self.slo.gpu_type] >= self.slo.gpus[:, None]
        out = np.zeros((fits.shape[0], fits.shape[1] + 1), dtype=np.int64)
        np.cumsum(fits, axis=1, out=out[:, 1:])
        return out

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Configurations and deadlines that can go together at all; two columns, by job."""
        configuration, deadline = self.slo.options
        due = np.clip(self.slo.due[deadline], 0, self.capacity.shape[1])
        good = self.usable[configuration, due] >= self.slo.need[configuration]
        return configuration[good], deadline[good]

    @cached_property
    def job_of_pair(self) -> Ints:
        """Job of each pair."""
        return self.slo.job_of_configuration[self.pairs[0]]

    @cached_property
    def reach(self) -> Ints:
        """Leases of each bucket that a pair may use before its deadline, shape (pairs, b)."""
        configuration, deadline = self.pairs
        ends = np.minimum(self.edges[None, :], np.maximum(0, self.slo.due[deadline])[:, None])
        return np.diff(self.usable[configuration[:, None], ends], axis=1)

    @cached_property
    def slots(self) -> tuple[Ints, Ints, Ints]:
        """Configuration and bucket of each column of leases, and the most leases there."""
        most = np.zeros((self.slo.gpus.size, self.edges.size - 1), dtype=np.int64)
        np.maximum.at(most, self.pairs[0], self.reach)
        configuration, bucket = np.nonzero(most)
        return configuration, bucket, most[configuration, bucket]

    @cached_property
    def possible(self) -> Bools:
        """Jobs that can meet a deadline alone, shape (n,)."""
        out = np.zeros(len(self.slo), dtype=np.bool_)
        out[self.job_of_pair] = True
        return out

    def model(
        self, *, goal: str, must: Bools, floor: float | None = None, lease_cost: float = 0.0
    ) -> Model:
        """Build the model of one pass.

        Parameters
        ----------
        goal
            ``"promises"``: the value of accepted jobs that are kept. ``"value"``: what deadlines
            earn. ``"reward"``: best-effort rewards less starts and GPU-leases.
        must
            Jobs that have to be in the plan, shape (n,).
        floor
            Least value that the plan has to earn.
        lease_cost
            Cost of a GPU for one lease.
        """
        builder = ModelBuilder(f"unisched {goal}")
        pair, slot = self._columns(builder)
        self._rows(builder, pair, slot, must)
        configuration, deadline = self.pairs
        value = self.slo.value[deadline]
        if floor is not None:
            builder.rows("value", 1, row=0, column=pair, value=value, lower=floor)
        if goal == "reward":
            self._reward(builder, pair, slot, lease_cost)
            return builder.build()
        self._capacity(builder, slot)
        if goal == "promises":
            top = self.slo.top_value
            worth = np.where(self.slo.must, np.maximum(top, LEAST_WORTH * top.max(initial=1.0)), 0)
            value = worth[self.slo.job_of_configuration[configuration]]
        builder.objective(goal, column=pair, value=value, maximise=True)
        return builder.build()

    def _columns(self, builder: ModelBuilder) -> tuple[Ints, Ints]:
        configuration, _, most = self.slots
        pair = builder.columns("pair", self.pairs[0].size, integer=True)
        slot = builder.columns("leases", configuration.size, upper=most, integer=True)
        return pair, slot

    def _rows(self, builder: ModelBuilder, pair: Ints, slot: Ints, must: Bools) -> None:
        """One pair a job; as many leases as it needs; none after the deadline."""
        slo, (configuration, _) = self.slo, self.pairs
        of_slot, bucket, _ = self.slots
        builder.rows(
            "one_plan", len(slo), row=self.job_of_pair, column=pair, value=1.0,
            lower=(must & self.possible).astype(np.float64), upper=1.0,
        )  # fmt: skip
        row = np.concatenate((of_slot, configuration))
        factor = np.concatenate((np.ones(slot.size), -slo.need[configuration].astype(np.float64)))
        builder.rows(
            "need", slo.gpus.size, row=row, column=np.concatenate((slot, pair)), value=factor,
            lower=0.0, upper=0.0,
        )  # fmt: skip
        number = np.full((slo.gpus.size, self.edges.size - 1), NONE, dtype=np.int64)
        number[of_slot, bucket] = np.arange(slot.size)
        which, when = np.nonzero(self.reach)
        row = np.concatenate((np.arange(slot.size), number[configuration[which], when]))
        factor = np.concatenate((np.ones(slot.size), -self.reach[which, when].astype(np.float64)))
        builder.rows(
            "deadline", slot.size, row=row, column=np.concatenate((slot, pair[which])),
            value=factor, upper=0.0,
        )  # fmt: skip

    def _capacity(self, builder: ModelBuilder, slot: Ints, z: Ints | None = None) -> None:
        of_slot, bucket, _ = self.slots
        kinds, buckets = self.capacity.shape[0], self.edges.size - 1
        side = np.add.reduceat(self.capacity, self.edges[:-1], axis=1)
        row = self.slo.gpu_type[of_slot] * buckets + bucket
        column, factor = slot, self.slo.gpus[of_slot]
        if z is not None:
            row = np.concatenate((row, self.best_effort.gpu_type * buckets))
            column = np.concatenate((column, z))
            factor = np.concatenate((factor, self.best_effort.gpus))
        builder.rows(
            "capacity", kinds * buckets, row=row, column=column, value=factor, upper=side.ravel()
        )

    def _reward(self, builder: ModelBuilder, pair: Ints, slot: Ints, lease_cost: float) -> None:
        slo, best_effort = self.slo, self.best_effort
        fits = best_effort.gpus <= self.capacity[best_effort.gpu_type, 0]
        z = builder.columns("best_effort", best_effort.reward.size, upper=fits, integer=True)
        builder.rows(
            "one_configuration", len(best_effort), row=best_effort.job_of_configuration, column=z,
            value=1.0, upper=1.0,
        )  # fmt: skip
        self._capacity(builder, slot, z)
        of_slot, bucket, _ = self.slots
        # a job starts where it runs in lease 0 by another configuration than now
        first = bucket == 0
        configuration = self.pairs[0]
        lease = lease_cost * slo.gpus[configuration] * slo.need[configuration]
        builder.objective(
            "reward", maximise=True, column=np.concatenate((z, slot[first], pair)),
            value=np.concatenate((best_effort.reward, -slo.start_cost[of_slot[first]], -lease)),
        )  # fmt: skip

    def point(self, plan: Plan, columns: int) -> Floats:
        """Write a plan as a point of the model with so many columns."""
        configuration, deadline = self.pairs
        rows = self.job_of_pair
        pair = (plan.configuration[rows] == configuration) & (plan.deadline[rows] == deadline)
        of_slot, bucket, _ = self.slots
        counts = np.add.reduceat(plan.leases.astype(np.int64), self.edges[:-1], axis=1)
        jobs = self.slo.job_of_configuration[of_slot]
        slot = np.where(plan.configuration[jobs] == of_slot, counts[jobs, bucket], 0)
        z = np.zeros(self.best_effort.reward.size)
        z[plan.chosen[plan.chosen >= 0]] = 1.0
        out = np.concatenate((pair.astype(np.float64), slot.astype(np.float64), z))
        return out[:columns]

    def read(self, point: Floats) -> tuple[Ints, Ints, Ints, Ints]:
        """Read configuration and deadline of each job, leases by bucket, and best effort."""
        pairs, n = self.pairs[0].size, len(self.slo)
        of_slot, bucket, _ = self.slots
        configuration = np.full(n, NONE, dtype=np.int64)
        deadline = configuration.copy()
        on = np.flatnonzero(np.rint(point[:pairs]) > 0)
        configuration[self.job_of_pair[on]] = self.pairs[0][on]
        deadline[self.job_of_pair[on]] = self.pairs[1][on]
        counts = np.zeros((n, self.edges.size - 1), dtype=np.int64)
        laid = np.rint(point[pairs : pairs + of_slot.size]).astype(np.int64)
        np.add.at(counts, (self.slo.job_of_configuration[of_slot], bucket), laid)
        chosen = np.full(len(self.best_effort), NONE, dtype=np.int64)
        z = np.flatnonzero(np.rint(point[pairs + of_slot.size :]) > 0)
        chosen[self.best_effort.job_of_configuration[z]] = z
        return configuration, deadline, counts, chosen


def floor_of(value: float) -> float:
    """Side of the row that keeps a value, with the slack of its sum."""
    return value - SAME * max(1.0, abs(value))


LEAST_WORTH = 1e-6
"""What keeping a promise is worth that earns nothing, in parts of the dearest one."""
