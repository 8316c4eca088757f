"""The table ``[workload]`` of a scenario: from its kind and parameters to jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Names, freeze
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import naming
from apportion.instances.streams import stream
from apportion.instances.training.chronus_trace import read_chronus
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.cluster_tables import Hardware
from apportion.instances.training.elasticflow_trace import read_elasticflow
from apportion.instances.training.gavel import read_gavel
from apportion.instances.training.generate import Generator, generate_jobs
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.jobs_file import on_types, read_jobs
from apportion.instances.training.philly import read_philly
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.true_curves import TrueCurves


@dataclass(frozen=True)
class Workload:
    """Jobs with all that came along with them.

    Parameters
    ----------
    cluster, jobs, tenants
        What a scheduler may know.
    epoch
        Instant of time 0 where the source states it.
    true_work, true_throughput_per_s, true_curves
        What really happens; None: as reported.
    """

    cluster: Cluster
    jobs: Jobs
    tenants: Tenants
    epoch: str | None = None
    true_work: Floats | None = None
    true_throughput_per_s: Floats | None = None
    true_curves: TrueCurves | None = None


@dataclass(frozen=True)
class Source:
    """What a workload is made from.

    Parameters
    ----------
    section
        The checked table ``[workload]``.
    hardware
        The cluster; None where the file leaves it out.
    tenants
        The checked tables ``[[tenant]]``.
    folder
        Where relative paths start; None where there are no files.
    seed
        Root seed.
    """

    section: Mapping[str, Any]
    hardware: Hardware | None
    tenants: list[dict[str, Any]]
    folder: Path | None
    seed: int

    def needed_hardware(self) -> Hardware:
        """Pass the cluster, or say that it is missing."""
        if self.hardware is None:
            raise InstanceError("cluster is missing")
        return self.hardware

    def path(self, name: str) -> Path:
        """Find a file named in the table."""
        return Path(name) if self.folder is None else self.folder / name

    def options(self, *but: str) -> dict[str, Any]:
        """Pick the parameters of the kind itself."""
        common = {"kind", "weight_factor", "arrival_compression", "limit", *but}
        return {key: value for key, value in self.section.items() if key not in common}


def load_workload(source: Source) -> Workload:
    """Make the jobs of a scenario and apply what every kind of workload can do."""
    workload = _KINDS[source.section["kind"]](source)
    return _limited(
        _compressed(_weighted(workload, source.section), source.section), source.section
    )


def tenants_of(rows: list[dict[str, Any]], names: list[str] | None = None) -> Tenants:
    """Build the tenants from ``[[tenant]]``.

    Parameters
    ----------
    rows
        The checked tables.
    names
        Tenants that a trace brings along; then the tables only set their weights and quotas.
    """
    given = {row["name"]: row for row in rows}
    if names is None:
        names = [row["name"] for row in rows] or ["default"]
    for index, row in enumerate(rows):
        if row["name"] not in names:
            hint = nearest(row["name"], names)
            raise InstanceError(f"tenant[{index}].name = {row['name']!r}: unknown tenant{hint}")
    return Tenants(
        cast(Names, names),
        np.array([given.get(name, {}).get("weight", 1.0) for name in names], dtype=np.float64),
        np.array([given.get(name, {}).get("quota_gpus", math.inf) for name in names]),
    )


def _generated(source: Source) -> Workload:
    options = source.options()
    for name in ("gang_sizes", "gang_shares", "soft_factors", "soft_values"):
        if name in options:
            options[name] = tuple(options[name])
    hardware, tenants = source.needed_hardware(), tenants_of(source.tenants)
    jobs = generate_jobs(Generator(**options), hardware.base, tenants.id, source.seed)
    return Workload(hardware.cluster, jobs, tenants)


def _from_jobs(source: Source) -> Workload:
    cluster = source.needed_hardware().cluster
    path = source.path(source.section["path"])
    named = tenants_of(source.tenants) if source.tenants else None
    content = read_jobs(path, None if named is None else named.id)
    with naming(path):
        content = on_types(content, cluster.types)
    tenants = named or tenants_of([], content.tenants.tolist())
    return Workload(
        cluster, content.jobs, tenants,
        true_work=content.true_work, true_throughput_per_s=content.true_throughput_per_s,
        true_curves=content.true_curves,
    )  # fmt: skip


def _gavel(source: Source) -> Workload:
    options = source.options("traces", "throughputs")
    read = read_gavel(
        [source.path(name) for name in source.section["traces"]],
        source.path(source.section["throughputs"]),
        None if source.hardware is None else source.hardware.cluster,
        **options,
    )
    return _imported(read, source)


def _philly(source: Source) -> Workload:
    read = read_philly(source.path(source.section["path"]), **source.options("path"))
    return replace(_of_one_type(read, source, "the Philly table"), epoch=read.epoch)


def _chronus(source: Source) -> Workload:
    options = source.options("path", "model_info")
    if "model_info" in source.section:
        options["model_info"] = source.path(source.section["model_info"])
    read = read_chronus(source.path(source.section["path"]), **options)
    return _of_one_type(read, source, "a Chronus trace")


def _elasticflow(source: Source) -> Workload:
    read = read_elasticflow(source.path(source.section["path"]), **source.options("path"))
    return _of_one_type(read, source, "an ElasticFlow trace")


def _of_one_type(read: Scenario, source: Source, trace: str) -> Workload:
    """Put the jobs of a trace without GPU types on the scenario's own cluster, where it has one."""
    if source.hardware is None:
        return _imported(read, source)
    cluster = source.hardware.cluster
    if cluster.types.size != 1:
        raise InstanceError(f"cluster has {cluster.types.size} GPU types: {trace} tells none apart")
    return replace(_imported(read, source), cluster=cluster)


