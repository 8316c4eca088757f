"""One scheduling round of a training cluster, as a scheduler may see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from apportion.instances.columns import (
    LARGEST,
    SMALLEST,
    Bools,
    Ints,
    bools,
    freeze,
    require,
)
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.policy import REASONS, Reason
from apportion.instances.training.allocation import Commitments, Placement
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.round_rows import check_placement, check_promises
from apportion.instances.training.tenants import Tenants


def _everyone() -> Tenants:
    return Tenants.named("default")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRound:
    """What is there, who wants what, and what happened so far.

    Parameters
    ----------
    cluster
        Nodes and GPU types.
    jobs
        Arrived, unfinished jobs.
    now_s
        When the decision falls, seconds since the epoch.
    duration_s
        Length of a round.
    tenants
        Owners of the jobs.
    reasons
        Why a decision is asked for now.
    commitments
        Reservations in force.
    placement
        GPUs held at this moment.
    node_up
        False for nodes out of service, shape (nodes,); default: all in service.
    index
        Number of the round since the epoch.

    Raises
    ------
    InstanceError
        Where the parts do not fit together: arrivals after ``now_s``, another number of GPU
        types, unknown tenants, rows that do not exist, GPUs on nodes that are not those the running
        jobs hold, reservations that no decision could keep.
    """

    family: ClassVar[Literal["training"]] = "training"

    cluster: Cluster
    jobs: Jobs
    now_s: float = 0.0
    duration_s: float = 300.0
    tenants: Tenants = field(default_factory=_everyone)
    reasons: tuple[Reason, ...] = ("boundary",)
    commitments: Commitments = field(default_factory=Commitments)
    placement: Placement = field(default_factory=Placement)
    node_up: Bools = field(default_factory=lambda: cast(Bools, None))
    index: int = 0

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        up: Any = self.node_up
        nodes = self.cluster.nodes.size
        up = np.ones(nodes, dtype=np.bool_) if up is None else up
        put("node_up", bools(up, "round.node_up", (nodes,)))
        put("now_s", _number(self.now_s, "round.now_s"))
        put("duration_s", _number(self.duration_s, "round.duration_s"))
        if self.duration_s <= 0:
            raise InstanceError(f"round.duration_s = {self.duration_s}: must be positive")
        if self.duration_s < SMALLEST:
            raise InstanceError(
                f"round.duration_s = {self.duration_s}: is closer to zero than {SMALLEST:g}"
            )
        for reason in self.reasons:
            if reason not in REASONS:
                raise InstanceError(f"round.reasons: {reason!r}{nearest(reason, REASONS)}")
        self._check_jobs()
        check_promises(self)

    def _check_jobs(self) -> None:
        jobs, k = self.jobs, self.cluster.types.size
        if len(jobs) and jobs.throughput_per_s.shape[1] != k:
            raise InstanceError(
                f"jobs.throughput_per_s has {jobs.throughput_per_s.shape[1]} columns,"
                f" the cluster has {k} GPU types"
            )
        require(
            jobs.arrival_s, jobs.arrival_s <= self.now_s, "jobs.arrival_s",
            f"arrives after the round's now_s = {self.now_s}", jobs.id,
        )  # fmt: skip
        tenants = self.tenants.id.size
        require(
            jobs.tenant, jobs.tenant < tenants, "jobs.tenant", f"there are {tenants} tenants",
            jobs.id,
        )  # fmt: skip

        check_placement(self)
        on = jobs.running & ~self.stranded
        kinds, amounts = jobs.previous_type[on], jobs.held_gpus[on]
        held = np.bincount(kinds, weights=amounts, minlength=k)
        for over in np.flatnonzero(held > self.capacity).tolist():
            raise InstanceError(
                f"jobs.held_gpus: running jobs hold {int(held[over])} GPUs of type"
                f" {str(self.cluster.types[over])!r}, {int(self.capacity[over])} are in service"
            )

    @classmethod
    def trusted(
        cls,
        *,
        cluster: Cluster,
        jobs: Jobs,
        now_s: float,
        duration_s: float,
        tenants: Tenants,
        reasons: tuple[Reason, ...],
        commitments: Commitments,
        placement: Placement,
        node_up: Bools,
        index: int,
    ) -> TrainingRound:
        """Assemble from parts the executor has already checked, without paying for it again."""
        view = object.__new__(cls)
        view.__dict__.update(
            cluster=cluster, jobs=jobs, now_s=now_s, duration_s=duration_s, tenants=tenants,
            reasons=reasons, commitments=commitments, placement=placement, node_up=node_up,
            index=index,
        )  # fmt: skip
        return view

    @cached_property
    def capacity(self) -> Ints:
        """GPUs in service of each type, shape (k,)."""
        if self.node_up.all():
            return self.cluster.gpus
        kinds = self.cluster.node_type[self.node_up]
        counted = np.bincount(
            kinds, weights=self.cluster.node_gpus[self.node_up], minlength=self.cluster.types.size
        )
        out = counted.astype(np.int64)
        freeze(out)
        return out

    @cached_property
    def stranded(self) -> Bools:
        """Running jobs that hold GPUs on a node out of service, shape (n,).

        They no longer run there, whatever was promised to them; a decision may start them again.
        """
        out = np.zeros(len(self.jobs), dtype=np.bool_)
        if not self.node_up.all() and self.placement.job.size:
            out[self.placement.job[~self.node_up[self.placement.node]]] = True
            out &= self.jobs.running
        freeze(out)
        return out

    @cached_property
    def eligible(self) -> Bools:
        """Where a job's gang can run at all in this round, shape (n, k).

        True where the throughput is positive, the gang is no larger than the type's GPUs in
        service, and the model fits the memory of one GPU.
        """
        jobs = self.jobs
        # a table without jobs may have been given without types too
        out = jobs.throughput_per_s.reshape(len(jobs), self.cluster.types.size) > 0
        out &= jobs.gang[:, None] <= self.capacity[None, :]
        if self.cluster.tracks_gpu_memory:
            out &= jobs.gpu_memory_gib[:, None] <= self.cluster.type_memory_gib[None, :]
        freeze(out)
        return out

    @cached_property
    def startable(self) -> Bools:
        """Jobs that some type could start in this round, shape (n,)."""
        one_type = self.eligible.shape[1] == 1
        out = cast(Bools, self.eligible[:, 0] if one_type else self.eligible.any(axis=1))
        freeze(out)
        return out

    def __repr__(self) -> str:
        return (
            f"TrainingRound(now_s={self.now_s:g}, {len(self.jobs)} jobs,"
            f" {int(self.capacity.sum())} GPUs of {self.cluster.types.size} types)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrainingRound):
            return NotImplemented
        own: Iterable[str] = (
            "cluster", "jobs", "now_s", "duration_s", "tenants", "reasons", "commitments",
            "placement", "index",
        )  # fmt: skip
        same = all(getattr(self, name) == getattr(other, name) for name in own)
        return same and np.array_equal(self.node_up, other.node_up)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


def _number(value: object, where: str) -> float:
    if isinstance(value, bool | str | bytes):
        raise InstanceError(f"{where} = {value!r}: must be a number")
    try:
        out = float(cast(float, value))
    except OverflowError:
        raise InstanceError(f"{where}: must not be beyond {LARGEST:g}") from None
    except (TypeError, ValueError):
        raise InstanceError(f"{where} = {value!r}: must be a number") from None
    if not np.isfinite(out):
        raise InstanceError(f"{where} = {out}: must be finite")
    if abs(out) > LARGEST:
        raise InstanceError(f"{where} = {out}: must not be beyond {LARGEST:g}")
    return out


def never_fits(round_: TrainingRound) -> list[tuple[int, str]]:
    """List the jobs that no decision could start in this round, each with the reason.

    Returns
    -------
    list of (row, reason)
        A gang larger than every type in service that it runs on, a model larger than the memory
        of every such type, or no type with a throughput.
    """
    hopeless = np.flatnonzero(~round_.startable)
    jobs, capacity = round_.jobs, round_.capacity
    out: list[tuple[int, str]] = []
    for row in hopeless.tolist():
        runs = jobs.throughput_per_s[row] > 0
        gang, need = int(jobs.gang[row]), float(jobs.gpu_memory_gib[row])
        if not runs.any():
            reason = "no GPU type has a throughput for it"
        elif (fits := runs & (need <= round_.cluster.type_memory_gib)).any():
            largest = int(capacity[fits].max())
            reason = f"its gang of {gang} GPUs is larger than any type it runs on ({largest} GPUs)"
        else:
            reason = f"its model needs {need:g} GiB on each GPU, more than any type it runs on has"
        out.append((row, reason))
    return out
