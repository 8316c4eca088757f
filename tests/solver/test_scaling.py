from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.solver import Solver, Status, UnsupportedModelError
from apportion.solver.models.scaling import whole_model

pytestmark = pytest.mark.quick


def test_each_row_is_scaled_by_its_own_power_of_ten(dense_model):
    model = dense_model(
        rows=[[1, 2], [0.25, 1.5], [0.1, 0]],
        row_upper=[7, 2.5, 0.3],
        integer=True,
        cost=[0.001, 12.5],
    )
    whole = whole_model(model)
    assert whole.values.tolist() == [1, 2, 25, 150, 1]
    assert whole.row_upper == [7, 250, 3]
    assert whole.cost.tolist() == [1, 12500]
    assert whole.cost_factor == 1000.0


def test_sides_between_whole_numbers_are_rounded_inwards(dense_model):
    model = dense_model(
        rows=[[1, 1], [2, 2]],
        row_lower=[0.5, -1 / 3],
        row_upper=[2.5, 10 / 3],
        lower=[-0.5, 0],
        upper=[3.7, 2],
        integer=True,
        cost=[1, 1],
    )
    whole = whole_model(model)
    assert (whole.row_lower, whole.row_upper) == ([1, 0], [2, 3])
    assert whole.lower.tolist() == [0, 0]
    assert whole.upper.tolist() == [3, 2]


def test_sides_out_of_reach_stay_out_of_reach(dense_model):
    model = dense_model(
        rows=[[1, 1]] * 3,
        row_lower=[-np.inf, 1e19, -1e19],
        row_upper=[np.inf, np.inf, -1e18],
        integer=True,
        cost=[1, 1],
    )
    whole = whole_model(model)
    assert whole.row_lower[0] < -20 < 20 < whole.row_upper[0]
    assert whole.row_lower[1] > 20
    assert whole.row_upper[2] < -20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [[1, 1 / 3]]}, r"row r, column x\[1\]: coefficient 0.3333333333333333"),
        ({"rows": [[1, 0.1 + 0.2]]}, r"row r, column x\[1\]: coefficient 0.30000000000000004"),
        ({"cost": [np.pi, 1.0]}, r"objective first, column x\[0\]: coefficient 3.14159"),
        ({"integer": [True, False]}, r"column x\[1\] is continuous"),
        ({"upper": [1.0, np.inf]}, r"column x\[1\].*too wide"),
        ({"rows": [[1e14, 1]], "upper": 1e6}, "row r overflows"),
        ({"cost": [1e14, 1.0], "upper": 1e6}, "objective first overflows"),
    ],
)
def test_what_does_not_scale_is_refused_by_name(change, message, dense_model, minute):
    data = {"rows": [[1, 1]], "row_upper": 4, "integer": True, "cost": [1.0, 1.0]} | change
    model = dense_model(**data)
    with pytest.raises(UnsupportedModelError, match=message):
        whole_model(model)
    with pytest.raises(UnsupportedModelError, match=message):
        Solver(backend="cpsat").solve(model, budget=minute)


def test_values_and_bounds_come_back_in_the_models_own_unit(dense_model, minute):
    model = dense_model(
        rows=[[0.7, 0.3]], row_upper=2.6, integer=True, cost=[0.05, 0.02], maximise=True, offset=1.5
    )
    found = Solver(backend="cpsat", gap=0.0).solve(model, budget=minute)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(1.68, abs=1e-12)
    assert found.bound == pytest.approx(1.68, abs=1e-12)


def test_no_whole_number_between_two_sides_is_infeasible(dense_model, minute):
    model = dense_model(rows=[[1, 1]], row_lower=2.2, row_upper=2.8, integer=True, cost=[1, 1])
    assert Solver(backend="cpsat").solve(model, budget=minute).status is Status.INFEASIBLE
    crossed = replace(model, lower=np.array([0.2, 0.0]), upper=np.array([0.8, 1.0]))
    assert Solver(backend="cpsat").solve(crossed, budget=minute).status is Status.INFEASIBLE
