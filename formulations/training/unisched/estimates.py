"""What is still to be done, by stopping criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from apportion.instances.columns import Floats, Ints, floats, ints, require, sized
from apportion.instances.training import TrainingRound
from apportion.instances.training.fit import EstimatorOptions, Flag, estimate, remember_ended


@dataclass(frozen=True, eq=False)
class Estimates:
    """Work that is estimated to be left, one row a job.

    Parameters
    ----------
    left
        Work units to the end, positive, shape (n,).
    flag
        Where each number comes from, values of ``Flag``, shape (n,).

    Raises
    ------
    InstanceError
        On columns of different lengths, or work that is not positive.
    """

    left: Floats
    flag: Ints

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("left", floats(self.left, "estimates.left"))
        sized(self.left, "estimates.left")
        require(self.left, self.left > 0, "estimates.left", "must be positive")
        put("flag", ints(self.flag, "estimates.flag", self.left.shape))


class Estimator(Protocol):
    """Anything that tells how much is left of each job of a round."""

    def __call__(
        self, round_: TrainingRound, memory: dict[str, Any] | None, refit: bool
    ) -> tuple[Estimates, dict[str, Any]]:
        """Estimate.

        Parameters
        ----------
        round_
            The round.
        memory
            What the last call returned, None at the start; columns by name.
        refit
            Whether a plan is due, so that new observations are worth a fit.
        """
        ...


LEAST_PART = 1e-6
"""Part of the whole work that counts as left of a job that has done all it was thought to need:
it has not ended, so that something is left."""


def remaining(total: Floats, done: Floats) -> Floats:
    """Work left of a total, never quite nothing."""
    return np.maximum(total - done, LEAST_PART * np.maximum(total, done))


def reported_work(
    round_: TrainingRound, memory: dict[str, Any] | None = None, refit: bool = True
) -> tuple[Estimates, dict[str, Any]]:
    """Estimate by what was reported: the work of all jobs, the cap of those that have one."""
    jobs = round_.jobs
    capped = jobs.stop_on_metric & np.isfinite(jobs.iteration_cap)
    total = np.where(capped, jobs.iteration_cap, jobs.work)
    flag = np.where(jobs.stop_on_metric, Flag.TOO_FEW_POINTS, Flag.EXACT)
    return Estimates(remaining(total, jobs.work_done), flag), {}


@dataclass(frozen=True)
class Curves:
    """Estimate by reported work, and by learning curves for jobs that stop on a metric."""

    options: EstimatorOptions

    def __call__(
        self, round_: TrainingRound, memory: dict[str, Any] | None, refit: bool
    ) -> tuple[Estimates, dict[str, Any]]:
        """Estimate; curves are fitted where a plan is due, and used as they are in between."""
        how = self.options
        if not refit:
            how = EstimatorOptions(
                how.curves, how.slo_quantile, how.best_effort_quantile, refits_most=0
            )
        jobs = round_.jobs
        told, kept = estimate(jobs, memory or None, how)
        return Estimates(remaining(told.iterations, jobs.work_done), told.flag), kept

    @staticmethod
    def ended(
        round_: TrainingRound, memory: dict[str, Any], done: Floats, finished: Any
    ) -> dict[str, Any]:
        """Note what ended jobs took, for others of their template."""
        return remember_ended(memory, round_.jobs, done, finished)
