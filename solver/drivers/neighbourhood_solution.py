"""What a search over neighbourhoods gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.solver.arrays import FloatArray
from apportion.solver.errors import NoSolutionError
from apportion.solver.proof.proof import relative_gap
from apportion.solver.status import Status


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourhoodStage:
    """One step.

    Attributes
    ----------
    name
        ``"start"``, ``"relaxation"``, ``"everything"`` or the neighbourhood's name.
    elapsed_s
        Wall-clock seconds.
    columns
        Integer columns that were free.
    status
        Verdict on the step's own model.
    gain
        By how much the objective got better; 0 where it did not.
    objective, bound
        The best value and bound known after the step, or ``None``.
    note
        A sentence for people.
    """

    name: str
    elapsed_s: float
    columns: int
    status: Status
    gain: float
    objective: float | None
    bound: float | None
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourhoodSolution:
    """Best point found, and what is proved of it.

    Attributes
    ----------
    status
        ``OPTIMAL`` where the bound proves the point within the solver's gap, else ``FEASIBLE``;
        ``NO_SOLUTION``, ``INFEASIBLE``, ``UNBOUNDED`` or ``ERROR`` as :class:`Solver` found.
    point
        The point, shape (columns,), re-checked; ``None`` if there is none.
    objective, bound
        Its value and what no point can pass, in the model's sense, or ``None``.
    stages
        What was done, in order.
    time_limited
        Whether the clock stopped something, so that a second run may differ.
    message
        A sentence for people.
    """

    status: Status
    point: FloatArray | None = field(repr=False)
    objective: float | None
    bound: float | None
    stages: tuple[NeighbourhoodStage, ...] = field(repr=False)
    time_limited: bool
    message: str = ""

    @property
    def x(self) -> FloatArray:
        """Value of every column, shape (columns,).

        Raises
        ------
        NoSolutionError
            If there is no point.
        """
        if self.point is None:
            raise NoSolutionError(f"no values: {self.status.value} ({self.message})")
        return self.point

    @property
    def gap(self) -> float | None:
        """Relative gap; ``None`` without a point or a bound."""
        if self.objective is None or self.bound is None:
            return None
        return relative_gap(self.objective, self.bound)
