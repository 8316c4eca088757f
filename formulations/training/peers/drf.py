"""Dominant resource fairness among tenants, by whole gangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.baselines.quota import Room
from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest, going_on
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound

_SLACK = 1e-9
"""Relative excess over a resource that sums of floats may show where nothing is too much."""


def dominant_shares(used: Floats, capacity: Floats) -> Floats:
    """Largest part of any resource that each user has, shape (users,).

    Parameters
    ----------
    used
        What each user has of each resource, shape (users, resources).
    capacity
        What there is, or each user's weight times that, shape (resources,) or that of ``used``.
    """
    part = np.divide(used, capacity, out=np.zeros(used.shape), where=capacity > 0)
    # whoever has something of what nobody offers has all of it
    part[(used > 0) & ~(capacity > 0)] = np.inf
    return part.max(axis=1, initial=0.0)


def progressive_filling(
    user: Ints,
    demand: Floats,
    capacity: Floats,
    *,
    weight: Floats,
    held: Floats,
    place: Callable[[int], bool] = lambda task: True,
) -> tuple[list[int], Floats]:
    """Serve whole tasks, always the next one of the user with the least dominant share.

    A task that does not fit is passed over; ties go to the user with the lower row.

    Parameters
    ----------
    user
        User of each task, rising; within a user tasks are served in this order, shape (tasks,).
    demand
        What each task takes of each resource, shape (tasks, resources).
    capacity
        What there is, shape (resources,).
    weight
        Entitlement of each user, positive, shape (users,).
    held
        What each user has already, shape (users, resources).
    place
        Called for a task that fits these resources; says whether it finds room otherwise.

    Returns
    -------
    The tasks served, in order, and what each user has in the end, shape (users, resources).
    """
    users, kinds = held.shape
    spans: list[int] = np.searchsorted(user, np.arange(users + 1, dtype=np.int64)).tolist()
    at, ends = spans[:-1], spans[1:]
    has: list[list[float]] = held.tolist()
    needs: list[list[float]] = [column.tolist() for column in demand.T]
    first = needs[0]
    slack = _SLACK * np.maximum(np.where(np.isfinite(capacity), capacity, 0.0), 1.0)
    left: list[float] = (capacity - held.sum(axis=0) + slack).tolist()
    # equal shares are equal numbers after one division each, so that ties are ties
    whole = np.where(capacity > 0, capacity, np.inf) * weight[:, None]
    wholes: list[list[float]] = whole.tolist()
    level: list[float] = dominant_shares(held, capacity * weight[:, None]).tolist()
    waiting = [who for who in range(users) if at[who] < ends[who]]
    least: list[float] = demand.min(axis=0, initial=np.inf).tolist()
    served: list[int] = []
    resources, others = range(kinds), range(1, kinds)
    while waiting and all(left[r] >= least[r] for r in resources):
        who = min(waiting, key=level.__getitem__)
        own, task = has[who], at[who]
        # who is next does not change while tasks are passed over
        while task < ends[who] and not (
            first[task] <= left[0]
            and all(needs[r][task] <= left[r] for r in others)
            and place(task)
        ):
            task += 1
        at[who] = task + 1
        if at[who] >= ends[who]:
            waiting.remove(who)
        if task == ends[who]:
            continue
        served.append(task)
        for r in resources:
            left[r] -= needs[r][task]
            own[r] += needs[r][task]
        level[who] = max(own[r] / wholes[who][r] for r in resources)
    return served, np.array(has).reshape(held.shape)


@dataclass(frozen=True)
class DRF:
    """Dominant resource fairness (Ghodsi et al., NSDI 2011) among tenants, in whole gangs.

    Resources are GPUs (all types together), and the CPU cores and host memory of the nodes in
    service where the cluster tracks them. Each tenant's jobs go first come, first served on the
    fastest type with room; the next job is always that of the tenant whose dominant share over
    its weight is least.

    Parameters
    ----------
    preemptive
        True: shares are filled anew in every round. False: running jobs keep their GPUs and count.
    """

    source: ClassVar[str] = "DRF (NSDI 2011), from general knowledge; see docs/systems"
    name: ClassVar[str] = "drf"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    preemptive: bool = True

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Line up each tenant's jobs by arrival."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs, held = round_.jobs, pinned(round_)
        wish = jobs.running & (not self.preemptive)
        kinds = going_on(round_, held, wish)
        rows = np.flatnonzero((kinds < 0) & held.open & round_.startable)
        rows = rows[rows_that_fit(round_, rows, held.free)]
        order = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows], jobs.tenant[rows]))]
        keeps = np.flatnonzero(kinds >= 0)
        free = held.free.copy()
        np.subtract.at(free, kinds[keeps], jobs.held_gpus[keeps])
        demand, capacity = _resources(round_)
        on = np.concatenate((held.job, keeps))
        has = np.zeros((round_.tenants.id.size, capacity.size))
        np.add.at(has, jobs.tenant[on], demand[on])
        room = Room(fastest(round_, order), free)
        need: list[int] = jobs.gang[order].tolist()
        taken: dict[int, int] = {}

        def place(task: int) -> bool:
            kind = room.find(task, need[task])
            if kind != NOWHERE:
                room.take(kind, need[task])
                taken[task] = kind
            return kind != NOWHERE

        if room.most:
            progressive_filling(
                jobs.tenant[order], demand[order], capacity,
                weight=round_.tenants.weight, held=has, place=place,
            )  # fmt: skip
        if taken:
            kinds[order[list(taken)]] = list(taken.values())
        return Decision(
            joined(held, kinds, jobs.gang),
            # arrivals and ends alone change who is in line, and where
            next_decision_s=np.inf,
            notes=notes_on_hopeless(round_),
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


def rows_that_fit(round_: TrainingRound, rows: Ints, free: Ints) -> Bools:
    """Which of some jobs find room for their gang on a type when they are alone, shape (rows,)."""
    room = round_.jobs.gang[rows][:, None] <= free[None, :]
    return np.asarray((round_.eligible[rows] & room).any(axis=1), dtype=np.bool_)


def _resources(round_: TrainingRound) -> tuple[Floats, Floats]:
    """Demands of the jobs, shape (n, resources), and what the nodes in service have of each."""
    jobs, cluster, up = round_.jobs, round_.cluster, round_.node_up
    demands, capacities = [jobs.gang.astype(np.float64)], [float(round_.capacity.sum())]
    for asked, there in (
        (jobs.cpus, cluster.node_cpus),
        (jobs.memory_gib, cluster.node_memory_gib),
    ):
        total = float(there[up].sum())
        if np.isfinite(total):
            demands.append(asked)
            capacities.append(total)
    return np.stack(demands, axis=1), np.array(capacities)
