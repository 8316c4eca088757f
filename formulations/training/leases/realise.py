"""From admitted counts to leases: least laxity first, or backwards from the last lease.

Both walk the leases once and give each to the jobs with the least laxity, larger gangs first,
passing over what does not fit. A column is two groups of equal jobs, those that had one lease less
and those that had one more, so that a walk costs by columns and not by jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.leases.forced_work import rising
from apportion.formulations.training.leases.lease_jobs import usable_before
from apportion.instances.columns import Bools, Floats, Ints

MOST_WALKS = 8
"""Walks after which shedding jobs and trying again is given up; one or two are usual."""


@dataclass(frozen=True, eq=False)
class LeaseColumns:
    """Columns of equal jobs to be laid into leases, all of shape (columns,).

    Parameters
    ----------
    gang, need, due
        Of each column; ``due`` within the horizon.
    keep
        Jobs that are shed last.
    value
        What a job of the column earns; the least per GPU and lease is shed first.
    """

    gang: Ints
    need: Ints
    due: Ints
    keep: Bools
    value: Floats

    @classmethod
    def of(cls, gang: Ints, need: Ints, due: Ints) -> LeaseColumns:
        """Columns that are all worth the same."""
        return cls(gang, need, due, np.zeros(gang.size, dtype=np.bool_), np.ones(gang.size))

    def some(self, rows: Ints) -> LeaseColumns:
        """Give some of the columns."""
        return LeaseColumns(
            self.gang[rows], self.need[rows], self.due[rows], self.keep[rows], self.value[rows]
        )


@dataclass(frozen=True, eq=False)
class Realised:
    """Leases of the jobs that could be laid.

    Attributes
    ----------
    y
        Jobs of each column with all their leases, shape (columns,).
    leases
        Jobs of each column in each lease, shape (columns, T).
    """

    y: Ints
    leases: Ints

    def use(self, gang: Ints) -> Ints:
        """GPUs in use in each lease, shape (T,)."""
        return gang @ self.leases


def realise(columns: LeaseColumns, y: Ints, capacity: Ints, *, late: bool = False) -> Realised:
    """Lay jobs into leases, and shed those that do not fit.

    For one size of gang nothing is shed where all fit: least laxity first is exact for capacity
    that never falls, the walk backwards for any. With several sizes both may shed jobs for which
    there was room.

    Parameters
    ----------
    columns
        The columns.
    y
        Jobs of each column to be laid, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    late
        Whether to walk backwards first, which leaves early leases free; so it is anyhow where
        capacity falls.
    """
    rows = np.flatnonzero(y)
    active, wanted = columns.some(rows), y[rows]
    best: Realised | None = None
    for backwards in (False, True) if rising(capacity) and not late else (True, False):
        found = _retried(active, wanted, capacity, backwards)
        if best is None or _worth(active, found) > _worth(active, best):
            best = found
        if (best.y == wanted).all():
            break
    assert best is not None
    done, leases = np.zeros_like(y), np.zeros((y.size, capacity.size), dtype=np.int64)
    done[rows], leases[rows] = best.y, best.leases
    return Realised(done, leases)


def _worth(columns: LeaseColumns, found: Realised) -> tuple[int, float]:
    return int(found.y[columns.keep].sum()), float(found.y @ columns.value)


def _retried(columns: LeaseColumns, y: Ints, capacity: Ints, backwards: bool) -> Realised:
    """Walk, and walk again without the jobs that were shed; the rest goes in one by one."""
    for _ in range(MOST_WALKS):
        found, shed = walk(columns, y, capacity, backwards)
        if not shed.any():
            return found
        y = y - shed
    nothing = Realised(np.zeros_like(y), np.zeros((y.size, capacity.size), dtype=np.int64))
    return laid_late(columns, nothing, y, capacity)


def walk(columns: LeaseColumns, y: Ints, capacity: Ints, backwards: bool) -> tuple[Realised, Ints]:
    """Walk over the leases once.

    Parameters
    ----------
    columns
        The columns.
    y
        Jobs of each, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    backwards
        False: least laxity first, from the first lease on; exact for one size of gang and capacity
        that never falls. True: largest remaining need first, from the last lease back, so that all
        jobs that may still run have the same leases ahead; exact for one size of gang.

    Returns
    -------
    The leases, and the jobs that had to be shed, shape (columns,). The leases are of use only
    where nothing was shed.
    """
    horizon, count = capacity.size, y.copy()
    gangs, kind = np.unique(columns.gang, return_inverse=True)
    fits = usable_before(gangs, capacity)
    # at or past its deadline a job finds no lease, however many lie ahead of it
    until = fits[kind, np.minimum(columns.due, horizon)]
    given, shed = np.zeros_like(y), np.zeros_like(y)
    leases = np.zeros((y.size, horizon), dtype=np.int64)
    for lease in range(horizon - 1, -1, -1) if backwards else range(horizon):
        ahead = fits[kind, lease + 1] if backwards else until - fits[kind, lease]
        open_here = (columns.due > lease) & (columns.gang <= capacity[lease])
        rows = np.flatnonzero(open_here & (given < columns.need * count))
        if not rows.size:
            continue
        whole, part = np.divmod(given[rows], count[rows])
        remaining = np.concatenate((columns.need[rows] - whole, columns.need[rows] - whole - 1))
        number = np.concatenate((count[rows] - part, part))
        both = np.concatenate((rows, rows))
        laxity = ahead[both] - remaining
        gang = columns.gang[both]
        open_ = np.flatnonzero((remaining > 0) & (number > 0))
        gone, lost = _to_shed(columns, both, laxity, number, gang, int(capacity[lease]))
        if lost.size:
            np.add.at(shed, both[gone], lost)
            np.subtract.at(count, both[gone], lost)
            np.subtract.at(given, both[gone], lost * (columns.need[both[gone]] - remaining[gone]))
            number[gone] -= lost
            open_ = open_[number[open_] > 0]
        order = open_[np.lexsort((-gang[open_], laxity[open_]))]
        taken = _taken(gang[order], number[order], int(capacity[lease]))
        np.add.at(leases[:, lease], both[order], taken)
        np.add.at(given, both[order], taken)
    missing = -(-(columns.need * count - given) // columns.need)
    return Realised(count, leases), shed + missing


def _to_shed(
    columns: LeaseColumns, both: Ints, laxity: Ints, number: Ints, gang: Ints, capacity: int
) -> tuple[Ints, Ints]:
    """Groups that cannot be finished any more, and how many jobs of each to give up."""
    late = np.flatnonzero((laxity < 0) & (number > 0))
    forced = np.flatnonzero((laxity == 0) & (number > 0))
    excess = int(gang[forced] @ number[forced]) - capacity
    if excess <= 0:
        return late, number[late]
    row = both[forced]
    rate = columns.value[row] / (columns.gang[row] * columns.need[row])
    order = forced[np.lexsort((rate, columns.keep[row]))]
    before = np.cumsum(gang[order] * number[order]) - gang[order] * number[order]
    lost = np.clip(-(-(excess - before) // gang[order]), 0, number[order])
    return np.concatenate((late, order)), np.concatenate((number[late], lost))


def _taken(gang: Ints, number: Ints, free: int) -> Ints:
    """Take groups in order as far as GPUs go, passing over gangs that are too large."""
    taken = np.zeros_like(number)
    left = np.arange(gang.size)
    while left.size and free > 0:
        ends = np.cumsum(gang[left] * number[left])
        full = int(np.searchsorted(ends, free, side="right"))
        taken[left[:full]] = number[left[:full]]
        free -= int(ends[full - 1]) if full else 0
        left = left[full:]
        if left.size:
            some = free // int(gang[left[0]])
            taken[left[0]] = some
            free -= some * int(gang[left[0]])
            left = left[1:]
            left = left[gang[left] <= free]
    return taken


def laid_late(
    columns: LeaseColumns, plan: Realised, limit: Ints, capacity: Ints, order: Ints | None = None
) -> Realised:
    """Add jobs column by column to a plan, each into the latest leases that are free.

    Parameters
    ----------
    columns
        The columns.
    plan
        What is laid already.
    limit
        Most jobs of each column in the plan afterwards, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    order
        Columns to try, first ones first; by default those to keep, then by value per GPU and
        lease, then by slack.
    """
    free = capacity - plan.use(columns.gang)
    y, leases = plan.y.copy(), plan.leases.copy()
    if order is None:
        rate = columns.value / (columns.gang * columns.need)
        order = np.lexsort((columns.due - columns.need, -rate, ~columns.keep))
    gangs, kind = np.unique(columns.gang, return_inverse=True)
    enough = usable_before(gangs, free)[kind, columns.due] >= columns.need
    for column in order[((limit > plan.y) & enough)[order]].tolist():
        due, gang = int(columns.due[column]), int(columns.gang[column])
        slots = free[:due] // gang
        need, most = int(columns.need[column]), int(limit[column] - plan.y[column])
        fit = _most_that_fit(slots, need, most)
        if fit == 0:
            continue
        use = np.minimum(slots, fit)
        # what is too much is dropped from the earliest leases
        use -= np.clip(use.sum() - need * fit - (np.cumsum(use) - use), 0, use)
        y[column] += fit
        leases[column, :due] += use
        free[:due] -= gang * use
    return Realised(y, leases)


def _most_that_fit(slots: Ints, need: int, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(slots, middle).sum()) >= need * middle:
            low = middle
        else:
            high = middle - 1
    return low
