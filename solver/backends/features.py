"""What a model looks like to those who choose back ends and options for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from apportion.solver.models.model import Model

Kind: TypeAlias = Literal["lp", "milp", "whole"]
"""Linear; with integer columns; with nothing but integer columns and whole numbers as data."""

LONG_ROW = 8.0
"""A row with so many times the median row's entries is long: it links, and does not pick."""

FEW_ROWS = 0.1
"""Largest part of the rows that may be long for a model to count as placement."""


@dataclass(frozen=True, eq=False)
class Features:
    """What the cases look at."""

    model: Model

    @cached_property
    def kind(self) -> Kind:
        """Class of the model."""
        if self.model.is_lp:
            return "lp"
        return "whole" if self.model.integer.all() and _whole_data(self.model) else "milp"

    @property
    def nonzeros(self) -> int:
        """Entries of the matrix."""
        return self.model.values.size

    @cached_property
    def placement(self) -> bool:
        """Whether no column is in two rows, a few long rows aside."""
        lengths = np.diff(self.model.indptr)
        if not lengths.size:
            return False
        long_row = lengths > LONG_ROW * max(1.0, float(np.median(lengths)))
        if not long_row.any() or long_row.sum() > FEW_ROWS * lengths.size:
            return False
        short = self.model.indices[~long_row[self.model.row_of_entry]]
        return int(np.bincount(short).max(initial=0)) <= 1


def _whole_data(model: Model) -> bool:
    sides = (side[np.isfinite(side)] for side in (model.row_lower, model.row_upper))
    arrays = (model.values, *(objective.cost for objective in model.objectives), *sides)
    return all(bool((array == np.rint(array)).all()) for array in arrays)
