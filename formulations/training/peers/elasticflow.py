"""ElasticFlow: admission by minimum satisfactory shares, idle GPUs where they cost least."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from apportion.formulations.training.baselines.deadlines import (
    Choices,
    choices_of,
    due_times,
    least_time,
    on_types,
    work_left,
)
from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.peers.elasticflow_plan import (
    Asked,
    Filled,
    Levels,
    admit,
    levels_of,
)
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Bools, Floats, Ints, bools, names
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound

_MOST_SLOTS = 100_000
"""Beyond this a plan of one job alone takes longer than a decision may."""

_MOST_SEARCHES = 1_000_000_000
"""Searches of a decision: beyond this nobody waits for it."""


class Given(NamedTuple):
    """Types and GPUs of the jobs in this round, shape (n,) each; ``NOWHERE``: waits."""

    kinds: Ints
    gpus: Ints


@dataclass(frozen=True)
class ElasticFlow:
    """Deadlines with elastic jobs: as few GPUs as keep each, the idle ones to who wastes least.

    Jobs with deadlines are planned in order of deadline over slots; each gets its minimum
    satisfactory share. A newcomer is admitted for good if all that were admitted still get theirs;
    otherwise it is best effort, like all jobs without deadlines and those that have missed. Idle
    GPUs go to admitted jobs whose share begins later, to best-effort jobs by arrival, and last,
    level by level, to the running job whose added GPUs save most GPU time or cost least.

    Parameters
    ----------
    slots
        Most slots of a plan. A slot is a round, or several where deadlines lie further ahead.
    searches
        Searches for a share in one decision beside the first of every job, which is what newcomers
        cost that others must make room for; who comes after waits for the next round to be admitted
        or rejected.
    scale_up
        False: idle GPUs of this last kind stay idle.
    """

    source: ClassVar[str] = "ElasticFlow (ASPLOS 2023), in part; see docs/systems"
    name: ClassVar[str] = "elasticflow"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    slots: int = 288
    searches: int = 1500
    scale_up: bool = True

    def __post_init__(self) -> None:
        for field, least, most in (("slots", 1, _MOST_SLOTS), ("searches", 0, _MOST_SEARCHES)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                rule = f"must be a whole number from {least} to {most}"
                raise InstanceError(f"elasticflow.{field} = {value!r}: {rule}")
        if not isinstance(self.scale_up, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InstanceError(f"elasticflow.scale_up = {self.scale_up!r}: must be true or false")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Read who was admitted.

        Raises
        ------
        InstanceError
            On a memory that is not one of ElasticFlow.
        """
        known, accepted = _recall(round_, memory)
        return PlainProgram(lambda: self._decide(round_, known, accepted))

    def _decide(self, round_: TrainingRound, known: Bools, accepted: Bools) -> Decision:
        jobs, held = round_.jobs, pinned(round_)
        choices = choices_of(round_)
        due_s = due_times(round_, least_time(round_, choices), last=True)
        counts = np.isfinite(due_s) & round_.startable
        # who was rejected, and who has missed, is best effort; leases that go on need no plan
        decided = counts & held.open & (accepted | ~known)
        rows = np.flatnonzero(decided)
        rows = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows], due_s[rows]))]
        asked, free = self._asked(round_, held, choices, rows, due_s)
        newcomers = np.flatnonzero(~known[rows])
        by_arrival = np.lexsort((jobs.code[rows[newcomers]], jobs.arrival_s[rows[newcomers]]))
        state = admit(asked, free, accepted[rows], newcomers[by_arrival], self.searches)
        plan, took = state.plan, state.accepted
        admitted, rejected = accepted & counts, known & ~accepted
        admitted[rows] = took
        rejected[rows[state.rejected]] = True
        shared = self._shared(round_, rows[took], plan, took)
        given = self._start(round_, held, shared, np.where(admitted, due_s, np.inf))
        if self.scale_up:
            given = _scaled(round_, held, choices, given)
        settled = known | admitted | rejected
        verdict = accepted | admitted
        return Decision(
            joined(held, given.kinds, given.gpus),
            carry={"id": jobs.id[settled], "admitted": verdict[settled]},
            per_job={
                "due_s": due_s,
                "admitted": admitted,
                "least_share": _least_shares(round_, rows, plan, took),
            },
            notes=notes_on_hopeless(round_),
        )

    def _asked(
        self, round_: TrainingRound, held: Pinned, choices: Choices, rows: Ints, due_s: Floats
    ) -> tuple[Asked, Ints]:
        """Jobs in order of deadline, and the free GPUs of each type and slot."""
        ahead_s = due_s[rows] - round_.now_s
        far = float(ahead_s.max(initial=0.0)) / round_.duration_s
        # several rounds make a slot, so that the last deadline lies within the plan
        slot_s = round_.duration_s * max(1.0, np.ceil(far / self.slots))
        due = ahead_s / slot_s
        slots = max(1, int(np.ceil(due.max(initial=0.0))))
        free = np.repeat(held.free[:, None], slots, axis=1)
        levels = levels_of(choices, round_.jobs.gang, rows, slot_s)
        return Asked(levels, work_left(round_)[rows], due), free

    def _shared(self, round_: TrainingRound, rows: Ints, plan: Filled, took: Bools) -> Given:
        """What the plan gives in its first slot."""
        n = len(round_.jobs)
        kinds, gpus = np.full(n, NOWHERE, dtype=np.int64), np.zeros(n, dtype=np.int64)
        for row, at in zip(rows.tolist(), np.flatnonzero(took).tolist(), strict=True):
            share = plan.share[at]
            if share is not None and share.use[0] > 0:
                kinds[row], gpus[row] = share.kind, share.use[0]
        return Given(kinds, gpus)

    def _start(self, round_: TrainingRound, held: Pinned, given: Given, due_s: Floats) -> Given:
        """Let admitted jobs start before their share begins, by deadline, then others by arrival."""
        jobs, k = round_.jobs, held.free.size
        free = held.free - on_types(given.kinds, given.gpus, k)
        waits = (given.kinds < 0) & held.open & round_.startable
        gpus = np.where(given.kinds >= 0, given.gpus, jobs.gang)
        rows = np.flatnonzero(waits)
        score = np.full((len(jobs), k), np.inf)
        score[rows] = fastest(round_, rows)
        order = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows], due_s[rows]))]
        started = fill(order, score, jobs.gang, free)
        return Given(np.maximum(given.kinds, started), gpus)

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> dict[str, Any] | None:
        """Keep who was admitted and who was rejected."""
        return decision.carry


