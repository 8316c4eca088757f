"""Models whose rows may be broken at a price: what is impossible, and what it takes to mend it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import coo_matrix, hstack

from apportion.solver.arrays import FloatArray, IntArray, read_only
from apportion.solver.backends.backend import Backend
from apportion.solver.backends.registry import backend
from apportion.solver.budget import Budget
from apportion.solver.models.blocks import Block
from apportion.solver.models.model import Model, Objective
from apportion.solver.proof.duality import dual_bound
from apportion.solver.solve import Solver
from apportion.solver.tolerances import PRIMAL


def elastic(model: Model, weights: FloatArray) -> tuple[Model, IntArray, FloatArray]:
    """Give every side of a row a column that says by how much it is broken.

    Parameters
    ----------
    model
        The model; its objectives are left out.
    weights
        Price of breaking each row by one unit, shape (rows,); infinite where it may not be broken.

    Returns
    -------
    A model that minimises what is paid, with the new columns behind the old ones; the row that each
    new column belongs to; and its effect on the row, 1 where it breaks a lower side, else -1.
    """
    soft = np.isfinite(weights)
    below = np.flatnonzero(soft & np.isfinite(model.row_lower))
    above = np.flatnonzero(soft & np.isfinite(model.row_upper))
    row = np.concatenate((below, above)).astype(np.int64)
    effect = np.concatenate((np.ones(below.size), -np.ones(above.size)))
    entries = (effect, (row, np.arange(row.size)))
    matrix = hstack(
        (model.matrix, coo_matrix(entries, shape=(model.row_count, row.size))), format="csr"
    )
    cost = np.concatenate((np.zeros(model.column_count), weights[row]))
    wider = replace(
        model,
        lower=np.append(model.lower, np.zeros(row.size)),
        upper=np.append(model.upper, np.full(row.size, np.inf)),
        integer=np.append(model.integer, np.zeros(row.size, dtype=np.bool_)),
        indptr=matrix.indptr.astype(np.int32),
        indices=matrix.indices.astype(np.int32),
        values=matrix.data,
        objectives=(Objective("paid", read_only(cost)),),
        column_blocks=(*model.column_blocks, Block("broken", model.column_count, (row.size,))),
    )
    return wider, row, effect


def infeasibility_duals(model: Model, solver: Solver, budget: Budget) -> FloatArray | None:
    """Row duals that prove, by our own product, that no point exists even in fractions.

    With them the bound of a zero objective is positive, which no point could have.

    Parameters
    ----------
    model
        The model; whole numbers are not asked for.
    solver
        Used if its back end gives duals.
    budget
        Deadline.

    Returns
    -------
    The duals, shape (rows,), or ``None`` where none were found.
    """
    if model.column_count == 0 or budget.expired():
        return None
    relaxed, _, _ = elastic(model.relaxed(), np.ones(model.row_count))
    found = with_duals(solver).solve(relaxed, budget=budget)
    if found.duals is None:
        return None
    noise = PRIMAL * float(np.abs(found.duals).max(initial=0.0))
    duals = np.where(np.abs(found.duals) > noise, found.duals, 0.0)
    bound = dual_bound(model.with_cost(np.zeros(model.column_count)), duals)
    return duals if bound is not None and bound > PRIMAL else None


def with_duals(solver: Solver) -> Solver:
    """Give the same solver, or one that chooses by itself where the back end has no duals."""
    if solver.backend == "auto":
        return solver
    chosen: Backend = backend(solver.backend)
    return solver if chosen.capabilities.duals else replace(solver, backend="auto")
