"""Estimates: hand-computed cases, recovery, calibration, fallbacks, and what a round costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

from apportion.instances import InstanceError
from apportion.instances.training import Jobs
from apportion.instances.training import fit as fit_module
from apportion.instances.training.curve_fit import (
    CurveFits,
    CurveOptions,
    Histories,
    fit_curves,
    padded,
    rank,
    recency,
    without_outliers,
)
from apportion.instances.training.curves import FAMILIES, NO_CURVE, loss_at
from apportion.instances.training.fit import (
    EstimatorOptions,
    Flag,
    estimate,
    relative_error,
    remember_ended,
)
from apportion.instances.training.speed_fit import fit_speed, moving_average

RANGES = (((0.05, 1.0), (0.5, 2.0)), ((0.5, 3.0), (0.2, 1.5)), ((0.5, 2.0), (0.01, 0.2)))


def fitted(k: Any, loss: Any, target: Any, **options: Any) -> CurveFits:
    k, loss = np.atleast_2d(k).astype(float), np.atleast_2d(loss).astype(float)
    history = Histories(k, loss, np.ones(k.shape, dtype=bool))
    targets = np.broadcast_to(np.asarray(target, dtype=float), (k.shape[0],))
    return fit_curves(history, targets, np.arange(k.shape[0]), CurveOptions(**options))


def job_columns(loss: Any, k: Any = None, **more: Any) -> Jobs:
    """Jobs that all saw the same losses."""
    n = len(more.get("slo", [True]))
    loss = np.asarray(loss, dtype=float)
    k = np.arange(1, loss.size + 1) if k is None else k
    columns: dict[str, Any] = {
        "id": [f"j{i}" for i in range(n)], "gang": [1] * n, "work": [100.0] * n,
        "throughput_per_s": np.ones((n, 1)), "stop_on_metric": [True] * n,
        "metric_target": [0.3] * n, "iteration_cap": [100.0] * n,
        "work_done": [float(loss.size)] * n,
        "observed_offsets": np.arange(n + 1) * loss.size,
        "observed_iteration": np.tile(k, n), "observed_metric": np.tile(loss, n), **more,
    }  # fmt: skip
    return Jobs.of(**columns)


U2 = 1.0 / (0.5 * np.arange(1, 7) + 1.0) + 0.2


@pytest.mark.quick
def test_the_golden_case() -> None:
    found = fitted(np.arange(1, 7), U2, 0.3)
    assert found.family.tolist() == [FAMILIES.index("inverse")]
    assert (found.a[0], found.b[0], found.c[0]) == pytest.approx((0.5, 1.0, 0.2), abs=1e-9)
    assert found.iterations[0] == pytest.approx(18.0, abs=1e-6)
    assert found.samples[0] == pytest.approx(18.0, abs=1e-6)
    assert fitted(np.arange(1, 7), U2, 0.19).iterations[0] == np.inf
    k = np.arange(1, 9)
    power = fitted(k, 2.0 / k + 0.5, 0.6)
    assert power.iterations[0] == pytest.approx(20.0, abs=1e-6)
    assert power.samples[0] == pytest.approx(20.0, abs=1e-6)


@pytest.mark.quick
def test_the_golden_case_as_columns() -> None:
    told, _ = estimate(job_columns(U2, slo=[True, False], metric_target=[0.3, 0.19]))
    assert told.flag.tolist() == [Flag.FITTED, Flag.UNREACHABLE]
    assert told.remaining_iterations.tolist() == [12.0, 94.0]  # at 2 a lease 6 leases, not 7
    assert told.remaining_s[:, 0].tolist() == [12.0, 94.0]
    assert told.quantile.tolist() == [0.8, pytest.approx(np.nan, nan_ok=True)]
    assert told.a[0] == pytest.approx(0.5)


@pytest.mark.parametrize("family", range(3))
def test_copies_of_exact_data_say_what_the_data_say(family: int) -> None:
    rng = np.random.default_rng(10 + family)
    (a0, a1), (b0, b1) = RANGES[family]
    a, b, c = rng.uniform(a0, a1, 200), rng.uniform(b0, b1, 200), rng.uniform(0.05, 0.5, 200)
    k, needed = np.arange(1.0, 21.0), rng.uniform(20.0, 60.0, 200)
    loss = loss_at(family, a[:, None], b[:, None], c[:, None], k)
    found = fitted(np.tile(k, (200, 1)), loss, loss_at(family, a, b, c, needed))
    # near its asymptote a curve tells little of when it gets there
    steep = loss_at(family, a, b, c, needed) > 1.001 * c
    assert steep.sum() > 100
    assert found.samples[steep] == pytest.approx(np.tile(needed[steep, None], 20), rel=1e-6)


@pytest.mark.quick
def test_a_metric_is_looked_at_after_whole_iterations() -> None:
    between = 1.0 / (0.5 * 17.3 + 1.0) + 0.2
    told, _ = estimate(job_columns(U2, slo=[True, False], metric_target=[between] * 2))
    assert told.iterations.tolist() == [18.0, 18.0]


@pytest.mark.parametrize("family", range(3))
def test_exact_data_are_recovered(family: int) -> None:
    rng = np.random.default_rng(family)
    (a0, a1), (b0, b1) = RANGES[family]
    a, b, c = rng.uniform(a0, a1, 200), rng.uniform(b0, b1, 200), rng.uniform(0.05, 0.5, 200)
    k = np.arange(1.0, 21.0)
    loss = loss_at(family, a[:, None], b[:, None], c[:, None], k)
    found = fitted(np.tile(k, (200, 1)), loss, 0.9 * c, resamples=1)
    assert (found.family == family).all()
    for name, true in (("a", a), ("b", b), ("c", c)):
        assert getattr(found, name) == pytest.approx(true, rel=1e-4), name
    assert np.isinf(found.iterations).all()


@pytest.mark.parametrize("family", range(3))
def test_no_other_code_fits_better(family: int) -> None:
    """Scipy, started at the truth and minimising the same sum, gets no lower."""
    rng = np.random.default_rng(family)
    (a0, a1), (b0, b1) = RANGES[family]
    for _ in range(8):
        truth = (rng.uniform(a0, a1), rng.uniform(b0, b1), rng.uniform(0.05, 0.5))
        k = np.arange(1.0, 31.0)
        loss = loss_at(family, *truth, k) * (1.0 + 0.02 * rng.standard_normal(30))
        found = fitted(k, loss, 0.01, resamples=1)
        chosen = int(found.family[0])
        own = np.array([found.a[0], found.b[0], found.c[0]])
        told, root = loss_at(chosen, *own, k), np.sqrt(recency(np.ones((1, 30), bool), None)[0])

        def residual(p: Any, chosen=chosen, told=told, root=root, loss=loss, k=k) -> Any:
            return root * (loss_at(chosen, *p, k) - loss) / told

        other = least_squares(residual, np.maximum(own * 1.2, 1e-6), bounds=(0, np.inf))
        # weights are those of the first pass: the second moves them by parts in a thousand
        assert (residual(own) ** 2).sum() <= 2.0 * other.cost * (1.0 + 1e-3)


def draw(family: int, curves: int, seed: int) -> tuple[Histories, Any, Any]:
    rng = np.random.default_rng((seed, family))
    (a0, a1), (b0, b1) = RANGES[family]
    a, b = rng.uniform(a0, a1, curves), rng.uniform(b0, b1, curves)
    c, fallen = rng.uniform(0.05, 0.5, curves), rng.uniform(0.6, 0.95, curves)
    assert family == 0  # solved here by hand, not by the code under test
    needed = (b / a) * fallen / (1.0 - fallen)
    target = (1.0 - fallen) / b + c
    k = np.linspace(1 / 40, 1, 40) * rng.uniform(0.3, 0.8, curves)[:, None] * needed[:, None]
    loss = (1.0 / (a[:, None] * k + b[:, None]) + c[:, None]) * (
        1.0 + 0.02 * rng.standard_normal(k.shape)
    )
    return Histories(k, loss, np.ones(k.shape, dtype=bool)), target, needed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_quantiles_cover_what_they_say(seed: int) -> None:
    history, target, needed = draw(0, 500, seed)
    found = fit_curves(history, target, np.arange(500), CurveOptions(resamples=200))
    assert 0.75 <= (found.quantile(0.8) >= needed).mean() <= 0.85


def test_a_running_minimum_would_promise_too_much() -> None:
    history, target, needed = draw(0, 100, 11)
    lowest = history._replace(loss=np.minimum.accumulate(history.loss, axis=1))
    covers = [
        (fit_curves(h, target, np.arange(100)).quantile(0.8) >= needed).mean()
        for h in (history, lowest)
    ]
    assert covers[0] >= 0.7
    assert covers[1] < 0.65


@pytest.mark.quick
def test_the_rank_of_a_quantile() -> None:
    assert [rank(0.8, 4), rank(0.8, 20), rank(0.8, 200), rank(0.5, 20)] == [3, 16, 160, 10]
    assert [rank(0.99, 4), rank(0.01, 4)] == [3, 0]


@pytest.mark.quick
def test_outliers_go_and_nothing_else() -> None:
    k = np.arange(1.0, 21.0)
    loss = np.tile(1.0 / (0.5 * k + 1.0) + 0.2, (2, 1))
    loss[1, 9] *= 3.0
    clean = without_outliers(Histories(np.tile(k, (2, 1)), loss, np.ones((2, 20), dtype=bool)))
    assert np.array_equal(clean[0], loss[0])
    assert clean[1, 9] == pytest.approx(loss[1, 8])
    assert np.array_equal(np.delete(clean[1], 9), np.delete(loss[1], 9))


@pytest.mark.quick
def test_newer_points_weigh_more() -> None:
    there = np.array([[True] * 4, [True, True, False, False]])
    assert recency(there, 2.0).tolist() == [[2**-1.5, 0.5, 2**-0.5, 1.0], [2**-0.5, 1.0, 0.0, 0.0]]
    # the loss stalled half-way: a short memory believes the second half
    k = np.arange(1.0, 41.0)
    loss = np.where(k <= 20, 1.5 - 0.02 * k, 1.1 + 1.0 / k)
    short, long = (fitted(k, loss, 1.0, half_window=h, resamples=1) for h in (3.0, 1e9))
    assert short.c[0] > long.c[0]


@pytest.mark.quick
def test_points_that_cannot_belong_to_a_curve_are_left_out() -> None:
    history = padded(
        np.array([0, 5, 5, 7]), np.array([3.0, 1.0, 0.0, np.nan, 2.0, 1.0, 2.0]),
        np.array([0.3, 0.5, 9.0, 0.4, 0.4, np.inf, -1.0]),
    )  # fmt: skip
    assert history.there.tolist() == [[True] * 3, [False] * 3, [False] * 3]
    assert history.iteration[0].tolist() == [1.0, 2.0, 3.0]
    assert history.loss[0].tolist() == [0.5, 0.4, 0.3]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("loss", "flag"),
    [
        (U2[:4], Flag.TOO_FEW_POINTS), (U2[:1], Flag.TOO_FEW_POINTS),
        (np.full(8, 0.7), Flag.NO_FIT), (np.linspace(0.5, 0.9, 8), Flag.NO_FIT),
        (np.full(8, -0.7), Flag.NO_FIT), (np.zeros(8), Flag.NO_FIT),
    ],
)  # fmt: skip
def test_fallbacks(loss: Any, flag: Flag) -> None:
    jobs = job_columns(loss, slo=[True, False, False], model=["a", "a", "b"])
    told, memory = estimate(jobs)
    assert told.flag.tolist() == [flag] * 3
    assert told.iterations.tolist() == [100.0] * 3
    ended = job_columns(U2, slo=[False] * 3, model=["a"] * 3)
    memory = remember_ended(memory, ended, np.array([40.0, 50.0, 70.0]), np.array([True] * 3))
    told, _ = estimate(jobs, memory)
    assert told.iterations.tolist() == [100.0, 50.0, 100.0]
    assert np.isnan(told.quantile).all()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("k", "flag"),
    [
        ([3, 3, 3, 4, 4, 5], Flag.TOO_FEW_POINTS), ([6, 6, 6, 6, 6, 6], Flag.TOO_FEW_POINTS),
        ([1, 2, 3, 4, 5, 5], Flag.FITTED), ([1, 3, 2, 4, 6, 5], Flag.FITTED),
    ],
)  # fmt: skip
def test_an_iteration_seen_twice_is_one_point(k: list[int], flag: Flag) -> None:
    loss = 1.0 / (0.5 * np.array(k) + 1.0) + 0.2
    told, memory = estimate(job_columns(loss, k=k, slo=[True]))
    assert told.flag.tolist() == [flag]
    assert told.iterations.tolist() == [18.0 if flag is Flag.FITTED else 100.0]
    assert memory["points"].tolist() == [0 if flag is not Flag.FITTED else len(set(k))]


@pytest.mark.quick
def test_the_cap_holds_and_is_flagged() -> None:
    told, _ = estimate(job_columns(U2, slo=[True, False], iteration_cap=[15.0, 15.0]))
    assert told.flag.tolist() == [Flag.CAPPED] * 2
    assert told.iterations.tolist() == [15.0] * 2
    told, _ = estimate(job_columns(U2, slo=[True], iteration_cap=[np.inf]))
    assert told.iterations[0] == pytest.approx(18.0, rel=0.01)
    told, _ = estimate(job_columns(U2, slo=[True], metric_target=[0.1], iteration_cap=[np.inf]))
    assert told.iterations[0] == 100.0  # what it reports as work stands for the missing cap


@pytest.mark.quick
def test_a_job_that_runs_on_needs_one_more_iteration() -> None:
    told, _ = estimate(job_columns(U2, slo=[True] * 2, work_done=[30.5, 100.0]))
    assert told.iterations.tolist() == [31.0, 100.0]
    assert told.remaining_iterations.tolist() == [0.5, 0.0]


@pytest.mark.quick
def test_accuracy_is_fitted_upside_down() -> None:
    plain, _ = estimate(job_columns(U2, slo=[True]))
    upside, _ = estimate(
        job_columns(1.0 - U2, slo=[True], metric_target=[0.7], metric_rises=[True])
    )
    assert upside.iterations == pytest.approx(plain.iterations, rel=1e-6)


@pytest.mark.quick
def test_iteration_based_estimates_fall_linearly() -> None:
    done = np.array([0.0, 10.0, 20.0, 130.0])
    jobs = Jobs.of(
        id=list("abcd"), gang=[1, 2, 4, 4], work=[100.0] * 4,
        throughput_per_s=[[2.0, 0.0]] * 4, work_done=done, restart_s=[5.0] * 4,
        config_offsets=[0, 2, 2, 3, 3], config_gpus=[1, 2, 4], config_type=[0, 1, 0],
        config_throughput_per_s=[2.0, 4.0, 0.0],
    )  # fmt: skip
    told, _ = estimate(jobs)
    assert told.flag.tolist() == [Flag.EXACT] * 4
    assert told.remaining_s[:, 0].tolist() == [55.0, 50.0, 45.0, 5.0]
    assert np.isinf(told.remaining_s[:, 1]).all()
    assert told.config_remaining_s.tolist() == [55.0, 30.0, np.inf]
    told, _ = estimate(jobs, options=EstimatorOptions(restart_unit_s=30.0))
    assert told.remaining_s[:, 0].tolist() == [80.0, 105.0, 130.0, 90.0]
    assert told.config_remaining_s.tolist() == [80.0, 85.0, np.inf]


def noisy_round(n: int, points: int, seed: int = 0, rows: Any = None) -> Jobs:
    history, target, needed = draw(0, n, seed)
    keep = slice(0, points)
    jobs = Jobs.of(
        id=[f"j{i}" for i in range(n)], gang=[1] * n, work=needed * 4, code=np.arange(n) * 3,
        throughput_per_s=np.ones((n, 1)), slo=np.arange(n) % 2 == 0,
        work_done=history.iteration[:, points - 1], stop_on_metric=[True] * n,
        metric_target=target, iteration_cap=needed * 4,
        observed_offsets=np.arange(n + 1) * points,
        observed_iteration=history.iteration[:, keep].ravel(),
        observed_metric=history.loss[:, keep].ravel(),
    )  # fmt: skip
    return jobs if rows is None else jobs.take(np.asarray(rows))


def test_stricter_targets_come_later_and_bounds_hold() -> None:
    jobs = noisy_round(60, 30)
    last = np.zeros(60)
    for part in (1.2, 1.1, 1.0, 0.9, 0.8, 0.6):
        told, _ = estimate(jobs.take(np.arange(60), {"metric_target": jobs.metric_target * part}))
        assert (told.iterations >= last).all()
        assert (told.iterations <= jobs.iteration_cap).all()
        assert (told.iterations >= jobs.work_done).all()
        last = told.iterations
    assert {Flag.FITTED, Flag.CAPPED, Flag.UNREACHABLE} & set(told.flag.tolist())


def test_estimates_do_not_depend_on_order_or_company() -> None:
    rows = np.random.default_rng(0).permutation(40)
    whole, _ = estimate(noisy_round(40, 20))
    other, _ = estimate(noisy_round(40, 20, rows=rows))
    few, _ = estimate(noisy_round(40, 20, rows=rows[:7]))
    assert other.iterations == pytest.approx(whole.iterations[rows], rel=1e-9)
    assert few.iterations == pytest.approx(whole.iterations[rows[:7]], rel=1e-9)
    again, _ = estimate(noisy_round(40, 20))
    assert np.array_equal(again.iterations, whole.iterations)
    seed = EstimatorOptions(curves=CurveOptions(seed=1))
    assert not np.array_equal(estimate(noisy_round(40, 20), None, seed)[0].iterations,
                              whole.iterations)  # fmt: skip


def test_only_jobs_that_showed_more_are_fitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    real = fit_module.fit_curves

    def counted(history: Histories, *more: Any) -> CurveFits:
        fits.append(history.loss.shape[0])
        return real(history, *more)

    monkeypatch.setattr(fit_module, "fit_curves", counted)
    first, memory = estimate(noisy_round(40, 20))
    again, memory = estimate(noisy_round(40, 20, rows=np.arange(39, -1, -1)), memory)
    assert fits == [40]
    assert np.array_equal(again.iterations[::-1], first.iterations)
    assert (first.fitted, again.fitted) == (40, 0)
    _, memory = estimate(noisy_round(40, 20, rows=[5, 7]), memory)
    assert memory["code"].tolist() == [15, 21]  # leavers are forgotten
    third, _ = estimate(noisy_round(40, 21, rows=[5, 6, 7]), memory)
    assert fits == [40, 3]
    assert third.fitted == 3


def test_work_in_one_round_is_bounded() -> None:
    how = EstimatorOptions(refits_most=15)
    told, memory = estimate(noisy_round(40, 20), None, how)
    assert (told.fitted, told.late) == (15, 25)
    assert (told.flag == Flag.TOO_FEW_POINTS).sum() == 25
    told, memory = estimate(noisy_round(40, 21), memory, how)  # newcomers before refits
    assert (told.fitted, told.late) == (15, 25)
    assert (told.flag == Flag.TOO_FEW_POINTS).sum() == 10
    told, memory = estimate(noisy_round(40, 21), memory, how)
    told, memory = estimate(noisy_round(40, 21), memory, how)
    assert told.late == 0
    whole, _ = estimate(noisy_round(40, 21))
    assert told.iterations == pytest.approx(whole.iterations, rel=1e-9)


@pytest.mark.quick
def test_a_new_target_is_another_job() -> None:
    _, memory = estimate(job_columns(U2, slo=[True]))
    told, _ = estimate(job_columns(U2, slo=[True], metric_target=[0.25]), memory)
    assert told.fitted == 1
    assert told.iterations[0] == pytest.approx(38.0, rel=0.01)


@pytest.mark.quick
def test_bad_memory_and_parameters() -> None:
    jobs = job_columns(U2, slo=[True])
    _, memory = estimate(jobs)
    for broken in (
        {**memory, "code": memory["code"].astype(float)}, {**memory, "slo": None},
        {**memory, "a": np.zeros(3)}, {"x": 1}, [1],
    ):  # fmt: skip
        with pytest.raises(InstanceError, match=r"memory\.estimator"):
            estimate(jobs, broken)  # pyright: ignore[reportArgumentType]
    for make, told in (
        (lambda: CurveOptions(resamples=0), "curves.resamples = 0"),
        (lambda: CurveOptions(least_points=3), "curves.least_points = 3"),
        (lambda: CurveOptions(half_window=0.0), "curves.half_window = 0"),
        (lambda: CurveOptions(seed=-1), "curves.seed = -1"),
        (lambda: EstimatorOptions(slo_quantile=1.0), "estimator.slo_quantile = 1"),
        (lambda: EstimatorOptions(refits_most=-1), "estimator.refits_most = -1"),
        (lambda: EstimatorOptions(restart_unit_s=-1.0), "estimator.restart_unit_s = -1"),
    ):
        with pytest.raises(InstanceError, match=told):
            make()


@pytest.mark.quick
def test_an_empty_round() -> None:
    empty = Jobs.of(id=[], gang=[], work=[], throughput_per_s=np.zeros((0, 2)))
    told, memory = estimate(empty)
    assert told.remaining_s.shape == (0, 2)
    assert estimate(empty, memory)[0].fitted == 0


@pytest.mark.quick
def test_errors_are_relative_to_the_truth() -> None:
    assert relative_error([12.0, 8.0, 5.0], [10.0, 10.0, np.inf]).tolist() == [
        pytest.approx(0.2), pytest.approx(0.2), pytest.approx(np.nan, nan_ok=True),
    ]  # fmt: skip


@pytest.mark.quick
def test_speed_by_the_number_of_gpus() -> None:
    g = np.array([1, 2, 4, 8])
    law = fit_speed(g, 0.1 + 2.0 / g + 0.05 * np.log2(g))
    assert (law.fixed, law.parallel, law.doubling) == pytest.approx((0.1, 2.0, 0.05))
    assert law.throughput_per_s(16) == pytest.approx(1.0 / (0.1 + 0.125 + 0.2))
    # a speed-up beyond the GPUs would need a negative term: it is cut off
    law = fit_speed([1, 2], [2.0, 0.9])
    assert min(law.fixed, law.parallel, law.doubling) >= 0
    for gpus, seconds, told in (
        ([0], [1.0], r"gpus\[0\]"), ([1], [0.0], r"seconds\[0\]"), ([], [], "gpus has shape"),
    ):  # fmt: skip
        with pytest.raises(InstanceError, match=told):
            fit_speed(gpus, seconds)


@pytest.mark.quick
def test_moving_average() -> None:
    out = moving_average([np.nan, 1.0, 1.0], [2.0, 3.0, np.nan])
    assert out.tolist() == [2.0, 2.0, 1.0]
    with pytest.raises(InstanceError, match="weight = 0"):
        moving_average(1.0, 2.0, 0.0)


@pytest.mark.quick
def test_no_history_no_curve() -> None:
    found = fit_curves(padded(np.array([0, 0]), np.zeros(0), np.zeros(0)), np.ones(1), np.ones(1))
    assert found.family.tolist() == [NO_CURVE]
