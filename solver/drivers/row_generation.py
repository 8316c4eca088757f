"""An LP with too many rows to write down: those that a point violates are added until none is.

Each LP is a relaxation, so its value is a bound; the first point that satisfies all rows is
optimal. Every run starts from the last basis, which added rows leave dual feasible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import BoolArray, FloatArray
from apportion.solver.backends.held_lp import HeldLP, UncertifiedError
from apportion.solver.backends.more_rows import with_more_rows
from apportion.solver.budget import Budget
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.model import Model
from apportion.solver.proof.duality import dual_bound

VIOLATED = 1e-8
"""Excess over a row's side that counts as a violation, relative to its largest term or side.

Ten times what the LP is solved to, so that a row that is in is not found again.
"""

MOST_ROUNDS = 500
"""Rounds after which something is wrong; two to ten are usual."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows ``lower <= matrix @ x <= upper``.

    Parameters
    ----------
    matrix
        Shape (rows, columns of the model); places that are there twice are summed.
    lower, upper
        Sides, shape (rows,).

    Raises
    ------
    ModelError
        If shapes do not fit, a coefficient or side is NaN, or a coefficient is infinite.
    """

    matrix: csr_matrix[np.float64]
    lower: FloatArray
    upper: FloatArray

    def __post_init__(self) -> None:
        count = self.matrix.shape[0]
        if self.lower.shape != (count,) or self.upper.shape != (count,):
            raise ModelError(f"rows: {count} of them, sides {self.lower.shape}, {self.upper.shape}")
        data = np.asarray(self.matrix.data, dtype=np.float64)
        if not (np.isfinite(data).all() and (self.lower <= self.upper).all()):
            raise ModelError("rows: a number that is not usable, or a lower side above the upper")

    def violated(self, x: FloatArray, tolerance: float = VIOLATED) -> BoolArray:
        """Which rows the point ``x`` violates, shape (rows,)."""
        activity = np.asarray(self.matrix.dot(x), dtype=np.float64)
        excess = np.maximum(self.lower - activity, activity - self.upper)
        # terms as they are given: twins that cancel leave rounding of their own size
        size = np.zeros(activity.size)
        term = np.abs(self.matrix.data) * np.maximum(1.0, np.abs(x))[self.matrix.indices]
        row = np.repeat(np.arange(activity.size), np.diff(self.matrix.indptr))
        np.maximum.at(size, row, term)
        for side in (self.lower, self.upper):
            size = np.maximum(size, np.where(np.isfinite(side), np.abs(side), 0.0))
        return excess > tolerance * size


Separation = Callable[[FloatArray], Rows | None]


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Optimum of an LP whose rows were generated.

    Attributes
    ----------
    x
        The point, shape (columns,); the separation found nothing violated in it.
    value
        Its objective, in the model's sense.
    bound
        What the objective cannot pass, from the duals by our own product; ``None`` if they
        prove nothing.
    rounds
        LPs solved.
    rows
        Rows added.
    """

    x: FloatArray
    value: float
    bound: float | None
    rounds: int
    rows: int


def generate_rows(
    model: Model, separate: Separation, *, budget: Budget, start: Rows | None = None
) -> Generated:
    """Optimise an LP over the rows of ``model`` and all those that a callback knows of.

    Parameters
    ----------
    model
        An LP with one objective; bounded by its own rows and bounds.
    separate
        Called with a point; gives rows among which are violated ones if there are any, or
        ``None``. Rows that it gives and the point satisfies are left out.
    budget
        Deadline for everything.
    start
        Rows to begin with.

    Raises
    ------
    ModelError
        If the model is no LP with one objective, or rows do not fit it.
    NoSolutionError
        If no point satisfies the rows, or the budget ends first: a point that violates rows is
        never returned.
    UncertifiedError
        If HiGHS refuses rows, leaves a row violated that it was given, or proves no optimum.
    """
    if not model.is_lp or len(model.objectives) != 1:
        raise ModelError(f"{model.name}: rows are generated for LPs with one objective")
    lp, inside = HeldLP(model), model
    if start is not None:
        inside = with_rows(lp, inside, start)
    for _ in range(MOST_ROUNDS):
        point = lp.solve(budget)
        if point is None:
            raise NoSolutionError(f"{model.name}: no point satisfies the rows")
        x = np.clip(point.x, model.lower, model.upper)
        rows = _violated(model, separate(x), x)
        if rows is None:
            require_inside(inside, x)
            objective, bound = model.objectives[0], dual_bound(inside, point.duals)
            if bound is not None:
                bound = objective.sign * bound + objective.offset
            added = inside.row_count - model.row_count
            return Generated(x, objective.value(x), bound, lp.runs, added)
        require_inside(inside, x)
        inside = with_rows(lp, inside, rows)
    raise UncertifiedError(f"{model.name}: rows are still violated after {MOST_ROUNDS} rounds")


def _violated(model: Model, found: Rows | None, x: FloatArray) -> Rows | None:
    if found is None:
        return None
    if found.matrix.shape[1] != model.column_count:
        raise ModelError(f"{model.name}: rows of {found.matrix.shape[1]} columns")
    keep = np.flatnonzero(found.violated(x))
    if keep.size == 0:
        return None
    return Rows(found.matrix[keep], found.lower[keep], found.upper[keep])


def with_rows(lp: HeldLP, inside: Model, rows: Rows) -> Model:
    """Add rows to the LP in HiGHS and to our own copy, which the bound is computed from."""
    matrix = rows.matrix.copy()
    matrix.sum_duplicates()
    lp.add_rows(matrix, rows.lower, rows.upper)
    return with_more_rows(inside, matrix, rows.lower, rows.upper)


def require_inside(inside: Model, x: FloatArray) -> None:
    """Demand that the LP's point satisfies the rows that HiGHS was given."""
    rows = Rows(inside.matrix, inside.row_lower, inside.row_upper)
    broken = rows.violated(x)
    if broken.any():
        row = inside.row_name(int(np.argmax(broken)))
        raise UncertifiedError(f"{inside.name}: HiGHS leaves row {row} violated")
