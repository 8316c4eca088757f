"""What schedulers of deadlines read off a round: who can still be in time, and on how many GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Floats, Ints
from apportion.instances.training import TrainingRound

ROUNDING = 1e-9
"""Part of a run's length by which it may pass its deadline: work over speed is not exact."""


@dataclass(frozen=True, eq=False)
class Choices:
    """GPU counts and types that jobs may run on, in order of job, type and count.

    Parameters
    ----------
    job
        Row of the round's jobs, shape (c,).
    kind, gpus
        GPU type and number of GPUs, shape (c,).
    rate
        Work units a second, positive, shape (c,).
    """

    job: Ints
    kind: Ints
    gpus: Ints
    rate: Floats

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """First choice of each of some jobs, and one behind its last."""
        return np.searchsorted(self.job, rows), np.searchsorted(self.job, rows, side="right")


def choices_of(round_: TrainingRound) -> Choices:
    """Read gangs and listed configurations of the jobs that could start in this round.

    A gang runs on each type with a throughput; another number of GPUs needs a configuration, between
    the job's least and most GPUs. A job without configurations is rigid. Configurations that do
    not fit the cluster, or make no progress, are left out.
    """
    jobs, k = round_.jobs, round_.cluster.types.size
    row, kind = np.nonzero(round_.eligible)
    rate = jobs.throughput_per_s.reshape(len(jobs), k)[row, kind]
    gangs = Choices(row, kind, jobs.gang[row], rate)
    if not jobs.config_gpus.size:
        return gangs
    more = _listed(round_)
    job = np.concatenate((gangs.job, more.job))
    kind = np.concatenate((gangs.kind, more.kind))
    gpus = np.concatenate((gangs.gpus, more.gpus))
    rate = np.concatenate((gangs.rate, more.rate))
    order = np.lexsort((-rate, gpus, kind, job))
    job, kind, gpus, rate = job[order], kind[order], gpus[order], rate[order]
    # a configuration that is listed twice runs at the larger of its speeds
    first = np.ones(job.size, dtype=np.bool_)
    first[1:] = (np.diff(job) > 0) | (np.diff(kind) != 0) | (np.diff(gpus) > 0)
    return Choices(job[first], kind[first], gpus[first], rate[first])


def _listed(round_: TrainingRound) -> Choices:
    """Configurations that may be used beside the gangs."""
    jobs, cluster = round_.jobs, round_.cluster
    row = np.repeat(np.arange(len(jobs)), np.diff(jobs.config_offsets))
    kind, gpus = jobs.config_type.astype(np.int64), jobs.config_gpus.astype(np.int64)
    good = (jobs.config_throughput_per_s > 0) & (gpus == jobs.config_gpus)
    good &= (gpus >= jobs.min_gpus[row]) & (gpus <= jobs.max_gpus[row])
    good &= (gpus <= round_.capacity[kind]) & round_.startable[row]
    # the gang's own throughput is what holds for it
    good &= (gpus != jobs.gang[row]) | (jobs.throughput_per_s[row, kind] <= 0)
    if cluster.tracks_gpu_memory:
        good &= jobs.gpu_memory_gib[row] <= cluster.type_memory_gib[kind]
    return Choices(row[good], kind[good], gpus[good], jobs.config_throughput_per_s[good])


def work_left(round_: TrainingRound) -> Floats:
    """Reported work that is not done, shape (n,)."""
    return np.maximum(round_.jobs.work - round_.jobs.work_done, 0.0)


def least_time(round_: TrainingRound, choices: Choices) -> Floats:
    """Seconds that the work left takes at each job's best speed, infinite without one, shape (n,)."""
    best = np.zeros(len(round_.jobs))
    np.maximum.at(best, choices.job, choices.rate)
    out = np.full(best.size, np.inf)
    return np.divide(work_left(round_), best, out=out, where=best > 0.0)


def due_times(round_: TrainingRound, left_s: Floats, *, last: bool = False) -> Floats:
    """Next deadline that each SLO job can still meet, infinite for all other jobs, shape (n,).

    A deadline can be met if it lies ahead, earns something, and the work left fits before it at the
    job's best speed. An SLO job that can meet none has missed: it counts as best effort.

    Parameters
    ----------
    round_
        The round.
    left_s
        Least time that each job still takes, shape (n,).
    last
        True: the last such deadline instead of the next one.
    """
    jobs = round_.jobs
    out = np.full(len(jobs), np.inf)
    if not jobs.deadline_s.size:
        return out
    row = np.repeat(np.arange(len(jobs)), np.diff(jobs.deadline_offsets))
    at_s = jobs.deadline_s
    good = jobs.slo[row] & (at_s > round_.now_s) & (jobs.deadline_value > 0)
    good &= in_time(round_.now_s + left_s[row], at_s, left_s[row])
    entry = np.flatnonzero(good)
    # deadlines rise within a job: of several entries the one that is written last stays
    entry = entry if last else entry[::-1]
    out[row[entry]] = at_s[entry]
    return out


def in_time(end_s: Floats, due_s: Floats, length_s: Floats) -> np.ndarray:
    """Whether runs of some length end by a deadline, as far as floating point can tell."""
    most = np.where(np.isfinite(length_s), length_s, 0.0)
    return end_s <= due_s + ROUNDING * most + 4.0 * np.spacing(np.abs(due_s))


def keep_on(round_: TrainingRound, held: Pinned, choices: Choices, order: Ints) -> Ints:
    """Type on which running jobs stay with the GPUs they hold, ``NOWHERE`` for all others.

    A job stops where what it holds can no longer serve it, and where a reservation that has begun
    takes the GPUs: then the last in ``order``, which holds all rows.
    """
    jobs, k = round_.jobs, held.free.size
    able = np.full((len(jobs), k), np.inf)
    same = (choices.gpus == jobs.held_gpus[choices.job]) & (
        choices.kind == jobs.previous_type[choices.job]
    )
    able[choices.job[same], choices.kind[same]] = 0.0
    on = jobs.running & held.open & ~round_.stranded & np.isfinite(able).any(axis=1)
    rows = order[on[order]]
    out = np.full(len(jobs), NOWHERE, dtype=np.int64)
    out[rows] = jobs.previous_type[rows]
    if (on_types(out, jobs.held_gpus, k) > held.free).any():
        return fill(rows, able, jobs.held_gpus, held.free)
    return out


def on_types(kinds: Ints, gpus: Ints, k: int) -> Ints:
    """Add up the GPUs of each type that jobs use, shape (k,)."""
    on = kinds >= 0
    return np.bincount(kinds[on], weights=gpus[on], minlength=k).astype(np.int64)
