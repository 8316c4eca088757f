"""The flat table of Microsoft's Philly cluster: durations on GPUs of one kind."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Any, cast

import numpy as np
import pandas as pd

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.trace_csv import Trace

GPU_TYPE = "GPU"
"""The table does not tell GPU types apart."""


def read_philly(
    path: PathLike,
    *,
    timezone: str,
    gpus_per_node: int = 8,
    total_gpus: int = 2490,
    compress: float = 1.0,
    limit: int | None = None,
    name: str = "philly",
) -> Scenario:
    """Read the flat Philly table.

    Parameters
    ----------
    path
        CSV with ``timestamp,duration,num_gpus,gpu_time,cluster``.
    timezone
        Zone of its times, which the table does not state: ``"UTC"``, ``"+02:00"``, or an IANA
        name. Never the machine's own. Where a clock was set back, the earlier instant is meant.
    gpus_per_node, total_gpus
        The cluster: nodes of one size, the last takes the remainder.
    compress
        Arrival times are divided by it.
    limit
        Only the first so many jobs, by submission.
    name
        Name of the scenario.

    Returns
    -------
    Scenario
        Jobs by submission (rows of the table break ties); ``work`` is the duration in whole
        seconds, rounded up, done at 1 a second; arrivals are seconds since the first
        submission, which is the epoch; tenants are the virtual clusters.

    Raises
    ------
    InstanceError
        Naming file, line, column and value.

    References
    ----------
    Jeon et al., Analysis of large-scale multi-tenant GPU clusters for DNN training workloads,
    USENIX ATC 2019.
    """
    if not (np.isfinite(compress) and compress > 0):
        raise InstanceError(f"compress = {compress}: must be positive")
    if limit is not None and limit < 0:
        raise InstanceError(f"limit = {limit}: must not be negative")
    trace = Trace(path, "the flat Philly table")
    submitted_s, zone = _submitted(trace, timezone)
    duration_s = trace.numbers("duration", positive=True)
    gang = trace.numbers("num_gpus", positive=True, whole=True).astype(np.int64)
    names, tenant = np.unique(np.array(trace.text("cluster")), return_inverse=True)
    order: Ints = np.argsort(submitted_s, kind="stable")[:limit]
    first_s = float(submitted_s.min())
    n = order.size
    jobs = Jobs(
        id=cast(Names, [f"job-{index}" for index in range(n)]),
        gang=gang[order],
        work=np.ceil(duration_s[order]),
        throughput_per_s=np.ones((n, 1)),
        arrival_s=(submitted_s[order] - first_s) / compress,
        tenant=tenant[order],
    )
    return Scenario(
        name=name,
        cluster=Cluster.uniform({GPU_TYPE: total_gpus}, gpus_per_node=gpus_per_node),
        jobs=jobs,
        tenants=Tenants.named(*names.tolist()),
        epoch=datetime.datetime.fromtimestamp(first_s, zone).isoformat(),
    )


def _submitted(trace: Trace, timezone: str) -> tuple[Floats, datetime.tzinfo]:
    """Read submission times as seconds since 1970 in universal time."""
    zone = zone_of(timezone)
    text = trace.text("timestamp")
    parsed = pd.to_datetime(pd.Series(text), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if bad.size:
        trace.refuse(int(bad[0]), "timestamp", "must be a time like 2017-10-09 07:01:55")
    earlier = np.ones(len(text), dtype=np.bool_)
    instants = cast(Any, parsed.dt).tz_localize(
        zone, ambiguous=earlier, nonexistent="shift_forward"
    )
    since = instants - pd.Timestamp(0, tz="UTC")
    return cast(Floats, since.dt.total_seconds().to_numpy(dtype=np.float64)), zone


def zone_of(timezone: str) -> datetime.tzinfo:
    """Find a time zone: ``"UTC"``, an offset such as ``"+02:00"``, or an IANA name."""
    if timezone.upper() in ("UTC", "Z"):
        return datetime.UTC
    match = re.fullmatch(r"([+-])([01][0-9]|2[0-3]):([0-5][0-9])", timezone)
    if match:
        offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return datetime.timezone(offset if match[1] == "+" else -offset)
    try:
        return zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InstanceError(
            f"timezone = {timezone!r}: expected UTC, an offset such as +02:00, or an IANA name"
            " such as America/Los_Angeles"
        ) from None
