"""Jobs a decision may not touch: what is left over is what a policy decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, freeze
from apportion.instances.training import TrainingRound

TRIES = 20_000
"""Steps of the search for the types of reservations: seconds are not at hand, rounds with more
than a dozen reservations of jobs that do not run are not known."""

_NONE: Ints = np.zeros(0, dtype=np.int64)
_NO_END: Floats = np.zeros(0)
_NOT_SURE: Bools = np.zeros(0, dtype=np.bool_)
for _empty in (_NONE, _NO_END, _NOT_SURE):
    freeze(_empty)


@dataclass(frozen=True, eq=False)
class Pinned:
    """Jobs that run on whatever a policy decides, and what they leave.

    Parameters
    ----------
    job, gpu_type, gpus, lease_end_s, guaranteed
        The leases that go on, as in an allocation.
    free
        GPUs left of each type, shape (k,).
    open
        True for jobs a policy may start, keep or stop, shape (n,).
    chosen
        True where a reservation for any type of a job that does not run was put on one of several:
        an optimum of the rest is then no optimum of the whole.
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    lease_end_s: Floats
    guaranteed: Bools
    free: Ints
    open: Bools
    chosen: bool = False


def pinned(round_: TrainingRound) -> Pinned:
    """Find the jobs whose leases go on: not preemptible, guaranteed, or reserved for now.

    Reservations are served together wherever some choice of types can; while one lies ahead, jobs
    that could not be stopped for it do not start.
    """
    jobs, n = round_.jobs, len(round_.jobs)
    free_to_stop = np.count_nonzero(jobs.preemptible) == n and not np.count_nonzero(jobs.guaranteed)
    if free_to_stop and not round_.commitments.job.size:
        return _nobody(round_)
    sure = jobs.guaranteed & (jobs.lease_end_s > round_.now_s)
    # who lies on a node out of service has lost its GPUs, whatever was promised
    keeps = np.flatnonzero(jobs.running & ~round_.stranded & (~jobs.preemptible | sure))
    promised = round_.commitments.active(round_.now_s)
    ahead = bool((round_.commitments.start_s > round_.now_s).any())
    if not keeps.size and not promised.size and not ahead:
        return _nobody(round_)
    free = round_.capacity.copy()
    np.subtract.at(free, jobs.previous_type[keeps], jobs.held_gpus[keeps])
    free = np.maximum(free, 0)
    served, amounts = _reserved(round_, promised[~np.isin(round_.commitments.job[promised], keeps)])
    able = _able(round_, served, amounts, free)
    choice = _types_for(round_, served, amounts, able, free)
    rows, kinds = served[choice >= 0], choice[choice >= 0]
    np.subtract.at(free, kinds, amounts[choice >= 0])
    job = np.concatenate((keeps, rows))
    guaranteed = sure[job] & jobs.running[job]
    open_ = np.ones(n, dtype=np.bool_)
    open_[job] = False
    if ahead:
        # what may not be stopped could still hold the GPUs when a reservation begins
        open_ &= jobs.preemptible | (jobs.running & ~round_.stranded)
    return Pinned(
        job=job,
        gpu_type=np.concatenate((jobs.previous_type[keeps], kinds)),
        gpus=np.concatenate((jobs.held_gpus[keeps], amounts[choice >= 0])),
        lease_end_s=np.where(guaranteed, jobs.lease_end_s[job], np.inf),
        guaranteed=guaranteed,
        free=free,
        open=open_,
        chosen=bool((able.sum(axis=1) > 1)[~jobs.running[served]].any()),
    )


def broken_promises(round_: TrainingRound) -> Ints:
    """Entries of the commitments that have begun and that no choice of types can keep.

    Nodes may have failed since they were made, or jobs that may not be stopped hold the GPUs.
    """
    promised = round_.commitments
    active = promised.active(round_.now_s)
    if not active.size:
        return _NONE
    held = pinned(round_)
    place = np.full(len(round_.jobs), -1, dtype=np.int64)
    place[held.job] = np.arange(held.job.size)
    at = place[promised.job[active]]
    kind = promised.gpu_type[active]
    kept = (at >= 0) & (held.gpus[at] >= promised.gpus[active]) if held.job.size else at >= 0
    if held.job.size:
        kept &= (kind < 0) | (held.gpu_type[at] == kind)
    return active[~kept]


def _nobody(round_: TrainingRound) -> Pinned:
    return Pinned(
        _NONE, _NONE, _NONE, _NO_END, _NOT_SURE, round_.capacity,
        np.ones(len(round_.jobs), dtype=np.bool_),
    )  # fmt: skip


def _reserved(round_: TrainingRound, entries: Ints) -> tuple[Ints, Ints]:
    """Jobs whose reservations have begun, once each, and the GPUs they get."""
    promised = round_.commitments
    rows = np.unique(promised.job[entries])
    most = np.zeros(len(round_.jobs), dtype=np.int64)
    np.maximum.at(most, promised.job[entries], promised.gpus[entries])
    return rows, np.maximum(round_.jobs.gang[rows], most[rows])


def _able(round_: TrainingRound, rows: Ints, amounts: Ints, free: Ints) -> Bools:
    """Types that can serve each reserved job as promised, shape (rows, k)."""
    promised = round_.commitments
    able = round_.eligible[rows] & (amounts[:, None] <= free[None, :])
    for entry in promised.active(round_.now_s).tolist():
        kind = int(promised.gpu_type[entry])
        if kind >= 0:
            able[rows == promised.job[entry]] &= np.arange(free.size, dtype=np.int64) == kind
    return able


def _types_for(round_: TrainingRound, rows: Ints, amounts: Ints, able: Bools, free: Ints) -> Ints:
    """Type of each reserved job, -1 where there is none: as many as can be served together.

    Jobs with the fewest types to choose from go first, then the largest; where that leaves one
    out, other choices are tried, up to ``TRIES`` of them.
    """
    jobs = round_.jobs
    speed = jobs.throughput_per_s[rows].copy()
    on = np.flatnonzero(jobs.running[rows])
    speed[on, jobs.previous_type[rows[on]]] = np.inf
    order = np.lexsort((-amounts, able.sum(axis=1)))
    ranked = [
        [kind for kind in np.argsort(-speed[at], kind="stable").tolist() if able[at, kind]]
        for at in order.tolist()
    ]
    found = _search(ranked, amounts[order].tolist(), free.tolist())
    out = np.full(rows.size, -1, dtype=np.int64)
    out[order] = found
    return out


def _search(ranked: list[list[int]], amounts: list[int], free: list[int]) -> list[int]:
    """Choose a type for each entry by depth-first search; the most entries served wins."""
    best = [-1] * len(ranked)
    chosen, tries = [-1] * len(ranked), 0

    def place(at: int, served: int, top: int) -> int:
        nonlocal best, tries
        tries += 1
        if served + len(ranked) - at <= top or tries > TRIES:
            return top
        if at == len(ranked):
            best = list(chosen)
            return served
        for kind in ranked[at]:
            if free[kind] >= amounts[at]:
                free[kind] -= amounts[at]
                chosen[at] = kind
                top = place(at + 1, served + 1, top)
                chosen[at] = -1
                free[kind] += amounts[at]
                if top == len(ranked):
                    return top
        return place(at + 1, served, top)

    place(0, 0, -1)
    return best
