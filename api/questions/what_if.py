"""What the face asks compiled rounds: what if a job had to run, or a GPU more were there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.instances import Decision, InstanceError, Policy
from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import nearest
from apportion.instances.training import TrainingRound
from apportion.side_rules import SideRules, extended
from apportion.solver import Budget, Model
from apportion.watching import WatchedSolver


@runtime_checkable
class WhatIf(Protocol):
    """A program that gives every job a type at a cost, and changes for questions."""

    @property
    def cost(self) -> Floats:
        """Cost of each job on each type, infinite where it cannot run."""
        ...

    @property
    def held(self) -> Any:
        """Leases that go on, and the GPUs they leave."""
        ...

    @property
    def rows(self) -> Ints:
        """Jobs that this round may place."""
        ...

    def with_gpus(self, kind: int, more: int) -> Any:
        """Give the program with so many GPUs more of a type."""
        ...

    def forced(self, job: int, kind: int) -> Any:
        """Give the program with a job placed on a type."""
        ...

    def kept_out(self, job: int) -> Any:
        """Give the program in which a job has to wait."""
        ...


@dataclass(frozen=True)
class Change:
    """What a decision changes against the one that was made.

    Parameters
    ----------
    objective
        Change of the policy's objective, as stated; None where an optimum was not proved.
    gpus
        GPUs in use more, or fewer.
    stopped
        Jobs that ran and have to wait now.
    status
        Of the changed model.
    """

    objective: float | None
    gpus: int | None
    stopped: tuple[str, ...]
    status: str


@dataclass(eq=False)
class Questions:
    """A compiled round that is solved once as it is, and again for every question."""

    policy: Policy
    round_: TrainingRound
    memory: Any
    solver: WatchedSolver
    budget: Budget
    side_rules: SideRules | None = None

    def __post_init__(self) -> None:
        self.program: Any = self.policy.compile(self.round_, self.memory, self.budget)
        self.model: Model | None = self.program.model
        if self.side_rules is not None:
            self.program, _ = extended(self.program, self.side_rules, self.policy.name)
            self.model = self.program.custom if hasattr(self.program, "custom") else None
        self.base: Decision = self.program.solve(self.solver, self.budget)

    def row(self, job: str) -> int:
        """Find a job.

        Raises
        ------
        InstanceError
            Where the round has no such job.
        """
        ids: list[str] = self.round_.jobs.id.tolist()
        if job not in ids:
            raise InstanceError(f"job {job!r}: is not in the round{nearest(job, ids)}")
        return ids.index(job)

    def running(self, decision: Decision) -> list[str]:
        """Jobs that run."""
        return self.round_.jobs.id[decision.allocation.job].tolist()

    def kind_of(self, row: int) -> int | None:
        """GPU type that a job got, None where it waits."""
        at = np.flatnonzero(self.base.allocation.job == row)
        return int(self.base.allocation.gpu_type[at[0]]) if at.size else None

    def forced(self, row: int, kind: int | None) -> Change:
        """Solve again with a job on a type, or waiting."""
        if self.side_rules is not None:
            return self._forced_in_model(row, kind)
        changed = self.program.kept_out(row) if kind is None else self.program.forced(row, kind)
        return self.change(changed)

    def _forced_in_model(self, row: int, kind: int | None) -> Change:
        """Force by bounds of columns: the model has side rules that the program does not know."""
        assert self.model is not None
        job, types = str(self.round_.jobs.id[row]), self.round_.cluster.types.tolist()
        place = {name: at for at, name in enumerate(self.model.column_names())}
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        for at, name in enumerate(types):
            column = place.get(f"x[{job},{name}]")
            if column is not None and at == kind:
                lower[column] = 1.0
            elif column is not None:
                upper[column] = 0.0
        return self.change(self.program.with_model(replace(self.model, lower=lower, upper=upper)))

    def change(self, program: Any) -> Change:
        """Solve a changed program and set it beside the base."""
        other: Decision = program.solve(self.solver, self.budget)
        if other.status in ("INFEASIBLE", "NO_SOLUTION"):
            return Change(None, None, (), other.status)
        sure = other.status == "OPTIMAL" and self.base.status == "OPTIMAL"
        difference = None
        if sure and other.objective is not None and self.base.objective is not None:
            difference = other.objective - self.base.objective
        now = set(self.running(other))
        return Change(
            difference,
            int(other.allocation.gpus.sum()) - int(self.base.allocation.gpus.sum()),
            tuple(job for job in self.running(self.base) if job not in now),
            other.status,
        )


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Name some of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
