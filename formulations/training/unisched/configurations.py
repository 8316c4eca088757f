"""Configurations of the jobs of a round: GPUs of a type, speed, and what a restart costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound


@dataclass(frozen=True, eq=False)
class Configurations:
    """Ways to run the jobs of a round, by rows of the jobs; nothing that could never run.

    Attributes
    ----------
    offsets
        Those of job j are ``offsets[j]`` to ``offsets[j + 1]``, shape (n + 1,).
    job, gpu_type, gpus
        Of each configuration, ordered by job, type and GPUs, shape (c,).
    speed
        Work units a second, shape (c,).
    runs
        Whether the job runs so now, shape (c,).
    restart_s
        Seconds that a start of it costs, shape (c,).
    """

    offsets: Ints
    job: Ints
    gpu_type: Ints
    gpus: Ints
    speed: Floats
    runs: Bools
    restart_s: Floats

    @classmethod
    def of(cls, round_: TrainingRound, restart_s: float) -> Configurations:
        """List the gangs on each type, and the further configurations within the jobs' bounds.

        Parameters
        ----------
        round_
            The round.
        restart_s
            A start on g GPUs costs ``restart_s * (1 + log2 g)`` seconds, or what the job says if
            that is more.
        """
        jobs, k = round_.jobs, round_.cluster.types.size
        job, kind, gpus, speed = _listed(round_)
        # of two entries for the same GPUs the faster one is meant, as wherever tables are read
        order = np.lexsort((-speed, gpus, kind, job))
        same = (np.diff(job[order]) == 0) & (np.diff(kind[order]) == 0)
        same &= np.diff(gpus[order]) == 0
        order = np.delete(order, np.flatnonzero(same) + 1)
        job, kind, gpus, speed = job[order], kind[order], gpus[order], speed[order]
        counts = np.bincount(job, minlength=len(jobs)) if k else np.zeros(len(jobs), dtype=np.int64)
        on = jobs.running & ~round_.stranded
        runs = on[job] & (jobs.previous_type[job] == kind) & (jobs.held_gpus[job] == gpus)
        cost = np.maximum(restart_s * (1.0 + np.log2(gpus)), jobs.restart_s[job])
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return cls(offsets, job, kind, gpus, speed, runs, cost)


def _listed(round_: TrainingRound) -> tuple[Ints, Ints, Ints, Floats]:
    jobs = round_.jobs
    row, own_kind = np.nonzero(round_.eligible)
    own_gpus, own_speed = jobs.gang[row], jobs.throughput_per_s[row, own_kind]
    of = np.repeat(np.arange(len(jobs)), np.diff(jobs.config_offsets))
    kind, gpus = jobs.config_type.astype(np.int64), jobs.config_gpus.astype(np.int64)
    speed = jobs.config_throughput_per_s
    good = (speed > 0) & (gpus == jobs.config_gpus)
    if of.size:
        good &= gpus <= round_.capacity[kind]
        inside = (gpus >= jobs.min_gpus[of]) & (gpus <= jobs.max_gpus[of])
        # the gang's own speed is the column's, if it has one
        told = jobs.throughput_per_s[of, kind] > 0
        good &= np.where(gpus == jobs.gang[of], ~told, inside)
        if round_.cluster.tracks_gpu_memory:
            good &= jobs.gpu_memory_gib[of] <= round_.cluster.type_memory_gib[kind]
    return (
        np.concatenate((row, of[good])).astype(np.int64),
        np.concatenate((own_kind, kind[good])).astype(np.int64),
        np.concatenate((own_gpus, gpus[good])).astype(np.int64),
        np.concatenate((own_speed, speed[good])),
    )


def taken(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Entries of some rows of a ragged table: new offsets, and the entries in order."""
    counts = np.diff(offsets)[rows]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    pick = np.arange(int(starts[-1])) + np.repeat(offsets[rows] - starts[:-1], counts)
    return starts, pick.astype(np.int64)
