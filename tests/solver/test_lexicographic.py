from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.solver import Budget, Solver, Status
from apportion.solver.lexicographic import hold

pytestmark = pytest.mark.quick

MILP_BACKENDS = ["highs", "scip", "cbc", "cpsat"]


@pytest.mark.parametrize("backend", MILP_BACKENDS)
def test_the_second_objective_never_costs_the_first(backend, dense_model, minute):
    # most units first: x0 + x1 + x2 = 4; of the points that do, [1, 3, 0] is the cheapest
    model = dense_model(
        rows=[[1, 1, 1]],
        row_upper=4,
        upper=3,
        integer=True,
        cost=[1, 1, 1],
        maximise=True,
        more=(([2, 1, 5], False),),
    )
    found = Solver(backend=backend, gap=0.0).solve(model, budget=minute)
    assert found.status is Status.OPTIMAL
    assert found.objectives == (4.0, 5.0)
    assert found.bounds == (4.0, 5.0)
    assert found.x.tolist() == [1.0, 3.0, 0.0]


@pytest.mark.parametrize("backend", ["glop", "highs", "highs-ipm", "scip", "cbc"])
def test_three_objectives_of_an_lp(backend, dense_model, minute):
    # x0 + x1 as large as possible (6), then x2 as small (2 - because x2 >= 2), then x0 as large
    model = dense_model(
        rows=[[1, 1, 0], [1, 0, -2]],
        row_upper=[6, 0],
        lower=[0, 0, 2],
        cost=[1, 1, 0],
        maximise=True,
        more=(([0, 0, 1], False), ([1, 0, 0], True)),
    )
    found = Solver(backend=backend).solve(model, budget=minute)
    assert found.status is Status.OPTIMAL
    np.testing.assert_allclose(found.objectives, [6, 2, 4], atol=1e-6)
    np.testing.assert_allclose(found.x, [4, 2, 2], atol=1e-6)
    if found.duals is not None:
        assert found.duals.shape == (2,)


def test_a_full_block_is_held_by_equalities(choice_model):
    model = choice_model(40, 2)
    full = Solver(gap=0.0).solve(model.single(0), budget=Budget.of(20.0))
    capacity = model.row_blocks[1]
    assert full.objective == model.row_upper[capacity.start :].sum()
    held = hold(model, 0, full.x, -full.objective)
    assert held.row_count == model.row_count
    assert held.row_lower[capacity.start :].tolist() == held.row_upper[capacity.start :].tolist()
    assert np.isneginf(held.row_lower[: capacity.start]).all()


def test_a_floor_is_held_by_equalities_too(dense_model):
    model = dense_model(rows=[[1, 0], [0, 2]], row_lower=[3, 4], cost=[1, 2], integer=True)
    held = hold(model, 0, np.array([3.0, 2.0]), 7.0)
    assert held.row_upper.tolist() == [3.0, 4.0]


def test_a_proved_whole_number_is_held_exactly_and_an_unproved_one_from_one_side(dense_model):
    model = dense_model(rows=[[1, 1]], row_upper=9.5, cost=[2, 3], maximise=True, integer=True)
    x = np.array([0.0, 9.0])
    proved = hold(model, 0, x, -27.0)
    assert (proved.row_lower[-1], proved.row_upper[-1]) == (-27.0, -27.0)
    open_ended = hold(model, 0, x, -28.0)
    assert (open_ended.row_lower[-1], open_ended.row_upper[-1]) == (-np.inf, -27.0)
    assert hold(model, 0, x, None).row_lower[-1] == -np.inf


def test_a_value_in_fractions_is_held_with_a_hair_of_slack(dense_model):
    model = dense_model(rows=[[1, 1]], row_upper=9.5, cost=[0.3, 0.7])
    held = hold(model, 0, np.array([1.0, 1.0]), 1.0)
    assert 1.0 < held.row_upper[-1] < 1.0 + 1e-8


@pytest.mark.parametrize("backend", MILP_BACKENDS)
def test_back_ends_agree_on_a_round_of_choices(backend, choice_model, minute):
    model = choice_model(30, 3, seed=4, whole=True)
    reference = Solver(backend="highs", gap=0.0).solve(model, budget=minute)
    found = Solver(backend=backend, gap=0.0).solve(model, budget=minute)
    assert found.status is reference.status is Status.OPTIMAL
    assert found.objectives == reference.objectives


def test_running_out_of_time_keeps_the_first_objective(hard_model):
    model = hard_model(150, 40)
    anything = model.with_cost(np.zeros(model.column_count)).objectives[0]
    both = replace(model, objectives=(anything, model.objectives[0]))
    found = Solver(gap=0.0).solve(both, budget=Budget.of(0.3))
    assert found.status is Status.FEASIBLE
    assert found.time_limited
    assert found.objectives[0] == found.bounds[0] == 0.0
    assert len(found.objectives) == len(found.bounds) == 2
