"""Earliest deadline first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.baselines.deadlines import (
    choices_of,
    due_times,
    keep_on,
    least_time,
    on_types,
)
from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound


@dataclass(frozen=True)
class EDF:
    """Earliest deadline first, skipping gangs that do not fit.

    SLO jobs go by the next deadline they can still meet, then best-effort jobs, at the same
    deadline by arrival. An SLO job that can meet none is best effort from then on. Each job takes
    the fastest type with room.

    Parameters
    ----------
    preemptive
        False: a job keeps its GPUs to the end. True: GPUs are given anew in every round, which is
        its lease.
    """

    source: ClassVar[str] = "textbook; order as in TitanSched, see docs/systems"
    name: ClassVar[str] = "edf"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    preemptive: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.preemptive, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InstanceError(f"edf.preemptive = {self.preemptive!r}: must be true or false")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Order the jobs by deadline."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs, held = round_.jobs, pinned(round_)
        choices = choices_of(round_)
        due_s = due_times(round_, least_time(round_, choices))
        order = np.lexsort((jobs.code, jobs.arrival_s, due_s))
        kinds = np.full(len(jobs), NOWHERE, dtype=np.int64)
        if not self.preemptive:
            kinds = keep_on(round_, held, choices, order)
        free = held.free - on_types(kinds, jobs.held_gpus, held.free.size)
        gpus = np.where(kinds >= 0, jobs.held_gpus, jobs.gang)
        asks = (kinds < 0) & held.open & round_.startable
        rows = np.flatnonzero(asks)
        score = np.full((len(jobs), free.size), np.inf)
        score[rows] = fastest(round_, rows)
        kinds = np.maximum(kinds, fill(order[asks[order]], score, jobs.gang, free))
        waits = bool((kinds[rows] < 0).any())
        return Decision(
            joined(held, kinds, gpus),
            next_decision_s=self._next(due_s, waits=waits),
            per_job={"due_s": due_s},
            notes=notes_on_hopeless(round_),
        )

    def _next(self, due_s: Floats, *, waits: bool) -> float | None:
        """Infinite where time alone changes nothing.

        Without preemption nobody who waits fits what is free, in whatever order; with it the order
        of those who run and those who wait changes when one of them misses.
        """
        changes = self.preemptive and waits and bool(np.isfinite(due_s).any())
        return None if changes else np.inf

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None
