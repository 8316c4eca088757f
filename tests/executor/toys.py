"""Small deciders that the executor is tested with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from apportion.instances import Decision
from apportion.instances.training import Allocation


def greedy(order, gangs, free, *, strict=False):
    """Rows taken in order while they fit; strict stops at the first that does not."""
    taken = []
    while order.size and free > 0:
        total = np.cumsum(gangs[order])
        count = int(total.searchsorted(free, side="right"))
        if count:
            taken.append(order[:count])
            free -= int(total[count - 1])
        if strict:
            break
        order = order[count:]
        order = order[gangs[order] <= free]
    return np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64)


@dataclass
class Toy:
    """What all have in common: no events, no memory."""

    subscribes: frozenset = frozenset()
    reacts_to: frozenset = frozenset()
    next_decision_s: float | None = np.inf
    lease_s: float = np.inf
    seen: list = field(default_factory=list)

    def remember(self, memory, round_, decision, outcome):
        return None

    def react(self, plan, event, view):
        return None, plan

    def answer(self, round_, rows, kinds=0):
        m = rows.size
        return Decision(
            Allocation(
                rows, np.full(m, kinds), round_.jobs.gang[rows],
                np.full(m, round_.now_s + self.lease_s), np.zeros(m, dtype=np.bool_),
            ),
            next_decision_s=self.next_decision_s,
        )  # fmt: skip


@dataclass
class Fifo(Toy):
    """Strict order of arrival on the first type, without preemption."""

    strict: bool = True

    def decide(self, round_, memory):
        jobs = round_.jobs
        runs, waits = jobs.running.nonzero()[0], (~jobs.running).nonzero()[0]
        free = int(round_.capacity[0] - jobs.held_gpus.sum())
        if free > 0 and waits.size:
            waits = waits[np.argsort(jobs.arrival_s[waits], kind="stable")]
            taken = greedy(waits, jobs.gang, free, strict=self.strict)
            runs = np.concatenate((runs, taken))
            runs.sort()
        return self.answer(round_, runs)


@dataclass
class Srtf(Toy):
    """Least remaining work first on the first type, preemptive, skipping what does not fit."""

    def decide(self, round_, memory):
        jobs = round_.jobs
        order = np.argsort(jobs.work - jobs.work_done, kind="stable")
        taken = greedy(order, jobs.gang, int(round_.capacity[0]))
        taken.sort()
        return self.answer(round_, taken)
