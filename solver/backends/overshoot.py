"""Moving a point that overshoots a few rows back into them."""

from __future__ import annotations

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model
from apportion.solver.proof.recheck import check_point
from apportion.solver.tolerances import PRIMAL

OF_TOLERANCE = 0.5
"""Part of the re-check's tolerance that a repair may use up; the rest is for rounding errors."""

LEAST_KEPT = 0.9
"""Smallest part of the way to the point that a repair may keep: less is another point."""


def repaired(
    model: Model, x: FloatArray, anchor: FloatArray | None = None
) -> tuple[FloatArray | None, str]:
    """Put a point of an LP inside its rows, or refuse it.

    The point is put inside its bounds; if rows are still violated it is moved along the straight
    line to a feasible one, no further than the worst row asks for.

    Parameters
    ----------
    model
        The model, an LP.
    x
        The point, shape (columns,).
    anchor
        A point to move to; left out, or not feasible: the point nearest to zero.

    Returns
    -------
    A point that passes the re-check, and how far it was moved; or ``None`` and why.
    """
    if not np.isfinite(x).all():
        return None, "the point is not finite"
    inside = np.clip(x, model.lower, model.upper)
    passed, fault = check_point(model, inside)
    if passed is not None:
        return passed, ""
    home = _home(model, anchor)
    if home is None:
        return None, f"not repairable: {fault}, and no feasible point is known"
    kept = _part(model, home, inside)
    if kept < LEAST_KEPT:
        return None, f"not repairable: {fault}, only {kept:.3g} of the way is inside"
    passed, fault = check_point(model, home + kept * (inside - home))
    if passed is None:
        return None, f"not repairable: {fault}"
    return passed, f"moved by {1.0 - kept:.2g} of the way to a feasible point"


def _home(model: Model, anchor: FloatArray | None) -> FloatArray | None:
    nearest = np.clip(np.zeros(model.column_count), model.lower, model.upper)
    for point in (anchor, nearest):
        if point is not None:
            passed, _ = check_point(model, point)
            if passed is not None:
                return passed
    return None


def _part(model: Model, home: FloatArray, x: FloatArray) -> float:
    """Largest part of the way from ``home`` to ``x`` at which no row is violated for certain."""
    start, end = model.activity(home), model.activity(x)
    slack = _slack(model)
    step = end - start
    room = np.where(step > 0.0, model.row_upper - start, start - model.row_lower) + slack
    over = (end > model.row_upper + slack) | (end < model.row_lower - slack)
    over &= step != 0.0
    parts = np.maximum(room[over], 0.0) / np.abs(step[over])
    return float(parts.min(initial=1.0))


def _slack(model: Model) -> FloatArray:
    """What the re-check is sure to let pass in each row, whatever the point."""
    scale = np.zeros(model.row_count)
    filled = np.diff(model.indptr) > 0
    if filled.any():
        starts = model.indptr[:-1][filled]
        scale[filled] = np.maximum.reduceat(np.abs(model.values), starts)
    return OF_TOLERANCE * PRIMAL * scale
