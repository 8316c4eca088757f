"""PDLP, the first-order method of OR-Tools: very large LPs, and only when asked for by name.

Its tolerance is relative to the size of the whole problem, so that its points overshoot rows: with
capacities of some hundred units it left 1e-3 of a unit at its own tolerance of 1e-6. A point is
moved back into the rows here, or withheld. Nothing that it says of optimality is passed on but its
duals, from which the bound is computed afresh.

``work_limit`` counts iterations. How many were done is not told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.solver.backends.backend import (
    Capabilities,
    Claim,
    RawResult,
    Request,
    installed,
    require_lp,
)
from apportion.solver.backends.overshoot import repaired
from apportion.solver.models.bulk import solve_bulk
from apportion.solver.models.model import Model

LOOSEST, TIGHTEST = 1e-5, 1e-9
"""Tolerances that it is asked for: looser ones repair badly, tighter ones seldom end."""

OF_GAP = 1e-4
"""Its tolerance as a part of the requested gap: repair loses far more than the tolerance says."""

_SEED_RANGE = 2**31


@dataclass(frozen=True, slots=True)
class Pdlp:
    """PDLP."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "pdlp"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes; its duals prove a bound, but are too rough to be prices."""
        return Capabilities(integers=False, continuous=True, duals=False)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("ortools")

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``; the claim is never ``OPTIMAL``.

        Raises
        ------
        UnsupportedModelError
            If the model has integer columns.
        """
        require_lp("PDLP", model)
        raw = solve_bulk(model, request, "PDLP", _parameters(request), duals=True)
        if raw.x is None:
            return raw
        x, note = repaired(model, raw.x, request.start)
        message = "; ".join(part for part in (raw.message, note) if part)
        claim = Claim.NOTHING if x is None else Claim.POINT
        return replace(raw, claim=claim, x=x, bound=None, message=message)


def _parameters(request: Request) -> str:
    tolerance = float(np.clip(OF_GAP * request.gap, TIGHTEST, LOOSEST))
    limits = [
        f"num_threads: {request.threads}",
        "termination_criteria {",
        "simple_optimality_criteria {",
        f"eps_optimal_relative: {tolerance!r}",
        f"eps_optimal_absolute: {tolerance!r}",
        "}",
    ]
    if request.work_limit is not None:
        limits.append(f"iteration_limit: {int(min(request.work_limit, _SEED_RANGE - 1))}")
    return "\n".join([*limits, "}"])
