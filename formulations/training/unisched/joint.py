"""Both passes of the selector as one model, with names: for files, prices and explanations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.formulations.training.unisched.model import Selector
from apportion.formulations.training.unisched.plan import NONE
from apportion.instances.columns import Bools, Ints
from apportion.solver import Axis, Model, ModelBuilder


@dataclass(frozen=True, eq=False)
class Named:
    """What the rows and columns of a round's model are called.

    Parameters
    ----------
    slo, best_effort
        Names of the jobs with deadlines and of the others.
    types
        Names of the GPU types.
    """

    slo: list[str]
    best_effort: list[str]
    types: list[str]


def joint_model(
    slo: SloJobs, best_effort: BestEffort, capacity: Ints, edges: Ints, named: Named,
    lease_cost: float,
) -> Model:  # fmt: skip
    """Build the model of both passes: value first, then reward.

    Columns are ``plan[job,configuration,due]``, ``leases[job,configuration,lease]`` and
    ``best_effort[job,configuration]``; ``run_now[job,type]`` adds up those that run in lease 0, so
    that what-ifs about a job find it. ``gpus[type]`` are the GPUs in service during all leases:
    the row ``capacity[type]`` holds them to those that are free now, and raising it by one is one
    GPU more from now on.

    Parameters
    ----------
    slo, best_effort
        The jobs.
    capacity
        GPUs of each type in each lease, shape (k, T).
    edges
        First lease of each bucket, and the horizon, shape (b + 1,).
    named
        Names.
    lease_cost
        Cost of a GPU for one lease.
    """
    # columns for what one GPU more would allow; rows keep them empty until it is there
    wider = Selector(slo, best_effort, capacity + 1, edges)
    possible = Selector(slo, best_effort, capacity, edges).possible
    return _Joint(wider, capacity, named).model(slo.must & possible, lease_cost)


@dataclass(frozen=True, eq=False)
class _Joint:
    selector: Selector
    capacity: Ints
    named: Named

    def model(self, must: Bools, lease_cost: float) -> Model:
        choose, builder = self.selector, ModelBuilder("unisched")
        slo, other = choose.slo, choose.best_effort
        ways = _ways(slo, self.named.types)
        configuration, deadline = choose.pairs
        of_slot, bucket, most = choose.slots
        owner, starts = slo.job_of_configuration, self._starts()
        job = Axis("job", self.named.slo, codes=choose.job_of_pair)
        pair = builder.columns(
            "plan", configuration.size, integer=True,
            axes=(job, _way(ways, configuration), _number("due", slo.due[deadline])),
        )  # fmt: skip
        slot = builder.columns(
            "leases", of_slot.size, upper=most, integer=True,
            axes=(Axis("job", self.named.slo, codes=owner[of_slot]), _way(ways, of_slot),
                  Axis("lease", starts, codes=bucket)),
        )  # fmt: skip
        fits = other.gpus <= self.capacity[other.gpu_type, 0] + 1
        z = builder.columns(
            "best_effort", other.reward.size, upper=fits, integer=True,
            axes=(Axis("job", self.named.best_effort, codes=other.job_of_configuration),
                  _way(_ways(other, self.named.types), np.arange(other.reward.size))),
        )  # fmt: skip
        self._plans(builder, pair, slot, must)
        builder.rows(
            "one_configuration", len(other), row=other.job_of_configuration, column=z, value=1.0,
            upper=1.0, axes=(Axis("job", self.named.best_effort),),
        )  # fmt: skip
        self._gpus(builder, slot, z)
        self._now(builder, slot, z)
        builder.objective("value", column=pair, value=slo.value[deadline], maximise=True)
        first = bucket == 0
        lease = lease_cost * slo.gpus[configuration] * slo.need[configuration]
        builder.objective(
            "reward", maximise=True, column=np.concatenate((z, slot[first], pair)),
            value=np.concatenate((other.reward, -slo.start_cost[of_slot[first]], -lease)),
        )  # fmt: skip
        return builder.build()

    def _starts(self) -> list[str]:
        return [str(first) for first in self.selector.edges[:-1].tolist()]

    def _plans(self, builder: ModelBuilder, pair: Ints, slot: Ints, must: Bools) -> None:
        """One plan a job, as many leases as it needs, and none after its deadline."""
        choose, jobs = self.selector, self.named.slo
        slo, (configuration, _), (of_slot, bucket, _) = choose.slo, choose.pairs, choose.slots
        builder.rows(
            "one_plan", len(slo), row=choose.job_of_pair, column=pair, value=1.0,
            lower=must.astype(np.float64), upper=1.0, axes=(Axis("job", jobs),),
        )  # fmt: skip
        ways, cuts = _ways(slo, self.named.types), np.arange(slo.gpus.size)
        builder.rows(
            "work", slo.gpus.size, row=np.concatenate((of_slot, configuration)),
            column=np.concatenate((slot, pair)), lower=0.0, upper=0.0,
            value=np.concatenate((np.ones(slot.size), -slo.need[configuration].astype(float))),
            axes=(Axis("job", jobs, codes=slo.job_of_configuration), _way(ways, cuts)),
        )  # fmt: skip
        number = np.full((slo.gpus.size, choose.edges.size - 1), NONE, dtype=np.int64)
        number[of_slot, bucket] = np.arange(slot.size)
        which, when = np.nonzero(choose.reach)
        builder.rows(
            "in_time", slot.size, upper=0.0,
            row=np.concatenate((np.arange(slot.size), number[configuration[which], when])),
            column=np.concatenate((slot, pair[which])),
            value=np.concatenate((np.ones(slot.size), -choose.reach[which, when].astype(float))),
            axes=(Axis("job", jobs, codes=slo.job_of_configuration[of_slot]), _way(ways, of_slot),
                  Axis("lease", self._starts(), codes=bucket)),
        )  # fmt: skip

    def _gpus(self, builder: ModelBuilder, slot: Ints, z: Ints) -> None:
        """No lease uses more GPUs of a type than are in service in it."""
        choose, types = self.selector, self.named.types
        slo, other, (of_slot, bucket, _) = choose.slo, choose.best_effort, choose.slots
        kinds, buckets = int(self.capacity.shape[0]), int(choose.edges.size) - 1
        now, width = self.capacity[:, 0], np.diff(choose.edges)
        gpus = builder.columns("gpus", kinds, upper=2.0 * now + 1.0, axes=(Axis("type", types),))
        builder.rows(
            "capacity", kinds, row=np.arange(kinds), column=gpus, value=1.0, upper=now,
            axes=(Axis("type", types),),
        )  # fmt: skip
        side = np.add.reduceat(self.capacity, choose.edges[:-1], axis=1) - now[:, None] * width
        every = np.arange(kinds * buckets, dtype=np.int64)
        builder.rows(
            "in_lease", (kinds, buckets), upper=side,
            row=np.concatenate(
                (slo.gpu_type[of_slot] * buckets + bucket, other.gpu_type * buckets, every)
            ),
            column=np.concatenate((slot, z, np.repeat(gpus, buckets))),
            value=np.concatenate((slo.gpus[of_slot], other.gpus, -np.tile(width, kinds))),
            axes=(Axis("type", types), Axis("lease", self._starts())),
        )  # fmt: skip

    def _now(self, builder: ModelBuilder, slot: Ints, z: Ints) -> None:
        """Tell of each job on which type it runs in lease 0."""
        choose, kinds = self.selector, self.capacity.shape[0]
        slo, other, (of_slot, bucket, _) = choose.slo, choose.best_effort, choose.slots
        first = np.flatnonzero(bucket == 0)
        job = np.concatenate(
            (slo.job_of_configuration[of_slot[first]], len(slo) + other.job_of_configuration)
        )
        kind = np.concatenate((slo.gpu_type[of_slot[first]], other.gpu_type))
        place, row = np.unique(job * max(kinds, 1) + kind, return_inverse=True)
        names = [*self.named.slo, *self.named.best_effort]
        axes = (Axis("job", names, codes=place // max(kinds, 1)),
                Axis("type", self.named.types, codes=place % max(kinds, 1)))  # fmt: skip
        runs = builder.columns("run_now", place.size, integer=True, axes=axes)
        builder.rows(
            "now", place.size, lower=0.0, upper=0.0, axes=axes,
            row=np.concatenate((row, np.arange(place.size))),
            column=np.concatenate((slot[first], z, runs)),
            value=np.concatenate((np.ones(row.size), -np.ones(place.size))),
        )  # fmt: skip


def _ways(jobs: SloJobs | BestEffort, types: list[str]) -> list[str]:
    """Name each configuration: ``4xA100``."""
    pairs = zip(jobs.gpus.tolist(), jobs.gpu_type.tolist(), strict=True)
    return [f"{gpus}x{types[kind]}" for gpus, kind in pairs]


def _way(ways: list[str], codes: Ints) -> Axis:
    return Axis("configuration", ways, codes=codes)


def _number(name: str, values: Ints) -> Axis:
    known, codes = np.unique(values, return_inverse=True)
    return Axis(name, [str(value) for value in known.tolist()], codes=codes)
