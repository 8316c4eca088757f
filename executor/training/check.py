"""The rules of a training round, recomputed from the round alone.

Nothing here knows how an allocation was found. The common case, an allocation that obeys every
rule, costs a few passes over its columns; messages are written only for what is broken.
"""

from __future__ import annotations

import numpy as np

from apportion.executor.listing import listed
from apportion.executor.tolerances import WORK_RELATIVE
from apportion.executor.training.check_nodes import check_placement
from apportion.executor.training.check_promises import kept_ahead, promised
from apportion.executor.training.wording import job_id, outside, whole
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, TrainingRound


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
        ``commitment``, ``reservation_ahead``, ``lost_work``, and those of ``check_placement``.

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
    found += promised(round_, round_.commitments, allocation)
    if round_.commitments.job.size:
        found += kept_ahead(round_, allocation)
    found += _lost(round_, allocation)
    if allocation.placement is not None:
        found += check_placement(round_, allocation, allocation.placement)
    return found


def _shape(a: Allocation) -> list[Violation]:
    job, kind, gpus = a.job, a.gpu_type, a.gpus
    alike = job.shape == kind.shape == gpus.shape == a.lease_end_s.shape == a.guaranteed.shape
    if (
        not (alike and job.ndim == 1 and a.lost_job.shape == a.lost_work.shape)
        or job.dtype.kind + kind.dtype.kind + gpus.dtype.kind + a.lost_job.dtype.kind != "iiii"
    ):
        found = whole({"job": job, "gpu_type": kind, "gpus": gpus}, job)
        found = found or whole({"lost_job": a.lost_job}, a.lost_job)
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
    rising = np.count_nonzero(job[1:] > job[:-1]) == job.size - 1
    if job[0] < 0 or job[-1] >= n or (not rising and (job.min() < 0 or job.max() >= n)):
        bad = np.flatnonzero((job < 0) | (job >= n))
        return listed(
            "job_exists", bad, lambda i: f"allocation.job[{i}] = {job[i]}: the round has {n} jobs"
        )
    if not rising and (times := np.bincount(job)).max() > 1:
        return listed(
            "job_twice", np.flatnonzero(times > 1),
            lambda i: f"job {job_id(round_, i)} has {times[i]} rows in the allocation, not 1",
        )  # fmt: skip
    kind = a.gpu_type
    if outside(kind, k):
        return listed(
            "gpu_type", np.flatnonzero((kind < 0) | (kind >= k)),
            lambda i: f"job {job_id(round_, job[i])}: GPU type {kind[i]}, there are {k} types",
        )  # fmt: skip
    return []


def _times(round_: TrainingRound, a: Allocation) -> list[Violation]:
    end, now = a.lease_end_s, round_.now_s
    if np.count_nonzero(end > now) == end.size:
        return []
    found = listed(
        "nan", np.flatnonzero(np.isnan(end)),
        lambda i: f"job {job_id(round_, a.job[i])}: lease_end_s = NaN",
    )  # fmt: skip
    return found + listed(
        "lease_end", np.flatnonzero(end <= now),
        lambda i: f"job {job_id(round_, a.job[i])}: the lease ends at {end[i]:g}, now is {now:g}",
    )  # fmt: skip


def _configurations(round_: TrainingRound, a: Allocation) -> list[Violation]:
    jobs, job, kind, gpus = round_.jobs, a.job, a.gpu_type, a.gpus
    if not job.size:
        return []
    k = round_.cluster.types.size
    as_gang = gpus == jobs.gang.take(job)
    good = jobs.throughput_per_s.take(job * k + kind if k > 1 else job) > 0
    good &= as_gang
    found: list[Violation] = []
    if np.count_nonzero(good) < good.size:
        for i in np.flatnonzero(~good).tolist():
            found += _one_configuration(round_, int(job[i]), int(kind[i]), int(gpus[i]))
    if round_.cluster.tracks_gpu_memory:
        need, has = jobs.gpu_memory_gib[job], round_.cluster.type_memory_gib[kind]
        short = [
            i for i in np.flatnonzero(~(need <= has)).tolist() if not _may_not_stop(round_, job[i])
        ]
        found += listed(
            "gpu_memory", np.array(short, dtype=np.int64),
            lambda i: f"job {job_id(round_, job[i])}: needs {need[i]:g} GiB on each GPU,"
            f" {round_.cluster.types[kind[i]]} has {has[i]:g}",
        )  # fmt: skip
    return found


