"""The bulk interface of OR-Tools, shared by the back ends that are reached through it."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import Claim, RawResult, Request, Stop, why_stopped
from apportion.solver.models.model import Model
from apportion.solver.tolerances import LARGEST_BOUND

_MODULE = "ortools.linear_solver.python.model_builder_helper"


def solve_bulk(
    model: Model,
    request: Request,
    kind: str,
    parameters: str,
    *,
    duals: bool,
    reserve_s: float = 0.0,
) -> RawResult:
    """Minimise the first objective of ``model``.

    Parameters
    ----------
    model
        The model.
    request
        Deadline and start; everything else must be in ``parameters``.
    kind
        Name of the solver in OR-Tools, such as ``"GLOP"``.
    parameters
        Options in the solver's own text form.
    duals
        Whether the solver gives duals of LPs.
    reserve_s
        What the solver needs after its time limit, to take the model apart.
    """
    helper: Any = importlib.import_module(_MODULE)
    solver = helper.ModelSolverHelper(kind)
    solver.enable_output(False)
    solver.set_solver_specific_parameters(parameters)
    program = _filled(helper, model, request.start)
    left_s = request.budget.left_s() - reserve_s
    if left_s <= 0.0:
        # read as no limit by some
        return RawResult(Claim.NOTHING, Stop.TIME, message="no time left")
    if math.isfinite(left_s):
        solver.set_time_limit_in_seconds(left_s)
    solver.solve(program)
    return _read(helper, solver, request, duals=duals and model.is_lp)


def _filled(helper: Any, model: Model, start: FloatArray | None) -> Any:
    objective = model.objectives[0]
    builder = helper.ModelBuilderHelper()
    # the wrapper refuses read-only arrays, hence the copies
    builder.fill_model_from_sparse_data(
        model.lower.copy(),
        model.upper.copy(),
        objective.sign * objective.cost,
        model.row_lower.copy(),
        model.row_upper.copy(),
        model.matrix.copy(),
    )
    builder.set_objective_offset(objective.sign * objective.offset)
    for column in np.flatnonzero(model.integer).tolist():
        builder.set_var_integrality(column, True)
    if start is not None:
        for column, value in enumerate(start.tolist()):
            builder.add_hint(column, value)
    return builder


def _read(helper: Any, solver: Any, request: Request, *, duals: bool) -> RawResult:
    kinds = helper.SolveStatus
    status = solver.status()
    claim = {
        kinds.OPTIMAL: Claim.OPTIMAL,
        kinds.FEASIBLE: Claim.POINT,
        # said by GLOP of unbounded models, too
        kinds.INFEASIBLE: Claim.INFEASIBLE_OR_UNBOUNDED,
        kinds.UNBOUNDED: Claim.INFEASIBLE_OR_UNBOUNDED,
        kinds.NOT_SOLVED: Claim.NOTHING,
    }.get(status, Claim.FAILED)
    # without a solution the values read as zeros
    has_point = bool(solver.has_solution())
    finished = claim not in (Claim.POINT, Claim.NOTHING)
    prices = duals and has_point and claim is Claim.OPTIMAL
    bound = float(solver.best_objective_bound()) if has_point else math.inf
    return RawResult(
        claim,
        why_stopped(request, finished=finished),
        x=np.array(solver.variable_values(), dtype=np.float64) if has_point else None,
        bound=bound if abs(bound) < LARGEST_BOUND else None,
        duals=np.array(solver.dual_values(), dtype=np.float64) if prices else None,
        reduced_costs=np.array(solver.reduced_costs(), dtype=np.float64) if prices else None,
        message=f"{status.name} {solver.status_string()}".strip(),
    )
