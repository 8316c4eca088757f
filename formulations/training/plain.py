"""What decisions of all training policies share: joining pinned leases, programs without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.formulations.training.pinned import Pinned
from apportion.instances import Budget, Decision
from apportion.instances.columns import Ints
from apportion.instances.training import Allocation, TrainingRound, never_fits


def joined(
    pinned: Pinned, type_of_job: Ints, gpus: Ints, lease_end_s: float = np.inf
) -> Allocation:
    """Join the leases that go on with those a policy chose, in order of rows.

    Parameters
    ----------
    pinned
        Leases that go on.
    type_of_job
        Chosen type of each job of the round, -1 = waits, shape (n,).
    gpus
        GPUs each would get, shape (n,).
    lease_end_s
        End of the chosen leases.
    """
    chosen = (type_of_job >= 0).nonzero()[0]
    if not pinned.job.size:
        return Allocation(
            job=chosen,
            gpu_type=type_of_job[chosen],
            gpus=gpus[chosen],
            lease_end_s=np.full(chosen.size, lease_end_s),
            guaranteed=np.zeros(chosen.size, dtype=np.bool_),
        )
    job = np.concatenate((pinned.job, chosen))
    order = np.argsort(job, kind="stable")
    ends = np.full(chosen.size, lease_end_s)
    sure = np.zeros(chosen.size, dtype=np.bool_)
    return Allocation(
        job=job[order],
        gpu_type=np.concatenate((pinned.gpu_type, type_of_job[chosen]))[order],
        gpus=np.concatenate((pinned.gpus, gpus[chosen]))[order],
        lease_end_s=np.concatenate((pinned.lease_end_s, ends))[order],
        guaranteed=np.concatenate((pinned.guaranteed, sure))[order],
    )


def notes_on_hopeless(round_: TrainingRound) -> tuple[str, ...]:
    """Tell, one line each, which jobs can never start in this round and why."""
    lost = tuple(
        f"job {str(round_.jobs.id[row])!r} has lost its GPUs: one of its nodes is out of service"
        for row in np.flatnonzero(round_.stranded).tolist()
    )
    if round_.startable.all():
        return lost
    return lost + tuple(
        f"job {str(round_.jobs.id[row])!r} can never start: {reason}"
        for row, reason in never_fits(round_)
    )


@dataclass(frozen=True)
class PlainProgram:
    """A program without a model: its incumbent is its answer."""

    decide: Callable[[], Decision]

    @property
    def model(self) -> None:
        """There is none."""
        return None

    def incumbent(self) -> Decision:
        """Decide."""
        return self.decide()

    def solve(self, solver: Any, budget: Budget) -> Decision:
        """Decide; neither a solver nor much time is needed."""
        return self.decide()
