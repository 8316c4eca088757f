"""Fractions of time and the leases they become: what Gavel and all that share time have in common.

A policy says which part of the time each job should hold its gang on each type. Rounds give whole
gangs, so that those who have received least of what they should have come first.

Source: round mechanism of Gavel (Narayanan et al., OSDI 2020), section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.scalars import flag, number, text
from apportion.instances.columns import LARGEST, Floats, Ints, Names, floats, names, require, sized
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, Shares, TrainingRound

NEVER_SERVED = 1e9
"""Factor by which jobs that received nothing yet come before the others; Gavel's own."""


@dataclass(frozen=True, eq=False)
class Sharers:
    """The jobs that share a round's free GPUs, and what they can do with them.

    Parameters
    ----------
    round_
        The round.
    held
        Leases that go on whatever is decided, and the GPUs they leave.
    """

    round_: TrainingRound
    held: Pinned

    @classmethod
    def of(cls, round_: TrainingRound) -> Sharers:
        """Find who shares in a round."""
        return cls(round_, pinned(round_))

    @cached_property
    def able(self) -> Any:
        """Where each job of the round can run on free GPUs, shape (n, k)."""
        round_, held = self.round_, self.held
        fits = round_.jobs.gang[:, None] <= held.free[None, :]
        return round_.eligible & fits & held.open[:, None]

    @cached_property
    def rows(self) -> Ints:
        """Jobs that share, shape (m,)."""
        return np.flatnonzero(self.able.any(axis=1))

    @cached_property
    def speed(self) -> Floats:
        """Throughput of each one's gang on each type, 0 where it cannot run, shape (m, k)."""
        throughput = self.round_.jobs.throughput_per_s[self.rows]
        return np.where(self.able[self.rows], throughput, 0.0)

    @cached_property
    def gang(self) -> Floats:
        """GPUs of each, shape (m,)."""
        return self.round_.jobs.gang[self.rows].astype(np.float64)

    @cached_property
    def weight(self) -> Floats:
        """Weight of each, shape (m,)."""
        return self.round_.jobs.weight[self.rows]

    @cached_property
    def capacity(self) -> Floats:
        """Free GPUs of each type, shape (k,)."""
        return self.held.free.astype(np.float64)

    @cached_property
    def left(self) -> Floats:
        """Work left of each, never less than a billionth of its whole work, shape (m,)."""
        jobs = self.round_.jobs
        work = jobs.work[self.rows]
        return np.maximum(work - jobs.work_done[self.rows], 1e-9 * work)

    @cached_property
    def isolated(self) -> Floats:
        """Fractions of an equal share: every m-th GPU of every type, row sums at most 1.

        Gavel's isolated allocation; types on which a job cannot run are lost to it.
        """
        count = max(1, self.rows.size)
        share = self.capacity[None, :] / (count * self.gang[:, None])
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        return np.where(self.speed > 0.0, share, 0.0)

    def shares(self, x: Floats) -> Shares:
        """Give fractions of time as GPUs by user: each job is one; leases that go on count whole."""
        jobs = self.round_.jobs
        job = np.concatenate((self.rows, self.held.job))
        gpus = np.zeros((job.size, self.capacity.size))
        gpus[: self.rows.size] = x * self.gang[:, None]
        pinned_rows = np.arange(self.rows.size, job.size)
        gpus[pinned_rows, self.held.gpu_type] = self.held.gpus
        of_job = np.full(len(jobs), -1, dtype=np.int64)
        of_job[job] = np.arange(job.size)
        return Shares(jobs.id[job], jobs.weight[job], gpus, of_job, whole_gang=True)


