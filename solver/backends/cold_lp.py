"""An LP whose sides change and whose rows grow, solved afresh every time.

It stands in where HiGHS, which would go on from its basis, is not there. Points are re-checked, and
their optimality is proved by our own product with the duals.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import FloatArray, IntArray
from apportion.solver.backends.backend import Backend, Claim, Request, Stop, run_backend
from apportion.solver.backends.glop import Glop
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.lp_point import LPPoint, UncertifiedError
from apportion.solver.backends.more_rows import with_more_rows
from apportion.solver.budget import Budget
from apportion.solver.chain import Chain
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.model import Model
from apportion.solver.skipped import note_skipped
from apportion.solver.stage import StageResult, run_stage
from apportion.solver.status import Status
from apportion.solver.tolerances import PROOF

_NO_POINT = (Claim.INFEASIBLE, Claim.INFEASIBLE_OR_UNBOUNDED)


class ColdLP:
    """One LP, solved from scratch on the first back end with duals that runs.

    Parameters
    ----------
    model
        The LP; its first objective counts.
    tolerance
        Feasibility tolerance, primal and dual.
    """

    def __init__(self, model: Model, tolerance: float) -> None:
        self._model = replace(model, objectives=model.objectives[:1])
        self._tolerance = tolerance
        self._chain = self._all()

    def _all(self) -> Chain:
        return Chain([Highs("simplex"), Glop(tolerance=self._tolerance)])

    def set_sides(self, rows: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """Change the sides of some rows."""
        row_lower, row_upper = self._model.row_lower.copy(), self._model.row_upper.copy()
        row_lower[rows], row_upper[rows] = lower, upper
        self._model = self._model.with_row_sides(row_lower, row_upper)

    def add_rows(
        self, matrix: csr_matrix[np.float64], lower: FloatArray, upper: FloatArray
    ) -> None:
        """Add rows at the end."""
        try:
            self._model = with_more_rows(self._model, matrix, lower, upper)
        except ModelError as error:
            raise UncertifiedError(f"{self._model.name} refuses more rows: {error}") from error

    def solve(self, budget: Budget) -> LPPoint | None:
        """Solve; ``None`` if there is no feasible point.

        Raises
        ------
        NoSolutionError
            If the budget ends first.
        UncertifiedError
            If no back end runs, or there is no proof.
        """
        chain = self._chain
        found = self._run(chain, budget)
        note_skipped(chain.skipped)
        if found.raw.claim is Claim.FAILED:
            # the next LP is another chance for those that broke down
            self._chain = self._all()
        if found.x is not None and found.raw.duals is not None and found.status is Status.OPTIMAL:
            value = self._model.objectives[0].sign * self._model.objectives[0].value(found.x)
            return LPPoint(value, found.x, found.raw.duals)
        if budget.expired():
            raise NoSolutionError(f"{self._model.name}: the budget ended")
        if found.status is Status.INFEASIBLE or self._is_refused_twice(found, budget):
            return None
        raise UncertifiedError(f"{chain.name} ends {self._model.name} with: {found.message}")

    def _run(self, solver: Backend, budget: Budget) -> StageResult:
        return run_stage(self._model, solver, Request(budget=budget, gap=PROOF), None)

    def _is_refused_twice(self, found: StageResult, budget: Budget) -> bool:
        """Whether another algorithm finds no point either, where no other back end is there.

        It is asked for any point at all, so that a claim of no end cannot be meant.
        """
        if found.x is not None or found.raw.claim not in _NO_POINT:
            return False
        any_point = self._model.with_cost(np.zeros(self._model.column_count))
        second = Glop(dual=True, tolerance=self._tolerance)
        again = run_backend(second, any_point, Request(budget=budget, gap=PROOF))
        return again.claim in _NO_POINT and again.stop is Stop.FINISHED
