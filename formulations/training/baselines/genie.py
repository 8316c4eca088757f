"""GENIE: the shortest waiting allowance first, on the number of GPUs that wastes least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.baselines.deadlines import (
    ROUNDING,
    Choices,
    choices_of,
    due_times,
    in_time,
    keep_on,
    least_time,
    on_types,
    work_left,
)
from apportion.formulations.training.greedy import fill
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound


@dataclass(frozen=True, eq=False)
class Waiting:
    """What GENIE chose for each job that waits with a deadline.

    Parameters
    ----------
    gpus
        GPUs it would get, its gang where no number keeps the deadline, shape (n,).
    allowance_gpu_s
        Time it can still wait times these GPUs, infinite where no number of GPUs keeps a
        deadline, shape (n,).
    """

    gpus: Ints
    allowance_gpu_s: Floats


def waiting(round_: TrainingRound, choices: Choices, due_s: Floats) -> Waiting:
    """Choose the number of GPUs of each job: the least GPU time of those that keep the deadline.

    Of several with the same GPU time the fewest GPUs are taken. A number's speed is that on the
    fastest type.

    Parameters
    ----------
    round_, choices
        The round, and what is tried for its jobs.
    due_s
        Deadlines, infinite for jobs that have none, shape (n,).
    """
    jobs, n = round_.jobs, len(round_.jobs)
    some = np.isfinite(due_s[choices.job])
    job, gpus, rate = choices.job[some], choices.gpus[some], choices.rate[some]
    takes_s = work_left(round_)[job] / rate
    good = in_time(round_.now_s + takes_s, due_s[job], takes_s)
    job, gpus, takes_s = job[good], gpus[good], takes_s[good]
    allowance = np.maximum(due_s[job] - takes_s - round_.now_s, 0.0) * gpus
    least = np.full(n, np.inf)
    np.minimum.at(least, job, takes_s * gpus)
    near = takes_s * gpus <= least[job] * (1.0 + ROUNDING)
    job, gpus, allowance = job[near], gpus[near], allowance[near]
    # the fewest GPUs are written last; of one count the same time is left on every type
    order = np.argsort(-gpus, kind="stable")
    out = Waiting(jobs.gang.copy(), np.full(n, np.inf))
    out.gpus[job[order]] = gpus[order]
    out.allowance_gpu_s[job[order]] = allowance[order]
    return out


def _tried(gang: Ints, gpus: Ints, spread: float) -> Bools:
    """Powers of two near the gang, and the gang itself."""
    power = (gpus & (gpus - 1)) == 0
    return (gpus == gang) | (power & (gpus * spread >= gang) & (gpus <= gang * spread))


@dataclass(frozen=True)
class Genie:
    """Shortest waiting allowance first, without preemption.

    Each SLO job that waits takes the number of GPUs with the least GPU time among those that keep
    its next deadline; who can wait least, in GPU-seconds, goes first, and one that does not fit
    holds back the SLO jobs behind it. Best-effort jobs and those that have missed follow by
    arrival, with their gangs, skipping what does not fit.

    Parameters
    ----------
    spread
        Powers of two from the gang divided by this to the gang times this are tried; 1: gangs
        only. Numbers other than the gang need a configuration of the job.
    strict
        True: an SLO job that does not fit holds back later SLO jobs. False: it is skipped.
    """

    source: ClassVar[str] = "GENIE, as the Chronus group implemented it; see docs/systems"
    name: ClassVar[str] = "genie"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    spread: float = 4.0
    strict: bool = True

    def __post_init__(self) -> None:
        if not 1.0 <= self.spread <= LARGEST:
            rule = f"must be a number from 1 to {LARGEST:g}"
            raise InstanceError(f"genie.spread = {self.spread}: {rule}")
        if not isinstance(self.strict, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InstanceError(f"genie.strict = {self.strict!r}: must be true or false")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Find the allowances."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs, held = round_.jobs, pinned(round_)
        choices = choices_of(round_)
        chosen, due_s = self._chosen(round_, choices)
        order = np.lexsort((jobs.code, jobs.arrival_s, chosen.allowance_gpu_s))
        kinds = keep_on(round_, held, choices, order)
        gpus = np.where(kinds >= 0, jobs.held_gpus, chosen.gpus)
        free = held.free - on_types(kinds, gpus, held.free.size)
        asks = (kinds < 0) & held.open & round_.startable
        pressed = asks & np.isfinite(chosen.allowance_gpu_s)
        score = _scores(round_, choices, gpus)
        first = fill(order[pressed[order]], score, gpus, free, strict=self.strict)
        free = free - on_types(first, gpus, free.size)
        others = asks & ~pressed
        then = fill(order[others[order]], score, gpus, free)
        kinds = np.maximum(kinds, np.maximum(first, then))
        # without a job that holds others back nobody who waits fits what is free
        blocked = bool((kinds[pressed] < 0).any())
        return Decision(
            joined(held, kinds, gpus),
            next_decision_s=None if blocked else np.inf,
            per_job={"due_s": due_s, "allowance_gpu_s": chosen.allowance_gpu_s},
            notes=notes_on_hopeless(round_),
        )

    def _chosen(self, round_: TrainingRound, choices: Choices) -> tuple[Waiting, Floats]:
        """Counts and allowances; a deadline is missed where no count that is tried keeps it."""
        tried = _tried(round_.jobs.gang[choices.job], choices.gpus, self.spread)
        usable = Choices(
            choices.job[tried], choices.kind[tried], choices.gpus[tried], choices.rate[tried]
        )
        due_s = due_times(round_, least_time(round_, usable))
        return waiting(round_, usable, due_s), due_s

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


def _scores(round_: TrainingRound, choices: Choices, gpus: Ints) -> Floats:
    """Score of each job on each type with its number of GPUs, the fastest lowest, shape (n, k)."""
    jobs, k = round_.jobs, round_.cluster.types.size
    score = np.full((len(jobs), k), np.inf)
    same = choices.gpus == gpus[choices.job]
    score[choices.job[same], choices.kind[same]] = -choices.rate[same]
    gangs = np.flatnonzero(gpus == jobs.gang)
    score[gangs] = np.minimum(score[gangs], fastest(round_, gangs))
    return score
