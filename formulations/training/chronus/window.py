"""A quick proof that a job cannot be promised: the leases up to a little after its deadline alone.

Whatever lies later is taken to have room for everybody. What jobs must then still do in the first
leases is a model of some hundred variables, where that of all leases has tens of thousands; it
knows what forced work does not: that gangs of different sizes need not fill a lease.
"""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Ints
from apportion.solver import Budget, Model, ModelBuilder, Solver, Status

MOST_VARIABLES = 1_500
"""Variables of a window's model: such ones take 10 to 30 ms."""

LEAST_LEASES = 8
"""Leases of a window at least: what jobs cannot put off goes on a little after the deadline."""


def refuted_by_window(
    gang: Ints, need: Ints, due: Ints, count: Ints, capacity: Ints, last: int,
    solver: Solver, budget: Budget,
) -> bool:  # fmt: skip
    """Whether the first leases prove that not all of these jobs can be done.

    Parameters
    ----------
    gang, need, due, count
        Of each column of equal jobs, shape (columns,).
    capacity
        GPUs of each lease, shape (T,).
    last
        Leases before the deadline that is in question.
    solver, budget
        With what, and until when.
    """
    for leases in dict.fromkeys((max(LEAST_LEASES, 2 * last), last + 2, last)):
        if not 1 <= leases <= capacity.size:
            continue
        inside = np.maximum(need - np.maximum(due - leases, 0), 0)
        rows = np.flatnonzero((inside > 0) & (count > 0))
        kinds, of_row = np.unique(
            np.stack((gang[rows], inside[rows], np.minimum(due[rows], leases))), axis=1,
            return_inverse=True,
        )  # fmt: skip
        if int(kinds[2].sum()) > MOST_VARIABLES:
            continue
        number = np.zeros(kinds.shape[1], dtype=np.int64)
        np.add.at(number, of_row.ravel(), count[rows])
        model = window_model(kinds, number, capacity[:leases])
        return solver.solve(model, budget=budget).status is Status.INFEASIBLE
    return False


def window_model(kinds: Ints, number: Ints, capacity: Ints) -> Model:
    """Build ``x[kind,t]``, the jobs of a kind that run in lease t of a window.

    Parameters
    ----------
    kinds
        Gang, leases that must lie inside, and first lease that is too late, shape (3, kinds).
    number
        Jobs of each kind, shape (kinds,).
    capacity
        GPUs of each lease of the window, shape (leases,).
    """
    gang, need, due = kinds
    kind = np.repeat(np.arange(number.size), due)
    lease: Ints = np.arange(kind.size) - np.repeat(np.cumsum(due) - due, due)
    builder = ModelBuilder("window")
    x = builder.columns("x", kind.size, upper=number[kind], integer=True)
    builder.rows("need", number.size, row=kind, column=x, value=1.0, lower=need * number,
                 upper=need * number)  # fmt: skip
    builder.rows("capacity", capacity.size, row=lease, column=x, value=gang[kind], upper=capacity)
    builder.objective("none", column=x, value=0.0)
    return builder.build()
