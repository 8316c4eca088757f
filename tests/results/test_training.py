"""Metrics of runs worked out by hand; the runs are described in conftest.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training.records import Run
from apportion.results import (
    CAUSES,
    DEFINITIONS,
    TrainingMetrics,
    conservation_errors,
    job_outcomes,
    per_job_frame,
    per_round_frame,
    training_metrics,
)

pytestmark = pytest.mark.quick


def test_completion_queueing_and_starvation(three_jobs: Run):
    got = training_metrics(three_jobs)
    assert (got.jobs, got.finished, got.unfinished, got.never_started) == (3, 3, 0, 0)
    # JCT: A 170, B 100, C 150. Sorted 100, 150, 170; p95 lies at place 1.9, p99 at 1.98.
    assert got.jct_mean_s == pytest.approx(140)
    assert got.jct_p50_s == pytest.approx(150)
    assert got.jct_p95_s == pytest.approx(150 + 0.9 * 20)
    assert got.jct_p99_s == pytest.approx(150 + 0.98 * 20)
    assert got.makespan_s == pytest.approx(200)
    # A holds GPUs for 100 + 70 s of its 170, B for all of its 100, C for 100 of its 150.
    assert got.queueing_mean_s == pytest.approx(50 / 3)
    assert got.queueing_p95_s == pytest.approx(45)
    assert got.starvation_mean_s == pytest.approx(50 / 3)
    assert got.starvation_max_s == pytest.approx(50)


def test_finish_time_fairness(three_jobs: Run):
    outcome = job_outcomes(three_jobs)
    # Active jobs: 2 in [0, 50), 3 in [50, 100), 2 in [100, 170), 1 in [170, 200).
    assert outcome.active_mean == pytest.approx([390 / 170, 250 / 100, 320 / 150])
    # Alone on the best type each of them takes 100 s.
    assert outcome.ftf_exclusive == pytest.approx([1.7, 1.0, 1.5])
    # A: 2 / N > 1/2 of each type, scaled to 1/2: 1.5 units a second, 200 / 1.5 s.
    # B: 2 / (2.5 x 2) = 0.4 of each type: 1.6 units a second, 187.5 s.
    # C: 1/2 of each type, of which it uses slow only: 0.5 units a second, 200 s.
    assert outcome.ideal_share_s == pytest.approx([200 / 1.5, 187.5, 200])
    assert outcome.ftf_share == pytest.approx([1.275, 100 / 187.5, 0.75])
    got = training_metrics(three_jobs)
    assert got.ftf_exclusive_mean == pytest.approx(1.4)
    assert got.ftf_exclusive_max == pytest.approx(1.7)
    assert got.ftf_share_mean == pytest.approx((1.275 + 100 / 187.5 + 0.75) / 3)
    assert got.ftf_share_p95 == pytest.approx(0.75 + 0.9 * 0.525)
    assert got.ftf_share_max == pytest.approx(1.275)


def test_real_speeds_count_not_reported_ones(three_jobs: Run):
    # Really everything is half as fast as reported, so that an ideal takes twice as long.
    truth = three_jobs.scenario.jobs.throughput_per_s / 2
    slower = replace(three_jobs.scenario, true_throughput_per_s=truth)
    got = job_outcomes(replace(three_jobs, scenario=slower))
    assert got.ftf_exclusive == pytest.approx([0.85, 0.5, 0.75])


def test_where_the_gpu_time_went(three_jobs: Run):
    got = training_metrics(three_jobs)
    # 4 GPUs x 200 s = 800: busy 100 + 200 + 100 + 50, stalled 20, finished 30, the rest no demand.
    assert got.busy_fraction == pytest.approx(450 / 800)
    assert got.stalled_fraction == pytest.approx(20 / 800)
    assert got.idle_fraction == pytest.approx(330 / 800)
    assert got.idle_no_demand_fraction == pytest.approx(300 / 800)
    assert got.idle_finished_fraction == pytest.approx(30 / 800)
    assert got.idle_policy_fraction == got.idle_no_pack_fraction == got.down_fraction == 0
    assert got.types["slow"]["busy"] == pytest.approx(0.5)
    assert got.types["fast"]["busy"] == pytest.approx(250 / 400)
    assert sum(value or 0 for value in got.types["fast"].values()) == pytest.approx(1)
    # A holds 100 + 70, B 2 x 100, C 100.
    assert got.held_gpu_s == pytest.approx(470)


def test_decisions(three_jobs: Run, heuristic: Run):
    got = training_metrics(three_jobs)
    assert (got.decisions, got.preemptions, got.migrations) == (2, 0, 1)
    assert got.worst_gap == pytest.approx(0.02)
    assert got.optimal_fraction == pytest.approx(0.5)
    assert got.decide_p50_s == pytest.approx(0.2)
    assert got.decide_p95_s == pytest.approx(0.29)
    assert got.decide_max_s == pytest.approx(0.3)
    plain = training_metrics(heuristic)
    assert plain.worst_gap is None
    assert plain.optimal_fraction is None


def test_unfinished_jobs_are_counted_and_left_out(with_unfinished: Run):
    got = training_metrics(with_unfinished)
    assert (got.jobs, got.finished, got.unfinished, got.never_started) == (5, 3, 2, 2)
    assert got.jct_mean_s == pytest.approx(140)
    assert got.starvation_max_s == pytest.approx(50)
    # D is one sharer more from 150 on: 20 s of A's life, 50 s of C's. E fits nowhere: no sharer.
    outcome = job_outcomes(with_unfinished)
    assert outcome.active_mean[:3] == pytest.approx([410 / 170, 250 / 100, 370 / 150])
    assert np.isnan(outcome.active_mean[3:]).all()
    assert np.isnan(outcome.ftf_share[3:]).all()


def test_nothing_finished(build_run: Callable[..., Run]):
    run = build_run(
        gpus={"slow": 2},
        jobs={"id": ["A"], "gang": [1], "work": [10.0], "throughput_per_s": [[1.0]]},
        first_start_s=[-1.0],
        finish_s=[-1.0],
    )
    got = training_metrics(run)
    assert (got.unfinished, got.never_started) == (1, 1)
    assert got.makespan_s is got.jct_mean_s is got.ftf_share_max is got.starvation_max_s is None


def test_an_empty_run_has_no_statistics(no_jobs: Run):
    got = training_metrics(no_jobs)
    assert (got.jobs, got.finished, got.decisions, got.held_gpu_s) == (0, 0, 0, 0.0)
    for name, what in DEFINITIONS.items():
        if what.unit in ("s", "ratio", "fraction"):
            assert getattr(got, name) is None, name
    assert got.types == {"slow": dict.fromkeys(CAUSES)}
    json.dumps(got.as_dict(timings=True), allow_nan=False)
    assert len(per_job_frame(no_jobs)) == len(per_round_frame(no_jobs)) == 0
    assert conservation_errors(no_jobs) == []


def test_no_jobs_without_a_throughput_column(build_run: Callable[..., Run]):
    run = build_run(
        gpus={"slow": 2}, jobs={"id": [], "gang": [], "work": [], "throughput_per_s": []}
    )
    assert training_metrics(run).jobs == 0


def test_every_metric_has_unit_definition_and_source():
    held = {entry.name for entry in fields(TrainingMetrics)} - {"types", "time_limited"}
    assert set(DEFINITIONS) == held
    for name, what in DEFINITIONS.items():
        assert what.unit, name
        assert what.text, name
        assert what.source, name
        assert name.endswith("_s") == (what.unit in ("s", "GPU s")), name
        assert name.endswith("_fraction") <= (what.unit == "fraction"), name


def test_metrics_are_read_back(three_jobs: Run):
    got = training_metrics(three_jobs)
    text = json.dumps(got.as_dict(timings=True), allow_nan=False)
    assert TrainingMetrics.from_dict(json.loads(text)) == got
    without = TrainingMetrics.from_dict(json.loads(json.dumps(got.as_dict())))
    assert without == replace(got, decide_p50_s=None, decide_p95_s=None, decide_max_s=None)


def test_metrics_with_a_wrong_key_are_refused(three_jobs: Run):
    data = training_metrics(three_jobs).as_dict()
    del data["jobs"]
    with pytest.raises(ValueError, match="jbos"):
        TrainingMetrics.from_dict({**data, "jbos": 3})


def test_wall_times_do_not_change_the_bytes(three_jobs: Run):
    slower = replace(three_jobs, decide_s=three_jobs.decide_s * 7)
    one, two = training_metrics(three_jobs), training_metrics(slower)
    assert json.dumps(one.as_dict()) == json.dumps(two.as_dict())
    assert one.as_dict(timings=True) != two.as_dict(timings=True)


def test_frames(three_jobs: Run, with_unfinished: Run):
    frame = per_job_frame(with_unfinished).set_index("id")
    assert frame.loc["C", ["first_start_s", "finish_s", "jct_s", "queueing_s", "gpu_s"]].tolist() == [
        100, 200, 150, 50, 100,
    ]  # fmt: skip
    assert frame.loc["D", ["first_start_s", "finish_s", "jct_s", "ftf_share"]].isna().all()
    rounds = per_round_frame(three_jobs)
    assert rounds[["index", "type"]].to_numpy().tolist() == [
        [0, "slow"], [0, "fast"], [1, "slow"], [1, "fast"],
    ]  # fmt: skip
    assert rounds["busy_fraction"].tolist() == [0.5, 1.0, 0.5, 0.25]


def test_ledgers_add_up(three_jobs: Run, with_unfinished: Run):
    assert conservation_errors(three_jobs) == []
    assert conservation_errors(with_unfinished) == []


@pytest.mark.parametrize(
    ("part", "column", "message"),
    [
        ("rounds", "busy_gpu_s", "GPU-seconds of interval, type [0, 0]: recorded 201"),
        ("rounds", "busy_gpu_s", "busy GPU-seconds of type [0]: recorded 201, expected 200"),
        ("rounds", "stalled_gpu_s", "stalled GPU-seconds of type [0]: recorded 1, expected 0"),
        ("jobs", "gpu_s", "GPU-seconds of job [0]: recorded 171, expected 170"),
        ("leases", "work", "work of lease [0]: recorded 101, expected 100"),
        ("jobs", "work", "work of job [0]: recorded 201, expected 200"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_named(
    three_jobs: Run, part: str, column: str, message: str
):
    records: Any = getattr(three_jobs, part)
    wrong = getattr(records, column).copy()
    wrong.flat[0] += 1
    broken = replace(three_jobs, **{part: replace(records, **{column: wrong})})
    found = conservation_errors(broken)
    assert any(text.startswith(message) for text in found), found


@pytest.mark.parametrize("seed", range(20))
def test_an_equal_share_is_never_faster_than_the_whole_cluster(
    build_run: Callable[..., Run], seed: int
):
    run = _random_run(build_run, seed)
    outcome = job_outcomes(run)
    done = ~np.isnan(outcome.ftf_share)
    assert (outcome.ideal_share_s[done] >= outcome.ideal_exclusive_s[done] * (1 - 1e-12)).all()
    assert (outcome.ftf_share[done] <= outcome.ftf_exclusive[done] * (1 + 1e-12)).all()
    assert (np.isnan(outcome.ftf_share) == np.isnan(outcome.ftf_exclusive)).all()


def _random_run(build: Callable[..., Run], seed: int) -> Run:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    arrival = rng.integers(0, 50, n).astype(float)
    speed = rng.uniform(0.1, 3, (n, 2)) * (rng.random((n, 2)) < 0.8)
    speed[:, 0] += 0.1
    start = arrival + rng.integers(0, 20, n)
    length = rng.integers(1, 60, n).astype(float)
    finish = np.where(rng.random(n) < 0.8, start + length, -1.0)
    return build(
        gpus={"slow": 4, "fast": 2},
        jobs={
            "id": [f"j{index}" for index in range(n)],
            "gang": rng.integers(1, 5, n),
            "work": length * speed[:, 0],
            "throughput_per_s": speed,
            "arrival_s": arrival,
        },
        first_start_s=start.tolist(),
        finish_s=finish.tolist(),
        leases=[
            (job, start[job], start[job] + length[job], 0, 1, 0.0, speed[job, 0], "completed")
            for job in range(n)
        ],
    )
