"""Earliest deadline first: by hand, against a plain loop, and in runs with deadlines at boundaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.baselines.edf import EDF
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks, random_round

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]
LEASE_S = 100.0


def jobs_of(gang: list[int], work: list[float], due: list[list[float]], **columns: Any) -> Jobs:
    n = len(gang)
    flat = [at for own in due for at in own]
    value = [10.0 - at for own in due for at in range(len(own))]
    given = {
        "throughput_per_s": np.ones((n, 1)), "arrival_s": np.zeros(n),
        "slo": [bool(own) for own in due],
        "deadline_offsets": np.cumsum([0, *map(len, due)]), "deadline_s": flat,
        "deadline_value": value,
    }  # fmt: skip
    return Jobs.of(id=[chr(65 + row) for row in range(n)], gang=gang, work=work, **given | columns)


def round_of(jobs: Jobs, gpus: int, **more: Any) -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs, duration_s=LEASE_S, **more
    )


def decide(policy: EDF, round_: TrainingRound) -> Any:
    return policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))


def carried_out(policy: EDF, jobs: Jobs, gpus: int) -> list[float]:
    scenario = Scenario(
        name="edf", cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=LEASE_S),
    )  # fmt: skip
    return run(scenario, BoundPolicy(policy, Solver())).jobs.finish_s.tolist()


@pytest.mark.quick
@pytest.mark.parametrize("preemptive", [False, True])
def test_lease_wise_order_is_not_optimal(preemptive: bool) -> None:
    """Two GPUs, A due after one lease, B and C after two, C needs both: A and B go first."""
    jobs = jobs_of([1, 1, 1], [100.0, 100.0, 200.0], [[100.0], [200.0], [200.0]])
    policy = EDF(preemptive=preemptive)
    first = decide(policy, round_of(jobs, 2))
    assert first.allocation.job.tolist() == [0, 1]
    assert first.status == "HEURISTIC"
    assert carried_out(policy, jobs, 2) == [100.0, 100.0, 300.0]
    # another order misses none: C starts at once beside A, B follows A
    swapped = jobs_of([1, 1, 1], [100.0, 100.0, 200.0], [[100.0], [200.0], [200.0]],
                      arrival_s=[0.0, 0.0, -1.0])  # fmt: skip
    assert carried_out(policy, swapped, 2) == [100.0, 200.0, 200.0]


@pytest.mark.quick
@pytest.mark.parametrize(("due", "first"), [(100.0, "B"), (100.0 - 1e-3, "A"), (99.0, "A")])
@pytest.mark.parametrize("preemptive", [False, True])
def test_a_deadline_counts_up_to_the_instant_at_which_it_can_be_met(
    due: float, first: str, preemptive: bool
) -> None:
    """B, submitted later, goes ahead of best-effort A only while it can be in time."""
    jobs = jobs_of([1, 1], [300.0, 100.0], [[], [due]], arrival_s=[-5.0, 0.0])
    found = decide(EDF(preemptive=preemptive), round_of(jobs, 1))
    assert jobs.id[found.allocation.job].tolist() == [first]
    ends = carried_out(EDF(preemptive=preemptive), jobs, 1)
    assert (ends[1] <= due) == (first == "B")


@pytest.mark.quick
def test_a_deadline_now_or_one_that_earns_nothing_is_none() -> None:
    jobs = jobs_of([1, 1, 1], [0.5, 50.0, 50.0], [[], [100.0], [100.0]],
                   work_done=[0.0, 60.0, 60.0], arrival_s=[-5.0, 0.0, 0.0])  # fmt: skip
    at = round_of(jobs, 1, now_s=100.0)
    assert jobs.id[decide(EDF(), at).allocation.job].tolist() == ["A"]
    before = round_of(jobs, 1, now_s=99.0)
    assert jobs.id[decide(EDF(), before).allocation.job].tolist() == ["B"]
    worthless = replace(jobs, deadline_value=np.array([0.0, 1.0]))
    assert jobs.id[decide(EDF(), round_of(worthless, 1)).allocation.job].tolist() == ["C"]


@pytest.mark.quick
def test_a_soft_job_goes_by_the_next_deadline_it_can_meet() -> None:
    jobs = jobs_of([1, 1], [100.0, 300.0], [[290.0], [250.0, 280.0, 500.0]])
    found = decide(EDF(), round_of(jobs, 1))
    assert found.per_job["due_s"].tolist() == [290.0, 500.0]
    assert found.allocation.job.tolist() == [0]


@pytest.mark.quick
def test_running_jobs_keep_their_gpus_unless_it_preempts() -> None:
    on = {"running": [True, False], "previous_type": [0, -1], "held_gpus": [1, 0]}
    jobs = jobs_of([1, 1], [300.0, 100.0], [[900.0], [200.0]], **on)
    assert decide(EDF(), round_of(jobs, 1)).allocation.job.tolist() == [0]
    assert decide(EDF(preemptive=True), round_of(jobs, 1)).allocation.job.tolist() == [1]


def with_deadlines(rng: np.random.Generator, round_: TrainingRound) -> TrainingRound:
    """Give some jobs of a random round up to three deadlines, many of them in vain."""
    jobs, n = round_.jobs, len(round_.jobs)
    best = np.maximum(jobs.throughput_per_s.max(axis=1), 0.1)
    left_s = (jobs.work - jobs.work_done) / best
    counts = rng.integers(0, 4, n)
    flat: list[float] = []
    for row, count in enumerate(counts.tolist()):
        first = round_.now_s + left_s[row] * rng.choice([0.5, 1.0, 1.0, 1.5, 4.0])
        steps = np.cumsum(rng.uniform(1.0, 900.0, count))
        flat += (first + np.concatenate(([0.0], steps))[:count]).tolist()
    columns = {
        name: getattr(jobs, name)
        for name in ("gang", "work", "throughput_per_s", "arrival_s", "running", "previous_type",
                     "held_gpus", "work_done", "preemptible", "code")
    }  # fmt: skip
    value = [float(9 - at) for count in counts.tolist() for at in range(count)]
    return replace(round_, jobs=Jobs.of(
        id=jobs.id, slo=rng.random(n) < 0.8, deadline_offsets=np.cumsum([0, *counts.tolist()]),
        deadline_s=flat, deadline_value=value, **columns,
    ))  # fmt: skip


def expected(policy: EDF, round_: TrainingRound) -> dict[int, int]:
    """The rule in words, job by job."""
    jobs, free = round_.jobs, round_.capacity.tolist()
    kinds = range(len(free))
    able = [
        [k for k in kinds if jobs.throughput_per_s[j, k] > 0 and jobs.gang[j] <= round_.capacity[k]]
        for j in range(len(jobs))
    ]
    plan: dict[int, int] = {}
    for j in range(len(jobs)):
        stays = jobs.running[j] and not jobs.preemptible[j]
        if jobs.running[j] and (stays or not policy.preemptive):
            plan[j] = int(jobs.previous_type[j])
            free[plan[j]] -= int(jobs.gang[j])
    keys = []
    for j in range(len(jobs)):
        if j in plan or not able[j]:
            continue
        left_s = (jobs.work[j] - jobs.work_done[j]) / max(
            jobs.throughput_per_s[j, k] for k in able[j]
        )
        own = jobs.deadline_s[jobs.deadline_offsets[j] : jobs.deadline_offsets[j + 1]].tolist()
        good = [at for at in own if jobs.slo[j] and round_.now_s + left_s <= at + 1e-6]
        keys.append((min(good, default=float("inf")), jobs.arrival_s[j], j))
    for _, _, j in sorted(keys):
        speed = [(jobs.throughput_per_s[j, k], jobs.previous_type[j] == k, -k) for k in able[j]
                 if free[k] >= jobs.gang[j]]  # fmt: skip
        if speed:
            plan[j] = -max(speed)[2]
            free[plan[j]] -= int(jobs.gang[j])
    return plan


@pytest.mark.parametrize("preemptive", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_against_a_plain_loop(seed: int, preemptive: bool) -> None:
    rng = np.random.default_rng(seed)
    round_ = with_deadlines(rng, random_round(rng, jobs=12, types=int(rng.integers(1, 4))))
    policy = EDF(preemptive=preemptive)
    plan = decide(policy, round_).allocation
    assert not check(round_, plan)
    found = dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))
    assert found == expected(policy, round_)


@pytest.mark.quick
@pytest.mark.parametrize("preemptive", [False, True])
def test_rounds_are_skipped_only_where_time_changes_nothing(preemptive: bool) -> None:
    rng = np.random.default_rng(3)
    n = 40
    work = rng.uniform(50.0, 900.0, n).round()
    arrival = np.sort(rng.uniform(0, 3000, n)).round()
    due = [[float(a + w * f)] if f else [] for a, w, f in zip(
        arrival, work, rng.choice([0.0, 1.2, 2.0, 6.0], n), strict=True
    )]  # fmt: skip
    jobs = jobs_of(rng.choice([1, 2, 4], n).tolist(), work.tolist(), due, arrival_s=arrival)
    scenario = Scenario(
        name="edf", cluster=Cluster.uniform({"GPU": 6}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=LEASE_S),
    )  # fmt: skip

    class Always(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            return replace(super().decide(round_, memory), next_decision_s=None)

    policy = EDF(preemptive=preemptive)
    some = run(scenario, BoundPolicy(policy, Solver()))
    every = run(scenario, Always(policy, Solver()))
    assert some.jobs.finish_s.tolist() == every.jobs.finish_s.tolist()
    assert some.rounds.now_s.size < every.rounds.now_s.size


@pytest.mark.quick
def test_parameters_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InstanceError, match=r"edf\.preemptive = 1"):
        EDF(preemptive=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{policy.preemptive}-{name}")
        for policy in (EDF(), EDF(preemptive=True))
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
