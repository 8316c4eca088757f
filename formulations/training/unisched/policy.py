"""UniSched: deadlines first, then the latency of best-effort jobs, in one selector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.unisched.configurations import Configurations
from apportion.formulations.training.unisched.estimates import Curves, Estimates, Estimator
from apportion.formulations.training.unisched.memory import (
    SAME_S,
    of_estimator,
    recall,
    with_prefix,
)
from apportion.formulations.training.unisched.program import UniSchedProgram
from apportion.formulations.training.unisched.round_demand import Standing, leases_needed
from apportion.formulations.training.unisched.select import MOST_SLOTS
from apportion.instances import Budget, Decision, InstanceError, Reason
from apportion.instances.columns import LARGEST
from apportion.instances.training import Outcome, TrainingRound
from apportion.instances.training.fit import EstimatorOptions


@dataclass(frozen=True)
class UniSched:
    """Deadlines, latency and two stopping criteria in one scheduler (IEEE TC 73(6), 2024).

    At every boundary of leases jobs with deadlines are admitted and planned: a configuration, a
    deadline and leases for each, so that the value of the deadlines is largest; of these plans the
    one is taken that serves best-effort jobs most. Accepted jobs stay accepted. In between, idle
    GPUs go to best-effort jobs, then to jobs ahead of their plan, then to elastic jobs.

    Parameters
    ----------
    lease_s
        Length of a lease, made a whole number of rounds.
    restart_s
        A start on g GPUs costs ``restart_s * (1 + log2 g)`` seconds, or the job's own ``restart_s``
        if that is more.
    restarts
        ``every``: each lease may begin with a restart, so that scattered leases suffice. ``once``:
        one restart in all is planned for, which promises too much where leases are scattered.
    reward
        Reward of a best-effort job with one lease to go; with R leases it is a R-th of that.
    horizon_s
        Deadlines that lie further ahead are taken as this far.
    most_slots
        Columns of leases from which on time is planned in buckets of 1, 1, 2, 4, ... leases.
    scale_up
        Whether idle GPUs make elastic jobs larger.
    last_chance
        Whether a job that no lease could be promised goes before best effort while it can still be
        in time.
    slo_quantile, best_effort_quantile
        Quantiles of the fitted curves that stand for jobs with deadlines and for the others.
    estimator
        What tells how much work is left; None: reported work, and curves for jobs that stop on a
        metric.
    """

    source: ClassVar[str] = (
        "UniSched (IEEE TC 73(6), 2024), reconstructed from its abstract; see"
        " docs/systems/unisched.md"
    )
    name: ClassVar[str] = "unisched"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    lease_s: float = 1200.0
    restart_s: float = 30.0
    restarts: Literal["every", "once"] = "every"
    reward: float = 25.0
    horizon_s: float = 1_209_600.0
    most_slots: int = MOST_SLOTS
    scale_up: bool = True
    last_chance: bool = True
    slo_quantile: float = 0.8
    best_effort_quantile: float = 0.5
    estimator: Estimator | None = None

    def __post_init__(self) -> None:
        for field in ("lease_s", "reward", "horizon_s"):
            value = getattr(self, field)
            if not 0 < value <= LARGEST:
                raise InstanceError(
                    f"unisched.{field} = {value}: must be positive, at most {LARGEST:g}"
                )
        if not 0 <= self.restart_s <= LARGEST:
            raise InstanceError(f"unisched.restart_s = {self.restart_s}: must not be negative")
        if self.restarts not in ("every", "once"):
            raise InstanceError(
                f"unisched.restarts = {self.restarts!r}: must be one of every, once"
            )
        if self.horizon_s < self.lease_s:
            raise InstanceError(
                f"unisched.horizon_s = {self.horizon_s}: must hold one lease of {self.lease_s:g} s"
            )
        if self.most_slots < 0 or self.most_slots != int(self.most_slots):
            raise InstanceError(
                f"unisched.most_slots = {self.most_slots}: must be a whole number from 0 on"
            )
        for field in ("slo_quantile", "best_effort_quantile"):
            if not 0 < getattr(self, field) < 1:
                raise InstanceError(
                    f"unisched.{field} = {getattr(self, field)}: must lie between 0 and 1"
                )
        if self.estimator is not None and not callable(self.estimator):
            raise InstanceError(f"unisched.estimator = {self.estimator!r}: must be callable")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> UniSchedProgram:
        """Estimate what is left, and see whether the leases in force are over.

        Raises
        ------
        InstanceError
            On a memory that is not UniSched's, or an estimator that answers for other jobs.
        """
        old = recall(memory)
        lease_s = self.lease_of(round_)
        boundary = old is None or round_.now_s >= old.start_s + lease_s - SAME_S
        told, fits = self._estimated(round_, of_estimator(memory), boundary)
        menu = Configurations.of(round_, self.restart_s)
        left_s = told.left[menu.job] / menu.speed
        need = leases_needed(left_s, menu.restart_s, lease_s, self.restarts == "every")
        return UniSchedProgram(
            standing=Standing(round_, pinned(round_), menu, left_s, lease_s, need, old),
            told=told,
            fits=fits,
            boundary=boundary,
            reward=self.reward,
            horizon_leases=max(1, int(self.horizon_s // lease_s)),
            most_slots=self.most_slots,
            scale_up=self.scale_up,
            last_chance=self.last_chance,
        )

    def lease_of(self, round_: TrainingRound) -> float:
        """Length of a lease: whole rounds, one at least, so that it ends at a decision."""
        return round_.duration_s * max(
            1.0, float(np.floor(self.lease_s / round_.duration_s + 1e-9))
        )

    @property
    def _told_by(self) -> Estimator:
        if self.estimator is not None:
            return self.estimator
        return Curves(
            EstimatorOptions(
                slo_quantile=self.slo_quantile, best_effort_quantile=self.best_effort_quantile
            )
        )

    def _estimated(
        self, round_: TrainingRound, memory: dict[str, Any] | None, refit: bool
    ) -> tuple[Estimates, dict[str, Any]]:
        told, fits = self._told_by(round_, memory, refit)
        if told.left.shape != (len(round_.jobs),):
            raise InstanceError(
                f"unisched.estimator answered for {told.left.size} jobs of {len(round_.jobs)}"
            )
        return told, fits

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Keep the plan in force, what was fitted, and what ended jobs took."""
        carry, fits = dict(decision.carry), of_estimator(decision.carry)
        if self.estimator is None and fits is not None:
            done = round_.jobs.work_done + outcome.work
            ended = Curves.ended(round_, fits, done, outcome.finished)
            carry.update(with_prefix(ended))
        return carry
