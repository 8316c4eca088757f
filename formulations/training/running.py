"""Where jobs run fastest, and where running ones stay: what plain orders have in common."""

from __future__ import annotations

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound


def fastest(round_: TrainingRound, rows: Ints | None = None) -> Floats:
    """Score jobs on each type: the fastest first, at equal speed the last one.

    Parameters
    ----------
    round_
        The round.
    rows
        Jobs to score; None: all.

    Returns
    -------
    Floats
        Lower is better, infinite where a job cannot run, shape (rows, k).
    """
    jobs = round_.jobs
    eligible, speed, kinds = round_.eligible, jobs.throughput_per_s, jobs.previous_type
    if rows is not None:
        eligible, speed, kinds = eligible[rows], speed[rows], kinds[rows]
    score = np.where(eligible, -speed, np.inf)
    if score.shape[1] > 1:
        # a type can be lost to a job: its nodes failed, its speed is now reported as zero
        at = np.flatnonzero(kinds >= 0)
        at = at[np.isfinite(score[at, kinds[at]])]
        score[at, kinds[at]] = np.nextafter(score[at, kinds[at]], -np.inf)
    return score


def going_on(
    round_: TrainingRound, held: Pinned, wish: Bools | None = None, *, any_gpus: bool = False
) -> Ints:
    """Type on which running jobs stay, ``NOWHERE`` for all others, shape (n,).

    A job stops where its type can no longer serve it, and where a reservation that has begun takes
    the GPUs: then the youngest first.

    Parameters
    ----------
    round_, held
        The round and its pinned leases.
    wish
        Jobs that are to keep their GPUs, shape (n,); None: all that run.
    any_gpus
        True: a job may go on with another number of GPUs than its gang. False: it stops.
    """
    jobs, k = round_.jobs, held.free.size
    wanted = jobs.running if wish is None else wish & jobs.running
    rows = (wanted & held.open & ~round_.stranded).nonzero()[0]
    kinds = jobs.previous_type[rows]
    able = jobs.throughput_per_s[rows, kinds] > 0
    if round_.cluster.tracks_gpu_memory:
        able &= jobs.gpu_memory_gib[rows] <= round_.cluster.type_memory_gib[kinds]
    if not any_gpus:
        able &= jobs.held_gpus[rows] == jobs.gang[rows]
    if np.count_nonzero(able) < rows.size:
        rows, kinds = rows[able], kinds[able]
    used = np.bincount(kinds, weights=jobs.held_gpus[rows], minlength=k)
    if (used > held.free).any():
        order = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows]))]
        score = np.full((len(jobs), k), np.inf)
        score[rows, kinds] = 0.0
        return fill(order, score, jobs.held_gpus, held.free)
    out = np.full(len(jobs), NOWHERE, dtype=np.int64)
    out[rows] = kinds
    return out
