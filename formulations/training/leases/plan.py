"""Who meets which deadline, and in which leases: the best plan, its bound, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from apportion.formulations.training.leases.check import plan_faults
from apportion.formulations.training.leases.feasibility import Feasibility, all_fit
from apportion.formulations.training.leases.first_lease import shift_first_lease
from apportion.formulations.training.leases.lease_classes import (
    LeaseClasses,
    lease_classes,
    spread,
)
from apportion.formulations.training.leases.lease_jobs import LeaseJobs, lease_capacity
from apportion.formulations.training.leases.models import Goal, Sigma, weight_of
from apportion.formulations.training.leases.realise import Realised
from apportion.formulations.training.leases.search import (
    Search,
    filled,
    lease_columns,
)
from apportion.instances import InstanceError, Stage
from apportion.instances.columns import Bools, Floats, Ints, bools
from apportion.solver import Budget, Solver


@dataclass(frozen=True, eq=False)
class LeasePlan:
    """Leases for the jobs that were admitted, every one checked job by job.

    Attributes
    ----------
    option
        Option that each job meets, -1 where it is not in the plan, shape (n,).
    offsets, lease
        Leases of job j, rising, are ``lease[offsets[j]:offsets[j + 1]]``.
    value, admitted
        What the plan earns, and how many jobs are in it.
    objectives, bounds
        Value of every goal in the order asked for, and what no plan can pass given the values of
        the goals before; ``None`` where nothing was proved.
    gap
        Largest relative gap of a goal; ``None`` where one has no bound.
    status
        ``"OPTIMAL"``: proved within the gap, the first lease included where it was a goal.
        ``"FEASIBLE"``: not proved. ``"INFEASIBLE"``: proved that the jobs to keep cannot all be
        done; the plan keeps as many as it can. ``"NO_SOLUTION"``: no plan with them was found.
    use
        GPUs in use in each lease, shape (T,).
    first_lease_bound
        What the GPUs in lease 0 cannot pass for these jobs; ``None`` unless it was a goal.
    stages
        What was done.
    time_limited
        Whether the budget ended it.
    """

    option: Ints
    offsets: Ints
    lease: Ints
    value: float
    admitted: int
    objectives: tuple[float, ...]
    bounds: tuple[float | None, ...]
    gap: float | None
    status: str
    use: Ints
    first_lease_bound: int | None = None
    stages: tuple[Stage, ...] = ()
    time_limited: bool = False

    @property
    def bound(self) -> float | None:
        """Bound of the last goal."""
        return self.bounds[-1]

    def leases_of(self, job: int) -> Ints:
        """Leases of one job."""
        return self.lease[self.offsets[job] : self.offsets[job + 1]]

    def running(self, lease: int) -> Ints:
        """Jobs that run in a lease, rising."""
        rows = np.repeat(np.arange(self.option.size), np.diff(self.offsets))
        return rows[self.lease == lease]


def plan_leases(
    jobs: LeaseJobs,
    capacity: ArrayLike,
    *,
    solver: Solver,
    budget: Budget,
    order: tuple[Goal, ...] = ("value",),
    sigma: Sigma = 0,
    accepted: ArrayLike | None = None,
    start: LeasePlan | None = None,
) -> LeasePlan:
    """Choose the jobs to do and lay their leases.

    Parameters
    ----------
    jobs
        The jobs.
    capacity
        GPUs of each lease, shape (T,).
    solver
        Back end, and the gap at which a goal counts as optimal.
    budget
        Deadline; at its end the best plan so far is the answer.
    order
        Goals, the most important first: ``("value",)``, ``("admitted", "value")``, ...
    sigma
        1 or -1: with who is in the plan left as it is, as many or as few GPUs in lease 0 as can be.
    accepted
        Jobs that must be in the plan, by whichever of their options, shape (n,).
    start
        A plan to begin with; it is used if it is valid, and the answer is never worse.

    Raises
    ------
    InstanceError
        If an argument does not fit the jobs.
    """
    gpus = lease_capacity(capacity)
    keep = _mask(accepted, len(jobs))
    if not order or len(set(order)) < len(order) or not set(order) <= {"admitted", "value"}:
        raise InstanceError(f"plan_leases.order = {order!r}: 'value' and 'admitted', each once")
    if sigma not in (-1, 0, 1):
        raise InstanceError(f"plan_leases.sigma = {sigma!r}: must be -1, 0 or 1")
    classes = lease_classes(jobs, gpus, keep)
    base, verdict = _base(classes, keep, solver, budget)
    if base is None:
        return _without_guarantee(jobs, gpus, keep, verdict, solver, budget, order, sigma)
    searches = _in_order(classes, order, solver, budget, base, _started(jobs, classes, keep, start))
    return _finished(jobs, classes, keep, searches, sigma, solver, budget)


def _mask(accepted: ArrayLike | None, count: int) -> Bools:
    if accepted is None:
        return np.zeros(count, dtype=np.bool_)
    return bools(accepted, "plan_leases.accepted", (count,))


def _base(
    classes: LeaseClasses, keep: Bools, solver: Solver, budget: Budget
) -> tuple[Realised | None, Feasibility]:
    """Lay the jobs that must be in the plan by their last options; None if they cannot be."""
    nothing = np.zeros(classes.column_count, dtype=np.int64)
    if classes.hopeless.any():
        return None, Feasibility(False, "forced work")
    y = np.where(classes.keep[classes.of_class] & classes.last, classes.limit, 0)
    if not keep.any():
        laid = np.zeros((nothing.size, classes.capacity.size), dtype=np.int64)
        return Realised(nothing, laid), Feasibility(True, "walk", laid)
    verdict = all_fit(classes.gang, classes.need, classes.due, y, classes.capacity, solver, budget)
    if verdict.leases is None:
        return None, verdict
    return Realised(y, verdict.leases), verdict


def _in_order(
    classes: LeaseClasses, order: tuple[Goal, ...], solver: Solver, budget: Budget,
    base: Realised, start: Realised | None,
) -> list[Search]:  # fmt: skip
    """Search goal after goal; each keeps what the ones before it reached."""
    searches, floors = list[Search](), tuple[tuple[Floats, float], ...]()
    best = base
    for goal in order:
        weight = weight_of(classes, goal)
        if not searches and budget.expired():
            best = filled(classes, lease_columns(classes, weight), best)
        if not searches and start is not None and start.y @ weight > best.y @ weight:
            best = start
        search = Search(classes, weight, floors, best, solver, budget)
        search.run()
        best = search.best
        if not searches and search.bound is None:
            filled_up = filled(classes, lease_columns(classes, weight), best)
            best = search.best = filled_up
        searches.append(search)
        floors = (*floors, search.floor)
    return searches


def _started(
    jobs: LeaseJobs, classes: LeaseClasses, keep: Bools, start: LeasePlan | None
) -> Realised | None:
    """Count a plan to begin with by classes; None if it is not valid here."""
    if start is None or plan_faults(
        jobs, classes.capacity, start.option, start.offsets, start.lease, keep
    ):
        return None
    width = int(np.diff(jobs.option_offsets).max(initial=1))
    code = classes.of_class * width + classes.option
    job = np.flatnonzero(start.option >= 0)
    wanted = classes.groups.of_row[job] * width + start.option[job]
    # of options that the horizon makes equal only the first has a column
    place = np.searchsorted(code, wanted, side="right") - 1
    if (place < 0).any() or (classes.of_class[place] != classes.groups.of_row[job]).any():
        return None
    column = np.full(len(jobs), -1, dtype=np.int64)
    column[job] = place
    leases = np.zeros((classes.column_count, classes.capacity.size), dtype=np.int64)
    rows = np.repeat(np.arange(len(jobs)), np.diff(start.offsets))
    np.add.at(leases, (column[rows], start.lease), 1)
    return Realised(np.bincount(place, minlength=classes.column_count), leases)


def _finished(
    jobs: LeaseJobs, classes: LeaseClasses, keep: Bools, searches: list[Search], sigma: Sigma,
    solver: Solver, budget: Budget,
) -> LeasePlan:  # fmt: skip
    """Spread the last search's plan over the jobs, check it, and say what is proved."""
    plan, stages = searches[-1].best, [stage for one in searches for stage in one.stages]
    limited = any(search.time_limited for search in searches)
    proved, first_bound = all(search.proved for search in searches), None
    if sigma:
        first = shift_first_lease(classes, plan, sigma, solver, budget)
        plan, first_bound = first.plan, first.bound
        proved &= first.gpus == first.bound
        limited |= first.time_limited
        stages.append(first.stage)
    option, offsets, lease = spread(classes, plan.y, plan.leases)
    faults = plan_faults(jobs, classes.capacity, option, offsets, lease, keep)
    if faults:
        raise AssertionError(f"plan of leases: {faults[0]}")
    values = tuple(float(plan.y @ search.weight) for search in searches)
    bounds = tuple(search.bound for search in searches)
    gaps = [search.gap_to(value) for search, value in zip(searches, values, strict=True)]
    known = [gap for gap in gaps if gap is not None]
    if stages:
        stages[-1] = replace(stages[-1], answered=True)
    return LeasePlan(
        option, offsets, lease, float(plan.y @ classes.value), int(plan.y.sum()), values, bounds,
        max(known) if len(known) == len(gaps) else None, "OPTIMAL" if proved else "FEASIBLE",
        plan.use(classes.gang), first_bound, tuple(stages), limited,
    )  # fmt: skip


