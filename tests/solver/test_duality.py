from __future__ import annotations

import numpy as np
import pytest

from apportion.solver.proof.duality import dual_bound

pytestmark = pytest.mark.quick


@pytest.fixture
def cover(dense_model):
    """min x0 + x1 with x0 + 2 x1 >= 4 and 3 x0 + x1 >= 6: 2.8 at duals (0.4, 0.2)."""
    return dense_model(rows=[[1, 2], [3, 1]], row_lower=[4, 6], cost=[1, 1])


def test_optimal_duals_prove_the_optimum(cover):
    assert dual_bound(cover, np.array([0.4, 0.2])) == pytest.approx(2.8)


def test_any_duals_prove_a_weaker_bound(cover):
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert dual_bound(cover, rng.normal(size=2)) <= 2.8 + 1e-12


def test_a_multiplier_of_a_missing_side_is_left_out(cover):
    assert dual_bound(cover, np.array([-5.0, 0.2])) == dual_bound(cover, np.array([0.0, 0.2]))


def test_a_maximised_objective_counts_as_its_negative(dense_model):
    model = dense_model(rows=[[1, 1]], row_upper=15, cost=[1, 2], maximise=True, offset=4.0)
    assert dual_bound(model, np.array([-1.0])) == pytest.approx(-25.0)


def test_open_columns_need_reduced_costs_of_the_right_sign(dense_model):
    model = dense_model(rows=[[1, 1]], row_lower=2, upper=np.inf, cost=[1, 1])
    assert dual_bound(model, np.array([1.0])) == pytest.approx(2.0)
    assert dual_bound(model, np.array([1.0 + 1e-9])) == pytest.approx(2.0)
    assert dual_bound(model, np.array([1.5])) is None


@pytest.mark.parametrize("duals", [[np.nan, 0.0], [np.inf, 0.0], [1.0]])
def test_unusable_duals_prove_nothing(duals, cover):
    assert dual_bound(cover, np.array(duals)) is None
