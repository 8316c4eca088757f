"""Forecasts of shares: by hand, by properties, and the radius by how often it covers."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import CallClasses, CallTrees
from apportion.instances.microservices.forecast import (
    METHODS,
    predict_shares,
    share_errors,
    share_radius,
)
from apportion.instances.microservices.scenario import FORECASTS
from apportion.instances.microservices.share_paths import dirichlet_walk

pytestmark = pytest.mark.quick

START = np.array([0.5, 0.5])
SEEN = np.array([[10.0, 30.0], [0.0, 0.0], [60.0, 20.0]])


def test_by_hand() -> None:
    def told(method: str, **more: Any) -> list[float]:
        return predict_shares(SEEN, START, method, **more).tolist()

    assert told("static") == [0.5, 0.5]
    assert told("last") == [0.75, 0.25]
    assert told("mean") == [0.5, 0.5]
    assert told("mean", window=1) == [0.75, 0.25]
    assert told("ewma", smoothing=0.8) == pytest.approx([0.65, 0.35])
    assert told("ewma", smoothing=1.0) == [0.75, 0.25]
    assert told("dirichlet") == pytest.approx([71 / 122, 51 / 122])
    assert told("dirichlet", prior=0.0) == pytest.approx([70 / 120, 50 / 120])
    assert told("dirichlet", window=1) == pytest.approx([61 / 82, 21 / 82])


def test_every_forecast_of_a_scenario_is_a_method_or_the_truth() -> None:
    assert set(METHODS) == set(FORECASTS) - {"true"}


def test_services_are_forecast_apart() -> None:
    seen = np.array([[1.0, 3.0, 8.0, 2.0], [0.0, 0.0, 5.0, 5.0]])
    start = np.array([0.4, 0.4, 0.9, 0.1])  # 0.2 of the first follow no class
    guess = predict_shares(seen, start, "last", service=[0, 0, 1, 1])
    assert guess == pytest.approx([0.2, 0.6, 0.5, 0.5])
    errors = share_errors(seen, start, "last", service=[0, 0, 1, 1])
    assert errors.tolist() == pytest.approx(np.array([[0.4, 0.2], [-1, 0.6]]))
    radius = share_radius(seen, start, "last", service=[0, 0, 1, 1], services=3)
    assert radius.tolist() == pytest.approx([0.4, 0.6, 0.0])


HISTORY = st.integers(1, 4).flatmap(
    lambda k: st.tuples(
        st.lists(st.lists(st.integers(0, 50), min_size=k, max_size=k), max_size=8),
        st.lists(st.floats(0.01, 1), min_size=k, max_size=k),
    )
)


@settings(max_examples=60, deadline=None)
@given(HISTORY, st.sampled_from(METHODS), st.floats(0.01, 1), st.integers(1, 5))
def test_forecasts_are_shares(
    history: tuple[list[list[int]], list[float]], method: str, smoothing: float, window: int
) -> None:
    rows, weight = history
    start = 0.9 * np.array(weight) / sum(weight)
    counts = np.array(rows, dtype=np.float64).reshape(-1, start.size)
    guess = predict_shares(counts, start, method, smoothing=smoothing, window=window)
    assert guess.sum() == pytest.approx(0.9)
    assert (guess >= 0).all()
    if not counts.sum():
        assert guess == pytest.approx(start)
    order = np.random.default_rng(0).permutation(start.size)
    moved = predict_shares(
        counts[:, order], start[order], method, smoothing=smoothing, window=window
    )
    assert moved == pytest.approx(guess[order])
    # rounds further back than the window do not matter
    seen = counts[counts.sum(axis=1) > 0][-window:]
    again = predict_shares(seen, start, method, smoothing=smoothing, window=window)
    assert again == pytest.approx(guess)
    errors = share_errors(counts, start, method, smoothing=smoothing, window=window)
    assert ((errors == -1) | ((errors >= 0) & (errors <= 1.8 + 1e-9))).all()


def test_constant_shares_are_learned_exactly() -> None:
    counts = np.tile([30.0, 10.0], (40, 1))
    for method in ("last", "mean", "ewma"):
        assert predict_shares(counts, START, method).tolist() == pytest.approx([0.75, 0.25])
        assert share_radius(counts, START, method).tolist() == pytest.approx([0.0])


def walk(rounds: int, seed: int) -> np.ndarray:
    trees = CallTrees.serial(np.ones((1, 3)))
    classes = CallClasses.of(["x", "y", "z"], trees, share=[0.6, 0.3, 0.1])
    share = dirichlet_walk(classes.share, classes, rounds, seed, concentration=400.0)
    random = np.random.default_rng(seed)
    return np.array([random.multinomial(2000, row / row.sum()) for row in share], dtype=float)


@pytest.mark.parametrize("method", ["last", "mean", "ewma", "dirichlet"])
def test_the_radius_covers_the_next_round(method: str) -> None:
    start = np.array([0.6, 0.3, 0.1])
    covered: list[bool] = []
    for seed in range(4):
        counts = walk(160, seed)
        errors = share_errors(counts, start, method)[:, 0]
        for t in range(60, 160, 2):
            radius = share_radius(counts[:t], start, method, window=20)[0]
            covered.append(bool(errors[t] <= radius))
    # the largest of 20 recent errors covers 20 of 21 rounds, were they exchangeable
    assert np.mean(covered) >= 0.9


def test_following_a_walk_beats_standing_still() -> None:
    start = np.array([0.6, 0.3, 0.1])
    counts = walk(300, 7)
    held_out = {
        method: float(share_errors(counts, start, method, rounds=200).mean())
        for method in ("static", "last", "ewma")
    }
    assert held_out["ewma"] < held_out["static"]
    assert held_out["last"] < held_out["static"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"method": "lats"}, "did you mean 'last'"),
    ({"window": 0}, "window = 0"),
    ({"smoothing": 0.0}, "smoothing = 0"),
    ({"prior": -1.0}, "prior = -1"),
    ({"service": [0, -1]}, "does not exist"),
]


@pytest.mark.parametrize(("given_", "said"), BAD, ids=range(len(BAD)))
def test_bad_parameters_are_told(given_: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        predict_shares(SEEN, START, **given_)


def test_bad_histories_are_told() -> None:
    with pytest.raises(InstanceError, match=r"requests has shape \(3, 2\), expected \(rounds, 3\)"):
        predict_shares(SEEN, [0.5, 0.2, 0.3])
    with pytest.raises(InstanceError, match="NaN"):
        predict_shares([[1.0, float("nan")]], START)
    with pytest.raises(InstanceError, match="must be finite, not negative"):
        predict_shares([[1.0, -1.0]], START)
    with pytest.raises(InstanceError, match="must lie between 0 and 1"):
        predict_shares(SEEN, [1.5, -0.5])
    with pytest.raises(InstanceError, match="coverage = 1"):
        share_radius(SEEN, START, coverage=1.0)