def _without_guarantee(
    jobs: LeaseJobs, capacity: Ints, keep: Bools, verdict: Feasibility, solver: Solver,
    budget: Budget, order: tuple[Goal, ...], sigma: Sigma,
) -> LeasePlan:  # fmt: skip
    """Keep as many of the jobs to keep as can be, then go on with the goals."""
    classes = lease_classes(jobs, capacity, keep)
    free = replace(classes, keep=np.zeros_like(classes.keep))
    kept = classes.keep[classes.of_class].astype(np.float64)
    none = Realised(
        np.zeros(classes.column_count, dtype=np.int64),
        np.zeros((classes.column_count, capacity.size), dtype=np.int64),
    )
    first = Search(free, kept, (), filled(free, lease_columns(free, kept), none), solver, budget)
    first.run()
    floors = ((kept, first.value),)
    searches = list[Search]()
    best = filled(free, lease_columns(free, free.value), first.best)
    for goal in order:
        search = Search(free, weight_of(free, goal), floors, best, solver, budget)
        search.run()
        best, floors = search.best, (*floors, search.floor)
        searches.append(search)
    nobody = np.zeros_like(keep)
    plan = _finished(jobs, free, nobody, searches, sigma, solver, budget)
    status = "INFEASIBLE" if verdict.feasible is False else "NO_SOLUTION"
    if not first.proved:
        # bounds of the goals hold only for plans that keep as many
        plan = replace(plan, bounds=tuple(None for _ in plan.bounds), gap=None)
    return replace(plan, status=status, stages=(*first.stages, *plan.stages))
