"""What is said to HiGHS and read from it, shared by those who hold a HiGHS object."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import Claim, RawResult, Stop
from apportion.solver.models.model import Model

_NO_LIMIT = 1e30


def new_highs() -> tuple[Any, Any]:
    """Give the module highspy, and a silent HiGHS object."""
    highspy: Any = importlib.import_module("highspy")
    # the plain binding: the class derived from it prints a banner while it is constructed
    solver: Any = highspy.Highs.__base__()
    solver.setOptionValue("output_flag", False)
    return highspy, solver


def set_options(highspy: Any, solver: Any, options: dict[str, Any]) -> str:
    """Set options; give what is wrong with the first one that is refused, or ``""``."""
    for option, value in options.items():
        # a refused option would leave the default in force in silence
        if solver.setOptionValue(option, value) == highspy.HighsStatus.kError:
            return f"option {option} = {value} refused"
    return ""


def time_limit(solver: Any, left_s: float) -> dict[str, float]:
    """Give the option by which the next run of a HiGHS object ends after ``left_s``.

    The limit is held against the seconds of all runs of the object so far.
    """
    return {"time_limit": solver.getRunTime() + left_s if math.isfinite(left_s) else _NO_LIMIT}


def pass_model(highspy: Any, solver: Any, model: Model) -> bool:
    """Hand a model over with its first objective, to be minimised; whether it was taken."""
    objective = model.objectives[0]
    status = solver.passModel(
        model.column_count,
        model.row_count,
        model.values.size,
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        objective.sign * objective.offset,
        objective.sign * objective.cost,
        model.lower,
        model.upper,
        model.row_lower,
        model.row_upper,
        model.indptr,
        model.indices,
        model.values,
        model.integer.astype(np.int32),
    )
    return bool(status != highspy.HighsStatus.kError)


def run_highs(solver: Any) -> Any:
    """Run between two resets of the workers.

    HiGHS keeps them per calling thread, and fails where another number of them is asked for than
    in the thread's last run, which may have been a stranger's.
    """
    # the name changed after 1.14
    newer = hasattr(solver, "resetThreadScheduler")
    reset = solver.resetThreadScheduler if newer else solver.resetGlobalScheduler
    reset(True)
    try:
        return solver.run()
    finally:
        reset(True)


def read_result(highspy: Any, solver: Any, model: Model, run_status: Any) -> RawResult:
    """Read what a run has found."""
    status = solver.getModelStatus()
    message = str(solver.modelStatusToString(status))
    if run_status == highspy.HighsStatus.kError:
        return RawResult(Claim.FAILED, message=message)
    kinds = highspy.HighsModelStatus
    claim, stop = {
        kinds.kOptimal: (Claim.OPTIMAL, Stop.FINISHED),
        kinds.kInfeasible: (Claim.INFEASIBLE, Stop.FINISHED),
        kinds.kUnbounded: (Claim.UNBOUNDED, Stop.FINISHED),
        kinds.kUnboundedOrInfeasible: (Claim.INFEASIBLE_OR_UNBOUNDED, Stop.FINISHED),
        kinds.kTimeLimit: (Claim.NOTHING, Stop.TIME),
        kinds.kInterrupt: (Claim.NOTHING, Stop.TIME),
        kinds.kIterationLimit: (Claim.NOTHING, Stop.WORK),
        kinds.kSolutionLimit: (Claim.NOTHING, Stop.WORK),
    }.get(status, (Claim.NOTHING, Stop.FINISHED))
    info = solver.getInfo()
    has_point = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    if claim is Claim.NOTHING and has_point:
        claim = Claim.POINT
    solution = solver.getSolution()
    has_duals = model.is_lp and bool(solution.dual_valid)
    return RawResult(
        claim,
        stop,
        x=_array(solution.col_value) if has_point else None,
        bound=None if model.is_lp else finite(info.mip_dual_bound),
        duals=_array(solution.row_dual) if has_duals else None,
        reduced_costs=_array(solution.col_dual) if has_duals else None,
        work=_work(info, model),
        message=message,
    )


def _work(info: Any, model: Model) -> float:
    if not model.is_lp:
        return max(0.0, float(info.mip_node_count))
    iterations = (info.simplex_iteration_count, info.ipm_iteration_count)
    return float(sum(count for count in iterations if count > 0))


def _array(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def finite(value: float) -> float | None:
    """Give a number, or ``None`` for infinity and NaN."""
    return float(value) if math.isfinite(value) else None
