"""GLOP, the simplex code of OR-Tools: LPs only.

``work_limit`` counts simplex iterations. How many were done is not told.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion.solver.backends.backend import (
    Capabilities,
    RawResult,
    Request,
    installed,
    require_lp,
)
from apportion.solver.models.bulk import solve_bulk
from apportion.solver.models.model import Model

_SEED_RANGE = 2**31
_SIDES = ("primal", "dual")


@dataclass(frozen=True, slots=True)
class Glop:
    """GLOP.

    Parameters
    ----------
    dual
        Dual simplex from the start, instead of primal.
    tolerance
        Feasibility tolerance, primal and dual; ``None`` leaves it to GLOP (1e-8 and 1e-6).
    """

    dual: bool = False
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "glop-dual" if self.dual else "glop"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=False, continuous=True, duals=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("ortools")

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``.

        Raises
        ------
        UnsupportedModelError
            If the model has integer columns, which GLOP would silently relax.
        """
        require_lp("GLOP", model)
        options = [f"random_seed: {request.seed % _SEED_RANGE}"]
        if self.dual:
            options.append("use_dual_simplex: true")
        if self.tolerance is not None:
            options += (f"{side}_feasibility_tolerance: {self.tolerance}" for side in _SIDES)
        if request.work_limit is not None:
            options.append(f"max_number_of_iterations: {int(request.work_limit)}")
        return solve_bulk(model, request, "GLOP", "\n".join(options), duals=True)
