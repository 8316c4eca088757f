"""Waiting gangs that take freed GPUs at once, between two decisions."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Ints
from apportion.instances.training import Allocation, TrainingRound


def backfill(round_: TrainingRound, free: list[int]) -> Allocation | None:
    """Fill free GPUs with waiting gangs in order of arrival.

    Parameters
    ----------
    round_
        The round at this moment.
    free
        Free GPUs of each type.

    Returns
    -------
    Allocation or None
        Whatever runs, unchanged, and every waiting gang that fits in its turn, on the type it is
        reported fastest on among those with room. None where nothing fits. Where anything is
        reserved, jobs that could not be stopped again are left waiting.
    """
    jobs = round_.jobs
    left, started = list(free), list[tuple[int, int]]()
    waiting = np.flatnonzero(~jobs.running & round_.eligible.any(axis=1))
    if round_.commitments.job.size:
        waiting = waiting[jobs.preemptible[waiting]]
    order = waiting[np.lexsort((waiting, jobs.arrival_s[waiting]))]
    for row, gang in zip(order.tolist(), jobs.gang[order].tolist(), strict=True):
        if not any(left):
            break
        speeds = np.where(round_.eligible[row], jobs.throughput_per_s[row], 0.0).tolist()
        fits = [k for k, speed in enumerate(speeds) if speed > 0 and gang <= left[k]]
        if fits:
            kind = max(fits, key=lambda k: (speeds[k], -k))
            left[kind] -= gang
            started.append((row, kind))
    return _joined(round_, started) if started else None


def _joined(round_: TrainingRound, started: list[tuple[int, int]]) -> Allocation:
    jobs = round_.jobs
    runs = np.flatnonzero(jobs.running)
    new: Ints = np.array(started, dtype=np.int64).reshape(-1, 2)
    job = np.concatenate([runs, new[:, 0]])
    return Allocation(
        job=job,
        gpu_type=np.concatenate([jobs.previous_type[runs], new[:, 1]]),
        gpus=np.concatenate([jobs.held_gpus[runs], jobs.gang[new[:, 0]]]),
        lease_end_s=np.concatenate([jobs.lease_end_s[runs], np.full(len(new), np.inf)]),
        guaranteed=np.concatenate([jobs.guaranteed[runs], np.zeros(len(new), dtype=np.bool_)]),
    )
