"""Jobs that are alike planned as one: classes, and the columns that count their options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.formulations.training.leases.lease_jobs import LeaseJobs, usable_before
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Classes, identical_rows


@dataclass(frozen=True, eq=False)
class LeaseClasses:
    """Classes of jobs, and a column for every option that a class can still meet.

    Parameters
    ----------
    capacity
        GPUs of each lease, shape (T,).
    groups
        Which job is in which class.
    count, keep
        Jobs of each class, and whether all of them must be in the plan, shape (classes,).
    of_class
        Class of each column, rising, shape (columns,).
    gang, need, due, value
        Of each column, shape (columns,); ``due`` is cut at the horizon.
    option
        Place of the column's option among those of its jobs, shape (columns,).
    """

    capacity: Ints
    groups: Classes
    count: Ints
    keep: Bools
    of_class: Ints
    gang: Ints
    need: Ints
    due: Ints
    value: Floats
    option: Ints

    @property
    def column_count(self) -> int:
        """Number of columns."""
        return self.of_class.size

    @cached_property
    def limit(self) -> Ints:
        """Jobs of the column's class, shape (columns,)."""
        return self.count[self.of_class]

    @cached_property
    def starts(self) -> Ints:
        """First column of every class that has one, rising."""
        return np.flatnonzero(np.diff(self.of_class, prepend=-1)).astype(np.int64)

    @cached_property
    def group(self) -> Ints:
        """Number of the column's class among those that have columns, shape (columns,)."""
        return np.cumsum(np.diff(self.of_class, prepend=-1) > 0) - 1

    @cached_property
    def several(self) -> Bools:
        """Columns whose class has more than one, shape (columns,)."""
        return np.bincount(self.group, minlength=self.starts.size)[self.group] > 1

    @cached_property
    def last(self) -> Bools:
        """Whether a column is the latest option of its class, shape (columns,)."""
        return np.diff(self.of_class, append=self.groups.count.size) > 0

    @cached_property
    def hopeless(self) -> Bools:
        """Classes that must be in the plan and have no option left, shape (classes,)."""
        return self.keep & (np.bincount(self.of_class, minlength=self.count.size) == 0)


def lease_classes(
    jobs: LeaseJobs, capacity: Ints, keep: Bools | None = None, *, each: bool = False
) -> LeaseClasses:
    """Group identical jobs, and leave out options that nobody could meet.

    An option is left out where the leases before it in which the gang fits are fewer than the job
    needs, and where the horizon cuts it to the length of an earlier one.

    Parameters
    ----------
    jobs
        The jobs.
    capacity
        GPUs of each lease, shape (T,).
    keep
        Jobs that must be in the plan, shape (n,).
    each
        True: every job is a class of its own.
    """
    kept = np.zeros(len(jobs), dtype=np.bool_) if keep is None else keep
    groups = _alone(len(jobs)) if each or not len(jobs) else _groups(jobs, capacity.size, kept)
    first = groups.first
    options = np.diff(jobs.option_offsets)[first]
    of_class = np.repeat(np.arange(first.size, dtype=np.int64), options)
    local = np.arange(of_class.size) - np.repeat(np.cumsum(options) - options, options)
    flat = jobs.option_offsets[first][of_class] + local
    due = np.clip(jobs.due[flat], 0, capacity.size)
    gang, need = jobs.gang[first][of_class], jobs.need[first][of_class]
    gangs, kind = np.unique(gang, return_inverse=True)
    good = usable_before(gangs, capacity)[kind, due] >= need
    good &= (local == 0) | (due > np.roll(due, 1))
    return LeaseClasses(
        capacity, groups, groups.count, kept[first], of_class[good], gang[good], need[good],
        due[good], jobs.value[flat][good], local[good],
    )  # fmt: skip


def _alone(count: int) -> Classes:
    rows = np.arange(count, dtype=np.int64)
    return Classes(rows, rows, np.ones(count, dtype=np.int64))


def _groups(jobs: LeaseJobs, horizon: int, keep: Bools) -> Classes:
    options = np.diff(jobs.option_offsets)
    due, value = np.clip(jobs.due, 0, horizon).astype(np.float64), jobs.value
    if int(options.max()) > 1:
        place = np.arange(due.size) - jobs.option_offsets[jobs.job_of_option]
        tables = np.full((2, len(jobs), int(options.max())), -1.0)
        tables[0, jobs.job_of_option, place] = due
        tables[1, jobs.job_of_option, place] = value
        due, value = tables
    return identical_rows(jobs.gang, jobs.need, keep.astype(np.float64), due, value)


def spread(classes: LeaseClasses, y: Ints, leases: Ints) -> tuple[Ints, Ints, Ints]:
    """Turn counts of classes into leases of jobs.

    The leases of a column are handed out in order of time to its jobs in turn. A lease's slots are
    at most as many as the jobs, so that no job gets one twice; ``need * y`` slots in all give each
    job ``need`` of them.

    Parameters
    ----------
    classes
        The classes.
    y
        Jobs of each column in the plan, shape (columns,).
    leases
        Jobs of each column that run in each lease, at most ``y``, shape (columns, T).

    Returns
    -------
    Option of each job, -1 for none, shape (n,); offsets, shape (n + 1,); leases of each job,
    rising, shape (offsets[-1],).
    """
    n = classes.groups.of_row.size
    members = np.argsort(classes.groups.of_row, kind="stable")
    first_member = np.cumsum(classes.count) - classes.count
    before = np.cumsum(y) - y
    begin = first_member[classes.of_class] + before - before[classes.starts][classes.group]
    option = np.full(n, -1, dtype=np.int64)
    place = np.arange(int(y.sum())) - np.repeat(before, y)
    option[members[np.repeat(begin, y) + place]] = np.repeat(classes.option, y)
    column, time = np.nonzero(leases)
    slots = leases[column, time]
    column, time = np.repeat(column, slots), np.repeat(time, slots)
    total = leases.sum(axis=1)
    turn = (np.arange(column.size) - (np.cumsum(total) - total)[column]) % np.maximum(1, y[column])
    job = members[begin[column] + turn]
    order = np.argsort(job, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(job, minlength=n))))
    return option, offsets.astype(np.int64), time[order].astype(np.int64)
