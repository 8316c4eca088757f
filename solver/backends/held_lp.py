"""An LP that is held in HiGHS while its sides change and rows are added, for exact drivers.

Nothing is believed: a call that HiGHS refuses, and an end other than a proved optimum, raises.
Where HiGHS is not there, every LP is solved afresh by another back end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.backends.backend import Claim, Stop
from apportion.solver.backends.cold_lp import ColdLP
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.highs_calls import (
    new_highs,
    pass_model,
    read_result,
    run_highs,
    set_options,
    time_limit,
)
from apportion.solver.backends.lp_point import LPPoint, UncertifiedError
from apportion.solver.budget import Budget
from apportion.solver.errors import NoSolutionError
from apportion.solver.models.model import Model

__all__ = ["HeldLP", "LPPoint", "UncertifiedError"]

TIGHT = 1e-10
"""Feasibility tolerance, the least that HiGHS takes: drivers go on from what they read."""

_DUAL_SIMPLEX = 1


class HeldLP:
    """One LP that is solved again and again while its sides change and rows are added.

    In HiGHS every run starts from the basis of the one before.

    Parameters
    ----------
    model
        The LP; its first objective counts.
    tolerance
        Feasibility tolerance, primal and dual.

    Attributes
    ----------
    runs
        LPs solved so far.
    """

    def __init__(self, model: Model, tolerance: float = TIGHT) -> None:
        self.model, self.runs = model, 0
        self._held = _InHighs(model, tolerance) if _highs_runs() else ColdLP(model, tolerance)

    def set_sides(self, rows: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """Change the sides of some rows."""
        self._held.set_sides(rows, lower, upper)

    def add_rows(
        self, matrix: csr_matrix[np.float64], lower: FloatArray, upper: FloatArray
    ) -> None:
        """Add rows at the end; places that are there twice are summed first."""
        matrix.sum_duplicates()
        self._held.add_rows(matrix, lower, upper)

    def solve(self, budget: Budget) -> LPPoint | None:
        """Solve; ``None`` if there is no feasible point.

        Raises
        ------
        NoSolutionError
            If the budget ends first.
        UncertifiedError
            If there is no proof: from the basis and afresh, where HiGHS solves.
        """
        if budget.expired():
            raise NoSolutionError(f"{self.model.name}: the budget ended")
        self.runs += 1
        return self._held.solve(budget)


def _highs_runs() -> bool:
    """Whether HiGHS is there and can be loaded; where not, the cold chain says so."""
    if not Highs().available():
        return False
    try:
        new_highs()
    except ImportError:
        return False
    return True


class _InHighs:
    """The LP in HiGHS."""

    def __init__(self, model: Model, tolerance: float) -> None:
        self.model = model
        self._highspy, self._solver = new_highs()
        fault = set_options(
            self._highspy,
            self._solver,
            {
                "threads": 1,
                "parallel": "off",
                "solver": "simplex",
                "simplex_strategy": _DUAL_SIMPLEX,
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
            },
        )
        if fault:
            raise UncertifiedError(fault)
        if not pass_model(self._highspy, self._solver, model):
            raise UncertifiedError(f"HiGHS refuses the model {model.name}")

    def set_sides(self, rows: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        self._demand(
            self._solver.changeRowsBounds(rows.size, rows.astype(np.int32), lower, upper),
            "sides of rows",
        )

    def add_rows(
        self, matrix: csr_matrix[np.float64], lower: FloatArray, upper: FloatArray
    ) -> None:
        status = self._solver.addRows(
            lower.size,
            lower,
            upper,
            matrix.nnz,
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            np.asarray(matrix.data, dtype=np.float64),
        )
        self._demand(status, f"{lower.size} more rows")

    def solve(self, budget: Budget) -> LPPoint | None:
        claim = self._run(budget)
        if claim is not Claim.OPTIMAL:
            # what is claimed from an old basis is not believed unless it is an optimum
            self._demand(self._solver.clearSolver(), "a fresh start")
            claim = self._run(budget)
        if claim is Claim.INFEASIBLE:
            return None
        if claim is not Claim.OPTIMAL:
            status = self._solver.modelStatusToString(self._solver.getModelStatus())
            raise UncertifiedError(f"HiGHS ends {self.model.name} with: {status}")
        solution, value = self._solver.getSolution(), self._solver.getInfo()
        duals = np.array(solution.row_dual, dtype=np.float64)
        duals[self._basic_rows()] = 0.0
        return LPPoint(
            float(value.objective_function_value),
            np.array(solution.col_value, dtype=np.float64),
            duals,
        )

    def _run(self, budget: Budget) -> Claim:
        if budget.expired():
            raise NoSolutionError(f"{self.model.name}: the budget ended")
        limit = time_limit(self._solver, budget.left_s())
        fault = set_options(self._highspy, self._solver, limit)
        if fault:
            raise UncertifiedError(fault)
        raw = read_result(self._highspy, self._solver, self.model, run_highs(self._solver))
        if raw.stop is Stop.TIME:
            raise NoSolutionError(f"{self.model.name}: the budget ended")
        return raw.claim

    def _basic_rows(self) -> BoolArray:
        basic: Any = self._highspy.HighsBasisStatus.kBasic
        return np.array([status == basic for status in self._solver.getBasis().row_status], bool)

    def _demand(self, status: Any, what: str) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise UncertifiedError(f"HiGHS refuses {what} of {self.model.name}")
