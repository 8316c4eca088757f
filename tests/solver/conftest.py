"""Helpers for the solver tests: small models from dense data, and the back ends that can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from apportion.solver import Budget, Model, ModelBuilder


def dense_model(
    *,
    rows: Any = (),
    row_lower: Any = -np.inf,
    row_upper: Any = np.inf,
    lower: Any = 0.0,
    upper: Any = 10.0,
    integer: Any = False,
    cost: Any,
    maximise: bool = False,
    offset: float = 0.0,
    more: tuple[tuple[Any, bool], ...] = (),
) -> Model:
    """Model from a dense matrix; ``more`` lists further objectives as (cost, maximise)."""
    count = len(cost)
    builder = ModelBuilder("small")
    x = builder.columns("x", count, lower=lower, upper=upper, integer=integer)
    matrix = np.asarray(rows, dtype=float).reshape(-1, count)
    builder.rows(
        "r",
        len(matrix),
        row=np.arange(len(matrix))[:, None],
        column=x[None, :],
        value=matrix,
        lower=row_lower,
        upper=row_upper,
    )
    builder.objective("first", column=x, value=cost, maximise=maximise, offset=offset)
    for position, (values, sense) in enumerate(more):
        builder.objective(f"next{position}", column=x, value=values, maximise=sense)
    return builder.build(allow_unbounded=True)


def choice_model(jobs: int, kinds: int, *, seed: int = 0, whole: bool = False) -> Model:
    """Jobs of 1, 2, 4 or 8 units that pick at most one kind: fill the kinds, then at least cost."""
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 2, 4, 8], jobs)
    cost = rng.integers(1, 1000, (jobs, kinds)) if whole else rng.uniform(0.1, 10, (jobs, kinds))
    builder = ModelBuilder("choice")
    x = builder.columns("x", (jobs, kinds), integer=True)
    one = np.arange(jobs)[:, None]
    builder.rows("one", jobs, row=one, column=x, value=1.0, upper=1.0)
    capacity = max(8, jobs * 2 // kinds)
    kind = np.arange(kinds)[None, :]
    builder.rows("capacity", kinds, row=kind, column=x, value=gang[:, None], upper=capacity)
    builder.objective("busy", column=x, value=gang[:, None], maximise=True)
    builder.objective("cost", column=x, value=cost * gang[:, None])
    return builder.build()


def hard_model(size: int, rows: int, *, seed: int = 0) -> Model:
    """Dense 0/1 problem with the empty point feasible, hard to prove where rows are many."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(100, 1000, (rows, size)).astype(float)
    return dense_model(
        rows=weights,
        row_upper=weights.sum(axis=1) / 3,
        upper=1.0,
        integer=True,
        cost=rng.integers(100, 1000, size).astype(float),
        maximise=True,
    )


@pytest.fixture(name="dense_model")
def _dense_model() -> Callable[..., Model]:
    return dense_model


@pytest.fixture(name="choice_model")
def _choice_model() -> Callable[..., Model]:
    return choice_model


@pytest.fixture(name="hard_model")
def _hard_model() -> Callable[..., Model]:
    return hard_model


@pytest.fixture
def minute() -> Budget:
    return Budget.of(60.0)
