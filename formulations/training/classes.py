"""Merging identical rows: cost grows with distinct jobs, not with jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Ints


@dataclass(frozen=True, eq=False)
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

    first: Ints
    of_row: Ints
    count: Ints

    def members(self) -> list[Ints]:
        """Rows of each class, rising."""
        order = np.argsort(self.of_row, kind="stable")
        return np.split(order, np.cumsum(self.count)[:-1])


def identical_rows(table: Floats) -> Classes:
    """Group the rows of a table that are equal to the last bit.

    Parameters
    ----------
    table
        Shape (rows, columns).
    """
    rows = table.shape[0]
    everyone: Ints = np.arange(rows, dtype=np.int64)
    ones = np.ones(rows, dtype=np.int64)
    if rows < 2:
        return Classes(everyone, everyone, ones)
    # adding zero turns -0.0 into 0.0, so that equal numbers are equal bytes
    packed = np.ascontiguousarray(table + 0.0).view(f"V{table.shape[1] * 8}").ravel()
    _, first, of_row, count = np.unique(
        packed, return_index=True, return_inverse=True, return_counts=True
    )
    if first.size == rows:
        return Classes(everyone, everyone, ones)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return Classes(
        first[order].astype(np.int64), rank[of_row].astype(np.int64), count[order].astype(np.int64)
    )
