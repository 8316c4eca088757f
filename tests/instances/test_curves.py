"""Learning curves: values, targets, true curves and the law that draws them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from apportion.instances import InstanceError
from apportion.instances.counters import keys_of, normals, uniforms
from apportion.instances.training import Jobs, Scenario, read_scenario, write_scenario
from apportion.instances.training.curves import (
    EXPONENTIAL,
    INVERSE,
    NO_CURVE,
    POWER,
    as_loss,
    first_iteration_to,
    iterations_to,
    loss_at,
)
from apportion.instances.training.true_curves import TrueCurves

pytestmark = pytest.mark.quick


def test_values_by_hand() -> None:
    assert loss_at(INVERSE, 0.5, 1.0, 0.2, [0, 2, 18]).tolist() == [1.2, 0.7, pytest.approx(0.3)]
    assert loss_at(POWER, 2.0, 1.0, 0.5, [1, 20]).tolist() == [2.5, pytest.approx(0.6)]
    assert loss_at(EXPONENTIAL, 2.0, math.log(2.0), 0.5, 3) == pytest.approx(0.75)
    assert np.isnan(loss_at(NO_CURVE, 1.0, 1.0, 1.0, 1))


def test_targets_by_hand() -> None:
    assert iterations_to(INVERSE, 0.5, 1.0, 0.2, 0.3) == pytest.approx(18.0)
    assert iterations_to(INVERSE, 0.5, 1.0, 0.2, 0.19) == np.inf
    assert iterations_to(INVERSE, 0.5, 1.0, 0.2, 0.2) == np.inf
    assert iterations_to(POWER, 2.0, 1.0, 0.5, 0.6) == pytest.approx(20.0)
    assert iterations_to(EXPONENTIAL, 2.0, math.log(2.0), 0.5, 0.75) == pytest.approx(3.0)
    assert iterations_to(INVERSE, 0.5, 1.0, 0.2, 1.2) == 0.0
    assert iterations_to(EXPONENTIAL, 2.0, 0.1, 0.5, 3.0) == 0.0


@pytest.mark.parametrize(
    ("family", "a", "b"), [(INVERSE, 0.0, 1.0), (POWER, 0.0, 1.0), (POWER, 1.0, 0.0),
                           (EXPONENTIAL, 0.0, 1.0), (EXPONENTIAL, 1.0, 0.0)],
)  # fmt: skip
def test_a_curve_that_does_not_fall_never_gets_anywhere(family: int, a: float, b: float) -> None:
    level = float(loss_at(family, a, b, 0.2, 5))
    assert iterations_to(family, a, b, 0.2, level - 0.01) == np.inf
    assert iterations_to(family, a, b, 0.2, level + 0.01) == 0.0


def test_the_first_whole_iteration_is_not_one_late_by_rounding() -> None:
    assert first_iteration_to(INVERSE, 0.5, 1.0, 0.2, 0.3) == 18.0
    assert first_iteration_to(POWER, 2.0, 1.0, 0.5, 0.6) == 20.0
    assert first_iteration_to(INVERSE, 0.5, 1.0, 0.2, 0.2999) == 19.0
    assert first_iteration_to(INVERSE, 0.5, 1.0, 0.2, 9.0) == 1.0


@pytest.mark.parametrize("family", [INVERSE, POWER, EXPONENTIAL])
def test_the_inverse_undoes_the_value_and_stricter_is_later(family: int) -> None:
    rng = np.random.default_rng(family)
    a, b, c = rng.uniform(0.05, 2, 200), rng.uniform(0.05, 2, 200), rng.uniform(0, 0.5, 200)
    k = rng.uniform(1, 30, 200)
    target = loss_at(family, a, b, c, k)
    sure = target - c > 1e-9  # nearer to the asymptote no digit is left
    assert sure.sum() > 100
    found = iterations_to(family, a, b, c, target)
    assert found[sure] == pytest.approx(k[sure], rel=1e-6)
    assert (iterations_to(family, a, b, c, target - 1e-3) >= found)[sure].all()


def test_a_rising_metric_is_read_upside_down() -> None:
    assert as_loss([0.9, 0.9], [True, False]).tolist() == [pytest.approx(0.1), 0.9]


def test_numbers_by_counter_depend_on_their_keys_alone() -> None:
    keys = keys_of(np.array(["a", "b", "c"]))
    whole = normals(1, "x", keys[:, None], np.arange(5)[None])
    assert normals(1, "x", keys[2:0:-1, None], np.arange(3, 5)[None]).tolist() == (
        whole[2:0:-1, 3:5].tolist()
    )
    assert not np.isin(normals(2, "x", keys), whole[:, 0]).any()
    assert not np.isin(normals(1, "y", keys), whole[:, 0]).any()
    many = uniforms(0, "x", np.arange(200)[:, None], np.arange(200)[None])
    assert np.unique(many).size == many.size
    assert many.mean() == pytest.approx(0.5, abs=0.01)
    assert np.histogram(many, 10, (0, 1))[0] == pytest.approx(4000, rel=0.06)


def metric_jobs(n: int = 3, **more: object) -> Jobs:
    columns = {
        "id": [f"j{i}" for i in range(n)], "gang": [1] * n, "work": [400.0] * n,
        "throughput_per_s": np.ones((n, 1)), "stop_on_metric": [True] * n,
        "metric_target": [0.3] * n, "iteration_cap": [400.0] * n, **more,
    }  # fmt: skip
    return Jobs.of(**columns)  # pyright: ignore[reportArgumentType]


def curves(n: int = 3, **more: object) -> TrueCurves:
    columns = {"family": [INVERSE] * n, "a": [0.5] * n, "b": [1.0] * n, "c": [0.2] * n, **more}
    return TrueCurves(**columns)  # pyright: ignore[reportArgumentType]


def test_what_jobs_need() -> None:
    jobs = metric_jobs(
        stop_on_metric=[True, True, False], metric_target=[0.3, 0.19, 0.3],
    )  # fmt: skip
    assert curves().needed(jobs, np.array([7.0, 7.0, 7.0])).tolist() == [18.0, 400.0, 7.0]
    rises = metric_jobs(metric_target=[0.7] * 3, metric_rises=[True] * 3)
    assert curves().needed(rises, rises.work).tolist() == [18.0] * 3
    endless = metric_jobs(metric_target=[0.3, 0.19, 0.3], iteration_cap=[np.inf] * 3)
    with pytest.raises(InstanceError, match=r"metric_target\[1\] = 0.19 .*never gets there"):
        curves().needed(endless, endless.work)


def test_measurements_have_the_noise_they_say() -> None:
    n = 4000
    jobs, truth = metric_jobs(n), curves(n, noise=0.02)
    rows = np.arange(n)
    seen = truth.measured(jobs, rows, np.full(n, 4.0), keys_of(jobs.id), 0)
    exact = loss_at(INVERSE, 0.5, 1.0, 0.2, 4.0)
    assert (seen / exact - 1.0).std() == pytest.approx(0.02, rel=0.05)
    assert (seen / exact - 1.0).mean() == pytest.approx(0.0, abs=0.002)
    some = truth.measured(jobs, rows[7:9], np.array([4.0, 4.0]), keys_of(jobs.id)[7:9], 0)
    assert some.tolist() == seen[7:9].tolist()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"family": [0, 3, 0]}, r"true_curves.family\[1\] = 3"),
        ({"a": [0.1, -0.1, 0.1]}, r"true_curves.a\[1\] = -0.1"),
        ({"b": [0.0, 1.0, 1.0]}, r"true_curves.b\[0\] = 0"),
        ({"c": [0.1]}, r"true_curves.c"),
        ({"noise": 2.0}, r"true_curves.noise = 2.0"),
    ],
)
def test_bad_true_curves(columns: dict[str, object], told: str) -> None:
    with pytest.raises(InstanceError, match=told):
        curves(**columns)


def drawn(**more: float) -> Scenario:
    return read_scenario("demo", overrides={"metric_stops": {"share": 0.5, **more}})


def test_a_workload_keeps_how_long_its_jobs_run() -> None:
    plain, metric = read_scenario("demo"), drawn()
    assert metric.true_work is not None
    before = plain.jobs.work[:, None] / plain.jobs.throughput_per_s
    assert metric.true_work[:, None] / metric.jobs.throughput_per_s == pytest.approx(before)
    stops, truth = metric.jobs.stop_on_metric, metric.true_curves
    assert truth is not None
    assert 0.3 < stops.mean() < 0.7
    assert (truth.family == np.where(stops, INVERSE, NO_CURVE)).all()
    ratio = (metric.jobs.iteration_cap / metric.true_work)[stops]
    assert (ratio >= 1.2).all()
    assert (ratio <= 3.0 + 1.0 / metric.true_work[stops]).all()
    assert (metric.jobs.work[stops] == metric.jobs.iteration_cap[stops]).all()
    assert np.array_equal(metric.jobs.work[~stops], plain.jobs.work[~stops])
    start, asymptote = 1.0 / truth.b + truth.c, truth.c
    fallen = ((start - metric.jobs.metric_target) / (start - asymptote))[stops]
    assert (fallen >= 0.6).all()
    assert (fallen <= 0.95).all()


def test_scenarios_with_curves_are_read_back_equal(tmp_path: Path) -> None:
    scenario = drawn(noise=0.05)
    again = read_scenario(write_scenario(scenario, tmp_path))
    assert again.true_curves == scenario.true_curves
    assert again.jobs == scenario.jobs
    assert again.true_work is not None
    assert again.true_work.tolist() == scenario.true_work.tolist()  # pyright: ignore[reportOptionalMemberAccess]


def test_bad_tables() -> None:
    with pytest.raises(InstanceError, match=r"metric_stops.target_least = 0.96"):
        drawn(target_least=0.96)
    with pytest.raises(InstanceError, match=r"metric_stops.share = 2"):
        drawn(share=2)
    with pytest.raises(InstanceError, match=r"metric_stops.shar: unknown key.*share"):
        read_scenario("demo", overrides={"metric_stops": {"shar": 0.5}})
