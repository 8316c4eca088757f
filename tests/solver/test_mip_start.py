"""HiGHS 1.16 cuts the optimum off when it is given a MIP start: we never give it one."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import Budget, ModelBuilder, Solver, Status

pytestmark = pytest.mark.quick


def two_objectives(seed: int):
    """Place as many GPUs as possible, then at least cost: the first point starts the second."""
    rng = np.random.default_rng(seed)
    n, k = 10, 4
    gang = rng.choice([1, 1, 2, 4], n)
    cost = rng.uniform(3.0, 30.0, (n, k)).round(2)
    job, kind = np.nonzero(rng.random((n, k)) < 0.6)
    b = ModelBuilder("two")
    x = b.columns("x", job.size, integer=True)
    b.rows("one", n, row=job, column=x, value=1.0, upper=1.0)
    free = rng.integers(1, 5, k)
    b.rows("capacity", k, row=kind, column=x, value=gang[job], upper=free)
    b.objective("placed", column=x, value=gang[job], maximise=True)
    b.objective("cost", column=x, value=cost[job, kind])
    return b.build()


# with a start HiGHS 1.16.0 calls 90.86, 44.78 and 141.19 optimal on the first three
@pytest.mark.parametrize("seed", [7, 13, 19, *range(100, 115)])
def test_highs_agrees_with_scip_on_a_second_objective(seed):
    model = two_objectives(seed)
    expected = Solver(gap=0.0, backend="scip").solve(model, budget=Budget.of(30.0))
    found = Solver(gap=0.0, backend="highs").solve(model, budget=Budget.of(30.0))
    assert found.status is expected.status is Status.OPTIMAL
    assert found.objectives == pytest.approx(expected.objectives, rel=1e-9)


def test_a_bad_start_changes_nothing_on_highs():
    model = two_objectives(13)
    first = Solver(gap=0.0, backend="scip").solve(model.single(0), budget=Budget.of(30.0)).x
    held = model.single(1).with_row("held", model.objectives[0].cost, 4.0, 4.0)
    found = Solver(gap=0.0, backend="highs").solve(held, budget=Budget.of(30.0), warm_start=first)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(64.48)
    assert found.bound == pytest.approx(64.48)
