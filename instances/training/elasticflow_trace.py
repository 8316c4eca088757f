"""ElasticFlow's traces: jobs with one deadline each (ASPLOS 2023)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from apportion.instances.columns import Bools, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike
from apportion.instances.training.chronus_trace import trace_ids
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.trace_csv import Trace

GPU_TYPE = "GPU"
"""The trace does not tell GPU types apart."""


def read_elasticflow(
    path: PathLike,
    *,
    gpus_per_node: int = 8,
    total_gpus: int = 128,
    name: str = "elasticflow",
) -> Scenario:
    """Read a trace of ElasticFlow's artifact.

    Parameters
    ----------
    path
        CSV with ``job_id, submit_time, model_name, ddl, batch_size, num_gpu, duration`` and, in
        some, ``best_effort``; times in seconds, ``ddl`` an instant on the clock of
        ``submit_time``.
    gpus_per_node, total_gpus
        The cluster: nodes of one size, the last takes the remainder. Default: 128 GPUs, as the
        paper's testbed.
    name
        Name of the scenario.

    Returns
    -------
    Scenario
        Jobs by submission (rows of the trace break ties), times since the first submission;
        ``work`` is the duration in seconds on ``num_gpu`` GPUs, done at 1 a second. The one
        tenant is named after the file. A kept deadline has value 1; best-effort jobs have none.

    Raises
    ------
    InstanceError
        Naming file, line, column, value and rule.

    Notes
    -----
    About half of the deadlines lie closer than the duration: ElasticFlow keeps them by giving a
    job more GPUs than ``num_gpu``. How fast it runs on them is not in the trace, so that jobs are
    rigid here and such deadlines are out of reach.
    """
    trace = Trace(path, "an ElasticFlow trace")
    for column in ("duration", "batch_size"):
        if column not in trace:
            raise InstanceError(
                f"{path}: not an ElasticFlow trace: the column {column!r} is missing"
            )
    submit_s = trace.numbers("submit_time")
    due_s = trace.numbers("ddl")
    slo = ~_best_effort(trace)
    early = np.flatnonzero(slo & (due_s < submit_s))
    if early.size:
        row = int(early[0])
        trace.refuse(row, "ddl", f"must not lie before submit_time = {submit_s[row]:.15g}")
    order: Ints = np.argsort(submit_s, kind="stable")
    first_s = float(submit_s.min())
    kept = slo[order]
    jobs = Jobs(
        id=trace_ids(trace)[order],
        gang=trace.numbers("num_gpu", positive=True, whole=True)[order].astype(np.int64),
        work=trace.numbers("duration", positive=True)[order],
        throughput_per_s=np.ones((order.size, 1)),
        arrival_s=submit_s[order] - first_s,
        model=np.array(trace.text("model_name"), dtype=np.str_)[order],
        global_batch=trace.numbers("batch_size", positive=True, whole=True)[order].astype(np.int64),
        slo=kept,
        deadline_offsets=np.concatenate(([0], np.cumsum(kept))),
        deadline_s=due_s[order][kept] - first_s,
        deadline_value=np.ones(int(kept.sum())),
    )
    return Scenario(
        name=name,
        cluster=Cluster.uniform({GPU_TYPE: total_gpus}, gpus_per_node=gpus_per_node),
        jobs=jobs,
        tenants=Tenants.named(Path(path).name.split(".")[0]),
    )


def _best_effort(trace: Trace) -> Bools:
    if "best_effort" not in trace:
        return np.zeros(len(trace), dtype=np.bool_)
    flag = trace.numbers("best_effort")
    bad = np.flatnonzero((flag != 0) & (flag != 1))
    if bad.size:
        trace.refuse(int(bad[0]), "best_effort", "must be 0 or 1")
    return flag == 1
