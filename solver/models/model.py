"""The optimisation model: flat arrays, in named blocks, with objectives in priority order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import BoolArray, FloatArray, IndexArray, dot, read_only
from apportion.solver.errors import ModelError
from apportion.solver.models.blocks import Block
from apportion.solver.tolerances import LARGEST_BOUND, LARGEST_COEFFICIENT


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """A linear objective.

    Attributes
    ----------
    name
        Name of the objective.
    cost
        Coefficient of every column, shape (columns,).
    maximise
        Whether more is better.
    offset
        Constant added to the value.
    """

    name: str
    cost: FloatArray
    maximise: bool = False
    offset: float = 0.0

    @property
    def sign(self) -> float:
        """Factor that turns the objective into a minimisation: -1 or 1."""
        return -1.0 if self.maximise else 1.0

    def value(self, x: FloatArray) -> float:
        """Value at the point ``x``, offset included."""
        return dot(self.cost, x) + self.offset


@dataclass(frozen=True, eq=False)
class Model:
    """A mixed-integer linear model, ``row_lower <= A x <= row_upper``, ``lower <= x <= upper``.

    Made by :class:`ModelBuilder`; every array is read-only.

    Attributes
    ----------
    name
        Name of the model.
    lower, upper
        Bounds of the columns, shape (columns,).
    integer
        Which columns take whole numbers only, shape (columns,).
    indptr, indices, values
        The matrix A by rows (CSR), without duplicates.
    row_lower, row_upper
        Sides of the rows, shape (rows,).
    objectives
        Objectives, the most important first.
    column_blocks, row_blocks
        Named families, in index order.

    Raises
    ------
    ModelError
        If a number is NaN, infinite where it may not be, or too large; if a lower bound is above
        its upper bound; if shapes disagree; if there is no objective. The message names the place.
    """

    name: str
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    indptr: IndexArray
    indices: IndexArray
    values: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray
    objectives: tuple[Objective, ...]
    column_blocks: tuple[Block, ...] = ()
    row_blocks: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        for field in [
            "lower",
            "upper",
            "integer",
            "indptr",
            "indices",
            "values",
            "row_lower",
            "row_upper",
        ]:
            object.__setattr__(self, field, read_only(getattr(self, field)))
        self._check_shapes()
        self._check_bounds()
        self._check_matrix()
        self._check_objectives()

    @property
    def column_count(self) -> int:
        """Number of columns."""
        return self.lower.size

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.row_lower.size

    @cached_property
    def is_lp(self) -> bool:
        """Whether no column is integer."""
        return not bool(self.integer.any())

    @cached_property
    def matrix(self) -> csr_matrix[np.float64]:
        """The matrix A, shape (rows, columns), sharing this model's arrays."""
        return csr_matrix(
            (self.values, self.indices, self.indptr), shape=(self.row_count, self.column_count)
        )

    @cached_property
    def row_of_entry(self) -> IndexArray:
        """Row index of each stored entry, beside ``indices`` and ``values``."""
        counts = np.diff(self.indptr)
        return np.repeat(np.arange(self.row_count, dtype=np.int32), counts)

    def activity(self, x: FloatArray) -> FloatArray:
        """Value of every row at the point ``x``, shape (rows,)."""
        return np.asarray(self.matrix.dot(x), dtype=np.float64)

    def column_name(self, index: int) -> str:
        """Name of one column, such as ``x[job17,A100]``."""
        return _member_name(self.column_blocks, index, "column")

    def row_name(self, index: int) -> str:
        """Name of one row."""
        return _member_name(self.row_blocks, index, "row")

    def column_names(self) -> list[str]:
        """Names of all columns."""
        return _member_names(self.column_blocks, self.column_count, "column")

    def row_names(self) -> list[str]:
        """Names of all rows."""
        return _member_names(self.row_blocks, self.row_count, "row")

    def relaxed(self) -> Model:
        """Give the same model without the demand for whole numbers."""
        return replace(self, integer=np.zeros(self.column_count, dtype=np.bool_))

    def single(self, objective: int) -> Model:
        """Give the same model with only one of its objectives, by position."""
        return replace(self, objectives=(self.objectives[objective],))

    def with_cost(self, cost: FloatArray) -> Model:
        """Give the same model with one objective, to minimise ``cost``, shape (columns,)."""
        return replace(self, objectives=(Objective("cost", cost),))

    def with_row(self, name: str, weights: FloatArray, lower: float, upper: float) -> Model:
        """Give the same model with the row ``lower <= weights @ x <= upper`` added at the end."""
        columns = np.flatnonzero(weights).astype(np.int32)
        end = np.append(self.indptr, np.int32(self.indptr[-1] + columns.size))
        return replace(
            self,
            indptr=end.astype(np.int32),
            indices=np.concatenate((self.indices, columns)),
            values=np.concatenate((self.values, weights[columns])),
            row_lower=np.append(self.row_lower, lower),
            row_upper=np.append(self.row_upper, upper),
            row_blocks=(*self.row_blocks, Block(name, self.row_count, (1,))),
        )

    def with_row_sides(self, row_lower: FloatArray, row_upper: FloatArray) -> Model:
        """Give the same model with other sides of the rows, shape (rows,)."""
        return replace(self, row_lower=row_lower, row_upper=row_upper)

    def _check_shapes(self) -> None:
        columns, rows = (self.column_count,), (self.row_count,)
        shapes = (
            ("upper", self.upper.shape, columns),
            ("integer", self.integer.shape, columns),
            ("row_upper", self.row_upper.shape, rows),
            ("indptr", self.indptr.shape, (self.row_count + 1,)),
            ("values", self.values.shape, self.indices.shape),
        )
        for field, found, wanted in shapes:
            if found != wanted:
                raise ModelError(f"model {self.name}: {field} has shape {found}, not {wanted}")

    def _check_bounds(self) -> None:
        _check_interval(self.lower, self.upper, "column", self.column_name)
        _check_interval(self.row_lower, self.row_upper, "row", self.row_name)

    def _check_matrix(self) -> None:
        indices = self.indices
        if indices.size and not 0 <= indices.min() <= indices.max() < self.column_count:
            raise ModelError(f"model {self.name}: a row names a column that does not exist")
        bad = _first_unusable(self.values)
        if bad is not None:
            row, column = int(self.row_of_entry[bad]), int(indices[bad])
            raise ModelError(
                f"row {self.row_name(row)}, column {self.column_name(column)}: "
                f"coefficient {self.values[bad]} is not a usable number"
            )

    def _check_objectives(self) -> None:
        if not self.objectives:
            raise ModelError(
                f"model {self.name}: no objective; a zero one asks for any feasible point"
            )
        for objective in self.objectives:
            if objective.cost.shape != (self.column_count,):
                raise ModelError(
                    f"objective {objective.name}: cost has shape {objective.cost.shape}, "
                    f"not {(self.column_count,)}"
                )
            if not np.isfinite(objective.offset):
                raise ModelError(f"objective {objective.name}: offset {objective.offset}")
            bad = _first_unusable(objective.cost)
            if bad is not None:
                raise ModelError(
                    f"objective {objective.name}, column {self.column_name(bad)}: "
                    f"coefficient {objective.cost[bad]} is not a usable number"
                )


