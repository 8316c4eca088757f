"""Tiresias: least attained service in GPU-seconds, in a few queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.greedy import fill
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats, Ints, Names, floats, names, require
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound

_MOST_QUEUES = 64
"""Beyond this a geometric ladder of thresholds leaves every trace behind."""

_COLUMNS = ("base_gpu_s", "last_run_s")


def queue_of(attained_gpu_s: Floats, thresholds_gpu_s: Floats) -> Ints:
    """Queue of each job: the number of thresholds that its attained service has reached."""
    return np.searchsorted(thresholds_gpu_s, attained_gpu_s, side="right").astype(np.int64)


@dataclass(frozen=True)
class Tiresias:
    """Two-dimensional least attained service, discretised (Gu et al., NSDI 2019).

    A job's attained service is the GPU-seconds it has held. It begins in the first queue and falls
    into the next one at each threshold. Queues are served in turn, within a queue the job that
    started first goes first, those that never started after it by arrival; a gang that does not
    fit is skipped. Preemptive; each job takes the fastest type with room.

    Parameters
    ----------
    queues
        Number of queues; 1 is first come, first served with preemption by nobody.
    threshold_gpu_s
        Attained service at which a job leaves the first queue: 8 GPU-hours.
    growth
        Each further threshold is so many times the one before.
    promote_knob
        A job that has waited this many times as long as it had run since it last was in the first
        queue returns there; infinite: never.
    """

    source: ClassVar[str] = "Tiresias (NSDI 2019), from general knowledge; see docs/systems"
    name: ClassVar[str] = "tiresias"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    queues: int = 2
    threshold_gpu_s: float = 28_800.0
    growth: float = 10.0
    promote_knob: float = np.inf

    def __post_init__(self) -> None:
        if not 1 <= self.queues <= _MOST_QUEUES:
            raise InstanceError(f"tiresias.queues = {self.queues}: must be 1 to {_MOST_QUEUES}")
        if not 0 < self.threshold_gpu_s <= LARGEST:
            raise InstanceError(
                f"tiresias.threshold_gpu_s = {self.threshold_gpu_s}: must be positive, at most"
                f" {LARGEST:g}"
            )
        if not 1 < self.growth <= LARGEST:
            raise InstanceError(
                f"tiresias.growth = {self.growth}: must be more than 1, at most {LARGEST:g}"
            )
        if not self.promote_knob > 0:
            raise InstanceError(f"tiresias.promote_knob = {self.promote_knob}: must be positive")

    @property
    def thresholds_gpu_s(self) -> Floats:
        """Attained service at which jobs fall, rising, shape (queues - 1,)."""
        return self.threshold_gpu_s * self.growth ** np.arange(self.queues - 1.0)

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Sort the jobs into queues.

        Raises
        ------
        InstanceError
            On a memory that is not one of Tiresias.
        """
        base, since = _recall(round_, memory)
        queue = self._queue(round_, base, since)
        return PlainProgram(lambda: self._decide(round_, queue))

    def _promoted(self, round_: TrainingRound, base: Floats, since: Floats) -> Bools:
        """Waiting jobs that return to the first queue, shape (n,)."""
        jobs = round_.jobs
        ran_s = (jobs.attained_gpu_s - base) / jobs.gang
        waited_s = round_.now_s - since
        # a job that has not run since is in the first queue already
        return ~jobs.running & (ran_s > 0) & (waited_s >= self.promote_knob * ran_s)

    def _queue(self, round_: TrainingRound, base: Floats, since: Floats) -> Ints:
        queue = queue_of(round_.jobs.attained_gpu_s - base, self.thresholds_gpu_s)
        if self.promote_knob < np.inf:
            queue[self._promoted(round_, base, since)] = 0
        return queue

    def _decide(self, round_: TrainingRound, queue: Ints) -> Decision:
        jobs, held = round_.jobs, pinned(round_)
        rows = np.flatnonzero(held.open & round_.startable)
        began = jobs.first_start_s[rows]
        began = np.where(began >= 0, began, np.inf)
        keys = (jobs.code[rows], jobs.arrival_s[rows], began, queue[rows])
        order = rows[np.lexsort(keys)]
        score = np.full((len(jobs), held.free.size), np.inf)
        score[rows] = fastest(round_, rows)
        kinds = fill(order, score, jobs.gang, held.free)
        plan = joined(held, kinds, jobs.gang)
        return Decision(
            plan,
            next_decision_s=self._next(queue, kinds, rows),
            per_job={"queue": queue},
            notes=notes_on_hopeless(round_),
        )

    def _next(self, queue: Ints, kinds: Ints, rows: Ints) -> float | None:
        """Infinite where no time alone can change the order: nobody waits, or nobody can fall."""
        waits = np.count_nonzero(kinds[rows] < 0)
        falls = queue[kinds >= 0].min(initial=self.queues) < self.queues - 1
        return None if waits and (falls or self.promote_knob < np.inf) else np.inf

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any] | None:
        """Keep, where jobs can be promoted, when each last ran and what it had when promoted."""
        if self.promote_knob == np.inf:
            return None
        jobs = round_.jobs
        base, since = _recall(round_, memory)
        promoted = self._promoted(round_, base, since)
        base = np.where(promoted, jobs.attained_gpu_s, base)
        since = np.where(outcome.gpu_s > 0, outcome.end_s, since)
        return {"id": jobs.id, "base_gpu_s": base, "last_run_s": since}


def _recall(round_: TrainingRound, memory: Any) -> tuple[Floats, Floats]:
    """Service at the last promotion and the end of the last run of each job, shape (n,)."""
    jobs = round_.jobs
    base = np.zeros(len(jobs))
    fresh = (jobs.first_start_s < 0) & ~jobs.running
    since = np.where(fresh, jobs.arrival_s, round_.now_s)
    if memory is None:
        return base, since
    try:
        known = names(memory["id"], "memory.id")
        columns = [floats(memory[field], f"memory.{field}", (known.size,)) for field in _COLUMNS]
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of tiresias: it lacks a column") from None
    for field, column in zip(_COLUMNS, columns, strict=True):
        require(column, np.isfinite(column), f"memory.{field}", "must be finite", known)
    at = _places(known, jobs.id)
    found = at >= 0
    base[found] = columns[0][at[found]]
    since[found] = columns[1][at[found]]
    # what a caller reports may have been corrected since
    return np.minimum(base, jobs.attained_gpu_s), np.minimum(since, round_.now_s)


def _places(known: Names, ids: Names) -> Ints:
    """Place of each id among those known, -1 for newcomers."""
    if np.array_equal(known, ids):
        return np.arange(ids.size, dtype=np.int64)
    place = {name: at for at, name in enumerate(known.tolist())}
    return np.array([place.get(name, -1) for name in ids.tolist()], dtype=np.int64)
