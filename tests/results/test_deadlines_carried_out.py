"""Deadlines of jobs whose reports are wrong: the truth decides, the policy sees the report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from apportion.executor.training import run
from apportion.executor.training.records import Run
from apportion.instances import Decision
from apportion.instances.training import (
    Allocation,
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.results import deadline_outcomes, per_job_frame, training_metrics

pytestmark = pytest.mark.quick


@dataclass
class Watching:
    """Everybody runs, as they all fit; what is shown of the jobs is written down."""

    subscribes: ClassVar[frozenset[Any]] = frozenset()
    reacts_to: ClassVar[frozenset[Any]] = frozenset()
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def decide(self, round_: TrainingRound, memory: Any) -> Any:
        jobs, starts = round_.jobs, round_.jobs.deadline_offsets
        for row, name in enumerate(jobs.id.tolist()):
            own = slice(starts[row], starts[row + 1])
            self.seen.append({
                "job": name,
                "now_s": round_.now_s,
                "slo": bool(jobs.slo[row]),
                "left": float(jobs.work[row] - jobs.work_done[row]),
                "work": float(jobs.work[row]),
                "due": jobs.deadline_s[own].tolist(),
                "value": jobs.deadline_value[own].tolist(),
            })  # fmt: skip
        n = len(jobs)
        return Decision(Allocation.of(np.arange(n), np.zeros(n, dtype=np.int64), jobs.gang))

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> None:
        return None

    def react(self, plan: Any, event: Any, view: Any) -> Any:
        return None, plan

    def of(self, job: str) -> list[dict[str, Any]]:
        return [one for one in self.seen if one["job"] == job]


def scenario(truth: list[float] | None) -> Scenario:
    """Four jobs of one GPU and 100 units at 1 a second, all at once on four GPUs.

    Decisions fall on multiples of 50 s. ``soft`` is worth 10 by 100 s, 8 by 110 and 5 by 120;
    ``hard`` has to be done by 100 s, ``tight`` by 60 s; ``best`` has no deadline.
    """
    jobs = Jobs.of(
        id=["soft", "hard", "tight", "best"], gang=[1] * 4, work=[100.0] * 4,
        throughput_per_s=[[1.0]] * 4, slo=[True, True, True, False],
        deadline_offsets=[0, 3, 4, 5, 5], deadline_s=[100.0, 110.0, 120.0, 100.0, 60.0],
        deadline_value=[10.0, 8.0, 5.0, 10.0, 10.0],
    )  # fmt: skip
    return Scenario(
        "slo", Cluster.uniform({"GPU": 4}), jobs, Tenants.named("all"),
        options=ExecutorOptions(round_s=50.0),
        true_work=None if truth is None else np.array(truth),
    )  # fmt: skip


def carried_out(truth: list[float] | None) -> tuple[Run, Watching]:
    policy = Watching()
    return run(scenario(truth), policy), policy


def test_exact_reports_end_on_the_deadline():
    done, _ = carried_out(None)
    assert done.jobs.finish_s.tolist() == [100, 100, 100, 100]
    got = deadline_outcomes(done)
    assert got.met.tolist() == [0, 0, -1, -1]
    assert training_metrics(done).deadline_miss_fraction == pytest.approx(1 / 3)


def test_reports_too_small_and_too_large():
    """Really 115, 101, 60 and 30 units: more than reported, hardly more, less, and less."""
    done, policy = carried_out([115.0, 101.0, 60.0, 30.0])
    assert done.jobs.finish_s.tolist() == [115, 101, 60, 30]
    assert done.jobs.work.tolist() == [115, 101, 60, 30]
    got = deadline_outcomes(done)
    assert got.met.tolist() == [2, -1, 0, -1]  # the third step; one second late; in time after all
    metrics = training_metrics(done)
    assert metrics.deadline_miss_fraction == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics.deadline_late_fraction == pytest.approx(2 / 3)
    assert metrics.deadline_value == 15
    assert metrics.best_effort_jct_mean_s == 30
    assert per_job_frame(done)["work"].tolist() == [115, 101, 60, 30]
    # the policy was shown the reports, and the deadlines as they are
    assert {one["work"] for one in policy.seen} == {100.0}
    soft = policy.of("soft")
    assert [one["now_s"] for one in soft] == [0, 50, 100]
    assert [one["left"] for one in soft] == [100, 50, 0]
    assert all(one["due"] == [100, 110, 120] and one["value"] == [10, 8, 5] for one in soft)
    assert all(one["slo"] for one in soft)
    assert policy.of("best")[0]["due"] == []
    assert not policy.of("best")[0]["slo"]


def test_what_is_shown_does_not_depend_on_the_truth():
    """Until the first job ends nobody can tell the two runs apart."""
    _, one = carried_out([115.0, 101.0, 60.0, 60.0])
    _, two = carried_out([400.0, 300.0, 70.0, 60.0])
    before = [[entry for entry in who.seen if entry["now_s"] < 60] for who in (one, two)]
    assert before[0] == before[1]
    assert len(before[0]) == 8
    assert one.seen != two.seen


def test_a_run_that_stops_early_leaves_deadlines_unkept():
    short = replace(scenario([115.0, 101.0, 60.0, 30.0]), options=ExecutorOptions(50.0, until_s=90))
    done = run(short, Watching())
    assert deadline_outcomes(done).met.tolist() == [-1, -1, 0, -1]
    metrics = training_metrics(done)
    assert metrics.unfinished == 2
    assert metrics.deadline_miss_fraction == pytest.approx(2 / 3)
    assert metrics.slo_jct_mean_s == 60
