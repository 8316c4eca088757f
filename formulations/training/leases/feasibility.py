"""Whether given jobs can all be done: refuted by forced work, shown by a plan, or asked exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from apportion.formulations.training.leases.forced_work import refuted
from apportion.formulations.training.leases.lease_classes import lease_classes
from apportion.formulations.training.leases.lease_jobs import LeaseJobs
from apportion.formulations.training.leases.models import class_model, read_class_plan
from apportion.formulations.training.leases.realise import LeaseColumns, realise
from apportion.instances.columns import Ints
from apportion.solver import Budget, Solver, Status

Ground: TypeAlias = Literal["forced work", "walk", "model", "undecided"]
"""What decided: a row that is violated, a plan that was laid, the exact model, or nothing."""

MOST_COLUMNS = 60_000
"""Variables of the exact model from which on it is not asked: it would take minutes."""


@dataclass(frozen=True, eq=False)
class Feasibility:
    """An answer with its ground.

    Attributes
    ----------
    feasible
        True with a plan, False with a proof, None where neither was found.
    ground
        What decided.
    leases
        Jobs of each column in each lease, shape (columns, T); None without a plan.
    """

    feasible: bool | None
    ground: Ground
    leases: Ints | None = None


def all_fit(
    gang: Ints, need: Ints, due: Ints, count: Ints, capacity: Ints,
    solver: Solver, budget: Budget, *, late: bool = False,
) -> Feasibility:  # fmt: skip
    """Decide whether all jobs can be done by their deadlines.

    Parameters
    ----------
    gang, need, due, count
        Of each column of equal jobs, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    solver, budget
        How long and with what the exact model is asked, where the quick tests disagree.
    late
        Whether the plan should rather leave early leases free.
    """
    due = np.clip(due, 0, capacity.size)
    if refuted(gang, need, due, count, capacity):
        return Feasibility(False, "forced work")
    found = realise(LeaseColumns.of(gang, need, due), count, capacity, late=late)
    if (found.y == count).all():
        return Feasibility(True, "walk", found.leases)
    return _by_model(gang, need, due, count, capacity, solver, budget)


def _by_model(
    gang: Ints, need: Ints, due: Ints, count: Ints, capacity: Ints,
    solver: Solver, budget: Budget,
) -> Feasibility:  # fmt: skip
    rows = np.flatnonzero(count)
    if budget.expired() or int(due[rows].sum()) > MOST_COLUMNS:
        return Feasibility(None, "undecided")
    repeated = np.repeat(rows, count[rows])
    jobs = LeaseJobs.hard(gang[repeated], need[repeated], due[repeated])
    classes = lease_classes(jobs, capacity, np.ones(repeated.size, dtype=np.bool_))
    answer = solver.solve(class_model(classes), budget=budget)
    if answer.status is Status.INFEASIBLE:
        return Feasibility(False, "model")
    if answer.point is None:
        return Feasibility(None, "undecided")
    _, of_class = read_class_plan(classes, answer.point)
    leases = np.zeros((count.size, capacity.size), dtype=np.int64)
    # classes are made of the jobs in order, so that the first job of one tells a column of it;
    # columns that are equal share a class, whose leases are dealt out in turn
    for number, first in enumerate(classes.groups.first.tolist()):
        twins = np.unique(repeated[classes.groups.of_row == number])
        if twins.size == 1:
            leases[repeated[first]] = of_class[number]
            continue
        total = np.cumsum(of_class[number])
        owner = np.repeat(twins, count[twins])
        slot_time = np.repeat(np.arange(capacity.size), of_class[number])
        np.add.at(leases, (owner[np.arange(int(total[-1])) % owner.size], slot_time), 1)
    return Feasibility(True, "model", leases)
