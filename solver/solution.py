"""What a solve gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.solver.arrays import FloatArray
from apportion.solver.errors import NoSolutionError
from apportion.solver.proof.proof import relative_gap
from apportion.solver.status import Status


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Answer to a model, with objectives in the model's order and sense.

    Attributes
    ----------
    status
        Our verdict.
    point
        Value of every column, shape (columns,), re-checked; ``None`` if there is none. Read it
        through ``x`` where a missing point should raise.
    objectives
        Value of every objective at the point, recomputed from it; empty without a point.
    bounds
        What each objective cannot pass (below for minimised ones), given the values of those
        before it; ``None`` where nothing was proved.
    backend
        Name of the back end that ran.
    elapsed_s
        Wall-clock seconds.
    work
        Deterministic work in the back end's unit; ``None`` where it does not tell.
    time_limited
        Whether a wall-clock limit stopped the search, so that a second run may differ.
    message
        A sentence for people.
    skipped
        Back ends that were to come first but were missing, refused the model or broke down, each
        with the reason.
    duals
        For LPs: change of the last objective, as stated, per unit by which a row's binding side is
        raised, shape (rows,). More capacity in a ``<=`` row has a negative dual in a minimisation
        and a positive one in a maximisation. Rows that hold earlier objectives are left out.
    reduced_costs
        For LPs: the same per unit of a column's binding bound, shape (columns,).
    """

    status: Status
    point: FloatArray | None = field(repr=False)
    objectives: tuple[float, ...]
    bounds: tuple[float | None, ...]
    backend: str
    elapsed_s: float
    work: float | None = None
    time_limited: bool = False
    message: str = ""
    skipped: tuple[str, ...] = ()
    duals: FloatArray | None = field(default=None, repr=False)
    reduced_costs: FloatArray | None = field(default=None, repr=False)

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
    def objective(self) -> float:
        """Value of the last objective.

        Raises
        ------
        NoSolutionError
            If there is no point.
        """
        if not self.objectives:
            raise NoSolutionError(f"no objective: {self.status.value} ({self.message})")
        return self.objectives[-1]

    @property
    def bound(self) -> float | None:
        """Bound of the last objective; ``None`` if nothing was proved."""
        return self.bounds[-1]

    @property
    def gap(self) -> float | None:
        """Relative gap of the last objective; ``None`` without a point or a bound."""
        if not self.objectives or self.bound is None:
            return None
        return relative_gap(self.objective, self.bound)
