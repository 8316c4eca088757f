"""The rules of reservations: what is promised can be kept, and what has begun is."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from apportion.executor.training.wording import job_id, listed, whole
from apportion.instances.columns import Bools, Floats
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Commitments, TrainingRound


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
        found += promised(round_, c, allocation)
    return found


def promised(round_: TrainingRound, c: Commitments, a: Allocation) -> list[Violation]:
    """Check that an allocation honours the reservations that have begun."""
    found: list[Violation] = []
    if not c.job.size:
        return found
    for i in c.active(round_.now_s).tolist():
        at = np.flatnonzero(a.job == c.job[i])
        got = int(a.gpus[at].sum())
        who, until = job_id(round_, c.job[i]), f"until {c.end_s[i]:g}"
        if got < c.gpus[i]:
            text = f"job {who}: {c.gpus[i]} GPUs are promised {until}, it gets {got}"
            found.append(Violation("commitment", text))
        elif c.gpu_type[i] >= 0 and a.gpu_type[at[0]] != c.gpu_type[i]:
            types = round_.cluster.types
            text = f"job {who}: {types[c.gpu_type[i]]} is promised {until}, it gets"
            found.append(Violation("commitment", f"{text} {types[a.gpu_type[at[0]]]}"))
    return found


def kept_ahead(round_: TrainingRound, a: Allocation) -> list[Violation]:
    """Check that what starts now and may not be stopped leaves reservations ahead their room.

    Only jobs that were free to stop until now count against a reservation: what a round already
    holds is not this allocation's doing.
    """
    c, jobs = round_.commitments, round_.jobs
    ahead = np.flatnonzero(c.start_s > round_.now_s)
    if not ahead.size or not a.job.size:
        return []
    bound = ~jobs.preemptible[a.job] | a.guaranteed
    before = jobs.running[a.job] & (
        ~jobs.preemptible[a.job]
        | (jobs.guaranteed[a.job] & (jobs.lease_end_s[a.job] > round_.now_s))
    )
    # a reservation that has begun must be served now, whatever lies ahead
    before |= np.isin(a.job, c.job[c.active(round_.now_s)])
    if not (bound & ~before).any():
        return []
    end = np.where(jobs.preemptible[a.job], a.lease_end_s, np.inf)
    found: list[Violation] = []
    for i in ahead.tolist():
        start = float(c.start_s[i])
        on = bound & (end > start) & (a.job != c.job[i])
        others = (c.start_s <= start) & (start < c.end_s)
        # a job that holds its own reservation by then is counted once
        others &= ~np.isin(c.job, a.job[on])
        left = round_.capacity - np.bincount(
            a.gpu_type[on], weights=a.gpus[on], minlength=round_.capacity.size
        )
        for kind in range(round_.capacity.size):
            left[kind] -= c.gpus[others & (c.gpu_type == kind)].sum()
        short = left < 0
        if (short & np.isin(np.arange(left.size), a.gpu_type[bound & ~before])).any() or (
            left.sum() < c.gpus[others & (c.gpu_type < 0)].sum()
        ):
            text = (
                f"job {job_id(round_, c.job[i])}: {c.gpus[i]} GPUs are reserved from {start:g}, when"
                " jobs that start now and may not be stopped still hold them"
            )
            found.append(Violation("reservation_ahead", text))
    return found


def _commitment_columns(c: Commitments) -> list[Violation]:
    numbers = {f"commitments.{name}": getattr(c, name) for name in ("job", "gpus", "gpu_type")}
    found = whole(numbers, c.job)
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
        found += listed(
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
    found += listed(
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
