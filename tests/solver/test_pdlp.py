"""PDLP's points overshoot rows: they are moved back, or withheld."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import Budget, Solver, Status, check_point
from apportion.solver.backends.overshoot import repaired

pytestmark = pytest.mark.quick


@pytest.fixture
def shared(dense_model):
    """Two columns of at most 10 in one row of at most 15."""
    return dense_model(rows=[[1, 1]], row_upper=15, cost=[-1, -2])


def test_a_sound_point_is_put_in_its_bounds_only(shared):
    x, note = repaired(shared, np.array([-1e-3, 10.5]))
    assert x.tolist() == [0.0, 10.0]
    assert note == ""


def test_an_overshoot_is_taken_back_along_the_line_to_a_feasible_point(shared):
    x, note = repaired(shared, np.array([5.01, 10.0]))
    assert check_point(shared, x)[0] is not None
    assert x.sum() == pytest.approx(15.0)
    assert x == pytest.approx([5.01 * 15 / 15.01, 10 * 15 / 15.01])
    assert "moved" in note


def test_the_callers_feasible_point_is_preferred(dense_model):
    model = dense_model(rows=[[1, 1]], row_lower=4, row_upper=8, cost=[1, 1])
    far, why = repaired(model, np.array([4.1, 4.0]))
    assert far is None
    assert "no feasible point is known" in why
    x, _ = repaired(model, np.array([4.1, 4.0]), np.array([2.0, 4.0]))
    assert x == pytest.approx([4.0, 4.0], abs=1e-4)


@pytest.mark.parametrize("point", [[9.0, 10.0], [np.nan, 1.0]])
def test_what_is_not_near_is_refused(shared, point):
    x, why = repaired(shared, np.array(point))
    assert x is None
    assert why


def test_an_equality_that_is_missed_is_refused(dense_model):
    model = dense_model(rows=[[1, 1]], row_lower=0, row_upper=0, lower=-5, cost=[1, 2])
    assert repaired(model, np.array([1.0, -0.9]))[0] is None


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_its_answers_are_feasible_and_proved_by_our_own_bound(seed, gap, choice_model):
    model = choice_model(120, 4, seed=seed).relaxed().single(0)
    exact = Solver(backend="glop").solve(model, budget=Budget.of(20.0))
    found = Solver(backend="pdlp", gap=gap).solve(model, budget=Budget.of(20.0))
    assert found.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert check_point(model, found.x)[0] is not None
    assert found.bound >= exact.objective * (1 - 1e-9)
    assert found.objective <= exact.objective * (1 + 1e-6)
    if found.status is Status.OPTIMAL:
        assert found.gap <= max(gap, 1e-6)