def _imported(read: Scenario, source: Source) -> Workload:
    tenants = tenants_of(source.tenants, read.tenants.id.tolist())
    return Workload(read.cluster, read.jobs, tenants)


_KINDS: Mapping[str, Callable[[Source], Workload]] = {
    "generate": _generated,
    "jobs": _from_jobs,
    "gavel": _gavel,
    "philly": _philly,
    "chronus": _chronus,
    "elasticflow": _elasticflow,
}


def _weighted(workload: Workload, section: Mapping[str, Any]) -> Workload:
    factor = section.get("weight_factor")
    if factor is None:
        return workload
    each = np.ones(workload.tenants.id.size)
    if isinstance(factor, Mapping):
        known: list[str] = workload.tenants.id.tolist()
        for name, value in cast(Mapping[str, float], factor).items():
            if name not in known:
                hint = nearest(name, known)
                raise InstanceError(f"workload.weight_factor.{name}: unknown tenant{hint}")
            each[known.index(name)] = value
    else:
        each[:] = factor
    jobs = workload.jobs
    return replace(workload, jobs=_with(jobs, weight=jobs.weight * each[jobs.tenant]))


def _compressed(workload: Workload, section: Mapping[str, Any]) -> Workload:
    by = section.get("arrival_compression")
    if by is None:
        return workload
    jobs = workload.jobs
    arrival_s = jobs.arrival_s / by
    # a deadline stays as long after its job's arrival as it was: time to run is not compressed
    of = np.repeat(np.arange(len(jobs)), np.diff(jobs.deadline_offsets))
    columns: dict[str, Any] = {"arrival_s": arrival_s}
    if of.size:
        columns["deadline_s"] = arrival_s[of] + (jobs.deadline_s - jobs.arrival_s[of])
    return replace(workload, jobs=_with(jobs, **columns))


def _limited(workload: Workload, section: Mapping[str, Any]) -> Workload:
    limit = section.get("limit")
    if limit is None or limit >= len(workload.jobs):
        return workload
    order = np.argsort(workload.jobs.arrival_s, kind="stable")
    rows = np.sort(order[:limit])
    work, rates = workload.true_work, workload.true_throughput_per_s
    curves = workload.true_curves
    return replace(
        workload,
        jobs=workload.jobs.take(rows),
        true_work=None if work is None else work[rows],
        true_throughput_per_s=None if rates is None else rates[rows],
        true_curves=None if curves is None else curves.take(rows),
    )


def _with(jobs: Jobs, **columns: Any) -> Jobs:
    for column in columns.values():
        freeze(column)
    return jobs.take(np.arange(len(jobs)), columns)


def noisy(workload: Workload, truth: Mapping[str, Any], seed: int) -> Workload:
    """Let the truth differ from the reports by log-normal factors of mean 1.

    Parameters
    ----------
    workload
        What is reported; a truth it brings along stays the base.
    truth
        The checked table ``[truth]``: relative spreads, 0 = as reported.
    seed
        Root seed.
    """
    n, k = workload.jobs.throughput_per_s.shape
    if spread := truth.get("work_noise"):
        base = workload.jobs.work if workload.true_work is None else workload.true_work
        workload = replace(workload, true_work=base * _factors(seed, "work_noise", spread, n))
    if spread := truth.get("throughput_noise"):
        rates = workload.true_throughput_per_s
        base = workload.jobs.throughput_per_s if rates is None else rates
        noise = _factors(seed, "throughput_noise", spread, n * k).reshape(n, k)
        workload = replace(workload, true_throughput_per_s=base * noise)
    return workload


def _factors(seed: int, purpose: str, spread: float, count: int) -> Floats:
    sigma = math.sqrt(math.log1p(spread * spread))  # a log-normal of this relative spread
    return stream(seed, purpose).lognormal(-0.5 * sigma * sigma, sigma, count)
