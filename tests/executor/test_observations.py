"""What policies see of metrics while jobs run, and what they do not see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import observations as module
from apportion.executor.training import run
from apportion.executor.training.observations import BATCHES_MOST, POINTS_MOST
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
from apportion.instances.training.curves import INVERSE, NO_CURVE, loss_at
from apportion.instances.training.true_curves import TrueCurves

pytestmark = pytest.mark.quick


@dataclass
class First:
    """Start what fits, in order; note what is shown. ``reads`` says whether it is looked at."""

    reads: bool = True
    subscribes: frozenset[str] = frozenset()
    reacts_to: frozenset[str] = frozenset()
    seen: list[tuple[float, dict[str, list[tuple[float, float]]]]] = field(default_factory=list)
    rounds: list[TrainingRound] = field(default_factory=list)

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        jobs = round_.jobs
        self.rounds.append(round_)
        if self.reads:
            self.seen.append((round_.now_s, shown(jobs)))
        rows = np.arange(min(len(jobs), int(round_.capacity[0])))
        return Decision(Allocation.of(rows, np.zeros(rows.size, dtype=int), np.ones(rows.size)))

    def remember(self, memory: Any, *told: Any) -> Any:
        return memory

    def react(self, plan: Any, event: Any, view: Any) -> Any:
        return None, plan


def shown(jobs: Jobs) -> dict[str, list[tuple[float, float]]]:
    cuts = jobs.observed_offsets
    return {
        name: list(zip(jobs.observed_iteration[cuts[i] : cuts[i + 1]].tolist(),
                       jobs.observed_metric[cuts[i] : cuts[i + 1]].tolist(), strict=True))
        for i, name in enumerate(jobs.id.tolist())
    }  # fmt: skip


def case(names: str = "abc", gpus: int = 3, speed: float = 0.02, **more: Any) -> Scenario:
    n = len(names)
    columns = {
        "stop_on_metric": [True] * (n - 1) + [False], "metric_target": [0.3] * n,
        "iteration_cap": [400.0] * n, **more.pop("columns", {}),
    }  # fmt: skip
    truth = TrueCurves(
        np.array([INVERSE] * (n - 1) + [NO_CURVE]), np.full(n, more.pop("a", 0.5)), np.ones(n),
        np.full(n, 0.2), more.pop("noise", 0.02),
    )  # fmt: skip
    return Scenario(
        name="t", cluster=Cluster.uniform({"gpu": gpus}, gpus_per_node=4),
        jobs=Jobs.of(id=list(names), gang=[1] * n, work=[30.0] * n,
                     throughput_per_s=np.full((n, 1), speed), **columns),
        tenants=Tenants.named("all"), options=ExecutorOptions(round_s=300.0),
        true_curves=truth, **more,
    )  # fmt: skip


def test_the_true_stop_is_where_the_noiseless_metric_passes() -> None:
    done = run(case(), First())
    assert done.jobs.finish_s.tolist() == [900.0, 900.0, 1500.0]  # 18, 18 and 30 iterations
    capped = run(case(columns={"iteration_cap": [400.0, 12.0, np.inf]}), First())
    assert capped.jobs.finish_s.tolist() == [900.0, 600.0, 1500.0]


def test_one_point_a_round_is_seen_in_the_next() -> None:
    policy = First()
    run(case(noise=0.0), policy)
    first = [(k, pytest.approx(float(loss_at(INVERSE, 0.5, 1.0, 0.2, k)))) for k in (6.0, 12.0)]
    assert policy.seen[0] == (0.0, {"a": [], "b": [], "c": []})
    assert policy.seen[1] == (300.0, {"a": first[:1], "b": first[:1], "c": []})
    assert policy.seen[2] == (600.0, {"a": first, "b": first, "c": []})
    assert policy.seen[3] == (900.0, {"c": []})


def test_nothing_is_seen_of_jobs_that_wait_or_finish_no_iteration() -> None:
    policy = First()
    run(case(gpus=1, speed=0.002, columns={"metric_target": [0.5, 0.5, 0.5]}), policy)
    # 0.6 iterations a round: the second round ends after 1.2, the third after 1.8
    assert [len(seen.get("a", [])) for _, seen in policy.seen[:3]] == [0, 0, 1]
    assert all(not seen["b"] for _, seen in policy.seen[:3])


def test_noise_is_a_jobs_own() -> None:
    one, two = First(), First()
    run(case("abcd", gpus=4), one)
    run(case("bad", gpus=3), two)
    for (_, left), (_, right) in zip(one.seen[:3], two.seen[:3], strict=True):
        assert left["a"] == right["a"]
        assert left["b"] == right["b"]
        assert left["a"] != left["b"] or not left["a"]
    other = First()
    run(case("abcd", gpus=4, seed=1), other)
    assert other.seen[1][1]["a"] != one.seen[1][1]["a"]


def test_shown_rounds_stay_as_they_were() -> None:
    early, late = First(), First(reads=False)
    run(case(), early)
    run(case(), late)
    assert [shown(view.jobs) for view in late.rounds] == [seen for _, seen in early.seen]
    view = late.rounds[2].jobs
    assert not view.observed_metric.flags.writeable
    assert shown(view.take(np.array([1]))) == {"b": shown(view)["b"]}


def test_points_are_bounded_and_reading_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "POINTS_MOST", 8)
    monkeypatch.setattr(module, "BATCHES_MOST", 4)
    assert (POINTS_MOST, BATCHES_MOST) == (256, 32)
    reads, sleeps = First(), First(reads=False)
    scenario = case(columns={"metric_target": [0.205] * 3}, a=5.0)  # 40 iterations
    scenario = replace(
        scenario, jobs=replace(scenario.jobs, throughput_per_s=np.full((3, 1), 0.004))
    )
    run(scenario, reads)
    run(scenario, sleeps)
    counts = [len(seen["a"]) for _, seen in reads.seen if "a" in seen]
    assert max(counts) <= 8 + 4
    assert min(counts[13:]) >= 8 - 8 // 4
    assert shown(sleeps.rounds[-8].jobs) == reads.seen[-8][1]
    for _, seen in reads.seen:
        iterations = [k for k, _ in seen.get("a", [])]
        assert iterations == sorted(set(iterations))


def test_points_that_jobs_bring_along_are_kept() -> None:
    policy = First()
    given = {
        "observed_offsets": [0, 2, 2, 2], "observed_iteration": [1.0, 8.0],
        "observed_metric": [0.9, 0.5], "arrival_s": [600.0, 0.0, 0.0], "work_done": [8.0, 0.0, 0.0],
    }  # fmt: skip
    run(case(columns=given), policy)
    assert policy.seen[2][1]["a"] == [(1.0, 0.9), (8.0, 0.5)]
    assert [k for k, _ in policy.seen[3][1]["a"]] == [1.0, 8.0, 14.0]


def test_the_truth_does_not_show_before_it_is_seen() -> None:
    """Another asymptote, another stop: the first round and the other job's rounds are the same."""
    one, two = First(), First()
    run(case(), one)
    truth = case().true_curves
    assert truth is not None
    other = replace(truth, c=np.array([0.2, 0.1, 0.2]))
    run(replace(case(), true_curves=other), two)
    assert one.seen[0] == two.seen[0]
    for left, right in zip(one.rounds[:2], two.rounds[:2], strict=True):
        assert shown(left.jobs)["a"] == shown(right.jobs)["a"]
        for name in ("work", "work_done", "iteration_cap", "metric_target", "throughput_per_s"):
            assert np.array_equal(getattr(left.jobs, name), getattr(right.jobs, name)), name
    assert one.seen[1][1]["b"] != two.seen[1][1]["b"]


def test_a_resumed_run_sees_the_same(tmp_path: Path) -> None:
    whole, again = First(), First()
    run(case(), whole, journal=tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    run(case(), again, journal=tmp_path)
    assert again.seen == whole.seen[2:]
    assert path.read_text() == "".join(lines)


def test_journals_of_other_curves_are_refused(tmp_path: Path) -> None:
    run(case(), First(), journal=tmp_path)
    with pytest.raises(Exception, match="journal is of scenario"):
        run(case(noise=0.03), First(), journal=tmp_path)


def test_curves_must_match_the_jobs() -> None:
    with pytest.raises(Exception, match="true_curves has 3 rows, there are 4 jobs"):
        replace(case("abcd"), true_curves=case().true_curves)
