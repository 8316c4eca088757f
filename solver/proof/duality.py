"""The lower bound that a vector of row duals proves, by our own product.

For any duals y the minimum of ``c @ x`` is at least the sum over rows of ``y * side`` plus the sum
over columns of ``z * bound``, where ``z = c - A.T @ y``, a positive multiplier takes the lower side
and a negative one the upper side. No statement of a back end enters.
"""

from __future__ import annotations

import math

import numpy as np

from apportion.solver.arrays import FloatArray, dot, weighted_counts
from apportion.solver.models.model import Model
from apportion.solver.tolerances import PROOF


def dual_bound(model: Model, duals: FloatArray) -> float | None:
    """Lower bound on the minimum of a model's first objective, without its offset.

    Parameters
    ----------
    model
        The model; a maximised objective counts as the minimisation of its negative.
    duals
        Row duals of that minimisation, shape (rows,).

    Returns
    -------
    The bound, or ``None`` where the duals prove none.
    """
    if duals.shape != (model.row_count,) or not np.isfinite(duals).all():
        return None
    objective = model.objectives[0]
    cost = objective.sign * objective.cost
    # a multiplier for a side that does not exist proves nothing: leave it out
    side = np.where(duals > 0.0, model.row_lower, model.row_upper)
    usable = np.isfinite(side)
    y = np.where(usable, duals, 0.0)
    z = cost - weighted_counts(
        model.indices, model.values * y[model.row_of_entry], model.column_count
    )
    bound = np.where(z > 0.0, model.lower, model.upper)
    open_end = ~np.isfinite(bound)
    # without a finite bound, a reduced cost of rounding size counts as zero and others end it
    if (np.abs(z[open_end]) > PROOF * _cost_scale(cost)).any():
        return None
    rows = dot(y[usable], side[usable])
    columns = dot(z[~open_end], bound[~open_end])
    total = rows + columns
    return total if math.isfinite(total) else None


def _cost_scale(cost: FloatArray) -> float:
    return float(np.abs(cost).max(initial=0.0))
