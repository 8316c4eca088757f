"""Comparisons, and tables over one run."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from apportion.executor.training.records import Run
from apportion.results import (
    DEFINITIONS,
    Labels,
    TrainingMetrics,
    comparison_table,
    definitions_table,
    metrics_table,
    sparkline,
    training_metrics,
    utilisation_figure,
    utilisation_table,
)

pytestmark = pytest.mark.quick

SHOWN = ("unfinished", "jct_mean_s", "busy_fraction")


@pytest.fixture
def metrics(three_jobs: Run) -> TrainingMetrics:
    return training_metrics(three_jobs)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_mean_and_spread_over_seeds(metrics: TrainingMetrics):
    runs = [
        (Labels("fft", seed=seed), replace(metrics, jct_mean_s=hours * 3600.0))
        for seed, hours in enumerate([2, 3, 7])
    ]
    runs += [(Labels("fifo", seed=seed), replace(metrics, jct_mean_s=36000.0)) for seed in range(3)]
    table = comparison_table(runs, shown=SHOWN)
    assert lines(table.to_markdown()) == [
        "| fft | **4.00 (2.00..7.00)** | 56.2 |",
        "| fifo | 10.00 | 56.2 |",
    ]
    assert table.notes == ("mean over 3 seeds (least..largest)",)
    row = next(csv.DictReader(io.StringIO(table.to_csv())))
    assert [row[f"jct_mean_s{end}"] for end in ("", "_min", "_max")] == [
        "14400.0", "7200.0", "25200.0",
    ]  # fmt: skip
    assert row["seeds"] == "3"
    assert not any(key.startswith("decide") for key in row)


def test_seeds_that_differ_are_said(metrics: TrainingMetrics):
    runs = [(Labels("fft", seed=seed), metrics) for seed in range(2)]
    table = comparison_table([*runs, (Labels("fifo", "no node 3"), metrics)])
    assert "seeds differ: fft: 2, fifo (no node 3): 1" in table.notes[0]


def test_the_mean_of_equal_values_is_that_value(metrics: TrainingMetrics):
    runs = [(Labels("fft", seed=seed), replace(metrics, jct_mean_s=0.1)) for seed in range(3)]
    row = next(csv.DictReader(io.StringIO(comparison_table(runs).to_csv())))
    assert row["jct_mean_s"] == row["jct_mean_s_min"] == "0.1"


def test_who_leaves_jobs_unfinished_is_not_best(metrics: TrainingMetrics):
    table = comparison_table(
        [
            (Labels("fft"), replace(metrics, jct_mean_s=7200.0)),
            (Labels("srtf"), replace(metrics, jct_mean_s=3600.0, unfinished=2)),
            (Labels("fifo"), replace(metrics, jct_mean_s=36000.0)),
        ],
        shown=SHOWN,
    )
    assert lines(table.to_markdown()) == [
        "| fft | **0** | **2.00** | 56.2 |",
        "| srtf | 2 | 1.00 | 56.2 |",
        "| fifo | **0** | 10.00 | 56.2 |",
    ]
    assert any("leave them out" in note for note in table.notes)


def test_ties_share_the_mark_and_the_best_is_sought_within_a_variant(metrics: TrainingMetrics):
    hours = {"base": (2, 2, 3), "8 more": (1, 4, 4)}
    table = comparison_table(
        [
            (Labels(policy, variant), replace(metrics, jct_mean_s=each * 3600.0))
            for variant, row in hours.items()
            for policy, each in zip(("fft", "srtf", "fifo"), row, strict=True)
        ],
        shown=("jct_mean_s",),
    )
    assert lines(table.to_markdown()) == [
        "| fft | base | **2.00** |",
        "| srtf | base | **2.00** |",
        "| fifo | base | 3.00 |",
        "| fft | 8 more | **1.00** |",
        "| srtf | 8 more | 4.00 |",
        "| fifo | 8 more | 4.00 |",
    ]


def test_what_is_missing_is_a_dash_and_never_best(metrics: TrainingMetrics):
    table = comparison_table(
        [
            (Labels("fft"), replace(metrics, worst_gap=0.1)),
            (Labels("fifo"), replace(metrics, worst_gap=None)),
        ],
        shown=("worst_gap",),
    )
    assert lines(table.to_markdown()) == ["| fft | 10.0 |", "| fifo | - |"]


def test_wall_times_stay_out_of_what_must_repeat(metrics: TrainingMetrics):
    slow = replace(metrics, decide_p95_s=9.0, decide_max_s=9.0, decide_p50_s=9.0)
    one, two = (comparison_table([(Labels("fft"), each)]) for each in (metrics, slow))
    for write in ("to_csv", "to_json", "to_markdown", "to_text"):
        assert getattr(one, write)() == getattr(two, write)()
        assert getattr(one, write)(timings=True) != getattr(two, write)(timings=True)


def test_a_wall_limit_is_said(metrics: TrainingMetrics):
    limited = replace(metrics, time_limited=True)
    assert "wall limit" in comparison_table([(Labels("fft"), limited)]).notes[0]
    assert "wall limit" in metrics_table(limited).notes[0]


def test_bad_comparisons(metrics: TrainingMetrics):
    with pytest.raises(ValueError, match="no metric 'jct'"):
        comparison_table([(Labels("fft"), metrics)], shown=["jct"])
    with pytest.raises(ValueError, match="given twice"):
        comparison_table([(Labels("fft"), metrics), (Labels("fft"), metrics)])


def test_no_runs():
    table = comparison_table([])
    assert table.notes == ("no runs",)
    assert "policy" in table.to_text()


def test_metrics_of_one_run(metrics: TrainingMetrics, with_unfinished: Run):
    table = metrics_table(metrics)
    assert "| mean JCT | 2.33 min |" in table.to_markdown()
    row = next(row for row in csv.DictReader(io.StringIO(table.to_csv())) if "p50" in row["metric"])
    assert row == {"metric": "jct_p50_s", "value": "150.0", "unit": "s"}
    assert "decide" not in table.to_text()
    assert "| p50 decide | 200 ms |" in metrics_table(metrics, timings=True).to_markdown()
    assert metrics_table(training_metrics(with_unfinished)).notes[0].startswith("2 of 5 jobs")


def test_utilisation_by_type(metrics: TrainingMetrics, no_jobs: Run):
    table = utilisation_table(metrics)
    assert lines(table.to_markdown()) == [
        "| slow | 50.0 | 0.0 | 50.0 | 0.0 | 0.0 | 0.0 | 0.0 |",
        "| fast | 62.5 | 5.0 | 25.0 | 0.0 | 0.0 | 7.5 | 0.0 |",
        "| all | 56.2 | 2.5 | 37.5 | 0.0 | 0.0 | 3.8 | 0.0 |",
    ]
    empty = utilisation_table(training_metrics(no_jobs))
    assert lines(empty.to_markdown())[0] == "| slow | - | - | - | - | - | - | - |"


def test_definitions_are_a_table():
    assert len(definitions_table().rows) == len(DEFINITIONS)
    assert "jct_mean_s" in definitions_table().to_text(width=80)


def test_sparkline():
    assert sparkline([0, 0.001, 0.5, 0.999, 1, np.nan]) == "▁▂▅▇█ "
    assert sparkline([]) == ""


def test_utilisation_over_time(three_jobs: Run, no_jobs: Run):
    # slow: half of 2 GPUs all the time; fast: full, then 50 of 200 GPU-seconds.
    assert utilisation_figure(three_jobs, width=12).plain == (
        "slow  ▅▅▅▅▅▅▅▅▅▅▅▅   50%\nfast  ██████▃▃▃▃▃▃   62%\n      0 s 3.33 min  busy"
    )
    assert utilisation_figure(no_jobs).plain == "no rounds recorded"


def test_a_bar_averages_what_it_covers(three_jobs: Run):
    # One bar over 200 s: 250 of 400 GPU-seconds on fast are busy.
    assert utilisation_figure(three_jobs, width=1).plain.splitlines()[1] == "fast  ▅   62%"


def test_deadlines_are_compared_where_some_job_has_one(metrics: TrainingMetrics):
    missed = replace(metrics, slo_jobs=4, deadline_miss_fraction=0.25, best_effort_jct_mean_s=600.0)
    told = comparison_table([(Labels("edf"), missed), (Labels("fifo"), metrics)]).to_text(width=200)
    assert "25.0" in told
    assert "25.0" not in comparison_table([(Labels("fifo"), metrics)]).to_text(width=200)
    label = DEFINITIONS["deadline_miss_fraction"].label
    assert label.split()[0] in told
    assert label not in comparison_table([(Labels("fifo"), metrics)]).to_markdown()
