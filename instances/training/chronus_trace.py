"""Chronus' traces: Philly's jobs with deadlines, values and best effort (SoCC 2021)."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.trace_csv import Trace

_log = logging.getLogger("apportion.instances.chronus")

GPU_TYPE = "GPU"
"""The trace does not tell GPU types apart."""

MINUTE_S = 60.0
"""The trace does not state its unit; submissions end at 20,151 and span two weeks: minutes."""

_NEEDED = ("user", "duration", "expect_value_list", "best_effort", "job_type")
"""Columns beside those by which the trace is recognised."""

_TYPES = ("strict", "soft", "best")
_LIST = re.compile(r"-?\d+(\.\d*)?(-\d+(\.\d*)?)*", re.ASCII)

Spread = Mapping[tuple[str, int], tuple[tuple[float, float], ...]]
"""Model and gang -> pairs of least number of nodes and relative speed."""


def read_chronus(
    path: PathLike,
    *,
    model_info: PathLike | None = None,
    gpus_per_node: int = 8,
    total_gpus: int = 960,
    name: str = "chronus",
) -> Scenario:
    """Read a trace of Chronus' artifact.

    Parameters
    ----------
    path
        CSV with ``job_id, user, num_gpu, submit_time, model_name, duration, expect_time_list,
        expect_value_list, best_effort, job_type``; times in minutes, lists with dashes.
    model_info
        JSON: model -> GPUs -> number of nodes -> relative speed. None: spread gangs are as fast
        as others.
    gpus_per_node, total_gpus
        The cluster: nodes of one size, the last takes the remainder. Default: the 120 nodes of 8
        GPUs that the artifact simulates.
    name
        Name of the scenario.

    Returns
    -------
    Scenario
        Jobs by submission (rows of the trace break ties), time 0 being the trace's own, so that
        leases start where they do there; ``work`` is the duration in seconds, done at 1 a second;
        tenants are the users. SLO jobs have deadlines and values, best-effort jobs none.

    Raises
    ------
    InstanceError
        Naming file, line, column, value and rule.

    Notes
    -----
    Rows with 0 GPUs are no jobs for a GPU cluster: they are dropped, and their number is logged.

    Speeds follow the artifact: 1 on one node, the entry for 2 on two nodes, that for 4 on three
    and more, or the one for 2 where there is none. Gangs of sizes that the table does not hold
    (above 8, where one node cannot be the measure, and odd ones) have no table of their own.
    """
    read, dropped = counted_chronus(path, model_info, gpus_per_node, total_gpus, name)
    if dropped:
        _log.warning("%s: dropped rows with 0 GPUs: %d", path, dropped)
    return read


def counted_chronus(
    path: PathLike,
    model_info: PathLike | None = None,
    gpus_per_node: int = 8,
    total_gpus: int = 960,
    name: str = "chronus",
) -> tuple[Scenario, int]:
    """Read a trace as `read_chronus` does, and count the rows with 0 GPUs that are dropped."""
    trace = Trace(path, "a Chronus trace")
    _need(trace)
    gang = trace.numbers("num_gpu", whole=True).astype(np.int64)
    _refuse_any(trace, "num_gpu", gang < 0, "must not be negative")
    submit_s = trace.numbers("submit_time") * MINUTE_S
    duration_s = trace.numbers("duration", positive=True) * MINUTE_S
    users, tenant = np.unique(np.array(trace.text("user")), return_inverse=True)
    models = np.array(trace.text("model_name"), dtype=np.str_)
    ids = trace_ids(trace)
    rows = np.flatnonzero(gang > 0)
    if not rows.size:
        raise InstanceError(f"{path}: the trace holds no jobs with GPUs")
    order: Ints = rows[np.argsort(submit_s[rows], kind="stable")]
    due = _deadlines(trace, order, submit_s)
    n = order.size
    jobs = Jobs(
        id=ids[order],
        gang=gang[order],
        work=duration_s[order],
        throughput_per_s=np.ones((n, 1)),
        arrival_s=submit_s[order],
        tenant=tenant[order],
        model=models[order],
        slo=np.diff(due.offsets) > 0,
        deadline_offsets=np.array(due.offsets),
        deadline_s=np.array(due.at_s),
        deadline_value=np.array(due.value),
        **({} if model_info is None else _spread(trace, model_info, order, models, gang)),
    )
    scenario = Scenario(
        name=name,
        cluster=Cluster.uniform({GPU_TYPE: total_gpus}, gpus_per_node=gpus_per_node),
        jobs=jobs,
        tenants=Tenants.named(*users.tolist()),
    )
    return scenario, len(trace) - n


def _need(trace: Trace) -> None:
    for name in _NEEDED:
        if name not in trace:
            raise InstanceError(
                f"{trace.path}: not a Chronus trace: the column {name!r} is missing"
            )


def _refuse_any(trace: Trace, name: str, bad: Any, rule: str) -> None:
    found = np.flatnonzero(bad)
    if found.size:
        trace.refuse(int(found[0]), name, rule)


def trace_ids(trace: Trace) -> Names:
    """Read the column ``job_id`` of a trace, in which no name may stand twice."""
    ids = trace.text("job_id")
    if len(set(ids)) < len(ids):
        seen = set[str]()
        for row, one in enumerate(ids):
            if one in seen:
                trace.refuse(row, "job_id", "is used already")
            seen.add(one)
    return np.array(ids, dtype=np.str_)


@dataclass
class _Deadlines:
    """Ragged deadlines: offsets, instants and values."""

    offsets: list[int] = field(default_factory=lambda: [0])
    at_s: list[float] = field(default_factory=list[float])
    value: list[float] = field(default_factory=list[float])


def _deadlines(trace: Trace, order: Ints, submit_s: Floats) -> _Deadlines:
    kinds, efforts = trace.text("job_type"), trace.text("best_effort")
    times, values = trace.text("expect_time_list"), trace.text("expect_value_list")
    out = _Deadlines()
    for row in cast(list[int], order.tolist()):
        if kinds[row] not in _TYPES:
            trace.refuse(row, "job_type", f"unknown kind{nearest(kinds[row], _TYPES)}")
        if efforts[row] != ("1" if kinds[row] == "best" else "0"):
            trace.refuse(
                row, "best_effort",
                f"must be 1 where job_type is 'best' and else 0; it is {kinds[row]!r}",
            )  # fmt: skip
        if kinds[row] != "best":
            after_min = _after(trace, row, times[row], kinds[row])
            start_s = float(submit_s[row])
            out.at_s += [start_s + minutes * MINUTE_S for minutes in after_min]
            out.value += _worth(trace, row, values[row], len(after_min))
        out.offsets.append(len(out.at_s))
    return out


def _after(trace: Trace, row: int, text: str, kind: str) -> list[float]:
    """Read minutes after the submission."""
    column = "expect_time_list"
    after = _numbers(trace, row, column, text)
    if min(after) <= 0:
        trace.refuse(row, column, "a deadline must lie after the submission")
    if any(late <= early for early, late in itertools.pairwise(after)):
        trace.refuse(row, column, "deadlines must rise")
    if kind == "strict" and len(after) > 1:
        trace.refuse(row, column, "a strict job has one deadline")
    return after


def _worth(trace: Trace, row: int, text: str, count: int) -> list[float]:
    """Read the values of ``count`` deadlines."""
    column = "expect_value_list"
    worth = _numbers(trace, row, column, text)
    if len(worth) != count:
        trace.refuse(row, column, f"holds {len(worth)} values for {count} deadlines")
    if min(worth) < 0:
        trace.refuse(row, column, "a value must not be negative")
    if any(late > early for early, late in itertools.pairwise(worth)):
        trace.refuse(row, column, "values must not rise: finishing later is worth no more")
    return worth


def _numbers(trace: Trace, row: int, column: str, text: str) -> list[float]:
    if not _LIST.fullmatch(text):
        trace.refuse(row, column, "must be numbers with a dash between each two")
    first = -1.0 if text.startswith("-") else 1.0  # told as too early, not as no number
    out = [float(part) for part in text.removeprefix("-").split("-")]
    out[0] *= first
    return out


def _spread(trace: Trace, path: PathLike, order: Ints, models: Names, gang: Ints) -> dict[str, Any]:
    """Give each job the table of its model and gang."""
    tables = _tables(path)
    known = {model for model, _ in tables}
    offsets, hosts, speed = [0], list[float](), list[float]()
    for row in cast(list[int], order.tolist()):
        model = str(models[row])
        if model not in known:
            trace.refuse(row, "model_name", f"is not in {path}{nearest(model, known)}")
        for nodes, relative in tables.get((model, int(gang[row])), ()):
            hosts.append(nodes)
            speed.append(relative)
        offsets.append(len(hosts))
    return {"spread_offsets": offsets, "spread_hosts": hosts, "spread_speed": speed}


_COLUMNS: Mapping[str, float] = {"2": 2.0, "4": 3.0}
"""Columns of the table, with the least number of nodes for which each holds."""


def _tables(path: PathLike) -> Spread:
    data = read_json(path)
    out: dict[tuple[str, int], tuple[tuple[float, float], ...]] = {}
    with naming(path):
        for model, gpus, speeds in _entries(data):
            where = f"{model}[{gpus!r}]"
            if not gpus.isdecimal() or int(gpus) < 1:
                raise InstanceError(f"{where}: expected a number of GPUs")
            for nodes, speed in speeds.items():
                if isinstance(speed, bool) or not isinstance(speed, int | float) or speed <= 0:
                    told = f"{where}[{nodes!r}] = {shown(speed)}"
                    raise InstanceError(f"{told}: must be a relative speed above 0")
            if "4" in speeds and "2" not in speeds:
                raise InstanceError(f"{where}: has a speed on 4 nodes and none on 2")
            held = [(least, nodes) for nodes, least in _COLUMNS.items() if nodes in speeds]
            out[model, int(gpus)] = tuple((least, float(speeds[nodes])) for least, nodes in held)
    return out


def _entries(data: Any) -> list[tuple[str, str, dict[str, Any]]]:
    rule = "not a table of models: expected model -> GPUs -> nodes -> speed"
    out: list[tuple[str, str, dict[str, Any]]] = []
    if not isinstance(data, dict) or not data:
        raise InstanceError(rule)
    for model, by_gpus in cast(dict[str, Any], data).items():
        if not isinstance(by_gpus, dict) or not by_gpus:
            raise InstanceError(rule)
        for gpus, speeds in cast(dict[str, Any], by_gpus).items():
            if not isinstance(speeds, dict):
                raise InstanceError(rule)
            out.append((model, gpus, cast(dict[str, Any], speeds)))
    return out
