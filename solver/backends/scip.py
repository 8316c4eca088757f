"""SCIP through OR-Tools: MILPs, and LPs without duals.

``work_limit`` counts branch-and-bound nodes. How many were done is not told.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion.solver.backends.backend import Capabilities, RawResult, Request, installed, too_late
from apportion.solver.models.bulk import solve_bulk
from apportion.solver.models.model import Model

BUILD_S_PER_NONZERO = 3e-6
"""Time to hand a model over, and to take it apart after: 0.12 to 0.3 s for 80,000 nonzeros."""

END_S_PER_NONZERO = 1.5e-6
"""Time to take it apart alone, which comes after the time limit."""

_SEED_RANGE = 2**31


@dataclass(frozen=True, slots=True)
class Scip:
    """SCIP."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "scip"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=True, continuous=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("ortools")

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``."""
        late = too_late(request, model, BUILD_S_PER_NONZERO)
        if late is not None:
            return late
        options = [
            f"limits/gap = {float(request.gap)!r}",
            f"randomization/randomseedshift = {request.seed % _SEED_RANGE}",
            f"parallel/maxnthreads = {request.threads}",
        ]
        if request.work_limit is not None:
            options.append(f"limits/nodes = {int(request.work_limit)}")
        reserve_s = END_S_PER_NONZERO * model.values.size
        return solve_bulk(
            model, request, "SCIP", "\n".join(options), duals=False, reserve_s=reserve_s
        )
