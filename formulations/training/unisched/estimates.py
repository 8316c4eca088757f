"""What is still to be done, by stopping criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from apportion.instances.columns import Bools, Floats, bools, floats, require, sized
from apportion.instances.training import TrainingRound


@dataclass(frozen=True, eq=False)
class Estimates:
    """Work that is estimated to be left, one row a job.

    Parameters
    ----------
    left
        Work units to the end, positive, shape (n,).
    capped
        True where no curve says when the metric will be reached, so that the cap (or, without
        one, the reported work) stands in, shape (n,).
    unreachable
        True where a curve says that it never will, shape (n,).

    Raises
    ------
    InstanceError
        On columns of different lengths, or work that is not positive.
    """

    left: Floats
    capped: Bools
    unreachable: Bools

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("left", floats(self.left, "estimates.left"))
        sized(self.left, "estimates.left")
        require(self.left, self.left > 0, "estimates.left", "must be positive")
        for name in ("capped", "unreachable"):
            put(name, bools(getattr(self, name), f"estimates.{name}", self.left.shape))


class Estimator(Protocol):
    """Anything that tells how much is left of each job of a round."""

    def __call__(self, round_: TrainingRound) -> Estimates:
        """Estimate; must be a function of the round alone."""
        ...


LEAST_PART = 1e-6
"""Part of the whole work that counts as left of a job that has done all it was thought to need:
it has not ended, so that something is left."""


def remaining(total: Floats, done: Floats) -> Floats:
    """Work left of a total, never quite nothing."""
    return np.maximum(total - done, LEAST_PART * np.maximum(total, 1.0))


def caps(round_: TrainingRound) -> Floats:
    """Most work of each job: the reported work, or the cap of those that stop on a metric."""
    jobs = round_.jobs
    capped = jobs.stop_on_metric & np.isfinite(jobs.iteration_cap)
    return np.where(capped, jobs.iteration_cap, jobs.work)


def reported_work(round_: TrainingRound) -> Estimates:
    """Estimate by what was reported: the work of all jobs, the cap of those that have one."""
    jobs = round_.jobs
    nowhere = np.zeros(len(jobs), dtype=np.bool_)
    return Estimates(remaining(caps(round_), jobs.work_done), jobs.stop_on_metric, nowhere)
