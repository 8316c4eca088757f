"""A solver that notes which back ends were missing, so that an answer can name them."""

from __future__ import annotations

from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from apportion.solver import Budget, Model, Solution, Solver


@dataclass(frozen=True)
class WatchedSolver(Solver):
    """A solver for one call; what it is copied to notes in the same list.

    Parameters
    ----------
    missing
        Back ends that were left out, each with the reason, in order.
    """

    missing: list[str] = field(default_factory=list[str], compare=False, repr=False)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Back ends that were left out, each named once."""
        return tuple(self.missing)

    def solve(
        self, model: Model, *, budget: Budget, warm_start: ArrayLike | None = None
    ) -> Solution:
        """Solve a model as :class:`~apportion.solver.Solver` does, and note who was skipped."""
        found = Solver.solve(self, model, budget=budget, warm_start=warm_start)
        # one list lives as long as a whole run
        self.missing.extend(one for one in found.skipped if one not in self.missing)
        return found
