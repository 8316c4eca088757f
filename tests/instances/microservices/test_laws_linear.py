"""Lines derived from laws: by hand, above the curve between the ends, equal where they must be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import LinearLatency, Microservices
from apportion.instances.microservices.laws import rates
from apportion.instances.microservices.laws_linear import LEAST_RATE_SHARE, linear_from_laws

pytestmark = pytest.mark.quick


def latency(lines: LinearLatency, load: np.ndarray) -> np.ndarray:
    """Evaluate row 0 at many loads, as the definition says."""
    before = lines.slope_before_ms[0] * load + lines.intercept_before_ms[0]
    after = lines.slope_after_ms[0] * load + lines.intercept_after_ms[0]
    return np.where(load <= lines.inflection_per_s[0], before, after)


def curve(services: Microservices, load: np.ndarray, percentile: float) -> np.ndarray:
    rate = rates(services, load[None, :])[0]
    return services.shift_ms[0] - math.log(1 - percentile) / rate


def test_by_hand() -> None:
    # rates 4 at rest and 1 at load 3: chords meet at rate 2 and load 2; with p = 1 - 1/e the
    # curve is 5 + 1/rate
    services = Microservices.of(["m"], 4.0, -1.0, shift_ms=5.0, least_rate_per_ms=1.0)
    lines = linear_from_laws(services, 1 - 1 / math.e)
    assert lines.inflection_per_s[0] == pytest.approx(2.0)
    assert lines.slope_before_ms[0] == pytest.approx(1 / 8)
    assert lines.intercept_before_ms[0] == pytest.approx(5.25)
    assert lines.slope_after_ms[0] == pytest.approx(1 / 2)
    assert lines.intercept_after_ms[0] == pytest.approx(4.5)


@pytest.mark.parametrize("seed", range(20))
def test_chords_lie_above_the_curve_and_touch_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rest, slope = rng.uniform(0.3, 9.0), -(10.0 ** rng.uniform(-3, -1))
    least = rng.uniform(0.0, 0.8) * rest
    light = rng.uniform(0, 0.5) * (least - rest) / slope
    services = Microservices.of(
        ["m"], rest, slope, shift_ms=rng.uniform(0, 3), least_rate_per_ms=least,
        least_load_per_s=light,
    )  # fmt: skip
    percentile = float(rng.choice([0.5, 0.95, 0.99]))
    lines = linear_from_laws(services, percentile)
    end = (max(least, LEAST_RATE_SHARE * rest) - rest) / slope
    turn = lines.inflection_per_s[0]
    touched = np.array([light, turn, end])
    np.testing.assert_allclose(
        latency(lines, touched), curve(services, touched, percentile), rtol=1e-9
    )
    inside = np.linspace(light, end, 201)
    true = curve(services, inside, percentile)
    found = latency(lines, inside)
    assert (found >= true * (1 - 1e-9)).all()
    top = services.shift_ms[0]
    excess = (found - top) / (true - top)
    ratio = math.sqrt((rest + slope * light) / (rest + slope * end))
    largest = (1 + ratio) ** 2 / (4 * ratio)
    for part in (inside <= turn, inside >= turn):  # both chords exceed by the same factor
        assert excess[part].max() == pytest.approx(largest, rel=2e-3)


def test_law_trusted_at_one_load_only() -> None:
    services = Microservices.of(["m"], 2.0, -0.5, least_rate_per_ms=1.0, least_load_per_s=2.0)
    lines = linear_from_laws(services)
    assert lines.slope_before_ms[0] == lines.slope_after_ms[0]
    assert latency(lines, np.array([2.0]))[0] == pytest.approx(math.log(20))


def test_law_without_any_admissible_load() -> None:
    services = Microservices.of(["m"], 2.0, -0.5, least_load_per_s=4.0)
    assert np.isfinite(linear_from_laws(services).intercept_after_ms).all()


@pytest.mark.parametrize("percentile", [0.0, 1.0, -1.0, math.nan])
def test_bad_percentile(percentile: float) -> None:
    with pytest.raises(InstanceError, match="percentile"):
        linear_from_laws(Microservices.of(["m"], 2.0, -0.5), percentile)
