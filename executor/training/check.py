"""The rules of a training round, recomputed from the round alone.

Nothing here knows how an allocation was found. The common case, an allocation that obeys every
rule, costs a few passes over its columns; messages are written only for what is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from apportion.executor.tolerances import HOST_RELATIVE, WORK_RELATIVE
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Commitments, Placement, TrainingRound

MESSAGES_PER_RULE = 20
"""More broken entries than this of one rule are counted, not listed."""


def check(round_: TrainingRound, allocation: Allocation) -> list[Violation]:
    """Recompute every rule of the training family.

    Parameters
    ----------
    round_
        The round that was decided.
    allocation
        Who runs. With a placement the rules of nodes are checked too; without one, those of GPU
        types only.

    Returns
    -------
    list of Violation
        Empty where the allocation may be carried out. Rules, by name: ``shape``, ``job_exists``,
        ``job_twice``, ``gpu_type``, ``nan``, ``lease_end``, ``gpus``, ``throughput``,
        ``gpu_memory``, ``type_capacity``, ``non_preemptible``, ``guaranteed_lease``,
        ``commitment``, ``lost_work``, and those of ``check_placement``.

    Notes
    -----
    Where rows or types do not exist, the later rules cannot be looked up and are not reported.
    """
    found = _shape(allocation) or _rows(round_, allocation)
    if found:
        return found
    found = _times(round_, allocation)
    found += _configurations(round_, allocation)
    found += _type_capacity(round_, allocation)
    found += _kept(round_, allocation)
    found += _promised(round_, round_.commitments, allocation)
    found += _lost(round_, allocation)
    if allocation.placement is not None:
        found += check_placement(round_, allocation, allocation.placement)
    return found


def check_placement(
    round_: TrainingRound, allocation: Allocation, placement: Placement
) -> list[Violation]:
    """Check where the GPUs of an allocation lie; its other rules are taken as obeyed.

    Returns
    -------
    list of Violation
        Rules: ``shape``, ``placement_job``, ``placement_node``, ``node_down``,
        ``placement_gpus``, ``node_type``, ``placement_twice``, ``placement_sum``,
        ``node_capacity``, ``node_cpus``, ``node_memory``, ``non_preemptible``.
    """
    columns = {f"placement.{name}": getattr(placement, name) for name in ("job", "node", "gpus")}
    found = _whole(columns, placement.job)
    if found:
        return found
    found = _entries(round_, placement)
    if found:
        return found
    found = _node_types(round_, allocation, placement)
    found += _sums(round_, allocation, placement)
    found += _node_capacity(round_, placement)
    found += _hosts(round_, allocation, placement)
    return found + _same_nodes(round_, placement)


def check_commitments(
    round_: TrainingRound, commitments: Commitments, allocation: Allocation | None = None
) -> list[Violation]:
    """Check the reservations that a decision makes.

    Parameters
    ----------
    round_
        The round that was decided.
    commitments
        What is promised from now on.
    allocation
        The decision's allocation: its guaranteed leases take room too, and a reservation that
        has begun must be honoured by it.

    Returns
    -------
    list of Violation
        Rules: ``shape``, ``nan``, ``commitment_job``, ``commitment_interval``,
        ``commitment_gpus``, ``commitment_type``, ``commitment_capacity``, ``commitment``.

    Notes
    -----
    Reservations for "any one type" are counted against the sum of all types: a violation is
    reported only where it is proved.
    """
    c = commitments
    found = _commitment_columns(c) or _commitment_entries(round_, c)
    if found:
        return found
    found = _joint_capacity(round_, c, allocation)
    if allocation is not None:
        found += _promised(round_, c, allocation)
    return found


# ------------------------------------------------------------------------------ columns and rows


def _whole(columns: dict[str, Any], first: NDArray[Any]) -> list[Violation]:
    for name, column in columns.items():
        if column.dtype.kind not in "iu":
            if column.dtype.kind == "f" and np.isnan(column).any():
                return [Violation("nan", f"{name}[{int(np.isnan(column).argmax())}] = NaN")]
            return [Violation("shape", f"{name} holds {column.dtype}, expected whole numbers")]
        if column.shape != first.shape or column.ndim != 1:
            return [Violation("shape", f"{name} has shape {column.shape}, expected {first.shape}")]
    return []


def _shape(a: Allocation) -> list[Violation]:
    job, kind, gpus = a.job, a.gpu_type, a.gpus
    alike = job.shape == kind.shape == gpus.shape == a.lease_end_s.shape == a.guaranteed.shape
    if (
        not (alike and job.ndim == 1 and a.lost_job.shape == a.lost_work.shape)
        or job.dtype.kind + kind.dtype.kind + gpus.dtype.kind + a.lost_job.dtype.kind != "iiii"
    ):
        found = _whole({"job": job, "gpu_type": kind, "gpus": gpus}, job)
        found = found or _whole({"lost_job": a.lost_job}, a.lost_job)
        for name, column, first in (
            ("lease_end_s", a.lease_end_s, job), ("guaranteed", a.guaranteed, job),
            ("lost_work", a.lost_work, a.lost_job),
        ):  # fmt: skip
            if not found and column.shape != first.shape:
                text = f"{name} has shape {column.shape}, expected {first.shape}"
                found = [Violation("shape", text)]
        return found
    return []


def _rows(round_: TrainingRound, a: Allocation) -> list[Violation]:
    n, k, job = len(round_.jobs), round_.cluster.types.size, a.job
    if not job.size:
        return []
    if job.min() < 0 or job.max() >= n:
        bad = np.flatnonzero((job < 0) | (job >= n))
        return _listed(
            "job_exists", bad, lambda i: f"allocation.job[{i}] = {job[i]}: the round has {n} jobs"
        )
    if not (job[1:] > job[:-1]).all() and (times := np.bincount(job)).max() > 1:
        return _listed(
            "job_twice", np.flatnonzero(times > 1),
            lambda i: f"job {_id(round_, i)} has {times[i]} rows in the allocation, not 1",
        )  # fmt: skip
    kind = a.gpu_type
    if kind.min() < 0 or kind.max() >= k:
        return _listed(
            "gpu_type", np.flatnonzero((kind < 0) | (kind >= k)),
            lambda i: f"job {_id(round_, job[i])}: GPU type {kind[i]}, there are {k} types",
        )  # fmt: skip
    return []


def _times(round_: TrainingRound, a: Allocation) -> list[Violation]:
    end, now = a.lease_end_s, round_.now_s
    if (end > now).all():
        return []
    found = _listed(
        "nan", np.flatnonzero(np.isnan(end)),
        lambda i: f"job {_id(round_, a.job[i])}: lease_end_s = NaN",
    )  # fmt: skip
    return found + _listed(
        "lease_end", np.flatnonzero(end <= now),
        lambda i: f"job {_id(round_, a.job[i])}: the lease ends at {end[i]:g}, now is {now:g}",
    )  # fmt: skip


# -------------------------------------------------------------------- what a job may run on


def _configurations(round_: TrainingRound, a: Allocation) -> list[Violation]:
    jobs, job, kind, gpus = round_.jobs, a.job, a.gpu_type, a.gpus
    if not job.size:
        return []
    k = round_.cluster.types.size
    as_gang = gpus == jobs.gang.take(job)
    good = jobs.throughput_per_s.take(job * k + kind if k > 1 else job) > 0
    good &= as_gang
    found: list[Violation] = []
    if not good.all():
        for i in np.flatnonzero(~good).tolist():
            found += _one_configuration(round_, int(job[i]), int(kind[i]), int(gpus[i]))
    memory = round_.cluster.type_memory_gib
    if np.isfinite(memory).any():
        need, has = jobs.gpu_memory_gib[job], memory[kind]
        found += _listed(
            "gpu_memory", np.flatnonzero(~(need <= has)),
            lambda i: f"job {_id(round_, job[i])}: needs {need[i]:g} GiB on each GPU,"
            f" {round_.cluster.types[kind[i]]} has {has[i]:g}",
        )  # fmt: skip
    return found


def _one_configuration(round_: TrainingRound, row: int, kind: int, gpus: int) -> list[Violation]:
    jobs, who, name = round_.jobs, _id(round_, row), str(round_.cluster.types[kind])
    cut = slice(int(jobs.config_offsets[row]), int(jobs.config_offsets[row + 1]))
    here = (jobs.config_gpus[cut] == gpus) & (jobs.config_type[cut] == kind)
    speed = float(jobs.config_throughput_per_s[cut][here].max(initial=0.0))
    gang = int(jobs.gang[row])
    if gpus == gang:
        if jobs.throughput_per_s[row, kind] > 0 or speed > 0:
            return []
        return [Violation("throughput", f"job {who}: cannot run on {name}, its throughput is 0")]
    least, most = int(jobs.min_gpus[row]), int(jobs.max_gpus[row])
    if not here.any() or not least <= gpus <= most:
        text = f"job {who}: {gpus} GPUs of {name}, its gang is {gang}"
        if least < most:
            text += f" and no configuration of {least} to {most} GPUs is listed with that number"
        return [Violation("gpus", text)]
    if not speed > 0:
        text = f"job {who}: cannot run on {gpus} GPUs of {name}, the throughput listed is 0"
        return [Violation("throughput", text)]
    return []


def _type_capacity(round_: TrainingRound, a: Allocation) -> list[Violation]:
    k, capacity = round_.cluster.types.size, round_.capacity
    if k == 1:
        used: NDArray[Any] = a.gpus.sum(keepdims=True)
    else:
        used = np.bincount(a.gpu_type, weights=a.gpus, minlength=k)
    if (used <= capacity).all():
        return []
    return _listed(
        "type_capacity", np.flatnonzero(~(used <= capacity)),
        lambda i: f"{round_.cluster.types[i]}: {used[i]:g} GPUs given,"
        f" {capacity[i]} in service ({used[i] - capacity[i]:g} too many)",
    )  # fmt: skip


# -------------------------------------------------------------------- what must be kept


def _kept(round_: TrainingRound, a: Allocation) -> list[Violation]:
    jobs, found = round_.jobs, list[Violation]()
    preemptible = jobs.preemptible
    if not preemptible.all():
        for row in np.flatnonzero(jobs.running & ~preemptible).tolist():
            found += _same_gpus(round_, a, row, "non_preemptible", "is not preemptible")
    if jobs.guaranteed.any():
        binding = jobs.running & jobs.guaranteed & (jobs.lease_end_s > round_.now_s)
        for row in np.flatnonzero(binding).tolist():
            end = float(jobs.lease_end_s[row])
            why = f"has a lease guaranteed until {end:g}"
            found += _same_gpus(round_, a, row, "guaranteed_lease", why)
            for at in np.flatnonzero(a.job == row).tolist():
                if a.lease_end_s[at] < end or not a.guaranteed[at]:
                    sure = "" if a.guaranteed[at] else ", not guaranteed"
                    text = f"job {_id(round_, row)} {why}, now {a.lease_end_s[at]:g}{sure}"
                    found.append(Violation("guaranteed_lease", text))
    return found


def _same_gpus(
    round_: TrainingRound, a: Allocation, row: int, rule: str, why: str
) -> list[Violation]:
    jobs, at = round_.jobs, np.flatnonzero(a.job == row)
    kind, gpus = int(jobs.previous_type[row]), int(jobs.held_gpus[row])
    held = f"{gpus} GPUs of {round_.cluster.types[kind]}"
    if not at.size:
        return [Violation(rule, f"job {_id(round_, row)} {why} and holds {held}, but is stopped")]
    i = int(at[0])
    if a.gpu_type[i] == kind and a.gpus[i] == gpus:
        return []
    given = f"{a.gpus[i]} GPUs of {round_.cluster.types[a.gpu_type[i]]}"
    return [Violation(rule, f"job {_id(round_, row)} {why} and holds {held}, but gets {given}")]


def _promised(round_: TrainingRound, c: Commitments, a: Allocation) -> list[Violation]:
    found: list[Violation] = []
    if not c.job.size:
        return found
    for i in c.active(round_.now_s).tolist():
        at = np.flatnonzero(a.job == c.job[i])
        got = int(a.gpus[at].sum())
        who, until = _id(round_, c.job[i]), f"until {c.end_s[i]:g}"
        if got < c.gpus[i]:
            text = f"job {who}: {c.gpus[i]} GPUs are promised {until}, it gets {got}"
            found.append(Violation("commitment", text))
        elif c.gpu_type[i] >= 0 and a.gpu_type[at[0]] != c.gpu_type[i]:
            types = round_.cluster.types
            text = f"job {who}: {types[c.gpu_type[i]]} is promised {until}, it gets"
            found.append(Violation("commitment", f"{text} {types[a.gpu_type[at[0]]]}"))
    return found


def _lost(round_: TrainingRound, a: Allocation) -> list[Violation]:
    rows, work = a.lost_job, a.lost_work
    if not rows.size:
        return []
    jobs, n, found = round_.jobs, len(round_.jobs), list[Violation]()
    allocated = np.zeros(n, dtype=np.bool_)
    allocated[a.job] = True
    seen: set[int] = set()
    for row, lost in zip(rows.tolist(), work.tolist(), strict=True):
        if not 0 <= row < n:
            text = f"allocation.lost_job holds {row}: the round has {n} jobs"
            found.append(Violation("lost_work", text))
            continue
        who, had = _id(round_, row), float(jobs.work_in_lease[row])
        if np.isnan(lost):
            found.append(Violation("nan", f"job {who}: lost_work = NaN"))
        elif row in seen:
            found.append(Violation("lost_work", f"job {who} loses work twice"))
        elif not jobs.running[row]:
            found.append(Violation("lost_work", f"job {who} loses work but was not running"))
        elif allocated[row]:
            found.append(Violation("lost_work", f"job {who} loses work but runs on"))
        elif not 0 <= lost <= had * (1 + WORK_RELATIVE):
            text = f"job {who} loses {lost:g}, its present lease did {had:g}"
            found.append(Violation("lost_work", text))
        seen.add(row)
    return found


# -------------------------------------------------------------------- nodes


def _entries(round_: TrainingRound, p: Placement) -> list[Violation]:
    n, m = len(round_.jobs), round_.cluster.nodes.size
    if not p.job.size:
        return []
    if p.job.min() < 0 or p.job.max() >= n:
        return _listed(
            "placement_job", np.flatnonzero((p.job < 0) | (p.job >= n)),
            lambda i: f"placement.job[{i}] = {p.job[i]}: the round has {n} jobs",
        )  # fmt: skip
    if p.node.min() < 0 or p.node.max() >= m:
        return _listed(
            "placement_node", np.flatnonzero((p.node < 0) | (p.node >= m)),
            lambda i: f"job {_id(round_, p.job[i])}: node {p.node[i]}, there are {m} nodes",
        )  # fmt: skip
    found: list[Violation] = []
    if not round_.node_up.all():
        found += _listed(
            "node_down", np.flatnonzero(~round_.node_up[p.node]),
            lambda i: f"job {_id(round_, p.job[i])}: node"
            f" {round_.cluster.nodes[p.node[i]]} is out of service",
        )  # fmt: skip
    if p.gpus.min() < 1:
        found += _listed(
            "placement_gpus", np.flatnonzero(p.gpus < 1),
            lambda i: f"job {_id(round_, p.job[i])}: {p.gpus[i]} GPUs on node"
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
    if (wants == is_of).all():
        return []
    return _listed(
        "node_type", np.flatnonzero((wants != is_of) & (wants >= 0)),
        lambda i: f"job {_id(round_, p.job[i])} runs on {cluster.types[wants[i]]},"
        f" node {cluster.nodes[p.node[i]]} is of type {cluster.types[is_of[i]]}",
    )  # fmt: skip


def _sums(round_: TrainingRound, a: Allocation, p: Placement) -> list[Violation]:
    n, m = len(round_.jobs), round_.cluster.nodes.size
    wants = np.zeros(n, dtype=np.int64)
    wants[a.job] = a.gpus
    found: list[Violation] = []
    if p.job.size == a.job.size:
        # as many entries as jobs: either one entry each, or some job has none and its sum is off
        got: NDArray[Any] = np.zeros(n, dtype=np.int64)
        got[p.job] = p.gpus
    else:
        got = np.bincount(p.job, weights=p.gpus, minlength=n)
        key = p.job * m + p.node
        key.sort()
        if (key[1:] == key[:-1]).any():
            pairs, times = np.unique(key, return_counts=True)
            found += _listed(
                "placement_twice", np.flatnonzero(times > 1),
                lambda i: f"job {_id(round_, pairs[i] // m)} has {times[i]} entries on node"
                f" {round_.cluster.nodes[pairs[i] % m]}, not 1",
            )  # fmt: skip
    if (got == wants).all():
        return found
    if p.job.size == a.job.size:
        got = np.bincount(p.job, weights=p.gpus, minlength=n)
    return found + _listed(
        "placement_sum", np.flatnonzero(got != wants),
        lambda i: f"job {_id(round_, i)}: {got[i]:g} GPUs placed on nodes, {wants[i]} given",
    )  # fmt: skip


def _node_capacity(round_: TrainingRound, p: Placement) -> list[Violation]:
    cluster = round_.cluster
    used = np.bincount(p.node, weights=p.gpus, minlength=cluster.nodes.size)
    if (used <= cluster.node_gpus).all():
        return []
    return _listed(
        "node_capacity", np.flatnonzero(~(used <= cluster.node_gpus)),
        lambda i: f"node {cluster.nodes[i]}: {used[i]:g} GPUs given, it has {cluster.node_gpus[i]}",
    )  # fmt: skip


def _hosts(round_: TrainingRound, a: Allocation, p: Placement) -> list[Violation]:
    cluster, jobs, found = round_.cluster, round_.jobs, list[Violation]()
    for rule, has, unit in (
        ("node_cpus", cluster.node_cpus, "CPU cores"),
        ("node_memory", cluster.node_memory_gib, "GiB of host memory"),
    ):
        if not np.isfinite(has).any():
            continue
        need = (jobs.cpus if rule == "node_cpus" else jobs.memory_gib) / jobs.gang
        used = np.bincount(p.node, weights=need[p.job] * p.gpus, minlength=has.size)
        found += _listed(
            rule, np.flatnonzero(~(used <= has * (1 + HOST_RELATIVE) + HOST_RELATIVE)),
            lambda i, used=used, has=has, unit=unit:
            f"node {cluster.nodes[i]}: {used[i]:g} {unit} needed, it has {has[i]:g}",
        )  # fmt: skip
    return found


def _same_nodes(round_: TrainingRound, p: Placement) -> list[Violation]:
    jobs, found = round_.jobs, list[Violation]()
    if jobs.preemptible.all():
        return found
    held = round_.placement
    for row in np.flatnonzero(jobs.running & ~jobs.preemptible).tolist():
        before, after = _on(held, row), _on(p, row)
        if before and after and before != after:
            names = [", ".join(str(round_.cluster.nodes[i]) for i in x) for x in (before, after)]
            text = f"job {_id(round_, row)} is not preemptible and runs on {names[0]}"
            found.append(Violation("non_preemptible", f"{text}, but is placed on {names[1]}"))
    return found


def _on(p: Placement, row: int) -> dict[int, int]:
    at = np.flatnonzero(p.job == row)
    return dict(sorted(zip(p.node[at].tolist(), p.gpus[at].tolist(), strict=True)))


# -------------------------------------------------------------------- reservations


def _commitment_columns(c: Commitments) -> list[Violation]:
    whole = {f"commitments.{name}": getattr(c, name) for name in ("job", "gpus", "gpu_type")}
    found = _whole(whole, c.job)
    for name in ("start_s", "end_s"):
        column = cast(Floats, getattr(c, name))
        if not found and column.shape != c.job.shape:
            text = f"commitments.{name} has shape {column.shape}, expected {c.job.shape}"
            found = [Violation("shape", text)]
        if not found and np.isnan(column).any():
            text = f"commitments.{name}[{int(np.isnan(column).argmax())}] = NaN"
            found = [Violation("nan", text)]
    return found


def _commitment_entries(round_: TrainingRound, c: Commitments) -> list[Violation]:
    n, k, now = len(round_.jobs), round_.cluster.types.size, round_.now_s
    rules: tuple[tuple[str, Bools, Any, str], ...] = (
        ("commitment_job", (c.job >= 0) & (c.job < n), c.job, f"the round has {n} jobs"),
        ("commitment_interval", (c.end_s > c.start_s) & (c.end_s > now), c.end_s,
         f"must end after it starts and after now, {now:g}"),
        ("commitment_gpus", c.gpus >= 1, c.gpus, "must promise at least 1 GPU"),
        ("commitment_type", (c.gpu_type >= -1) & (c.gpu_type < k), c.gpu_type,
         f"-1 (any) or one of the {k} GPU types"),
    )  # fmt: skip
    found: list[Violation] = []
    for rule, good, values, text in rules:
        found += _listed(
            rule, np.flatnonzero(~good),
            lambda i, values=values, text=text: f"commitments[{i}]: {values[i]:g}: {text}",
        )  # fmt: skip
    return found


def _joint_capacity(round_: TrainingRound, c: Commitments, a: Allocation | None) -> list[Violation]:
    """Sweep over the starts: the load of half-open intervals rises nowhere else."""
    start, end, gpus, kind = c.start_s, c.end_s, c.gpus, c.gpu_type
    if a is not None and a.guaranteed.any():
        sure = a.guaranteed & ~np.isin(a.job, c.job)
        start = np.concatenate([start, np.full(int(sure.sum()), round_.now_s)])
        end = np.concatenate([end, a.lease_end_s[sure]])
        gpus = np.concatenate([gpus, a.gpus[sure]])
        kind = np.concatenate([kind, a.gpu_type[sure]])
    capacity, found = round_.capacity, list[Violation]()
    largest = np.where(kind >= 0, capacity[kind], capacity.max())
    found += _listed(
        "commitment_capacity", np.flatnonzero(gpus > largest),
        lambda i: f"{gpus[i]} GPUs promised, at most {largest[i]} in service",
    )  # fmt: skip
    for instant in np.unique(np.maximum(start, round_.now_s)).tolist():
        on = (start <= instant) & (instant < end)
        for index, has in enumerate(capacity.tolist()):
            total = int(gpus[on & (kind == index)].sum())
            if total > has:
                name = round_.cluster.types[index]
                text = f"{name}: {total} GPUs promised at {instant:g}, {has} in service"
                found.append(Violation("commitment_capacity", text))
        total = int(gpus[on].sum())
        if total > capacity.sum():
            text = f"{total} GPUs promised at {instant:g}, {capacity.sum()} in service"
            found.append(Violation("commitment_capacity", text))
    return found


# -------------------------------------------------------------------- messages


def _id(round_: TrainingRound, row: Any) -> str:
    return repr(str(round_.jobs.id[int(row)]))


def _listed(rule: str, bad: Ints | NDArray[np.intp], text: Any) -> list[Violation]:
    def messages() -> Iterator[Violation]:
        for index in bad[:MESSAGES_PER_RULE].tolist():
            yield Violation(rule, text(index))
        if bad.size > MESSAGES_PER_RULE:
            yield Violation(rule, f"and {bad.size - MESSAGES_PER_RULE} more")

    return list(messages()) if bad.size else []
