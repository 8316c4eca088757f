"""A battery of tiny models with answers computed by hand, on every back end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.solver import BACKENDS, Budget, Solver, Status, UnsupportedModelError

pytestmark = pytest.mark.quick

INF = np.inf

# data of the model, optimum, unique point or None, unique duals or None
BATTERY = {
    "max_two": (
        {"rows": [[1, 1]], "row_upper": 15, "cost": [1, 2], "maximise": True},
        *(25.0, [5, 10], [1.0]),
    ),
    "max_two_as_min": (
        {"rows": [[1, 1]], "row_upper": 15, "cost": [-1, -2], "offset": 3.0},
        *(-22.0, [5, 10], [-1.0]),
    ),
    "cover": (
        {"rows": [[1, 2], [3, 1]], "row_lower": [4, 6], "cost": [1, 1]},
        *(2.8, [1.6, 1.2], [0.4, 0.2]),
    ),
    "equality": (
        {"rows": [[1, 1, 0], [0, 1, 1]], "row_lower": [4, 5], "row_upper": [4, 5], "cost": [1, 3, 1]},
        *(9.0, [4, 0, 5], [1.0, 1.0]),
    ),
    "range_upper_side": (
        {"rows": [[1, 1]], "row_lower": 2, "row_upper": 6, "cost": [1, 2], "maximise": True},
        *(12.0, [0, 6], [2.0]),
    ),
    "range_lower_side": (
        {"rows": [[1, 1]], "row_lower": 2, "row_upper": 6, "cost": [1, 2]},
        *(2.0, [2, 0], [1.0]),
    ),
    "negative_bounds": (
        {"rows": [[1, -1]], "row_upper": 1, "lower": -5, "upper": -1, "cost": [1, 1]},
        *(-10.0, [-5, -5], [0.0]),
    ),
    "fixed_column": (
        {"rows": [[1, 1]], "row_upper": 9, "lower": [4, 0], "upper": [4, 10], "cost": [-1, -1]},
        *(-9.0, [4, 5], [-1.0]),
    ),
    "no_rows": ({"cost": [2, -3], "upper": 4}, -12.0, [0, 4], []),
    "free_row": (
        {"rows": [[1, 1], [1, 0]], "row_upper": [INF, 3], "cost": [1, 0], "maximise": True},
        *(3.0, None, [0.0, 1.0]),
    ),
    "zero_objective": (
        {"rows": [[1, 1]], "row_lower": 3, "cost": [0, 0], "offset": 7.0},
        *(7.0, None, None),
    ),
    "small_numbers": (
        {"rows": [[1e-3, 1e-3]], "row_lower": 4e-3, "cost": [2e-4, 3e-4]},
        *(8e-4, [4, 0], [0.2]),
    ),
    "knapsack": (
        {
            "rows": [[2, 3, 4]],
            "row_upper": 5,
            "upper": 1,
            "integer": True,
            "cost": [3, 4, 5],
            "maximise": True,
        },
        *(7.0, [1, 1, 0], None),
    ),
    "decimals": (
        {
            "rows": [[0.2, 0.3, 0.45]],
            "row_upper": 0.5,
            "upper": 1,
            "integer": True,
            "cost": [0.3, 0.4, 0.75],
            "maximise": True,
        },
        *(0.75, [0, 0, 1], None),
    ),
    "general_integers": (
        {"rows": [[7, 3]], "row_upper": 26, "integer": True, "cost": [5, 2], "maximise": True},
        *(18.0, [2, 4], None),
    ),
    "negative_integers": (
        {"rows": [[2, 2]], "row_lower": -7, "lower": -9, "integer": True, "cost": [1, 1]},
        *(-3.0, None, None),
    ),
    "mixed": (
        {"rows": [[2, 1]], "row_upper": 7.5, "integer": [True, False], "upper": [5, 1], "cost": [3, 1], "maximise": True},
        *(10.0, [3, 1], None),
    ),
    "integer_equality": (
        {"rows": [[3, 5]], "row_lower": 19, "row_upper": 19, "integer": True, "cost": [1, 1]},
        *(5.0, [3, 2], None),
    ),
    "large_whole_number": (
        {"rows": [[1, 1]], "row_upper": 123456789, "upper": 2e8, "integer": True, "cost": [1, 0], "maximise": True},
        *(123456789.0, [123456789, 0], None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", BATTERY)
def test_the_answer_is_the_one_computed_by_hand(case, backend, dense_model, minute):
    data, optimum, point, duals = BATTERY[case]
    model = dense_model(**data)
    solver = Solver(backend=backend, gap=0.0)
    capabilities = BACKENDS[backend]().capabilities
    if (not capabilities.integers and not model.is_lp) or (
        not capabilities.continuous and not model.integer.all()
    ):
        with pytest.raises(UnsupportedModelError, match=r"x\[0\]|x\[1\]"):
            solver.solve(model, budget=minute)
        return
    found = solver.solve(model, budget=minute)
    assert found.status is Status.OPTIMAL, found
    assert found.objective == pytest.approx(optimum, rel=1e-6)
    assert found.bound == pytest.approx(optimum, rel=1e-6)
    assert found.gap <= 1e-6
    assert not found.time_limited
    if point is not None:
        np.testing.assert_allclose(found.x, point, atol=1e-6 * max(1, np.abs(point).max()))
    if model.is_lp and capabilities.duals and duals is not None:
        np.testing.assert_allclose(found.duals, duals, atol=1e-6)
    assert (found.duals is not None) == (model.is_lp and capabilities.duals)


@pytest.mark.parametrize("backend", [b for b in BACKENDS if BACKENDS[b]().capabilities.duals])
@pytest.mark.parametrize("maximise", [False, True])
def test_a_dual_is_the_change_of_the_objective_per_unit_of_the_side(
    backend, maximise, dense_model, minute
):
    sign = -1.0 if maximise else 1.0
    cost = sign * np.array([3.0, 1.0, -2.0])
    rows, lower = np.array([[1.0, 1, 0], [0, 1, 1], [1, 0, 2]]), np.array([4.0, 3, -INF])
    upper = np.array([INF, INF, 1.5])
    model = dense_model(
        rows=rows, row_lower=lower, row_upper=upper, upper=[3, 3, 3], cost=cost, maximise=maximise
    )
    solver = Solver(backend=backend)
    base = solver.solve(model, budget=minute)
    step = 1e-3
    for row in range(3):
        moved = model.with_row_sides(
            np.where(np.arange(3) == row, lower + step, lower),
            np.where(np.arange(3) == row, upper + step, upper),
        )
        change = solver.solve(moved, budget=minute).objective - base.objective
        assert change / step == pytest.approx(base.duals[row], abs=1e-6)
    np.testing.assert_allclose(base.reduced_costs, cost - rows.T @ base.duals, atol=1e-9)
    raised = replace(model, upper=model.upper + np.array([0, step, 0]))
    change = solver.solve(raised, budget=minute).objective - base.objective
    assert change / step == pytest.approx(base.reduced_costs[1], abs=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_native_output_reaches_neither_stream(backend, dense_model, choice_model, capfd):
    budget = Budget.of(20.0)
    for model in (
        choice_model(12, 3, whole=True),
        dense_model(**BATTERY["cover"][0]),
        dense_model(rows=[[1, 1]], row_lower=30, row_upper=40, cost=[1, 1]),
        dense_model(cost=[-1, -1], upper=INF),
    ):
        try:
            Solver(backend=backend).solve(model, budget=budget)
        except UnsupportedModelError:
            continue
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""
