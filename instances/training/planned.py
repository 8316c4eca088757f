"""The outcome a plan would have if nothing unforeseen happened."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.training.allocation import Allocation, Outcome
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.round import TrainingRound


def planned_rate_per_s(round_: TrainingRound, allocation: Allocation) -> Floats:
    """Reported throughput of each running job on what it gets, shape (m,).

    A number of GPUs other than the gang is looked up in the job's configurations.
    """
    jobs = round_.jobs
    rate = jobs.throughput_per_s[allocation.job, allocation.gpu_type]
    other = np.flatnonzero(allocation.gpus != jobs.gang[allocation.job])
    for entry in other.tolist():
        row = int(allocation.job[entry])
        span = slice(int(jobs.config_offsets[row]), int(jobs.config_offsets[row + 1]))
        same = (jobs.config_gpus[span] == allocation.gpus[entry]) & (
            jobs.config_type[span] == allocation.gpu_type[entry]
        )
        found = jobs.config_throughput_per_s[span][same]
        rate[entry] = found[0] if found.size else 0.0
    return rate


def planned_outcome(
    round_: TrainingRound,
    allocation: Allocation,
    end_s: float | None = None,
    switch: SwitchCost | None = None,
) -> Outcome:
    """Carry a plan out in thought, to the end of the round or to ``end_s``.

    Each job progresses at its reported throughput, less the stall of a change of type, until its
    reported work is done or its lease ends.

    Parameters
    ----------
    round_, allocation
        What was decided.
    end_s
        End of the interval; default one round after ``now_s``.
    switch
        What a switch costs; default ``SwitchCost()``.
    """
    law = switch or SwitchCost()
    jobs, n = round_.jobs, len(round_.jobs)
    end = round_.now_s + round_.duration_s if end_s is None else end_s
    rows = allocation.job
    rate = planned_rate_per_s(round_, allocation)
    before = jobs.previous_type[rows]
    moves = (before >= 0) & (before != allocation.gpu_type)
    stall = np.where(moves, law.switch_s(jobs.state_gb[rows], jobs.restart_s[rows]), 0.0)
    held = np.minimum(end, allocation.lease_end_s) - round_.now_s
    left = np.maximum(jobs.work[rows] - jobs.work_done[rows], 0.0)
    done = np.minimum(rate * np.maximum(held - stall, 0.0), left)
    needed = np.full(rows.size, np.inf)
    np.divide(left, rate, out=needed, where=rate > 0)
    work, gpu_s, finished = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.bool_)
    work[rows] = done
    gpu_s[rows] = allocation.gpus * np.minimum(held, stall + needed)
    finished[rows] = (done >= left) & (rate > 0)
    work[allocation.lost_job] -= allocation.lost_work
    return Outcome(round_.now_s, end, work, gpu_s, finished, assumed=True)
