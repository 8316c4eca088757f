"""Checking a returned point against the model's own arrays, trusting nothing else."""

from __future__ import annotations

import logging

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.model import Model
from apportion.solver.tolerances import INTEGRALITY, PRIMAL

_log = logging.getLogger("apportion.solver")


def checked_point(model: Model, x: FloatArray, source: str) -> FloatArray | None:
    """Round and check a point.

    Integer columns are rounded, columns a hair outside their bounds are put on them, and what
    results is checked against every row by one sparse product.

    Parameters
    ----------
    model
        The model.
    x
        The point, shape (columns,).
    source
        Who returned it, for the log.

    Returns
    -------
    The point that passed, read-only, or ``None`` if it was refused.
    """
    fault = _shape_fault(model, x)
    if fault is None:
        rounded = np.where(model.integer, np.rint(x), x)
        fault = _column_fault(model, x, rounded)
        if fault is None:
            rounded = np.clip(rounded, model.lower, model.upper)
            fault = _row_fault(model, rounded)
            if fault is None:
                rounded.flags.writeable = False
                return rounded
    _log.warning("point of %s refused: %s", source, fault)
    return None


def _shape_fault(model: Model, x: FloatArray) -> str | None:
    if x.shape != (model.column_count,):
        return f"shape {x.shape} instead of {(model.column_count,)}"
    finite = np.isfinite(x)
    if not finite.all():
        bad = int(np.argmin(finite))
        return f"{model.column_name(bad)} = {x[bad]}"
    return None


def _column_fault(model: Model, x: FloatArray, rounded: FloatArray) -> str | None:
    whole = np.abs(x - rounded) <= INTEGRALITY
    if not whole.all():
        bad = int(np.argmin(whole))
        return f"{model.column_name(bad)} = {x[bad]} is not a whole number"
    slack = PRIMAL * np.maximum(1.0, np.abs(rounded))
    # integers are whole by now, so a bound between two of them is crossed by a unit or not at all
    inside = (rounded >= model.lower - slack) & (rounded <= model.upper + slack)
    if not inside.all():
        bad = int(np.argmin(inside))
        return (
            f"{model.column_name(bad)} = {x[bad]} "
            f"outside [{model.lower[bad]}, {model.upper[bad]}]"
        )
    return None


def _row_fault(model: Model, x: FloatArray) -> str | None:
    if not model.row_count:
        return None
    activity = model.matrix @ x
    excess = np.maximum(model.row_lower - activity, activity - model.row_upper)
    if not (excess > 0.0).any():
        return None
    over = excess > PRIMAL * _row_scale(model, x)
    if not over.any():
        return None
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
