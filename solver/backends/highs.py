"""HiGHS through highspy: LPs by simplex or interior point, and MILPs.

``work_limit`` counts simplex iterations for LPs (interior-point iterations for ``algorithm="ipm"``)
and branch-and-bound nodes for MILPs.

A start is never handed to its MIP solver: HiGHS 1.16 reads the start's objective in the presolved
model without the constant that presolve took out, cuts the optimum off and calls the rest optimal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apportion.solver.backends.backend import Capabilities, Claim, RawResult, Request, installed
from apportion.solver.backends.features import Features
from apportion.solver.backends.highs_calls import (
    finite,
    new_highs,
    pass_model,
    read_result,
    run_highs,
    set_options,
)
from apportion.solver.models.model import Model

BLIND_S_PER_NONZERO = 2e-4
"""Budget per nonzero below which a MILP goes without probing, enumeration and feasibility jump.

These three do not look at the clock, and ask no callback. On 64,000 nonzeros the first two took 2
CPU seconds of a limit of 0.5; on 32,000 the jump took 0.35 of a limit of 0.2, for a poor point. The
factor of six to that leaves room for machines that others use.
"""

JUMP_FROM_NONZEROS = 5_000
"""Nonzeros below which a MILP goes without feasibility jump whatever the budget: on models of a
hundred it took 4 of 5 milliseconds, and branch and bound finds a point there as fast."""

SUBPROBLEMS_FROM_NONZEROS = 2_000
"""Nonzeros below which placement in whole numbers goes without restarts, symmetry, and searches of
smaller MILPs: on ten cores of FFT rounds, 700 nonzeros and solved at or near the root, they took
0.6 of 2.3 CPU s. On leases of 50 jobs to 1e-3 it is the other way round: .20 with them, .34 without.
"""

_SUBPROBLEMS = (
    "mip_allow_restart",
    "mip_detect_symmetry",
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
)
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
        highspy, solver = new_highs()
        if not pass_model(highspy, solver, model):
            return RawResult(Claim.FAILED, message="model refused")
        fault = set_options(highspy, solver, self.options(model, request))
        if fault:
            return RawResult(Claim.FAILED, message=fault)
        if not model.is_lp:
            _listen(highspy, solver, request)
        return read_result(highspy, solver, model, run_highs(solver))

    def options(self, model: Model, request: Request) -> dict[str, Any]:
        """What is asked of HiGHS for a model, as its options."""
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
        if not model.is_lp and model.values.size < JUMP_FROM_NONZEROS:
            options["mip_heuristic_run_feasibility_jump"] = False
        if _is_small_placement(model):
            options |= dict.fromkeys(_SUBPROBLEMS, False)
        if not model.is_lp and left_s < BLIND_S_PER_NONZERO * model.values.size:
            options["presolve_rule_off"] = _PROBING_AND_ENUMERATION
            options["mip_heuristic_run_feasibility_jump"] = False
        return options

    def _work_option(self, model: Model) -> str:
        if not model.is_lp:
            return "mip_max_nodes"
        return "ipm_iteration_limit" if self.algorithm == "ipm" else "simplex_iteration_limit"


def _is_small_placement(model: Model) -> bool:
    small = not model.is_lp and model.values.size < SUBPROBLEMS_FROM_NONZEROS
    return small and Features(model).placement


def _listen(highspy: Any, solver: Any, request: Request) -> None:
    """Stop at our own deadline, and pass points on as the search finds them."""
    kinds = highspy.cb.HighsCallbackType
    interrupt, better = int(kinds.kCallbackMipInterrupt), int(kinds.kCallbackMipImprovingSolution)
    tell, budget = request.on_incumbent, request.budget

    def called(kind: Any, _message: str, output: Any, answer: Any, _data: object) -> None:
        if int(kind) == interrupt:
            answer.user_interrupt = budget.expired()
        elif int(kind) == better and tell is not None:
            tell(np.array(output.mip_solution), finite(output.mip_dual_bound))

    solver.setCallback(called, None)
    if math.isfinite(budget.deadline_s):
        solver.startCallback(kinds.kCallbackMipInterrupt)
    if tell is not None:
        solver.startCallback(kinds.kCallbackMipImprovingSolution)
