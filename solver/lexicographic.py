"""Objectives in priority order: each is held at its value while the next one is improved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.solver.arrays import FloatArray, dot, weighted_counts
from apportion.solver.backends.backend import Backend, Request
from apportion.solver.models.blocks import Block
from apportion.solver.models.model import Model
from apportion.solver.proof.proof import has_integral_values
from apportion.solver.stage import StageResult, run_stage
from apportion.solver.status import Status
from apportion.solver.tolerances import COMPARISON


def solve_in_order(
    model: Model, solver: Backend, request: Request, incumbent: FloatArray | None
) -> list[StageResult]:
    """Solve the objectives of ``model`` one after the other.

    Parameters
    ----------
    model
        The model.
    solver
        Back end to run.
    request
        Limits and options, for each objective.
    incumbent
        A point that passed the re-check.

    Returns
    -------
    A result per objective, up to the first one without a point or to the end of the budget. Each
    point keeps what the one before it reached.
    """
    stages: list[StageResult] = []
    x = incumbent
    for position in range(len(model.objectives)):
        if stages:
            if x is None or request.budget.expired():
                break
            model = hold(model, position - 1, x, stages[-1].bound)
            request = replace(request, start=x)
        stage = run_stage(model.single(position), solver, request, x)
        if stage.x is not None and x is not None and not _keeps(model, position, x, stage.x):
            stage = replace(stage, status=Status.FEASIBLE, x=x, bound=None)
        stages.append(stage)
        x = stage.x
    return stages


def hold(model: Model, objective: int, x: FloatArray, bound: float | None) -> Model:
    """Add what keeps an objective at its value in ``x``.

    Where the value is the most that a block of rows can give (the rows add up to the objective,
    their sides to the value), each row of the block is made an equality: back ends solve that form
    several times faster than one dense row. Otherwise a row is added: an equality if a whole
    number was proved best, else one side.

    Parameters
    ----------
    model
        Model with all its objectives.
    objective
        Position of the objective to hold.
    x
        Point that reached the value, shape (columns,).
    bound
        Proved lower bound of the objective as a minimisation, without its offset.
    """
    chosen = model.objectives[objective]
    cost = chosen.sign * chosen.cost
    value = dot(cost, x)
    for block in model.row_blocks:
        if _is_ceiling(model, block, cost, value):
            return _tightened(model, block)
    name = f"held {chosen.name}"
    if has_integral_values(model, cost):
        whole = float(np.rint(value))
        proved = bound is not None and bound > whole - 0.5
        return model.with_row(name, cost, whole if proved else -np.inf, whole)
    slack = COMPARISON * dot(np.abs(cost), np.abs(x))
    return model.with_row(name, cost, -np.inf, value + slack)


def _keeps(model: Model, position: int, before: FloatArray, after: FloatArray) -> bool:
    """Whether no whole-number objective before ``position`` is worse at ``after``.

    Others are guarded by the re-check of the row that holds them, which is relative and could let
    one unit of a large whole number go.
    """
    return not any(
        has_integral_values(model, objective.cost)
        and objective.sign * dot(objective.cost, after - before) >= 0.5
        for objective in model.objectives[:position]
    )


def _is_ceiling(model: Model, block: Block, cost: FloatArray, value: float) -> bool:
    """Whether the block's rows add up to ``-cost`` and their upper sides to ``-value``.

    The mirror image, lower sides of rows that add up to ``cost``, is looked for as well.
    """
    upper, lower = (side[block.start : block.stop] for side in (model.row_upper, model.row_lower))
    slack = COMPARISON * max(1.0, abs(value))
    if np.isfinite(upper).all() and abs(float(upper.sum()) + value) <= slack:
        return bool((_row_sum(model, block) == -cost).all())
    if np.isfinite(lower).all() and abs(float(lower.sum()) - value) <= slack:
        return bool((_row_sum(model, block) == cost).all())
    return False


def _row_sum(model: Model, block: Block) -> FloatArray:
    entries = slice(int(model.indptr[block.start]), int(model.indptr[block.stop]))
    return weighted_counts(model.indices[entries], model.values[entries], model.column_count)


def _tightened(model: Model, block: Block) -> Model:
    """Make the rows of a block equalities, at the side that is finite in every row."""
    row_lower, row_upper = model.row_lower.copy(), model.row_upper.copy()
    place = slice(block.start, block.stop)
    if np.isfinite(row_upper[place]).all():
        row_lower[place] = row_upper[place]
    else:
        row_upper[place] = row_lower[place]
    return model.with_row_sides(row_lower, row_upper)
