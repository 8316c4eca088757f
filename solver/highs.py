"""HiGHS through highspy: LPs by simplex or interior point, and MILPs.

``work_limit`` counts simplex iterations for LPs (interior-point iterations for ``algorithm="ipm"``)
and branch-and-bound nodes for MILPs.

A start is never handed to its MIP solver: HiGHS 1.16 reads the start's objective in the presolved
model without the constant that presolve took out, cuts the optimum off and calls the rest optimal.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backend import Capabilities, Claim, RawResult, Request, Stop, installed
from apportion.solver.model import Model

BLIND_S_PER_NONZERO = 1e-4
"""Budget per nonzero below which a MILP goes without probing, enumeration and feasibility jump.

These three do not look at the clock, and ask no callback. On 64,000 nonzeros the first two took 2
CPU seconds of a limit of 0.5; on 32,000 the jump took 0.35 of a limit of 0.2, for a poor point.
"""

_SEED_RANGE = 2**31
_PROBING_AND_ENUMERATION = 1 << 15 | 1 << 16


@dataclass(frozen=True, slots=True)
class Highs:
    """HiGHS.

    Parameters
    ----------
    algorithm
        LP algorithm: ``"choose"`` leaves it to HiGHS, ``"ipm"`` is interior point followed by
        crossover to a vertex.
    """

    algorithm: Literal["choose", "simplex", "ipm"] = "choose"

    @property
    def name(self) -> str:
        """Name in the registry."""
        return "highs" if self.algorithm == "choose" else f"highs-{self.algorithm}"

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return Capabilities(integers=True, continuous=True, duals=True)

    def available(self) -> bool:
        """Whether it can run here."""
        return installed("highspy")

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``."""
        highspy: Any = importlib.import_module("highspy")
        # the plain binding: the class derived from it prints a banner while it is constructed
        solver: Any = highspy.Highs.__base__()
        solver.setOptionValue("output_flag", False)
        if _pass_model(highspy, solver, model) == highspy.HighsStatus.kError:
            return RawResult(Claim.FAILED, message="model refused")
        for option, value in self._options(model, request).items():
            # a refused option would leave the default in force in silence
            if solver.setOptionValue(option, value) == highspy.HighsStatus.kError:
                return RawResult(Claim.FAILED, message=f"option {option} = {value} refused")
        if not model.is_lp:
            _listen(highspy, solver, request)
        return _read(highspy, solver, model, _run(solver))

    def _options(self, model: Model, request: Request) -> dict[str, Any]:
        options: dict[str, Any] = {
            "solver": self.algorithm,
            "threads": request.threads,
            "parallel": "on" if request.threads > 1 else "off",
            "random_seed": request.seed % _SEED_RANGE,
            "mip_rel_gap": request.gap,
            # the absolute gap would end searches on objectives of small numbers at once
            "mip_abs_gap": 0.0,
        }
        if request.work_limit is not None:
            limit = int(min(request.work_limit, _SEED_RANGE - 1))
            options[self._work_option(model)] = limit
        left_s = request.budget.left_s()
        if math.isfinite(left_s):
            options["time_limit"] = left_s
        if not model.is_lp and left_s < BLIND_S_PER_NONZERO * model.values.size:
            options["presolve_rule_off"] = _PROBING_AND_ENUMERATION
            options["mip_heuristic_run_feasibility_jump"] = False
        return options

    def _work_option(self, model: Model) -> str:
        if not model.is_lp:
            return "mip_max_nodes"
        return "ipm_iteration_limit" if self.algorithm == "ipm" else "simplex_iteration_limit"


def _pass_model(highspy: Any, solver: Any, model: Model) -> Any:
    objective = model.objectives[0]
    return solver.passModel(
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


def _listen(highspy: Any, solver: Any, request: Request) -> None:
    """Stop at our own deadline, and pass points on as the search finds them."""
    kinds = highspy.cb.HighsCallbackType
    interrupt, better = int(kinds.kCallbackMipInterrupt), int(kinds.kCallbackMipImprovingSolution)
    tell, budget = request.on_incumbent, request.budget

    def called(kind: Any, _message: str, output: Any, answer: Any, _data: object) -> None:
        if int(kind) == interrupt:
            answer.user_interrupt = budget.expired()
        elif int(kind) == better and tell is not None:
            tell(np.array(output.mip_solution), _finite(output.mip_dual_bound))

    solver.setCallback(called, None)
    if math.isfinite(budget.deadline_s):
        solver.startCallback(kinds.kCallbackMipInterrupt)
    if tell is not None:
        solver.startCallback(kinds.kCallbackMipImprovingSolution)


def _run(solver: Any) -> Any:
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


def _read(highspy: Any, solver: Any, model: Model, run_status: Any) -> RawResult:
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
        bound=None if model.is_lp else _finite(info.mip_dual_bound),
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


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
