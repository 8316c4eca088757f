"""The greedy plan: promises where they were, everybody else as late as possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.formulations.training.unisched.plan import NONE, Plan, fitting
from apportion.instances.columns import Bools, Ints


def latest_fit(
    slo: SloJobs,
    best_effort: BestEffort,
    capacity: Ints,
    kept: tuple[Ints, Bools] | None = None,
) -> Plan:
    """Plan without a solver.

    Accepted jobs keep the leases of their old plan as far as they still need them; then others
    are added, those that are worth most per GPU and lease first, each into the latest leases
    that are free; what is left of lease 0 goes to best-effort jobs.

    Parameters
    ----------
    slo, best_effort
        The jobs.
    capacity
        GPUs of each type in each lease, shape (k, T).
    kept
        Configuration of each job in the old plan, -1 for none, shape (n,), and its leases, as
        counted from now, shape (n, T).
    """
    plan = Plan.empty(slo, best_effort, capacity.shape[1])
    if kept is not None:
        plan = _kept(slo, capacity, plan, *kept)
    return with_best_effort(slo, best_effort, capacity, with_more(slo, capacity, plan))


def _kept(
    slo: SloJobs, capacity: Ints, plan: Plan, configuration: Ints, leases: Bools
) -> Plan:  # fmt: skip
    free = capacity.copy()
    for row in np.flatnonzero(slo.must & (configuration >= 0)).tolist():
        cut = int(configuration[row])
        need, last = int(slo.need[cut]), _last_due(slo, row)
        own = np.flatnonzero(leases[row, :last])[-need:]
        kind, gpus = int(slo.gpu_type[cut]), int(slo.gpus[cut])
        # an estimate may have grown: the leases it needs more are looked for before the others'
        if own.size == need and (free[kind, own] >= gpus).all():
            free[kind, own] -= gpus
            plan.configuration[row] = cut
            plan.leases[row, own] = True
    return plan.with_earliest_deadlines(slo)


def _last_due(slo: SloJobs, row: int) -> int:
    return max(0, int(slo.due[slo.due_offsets[row + 1] - 1]))


def with_more(slo: SloJobs, capacity: Ints, plan: Plan) -> Plan:
    """Add jobs that are not in a plan where leases are free, accepted ones first."""
    free = capacity - plan.use(slo, capacity.shape[0])
    configuration, leases = plan.configuration.copy(), plan.leases.copy()
    work = slo.gpus * slo.need
    option, deadline = slo.options
    job = slo.job_of_configuration[option]
    slack = slo.due[deadline] - slo.need[option]
    # options of one job in order of value, then of the work they take
    order = np.lexsort((option, work[option], -slo.value[deadline], job))
    order = order[(slack[order] >= 0) & (configuration[job[order]] < 0)]
    if not order.size:
        return plan
    heads = np.flatnonzero(np.diff(job[order], prepend=-1))
    first = order[heads]
    rate = np.round(slo.value[deadline[first]] / work[option[first]], 12)
    jobs = np.lexsort((job[first], slack[first], -rate, ~slo.must[job[first]]))
    ends = np.append(heads[1:], order.size)
    for at in jobs.tolist():
        for pair in order[heads[at] : ends[at]].tolist():
            cut, due = int(option[pair]), int(slo.due[deadline[pair]])
            kind, gpus, need = int(slo.gpu_type[cut]), int(slo.gpus[cut]), int(slo.need[cut])
            open_ = np.flatnonzero(free[kind, :due] >= gpus)
            if open_.size >= need:
                row, own = int(job[pair]), open_[open_.size - need :]
                free[kind, own] -= gpus
                configuration[row] = cut
                leases[row, own] = True
                break
    return replace(plan, configuration=configuration, leases=leases).with_earliest_deadlines(slo)


def with_best_effort(slo: SloJobs, best_effort: BestEffort, capacity: Ints, plan: Plan) -> Plan:
    """Give what is left of lease 0 to best-effort jobs, the most reward per GPU first."""
    chosen = np.full(len(best_effort), NONE, dtype=np.int64)
    free = capacity[:, 0] - plan.use(slo, capacity.shape[0])[:, 0]
    order = fitting(
        best_effort.gpus, best_effort.gpu_type, best_effort.reward,
        best_effort.job_of_configuration, free,
    )  # fmt: skip
    left: list[int] = free.tolist()
    for cut in order:
        row, kind = int(best_effort.job_of_configuration[cut]), int(best_effort.gpu_type[cut])
        if chosen[row] < 0 and best_effort.gpus[cut] <= left[kind]:
            chosen[row] = cut
            left[kind] -= int(best_effort.gpus[cut])
    return replace(plan, chosen=chosen)
