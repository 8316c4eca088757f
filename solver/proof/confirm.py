"""A second look at claims that no point exists, or that the objective has no end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.solver.arrays import FloatArray, dot
from apportion.solver.backends.backend import Backend, Claim, Request, Stop, run_backend
from apportion.solver.backends.registry import backend
from apportion.solver.models.model import Model
from apportion.solver.proof.recheck import check_point
from apportion.solver.status import Status
from apportion.solver.tolerances import PROOF

_SECOND_LP = ("glop", "highs")
_SECOND_MILP = ("scip", "highs")


@dataclass(frozen=True, slots=True, eq=False)
class SecondLook:
    """What the second look found: a status, a point where there is one, and why."""

    status: Status
    x: FloatArray | None
    message: str


def second_look(
    model: Model, first: Backend, request: Request, incumbent: FloatArray | None
) -> SecondLook:
    """Judge the claim of ``first`` that ``model`` is infeasible or unbounded.

    A known point refutes infeasibility; so does the point nearest to zero within the bounds. Else
    another back end, asked for any point at all, must agree, away from every limit. Unboundedness
    needs a point and an improving direction, both checked here.
    """
    second = _other(model, first)
    x = incumbent if incumbent is not None else _trivial_point(model)
    if x is None:
        if second is None or request.budget.expired():
            return SecondLook(Status.NO_SOLUTION, None, f"{first.name} alone claims infeasibility")
        found = run_backend(second, model.with_cost(np.zeros(model.column_count)), request)
        if found.claim in (Claim.INFEASIBLE, Claim.INFEASIBLE_OR_UNBOUNDED):
            if found.stop is Stop.FINISHED and not request.budget.expired():
                return SecondLook(
                    Status.INFEASIBLE, None, f"infeasible by {first.name} and {second.name}"
                )
        elif found.x is not None:
            x, _ = check_point(model, found.x)
    if x is None:
        return SecondLook(Status.NO_SOLUTION, None, f"infeasibility by {first.name} not confirmed")
    if second is not None and _has_improving_direction(model, second, request):
        return SecondLook(Status.UNBOUNDED, None, "a point and an improving direction exist")
    return SecondLook(
        Status.FEASIBLE, x, f"{first.name} claims that there is no optimum, but a point exists"
    )


def _other(model: Model, first: Backend) -> Backend | None:
    for name in _SECOND_LP if model.is_lp else _SECOND_MILP:
        other = backend(name)
        if not first.name.startswith(name) and other.available():
            return other
    return None


def _trivial_point(model: Model) -> FloatArray | None:
    x, _ = check_point(model, np.clip(np.zeros(model.column_count), model.lower, model.upper))
    return x


def _has_improving_direction(model: Model, solver: Backend, request: Request) -> bool:
    """Whether the objective improves without end from any feasible point.

    Directions are those that no bound and no side stops; they are boxed to unit length, so the
    question is one bounded LP.
    """
    if np.isfinite(model.lower).all() and np.isfinite(model.upper).all():
        return False
    directions = replace(
        model.relaxed(),
        lower=np.where(np.isfinite(model.lower), 0.0, -1.0),
        upper=np.where(np.isfinite(model.upper), 0.0, 1.0),
        row_lower=np.where(np.isfinite(model.row_lower), 0.0, -np.inf),
        row_upper=np.where(np.isfinite(model.row_upper), 0.0, np.inf),
    )
    found = run_backend(solver, directions, replace(request, start=None))
    if found.x is None:
        return False
    direction, _ = check_point(directions, found.x)
    if direction is None:
        return False
    objective = model.objectives[0]
    return objective.sign * dot(objective.cost, direction) < -PROOF * float(
        np.abs(objective.cost).max()
    )
