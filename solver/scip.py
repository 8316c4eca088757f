"""SCIP through OR-Tools: MILPs, and LPs without duals.

``work_limit`` counts branch-and-bound nodes. How many were done is not told.
"""

from __future__ import annotations

from dataclasses import dataclass

from apportion.solver.backend import Capabilities, RawResult, Request, installed
from apportion.solver.bulk import solve_bulk
from apportion.solver.model import Model

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
        options = [
            f"limits/gap = {float(request.gap)!r}",
            f"randomization/randomseedshift = {request.seed % _SEED_RANGE}",
            f"parallel/maxnthreads = {request.threads}",
        ]
        if request.work_limit is not None:
            options.append(f"limits/nodes = {int(request.work_limit)}")
        return solve_bulk(model, request, "SCIP", "\n".join(options), duals=False)
