"""Building a model from whole arrays, one family of columns or rows at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_matrix

from apportion.solver.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    floats,
    read_only,
    weighted_counts,
)
from apportion.solver.errors import ModelError
from apportion.solver.models.blocks import Axis, Block
from apportion.solver.models.model import Model, Objective

_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(slots=True)
class _Side:
    """What was added so far on one side of the matrix: columns, or rows."""

    kind: str
    count: int = 0
    blocks: list[Block] = field(default_factory=list[Block])
    lower: list[FloatArray] = field(default_factory=list[FloatArray])
    upper: list[FloatArray] = field(default_factory=list[FloatArray])

    def add(
        self,
        name: str,
        shape: int | tuple[int, ...],
        lower: ArrayLike,
        upper: ArrayLike,
        axes: tuple[Axis, ...],
    ) -> IntArray:
        """Add a block; give its indices in the block's shape."""
        dims = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
        if any(block.name == name for block in self.blocks):
            raise ModelError(f"{self.kind} {name}: the name is taken")
        if any(length < 0 for length in dims):
            raise ModelError(f"{self.kind} {name}: shape {dims} has a negative length")
        block = Block(name, self.count, dims, axes)
        self.lower.append(_spread(lower, dims, f"{self.kind} {name}: lower"))
        self.upper.append(_spread(upper, dims, f"{self.kind} {name}: upper"))
        self.blocks.append(block)
        self.count += block.size
        return np.arange(block.start, self.count, dtype=np.int64).reshape(dims)