def _one_configuration(round_: TrainingRound, row: int, kind: int, gpus: int) -> list[Violation]:
    jobs, who, name = round_.jobs, job_id(round_, row), str(round_.cluster.types[kind])
    if _may_not_stop(round_, row) and (jobs.previous_type[row], jobs.held_gpus[row]) == (
        kind,
        gpus,
    ):
        return []
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


def _may_not_stop(round_: TrainingRound, row: int) -> bool:
    """Whether a job keeps what it holds even where it no longer makes progress."""
    jobs = round_.jobs
    sure = bool(jobs.guaranteed[row]) and float(jobs.lease_end_s[row]) > round_.now_s
    on = bool(jobs.running[row]) and not round_.stranded[row]
    return on and (sure or not jobs.preemptible[row])


def _type_capacity(round_: TrainingRound, a: Allocation) -> list[Violation]:
    k, capacity = round_.cluster.types.size, round_.capacity
    used = np.bincount(a.gpu_type, weights=a.gpus, minlength=k)
    if np.count_nonzero(used <= capacity) == k:
        return []
    return listed(
        "type_capacity", np.flatnonzero(~(used <= capacity)),
        lambda i: f"{round_.cluster.types[i]}: {used[i]:g} GPUs given,"
        f" {capacity[i]} in service ({used[i] - capacity[i]:g} too many)",
    )  # fmt: skip


def _kept(round_: TrainingRound, a: Allocation) -> list[Violation]:
    jobs, found = round_.jobs, list[Violation]()
    preemptible = jobs.preemptible
    if np.count_nonzero(preemptible) < preemptible.size:
        for row in np.flatnonzero(jobs.running & ~preemptible & ~round_.stranded).tolist():
            found += _same_gpus(round_, a, row, "non_preemptible", "is not preemptible")
    if np.count_nonzero(jobs.guaranteed):
        binding = jobs.running & jobs.guaranteed & (jobs.lease_end_s > round_.now_s)
        binding &= ~round_.stranded
        for row in np.flatnonzero(binding).tolist():
            end = float(jobs.lease_end_s[row])
            why = f"has a lease guaranteed until {end:g}"
            found += _same_gpus(round_, a, row, "guaranteed_lease", why)
            for at in np.flatnonzero(a.job == row).tolist():
                if a.lease_end_s[at] < end or not a.guaranteed[at]:
                    sure = "" if a.guaranteed[at] else ", not guaranteed"
                    text = f"job {job_id(round_, row)} {why}, now {a.lease_end_s[at]:g}{sure}"
                    found.append(Violation("guaranteed_lease", text))
    return found


def _same_gpus(
    round_: TrainingRound, a: Allocation, row: int, rule: str, why: str
) -> list[Violation]:
    jobs, at = round_.jobs, np.flatnonzero(a.job == row)
    kind, gpus = int(jobs.previous_type[row]), int(jobs.held_gpus[row])
    held = f"{gpus} GPUs of {round_.cluster.types[kind]}"
    if not at.size:
        return [
            Violation(rule, f"job {job_id(round_, row)} {why} and holds {held}, but is stopped")
        ]
    i = int(at[0])
    if a.gpu_type[i] == kind and a.gpus[i] == gpus:
        return []
    given = f"{a.gpus[i]} GPUs of {round_.cluster.types[a.gpu_type[i]]}"
    return [Violation(rule, f"job {job_id(round_, row)} {why} and holds {held}, but gets {given}")]


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
        who, had = job_id(round_, row), float(jobs.work_in_lease[row])
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
