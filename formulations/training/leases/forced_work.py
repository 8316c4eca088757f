"""Forced work: rows on who is admitted that need no variable per lease.

A job that needs n leases before D and finds only b of them outside a set of leases must run n - b
leases inside it. The GPUs that all admitted jobs are forced to use inside a set cannot exceed
those that are there. Without the packing of gangs inside a lease these rows, one for each set, are
all there is (max flow and min cut); with it they are a bound. Where capacity never falls, the sets
that matter are the first k leases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.leases.lease_jobs import usable_before
from apportion.instances.columns import Bools, Floats, Ints

VIOLATED = 1e-6
"""Excess over a row, in GPUs and relative to the capacity, that counts: LP points are so exact."""


@dataclass(frozen=True, eq=False)
class ForcedWork:
    """Rows ``coefficient @ y <= side``.

    Parameters
    ----------
    sets
        Leases that each row is about, shape (rows, T).
    coefficient
        GPUs that a job of each column is forced to use inside, shape (rows, columns).
    side
        GPUs inside, shape (rows,).
    """

    sets: Bools
    coefficient: Floats
    side: Floats


def packed(gang: Ints, capacity: Ints) -> Ints:
    """GPUs of each lease that gangs of these sizes can use, shape (T,).

    Sums of gangs are multiples of their greatest common divisor; with one size of gang this makes
    the rows exact.
    """
    unit = int(np.gcd.reduce(gang)) if gang.size else 1
    return capacity - capacity % unit


def forced_work(gang: Ints, need: Ints, due: Ints, capacity: Ints, sets: Bools) -> ForcedWork:
    """Write the rows of some sets of leases.

    Parameters
    ----------
    gang, need, due
        Of each column, shape (columns,); ``need`` leases before ``due`` in which the gang fits
        must exist.
    capacity
        GPUs of each lease, shape (T,).
    sets
        Shape (rows, T).
    """
    coefficient = np.empty((sets.shape[0], gang.size))
    for size in np.unique(gang):
        columns = np.flatnonzero(gang == size)
        outside = np.zeros((sets.shape[0], capacity.size + 1), dtype=np.int64)
        np.cumsum(~sets & (capacity >= size), axis=1, out=outside[:, 1:])
        inside = need[columns] - outside[:, due[columns]]
        coefficient[:, columns] = size * np.maximum(inside, 0)
    side = sets @ packed(gang, capacity).astype(np.float64)
    return ForcedWork(sets, coefficient, side)


def prefixes(horizon: int) -> Bools:
    """Sets of the first k leases for k from 1 to the horizon, shape (T, T)."""
    return np.tri(horizon, dtype=np.bool_)


def rising(capacity: Ints) -> bool:
    """Whether capacity never falls, so that the first k leases are all the sets there are."""
    return bool((np.diff(capacity) >= 0).all())


def tightest_set(
    gang: Ints, need: Ints, due: Ints, count: Floats | Ints, capacity: Ints
) -> tuple[float, Bools]:
    """Find the set of leases with the least room left by its forced work.

    What a set forces depends only on how many leases before each deadline are outside, so that a
    walk over the leases that remembers this number finds the best of all sets: T * T steps.

    Parameters
    ----------
    gang, need, due, count
        Of each column, shape (columns,); counts may be fractions.
    capacity
        GPUs of each lease, shape (T,).

    Returns
    -------
    GPUs left inside, negative where the row is violated, and the set, shape (T,).
    """
    horizon = capacity.size
    work = np.zeros((horizon + 1, horizon + 1))
    np.add.at(work, (due, need), gang * np.asarray(count, dtype=np.float64))
    steps = np.arange(horizon + 1)
    forced = work @ np.maximum(steps[:, None] - steps[None, :], 0)
    room = np.full(horizon + 1, np.inf)
    room[0] = -forced[0, 0]
    left_out = np.zeros((horizon, horizon + 1), dtype=np.bool_)
    for lease in range(horizon):
        inside = room + capacity[lease]
        outside = np.concatenate(([np.inf], room[:-1]))
        left_out[lease] = outside < inside
        room = np.where(left_out[lease], outside, inside) - forced[lease + 1]
    outside_count = int(np.argmin(room))
    least, chosen = float(room[outside_count]), np.zeros(horizon, dtype=np.bool_)
    for lease in range(horizon - 1, -1, -1):
        chosen[lease] = not left_out[lease, outside_count]
        outside_count -= int(left_out[lease, outside_count])
    return least, chosen


def refuted(gang: Ints, need: Ints, due: Ints, count: Ints, capacity: Ints) -> bool:
    """Whether forced work proves that not all of these jobs can be done.

    Parameters
    ----------
    gang, need, due, count
        Of each column, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    """
    if not gang.size:
        return False
    due = np.clip(due, 0, capacity.size)
    gangs, kind = np.unique(gang, return_inverse=True)
    if (usable_before(gangs, capacity)[kind, due] < need).any():
        return True
    if (
        _least_use(gang, need, due, count, capacity.size) > np.cumsum(packed(gang, capacity))
    ).any():
        return True
    if int(gang.max()) > int(capacity.min()):
        # gangs have fewer leases than their windows are long
        rows = forced_work(gang, need, due, capacity, prefixes(capacity.size))
        if (rows.coefficient @ count > rows.side).any():
            return True
    if rising(capacity):
        return False
    _, chosen = tightest_set(gang, need, due, count, packed(gang, capacity))
    row = forced_work(gang, need, due, capacity, chosen[None, :])
    return bool((row.coefficient @ count > row.side).any())


def _least_use(gang: Ints, need: Ints, due: Ints, count: Ints, horizon: int) -> Ints:
    """GPUs that all jobs together are forced to use in the first k leases, k from 1, shape (T,)."""
    # the least use is that of running as late as possible, from due - need to due
    change = np.zeros(horizon + 1, dtype=np.int64)
    np.add.at(change, due - need, gang * count)
    np.subtract.at(change, due, gang * count)
    return np.cumsum(np.cumsum(change[:-1]))
