"""One objective on one back end: run, re-check, and say only what is proved. Minimises."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import numpy as np

from apportion.solver.arrays import FloatArray, dot
from apportion.solver.backends.backend import Backend, Claim, RawResult, Request, Stop, run_backend
from apportion.solver.models.model import Model
from apportion.solver.proof.confirm import second_look
from apportion.solver.proof.duality import dual_bound
from apportion.solver.proof.proof import has_integral_values, noise, relative_gap, sharpened
from apportion.solver.proof.recheck import check_point
from apportion.solver.status import Status

NEAR_LIMIT = 0.1
"""Part of the time limit that must be left for a claim of infeasibility to be looked into."""

COST_BITS = 20
"""Largest cost, in bits, that codes are given: 1e6 times their tolerance of 1 in 1e7, and well
below what they call too large."""

_log = logging.getLogger("apportion.solver")


@dataclass(frozen=True, slots=True, eq=False)
class StageResult:
    """Verdict on one objective, as a minimisation without its offset.

    Attributes
    ----------
    status
        Our verdict.
    x
        Best point that passed the re-check.
    bound
        Proved lower bound.
    raw
        What the back end returned.
    message
        A sentence for people.
    """

    status: Status
    x: FloatArray | None
    bound: float | None
    raw: RawResult
    message: str


def run_stage(
    model: Model, solver: Backend, request: Request, incumbent: FloatArray | None
) -> StageResult:
    """Minimise the first objective of ``model``.

    Parameters
    ----------
    model
        The model.
    solver
        Back end to run.
    request
        Limits and options.
    incumbent
        A point that passed the re-check; the answer is never worse.

    Raises
    ------
    UnsupportedModelError
        If the back end refuses the model's class.
    """
    left_before_s = request.budget.left_s()
    raw = _run(solver, model, request)
    x, message = _best_point(model, solver, raw, incumbent)
    if raw.claim in (Claim.INFEASIBLE, Claim.UNBOUNDED, Claim.INFEASIBLE_OR_UNBOUNDED):
        if _at_limit(request, left_before_s, raw):
            status = Status.NO_SOLUTION if x is None else Status.FEASIBLE
            if raw.stop is Stop.FINISHED:  # so close to the deadline it may not have finished
                raw = replace(raw, stop=Stop.TIME)
            return StageResult(status, x, None, raw, f"{raw.claim.value} claimed at a limit")
        look = second_look(model, solver, request, x)
        return StageResult(look.status, look.x, None, raw, look.message)
    bound = _bound(model, raw)
    if x is None:
        status = Status.ERROR if raw.claim is Claim.FAILED else Status.NO_SOLUTION
        return StageResult(status, None, bound, raw, message)
    return _judged(model, request, x, bound, raw, message)


def _run(solver: Backend, model: Model, request: Request) -> RawResult:
    """Run a back end with costs in a unit in which its absolute tolerances are small."""
    unit = 1.0 if model.is_lp or solver.capabilities.exact_integers_only else cost_unit(model)
    if unit == 1.0:
        return run_backend(solver, model, request)
    objective = model.objectives[0]
    measured = replace(objective, cost=objective.cost * unit, offset=objective.offset * unit)
    raw = run_backend(solver, replace(model, objectives=(measured,)), request)
    return replace(raw, bound=None if raw.bound is None else raw.bound / unit)


def cost_unit(model: Model) -> float:
    """Power of two to multiply the first objective of a MILP by before a back end sees it.

    Codes prune by absolute tolerances of about 1e-7, so that plans of cost 1 that differ by less
    are one to them. Whole-number objectives are left as they are: their steps are seen.
    """
    cost = model.objectives[0].cost
    largest = float(np.abs(cost).max(initial=0.0))
    if largest == 0.0 or (largest <= 2.0**COST_BITS and has_integral_values(model, cost)):
        return 1.0
    return 2.0 ** (COST_BITS - math.frexp(largest)[1])


def _at_limit(request: Request, left_before_s: float, raw: RawResult) -> bool:
    """Whether a limit stopped the back end, or may have: claims made then are often false."""
    return (
        raw.stop is not Stop.FINISHED
        or request.budget.left_s() <= NEAR_LIMIT * left_before_s < math.inf
    )


def _best_point(
    model: Model, solver: Backend, raw: RawResult, incumbent: FloatArray | None
) -> tuple[FloatArray | None, str]:
    """Better one of the back end's point, if it passes the re-check, and the incumbent."""
    message = f"{solver.name}: {raw.message}" if raw.message else solver.name
    if raw.x is None:
        return incumbent, message
    x, fault = check_point(model, raw.x)
    if x is None:
        _log.warning("point of %s refused on model %s: %s", solver.name, model.name, fault)
        return incumbent, f"point of {solver.name} refused: {fault}"
    if incumbent is not None:
        objective = model.objectives[0]
        if objective.sign * dot(objective.cost, x - incumbent) > 0.0:
            return incumbent, message
    return x, message


def _bound(model: Model, raw: RawResult) -> float | None:
    """Bound from our own product where there are duals, else the back end's; without offset."""
    if raw.duals is not None:
        return dual_bound(model, raw.duals)
    if raw.bound is None:
        return None
    objective = model.objectives[0]
    return sharpened(
        model, objective.sign * objective.cost, raw.bound - objective.sign * objective.offset
    )


def _judged(
    model: Model,
    request: Request,
    x: FloatArray,
    bound: float | None,
    raw: RawResult,
    message: str,
) -> StageResult:
    objective = model.objectives[0]
    cost = objective.sign * objective.cost
    value = dot(cost, x)
    slack = noise(cost, x, value)
    if bound is not None and bound > value + slack:
        _log.warning("bound %s above the value %s of a point: dropped", bound, value)
        bound, message = None, f"{message}; its bound contradicts the point"
    if bound is None:
        return StageResult(Status.FEASIBLE, x, None, raw, message)
    # noise on the wrong side of the value says no more than the value itself
    bound = min(bound, value)
    shift = objective.sign * objective.offset
    closed = value - bound <= slack or relative_gap(value + shift, bound + shift) <= request.gap
    return StageResult(Status.OPTIMAL if closed else Status.FEASIBLE, x, bound, raw, message)