def _first_unusable(values: FloatArray) -> int | None:
    # one comparison is false for NaN, infinity and too large numbers alike
    good = np.abs(values) <= LARGEST_COEFFICIENT
    return None if good.all() else int(np.argmin(good))


def _check_interval(
    lower: FloatArray, upper: FloatArray, kind: str, name_of: Callable[[int], str]
) -> None:
    good = (
        (lower <= upper)
        & ((np.abs(lower) < LARGEST_BOUND) | (lower == -np.inf))
        & ((np.abs(upper) < LARGEST_BOUND) | (upper == np.inf))
    )
    if good.all():
        return
    bad = int(np.argmin(good))
    raise ModelError(
        f"{kind} {name_of(bad)}: [{lower[bad]}, {upper[bad]}] is not a usable interval "
        f"(lower <= upper, no NaN, below {LARGEST_BOUND:g} or infinite outwards)"
    )


def _member_name(blocks: tuple[Block, ...], index: int, kind: str) -> str:
    place = bisect_right(blocks, index, key=lambda block: block.start) - 1
    # an empty block shares its start with the next one, which is found first
    if place >= 0 and blocks[place].start <= index < blocks[place].stop:
        return blocks[place].member_name(index - blocks[place].start)
    return f"{kind}{index}"


def _member_names(blocks: tuple[Block, ...], count: int, kind: str) -> list[str]:
    names: list[str] = []
    for block in blocks:
        names.extend(f"{kind}{index}" for index in range(len(names), block.start))
        names.extend(block.member_names())
    names.extend(f"{kind}{index}" for index in range(len(names), count))
    return names