class ModelBuilder:
    """Collects a model in blocks, by array operations only.

    Parameters
    ----------
    name
        Name of the model.

    Examples
    --------
    >>> import numpy as np
    >>> b = ModelBuilder("knapsack")
    >>> x = b.columns("x", 3, integer=True)
    >>> weight = b.rows("weight", 1, row=0, column=x, value=[2.0, 3.0, 4.0], upper=5.0)
    >>> b.objective("value", column=x, value=[3.0, 4.0, 5.0], maximise=True)
    >>> b.build().row_count
    1
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._columns = _Side("columns")
        self._rows = _Side("rows")
        self._integer: list[BoolArray] = []
        self._triples: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._objectives: list[tuple[str, IntArray, FloatArray, bool, float]] = []

    def columns(
        self,
        name: str,
        count_or_shape: int | tuple[int, ...],
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = 1.0,
        integer: ArrayLike = False,
        axes: tuple[Axis, ...] = (),
    ) -> IntArray:
        """Add a family of columns.

        Parameters
        ----------
        name
            Name of the family, not yet used for columns.
        count_or_shape
            Number of columns, or the shape of the family.
        lower, upper
            Bounds, broadcast to the shape.
        integer
            Whether whole numbers only, broadcast to the shape.
        axes
            Labels of the indices, for names.

        Returns
        -------
        Indices of the new columns, in the given shape.

        Raises
        ------
        ModelError
            If the name is taken, or bounds or axes do not fit the shape.
        """
        indices = self._columns.add(name, count_or_shape, lower, upper, axes)
        mask = _spread(np.asarray(integer, dtype=np.float64), indices.shape, f"{name}: integer")
        self._integer.append(mask != 0.0)
        return indices

    def rows(
        self,
        name: str,
        count_or_shape: int | tuple[int, ...],
        *,
        row: ArrayLike,
        column: ArrayLike,
        value: ArrayLike,
        lower: ArrayLike = -math.inf,
        upper: ArrayLike = math.inf,
        axes: tuple[Axis, ...] = (),
    ) -> IntArray:
        """Add a family of rows, given as triples; repeated places are summed.

        Parameters
        ----------
        name
            Name of the family, not yet used for rows.
        count_or_shape
            Number of rows, or the shape of the family.
        row, column, value
            Entries: row number inside this block, column index of the model, coefficient.
            The three are broadcast against one another.
        lower, upper
            Sides of the rows, broadcast to the shape.
        axes
            Labels of the indices, for names.

        Returns
        -------
        Indices of the new rows, in the given shape.

        Raises
        ------
        ModelError
            If the name is taken, an index is out of range, or shapes do not fit.
        """
        local, columns, values = _triples(f"rows {name}", row, column, value)
        self._check_columns(f"rows {name}", columns)
        indices = self._rows.add(name, count_or_shape, lower, upper, axes)
        _check_range(f"rows {name}", "row", local, indices.size)
        first = self._rows.blocks[-1].start
        self._triples.append((local + first, columns, values))
        return indices

    def objective(
        self,
        name: str,
        *,
        column: ArrayLike,
        value: ArrayLike,
        maximise: bool = False,
        offset: float = 0.0,
    ) -> None:
        """Add an objective, less important than those added before.

        Parameters
        ----------
        name
            Name of the objective.
        column, value
            Column indices and their coefficients, broadcast against each other; repeated columns
            are summed.
        maximise
            Whether more is better.
        offset
            Constant added to the value.

        Raises
        ------
        ModelError
            If a column index is out of range or shapes do not fit.
        """
        _, columns, values = _triples(f"objective {name}", 0, column, value)
        self._check_columns(f"objective {name}", columns)
        self._objectives.append((name, columns, values, maximise, float(offset)))

    def build(self, *, allow_unbounded: bool = False) -> Model:
        """Check everything and give the model.

        Parameters
        ----------
        allow_unbounded
            Whether columns may have an infinite bound. Back ends misreport unbounded models, so
            ours have none; models that users bring may.

        Raises
        ------
        ModelError
            See :class:`Model`; also if a column has an infinite bound that is not allowed.
        """
        model = self._assemble()
        if not allow_unbounded:
            bounded = np.isfinite(model.lower) & np.isfinite(model.upper)
            if not bounded.all():
                bad = int(np.argmin(bounded))
                raise ModelError(
                    f"column {model.column_name(bad)}: [{model.lower[bad]}, {model.upper[bad]}] "
                    "is unbounded"
                )
        return model

    def _assemble(self) -> Model:
        shape = (self._rows.count, self._columns.count)
        row = _join([triple[0] for triple in self._triples], np.int64)
        column = _join([triple[1] for triple in self._triples], np.int64)
        value = _join([triple[2] for triple in self._triples], np.float64)
        # converting adds up repeated places
        matrix = coo_matrix((value, (row, column)), shape=shape).tocsr()
        matrix.eliminate_zeros()
        return Model(
            name=self.name,
            lower=_join(self._columns.lower, np.float64),
            upper=_join(self._columns.upper, np.float64),
            integer=_join(self._integer, np.bool_),
            indptr=matrix.indptr.astype(np.int32, copy=False),
            indices=matrix.indices.astype(np.int32, copy=False),
            values=matrix.data,
            row_lower=_join(self._rows.lower, np.float64),
            row_upper=_join(self._rows.upper, np.float64),
            objectives=tuple(self._objective(*parts) for parts in self._objectives),
            column_blocks=tuple(self._columns.blocks),
            row_blocks=tuple(self._rows.blocks),
        )

    def _objective(
        self, name: str, columns: IntArray, values: FloatArray, maximise: bool, offset: float
    ) -> Objective:
        cost = weighted_counts(columns, values, self._columns.count)
        return Objective(name, read_only(cost), maximise, offset)

    def _check_columns(self, where: str, columns: IntArray) -> None:
        _check_range(where, "column", columns, self._columns.count)


def _triples(
    where: str, row: ArrayLike, column: ArrayLike, value: ArrayLike
) -> tuple[IntArray, IntArray, FloatArray]:
    rows, columns = np.asarray(row), np.asarray(column)
    for kind, array in (("row", rows), ("column", columns)):
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise ModelError(f"{where}: {kind} indices must be integers, not {array.dtype}")
    try:
        rows, columns, values = np.broadcast_arrays(rows, columns, floats(value))
    except ValueError as error:
        raise ModelError(f"{where}: row, column and value do not fit: {error}") from None
    return rows.ravel().astype(np.int64), columns.ravel().astype(np.int64), values.ravel()


def _spread(value: ArrayLike, shape: tuple[int, ...], where: str) -> FloatArray:
    try:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), shape).ravel()
    except ValueError:
        found = np.shape(value)
        raise ModelError(f"{where} has shape {found}, which does not fit {shape}") from None


def _check_range(where: str, kind: str, indices: IntArray, count: int) -> None:
    if indices.size and not 0 <= indices.min() <= indices.max() < count:
        bad = int(np.argmax((indices < 0) | (indices >= count)))
        raise ModelError(f"{where}: {kind}[{bad}] = {indices[bad]}: there are {count}")


def _join(parts: list[NDArray[_Kind]], kind: type[_Kind]) -> NDArray[_Kind]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)
