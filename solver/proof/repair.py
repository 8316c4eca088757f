"""The cheapest way to make an impossible model possible: which sides to move, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from apportion.solver.arrays import FloatArray, floats
from apportion.solver.budget import Budget
from apportion.solver.errors import ModelError, UnsupportedModelError
from apportion.solver.models.model import Model
from apportion.solver.proof.elastic import elastic
from apportion.solver.proof.recheck import check_point
from apportion.solver.solve import Solver
from apportion.solver.status import Status
from apportion.solver.tolerances import PRIMAL


@dataclass(frozen=True, slots=True)
class Change:
    """One side of a row that has to move.

    Attributes
    ----------
    row
        Name of the row.
    index
        Its index in the model.
    before, after
        The side as it was, and as it has to be.
    cost
        What is paid for it.
    """

    row: str
    index: int
    before: float
    after: float
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """Answer to the question what it takes to make a model possible.

    Attributes
    ----------
    status
        ``OPTIMAL``: no cheaper way exists, within the solver's gap. ``FEASIBLE``: a way, perhaps
        not the cheapest. ``INFEASIBLE``: none without a row that may not be broken.
        ``NO_SOLUTION``: none was found in time.
    changes
        Sides that move; empty if the model is possible as it is.
    cost, bound
        What is paid, and what has to be paid at least; ``None`` where not known.
    point
        A point of the repaired model, re-checked.
    """

    status: Status
    changes: tuple[Change, ...] = ()
    cost: float | None = None
    bound: float | None = None
    point: FloatArray | None = field(default=None, repr=False)

    def applied(self, model: Model) -> Model:
        """Give the model with the sides moved."""
        lower, upper = model.row_lower.copy(), model.row_upper.copy()
        for change in self.changes:
            if change.after < change.before:
                lower[change.index] = change.after
            else:
                upper[change.index] = change.after
        return model.with_row_sides(lower, upper)


def cheapest_repair(
    model: Model,
    solver: Solver,
    *,
    budget: Budget,
    weights: Mapping[str, float] | ArrayLike | None = None,
) -> Repair:
    """Find the smallest weighted sum by which sides of rows have to move to let a point exist.

    Parameters
    ----------
    model
        The model; bounds of columns stay as they are.
    solver
        How to solve; one that chooses by itself takes over where its back end refuses.
    budget
        Deadline.
    weights
        Price of one unit for each row, shape (rows,), or by name of a row or of a family of rows;
        1 where nothing is said, infinite for a row that may not be broken.

    Raises
    ------
    ModelError
        If a weight is not positive, or there is no row of the name.
    """
    prices = _weights(model, weights)
    wider, row, effect = elastic(model, prices)
    try:
        found = solver.solve(wider, budget=budget)
    except UnsupportedModelError:
        found = replace(solver, backend="auto").solve(wider, budget=budget)
    if found.point is None:
        return Repair(found.status)
    amounts = found.point[model.column_count :]
    changes: list[Change] = []
    for at in np.flatnonzero(amounts > PRIMAL).tolist():
        i, amount = int(row[at]), float(amounts[at])
        before = float(model.row_lower[i] if effect[at] > 0 else model.row_upper[i])
        after = before - float(effect[at]) * amount
        cost = amount * float(prices[i])
        changes.append(Change(model.row_name(i), i, before, after, cost))
    cost = sum(change.cost for change in changes)
    repair = Repair(found.status, tuple(changes), cost, found.bound)
    point, _ = check_point(repair.applied(model), found.point[: model.column_count])
    if point is None:
        return Repair(Status.NO_SOLUTION)
    return replace(repair, point=point)


def _weights(model: Model, weights: Mapping[str, float] | ArrayLike | None) -> FloatArray:
    if weights is None:
        return np.ones(model.row_count)
    chosen = _by_name(model, weights) if isinstance(weights, Mapping) else floats(weights)
    if chosen.shape != (model.row_count,):
        raise ModelError(f"weights have shape {chosen.shape}, not {(model.row_count,)}")
    good = chosen > 0.0
    if not good.all():
        bad = int(np.argmin(good))
        raise ModelError(f"weight of row {model.row_name(bad)} = {chosen[bad]}: must be above zero")
    return chosen


def _by_name(model: Model, weights: Mapping[str, float]) -> FloatArray:
    chosen = np.ones(model.row_count)
    families = {block.name: slice(block.start, block.stop) for block in model.row_blocks}
    rows = {name: slice(i, i + 1) for i, name in enumerate(model.row_names())}
    # names of single rows go last, so that they overrule those of their families
    for name in sorted(weights, key=lambda name: name in rows):
        place = rows.get(name) or families.get(name)
        if place is None:
            raise ModelError(f"weights: there is no row or family of rows {name}")
        chosen[place] = weights[name]
    return chosen
