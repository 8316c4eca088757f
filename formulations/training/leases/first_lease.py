"""Few or many GPUs in lease 0, with who is in the plan left as it is."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.leases.forced_work import packed, tightest_set
from apportion.formulations.training.leases.lease_classes import LeaseClasses
from apportion.formulations.training.leases.models import (
    Sigma,
    class_model,
    class_point,
    model_size,
    read_class_plan,
)
from apportion.formulations.training.leases.realise import Realised, realise
from apportion.formulations.training.leases.search import MOST_SLOTS, lease_columns
from apportion.instances import Stage
from apportion.solver import Budget, Solver

TRIES = 8
"""Units of GPUs by which lease 0 is opened beyond the least before the exact model is asked."""


@dataclass(frozen=True, eq=False)
class FirstLease:
    """A plan with few or many GPUs in lease 0.

    Attributes
    ----------
    plan
        Same jobs, other leases.
    gpus, bound
        GPUs in use in lease 0, and what no plan of these jobs can pass.
    stage
        What was done.
    time_limited
        Whether time ran out.
    """

    plan: Realised
    gpus: int
    bound: int
    stage: Stage
    time_limited: bool


def shift_first_lease(
    classes: LeaseClasses, plan: Realised, sigma: Sigma, solver: Solver, budget: Budget
) -> FirstLease:
    """Make lease 0 as empty (sigma -1) or as full (sigma 1) as the deadlines and GPUs allow.

    Forced work says how empty it can be, its GPUs and the jobs that fit it how full; both are
    reached up to the packing of gangs, and the exact model is asked for the rest.
    """
    started, limited, backend = time.perf_counter(), False, ""
    if not plan.y.any():
        return FirstLease(plan, 0, 0, Stage("first lease", objective=0.0, bound=0.0), False)
    if sigma > 0:
        bound = _most(classes, plan)
        better = _pulled_forward(classes, plan)
    else:
        bound = _least(classes, plan)
        better = _kept_empty(classes, plan, bound, budget)
    gpus = int(better.use(classes.gang)[0])
    if gpus != bound and not budget.expired() and model_size(classes) <= MOST_SLOTS:
        model = class_model(classes, sigma=sigma, fixed=plan.y)
        start = class_point(classes, better.y, better.leases)
        answer = solver.solve(model, budget=budget, warm_start=start)
        limited, backend = answer.time_limited, answer.backend
        if answer.point is not None:
            better = Realised(*read_class_plan(classes, answer.point))
            gpus = int(better.use(classes.gang)[0])
        if answer.bounds and answer.bounds[-1] is not None:
            said = answer.bounds[-1]
            bound = int(
                min(bound, np.floor(said + 1e-6)) if sigma > 0 else max(bound, np.ceil(said - 1e-6))
            )
    limited = limited or (gpus != bound and budget.expired())
    stage = Stage(
        "first lease", time.perf_counter() - started, objective=float(gpus), bound=float(bound),
        backend=backend or None,
    )  # fmt: skip
    return FirstLease(better, gpus, bound, stage, limited)


def _most(classes: LeaseClasses, plan: Realised) -> int:
    """GPUs that lease 0 has, or that all jobs which fit it have."""
    fit = (classes.gang <= classes.capacity[0]) & (plan.y > 0)
    usable = packed(classes.gang[fit], classes.capacity[:1])[0]
    return int(min(usable, int(classes.gang[fit] @ plan.y[fit])))


def _least(classes: LeaseClasses, plan: Realised) -> int:
    """GPUs that the set of leases with lease 0 needs most urgently, were lease 0 empty."""
    rows = np.flatnonzero(plan.y)
    gang = classes.gang[rows]
    capacity = packed(gang, classes.capacity)
    capacity[0] = 0
    room, _ = tightest_set(gang, classes.need[rows], classes.due[rows], plan.y[rows], capacity)
    unit = int(np.gcd.reduce(gang)) if gang.size else 1
    return -(-max(0, round(-room)) // unit) * unit


def _pulled_forward(classes: LeaseClasses, plan: Realised) -> Realised:
    """Move leases into lease 0, large gangs first, each column's latest ones."""
    leases = plan.leases.copy()
    free = int(classes.capacity[0] - plan.use(classes.gang)[0])
    able = np.flatnonzero((leases[:, 0] < plan.y) & (classes.gang <= free))
    for column in able[np.argsort(-classes.gang[able], kind="stable")].tolist():
        moved = min(int(plan.y[column] - leases[column, 0]), free // int(classes.gang[column]))
        later = leases[column, :0:-1]
        later -= np.clip(moved - (np.cumsum(later) - later), 0, later)
        leases[column, 0] += moved
        free -= moved * int(classes.gang[column])
    return Realised(plan.y, leases)


def _kept_empty(classes: LeaseClasses, plan: Realised, least: int, budget: Budget) -> Realised:
    """Lay the same jobs with lease 0 closed but for so many GPUs, then for some more."""
    columns = lease_columns(classes, classes.value)
    rows = np.flatnonzero(plan.y)
    unit = int(np.gcd.reduce(classes.gang[rows])) if rows.size else 1
    now = int(plan.use(classes.gang)[0])
    for gpus in range(least, min(now, least + TRIES * unit), unit):
        if budget.expired():
            break
        capacity = classes.capacity.copy()
        capacity[0] = gpus
        laid = realise(columns, plan.y, capacity)
        if (laid.y == plan.y).all():
            return laid
    return _pushed_back(classes, plan, least)


def _pushed_back(classes: LeaseClasses, plan: Realised, least: int) -> Realised:
    """Move leases out of lease 0 into free ones, small gangs last."""
    leases, use = plan.leases.copy(), plan.use(classes.gang)
    free = classes.capacity - use
    able = np.flatnonzero((leases[:, 0] > 0) & (classes.due > 1))
    for column in able[np.argsort(-classes.gang[able], kind="stable")].tolist():
        gang, due = int(classes.gang[column]), int(classes.due[column])
        room = np.minimum(free[1:due] // gang, plan.y[column] - leases[column, 1:due])
        most = min(int(leases[column, 0]), (int(use[0]) - least) // gang)
        moved = np.clip(most - (np.cumsum(room) - room), 0, room)
        leases[column, 1:due] += moved
        free[1:due] -= gang * moved
        leases[column, 0] -= moved.sum()
        use[0] -= gang * moved.sum()
    return Realised(plan.y, leases)
