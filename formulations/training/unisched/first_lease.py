"""Lease 0 left to best effort as far as deadlines allow, with who is in the plan left as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.training.leases import (
    LeaseClasses,
    LeaseJobs,
    Realised,
    lease_classes,
    spread,
    tightest_set,
)
from apportion.formulations.training.leases.forced_work import packed
from apportion.formulations.training.leases.realise import walk
from apportion.formulations.training.leases.search import lease_columns
from apportion.formulations.training.unisched.demand import SloJobs
from apportion.formulations.training.unisched.plan import Plan
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Budget

TRIES = 8
"""Amounts of GPUs that lease 0 is laid with: halving 960 as often leaves four of them open."""


def emptied(slo: SloJobs, capacity: Ints, plan: Plan, budget: Budget) -> Plan:
    """Move leases of planned jobs out of lease 0.

    Counting classes of equal jobs is enough for that where each job has one configuration and all
    of these are of one type.

    Parameters
    ----------
    slo
        The jobs, of one configuration each and all on one type.
    capacity
        GPUs of each type in each lease, shape (k, T).
    plan
        A plan; the one given back has the same jobs and earns as much.
    budget
        Until when.
    """
    rows = np.flatnonzero(plan.configuration >= 0)
    cut = plan.configuration[rows]
    if not plan.leases[rows, 0].any():
        return plan
    last = latest_as_good(slo, plan.deadline[rows])
    jobs = LeaseJobs.hard(slo.gpus[cut], slo.need[cut], slo.due[last], slo.value[last])
    gpus = capacity[slo.gpu_type[cut[0]]]
    classes = lease_classes(jobs, gpus, np.ones(rows.size, dtype=np.bool_))
    least = int(forced_now(slo, capacity, rows, plan.deadline[rows]).max())
    now = int(slo.gpus[cut] @ plan.leases[rows, 0])
    found = _laid_with_less(classes, gpus, least, now, budget)
    laid = plan.leases[rows]
    if found is not None:
        _, offsets, lease = spread(classes, found.y, found.leases)
        laid = np.zeros_like(laid)
        laid[np.repeat(np.arange(rows.size), np.diff(offsets)), lease] = True
    leases = plan.leases.copy()
    leases[rows] = _least_starts(laid, classes.groups.of_row, slo.start_cost[cut])
    return replace(plan, leases=leases).with_earliest_deadlines(slo)


def _laid_with_less(
    classes: LeaseClasses, capacity: Ints, least: int, now: int, budget: Budget
) -> Realised | None:
    """Lay all jobs with as few GPUs of lease 0 open as a walk manages, by halving."""
    columns = lease_columns(classes, classes.value)
    best: Realised | None = None
    low, high, gpus = least, now, least
    for _ in range(TRIES):
        if low >= high or budget.expired():
            break
        open_ = capacity.copy()
        open_[0] = min(gpus, int(capacity[0]))
        walks = (walk(columns, classes.count, open_, late) for late in (True, False))
        laid = next((found for found, shed in walks if not shed.any()), None)
        if laid is not None:
            best, high = laid, int(laid.use(classes.gang)[0])
        else:
            low = gpus + 1
        gpus = (low + high) // 2
    return best


def forced_now(slo: SloJobs, capacity: Ints, rows: Ints, deadline: Ints) -> Ints:
    """GPUs of lease 0 without which some jobs cannot all be in time, by type.

    Parameters
    ----------
    slo
        The jobs, of one configuration each and all on one type.
    capacity
        GPUs of each type in each lease, shape (k, T).
    rows, deadline
        Some jobs, and the deadline that each has to meet, or one worth the same.

    Returns
    -------
    Shape (k, 1).
    """
    out = np.zeros((capacity.shape[0], 1), dtype=np.int64)
    if not rows.size:
        return out
    cut = slo.menu_offsets[rows]
    kind, gang = int(slo.gpu_type[cut[0]]), slo.gpus[cut]
    due = np.clip(slo.due[latest_as_good(slo, deadline)], 0, capacity.shape[1])
    gpus = packed(gang, capacity[kind])
    gpus[0] = 0
    # what the set of leases that is most in need lacks, were lease 0 closed
    room, _ = tightest_set(gang, slo.need[cut], due, np.ones(rows.size), gpus)
    unit = int(np.gcd.reduce(gang))
    out[kind] = min(int(capacity[kind, 0]), -(-max(0, round(-room)) // unit) * unit)
    return out


def latest_as_good(slo: SloJobs, deadline: Ints) -> Ints:
    """Latest deadline of the same job that is worth as much as a given one, for each of some."""
    change = np.ones(slo.value.size, dtype=np.bool_)
    change[:-1] = slo.value[1:] != slo.value[:-1]
    ends = slo.due_offsets[1:][np.diff(slo.due_offsets) > 0] - 1
    change[ends] = True
    last = np.flatnonzero(change)
    return last[np.searchsorted(last, deadline)]


def _least_starts(leases: Bools, of_class: Ints, start_cost: Floats) -> Bools:
    """Let those of equal jobs run in lease 0 whose start costs least: of each class, who runs now."""
    jobs = np.lexsort((start_cost, of_class))
    plans = np.lexsort((~leases[:, 0], of_class))
    out = np.empty_like(leases)
    out[jobs] = leases[plans]
    return out
