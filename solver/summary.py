"""From verdicts on objectives to the answer of a call."""

from __future__ import annotations

import time

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import Backend, Claim, Stop
from apportion.solver.chain import Chain
from apportion.solver.models.model import Model
from apportion.solver.proof.recheck import check_point
from apportion.solver.solution import Solution
from apportion.solver.stage import StageResult
from apportion.solver.status import Status


def without_columns(model: Model, solver: Backend, started: float) -> Solution:
    """Judge a model without columns: its only point is the empty one."""
    point, fault = check_point(model, np.empty(0))
    values = tuple(objective.offset for objective in model.objectives)
    return Solution(
        status=Status.INFEASIBLE if point is None else Status.OPTIMAL,
        point=point,
        objectives=() if point is None else values,
        bounds=(None,) * len(values) if point is None else values,
        backend=solver.name,
        elapsed_s=time.perf_counter() - started,
        message=fault or "no columns",
    )


def summed_up(
    model: Model, solver: Backend, stages: list[StageResult], elapsed_s: float
) -> Solution:
    """Put the verdicts on a model's objectives, in their order, into one answer."""
    last, complete = stages[-1], len(stages) == len(model.objectives)
    bounds: list[float | None] = [None] * len(model.objectives)
    for position, stage in enumerate(stages):
        objective = model.objectives[position]
        if stage.bound is not None:
            bounds[position] = objective.sign * stage.bound + objective.offset
    if last.x is None:
        status, values = last.status, ()
    else:
        proved = complete and all(stage.status is Status.OPTIMAL for stage in stages)
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        values = tuple(objective.value(last.x) for objective in model.objectives)
    works = [stage.raw.work for stage in stages if stage.raw.work is not None]
    duals, reduced_costs = _prices(model, last) if complete else (None, None)
    return Solution(
        status=status,
        point=last.x,
        objectives=values,
        bounds=tuple(bounds),
        backend=solver.name,
        elapsed_s=elapsed_s,
        work=sum(works) if len(works) == len(stages) else None,
        time_limited=not complete or any(stage.raw.stop is Stop.TIME for stage in stages),
        message=last.message,
        skipped=tuple(solver.skipped) if isinstance(solver, Chain) else (),
        duals=duals,
        reduced_costs=reduced_costs,
    )


def _prices(model: Model, last: StageResult) -> tuple[FloatArray | None, FloatArray | None]:
    """Duals and reduced costs in the sense of the last objective, for the model's own rows."""
    raw, sign = last.raw, model.objectives[-1].sign
    if last.x is None or raw.claim is not Claim.OPTIMAL:
        return None, None
    duals = None if raw.duals is None else sign * raw.duals[: model.row_count]
    reduced_costs = None if raw.reduced_costs is None else sign * raw.reduced_costs
    return duals, reduced_costs
