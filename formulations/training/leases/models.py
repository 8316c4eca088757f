"""The exact models: a variable for every lease, of each class of jobs or of each job."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from apportion.formulations.training.leases.lease_classes import LeaseClasses, lease_classes
from apportion.formulations.training.leases.lease_jobs import LeaseJobs
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Model, ModelBuilder

Goal: TypeAlias = Literal["admitted", "value"]
"""What is maximised: the number of jobs in the plan, or what they earn."""

Sigma: TypeAlias = Literal[-1, 0, 1]
"""GPUs in use in lease 0: as few as possible, no matter, as many as possible."""


def weight_of(classes: LeaseClasses, goal: Goal) -> Floats:
    """What a job of each column adds to a goal, shape (columns,)."""
    return classes.value if goal == "value" else np.ones(classes.column_count)


def class_model(
    classes: LeaseClasses,
    *,
    order: tuple[Goal, ...] = ("value",),
    sigma: Sigma = 0,
    fixed: Ints | None = None,
    within: tuple[Ints, Ints, Ints] | None = None,
) -> Model:
    """Count jobs of each class: who is admitted, and how many run in each lease.

    ``sum_t X[c, t] = need_c Y[c]``; ``X[c, t] <= Y[c]``, since a job runs once a lease;
    ``sum_c gang_c X[c, t] <= C_t``. With a class for every job it is the job-indexed model.

    Parameters
    ----------
    classes
        The classes and their columns.
    order
        Goals, the most important first.
    sigma
        1 or -1: the GPUs in use in lease 0 are the last goal, to be many or few.
    fixed
        Jobs of each column that are in the plan, shape (columns,); None to choose.
    within
        Least and most of each column, shape (columns,), and least of each group of options of a
        class, shape (groups,); by default what jobs there are and which must be in.
    """
    builder = ModelBuilder("leases")
    column, time = _slots(classes)
    low, high, least = _open_to_all(classes) if within is None else within
    if fixed is not None:
        low = high = fixed
    y = builder.columns("admitted", classes.column_count, lower=low, upper=high, integer=True)
    room = classes.capacity[time] // classes.gang[column]
    x = builder.columns("running", column.size, upper=np.minimum(high[column], room), integer=True)
    all_columns = np.arange(classes.column_count)
    builder.rows(
        "whole", classes.column_count, lower=0.0, upper=0.0,
        row=np.concatenate((column, all_columns)), column=np.concatenate((x, y)),
        value=np.concatenate((np.ones(column.size), -classes.need.astype(np.float64))),
    )  # fmt: skip
    # a job with one lease has it once whatever the row says
    more = np.flatnonzero(classes.need[column] > 1)
    row = np.arange(more.size)
    builder.rows(
        "once", more.size, upper=0.0,
        row=np.concatenate((row, row)), column=np.concatenate((x[more], y[column[more]])),
        value=np.repeat([1.0, -1.0], more.size),
    )  # fmt: skip
    builder.rows(
        "one_option", classes.starts.size, row=classes.group, column=y, value=1.0,
        lower=least,
        upper=classes.limit[classes.starts],
    )  # fmt: skip
    builder.rows(
        "capacity", classes.capacity.size, row=time, column=x, value=classes.gang[column],
        upper=classes.capacity,
    )  # fmt: skip
    if fixed is None or not sigma:
        for goal in order:
            builder.objective(goal, column=y, value=weight_of(classes, goal), maximise=True)
    if sigma:
        early = np.flatnonzero(time == 0)
        builder.objective(
            "first lease", column=x[early], value=classes.gang[column[early]], maximise=sigma > 0
        )
    return builder.build()


def _open_to_all(classes: LeaseClasses) -> tuple[Ints, Ints, Ints]:
    least = np.where(classes.keep, classes.count, 0)[classes.of_class[classes.starts]]
    return np.zeros_like(classes.limit), classes.limit, least


def job_model(
    jobs: LeaseJobs,
    capacity: Ints,
    *,
    order: tuple[Goal, ...] = ("value",),
    sigma: Sigma = 0,
    keep: Bools | None = None,
) -> tuple[Model, LeaseClasses]:
    """Give the job-indexed model, one variable for each job, option and lease, and its columns."""
    classes = lease_classes(jobs, capacity, keep, each=True)
    return class_model(classes, order=order, sigma=sigma), classes


def read_class_plan(classes: LeaseClasses, point: Floats) -> tuple[Ints, Ints]:
    """Read jobs of each column, and those in each lease, from a point of the class model."""
    column, time = _slots(classes)
    whole = np.rint(point).astype(np.int64)
    leases = np.zeros((classes.column_count, classes.capacity.size), dtype=np.int64)
    leases[column, time] = whole[classes.column_count :]
    return whole[: classes.column_count], leases


def class_point(classes: LeaseClasses, y: Ints, leases: Ints) -> Floats:
    """Point of the class model for a plan, to start from."""
    return np.concatenate((y, leases[_slots(classes)])).astype(np.float64)


def model_size(classes: LeaseClasses) -> int:
    """Variables of the class model for leases."""
    return int(classes.due.sum())


def _slots(classes: LeaseClasses) -> tuple[Ints, Ints]:
    """Column and lease of every variable: leases before the due time in which the gang fits."""
    column = np.repeat(np.arange(classes.column_count), classes.due)
    time = np.arange(column.size) - np.repeat(np.cumsum(classes.due) - classes.due, classes.due)
    fits = classes.capacity[time] >= classes.gang[column]
    return column[fits], time[fits]
