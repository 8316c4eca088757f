"""Allocations and outcomes as plain data, by the names of a round."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError
from apportion.instances.files import shown
from apportion.instances.plain_data import (
    codes,
    columns_of,
    finite_or_null,
    known_keys,
    plain_list,
)
from apportion.instances.training.allocation import Allocation, Outcome, Placement
from apportion.instances.training.round import TrainingRound

ALLOCATION_KEYS = ("jobs", "lost")
RUNNING_KEYS = ("job", "gpu_type", "gpus", "lease_end_s", "guaranteed", "nodes")
LOST_KEYS = ("job", "work")
OUTCOME_KEYS = ("start_s", "end_s", "assumed", "jobs")
SERVED_KEYS = ("job", "work", "gpu_s", "finished")


def allocation_to_dict(round_: TrainingRound, allocation: Allocation) -> dict[str, Any]:
    """Turn an allocation into plain data for JSON.

    Returns
    -------
    dict
        ``jobs``: one object a running job, with its nodes where the allocation places them;
        ``lost``: progress that preempted jobs lose, left out where there is none. A lease end of
        null is infinite.

    Raises
    ------
    InstanceError
        Where the placement cannot be told job by job: it names a job that does not run, or one
        node twice for a job.
    """
    ids = round_.jobs.id
    columns = (
        ids[allocation.job].tolist(),
        round_.cluster.types[allocation.gpu_type].tolist(),
        allocation.gpus.tolist(),
        finite_or_null(allocation.lease_end_s),
        allocation.guaranteed.tolist(),
    )
    rows: list[dict[str, Any]] = [
        dict(zip(RUNNING_KEYS, row, strict=False)) for row in zip(*columns, strict=True)
    ]
    if allocation.placement is not None:
        _add_nodes(rows, round_, allocation, allocation.placement)
    out: dict[str, Any] = {"jobs": rows}
    if allocation.lost_job.size:
        lost = zip(ids[allocation.lost_job].tolist(), allocation.lost_work.tolist(), strict=True)
        out["lost"] = [dict(zip(LOST_KEYS, row, strict=True)) for row in lost]
    return out


def _add_nodes(
    rows: list[dict[str, Any]], round_: TrainingRound, allocation: Allocation, placed: Placement
) -> None:
    row_of = {job: row for row, job in enumerate(allocation.job.tolist())}
    for row in rows:
        row["nodes"] = {}
    for job, node, gpus in zip(
        placed.job.tolist(), placed.node.tolist(), placed.gpus.tolist(), strict=True
    ):
        name = str(round_.cluster.nodes[node])
        if job not in row_of:
            raise InstanceError(
                f"allocation.placement: job {str(round_.jobs.id[job])!r} holds GPUs of"
                f" {name!r} but does not run"
            )
        nodes = rows[row_of[job]]["nodes"]
        if name in nodes:
            raise InstanceError(
                f"allocation.placement: job {str(round_.jobs.id[job])!r} names {name!r} twice"
            )
        nodes[name] = gpus


def allocation_from_dict(round_: TrainingRound, data: object) -> Allocation:
    """Read an allocation from plain data; the inverse of ``allocation_to_dict``.

    Parameters
    ----------
    round_
        The round it answers.
    data
        ``{"jobs": [...], "lost": [...]}``; only ``job``, ``gpu_type`` and ``gpus`` are required.
        Nodes are given for all jobs or for none. Placement entries come back job by job.

    Raises
    ------
    InstanceError
        On unknown keys and names, with the nearest known one. Whether the allocation obeys the
        round is the checker's question.
    """
    section = known_keys(data, ALLOCATION_KEYS, "allocation")
    if "jobs" not in section:
        raise InstanceError("allocation.jobs is missing")
    where = "allocation.jobs"
    defaults = {"lease_end_s": None, "guaranteed": False, "nodes": None}
    job, kind, gpus, end, sure, nodes = columns_of(section["jobs"], RUNNING_KEYS, where, defaults)
    ids, types = round_.jobs.id, round_.cluster.types
    at = f"{where}.job"
    rows = codes(plain_list(job, "name", at), ids, at, "job")
    lost_job, lost_work = columns_of(section.get("lost", []), LOST_KEYS, "allocation.lost")
    at = "allocation.lost.job"
    return Allocation.of(
        rows,
        codes(
            plain_list(kind, "name", f"{where}.gpu_type"), types, f"{where}.gpu_type", "GPU type"
        ),
        plain_list(gpus, "int", f"{where}.gpus"),
        lease_end_s=plain_list(end, "float", f"{where}.lease_end_s", null=math.inf),
        guaranteed=plain_list(sure, "bool", f"{where}.guaranteed"),
        placement=_placement(round_, rows.tolist(), nodes, where),
        lost_job=codes(plain_list(lost_job, "name", at), ids, at, "job"),
        lost_work=plain_list(lost_work, "float", "allocation.lost.work"),
    )


def _placement(
    round_: TrainingRound, rows: list[int], nodes: list[Any], where: str
) -> Placement | None:
    if all(entry is None for entry in nodes):
        return None
    job: list[int] = []
    name: list[str] = []
    gpus: list[Any] = []
    for index, entry in enumerate(nodes):
        at = f"{where}[{index}].nodes"
        known = tuple(round_.cluster.nodes.tolist())
        held = known_keys({} if entry is None else entry, known, at)
        job += [rows[index]] * len(held)
        name += list(held)
        gpus += plain_list(list(held.values()), "int", at)
    node = codes(name, round_.cluster.nodes, f"{where}.nodes", "node")
    return Placement.of(job, node, gpus)


def outcome_to_dict(round_: TrainingRound, outcome: Outcome) -> dict[str, Any]:
    """Turn an outcome into plain data for JSON; jobs that held nothing are left out."""
    served = np.flatnonzero((outcome.gpu_s != 0) | (outcome.work != 0) | outcome.finished)
    columns = (
        round_.jobs.id[served].tolist(),
        outcome.work[served].tolist(),
        outcome.gpu_s[served].tolist(),
        outcome.finished[served].tolist(),
    )
    rows = [dict(zip(SERVED_KEYS, row, strict=True)) for row in zip(*columns, strict=True)]
    out: dict[str, Any] = {"start_s": float(outcome.start_s), "end_s": float(outcome.end_s)}
    if outcome.assumed:
        out["assumed"] = True
    return {**out, "jobs": rows}


def outcome_from_dict(round_: TrainingRound, data: object) -> Outcome:
    """Read an outcome from plain data; jobs that are not named did nothing.

    Parameters
    ----------
    round_
        The round whose decision was carried out.
    data
        ``{"start_s", "end_s", "jobs": [{"job", "work", "gpu_s", "finished"}]}``.

    Raises
    ------
    InstanceError
        On unknown keys and jobs, repeated jobs, and values of the wrong kind or below 0.
    """
    section = known_keys(data, OUTCOME_KEYS, "outcome")
    for key in ("start_s", "end_s", "jobs"):
        if key not in section:
            raise InstanceError(f"outcome.{key} is missing")
    start, end = plain_list([section["start_s"], section["end_s"]], "float", "outcome.start_s")
    if not start < end:
        raise InstanceError(f"outcome.end_s = {end}: must lie after start_s = {start}")
    assumed = section.get("assumed", False)
    if not isinstance(assumed, bool):
        raise InstanceError(f"outcome.assumed = {shown(assumed)}: must be true or false")
    where = "outcome.jobs"
    defaults = {"finished": False}
    job, work, gpu_s, finished = columns_of(section["jobs"], SERVED_KEYS, where, defaults)
    rows = codes(plain_list(job, "name", f"{where}.job"), round_.jobs.id, f"{where}.job", "job")
    if len(set(rows.tolist())) < rows.size:
        again = next(name for at, name in enumerate(job) if name in job[:at])
        raise InstanceError(f"{where}: job {again!r} is named twice")
    n = len(round_.jobs)
    ended = np.zeros(n, dtype=np.bool_)
    ended[rows] = plain_list(finished, "bool", f"{where}.finished")
    return Outcome(
        float(start),
        float(end),
        _spread_out(work, rows, n, f"{where}.work"),
        _spread_out(gpu_s, rows, n, f"{where}.gpu_s"),
        ended,
        assumed,
    )


def _spread_out(values: list[Any], rows: Any, n: int, where: str) -> Floats:
    out = np.zeros(n)
    out[rows] = plain_list(values, "float", where)
    low = np.flatnonzero(out[rows] < 0)
    if low.size and where.endswith("gpu_s"):
        raise InstanceError(f"{where}[{int(low[0])}] = {values[int(low[0])]}: must not be negative")
    return cast(Floats, out)
