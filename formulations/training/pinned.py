"""Jobs a decision may not touch: what is left over is what a policy decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, freeze
from apportion.instances.training import TrainingRound

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
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    lease_end_s: Floats
    guaranteed: Bools
    free: Ints
    open: Bools


def pinned(round_: TrainingRound) -> Pinned:
    """Find the jobs whose leases go on: not preemptible, guaranteed, or reserved for now.

    A reservation of a job that does not run yet is served on its type, or on the fastest type
    with enough GPUs; those with the fewest types to choose from go first, then the largest, so
    that one that may lie anywhere leaves room for one that may not.
    """
    jobs, n = round_.jobs, len(round_.jobs)
    free_to_stop = np.count_nonzero(jobs.preemptible) == n and not np.count_nonzero(jobs.guaranteed)
    if free_to_stop and not round_.commitments.job.size:
        return _nobody(round_)
    sure = jobs.guaranteed & (jobs.lease_end_s > round_.now_s)
    keeps = np.flatnonzero(jobs.running & (~jobs.preemptible | sure))
    promised = round_.commitments.active(round_.now_s)
    if not keeps.size and not promised.size:
        return _nobody(round_)
    free = round_.capacity.copy()
    np.subtract.at(free, jobs.previous_type[keeps], jobs.held_gpus[keeps])
    rows, types, gpus = keeps.tolist(), jobs.previous_type[keeps].tolist(), []
    gpus = jobs.held_gpus[keeps].tolist()
    for entry in _hardest_first(round_, promised, free).tolist():
        row = int(round_.commitments.job[entry])
        if row in rows:
            continue
        amount = max(int(jobs.gang[row]), int(round_.commitments.gpus[entry]))
        kind = _type_for(round_, row, int(round_.commitments.gpu_type[entry]), amount, free)
        if kind is not None:
            rows.append(row)
            types.append(kind)
            gpus.append(amount)
            free[kind] -= amount
    job = np.array(rows, dtype=np.int64)
    guaranteed = sure[job] & jobs.running[job]
    open_ = np.ones(len(jobs), dtype=np.bool_)
    open_[job] = False
    return Pinned(
        job=job,
        gpu_type=np.array(types, dtype=np.int64),
        gpus=np.array(gpus, dtype=np.int64),
        lease_end_s=np.where(guaranteed, jobs.lease_end_s[job], np.inf),
        guaranteed=guaranteed,
        free=np.maximum(free, 0),
        open=open_,
    )


def _nobody(round_: TrainingRound) -> Pinned:
    return Pinned(
        _NONE, _NONE, _NONE, _NO_END, _NOT_SURE, round_.capacity,
        np.ones(len(round_.jobs), dtype=np.bool_),
    )  # fmt: skip


def _hardest_first(round_: TrainingRound, promised: Ints, free: Ints) -> Ints:
    """Order reservations: fewest types that can serve them first, then most GPUs."""
    entries = round_.commitments
    row, gpu_type = entries.job[promised], entries.gpu_type[promised]
    amount = np.maximum(round_.jobs.gang[row], entries.gpus[promised])
    able = round_.eligible[row] & (amount[:, None] <= free[None, :])
    kinds = np.arange(free.size, dtype=np.int64)
    able &= (gpu_type[:, None] == -1) | (gpu_type[:, None] == kinds)
    return promised[np.lexsort((-amount, able.sum(axis=1)))]


def _type_for(round_: TrainingRound, row: int, wanted: int, amount: int, free: Ints) -> int | None:
    jobs = round_.jobs
    fits = round_.eligible[row] & (free >= amount)
    if wanted >= 0:
        fits = fits & (np.arange(fits.size, dtype=np.int64) == wanted)
    if not fits.any():
        return None
    if jobs.running[row] and fits[jobs.previous_type[row]]:
        return int(jobs.previous_type[row])
    return int(np.argmax(np.where(fits, jobs.throughput_per_s[row], -1.0)))
