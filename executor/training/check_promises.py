"""The rules of reservations: what is promised can be kept, and what has begun is."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from apportion.executor.listing import listed
from apportion.executor.training.wording import job_id, whole
from apportion.instances.columns import Bools, Floats, Ints
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
    short = _short_ahead(round_, a, ahead, bound, end, a.gpu_type[bound & ~before])
    return [
        Violation(
            "reservation_ahead",
            f"job {job_id(round_, c.job[i])}: {c.gpus[i]} GPUs are reserved from"
            f" {float(c.start_s[i]):g}, when jobs that start now and may not be stopped still"
            " hold them",
        )
        for i in ahead[short].tolist()
    ]


def _short_ahead(
    round_: TrainingRound, a: Allocation, ahead: Ints, bound: Bools, end: Floats, new: Ints
) -> Bools:
    """Tell which reservations ahead find too few GPUs when they begin, shape (ahead,).

    What is reserved at an instant is the same for all that begin there, but for the job whose
    reservation it is: its own lease does not stand in its way.
    """
    c, k = round_.commitments, round_.capacity.size
    start = c.start_s[ahead]
    first = np.full(int(bound.sum()), -np.inf)
    held = (first, end[bound], a.gpus[bound], a.gpu_type[bound])
    left = -_load(start, *held, k)
    left[:, :k] += round_.capacity
    # when each job's lease is over, if it may not be stopped before
    until = np.full(len(round_.jobs), -np.inf)
    until[a.job[bound]] = np.where(np.isnan(end[bound]), -np.inf, end[bound])
    promised = (c.end_s, c.gpus, c.gpu_type)
    # a job that holds its own reservation by then is counted once
    twice = (np.clip(until[c.job], c.start_s, c.end_s), c.gpus, c.gpu_type)
    left += _load(start, c.start_s, *twice, k) - _load(start, c.start_s, *promised, k)
    own = np.flatnonzero(until[c.job[ahead]] > start)
    if own.size:
        job = c.job[ahead[own]]
        left[own] += _load(start[own], *held, k, of=a.job[bound], asked=job)
        left[own] -= _load(start[own], c.start_s, *promised, k, of=c.job, asked=job)
    short = (left[:, np.unique(new)] < 0).any(axis=1)
    return short | (left.sum(axis=1) < 0)


def _load(
    at_s: Floats, start_s: Floats, end_s: Floats, gpus: Ints, kind: Ints, kinds: int,
    *, of: Ints | None = None, asked: Ints | None = None,
) -> Ints:  # fmt: skip
    """Sum the GPUs of half-open intervals at some instants.

    Parameters
    ----------
    at_s
        Instants, shape (q,).
    start_s, end_s, gpus, kind
        Of each interval, shape (m,); kind -1 is any type. One without an end (NaN) never begins.
    kinds
        GPU types.
    of, asked
        Groups of the intervals, shape (m,), and of the instants, shape (q,): those of other
        groups do not count. None: there is one group.

    Returns
    -------
    GPUs by type, those of any type last, shape (q, kinds + 1).
    """
    last = np.where(np.isnan(end_s), start_s, np.maximum(start_s, end_s))
    instants = np.unique(np.concatenate((start_s, last, at_s)))
    of, asked = (
        np.zeros(column.size, dtype=np.int64) if group is None else group.astype(np.int64)
        for group, column in ((of, gpus), (asked, at_s))
    )
    load = gpus[:, None] * (np.where(kind < 0, kinds, kind)[:, None] == np.arange(kinds + 1))
    total = np.zeros((at_s.size, kinds + 1), dtype=np.int64)
    when = asked * instants.size + np.searchsorted(instants, at_s)
    # of other groups as much ends as begins, so that sums over all of them are enough
    for side, sign in ((start_s, 1), (last, -1)):
        key = of * instants.size + np.searchsorted(instants, side)
        order = np.argsort(key, kind="stable")
        summed = np.concatenate((np.zeros((1, kinds + 1), dtype=np.int64), load[order].cumsum(0)))
        total += sign * summed[np.searchsorted(key[order], when, side="right")]
    return total


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
    instants = np.unique(np.maximum(start, round_.now_s))
    load = _load(instants, start, end, gpus, kind, capacity.size)
    over, total = load[:, :-1] > capacity, load.sum(axis=1)
    for row in np.flatnonzero(over.any(axis=1) | (total > capacity.sum())).tolist():
        when = f"GPUs promised at {instants[row]:g}"
        for index in np.flatnonzero(over[row]).tolist():
            text = f"{load[row, index]} {when}, {capacity[index]} in service"
            name = round_.cluster.types[index]
            found.append(Violation("commitment_capacity", f"{name}: {text}"))
        if total[row] > capacity.sum():
            text = f"{total[row]} {when}, {capacity.sum()} in service"
            found.append(Violation("commitment_capacity", text))
    return found
