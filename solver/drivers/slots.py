"""What changed between two models of a family, and which places in them are the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from apportion.solver.arrays import IntArray
from apportion.solver.errors import ModelError
from apportion.solver.models.model import Model

NEW = -1
"""In place of the old index of a column or row that was not there."""


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """What columns and rows stand for, from model to model: a key for each, none twice."""

    columns: Sequence[Hashable]
    rows: Sequence[Hashable]

    def require_fit(self, model: Model) -> None:
        """Refuse keys that are not one for each column and row.

        Raises
        ------
        ModelError
            If there are too few, too many, or one twice.
        """
        for kind, keys, count in (
            ("column", self.columns, model.column_count),
            ("row", self.rows, model.row_count),
        ):
            if len(keys) != count:
                raise ModelError(f"{len(keys)} {kind} keys for {count} {kind}s")
            if len(set(keys)) != count:
                raise ModelError(f"{kind} keys: one is there twice")


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Where a model differs from one with the same entries.

    Attributes
    ----------
    costs, bounds, sides, entries
        Columns of another cost; columns of other bounds; rows of other sides; entries of the
        matrix with another coefficient. All ascending.
    share
        Part of the columns, or of the rows where that is more, that anything changed in.
    """

    costs: IntArray
    bounds: IntArray
    sides: IntArray
    entries: IntArray
    share: float


def changes(old: Model, new: Model) -> Changes | None:
    """Compare two LPs with one objective; ``None`` where their entries lie in other places."""
    if not _same_places(old, new):
        return None
    before, after = old.objectives[0], new.objectives[0]
    costs = np.flatnonzero(before.sign * before.cost != after.sign * after.cost)
    bounds = np.flatnonzero((old.lower != new.lower) | (old.upper != new.upper))
    sides = np.flatnonzero((old.row_lower != new.row_lower) | (old.row_upper != new.row_upper))
    entries = np.flatnonzero(old.values != new.values)
    touched = np.zeros(new.column_count, dtype=np.bool_)
    touched[costs] = touched[bounds] = touched[new.indices[entries]] = True
    share = max(_part(int(touched.sum()), touched.size), _part(sides.size, new.row_count))
    return Changes(costs, bounds, sides, entries, share)


def old_places(old: Sequence[Hashable], new: Sequence[Hashable]) -> IntArray:
    """For each new key its index among the old ones, or :data:`NEW`."""
    place = {key: index for index, key in enumerate(old)}
    return np.array([place.get(key, NEW) for key in new], dtype=np.int64)


def _same_places(old: Model, new: Model) -> bool:
    return (
        old.column_count == new.column_count
        and np.array_equal(old.indptr, new.indptr)
        and np.array_equal(old.indices, new.indices)
    )


def _part(some: int, of: int) -> float:
    return some / of if of else 0.0
