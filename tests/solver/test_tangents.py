from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import (
    Budget,
    Concave,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    maximise_concave,
)
from apportion.solver.backends.held_lp import HeldLP

pytestmark = pytest.mark.quick

SEEDS = [pytest.param(seed, marks=[] if seed < 20 else pytest.mark.slow) for seed in range(100)]


def minute() -> Budget:
    return Budget.of(60.0)


def splitting(count, total, *, upper=10.0, lower=0.01, linear=0.0):
    builder = ModelBuilder("splitting")
    x = builder.columns("x", count, lower=lower, upper=upper)
    builder.rows("total", 1, row=0, column=x, value=1.0, upper=total)
    builder.objective("linear", column=x, value=linear, maximise=True, offset=2.0)
    return builder.build()


def logs(weight) -> Concave:
    return Concave(np.arange(weight.size), lambda x: weight * np.log(x), lambda x: weight / x)


def test_logs_split_in_proportion_to_their_weights():
    weight = np.array([1.0, 2.0, 5.0])
    found = maximise_concave(splitting(3, 4.0), logs(weight), budget=minute(), gap=1e-9)
    assert found.proved
    np.testing.assert_allclose(found.x, [0.5, 1.0, 2.5], atol=1e-3)
    assert found.value == pytest.approx(2.0 + weight @ np.log([0.5, 1.0, 2.5]), rel=1e-8)
    assert found.bound == pytest.approx(found.value, rel=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_roots_against_water_poured_by_hand(seed):
    # sum w sqrt(x) + c x, sum x <= total, x <= upper: x = (w / (2 (price - c)))^2, price by halving
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    weight, upper = rng.uniform(0.5, 3.0, count), rng.uniform(0.5, 3.0, count)
    total, linear = float(rng.uniform(0.3, 1.2) * upper.sum()), 0.25
    below, above = linear, 1e3
    for _ in range(200):
        price = 0.5 * (below + above)
        x = np.clip((weight / (2.0 * max(price - linear, 1e-12))) ** 2, 1e-4, upper)
        below, above = (price, above) if x.sum() > total else (below, price)
    best = 2.0 + weight @ np.sqrt(x) + linear * x.sum()
    roots = Concave(
        np.arange(count), lambda x: weight * np.sqrt(x), lambda x: weight / (2.0 * np.sqrt(x))
    )
    model = splitting(count, total, upper=upper, lower=1e-4, linear=linear)
    found = maximise_concave(model, roots, budget=minute())
    assert found.proved
    assert found.value <= best * (1.0 + 1e-9)
    assert found.bound >= best * (1.0 - 1e-9)
    assert found.bound - found.value <= 1.1e-6 * found.bound


def test_gains_that_fall_again_and_kinks():
    # the best is inside, without the row: min(x, 2 - x) at 1, and -(x - 3)^2 at 3
    def gain(x):
        return np.array([min(x[0], 2.0 - x[0]), -((x[1] - 3.0) ** 2)])

    def slope(x):
        return np.array([1.0 if x[0] < 1.0 else -1.0, -2.0 * (x[1] - 3.0)])

    found = maximise_concave(splitting(2, 9.0), Concave(np.arange(2), gain, slope), budget=minute())
    assert found.value == pytest.approx(3.0, rel=1e-6)


def test_at_the_end_of_the_budget_the_best_so_far_is_given(monkeypatch):
    solve, calls = HeldLP.solve, []

    def once(self, budget):
        calls.append(1)
        return solve(self, budget if len(calls) <= 2 else Budget(0.0))

    monkeypatch.setattr(HeldLP, "solve", once)
    found = maximise_concave(
        splitting(3, 4.0), logs(np.array([1.0, 2.0, 5.0])), budget=minute(), gap=1e-12
    )
    assert (found.proved, found.rounds) == (False, 2)
    best = 2.0 + np.log(0.5) + 5.0 * np.log(2.5)
    assert found.value <= best <= found.bound


def test_what_makes_no_sense_is_refused():
    squares = Concave(np.arange(1), lambda x: x * x, lambda x: 2.0 * x)
    with pytest.raises(ModelError, match="not concave"):
        maximise_concave(splitting(1, 4.0), squares, budget=minute())
    with pytest.raises(ModelError, match=r"gain\[0\] = -inf"), np.errstate(divide="ignore"):
        maximise_concave(splitting(1, 4.0, lower=0.0), logs(np.ones(1)), budget=minute())
    with pytest.raises(NoSolutionError, match="no point"):
        maximise_concave(splitting(2, 1.0, lower=1.0), logs(np.ones(2)), budget=minute())
    with pytest.raises(NoSolutionError, match="budget"):
        maximise_concave(splitting(2, 1.0), logs(np.ones(2)), budget=Budget(0.0))
