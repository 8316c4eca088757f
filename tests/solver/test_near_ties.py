"""Plans that differ by less than a code's absolute tolerance are told apart all the same."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import Budget, ModelBuilder, Solver, Status
from apportion.solver.stage import cost_unit

pytestmark = pytest.mark.quick


def pick(cost, weight, capacity, least=None):
    """Take items of least cost within a capacity, of at least some weight."""
    b = ModelBuilder("pick")
    x = b.columns("x", len(cost), integer=True)
    b.rows("one", 1, row=0, column=x, value=weight, upper=capacity, lower=least or -np.inf)
    b.objective("cost", column=x, value=cost)
    return b.build()


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc"])
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-9, 1e6])
def test_the_cheaper_of_two_near_ties_wins(backend, size):
    # three gangs of 2 on 2 GPUs whose costs differ by parts in 1e8
    cost = np.array([2.00000006, 2.00000004, 2.00000012]) * size
    model = pick(cost, [2.0, 2.0, 2.0], 2.0, 2.0)
    found = Solver(gap=0.0, backend=backend).solve(model, budget=Budget.of(30.0))
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(2.00000004 * size, rel=1e-12)
    assert found.bound <= found.objective * (1 + 1e-12)


def test_whole_numbers_keep_their_unit():
    assert cost_unit(pick([1.0, 5.0], [1.0, 1.0], 1.0)) == 1.0
    assert cost_unit(pick([0.0, 0.0], [1.0, 1.0], 1.0)) == 1.0
    unit = cost_unit(pick([0.5, 0.25], [1.0, 1.0], 1.0))
    assert np.log2(unit) == 20.0
    assert cost_unit(pick([3e12, 1.5], [1.0, 1.0], 1.0)) < 1.0
