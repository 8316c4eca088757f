"""A model with rows added at its end."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model


def with_more_rows(
    model: Model, matrix: csr_matrix[np.float64], lower: FloatArray, upper: FloatArray
) -> Model:
    """Give a model with more rows, which have no names.

    Parameters
    ----------
    model
        The model.
    matrix
        Coefficients, no place twice, shape (more rows, columns).
    lower, upper
        Sides, shape (more rows,).
    """
    end = model.indptr[-1] + matrix.indptr[1:]
    return Model(
        name=model.name,
        lower=model.lower,
        upper=model.upper,
        integer=model.integer,
        indptr=np.concatenate((model.indptr, end)).astype(np.int32),
        indices=np.concatenate((model.indices, matrix.indices)).astype(np.int32),
        values=np.concatenate((model.values, matrix.data)),
        row_lower=np.concatenate((model.row_lower, lower)),
        row_upper=np.concatenate((model.row_upper, upper)),
        objectives=model.objectives,
        column_blocks=model.column_blocks,
        row_blocks=model.row_blocks,
    )
