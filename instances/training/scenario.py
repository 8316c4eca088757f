"""A whole experiment: the cluster, every job that will come, and what really happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from apportion.instances.columns import Floats, floats, require, sized
from apportion.instances.errors import InstanceError
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.true_curves import TrueCurves


@dataclass(frozen=True)
class Failure:
    """A node out of service from ``at_s`` until ``repair_s`` (infinite: for good)."""

    node: int
    at_s: float
    repair_s: float = np.inf


@dataclass(frozen=True)
class ExecutorOptions:
    """How rounds are carried out.

    Parameters
    ----------
    round_s
        Length of a round; decisions fall on its multiples.
    backfill
        True: when a job ends inside a round, waiting gangs take its GPUs at once, in order of
        arrival, until the next decision. False: they stay free until the next boundary.
    until_s
        Stop at this time even if jobs are left; infinite: run until all are done.
    switch
        What starting on other GPUs costs.
    failures
        Nodes that fail and are repaired. Progress since the last boundary is lost.
    """

    round_s: float = 300.0
    backfill: bool = False
    until_s: float = np.inf
    switch: SwitchCost = field(default_factory=SwitchCost)
    failures: tuple[Failure, ...] = ()

    def __post_init__(self) -> None:
        if not (np.isfinite(self.round_s) and self.round_s > 0):
            raise InstanceError(f"executor.round_s = {self.round_s}: must be positive")
        if not self.until_s > 0:
            raise InstanceError(f"executor.until_s = {self.until_s}: must be positive")


def _check_epoch(epoch: str) -> None:
    try:
        instant = datetime.fromisoformat(epoch)
    except (TypeError, ValueError):
        raise InstanceError(f"epoch = {epoch!r}: must be an ISO-8601 instant") from None
    if instant.tzinfo is None:
        raise InstanceError(f"epoch = {epoch!r}: needs an offset, such as +00:00")


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything an executor needs to run a policy from the first arrival to the last end.

    Parameters
    ----------
    name
        For tables and folders.
    cluster, jobs, tenants
        As reported: what a scheduler may know, arrivals in the future included here only.
    epoch
        ISO-8601 instant with offset that time 0 stands for.
    seed
        Root of every random stream.
    options
        How rounds are carried out.
    true_work
        What each job really needs, shape (n,); default: as reported.
    true_throughput_per_s
        What really happens on each type, shape (n, k); default: as reported.
    true_curves
        How the metrics of the jobs really develop. A job that stops on its metric and has a
        curve needs the iterations its curve says, whatever ``true_work`` held for it.
    policy, parameters
        Name of the policy the file asks for, and its parameters.

    Raises
    ------
    InstanceError
        Where the parts do not fit together.
    """

    name: str
    cluster: Cluster
    jobs: Jobs
    tenants: Tenants
    epoch: str = "1970-01-01T00:00:00+00:00"
    seed: int = 0
    options: ExecutorOptions = field(default_factory=ExecutorOptions)
    true_work: Floats | None = None
    true_throughput_per_s: Floats | None = None
    true_curves: TrueCurves | None = None
    policy: str = "fft"
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        _check_epoch(self.epoch)
        n, k = len(self.jobs), self.cluster.types.size
        if n and self.jobs.throughput_per_s.shape[1] != k:
            raise InstanceError(
                f"jobs.throughput_per_s has {self.jobs.throughput_per_s.shape[1]} columns,"
                f" the cluster has {k} GPU types"
            )
        tenants = self.tenants.id.size
        require(
            self.jobs.tenant, self.jobs.tenant < tenants, "jobs.tenant",
            f"there are {tenants} tenants", self.jobs.id,
        )  # fmt: skip
        if self.true_work is not None:
            column = floats(self.true_work, "scenario.true_work", (n,))
            require(column, column > 0, "scenario.true_work", "must be positive", self.jobs.id)
            sized(column, "scenario.true_work", self.jobs.id, ratio=True)
            put("true_work", column)
        if self.true_curves is not None:
            if len(self.true_curves) != n:
                raise InstanceError(
                    f"scenario.true_curves has {len(self.true_curves)} rows, there are {n} jobs"
                )
            work = self.jobs.work if self.true_work is None else self.true_work
            put("true_work", self.true_curves.needed(self.jobs, work))
        if self.true_throughput_per_s is not None:
            where = "scenario.true_throughput_per_s"
            column = floats(self.true_throughput_per_s, where, (n, k))
            require(column, column >= 0, where, "must not be negative", self.jobs.id)
            sized(column, where, self.jobs.id, ratio=True)
            put("true_throughput_per_s", column)
        nodes = self.cluster.nodes.size
        for failure in self.options.failures:
            if not 0 <= failure.node < nodes:
                raise InstanceError(f"executor.failures: node {failure.node} of {nodes}")
            if not failure.at_s < failure.repair_s:
                raise InstanceError(
                    f"executor.failures: repair_s = {failure.repair_s} must lie after"
                    f" at_s = {failure.at_s}"
                )
