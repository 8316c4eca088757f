"""The rules of nodes: where the GPUs of an allocation lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.executor.listing import listed
from apportion.executor.tolerances import HOST_RELATIVE
from apportion.executor.training.wording import job_id, outside, whole
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Placement, TrainingRound


def check_placement(
    round_: TrainingRound, allocation: Allocation, placement: Placement
) -> list[Violation]:
    """Check where the GPUs of an allocation lie; its other rules are taken as obeyed.

    Returns
    -------
    list of Violation
        Rules: ``shape``, ``placement_job``, ``placement_node``, ``node_down``,
        ``placement_gpus``, ``node_type``, ``placement_twice``, ``placement_sum``,
        ``node_capacity``, ``node_cpus``, ``node_memory``, ``non_preemptible``,
        ``guaranteed_lease``.
    """
    found = _placement_shape(placement) or _entries(round_, placement)
    if found:
        return found
    found = _node_types(round_, allocation, placement)
    found += _sums(round_, allocation, placement)
    found += _node_capacity(round_, placement)
    found += _hosts(round_, allocation, placement)
    return found + _same_nodes(round_, placement)


def _placement_shape(p: Placement) -> list[Violation]:
    alike = p.job.shape == p.node.shape == p.gpus.shape and p.job.ndim == 1
    if alike and p.job.dtype.kind + p.node.dtype.kind + p.gpus.dtype.kind == "iii":
        return []
    return whole({f"placement.{n}": getattr(p, n) for n in ("job", "node", "gpus")}, p.job)


def _entries(round_: TrainingRound, p: Placement) -> list[Violation]:
    n, m = len(round_.jobs), round_.cluster.nodes.size
    if not p.job.size:
        return []
    if outside(p.job, n):
        return listed(
            "placement_job", np.flatnonzero((p.job < 0) | (p.job >= n)),
            lambda i: f"placement.job[{i}] = {p.job[i]}: the round has {n} jobs",
        )  # fmt: skip
    if outside(p.node, m):
        return listed(
            "placement_node", np.flatnonzero((p.node < 0) | (p.node >= m)),
            lambda i: f"job {job_id(round_, p.job[i])}: node {p.node[i]}, there are {m} nodes",
        )  # fmt: skip
    found: list[Violation] = []
    if np.count_nonzero(round_.node_up) < m:
        found += listed(
            "node_down", np.flatnonzero(~round_.node_up[p.node]),
            lambda i: f"job {job_id(round_, p.job[i])}: node"
            f" {round_.cluster.nodes[p.node[i]]} is out of service",
        )  # fmt: skip
    if np.count_nonzero(p.gpus > 0) < p.gpus.size:
        found += listed(
            "placement_gpus", np.flatnonzero(p.gpus < 1),
            lambda i: f"job {job_id(round_, p.job[i])}: {p.gpus[i]} GPUs on node"
            f" {round_.cluster.nodes[p.node[i]]}, must be at least 1",
        )  # fmt: skip
    return found


def _node_types(round_: TrainingRound, a: Allocation, p: Placement) -> list[Violation]:
    cluster = round_.cluster
    if cluster.types.size == 1:
        return []
    given = np.full(len(round_.jobs), -1, dtype=np.int64)
    given[a.job] = a.gpu_type
    wants, is_of = given.take(p.job), cluster.node_type.take(p.node)
    if np.count_nonzero(wants == is_of) == wants.size:
        return []
    return listed(
        "node_type", np.flatnonzero((wants != is_of) & (wants >= 0)),
        lambda i: f"job {job_id(round_, p.job[i])} runs on {cluster.types[wants[i]]},"
        f" node {cluster.nodes[p.node[i]]} is of type {cluster.types[is_of[i]]}",
    )  # fmt: skip


def _sums(round_: TrainingRound, a: Allocation, p: Placement) -> list[Violation]:
    n = len(round_.jobs)
    wants = np.zeros(n, dtype=np.int64)
    wants[a.job] = a.gpus
    found: list[Violation] = []
    if p.job.size == a.job.size:
        # as many entries as jobs: either one entry each, or some job has none and its sum is off
        got: NDArray[Any] = np.zeros(n, dtype=np.int64)
        got[p.job] = p.gpus
    else:
        got = np.bincount(p.job, weights=p.gpus, minlength=n)
        found += _twice(round_, p)
    if np.count_nonzero(got == wants) == n:
        return found
    if p.job.size == a.job.size:
        got = np.bincount(p.job, weights=p.gpus, minlength=n)
    return found + listed(
        "placement_sum", np.flatnonzero(got != wants),
        lambda i: f"job {job_id(round_, i)}: {got[i]:g} GPUs placed on nodes, {wants[i]} given",
    )  # fmt: skip


def _twice(round_: TrainingRound, p: Placement) -> list[Violation]:
    several = np.bincount(p.job)[p.job] > 1
    nodes = round_.cluster.nodes
    key = p.job[several] * nodes.size + p.node[several]
    key.sort()
    if not np.count_nonzero(key[1:] == key[:-1]):
        return []
    pairs, times = np.unique(key, return_counts=True)
    return listed(
        "placement_twice", np.flatnonzero(times > 1),
        lambda i: f"job {job_id(round_, pairs[i] // nodes.size)} has {times[i]} entries on node"
        f" {nodes[pairs[i] % nodes.size]}, not 1",
    )  # fmt: skip


def _node_capacity(round_: TrainingRound, p: Placement) -> list[Violation]:
    cluster = round_.cluster
    used = np.bincount(p.node, weights=p.gpus, minlength=cluster.nodes.size)
    if np.count_nonzero(used <= cluster.node_gpus) == used.size:
        return []
    return listed(
        "node_capacity", np.flatnonzero(~(used <= cluster.node_gpus)),
        lambda i: f"node {cluster.nodes[i]}: {used[i]:g} GPUs given, it has {cluster.node_gpus[i]}",
    )  # fmt: skip


def _hosts(round_: TrainingRound, a: Allocation, p: Placement) -> list[Violation]:
    cluster, jobs, found = round_.cluster, round_.jobs, list[Violation]()
    for rule, has, unit in (
        ("node_cpus", cluster.node_cpus, "CPU cores"),
        ("node_memory", cluster.node_memory_gib, "GiB of host memory"),
    ):
        if not np.count_nonzero(has < np.inf):
            continue
        need = (jobs.cpus if rule == "node_cpus" else jobs.memory_gib) / jobs.gang
        used = np.bincount(p.node, weights=need[p.job] * p.gpus, minlength=has.size)
        found += listed(
            rule, np.flatnonzero(~(used <= has * (1 + HOST_RELATIVE) + HOST_RELATIVE)),
            lambda i, used=used, has=has, unit=unit:
            f"node {cluster.nodes[i]}: {used[i]:g} {unit} needed, it has {has[i]:g}",
        )  # fmt: skip
    return found


def _same_nodes(round_: TrainingRound, p: Placement) -> list[Violation]:
    jobs, found = round_.jobs, list[Violation]()
    if np.count_nonzero(jobs.preemptible) == len(jobs) and not np.count_nonzero(jobs.guaranteed):
        return found
    held = round_.placement
    sure = jobs.guaranteed & (jobs.lease_end_s > round_.now_s)
    on = jobs.running & ~round_.stranded
    for row in np.flatnonzero(on & (sure | ~jobs.preemptible)).tolist():
        before, after = _on(held, row), _on(p, row)
        if before and after and before != after:
            names = [", ".join(str(round_.cluster.nodes[i]) for i in x) for x in (before, after)]
            rule = "guaranteed_lease" if sure[row] else "non_preemptible"
            why = "has a guaranteed lease" if sure[row] else "is not preemptible"
            text = f"job {job_id(round_, row)} {why} and runs on {names[0]}"
            found.append(Violation(rule, f"{text}, but is placed on {names[1]}"))
    return found


def _on(p: Placement, row: int) -> dict[int, int]:
    at = np.flatnonzero(p.job == row)
    return dict(sorted(zip(p.node[at].tolist(), p.gpus[at].tolist(), strict=True)))
