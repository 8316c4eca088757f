"""A plan of the selector: configurations, deadlines and leases, and what they are worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.instances.columns import Bools, Floats, Ints

NONE = -1
"""No configuration, or no deadline."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Who is in the plan, how, and when.

    Parameters
    ----------
    configuration
        Configuration of each SLO job, -1 for those left out, shape (n,).
    deadline
        Deadline that each meets, -1 for none, shape (n,).
    leases
        When each runs, shape (n, T).
    chosen
        Configuration of each best-effort job in lease 0, -1 for none, shape (m,).
    """

    configuration: Ints
    deadline: Ints
    leases: Bools
    chosen: Ints

    @classmethod
    def empty(cls, slo: SloJobs, best_effort: BestEffort, horizon: int) -> Plan:
        """Nobody runs."""
        n = len(slo)
        return cls(
            np.full(n, NONE, dtype=np.int64), np.full(n, NONE, dtype=np.int64),
            np.zeros((n, horizon), dtype=np.bool_),
            np.full(len(best_effort), NONE, dtype=np.int64),
        )  # fmt: skip

    def use(self, slo: SloJobs, kinds: int) -> Ints:
        """GPUs of each type that SLO jobs use in each lease, shape (k, T)."""
        out = np.zeros((kinds, self.leases.shape[1]), dtype=np.int64)
        rows = np.flatnonzero(self.configuration >= 0)
        cut = self.configuration[rows]
        np.add.at(out, slo.gpu_type[cut], self.leases[rows] * slo.gpus[cut][:, None])
        return out

    def value(self, slo: SloJobs) -> float:
        """What the deadlines that are met earn."""
        return float(slo.value[self.deadline[self.deadline >= 0]].sum())

    def reward(self, slo: SloJobs, best_effort: BestEffort, lease_cost: float) -> float:
        """Rewards of best-effort jobs, less the starts in lease 0 and the GPU-leases used."""
        rows = np.flatnonzero(self.configuration >= 0)
        cut = self.configuration[rows]
        starts = float(slo.start_cost[cut] @ self.leases[rows, 0])
        leases = int(slo.gpus[cut] @ slo.need[cut])
        rewards = float(best_effort.reward[self.chosen[self.chosen >= 0]].sum())
        return rewards - starts - lease_cost * leases

    def with_earliest_deadlines(self, slo: SloJobs) -> Plan:
        """Let each job meet the first deadline that its leases allow."""
        deadline = self.deadline.copy()
        horizon = self.leases.shape[1]
        for row in np.flatnonzero(self.configuration >= 0).tolist():
            end = horizon - int(np.argmax(self.leases[row, ::-1]))
            cut = slice(int(slo.due_offsets[row]), int(slo.due_offsets[row + 1]))
            deadline[row] = cut.start + int(np.count_nonzero(slo.due[cut] < end))
        return replace(self, deadline=deadline)


def plan_faults(slo: SloJobs, best_effort: BestEffort, capacity: Ints, plan: Plan) -> list[str]:
    """List the rules that a plan breaks, job by job; promises are not judged."""
    found = list[str]()
    rows = np.flatnonzero(plan.configuration >= 0)
    cut = plan.configuration[rows]
    if plan.leases[plan.configuration < 0].any():
        found.append("a job that is not in the plan has leases")
    if ((plan.deadline >= 0) != (plan.configuration >= 0)).any():
        found.append("a job in the plan has no deadline")
        return found
    if not np.array_equal(slo.job_of_configuration[cut], rows):
        found.append("a job has another's configuration")
    if (plan.leases[rows].sum(axis=1) != slo.need[cut]).any():
        found.append("a job has not the leases it needs")
    due = np.clip(slo.due[plan.deadline[rows]], 0, plan.leases.shape[1])
    row, lease = np.nonzero(plan.leases[rows])
    if (lease >= due[row]).any():
        found.append("a job runs after its deadline")
    use = plan.use(slo, capacity.shape[0])
    on = plan.chosen[plan.chosen >= 0]
    np.add.at(use[:, 0], best_effort.gpu_type[on], best_effort.gpus[on])
    if (use > capacity).any():
        found.append("a lease has too few GPUs")
    return found


def better(one: tuple[float, float], two: tuple[float, float]) -> bool:
    """Whether a pair of value and reward is better than another, the value first."""
    step = SAME * max(1.0, abs(one[0]), abs(two[0]))
    if abs(one[0] - two[0]) > step:
        return one[0] > two[0]
    return one[1] > two[1] + SAME * max(1.0, abs(two[1]))


SAME = 1e-9
"""Relative difference up to which two sums of values are the same."""


def fitting(gpus: Ints, gpu_type: Ints, worth: Floats, tie: Ints, free: Ints) -> list[int]:
    """Order configurations by worth per GPU, ties by ``tie``, and drop those that never fit."""
    rows = np.flatnonzero(gpus <= free[gpu_type]) if gpus.size else np.zeros(0, dtype=np.int64)
    rate = np.round(worth[rows] / gpus[rows], 12)
    return rows[np.lexsort((tie[rows], -rate))].tolist()
