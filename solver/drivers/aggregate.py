"""Identical rows found fast, so that cost grows with distinct jobs and not with jobs.

Rows with equal data may share one variable in an LP: the mean of their parts is feasible because
the constraints are linear, and no worse. Whole numbers cannot be averaged; there the variable must
count how many rows of a class do something.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.solver.arrays import FloatArray, IntArray, weighted_counts
from apportion.solver.errors import ModelError

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without pattern (2^64 divided by the golden ratio): spreads bits upwards."""

_HALF = np.uint64(32)
"""The upper half is folded down, since short decimals and whole numbers differ only there."""


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Rows grouped by equal content.

    Parameters
    ----------
    first
        One row of each class, rising, shape (classes,).
    of_row
        Class of each row, shape (rows,).
    count
        Rows in each class, shape (classes,).
    """

    first: IntArray
    of_row: IntArray
    count: IntArray

    def members(self) -> list[IntArray]:
        """Rows of each class, rising."""
        order = np.argsort(self.of_row, kind="stable")
        return np.split(order, np.cumsum(self.count)[:-1])

    def spread(self, values: FloatArray) -> FloatArray:
        """Give every row the value of its class, shape (classes, ...) to (rows, ...)."""
        return np.take(values, self.of_row, axis=0)

    def total(self, values: FloatArray) -> FloatArray:
        """Sum the values of the rows of each class, shape (rows,) to (classes,)."""
        return weighted_counts(self.of_row, values, self.first.size)


def identical_rows(*tables: ArrayLike) -> Classes:
    """Group rows that are equal to the last bit in every table; 0.0 and -0.0 count as equal.

    Rows are told apart by a hash, and every row is then compared with the first one of its class.
    A million rows of six numbers take about 0.1 CPU seconds, a sixth of sorting them.

    Parameters
    ----------
    tables
        Each of shape (rows, columns) or (rows,).

    Raises
    ------
    ModelError
        If there is no table, or the tables have different numbers of rows.
    """
    parts = [_bits(table) for table in tables]
    if len({part.shape[0] for part in parts}) != 1:
        raise ModelError(f"identical_rows: shapes {[part.shape for part in parts]} do not fit")
    found = _by_code(_codes(_hashes(parts)))
    if all(_equal_in_class(part, found) for part in parts):
        return found
    return _by_sorting(parts)


def _bits(table: ArrayLike) -> NDArray[np.uint64]:
    numbers = np.asarray(table, dtype=np.float64)
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    # adding zero turns -0.0 into 0.0, so that equal numbers are equal bits
    return np.ascontiguousarray(numbers + 0.0).view(np.uint64)


def _hashes(parts: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    mixed = np.zeros(parts[0].shape[0], dtype=np.uint64)
    for part in parts:
        for column in part.T:
            mixed ^= column
            mixed *= _MULTIPLIER
            mixed ^= mixed >> _HALF
    return mixed


def _codes(hashes: NDArray[np.uint64]) -> IntArray:
    """Number the different hashes by their first appearance."""
    # the import takes longer than most models do
    from pandas import factorize

    return np.asarray(factorize(hashes)[0], dtype=np.int64)


def _by_code(codes: IntArray) -> Classes:
    count = np.bincount(codes)
    first = np.empty(count.size, dtype=np.int64)
    # of several values for one place the last one stays: backwards, that is the first row
    first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    return Classes(first, codes, count.astype(np.int64))


def _equal_in_class(part: NDArray[np.uint64], classes: Classes) -> bool:
    expected = np.take(part[classes.first], classes.of_row, axis=0)
    return bool(np.array_equal(part, expected))


def _by_sorting(parts: list[NDArray[np.uint64]]) -> Classes:
    """Group without hashes, for the case that two different rows have the same one."""
    _, first, of_row = np.unique(np.hstack(parts), axis=0, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return _by_code(rank[of_row.ravel()])
