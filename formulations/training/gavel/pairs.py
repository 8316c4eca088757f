"""The part of every model that all Gavel policies have in common: who spends time on which type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.formulations.training.time_share_program import TIME
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Floats, Ints
from apportion.solver import Axis, Classes, ModelBuilder


@dataclass(frozen=True, eq=False)
class Pairs:
    """Jobs, or classes of identical ones, and the types they can spend time on.

    Parameters
    ----------
    job, kinds
        Names of the jobs and of the types.
    speed
        Speed of each job's gang on each type, 0 where it cannot run, shape (m, k).
    gang
        GPUs of each; a class has those of all its members. Shape (m,).
    capacity
        GPUs of each type, shape (k,).
    """

    job: Sequence[str]
    kinds: Sequence[str]
    speed: Floats
    gang: Floats
    capacity: Floats

    @classmethod
    def of(cls, sharers: Sharers, speed: Floats, classes: Classes | None = None) -> Pairs:
        """Take the jobs that share, at the speeds a policy believes in, merged where it says so."""
        names = sharers.round_.jobs.id[sharers.rows]
        kinds = sharers.round_.cluster.types.tolist()
        if classes is None:
            return cls(names.tolist(), kinds, speed, sharers.gang, sharers.capacity)
        some = classes.first
        gang = sharers.gang[some] * classes.count
        return cls(names[some].tolist(), kinds, speed[some], gang, sharers.capacity)

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Job and type of each pair, in order of jobs."""
        row, kind = np.nonzero(self.speed > 0.0)
        return row, kind

    @cached_property
    def best(self) -> Floats:
        """Largest speed of each job, shape (m,)."""
        return self.speed.max(axis=1, initial=0.0)

    @cached_property
    def relative(self) -> Floats:
        """Speed of each pair in parts of the job's best: rows of models are made of these."""
        row, kind = self.places
        return self.speed[row, kind] / self.best[row]

    def axes(self) -> tuple[Axis, Axis]:
        """Name each pair by its job and type."""
        row, kind = self.places
        return Axis("job", self.job, codes=row), Axis("type", self.kinds, codes=kind)

    def time(self, builder: ModelBuilder) -> Ints:
        """Add columns ``x[job, type]``, rows ``one[job]`` and ``capacity[type]``."""
        row, kind = self.places
        x = builder.columns(TIME, row.size, axes=self.axes())
        builder.rows(
            "one", len(self.job), row=row, column=x, value=1.0, upper=1.0,
            axes=(Axis("job", self.job),),
        )  # fmt: skip
        builder.rows(
            "capacity", len(self.kinds), row=kind, column=x, value=self.gang[row],
            upper=self.capacity, axes=(Axis("type", self.kinds),),
        )  # fmt: skip
        return x
