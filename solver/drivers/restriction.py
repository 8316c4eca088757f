"""A model in which most columns keep the values of a known point, written without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, dot
from apportion.solver.models.model import Model, Objective


class Restriction:
    """The model of some columns where all others keep their values.

    Parameters
    ----------
    model
        The whole model.
    incumbent
        Point that passed the re-check, shape (columns,).
    free
        Columns of the part, shape (columns,).
    name
        Name of the part.
    """

    def __init__(self, model: Model, incumbent: FloatArray, free: BoolArray, name: str) -> None:
        self._incumbent, self._places = incumbent, np.flatnonzero(free)
        self.start = incumbent[self._places]
        held = np.where(free, 0.0, incumbent)
        matrix = model.matrix[:, self._places]
        rows = np.flatnonzero(np.diff(matrix.indptr) > 0)
        matrix = matrix[rows]
        matrix.sort_indices()
        activity = np.asarray(matrix.dot(self.start), dtype=np.float64)
        fixed = model.activity(held)[rows]
        objective = model.objectives[0]
        offset = objective.offset + dot(objective.cost, held)
        self.model = replace(
            model,
            name=f"{model.name}: {name}",
            lower=model.lower[self._places],
            upper=model.upper[self._places],
            integer=model.integer[self._places],
            indptr=matrix.indptr.astype(np.int32),
            indices=matrix.indices.astype(np.int32),
            values=np.asarray(matrix.data, dtype=np.float64),
            # what the tolerance granted the incumbent is not taken back here
            row_lower=np.minimum(model.row_lower[rows] - fixed, activity),
            row_upper=np.maximum(model.row_upper[rows] - fixed, activity),
            objectives=(
                Objective(objective.name, objective.cost[self._places], objective.maximise, offset),
            ),
            column_blocks=(),
            row_blocks=(),
        )

    def whole(self, point: FloatArray) -> FloatArray:
        """Give the whole point that a point of the part stands for."""
        whole = self._incumbent.copy()
        whole[self._places] = point
        return whole
