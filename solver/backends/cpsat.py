"""CP-SAT: pure integer models in whole numbers, or in decimals that scale to them exactly.

``work_limit`` counts CP-SAT's deterministic time. With several threads the search is interleaved,
so that it still repeats.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import (
    Capabilities,
    Claim,
    RawResult,
    Request,
    Stop,
    installed,
    too_late,
    why_stopped,
)
from apportion.solver.budget import Budget
from apportion.solver.models.model import Model
from apportion.solver.models.scaling import WholeModel, whole_model

BUILD_S_PER_NONZERO = 3e-6
"""Time to hand a model over: 0.16 CPU seconds for 80,000 nonzeros, twice that on a busy machine."""

_MODULE = "ortools.sat.python.cp_model"
_SEED_RANGE = 2**31


@dataclass(frozen=True, slots=True)
class CpSat:
    """CP-SAT."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "cpsat"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=True, continuous=False, exact_integers_only=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("ortools")

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``.

        Raises
        ------
        UnsupportedModelError
            If the model does not scale to whole numbers exactly.
        """
        whole = whole_model(model)
        if whole.has_empty_interval():
            return RawResult(Claim.INFEASIBLE, message="no whole number between two bounds")
        late = too_late(request, model, BUILD_S_PER_NONZERO)
        if late is not None:
            return late
        cp_model: Any = importlib.import_module(_MODULE)
        program = _program(cp_model, model, whole, request.start)
        if request.budget.expired():
            return RawResult(Claim.NOTHING, Stop.TIME, message="no time left")
        solver = cp_model.CpSolver()
        _set_parameters(solver.parameters, request)
        listener = None
        if request.on_incumbent is not None:
            listener = _listener(cp_model, request.on_incumbent, whole.cost_factor)
        with _stopped_at(solver, request.budget):
            status = solver.solve(program, listener)
        return _read(cp_model, solver, status, whole, request)


@contextmanager
def _stopped_at(solver: Any, budget: Budget) -> Generator[None]:
    """Stop the search from outside if it does not stop itself: presolve looks at the clock late."""
    if not math.isfinite(budget.deadline_s):
        yield
        return
    timer = Timer(budget.left_s(), solver.stop_search)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _listener(
    cp_model: Any, tell: Callable[[FloatArray, float | None], None], factor: float
) -> Any:
    class Listener(cp_model.CpSolverSolutionCallback):
        """Passes points on as the search finds them."""

        def on_solution_callback(self) -> None:
            response = self.Response()
            bound = float(response.best_objective_bound) / factor
            tell(
                np.array(response.solution, dtype=np.float64),
                bound if math.isfinite(bound) else None,
            )

    return Listener()


def _program(cp_model: Any, model: Model, whole: WholeModel, start: FloatArray | None) -> Any:
    program = cp_model.CpModel()
    proto = program.Proto()
    for low, high in zip(whole.lower.tolist(), whole.upper.tolist(), strict=True):
        proto.variables.add().domain.extend((low, high))
    ends = model.indptr.tolist()
    columns, values = model.indices.tolist(), whole.values.tolist()
    for row, (low, high) in enumerate(zip(whole.row_lower, whole.row_upper, strict=True)):
        linear = proto.constraints.add().linear
        linear.vars.extend(columns[ends[row] : ends[row + 1]])
        linear.coeffs.extend(values[ends[row] : ends[row + 1]])
        linear.domain.extend((low, high))
    used = np.flatnonzero(whole.cost)
    proto.objective.vars.extend(used.tolist())
    proto.objective.coeffs.extend(whole.cost[used].tolist())
    proto.objective.offset = whole.cost_offset
    if start is not None:
        proto.solution_hint.vars.extend(range(model.column_count))
        proto.solution_hint.values.extend(np.rint(start).astype(np.int64).tolist())
    return program


def _set_parameters(parameters: Any, request: Request) -> None:
    parameters.num_workers = request.threads
    parameters.interleave_search = request.threads > 1
    parameters.random_seed = request.seed % _SEED_RANGE
    parameters.relative_gap_limit = request.gap
    left_s = request.budget.left_s()
    if math.isfinite(left_s):
        parameters.max_time_in_seconds = left_s
    if request.work_limit is not None:
        parameters.max_deterministic_time = float(request.work_limit)


def _read(
    cp_model: Any, solver: Any, status: Any, whole: WholeModel, request: Request
) -> RawResult:
    claim = {
        cp_model.OPTIMAL: Claim.OPTIMAL,
        cp_model.FEASIBLE: Claim.POINT,
        cp_model.INFEASIBLE: Claim.INFEASIBLE,
        cp_model.UNKNOWN: Claim.NOTHING,
    }.get(status, Claim.FAILED)
    response = solver.response_proto
    has_point = claim in (Claim.OPTIMAL, Claim.POINT)
    bound = float(response.best_objective_bound) / whole.cost_factor
    return RawResult(
        claim,
        why_stopped(request, finished=claim not in (Claim.POINT, Claim.NOTHING)),
        x=np.array(response.solution, dtype=np.float64) if has_point else None,
        bound=bound if has_point and math.isfinite(bound) else None,
        work=float(response.deterministic_time),
        message=str(solver.status_name(status)),
    )
