"""Makespan: everybody is done as early as possible.

With y the time of a job on a type, the makespan is the least T for which y fits into T. Divided by
T that is the largest common level ``speed @ x / work left``, whose inverse is T: one LP, where
Gavel's code bisects T to 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from apportion.formulations.training.gavel.base import (
    Gavel,
    first_speed,
    notes_on_left_out,
    proved,
)
from apportion.formulations.training.gavel.levels import Levels
from apportion.formulations.training.time_share_program import Fractions
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Floats
from apportion.solver import Budget, Model, Solution, Solver


@dataclass(frozen=True)
class GavelMakespan(Gavel):
    """Least time until all jobs of a round are done, if its fractions were kept to the end.

    Parameters
    ----------
    recompute_s, work_conserving
        As in ``Gavel``.
    aware
        False: all types count as equally fast as the first one a job can use.
    """

    name: ClassVar[str] = "gavel-makespan"
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    aware: bool = True

    def levels_of(self, sharers: Sharers) -> Levels:
        """Parts of the work left, done in a second."""
        speed = sharers.speed if self.aware else first_speed(sharers)
        return Levels(sharers, speed, 1.0 / sharers.left)

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share the free GPUs."""
        levels = self.levels_of(sharers)
        found = levels.largest(solver, budget)
        bound = None if found.bound is None else 1.0 / found.bound
        return proved(
            found.x, self.value(sharers, found.x), bound, solver.gap,
            notes=notes_on_left_out(sharers), time_limited=found.time_limited, proof=found.proof,
        )  # fmt: skip

    def value(self, sharers: Sharers, x: Floats) -> float | None:
        """Seconds until the last job is done; None where one gets no time at all."""
        level = float(self.levels_of(sharers).of(x).min())
        return 1.0 / level if level > 0.0 else None

    def model_of(self, sharers: Sharers) -> Model:
        """The LP of the largest common level, whose inverse is the makespan."""
        return replace(self.levels_of(sharers).model(), name="makespan")

    def bound_of(self, sharers: Sharers, solution: Solution) -> float | None:
        """Bound on the makespan from a solution of the model."""
        bound = self.levels_of(sharers).bound_of(solution)
        return 1.0 / bound if bound else None
