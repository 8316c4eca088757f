"""Plain orders that every scheduler is measured against: first come, and shortest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.greedy import fill
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest, going_on
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Ints
from apportion.instances.training import TrainingRound


@dataclass(frozen=True)
class FIFO:
    """First come, first served, without preemption.

    Jobs start in order of arrival on the fastest type with room, and keep their GPUs to the end.
    A gang that can never start is passed over.

    Parameters
    ----------
    strict
        True: a gang that does not fit holds back all later ones (head of line). False: later
        gangs that fit go ahead.
    """

    source: ClassVar[str] = "textbook; the strict form is what cluster managers call FIFO"
    name: ClassVar[str] = "fifo"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    strict: bool = True

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Order the waiting jobs by arrival."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs = round_.jobs
        held = pinned(round_)
        type_of_job = going_on(round_, held, any_gpus=True)
        keeps = np.flatnonzero(type_of_job >= 0)
        free = held.free - np.bincount(
            type_of_job[keeps], weights=jobs.held_gpus[keeps], minlength=held.free.size
        ).astype(np.int64)
        gpus = np.where(type_of_job >= 0, jobs.held_gpus, jobs.gang)
        if free.any() and keeps.size < len(jobs):
            waits = np.flatnonzero((type_of_job < 0) & held.open & round_.startable)
            started = self._start(round_, waits, free)
            type_of_job = np.maximum(type_of_job, started)
        return Decision(
            joined(held, type_of_job, gpus),
            next_decision_s=np.inf,
            notes=notes_on_hopeless(round_),
        )

    def _start(self, round_: TrainingRound, waits: Ints, free: Ints) -> Ints:
        """Type on which each of the waiting jobs starts, ``NOWHERE`` for the others."""
        jobs = round_.jobs
        order = waits[np.lexsort((jobs.code[waits], jobs.arrival_s[waits]))]
        if self.strict:
            # every gang needs a GPU, so that no later job can start
            order = order[: int(free.sum())]
        return fill(order, fastest(round_), jobs.gang, free, strict=self.strict)

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


@dataclass(frozen=True)
class SRTF:
    """Shortest remaining time first, preemptive, skipping gangs that do not fit.

    Remaining time is the reported work left over the best throughput of the job; each job in
    that order takes the fastest type with room. Preemption is free in its eyes.
    """

    source: ClassVar[str] = "textbook; the remaining time is known, not estimated"
    name: ClassVar[str] = "srtf"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Order all jobs by remaining time."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs = round_.jobs
        held = pinned(round_)
        able = np.flatnonzero(held.open & round_.startable)
        score = fastest(round_)
        left = np.maximum(jobs.work[able] - jobs.work_done[able], 0.0)
        best = np.max(np.where(round_.eligible[able], jobs.throughput_per_s[able], 0.0), axis=1)
        order = able[np.lexsort((jobs.code[able], left / best))]
        type_of_job = fill(order, score, jobs.gang, held.free)
        # on one type the order of the chosen among the others can only change with an event
        one_type = int((round_.capacity > 0).sum()) <= 1
        return Decision(
            joined(held, type_of_job, jobs.gang),
            next_decision_s=np.inf if one_type else None,
            notes=notes_on_hopeless(round_),
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None