def _least_shares(round_: TrainingRound, rows: Ints, plan: Filled, took: Bools) -> Ints:
    """Minimum satisfactory share of each admitted job, 0 for all others, shape (n,)."""
    out = np.zeros(len(round_.jobs), dtype=np.int64)
    for row, share, own in zip(rows.tolist(), plan.share, took.tolist(), strict=True):
        if own and share is not None:
            out[row] = share.most
    return out


def _scaled(round_: TrainingRound, held: Pinned, choices: Choices, given: Given) -> Given:
    """Hand idle GPUs on, one level at a time, where a GPU saves most GPU time or costs least.

    From x GPUs to y, ``(work / rate(x) x - work / rate(y) y) / (y - x)`` GPU-seconds are saved by
    each GPU; they are fewer than none where speed grows less than in proportion.
    """
    jobs = round_.jobs
    left = held.free - on_types(given.kinds, given.gpus, held.free.size)
    elastic = np.flatnonzero((given.kinds >= 0) & (np.diff(jobs.config_offsets) > 0))
    if not elastic.size or not left.any():
        return given
    levels = levels_of(choices, jobs.gang, elastic, 1.0)
    work = work_left(round_)
    kinds, gpus = given.kinds.copy(), given.gpus.copy()
    heap: list[tuple[float, int, int, int, Levels]] = []

    def push(row: int, level: Levels) -> None:
        at = int(np.searchsorted(level.gpus, int(gpus[row])))
        if at + 1 < level.gpus.size and level.gpus[at] == gpus[row]:
            heapq.heappush(
                heap, (-_saved(level, at, work[row]), int(jobs.code[row]), row, at, level)
            )

    for row, own in zip(elastic.tolist(), levels, strict=True):
        for level in own:
            if level.kind == kinds[row]:
                push(row, level)
    while heap:
        _, _, row, at, level = heapq.heappop(heap)
        more = int(level.gpus[at + 1] - level.gpus[at])
        if more <= left[level.kind]:
            left[level.kind] -= more
            gpus[row] = level.gpus[at + 1]
            push(row, level)
    return Given(kinds, gpus)


def _saved(level: Levels, at: int, work: float) -> float:
    """GPU-seconds that each GPU saves between one level and the next."""
    cost = work / level.rate[at : at + 2] * level.gpus[at : at + 2]
    return float((cost[0] - cost[1]) / (level.gpus[at + 1] - level.gpus[at]))


def _recall(round_: TrainingRound, memory: Any) -> tuple[Bools, Bools]:
    """Jobs that were decided on before, and those of them that were admitted, shape (n,)."""
    n = len(round_.jobs)
    known, accepted = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    if memory is None:
        return known, accepted
    try:
        ids = names(memory["id"], "memory.id")
        admitted = bools(memory["admitted"], "memory.admitted", (ids.size,))
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of elasticflow: it lacks a column") from None
    verdict = dict(zip(ids.tolist(), admitted.tolist(), strict=True))
    for row, name in enumerate(round_.jobs.id.tolist()):
        found = verdict.get(name)
        if found is not None:
            known[row], accepted[row] = True, found
    return known, accepted
