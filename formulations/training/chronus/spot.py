"""GPUs that no reservation needs now: who gets them, and who is stopped for whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.chronus.standing import ACCEPTED, BEST_EFFORT, UNACCEPTED
from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.instances.columns import Bools, Floats, Ints

LONGEST_FOR_SHORT_RUNS_S = 1800.0
"""Leases up to which short jobs are run through and accepted jobs run ahead, as published."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """Jobs that may get spot GPUs, columns of shape (n,) unless said otherwise.

    Parameters
    ----------
    gang
        GPUs of each job.
    state
        State of each job.
    open
        Jobs that may start, go on or be stopped.
    on
        Type on which a job runs and may go on, ``NOWHERE`` for others.
    remaining_s
        Time that each still needs on its best type.
    slack_s
        Time that it may still wait and meet its last deadline.
    arrival_s, code
        Submission, and the number that breaks ties.
    slowness
        Lower is better, infinite = cannot run there, shape (n, k).
    short
        Jobs that would end before the lease does, shape (n, k).
    fills
        GPUs free over every planned lease, which jobs that may not be stopped must fit, shape (k,).
    binding
        Jobs that may not be stopped once they run.
    """

    gang: Ints
    state: Ints
    open: Bools
    on: Ints
    remaining_s: Floats
    slack_s: Floats
    arrival_s: Floats
    code: Ints
    slowness: Floats
    short: Bools
    fills: Ints
    binding: Bools

    def best_first(self, rows: Ints) -> Ints:
        """Order rows by the published key, the last to be stopped first.

        The class of the state (late jobs, accepted ones, the rest); then the least GPU-time to go
        for those without a promise, the least slack for the others; then the earliest.
        """
        gang, state = self.gang[rows], self.state[rows]
        plain = (state == UNACCEPTED) | (state == BEST_EFFORT)
        emergence = -gang * np.where(plain, self.remaining_s[rows], self.slack_s[rows])
        keys = (self.code[rows], self.arrival_s[rows], -emergence, -np.minimum(state, 1))
        return rows[np.lexsort(keys)]


@dataclass(frozen=True, eq=False)
class Spot:
    """Who gets spot GPUs.

    Attributes
    ----------
    kinds
        Type of each job, ``NOWHERE`` for those that wait, shape (n,).
    forced
        Short jobs that are not stopped before the lease ends, shape (n,).
    """

    kinds: Ints
    forced: Bools


def hand_out(waiting: Waiting, free: Ints, reserved: Ints, *, forcing: bool) -> Spot:
    """Hand out spot GPUs.

    Short jobs without a promise come first, the least GPU-time to go before others; then running
    jobs keep what is left, the best keys first; then waiting jobs start by their keys; and then
    accepted jobs run ahead of their reservations.

    Parameters
    ----------
    waiting
        The jobs.
    free
        GPUs that reservations leave, those of running jobs that may be stopped included, shape
        (k,).
    reserved
        GPUs of these that others take before the lease ends, so that only jobs that may be stopped
        may have them until then, shape (k,).
    forcing
        Whether leases are short enough for the first and the last of these rules.
    """
    kinds = np.full(waiting.gang.size, NOWHERE, dtype=np.int64)
    left, forced = free.copy(), np.zeros(waiting.gang.size, dtype=np.bool_)
    if forcing:
        sure = np.maximum(free - reserved, 0)
        forced = _give(waiting, _short(waiting), waiting.short, sure, kinds)
        rows = np.flatnonzero(forced)
        np.subtract.at(left, kinds[rows], waiting.gang[rows])
    runs = np.flatnonzero(waiting.open & (waiting.on != NOWHERE) & (kinds == NOWHERE))
    own = np.arange(free.size)[None, :] == waiting.on[:, None]
    _give(waiting, waiting.best_first(runs), own, left, kinds)
    rest = np.flatnonzero(waiting.open & (kinds == NOWHERE) & ~waiting.binding)
    late = waiting.state[rest] == ACCEPTED
    anywhere = np.ones_like(own)
    _give(waiting, waiting.best_first(rest[~late]), anywhere, left, kinds)
    if forcing:
        _give(waiting, waiting.best_first(rest[late]), anywhere, left, kinds)
    _give_for_good(waiting, np.maximum(left - reserved, 0), kinds)
    return Spot(kinds, forced)


def _short(waiting: Waiting) -> Ints:
    rows = np.flatnonzero(
        waiting.open & (waiting.state == UNACCEPTED) & waiting.short.any(axis=1) & ~waiting.binding
    )
    cost = waiting.remaining_s[rows] * waiting.gang[rows]
    return rows[np.lexsort((waiting.code[rows], waiting.arrival_s[rows], cost))]


def _give(waiting: Waiting, order: Ints, able: Bools, left: Ints, kinds: Ints) -> Bools:
    """Give GPUs to rows in turn, on types where they are able; changes ``left`` and ``kinds``."""
    got = np.zeros(kinds.size, dtype=np.bool_)
    if not order.size or not left.any():
        return got
    score = np.where(able, waiting.slowness, np.inf)
    found = fill(order, score, waiting.gang, left)
    rows = np.flatnonzero(found != NOWHERE)
    kinds[rows], got[rows] = found[rows], True
    np.subtract.at(left, found[rows], waiting.gang[rows])
    return got


def _give_for_good(waiting: Waiting, left: Ints, kinds: Ints) -> None:
    """Start jobs that may not be stopped where no planned lease needs the GPUs."""
    rows = np.flatnonzero(waiting.open & waiting.binding & (kinds == NOWHERE))
    room = np.minimum(left, waiting.fills)
    for row in waiting.best_first(rows).tolist():
        gang = int(waiting.gang[row])
        able = np.flatnonzero(np.isfinite(waiting.slowness[row]) & (room >= gang))
        if able.size:
            kind = int(able[np.argmin(waiting.slowness[row, able])])
            kinds[row] = kind
            left[kind] -= gang
            room[kind] -= gang
