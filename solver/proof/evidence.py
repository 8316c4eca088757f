"""What a point and a vector of duals show about a model, exactly where its numbers allow it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model, Objective
from apportion.solver.proof.duality import dual_bound
from apportion.solver.proof.exact import (
    ExactModel,
    Fractions,
    exact_model,
    exact_value,
    from_doubles,
    rounded,
    zeros,
)
from apportion.solver.proof.proof import has_integral_values, sharpened
from apportion.solver.tolerances import PRIMAL


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far a point is from satisfying a model; all zero if it does.

    Attributes
    ----------
    row, row_excess
        Row with the largest excess over a side, and the excess as text.
    column, column_excess
        The same of columns and their bounds.
    whole, whole_distance
        The same of columns that take whole numbers only.
    arithmetic
        ``"exact"`` or ``"double"``.
    """

    row: str
    row_excess: str
    column: str
    column_excess: str
    whole: str
    whole_distance: str
    arithmetic: str


def residuals(model: Model, x: FloatArray) -> Residuals:
    """Measure how far a point of finite numbers is from satisfying a model."""
    whole = np.where(model.integer, np.abs(x - np.rint(x)), 0.0)
    at = int(np.argmax(whole)) if whole.size and whole.max() > 0.0 else -1
    exact = exact_model(model)
    if exact is None:
        row = _largest(model.row_lower - model.activity(x), model.activity(x) - model.row_upper)
        column = _largest(model.lower - x, x - model.upper)
    else:
        point = from_doubles(x)
        row = _exact_largest(
            exact.activity(point),
            exact.row_lower,
            exact.row_upper,
            model.row_lower,
            model.row_upper,
        )
        column = _exact_largest(point, exact.lower, exact.upper, model.lower, model.upper)
    return Residuals(
        row="" if row[0] < 0 else model.row_name(row[0]),
        row_excess=row[1],
        column="" if column[0] < 0 else model.column_name(column[0]),
        column_excess=column[1],
        whole="" if at < 0 else model.column_name(at),
        whole_distance=repr(float(whole[at])) if at >= 0 else "0",
        arithmetic="double" if exact is None else "exact",
    )


def value_at(objective: Objective, x: FloatArray) -> Fraction | float:
    """Value of an objective at a point, offset included."""
    value = exact_value(objective, from_doubles(x))
    return objective.value(x) if value is None else value


def bound_by_duals(model: Model, duals: FloatArray) -> Fraction | float | None:
    """Bound that row duals prove for the first objective, both in its own sense.

    A bound of an objective that takes whole values only is rounded to one. ``None`` where the duals
    prove no bound.
    """
    objective = model.objectives[0]
    y = objective.sign * duals
    exact = exact_model(model)
    best = None if exact is None else _exact_bound(exact, y)
    if best is not None:
        if has_integral_values(model, objective.cost):
            best = Fraction(math.ceil(best))
        offset = exact_value(objective, zeros(model.column_count))
        return None if offset is None else int(objective.sign) * best + offset
    found = dual_bound(model, y)
    if found is None:
        return None
    found = sharpened(model, objective.sign * objective.cost, found)
    return objective.sign * found + objective.offset


def no_point_by_duals(model: Model, duals: FloatArray) -> bool:
    """Whether row duals prove that no point exists: they bound zero from below by more."""
    if duals.shape != (model.row_count,) or not np.isfinite(duals).all():
        return False
    exact = exact_model(model)
    cost = zeros(model.column_count)
    if exact is not None:
        found = [exact.dual_bound_of(cost, y) for y in (rounded(duals), from_doubles(duals))]
        proved = [bound for bound in found if bound is not None]
        if proved:
            return max(proved) > 0
    bound = dual_bound(model.with_cost(np.zeros(model.column_count)), duals)
    return bound is not None and bound > PRIMAL


def _exact_bound(exact: ExactModel, y: FloatArray) -> Fraction | None:
    """Better of the bounds by the duals as they are and by the round numbers close to them."""
    found = [exact.dual_bound(0, numbers) for numbers in (rounded(y), from_doubles(y))]
    proved = [bound for bound in found if bound is not None]
    return max(proved) if proved else None


def _largest(below: FloatArray, above: FloatArray) -> tuple[int, str]:
    excess = np.maximum(below, above)
    if not excess.size or not excess.max() > 0.0:
        return -1, "0"
    at = int(np.argmax(excess))
    return at, repr(float(excess[at]))


def _exact_largest(
    value: Fractions, lower: Fractions, upper: Fractions, low: FloatArray, high: FloatArray
) -> tuple[int, str]:
    below, above = lower.minus(value), value.minus(upper)
    worst, most = -1, Fraction(0)
    for excess, side in ((below, low), (above, high)):
        over = np.flatnonzero(np.isfinite(side) & (excess.numerators > 0))
        for at in over.tolist():
            if excess.at(at) > most:
                worst, most = at, excess.at(at)
    return worst, str(most)
