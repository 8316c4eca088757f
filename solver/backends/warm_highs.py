"""A HiGHS object that lives on from model to model, and the basis it starts the next one from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from apportion.solver.arrays import IntArray
from apportion.solver.backends.backend import Capabilities, Claim, RawResult, Request, installed
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.highs_calls import (
    new_highs,
    pass_model,
    read_result,
    run_highs,
    set_options,
    time_limit,
)
from apportion.solver.drivers.slots import NEW, Changes
from apportion.solver.models.model import Model

MOST_CALLS = 5_000
"""Coefficients up to which they are changed one by one, at 2 microseconds each; handing over a
whole model of 64,000 nonzeros takes 2 milliseconds."""

TOLERANCE = 1e-9
"""Tolerance of runs from a basis. At HiGHS' own 1e-7 they stop up to 6e-8 off a cold optimum; near
the optimum the difference costs nothing."""

DEVEX = 1
"""Weights of the dual simplex method that need no start. The steepest edge's are computed anew for
every basis: .11 CPU seconds instead of .036 on max-min of 2048 x 6 with 5 % changed."""


@dataclass(eq=False)
class WarmHighs:
    """HiGHS for one LP after the other.

    Before :meth:`solve`, the model is brought in by :meth:`load`, :meth:`alter` or :meth:`move`.

    Attributes
    ----------
    algorithm
        For the next run; from a basis it is the simplex method whatever this says.
    warm
        Whether the next run starts from a basis.
    """

    algorithm: Literal["simplex", "ipm"] = "simplex"
    warm: bool = False
    _highspy: Any = None
    _solver: Any = None
    _basis: Any = field(default=None)

    @property
    def name(self) -> str:
        """What it is called in answers."""
        return "highs-warm" if self.warm else f"highs-{self.algorithm}"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=False, continuous=True, duals=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("highspy")

    @property
    def has_basis(self) -> bool:
        """Whether the last run left a basis."""
        return self._basis is not None

    def load(self, model: Model) -> bool:
        """Take a model in afresh, without a basis; whether it was taken."""
        self._highspy, self._solver = new_highs()
        self._basis, self.warm = None, False
        return pass_model(self._highspy, self._solver, model)

    def alter(self, model: Model, what: Changes) -> bool:
        """Change the model that is in to ``model``, and keep the basis; whether that worked."""
        self.warm = True
        if what.entries.size > MOST_CALLS:
            return self._again(model, self._basis)
        return all(status != self._error for status in self._calls(model, what))

    def move(self, model: Model, columns: IntArray, rows: IntArray) -> bool:
        """Take another model in with the basis of the last one; whether that worked.

        Parameters
        ----------
        model
            The model.
        columns, rows
            Old index of each of its columns and rows, or ``NEW``. New columns start at a bound
            and new rows in the basis.
        """
        self.warm = True
        old, kinds = self._basis, self._highspy.HighsBasisStatus
        basis = self._highspy.HighsBasis()
        basis.col_status = _moved(old.col_status, columns, kinds.kLower)
        basis.row_status = _moved(old.row_status, rows, kinds.kBasic)
        # basic ones that left may leave too few: then HiGHS completes it
        basis.alien = True
        basis.valid = True
        return self._again(model, basis)

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of the model that was brought in."""
        algorithm = "simplex" if self.warm else self.algorithm
        options = Highs(algorithm).options(model, request)
        options |= time_limit(self._solver, request.budget.left_s())
        if self.warm:
            options |= {
                "primal_feasibility_tolerance": TOLERANCE,
                "dual_feasibility_tolerance": TOLERANCE,
                "simplex_dual_edge_weight_strategy": DEVEX,
            }
        fault = set_options(self._highspy, self._solver, options)
        if fault:
            return RawResult(Claim.FAILED, message=fault)
        raw = read_result(self._highspy, self._solver, model, run_highs(self._solver))
        basis = self._solver.getBasis()
        self._basis = basis if basis.valid and raw.claim is Claim.OPTIMAL else None
        return raw

    @property
    def _error(self) -> Any:
        return self._highspy.HighsStatus.kError

    def _again(self, model: Model, basis: Any) -> bool:
        taken = pass_model(self._highspy, self._solver, model)
        return taken and bool(self._solver.setBasis(basis) != self._error)

    def _calls(self, model: Model, what: Changes) -> list[Any]:
        objective, solver = model.objectives[0], self._solver
        cost = objective.sign * objective.cost
        rows, columns = model.row_of_entry, model.indices
        costs, bounds, sides = (
            places.astype(np.int32) for places in (what.costs, what.bounds, what.sides)
        )
        return [
            solver.changeObjectiveOffset(objective.sign * objective.offset),
            solver.changeColsCost(costs.size, costs, cost[costs]),
            solver.changeColsBounds(bounds.size, bounds, model.lower[bounds], model.upper[bounds]),
            solver.changeRowsBounds(
                sides.size, sides, model.row_lower[sides], model.row_upper[sides]
            ),
            *(
                solver.changeCoeff(row, column, value)
                for row, column, value in zip(
                    rows[what.entries].tolist(),
                    columns[what.entries].tolist(),
                    model.values[what.entries].tolist(),
                    strict=True,
                )
            ),
        ]


def _moved(old: list[Any], places: IntArray, default: Any) -> list[Any]:
    return [default if place == NEW else old[place] for place in places.tolist()]
