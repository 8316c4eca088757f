"""Metrics of microservice runs: worked by hand, and read from runs that were carried out."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from apportion.executor.microservices import run
from apportion.executor.microservices.records import (
    ClassRecords,
    MicroserviceRecords,
    RoundRecords,
    Run,
    ServiceRecords,
)
from apportion.instances import Decision
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    ExecutorOptions,
    MicroserviceRound,
    Microservices,
    Scenario,
    Services,
)
from apportion.results import Labels
from apportion.results.microservices import (
    DEFINITIONS,
    MicroserviceMetrics,
    microservice_metrics,
)
from apportion.results.microservices_frames import (
    class_frame,
    microservice_frame,
    round_frame,
    service_frame,
)
from apportion.results.microservices_report import (
    HEADLINE,
    comparison_table,
    definitions_table,
    metrics_table,
)

pytestmark = pytest.mark.quick


def scenario(rounds=2):
    first = MicroserviceRound(
        microservices=Microservices.of(
            ["A", "B"], [0.6, 0.5], [-0.02, -0.1], cost=[1.0, 3.0], cpu_cores=[0.5, 2.0]
        ),
        services=Services.of(["s", "t"], [90.0, 10.0], [10.0, 20.0], [0.05, 0.01]),
        classes=CallClasses.of(
            ["S", "C", "T"], CallTrees.serial([[1, 1, 0], [0, 1, 1]]), share=[0.9, 0.1, 1.0],
            service=[0, 0, 1],
        ),
        containers=[6, 3],
    )  # fmt: skip
    return Scenario(
        name="m", start=first, rate_per_s=np.tile([90.0, 10.0], (rounds, 1)),
        share=np.tile([0.9, 0.1, 1.0], (rounds, 1)), options=ExecutorOptions(requests=1000),
    )  # fmt: skip


def by_hand():
    """Two rounds of a minute, two services of which the second had no requests at first."""
    nan = np.nan
    return Run(
        scenario(), "by hand",
        RoundRecords(
            np.array([0, 1]), np.array([0.0, 60.0]), np.array([60.0, 120.0]),
            np.array(["OPTIMAL", "FEASIBLE"]), np.array([9.0, nan]), np.array([0.0, 0.25]),
            np.array([0, 2]),
        ),
        ServiceRecords(
            rate_per_s=np.array([[90.0, 0.0], [90.0, 10.0]]),
            forecast_per_s=np.array([[99.0, 5.0], [90.0, 11.0]]),
            arrivals=np.array([[300, 0], [100, 50]]), unmodelled=np.zeros((2, 2), dtype=int),
            measured=np.array([[1000, 0], [1000, 1000]]),
            violations=np.array([[20, 0], [100, 40]]),
            missed=np.array([[False, False], [True, True]]),
            p50_ms=np.array([[2.0, nan], [3.0, 9.0]]), p95_ms=np.array([[8.0, nan], [12.0, 19.0]]),
            p99_ms=np.array([[11.0, nan], [16.0, np.inf]]),
            tail_ms=np.array([[8.0, nan], [12.0, np.inf]]),
            claimed=np.array([[True, True], [True, False]]),
            planned_violation=np.full((2, 2), 0.01), expected_violation=np.full((2, 2), 0.01),
            expected_width=np.zeros((2, 2)), forecast_l1=np.array([[0.1, 0.7], [0.3, 0.0]]),
            share_error=np.array([[0.0, 0.0], [0.2, 0.1]]),
        ),
        MicroserviceRecords(
            asked=np.array([[6, 3], [4, 3]]), held=np.array([[6, 3], [5, 4]]),
            serving=np.array([[6.0, 3.0], [5.0, 3.5]]), fewest_serving=np.array([[6, 3], [5, 3]]),
            started=np.array([[0, 0], [0, 1]]), stopped=np.array([[0, 0], [1, 0]]),
            load_per_s=np.ones((2, 2)),
        ),
        ClassRecords(
            share=np.tile([0.9, 0.1, 1.0], (2, 1)), forecast=np.tile([0.9, 0.1, 1.0], (2, 1)),
            requests=np.array([[270, 30, 0], [90, 10, 50]]),
            measured=np.array([[900, 100, 0], [900, 100, 1000]]),
            kept=np.array([[890, 90, 0], [860, 40, 960]]),
        ),
        np.array([0.5, np.nan]),
    )  # fmt: skip


def test_every_number_by_hand():
    found = microservice_metrics(by_hand())
    expected = {
        "rounds": 2, "requests": 450,
        "containers_mean": 9.0, "containers_asked_mean": 8.0, "containers_most": 9,
        "container_hours": 18 / 60, "core_hours": (11 * 0.5 + 7 * 2.0) / 60,
        "cost_mean": (6 + 9 + 5 + 12) / 2,
        # s: 300 x 2 % and 100 x 10 %; t: 50 x 4 %
        "violation_fraction": (6 + 10 + 2) / 450, "violation_worst_fraction": 16 / 400,
        "violation_worst_ratio": 4.0,
        "missed_fraction": 2 / 3, "late_fraction": 2 / 3, "endless_fraction": 1 / 3,
        "claimed_fraction": 2 / 3, "claimed_missed_fraction": 0.5,
        "tail_ratio_p50": 1.2, "tail_ratio_max": None, "p99_ratio_p50": 1.6,
        # C: 30 x 90 % and 10 x 40 %
        "class_kept_least_fraction": (27 + 4) / 40,
        "started": 1, "stopped": 1, "changes": 2, "churn_fraction": 2 / 18,
        "forecast_l1_mean": (0.1 + 0.3 + 0.0) / 3, "radius_covers_fraction": 0.5,
        "rate_error_mean": (0.1 + 0.0 + 0.1) / 3,
        "decisions": 2, "worst_gap": 0.25, "optimal_fraction": 0.5, "infeasible_fraction": 0.0,
        "decide_p50_s": 0.5, "decide_p95_s": 0.5, "decide_max_s": 0.5,
    }  # fmt: skip
    assert expected.keys() == DEFINITIONS.keys()
    for name, value in expected.items():
        assert getattr(found, name) == (None if value is None else pytest.approx(value)), name
    assert found.services == pytest.approx({"s": 0.04, "t": 0.04})
    assert found.classes == pytest.approx(
        {"S": (270 * 890 + 90 * 860) / 900 / 360, "C": 0.775, "T": 0.96}
    )
    assert found.microservices == {"A": 5.5, "B": 3.5}


def test_metrics_are_plain_data():
    found = microservice_metrics(by_hand())
    assert MicroserviceMetrics.from_dict(found.as_dict(timings=True)) == found
    plain = found.as_dict()
    assert "timings" not in plain
    assert not any("decide" in name for name in plain)
    assert MicroserviceMetrics.from_dict(plain).decide_max_s is None
    with pytest.raises(ValueError, match="missing or unknown: rounds"):
        MicroserviceMetrics.from_dict({k: v for k, v in plain.items() if k != "rounds"})


def test_nothing_to_measure():
    empty = run(scenario(0), None)
    found = microservice_metrics(empty)
    assert found.rounds == 0
    assert found.containers_mean is None
    assert found.violation_fraction is None
    assert found.optimal_fraction is None
    assert found.services == {"s": None, "t": None}
    metrics_table(found).to_text()
    for frame in (round_frame, service_frame, microservice_frame, class_frame):
        assert len(frame(empty)) == 0


class Fixed:
    subscribes = frozenset()
    reacts_to = frozenset()

    def decide(self, round_, memory):
        return Decision(Allocation.of([9, 6], [False, False]))

    def remember(self, memory, round_, decision, outcome):
        return None


def test_frames_of_a_run():
    done = run(scenario(3), Fixed())
    services = service_frame(done)
    assert services["service"].tolist() == ["s", "t"] * 3
    assert services["index"].tolist() == [0, 0, 1, 1, 2, 2]
    assert (services["violation_low"] <= services["violation"]).all()
    assert (services["violation"] <= services["violation_high"]).all()
    assert services["target_ms"].tolist() == [10.0, 20.0] * 3
    assert {entry.name for entry in fields(ServiceRecords)} <= set(services.columns)
    classes = class_frame(done)
    assert classes["service"].tolist() == ["s", "s", "t"] * 3
    assert classes["satisfied"].between(0, 1).all()
    counts = microservice_frame(done)
    assert counts["asked"].tolist() == [9, 6] * 3
    rounds = round_frame(done)
    assert rounds["held"].tolist() == counts.groupby("index")["held"].sum().tolist()
    total = services["violation"] * services["arrivals"]
    expected = total.groupby(services["index"]).sum() / rounds["arrivals"]
    assert rounds["violation"].tolist() == pytest.approx(expected.tolist())
    found = microservice_metrics(done)
    assert found.requests == int(rounds["arrivals"].sum())
    assert found.optimal_fraction is None  # a rule of thumb proves nothing
    assert found.violation_fraction == pytest.approx(
        float((rounds["violation"] * rounds["arrivals"]).sum() / rounds["arrivals"].sum())
    )


def test_a_policy_that_lets_requests_wait_does_not_win():
    found = microservice_metrics(by_hand())
    thrifty = replace(found, containers_mean=1.0, violation_worst_ratio=1.2)
    careful = replace(found, containers_mean=8.0, violation_worst_ratio=0.9)
    lavish = replace(found, containers_mean=9.0, violation_worst_ratio=0.5)
    runs = [(Labels("a"), thrifty), (Labels("b"), careful), (Labels("c"), lavish)]
    table = comparison_table(runs)
    assert (1, "containers_mean") in table.best
    assert (0, "containers_mean") not in table.best
    assert any("kept every SLA" in note for note in table.notes)
    assert [column.key for column in table.columns][3 : 3 + len(HEADLINE)] == list(HEADLINE)
    nobody = [
        (labels, replace(m, violation_worst_ratio=1.5 + i)) for i, (labels, m) in enumerate(runs)
    ]
    assert (0, "containers_mean") in comparison_table(nobody).best
    with pytest.raises(ValueError, match="no metric 'x'"):
        comparison_table(runs, shown=["x"])


def test_tables_tell_what_a_reader_must_know():
    found = replace(microservice_metrics(by_hand()), time_limited=True)
    text = metrics_table(found, timings=True).to_text()
    assert "in 33.3% of rounds and services the tail is infinite" in text
    assert "stopped by a wall limit" in text
    assert "max decide" in text
    assert "max decide" not in metrics_table(found).to_text()
    assert len(definitions_table().rows) == len(DEFINITIONS)