def within(x: Floats, gang: Floats, capacity: Floats) -> Floats:
    """Scale fractions down until no type holds more than it has and no job runs all the time twice.

    Parameters
    ----------
    x
        Fractions, shape (m, k); those below zero count as zero.
    gang, capacity
        GPUs of each job, shape (m,), and of each type, shape (k,).
    """
    x = np.maximum(x, 0.0)
    load = gang @ x
    most = np.divide(load, capacity, out=np.ones_like(load), where=load > 0.0)
    x = x / np.maximum(1.0, most)[None, :]
    return x / np.maximum(1.0, x.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Received:
    """What each job of a round was meant to have, and what it got since that was decided.

    Parameters
    ----------
    x
        Fractions of time decided last, shape (n, k); NaN rows for jobs that were not there.
    received_s
        Time on each type since then, shape (n, k).
    deficit_s
        Time owed from before then, shape (n, k); below zero where it had more than meant.
    since_s
        When x was decided; None: never.
    unchanged
        Whether jobs and free GPUs are those that x was decided for.
    due
        Whether x was a guess, to be replaced as soon as there is time.
    """

    x: Floats
    received_s: Floats
    deficit_s: Floats
    since_s: float | None = None
    unchanged: bool = False
    due: bool = False

    def fresh(self, x: Floats, now_s: float) -> Received:
        """Start anew from fractions decided now; what is still owed is kept as deficit."""
        if self.since_s is None:
            return Received(x, np.zeros_like(x), self.deficit_s, now_s, True)
        meant = np.where(np.isnan(self.x), 0.0, self.x) * max(0.0, now_s - self.since_s)
        owed = self.deficit_s + meant - self.received_s
        return Received(x, np.zeros_like(x), owed, now_s, True)


def recall(sharers: Sharers, memory: Any, policy: str, settings: str = "") -> Received:
    """Read what the jobs of a round received from memory.

    Parameters
    ----------
    sharers
        The round.
    memory
        What ``remembered`` returned for the round before, or None.
    policy
        Name of the policy.
    settings
        Its parameters as text: fractions decided under others are due to be replaced.

    Raises
    ------
    InstanceError
        On a memory that is not one of these, or that another policy left.
    """
    ids, k = sharers.round_.jobs.id, sharers.capacity.size
    n = ids.size
    nothing = np.zeros((n, k))
    if memory is None:
        return Received(np.full((n, k), np.nan), nothing, nothing)
    known, columns, capacity, since_s = _columns(memory, policy, k)
    due = flag(memory.get("due", False), "memory.due")
    # memories of earlier versions say neither whose they are nor under which parameters
    whose = text(memory.get("policy", policy), "memory.policy")
    if whose != policy:
        raise InstanceError(f"memory.policy = {whose!r}: this is {policy}")
    due |= text(memory.get("settings", settings), "memory.settings") != settings
    at = _places(known, ids)
    found = at >= 0
    x = np.full((n, k), np.nan)
    received_s, deficit_s = np.zeros((n, k)), np.zeros((n, k))
    for out, column in zip((x, received_s, deficit_s), columns, strict=True):
        out[found] = column[at[found]]
    same = bool(found.all()) and known.size == n
    unchanged = same and np.array_equal(capacity, sharers.capacity)
    return Received(x, received_s, deficit_s, since_s, unchanged, due)


def _columns(memory: Any, policy: str, k: int) -> tuple[Names, list[Floats], Floats, float]:
    try:
        known = names(memory["id"], "memory.id")
        fields = ("x", "received_s", "deficit_s")
        columns = [floats(memory[f], f"memory.{f}", (known.size, k)) for f in fields]
        capacity = floats(memory["capacity"], "memory.capacity", (k,))
        since_s = number(memory["since_s"], "memory.since_s")
    except (KeyError, TypeError, IndexError):
        raise InstanceError(
            f"memory: not one of {policy}: it lacks id, x, received_s, deficit_s, capacity or"
            " since_s"
        ) from None
    for field, column in zip(fields, columns, strict=True):
        sized(column, f"memory.{field}")
        if field != "deficit_s":
            require(column, column >= 0, f"memory.{field}", "must not be negative")
    if not abs(since_s) <= LARGEST:
        raise InstanceError(f"memory.since_s = {since_s}: must not be beyond {LARGEST:g}")
    return known, columns, capacity, since_s


def _places(known: Names, ids: Names) -> Ints:
    """Row of each id among the known ones, -1 for newcomers."""
    if np.array_equal(known, ids):
        return np.arange(ids.size, dtype=np.int64)
    place = {name: at for at, name in enumerate(known.tolist())}
    return np.array([place.get(name, -1) for name in ids.tolist()], dtype=np.int64)


def carried(
    sharers: Sharers, received: Received, policy: str, settings: str = ""
) -> dict[str, Any]:
    """Write down what ``remembered`` needs, as plain data, and whose it is."""
    return {
        "policy": policy,
        "settings": settings,
        "id": sharers.round_.jobs.id,
        "x": np.where(np.isnan(received.x), 0.0, received.x),
        "received_s": received.received_s,
        "deficit_s": received.deficit_s,
        "capacity": sharers.capacity,
        "since_s": cast(float, received.since_s),
        "due": received.due,
    }


def remembered(decision: Any, outcome: Outcome) -> dict[str, Any]:
    """Add what was really served to what a decision carried.

    Parameters
    ----------
    decision
        A decision whose ``carry`` came from :func:`carried`.
    outcome
        What the executor did.
    """
    plan = decision.allocation
    received_s = np.array(decision.carry["received_s"], dtype=np.float64)
    time_s = outcome.gpu_s[plan.job] / np.maximum(plan.gpus, 1)
    np.add.at(received_s, (plan.job, plan.gpu_type), time_s)
    return {**decision.carry, "received_s": received_s}


def leased(
    sharers: Sharers, received: Received, now_s: float, *, work_conserving: bool = True
) -> Ints:
    """Give whole gangs to those who received least of their share.

    Pairs of job and type are served by priority (fraction of time meant, over fraction received
    since it was decided; those never served first), then by deficit, then by the fraction meant.
    A pair whose gang does not fit, or whose job has been served, is passed over.

    Parameters
    ----------
    sharers
        The round.
    received
        Fractions and what was received, by rows of the round.
    now_s
        The present.
    work_conserving
        True: what is then still free goes to jobs that fit, on types where they were meant to have
        nothing, fastest first relative to their best.

    Returns
    -------
    Type of each job of the round, ``NOWHERE`` for those that wait, shape (n,).
    """
    out = np.full(len(sharers.round_.jobs), NOWHERE, dtype=np.int64)
    rows, speed = sharers.rows, sharers.speed
    if not rows.size:
        return out
    x = np.where(np.isnan(received.x[rows]), 0.0, received.x[rows])
    got = received.received_s[rows]
    elapsed = max(now_s - (received.since_s or 0.0), 0.0) or 1.0
    ratio = np.divide(x * elapsed, got, out=x * NEVER_SERVED, where=got > 0.0)
    row, kind = np.nonzero((x > 0.0) & (speed > 0.0))
    deficit = received.deficit_s[rows]
    code = sharers.round_.jobs.code[rows]
    by = (kind, code[row], -x[row, kind], -deficit[row, kind], -ratio[row, kind])
    order = np.lexsort(by)
    left = sharers.held.free.copy()
    _serve(out, rows, row[order], kind[order], sharers.gang, left)
    if work_conserving and left.any():
        row, kind = np.nonzero(speed > 0.0)
        wait = out[rows[row]] == NOWHERE
        row, kind = row[wait], kind[wait]
        relative = speed[row, kind] / speed[row].max(axis=1, initial=1e-300)
        owed = deficit.sum(axis=1)
        order = np.lexsort((kind, code[row], -owed[row], -relative))
        _serve(out, rows, row[order], kind[order], sharers.gang, left)
    return out


def _serve(out: Ints, rows: Ints, row: Ints, kind: Ints, gang: Floats, left: Ints) -> None:
    """Serve pairs in order, in place; ends once nothing that is left can hold any gang."""
    need = gang[row].astype(np.int64)
    fits = need <= left[kind]
    row, kind, need = row[fits], kind[fits], need[fits]
    smallest = int(need.min(initial=1))
    free: list[int] = left.tolist()
    job = rows[row]
    for at, where, gpus in zip(job.tolist(), kind.tolist(), need.tolist(), strict=True):
        if free[where] >= gpus and out[at] == NOWHERE:
            out[at] = where
            free[where] -= gpus
            if max(free) < smallest:
                break
    left[:] = free
