"""Checking a returned point against the model's own arrays, trusting nothing else."""

from __future__ import annotations

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model
from apportion.solver.tolerances import INTEGRALITY, PRIMAL


def check_point(model: Model, x: FloatArray) -> tuple[FloatArray | None, str]:
    """Round and check a point.

    Integer columns are rounded, columns a hair outside their bounds are put on them, and what
    results is checked against every row by one sparse product.

    Parameters
    ----------
    model
        The model.
    x
        The point, shape (columns,).

    Returns
    -------
    The point that passed, read-only, and ``""``; or ``None`` and what is wrong with it.
    """
    if x.shape != (model.column_count,):
        return None, f"shape {x.shape} instead of {(model.column_count,)}"
    finite = np.isfinite(x)
    if not finite.all():
        bad = int(np.argmin(finite))
        return None, f"{model.column_name(bad)} = {x[bad]}"
    rounded = np.where(model.integer, np.rint(x), x)
    fault = _column_fault(model, x, rounded)
    if fault:
        return None, fault
    rounded = np.clip(rounded, model.lower, model.upper)
    fault = _row_fault(model, rounded)
    if fault:
        return None, fault
    rounded.flags.writeable = False
    return rounded, ""


def _column_fault(model: Model, x: FloatArray, rounded: FloatArray) -> str:
    whole = np.abs(x - rounded) <= INTEGRALITY
    if not whole.all():
        bad = int(np.argmin(whole))
        return f"{model.column_name(bad)} = {x[bad]} is not a whole number"
    slack = np.where(model.integer, 0.0, PRIMAL * np.maximum(1.0, np.abs(rounded)))
    inside = (rounded >= model.lower - slack) & (rounded <= model.upper + slack)
    if inside.all():
        return ""
    bad = int(np.argmin(inside))
    return f"{model.column_name(bad)} = {x[bad]} outside [{model.lower[bad]}, {model.upper[bad]}]"


def _row_fault(model: Model, x: FloatArray) -> str:
    activity = model.activity(x)
    excess = np.maximum(model.row_lower - activity, activity - model.row_upper)
    if not (excess > 0.0).any():
        return ""
    over = excess > PRIMAL * _row_scale(model, x)
    if not over.any():
        return ""
    bad = int(np.argmax(np.where(over, excess, -np.inf)))
    return (
        f"row {model.row_name(bad)} = {activity[bad]} "
        f"outside [{model.row_lower[bad]}, {model.row_upper[bad]}]"
    )


def _row_scale(model: Model, x: FloatArray) -> FloatArray:
    """Size of each row: its largest term (a column counts as 1 at least) or finite side."""
    scale = np.zeros(model.row_count)
    filled = np.diff(model.indptr) > 0
    if filled.any():
        terms = np.abs(model.values) * np.maximum(1.0, np.abs(x))[model.indices]
        scale[filled] = np.maximum.reduceat(terms, model.indptr[:-1][filled])
    for side in (model.row_lower, model.row_upper):
        np.maximum(scale, np.abs(side), out=scale, where=np.isfinite(side))
    return scale
