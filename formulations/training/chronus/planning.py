"""The lease plan of one GPU type at a boundary: values first, then few or many GPUs now."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from apportion.formulations.training.leases import (
    LeaseJobs,
    LeasePlan,
    Realised,
    lease_classes,
    plan_faults,
    plan_leases,
    spread,
)
from apportion.formulations.training.leases.first_lease import shift_first_lease
from apportion.formulations.training.leases.models import Sigma, model_size
from apportion.instances import Stage
from apportion.instances.columns import Bools, Ints
from apportion.solver import Budget, Solver

Mode = Literal["adaptive", "minimise", "maximise", "none"]

MOST_PLANNED = 3_000
"""Variables of the class model up to which the exact model is asked: such models take tens of
milliseconds. Beyond, the cached plan stays, and single leases are moved into or out of the first
one: who is accepted stays in any case, so that with hard deadlines nothing else could be gained."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A new plan.

    Attributes
    ----------
    leases
        Jobs by leases, shape (m, T).
    value
        What the accepted jobs earn by it.
    bound
        What no plan of them can pass; None where nothing was proved.
    proved
        Whether value and first lease are proved.
    stages
        What was done.
    time_limited
        Whether the clock ended it.
    """

    leases: Bools
    value: float
    bound: float | None
    proved: bool
    stages: tuple[Stage, ...] = ()
    time_limited: bool = False


def sign_of(mode: Mode, rejected: bool) -> Sigma:
    """Sign of the first lease's term: -1 leaves GPUs to others now, 1 takes many."""
    if mode == "adaptive":
        return -1 if rejected else 1
    return {"minimise": -1, "maximise": 1, "none": 0}[mode]  # type: ignore[return-value]


def planned(
    jobs: LeaseJobs, capacity: Ints, cached: Bools, sigma: Sigma, solver: Solver, budget: Budget
) -> Planned:
    """Plan accepted jobs anew; the cached plan is the start, the fallback, and always feasible.

    Parameters
    ----------
    jobs
        Accepted jobs, with the deadlines up to the one that was promised.
    capacity
        GPUs of each lease, shape (T,).
    cached
        Plan from before, shifted to now, shape (m, T).
    sigma
        Sign of the first lease's term.
    solver, budget
        With what, and until when.

    Raises
    ------
    AssertionError
        If the cached plan is not feasible: our fault.
    """
    start = _as_plan(jobs, cached)
    keep = np.ones(len(jobs), dtype=np.bool_)
    faults = plan_faults(jobs, capacity, start.option, start.offsets, start.lease, keep)
    if faults:
        raise AssertionError(f"chronus: the cached plan: {faults[0]}")
    fallback = Planned(cached, start.value, None, False, time_limited=True)
    if budget.expired():
        return fallback
    last = jobs.option_offsets[1:] - 1
    hard = LeaseJobs.hard(jobs.gang, jobs.need, jobs.due[last], jobs.value[last])
    if bool((np.diff(jobs.option_offsets) == 1).all()):
        return _shifted(hard, capacity, cached, sigma, solver, budget)
    classes = lease_classes(jobs, capacity, keep)
    if model_size(classes) > MOST_PLANNED:
        known = _shifted(hard, capacity, cached, sigma, solver, budget)
        value = _as_plan(jobs, known.leases).value
        return replace(known, value=value, bound=None, proved=False)
    found = plan_leases(
        jobs, capacity, solver=solver, budget=budget, sigma=sigma, accepted=keep, start=start
    )
    if found.status not in ("OPTIMAL", "FEASIBLE") or found.value < start.value:
        note = Stage("cached plan", objective=start.value, answered=True, note=found.status)
        return replace(fallback, time_limited=found.time_limited, stages=(*found.stages, note))
    job = np.repeat(np.arange(len(jobs)), np.diff(found.offsets))
    leases = np.zeros_like(cached)
    leases[job, found.lease] = True
    return Planned(
        leases, found.value, found.bound, found.status == "OPTIMAL", found.stages,
        found.time_limited,
    )  # fmt: skip


def _shifted(
    jobs: LeaseJobs, capacity: Ints, cached: Bools, sigma: Sigma, solver: Solver, budget: Budget
) -> Planned:
    """Work on the first lease only: with one deadline each, all jobs earn what they earn."""
    value = float(jobs.value.sum())
    if not sigma or not len(jobs):
        return Planned(cached, value, value, True)
    keep = np.ones(len(jobs), dtype=np.bool_)
    classes = lease_classes(jobs, capacity, keep)
    leases = np.zeros((classes.column_count, capacity.size), dtype=np.int64)
    row, lease_of = np.nonzero(cached)
    np.add.at(leases, (classes.groups.of_row[row], lease_of), 1)
    small = model_size(classes) <= MOST_PLANNED
    time = budget if small else Budget(-math.inf)
    found = shift_first_lease(classes, Realised(classes.count, leases), sigma, solver, time)
    _, offsets, lease = spread(classes, found.plan.y, found.plan.leases)
    out = np.zeros_like(cached)
    out[np.repeat(np.arange(len(jobs)), np.diff(offsets)), lease] = True
    stage = replace(found.stage, answered=True)
    limited = found.time_limited and small
    return Planned(out, value, value, found.gpus == found.bound, (stage,), limited)


def _as_plan(jobs: LeaseJobs, leases: Bools) -> LeasePlan:
    """Read a plan by jobs and leases: each job meets the first deadline after its last lease."""
    count = leases.sum(axis=1)
    last = leases.shape[1] - np.argmax(leases[:, ::-1], axis=1) if leases.size else count * 0
    job = jobs.job_of_option
    met = jobs.due >= last[job]
    place = np.arange(job.size) - jobs.option_offsets[job]
    option = np.full(len(jobs), -1, dtype=np.int64)
    # the first option that is met is the last one written
    option[job[met][::-1]] = place[met][::-1]
    value = jobs.value[jobs.option_offsets[:-1] + np.maximum(option, 0)]
    return LeasePlan(
        option,
        np.concatenate(([0], np.cumsum(count))).astype(np.int64),
        np.nonzero(leases)[1].astype(np.int64),
        float(value.sum()), len(jobs), (float(value.sum()),), (None,), None, "FEASIBLE",
        jobs.gang @ leases.astype(np.int64),
    )  # fmt: skip
