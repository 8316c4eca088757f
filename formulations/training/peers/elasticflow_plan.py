"""ElasticFlow's plan: minimum satisfactory shares by deadline, over slots of equal length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apportion.formulations.training.baselines.deadlines import ROUNDING, Choices
from apportion.instances.columns import Bools, Floats, Ints

_SEARCH_IN_SHARES = 16
"""Subtracting so many shares from the free GPUs takes as long as one search."""


class Levels(NamedTuple):
    """GPU counts of one job on one type, rising, each faster than the one before; 0 first.

    Parameters
    ----------
    kind
        GPU type.
    gpus
        Counts, ``gpus[0] = 0``.
    rate
        Work units a second, ``rate[0] = 0``.
    """

    kind: int
    gpus: Ints
    rate: Floats


class Share(NamedTuple):
    """What a job is given by a plan.

    Parameters
    ----------
    kind
        GPU type.
    most
        Minimum satisfactory share: no more GPUs than this in any slot.
    use
        GPUs in each slot from now on until the job is done.
    """

    kind: int
    most: int
    use: Ints


def levels_of(choices: Choices, gang: Ints, rows: Ints, slot_s: float) -> list[list[Levels]]:
    """Counts that jobs can use, by type, the fastest type first: powers of two and their gangs.

    Counts that are no faster than a smaller one are left out.

    Parameters
    ----------
    choices
        What the jobs may run on.
    gang
        GPUs that each job of the round asks for, shape (n,).
    rows
        The jobs wanted, each with a choice at least, shape (m,).
    slot_s
        Length of a slot, the unit of time of the speeds.
    """
    place = np.full(gang.size, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    power = (choices.gpus & (choices.gpus - 1)) == 0
    some = (place[choices.job] >= 0) & (power | (choices.gpus == gang[choices.job]))
    job, kind, gpus = place[choices.job[some]], choices.kind[some], choices.gpus[some]
    rate = choices.rate[some] * slot_s
    faster = _faster(job, kind, rate)
    job, kind, gpus, rate = job[faster], kind[faster], gpus[faster], rate[faster]
    if not job.size:
        return [list[Levels]() for _ in range(rows.size)]
    start = np.flatnonzero(np.r_[True, (np.diff(job) != 0) | (np.diff(kind) != 0)])
    end = np.append(start[1:], job.size)
    # a zero before each group: what a job makes of no GPUs
    with_zero, zero_rate = np.insert(gpus, start, 0), np.insert(rate, start, 0.0)
    first = start + np.arange(start.size)
    order = np.lexsort((kind[start], -rate[end - 1], job[start]))
    out = [list[Levels]() for _ in range(rows.size)]
    for who, one, low, count in zip(
        job[start[order]].tolist(), kind[start[order]].tolist(), first[order].tolist(),
        (end - start)[order].tolist(), strict=True,
    ):  # fmt: skip
        high = low + count + 1
        out[int(who)].append(Levels(one, with_zero[low:high], zero_rate[low:high]))
    return out


def _faster(job: Ints, kind: Ints, rate: Floats) -> Bools:
    """Mark choices that are faster than all smaller ones of the same job on the same type."""
    if not job.size:
        return np.zeros(0, dtype=np.bool_)
    group = np.cumsum(np.r_[False, (np.diff(job) != 0) | (np.diff(kind) != 0)])
    rank = np.unique(rate, return_inverse=True)[1]
    key = group * np.int64(job.size) + rank
    best = np.maximum.accumulate(key)
    return np.r_[True, key[1:] > best[:-1]]


def least_share(free: Ints, levels: Levels, work: float, due: float) -> Share | None:
    """Find the minimum satisfactory share: the least cap on GPUs with which a job is in time.

    In every slot the job uses the largest of its counts within the cap and the free GPUs, from the
    first slot on until it is done.

    Parameters
    ----------
    free
        Free GPUs of the type in each slot, shape (T,).
    levels
        Counts and speeds; the unit of time is a slot.
    work
        Work left.
    due
        Deadline in slots from now.

    Returns
    -------
    Share or None
        None where no cap will do.
    """
    slots = min(math.ceil(due), free.size)
    room = free[:slots]
    for top in range(1, levels.gpus.size):
        if float(levels.rate[top]) * due * (1.0 + ROUNDING) < work:
            continue
        found = (
            _one(room, levels, work, due) if top == 1 else _several(room, levels, top, work, due)
        )
        if found is not None:
            return found
    return None


def _one(room: Ints, levels: Levels, work: float, due: float) -> Share | None:
    """Share with the least count alone, which is all a rigid job has."""
    gpus, need = levels.gpus[1], work / float(levels.rate[1])
    fits = room >= gpus
    done = fits.cumsum()
    at = int(done.searchsorted(need * (1.0 - ROUNDING)))
    if at >= room.size:
        return None
    # the slot that reaches the work makes progress, unless there is nothing to do
    ends = at + need - (float(done[at]) - 1.0) if need > 0.0 else 0.0
    if ends > due * (1.0 + ROUNDING):
        return None
    return Share(levels.kind, int(gpus), fits[: at + 1] * gpus)


def _several(room: Ints, levels: Levels, top: int, work: float, due: float) -> Share | None:
    """Share with the counts up to one of them."""
    level = levels.gpus[1 : top + 1].searchsorted(room, side="right")
    rate = levels.rate[level]
    done = rate.cumsum()
    at = int(done.searchsorted(work * (1.0 - ROUNDING)))
    if at >= room.size:
        return None
    last = float(rate[at])
    ends = at + (work - (float(done[at]) - last)) / last if work > 0.0 else 0.0
    if ends > due * (1.0 + ROUNDING):
        return None
    return Share(levels.kind, int(levels.gpus[top]), levels.gpus[level[: at + 1]])


def best_share(free: Ints, levels: list[Levels], work: float, due: float) -> Share | None:
    """Least share on the first of a job's types, the fastest one first, that has one.

    Parameters
    ----------
    free
        Free GPUs of each type in each slot, shape (k, T).
    levels, work, due
        As in ``least_share``.
    """
    for level in levels:
        found = least_share(free[level.kind], level, work, due)
        if found is not None:
            return found
    return None


@dataclass(eq=False)
class Asked:
    """Jobs with deadlines, in order of deadline.

    Parameters
    ----------
    levels
        Counts of each, by type; the unit of time is a slot.
    work, due
        Work left, and deadline in slots from now, shape (m,).
    """

    levels: list[list[Levels]]
    work: Floats
    due: Floats


@dataclass(eq=False)
class Filled:
    """One pass over the jobs in order of deadline.

    Parameters
    ----------
    share
        What each got, None where it does not fit. For jobs that only asked: what they would get,
        given those before them.
    free
        GPUs that are left, shape (k, T).
    """

    share: list[Share | None]
    free: Ints


def fill_shares(asked: Asked, free: Ints, takes: Bools) -> Filled:
    """Give each job its minimum satisfactory share of what those with earlier deadlines leave.

    Parameters
    ----------
    asked
        The jobs.
    free
        GPUs of each type in each slot, shape (k, T).
    takes
        False for jobs that ask what they would get but take nothing, shape (m,).
    """
    left = free.copy()
    out: list[Share | None] = []
    work, due, takes_it = asked.work.tolist(), asked.due.tolist(), takes.tolist()
    for at, levels in enumerate(asked.levels):
        share = best_share(left, levels, work[at], due[at])
        out.append(share)
        if share is not None and takes_it[at]:
            left[share.kind, : share.use.size] -= share.use
    return Filled(out, left)


@dataclass(eq=False)
class Admitting:
    """Jobs being admitted one by one, and the plan of those that are.

    Parameters
    ----------
    asked
        All jobs.
    plan
        Shares of those accepted. Those of others are what they would get, unless ``stale``.
    accepted, rejected
        What was decided, shape (m,).
    stale
        Jobs before which the plan has changed, shape (m,).
    total
        GPUs of each type in each slot, shape (k, T).
    searches
        Searches for a share that may still be made.
    waiting
        Whether a job was left undecided.
    """

    asked: Asked
    plan: Filled
    accepted: Bools
    rejected: Bools
    stale: Bools
    total: Ints
    searches: int
    waiting: bool = False

    def decide(self, at: int) -> None:
        """Accept or reject a job, or leave it undecided when the searches are used up."""
        if not self.stale[at] and self.plan.share[at] is None:
            self.rejected[at] = True
            return
        # who comes later may not take what an undecided job might need
        if not self.stale[at] and not self.waiting and self._fits(at, self.plan.share[at]):
            return
        if self.searches <= 0:
            self.waiting = True
            return
        before = self._before(at)
        share = self._search(at, before)
        if share is None:
            self.rejected[at] = True
        elif not self._fits(at, share):
            again = self._with_one(at, share, before)
            self.accepted[at], self.rejected[at] = again is not None, again is None
            if again is not None:
                self.plan = again
                self.stale[at + 1 :] = True

    def _fits(self, at: int, share: Share | None) -> bool:
        """Accept a job whose share lies within what all leave over."""
        if share is None:
            return False
        left = self.plan.free[share.kind, : share.use.size]
        if not bool((left >= share.use).all()):
            return False
        left -= share.use
        self.accepted[at], self.plan.share[at] = True, share
        return True

    def _before(self, at: int) -> Ints:
        """GPUs that accepted jobs with earlier deadlines leave to a job."""
        left = self.total.copy()
        earlier = np.flatnonzero(self.accepted[:at]).tolist()
        for job in earlier:
            share = self.plan.share[job]
            if share is not None:
                left[share.kind, : share.use.size] -= share.use
        self.searches -= len(earlier) // _SEARCH_IN_SHARES
        return left

    def _search(self, at: int, left: Ints) -> Share | None:
        self.searches -= 1
        asked = self.asked
        return best_share(left, asked.levels[at], float(asked.work[at]), float(asked.due[at]))

    def _with_one(self, at: int, share: Share, left: Ints) -> Filled | None:
        """Make the plan anew with one job more; None where somebody would lose his share."""
        out = list(self.plan.share)
        out[at] = share
        left[share.kind, : share.use.size] -= share.use
        later = np.flatnonzero(self.accepted[at + 1 :]) + at + 1
        for job in later.tolist():
            found = self._search(job, left)
            if found is not None:
                left[found.kind, : found.use.size] -= found.use
            elif self.plan.share[job] is not None:
                return None
            out[job] = found
        return Filled(out, left)


def admit(asked: Asked, free: Ints, accepted: Bools, order: Ints, searches: int) -> Admitting:
    """Admit jobs one by one: each if all that were admitted before it still get a share.

    A job that has no share given those with earlier deadlines can have none. One whose share lies
    within what all leave over changes nobody's share, since every job before takes the largest
    counts that fit and every job after still finds them. Only for the others is the plan made anew
    from their deadline on.

    Parameters
    ----------
    asked
        All jobs.
    free
        GPUs of each type in each slot, shape (k, T).
    accepted
        Those admitted before, shape (m,).
    order
        Newcomers in order of arrival.
    searches
        Searches for a share that may be made beside the first of every job. Afterwards jobs can
        only be rejected, and others stay undecided.
    """
    plan = fill_shares(asked, free, accepted)
    nobody = np.zeros_like(accepted)
    state = Admitting(asked, plan, accepted.copy(), nobody, nobody.copy(), free, searches)
    for at in order.tolist():
        state.decide(at)
    return state
