"""Jobs that keep the GPUs they hold: what policies without preemption leave alone."""

from __future__ import annotations

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools, Ints
from apportion.instances.training import TrainingRound


def staying(round_: TrainingRound, held: Pinned, wanted: Bools) -> Ints:
    """Type on which each wanted running job goes on, ``NOWHERE`` for all others, shape (n,).

    A job stops where its type can no longer serve it, and where a reservation that has begun takes
    the GPUs: then the youngest first.

    Parameters
    ----------
    round_
        The round.
    held
        Leases that go on whatever is decided.
    wanted
        Jobs that would go on, shape (n,).
    """
    jobs, k = round_.jobs, held.free.size
    rows = np.flatnonzero(wanted & jobs.running & held.open & ~round_.stranded)
    kinds = jobs.previous_type[rows]
    able = (jobs.throughput_per_s[rows, kinds] > 0) & (jobs.held_gpus[rows] == jobs.gang[rows])
    if round_.cluster.tracks_gpu_memory:
        able &= jobs.gpu_memory_gib[rows] <= round_.cluster.type_memory_gib[kinds]
    rows, kinds = rows[able], kinds[able]
    used = np.bincount(kinds, weights=jobs.gang[rows], minlength=k)
    if (used > held.free).any():
        order = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows]))]
        score = np.full((len(jobs), k), np.inf)
        score[rows, kinds] = 0.0
        return fill(order, score, jobs.gang, held.free)
    out = np.full(len(jobs), NOWHERE, dtype=np.int64)
    out[rows] = kinds
    return out


def free_beside(free: Ints, kinds: Ints, gang: Ints) -> Ints:
    """GPUs of each type that are left beside jobs on types ``kinds`` (``NOWHERE`` = none)."""
    on = np.flatnonzero(kinds >= 0)
    used = np.bincount(kinds[on], weights=gang[on], minlength=free.size)
    return free - used.astype(np.int64)
