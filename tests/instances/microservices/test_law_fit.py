"""Fitting laws: the stated check, recovery within standard errors, guards, and Erms' lines."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import Microservices
from apportion.instances.microservices.fit import ESTIMATORS, FitOptions, LawFit, fit_law
from apportion.instances.microservices.fit_linear import (
    InflectionTree,
    fit_interference,
    fit_two_lines,
    linear_latency,
)

LOADS = (20.0, 40.0, 60.0, 80.0, 100.0)


def samples(
    rng: np.random.Generator, count: int, law: tuple[float, float, float] = (0.6, -0.004, 2.0),
    loads: tuple[float, ...] = LOADS,
) -> tuple[Any, Any]:  # fmt: skip
    load = np.repeat(loads, count)
    return load, law[2] + rng.exponential(1 / (law[0] + law[1] * load))


def law_of(fit: LawFit) -> np.ndarray:
    return np.array([fit.rate_at_rest_per_ms, fit.rate_slope_per_ms, fit.shift_ms])


def errors_of(fit: LawFit) -> np.ndarray:
    return np.array([fit.rate_at_rest_error, fit.rate_slope_error, fit.shift_error])


@pytest.mark.quick
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_stated_check(estimator: str) -> None:
    # the specification found 0.6023, -0.00401 and 2.0000 from as many samples
    fit = fit_law(*samples(np.random.default_rng(7), 20_000), FitOptions(estimator=estimator))
    assert law_of(fit) == pytest.approx([0.6, -0.004, 2.0], rel=0.015)
    assert fit.shift_ms == pytest.approx(2.0, abs=4e-4)
    assert fit.r_squared > 0.999
    assert fit.ks < 0.01
    assert fit.kl_mean < 0.01
    assert fit.kl_distribution < 0.01
    assert (fit.samples, fit.levels) == (100_000, 5)
    assert fit.warnings == ()


@pytest.mark.quick
def test_by_hand() -> None:
    # two loads, times 1, 2, 3 and 1, 3, 5 (20 each): excess over the least 1 on average of 60, and
    # 2; each mean is taken over one sample less
    low, high = np.tile([1.0, 2.0, 3.0], 20), np.tile([1.0, 3.0, 5.0], 20)
    fit = fit_law(np.repeat([10.0, 30.0], 60), np.concatenate((low, high)))
    rates = np.array([59 / 60, 59 / 120])
    slope = (rates[1] - rates[0]) / 20
    assert law_of(fit) == pytest.approx(
        [rates[0] - 10 * slope, slope, 1 - (1 / rates / 60).mean()], rel=1e-12
    )
    assert fit.r_squared == pytest.approx(1.0)
    assert fit.least_rate_per_ms == pytest.approx(rates[1])
    assert (fit.least_load_per_s, fit.most_load_per_s) == (10, 30)
    # weights 60 / rate ** 2: by the textbook, of a line through two points
    spread = rates / math.sqrt(60)
    assert fit.rate_slope_error == pytest.approx(math.hypot(*spread) / 20)
    assert fit.rate_at_rest_error == pytest.approx(math.hypot(1.5 * spread[0], 0.5 * spread[1]))


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_law_is_recovered_within_three_errors(seed: int) -> None:
    recovered(seed, 1)


@pytest.mark.slow
def test_law_is_recovered_as_often_as_errors_say() -> None:
    recovered(1000, 400)


def recovered(seed: int, rounds: int) -> None:
    """Three standard errors hold 99.7 % of a normal variable; those of shifts have longer tails."""
    rng = np.random.default_rng(seed)
    off = []
    for _ in range(rounds):
        rest = rng.uniform(0.3, 9.0)
        loads = tuple(np.sort(rng.uniform(5, 100, 6)).tolist())
        true = (rest, -rng.uniform(0.2, 0.7) * rest / loads[-1], rng.uniform(0.1, 3.0))
        fit = fit_law(*samples(rng, 2000, true, loads))
        assert fit.rate_slope_per_ms < 0
        off.append(np.abs(law_of(fit) - true) / errors_of(fit))
    far = np.array(off) > (3.0 if rounds > 1 else 4.5)
    assert far.mean(axis=0).max() <= 0.015


@pytest.mark.quick
@pytest.mark.parametrize("shift", ["minimum", "quantile", "zero"])
def test_shifts(shift: str) -> None:
    load, time = samples(np.random.default_rng(3), 4000)
    fit = fit_law(load, time, FitOptions(shift=shift, shift_quantile=0.01))
    if shift == "zero":  # the mean of the whole, so that tails without a shift are not optimistic
        assert fit.shift_ms == 0
        mean = np.array([time[load == one].mean() for one in LOADS])
        rate = fit.rate_at_rest_per_ms + fit.rate_slope_per_ms * np.array(LOADS)
        np.testing.assert_allclose(rate, 1 / mean, rtol=0.05)
        assert fit.ks > 0.2
    else:
        assert fit.shift_ms == pytest.approx(2.0, abs=4 * fit.shift_error)


@pytest.mark.quick
def test_quantile_is_not_moved_by_a_few_small_times() -> None:
    load, time = samples(np.random.default_rng(3), 4000)
    time[::1000] = 0.01
    low = fit_law(load, time)
    robust = fit_law(load, time, FitOptions(shift="quantile", shift_quantile=0.01))
    assert low.shift_ms < 0.1
    assert robust.shift_ms == pytest.approx(2.0, abs=0.05)
    assert law_of(robust) == pytest.approx([0.6, -0.004, 2.0], rel=0.05)


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_slope_is_negative_whatever_the_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load = np.repeat([10.0, 20.0, 50.0], 50)
    time = rng.exponential(np.repeat([3.0, 2.0, 1.0], 50)) + 0.1  # faster under load
    fit = fit_law(load, time)
    assert fit.rate_slope_per_ms < 0
    assert fit.rate_slope_per_ms == pytest.approx(-1e-6 * fit.rate_at_rest_per_ms, rel=1e-3)
    assert "rates do not fall with load" in fit.warnings[0]
    assert fit.r_squared <= 1e-9


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_every_fit_is_a_law_that_may_be_planned_with(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load = rng.choice(rng.uniform(0, 200, rng.integers(2, 30)), 400)
    time = rng.lognormal(0, 1.5, 400) * (1 + load * rng.uniform(-0.02, 0.1))
    fit = fit_law(load, np.abs(time), FitOptions(least_samples=5, levels=6))
    laws = Microservices.of(
        ["m"], fit.rate_at_rest_per_ms, fit.rate_slope_per_ms, shift_ms=fit.shift_ms,
        least_rate_per_ms=fit.least_rate_per_ms, least_load_per_s=fit.least_load_per_s,
    )  # fmt: skip
    assert laws.most_load_per_s[0] >= fit.least_load_per_s
    assert fit.levels <= 6
    assert 0 <= fit.ks <= 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("load", "time", "message"),
    [
        (np.full(100, 5.0), np.arange(1.0, 101.0), "1 different load with at least 20 samples"),
        ([], [], "0 different loads"),
        (np.repeat([1.0, 2.0], [100, 19]), np.arange(1.0, 120.0), "1 different load"),
        (np.repeat([1.0, 2.0], 50), np.full(100, 3.0), "no exponential"),
        (np.repeat([1.0, 2.0], 50), np.zeros(100), "0 different loads"),
        ([-1.0], [1.0], "fit.load_per_s[0] = -1.0: must not be negative"),
        ([1.0], [np.inf], "must be finite"),
        ([1.0, 2.0], [1.0], "has shape"),
    ],
)
def test_refused(load: Any, time: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=re.escape(message)):
        fit_law(load, time)


@pytest.mark.quick
def test_line_that_falls_below_zero_is_trusted_while_it_is_a_rate() -> None:
    rng = np.random.default_rng(0)
    count = [5000, 5000, 20]
    fit = fit_law(
        np.repeat([10.0, 20.0, 60.0], count), rng.exponential(np.repeat([0.1, 0.2, 1.0], count))
    )
    assert fit.rate_at_rest_per_ms + 60 * fit.rate_slope_per_ms < 0
    assert fit.least_rate_per_ms == pytest.approx(0.1, rel=0.5)  # a tenth of the least rate seen


@pytest.mark.quick
def test_warnings() -> None:
    rng = np.random.default_rng(0)
    load, time = samples(rng, 500, loads=(50.0, 52.0))
    fit = fit_law(np.append(load, 90.0), np.append(time, 3.0))
    assert fit.warnings[0] == "1 samples of loads with fewer than 20"
    assert any("between 50 and 52 calls/s only" in line for line in fit.warnings)
    time = np.concatenate((np.tile([1.0, 2.0, 3.0], 20), np.tile([1.0, 2.0, 3.1], 20)))
    fit = fit_law(np.repeat([10.0, 30.0], 60), time)
    assert fit.warnings[0].startswith("the slope -0.00159 is")
    assert "not told from none" in fit.warnings[0]


@pytest.mark.quick
def test_loads_that_are_counted_are_one_where_they_are_alike() -> None:
    rng = np.random.default_rng(0)
    load, time = samples(rng, 500, loads=(50.0, 50.3, 50.9, 80.0, 80.9))
    assert fit_law(load, time).levels == 2
    with pytest.raises(InstanceError, match="1 different load"):
        fit_law(load[:1500], time[:1500])


@pytest.mark.quick
@pytest.mark.parametrize(
    "options", [{"estimator": "maen"}, {"shift": "least"}, {"levels": 1}, {"shift_quantile": 1.0}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=r"fit\."):
        FitOptions(**options)


def two(load: Any, first: tuple[float, float], second: tuple[float, float]) -> Any:
    return np.maximum(first[0] * load + first[1], second[0] * load + second[1])


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_two_lines_without_noise_are_found_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load = np.sort(rng.uniform(0, 100, 24))
    turn = float(rng.uniform(load[4], load[-5]))
    low = rng.uniform(0.0, 0.5)
    first = (low, rng.uniform(1, 9))
    second = (low + rng.uniform(0.3, 2.0), 0.0)
    second = (second[0], first[1] - (second[0] - low) * turn)
    lines = fit_two_lines(load, two(load, first, second))
    found = (lines.slope_before_ms, lines.intercept_before_ms)
    assert found == pytest.approx(first, rel=1e-6, abs=1e-6)
    assert (lines.slope_after_ms, lines.intercept_after_ms) == pytest.approx(second, rel=1e-6)
    assert lines.inflection_per_s == pytest.approx(turn, rel=1e-6)
    assert lines.accuracy == pytest.approx(1.0)
    assert linear_latency([lines]).inflection_per_s[0] == pytest.approx(turn, rel=1e-6)


LOAD = np.arange(1.0, 21.0) * 10
TAIL = two(LOAD, (0.1, 5.0), (0.7, -56.8))


@pytest.mark.quick
@pytest.mark.parametrize("at", range(20))
def test_one_outlier_anywhere_changes_nothing(at: int) -> None:
    tail = TAIL.copy()
    tail[at] += 40
    lines = fit_two_lines(LOAD, tail)
    assert not lines.used[at]
    assert "outliers" in lines.warnings[0]
    assert lines.slope_before_ms == pytest.approx(0.1)
    assert lines.inflection_per_s == pytest.approx(103.0)


@pytest.mark.quick
def test_noise() -> None:
    rng = np.random.default_rng(0)
    load = np.tile(LOAD, 20)
    lines = fit_two_lines(load, np.tile(TAIL, 20) * (1 + 0.03 * rng.normal(size=400)))
    assert lines.slope_before_ms == pytest.approx(0.1, rel=0.05)
    assert lines.slope_after_ms == pytest.approx(0.7, rel=0.02)
    assert lines.inflection_per_s == pytest.approx(103.0, rel=0.02)


@pytest.mark.quick
def test_tails_that_fall_or_bend_the_other_way() -> None:
    falling = fit_two_lines(LOAD, 100 - LOAD / 10)
    assert (falling.slope_before_ms, falling.slope_after_ms) == (0, 0)
    assert falling.inflection_per_s == np.inf
    assert "taken as flat" in falling.warnings[0]
    concave = fit_two_lines(LOAD, np.minimum(LOAD, 50 + LOAD / 10))
    assert concave.inflection_per_s == np.inf
    assert concave.slope_before_ms == concave.slope_after_ms > 0
    assert concave.warnings[-1] == "no cut gives two rising lines: one line for all loads"
    for lines in (falling, concave):
        linear_latency([lines])


@pytest.mark.quick
def test_one_load_is_no_line() -> None:
    with pytest.raises(InstanceError, match="two different loads"):
        fit_two_lines([3.0, 3.0], [1.0, 2.0])
    with pytest.raises(InstanceError, match="must not be negative"):
        fit_two_lines([3.0, 4.0], [1.0, -2.0])


def interfered(settings: list[tuple[float, float]]) -> tuple[list[float], ...]:
    columns: tuple[list[float], ...] = ([], [], [], [])
    for cpu, memory in settings:
        for load in np.arange(1, 41) * 3.0:
            first = (0.01 * cpu + 0.0001 * memory + 0.05, 5.0)
            second = (0.05 * cpu + 0.001 * memory + 0.3, -10.0)
            row = (float(load), float(two(load, first, second)), cpu, memory)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    return columns


@pytest.mark.quick
def test_interference_without_noise_is_found_exactly() -> None:
    settings = [(cpu, memory) for cpu in (0.0, 2.0, 4.0) for memory in (0.0, 100.0, 300.0)]
    fit = fit_interference(*interfered(settings))
    assert fit.before == pytest.approx((0.01, 0.0001, 0.05, 5.0), rel=1e-6)
    assert fit.after == pytest.approx((0.05, 0.001, 0.3, -10.0), rel=1e-6)
    lines = fit.at(1.0, 50.0)  # never seen
    assert lines.slope_before_ms == pytest.approx(0.065)
    assert lines.slope_after_ms == pytest.approx(0.4)
    assert lines.inflection_per_s == pytest.approx(15 / 0.335)


@pytest.mark.quick
def test_interference_that_speeds_up_is_refused() -> None:
    load, tail, cpu, memory = interfered([(0.0, 0.0), (4.0, 0.0)])
    flat = [100.0 - one for one in tail]
    with pytest.raises(InstanceError, match="no interference shows two rising lines"):
        fit_interference(load, flat, cpu, memory)


@pytest.mark.quick
def test_tree_by_hand() -> None:
    settings = np.array([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]])
    turns = np.array([90.0, 80.0, 20.0, 10.0])
    tree = InflectionTree.grown(settings, turns)
    assert (tree.axis, tree.cut) == (0, 2.0)
    assert [tree.at(*one) for one in settings] == turns.tolist()
    assert InflectionTree.grown(settings, turns, depth=1).at(0.0, 0.0) == 85
    assert InflectionTree.grown(settings[:1], turns[:1]).at(9.0, 9.0) == 90
