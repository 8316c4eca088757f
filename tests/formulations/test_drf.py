"""DRF: dominant shares by hand, against a plain loop, and within rounds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.peers.drf import DRF, dominant_shares, progressive_filling
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]


def decide(policy: DRF, round_: TrainingRound) -> Any:
    return policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))


def runs(decision: Any) -> dict[int, int]:
    plan = decision.allocation
    return dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))


@pytest.mark.quick
def test_three_and_two_tasks_by_hand() -> None:
    """9 CPUs, 18 GB; tasks of A take (1, 4), of B (3, 1): 3 and 2 tasks, both at 2/3."""
    user = np.array([0] * 9 + [1] * 9)
    demand = np.where(user[:, None] == 0, [[1.0, 4.0]], [[3.0, 1.0]])
    capacity = np.array([9.0, 18.0])
    served, has = progressive_filling(
        user, demand, capacity, weight=np.ones(2), held=np.zeros((2, 2))
    )
    assert np.bincount(user[served]).tolist() == [3, 2]
    assert has.tolist() == [[3.0, 12.0], [6.0, 2.0]]
    assert dominant_shares(has, capacity).tolist() == [float(Fraction(2, 3))] * 2


@pytest.mark.quick
def test_the_same_as_whole_gangs_of_a_round() -> None:
    """The example with GPUs that never bind: 100 of them, and one for each job."""
    n = 18
    owner = [0] * 9 + [1] * 9
    round_ = TrainingRound(
        cluster=Cluster.uniform(
            {"only": 100}, gpus_per_node=100, cpus_per_node=9.0, node_memory_gib=18.0
        ),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=[1] * n, work=[1.0] * n,
            throughput_per_s=np.ones((n, 1)), tenant=owner,
            cpus=np.where(np.array(owner) == 0, 1.0, 3.0),
            memory_gib=np.where(np.array(owner) == 0, 4.0, 1.0),
        ),
        tenants=Tenants.named("A", "B"),
    )  # fmt: skip
    assert sorted(runs(decide(DRF(), round_))) == [0, 1, 2, 9, 10]


@pytest.mark.quick
def test_weights_and_what_is_held_count() -> None:
    """8 GPUs, equal jobs of one: weights 3 and 1 give 6 and 2; who holds 4 gets less."""
    user = np.array([0] * 8 + [1] * 8)
    demand, capacity = np.ones((16, 1)), np.array([8.0])
    served, _ = progressive_filling(
        user, demand, capacity, weight=np.array([3.0, 1.0]), held=np.zeros((2, 1))
    )
    assert np.bincount(user[served]).tolist() == [6, 2]
    served, has = progressive_filling(
        user, demand, capacity, weight=np.ones(2), held=np.array([[3.0], [0.0]])
    )
    assert np.bincount(user[served]).tolist() == [1, 4]
    assert has.tolist() == [[4.0], [4.0]]


@pytest.mark.quick
def test_a_share_of_nothing_is_nothing_and_something_of_nothing_is_all() -> None:
    share = dominant_shares(np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]), np.array([0.0, 4.0]))
    assert share.tolist() == [0.25, 0.0, np.inf]
    assert dominant_shares(np.array([[1.0, 5.0]]), np.array([4.0, np.inf])).tolist() == [0.25]


def draw(seed: int) -> TrainingRound:
    rng = np.random.default_rng(seed)
    n, u, k = int(rng.integers(1, 14)), int(rng.integers(1, 5)), int(rng.integers(1, 3))
    gpus = {f"t{i}": int(rng.integers(1, 9)) for i in range(k)}
    rates = rng.choice([0.0, 1.0, 2.0], (n, k))
    gang, kinds, free = rng.choice([1, 2, 3], n), np.full(n, -1), list(gpus.values())
    for j in range(n):
        kind = int(rng.integers(k))
        if rng.random() < 0.3 and rates[j, kind] > 0 and gang[j] <= free[kind]:
            kinds[j] = kind
            free[kind] -= int(gang[j])
    on = kinds >= 0
    return TrainingRound(
        cluster=Cluster.uniform(
            gpus, gpus_per_node=16, cpus_per_node=float(rng.choice([np.inf, 40.0])),
            node_memory_gib=float(rng.choice([np.inf, 64.0])),
        ),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.ones(n), throughput_per_s=rates,
            tenant=rng.integers(0, u, n), arrival_s=rng.integers(0, 4, n) * 10.0,
            cpus=rng.choice([1.0, 4.0, 9.0], n), memory_gib=rng.choice([2.0, 16.0], n),
            running=on, previous_type=kinds, held_gpus=np.where(on, gang, 0),
        ),
        now_s=100.0,
        tenants=Tenants(
            np.array([f"t{i}" for i in range(u)]), rng.choice([1.0, 2.0], u), np.full(u, np.inf)
        ),
    )  # fmt: skip


@pytest.mark.parametrize("preemptive", [True, False])
@pytest.mark.parametrize("seed", CASES)
def test_equals_a_plain_loop_in_fractions(seed: int, preemptive: bool) -> None:
    round_ = draw(seed)
    jobs, cluster, n = round_.jobs, round_.cluster, len(round_.jobs)
    free = [int(c) for c in cluster.gpus]
    limits = [Fraction(sum(free))]
    asked = [[Fraction(int(g))] for g in jobs.gang]
    for there, column in (
        (cluster.node_cpus, jobs.cpus),
        (cluster.node_memory_gib, jobs.memory_gib),
    ):
        if np.isfinite(there).all():
            limits.append(Fraction(float(there.sum())))
            for j in range(n):
                asked[j].append(Fraction(float(column[j])))
    users = round_.tenants.id.size
    has = [[Fraction(0)] * len(limits) for _ in range(users)]
    left, out = list(limits), dict[int, int]()

    def give(j: int, kind: int) -> None:
        out[j] = kind
        free[kind] -= int(jobs.gang[j])
        for r, need in enumerate(asked[j]):
            left[r] -= need
            has[int(jobs.tenant[j])][r] += need

    for j in np.flatnonzero(jobs.running).tolist() if not preemptive else []:
        give(j, int(jobs.previous_type[j]))
    lines = {
        u: sorted(
            (j for j in range(n) if jobs.tenant[j] == u and j not in out),
            key=lambda j: (jobs.arrival_s[j], j),
        )
        for u in range(users)
    }
    while any(lines.values()):
        some = [u for u in lines if lines[u]]
        u = min(some, key=lambda u: (
            max(h / c for h, c in zip(has[u], limits, strict=True))
            / Fraction(float(round_.tenants.weight[u])), u,
        ))  # fmt: skip
        j = lines[u].pop(0)
        rate, last = jobs.throughput_per_s, int(jobs.previous_type[j])
        fits = [i for i in range(len(free)) if rate[j, i] > 0 and free[i] >= jobs.gang[j]]
        if fits and all(a <= b for a, b in zip(asked[j], left, strict=True)):
            give(j, max(fits, key=lambda i: (rate[j, i], i == last, -i)))
    decision = decide(DRF(preemptive=preemptive), round_)
    assert runs(decision) == out
    assert not check(round_, decision.allocation)


def scenario(**options: Any) -> Scenario:
    rng = np.random.default_rng(2)
    n = 60
    return Scenario(
        name="drf", cluster=Cluster.uniform({"slow": 6, "fast": 6}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=rng.choice([1, 2, 4], n),
            work=rng.uniform(100.0, 4000.0, n).round(), tenant=rng.integers(0, 3, n),
            throughput_per_s=rng.choice([1.0, 2.0], (n, 2)),
            arrival_s=np.sort(rng.uniform(0.0, 8000.0, n)).round(),
        ),
        tenants=Tenants.named("a", "b", "c"), options=ExecutorOptions(**options),
    )  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("preemptive", [True, False])
def test_all_jobs_end_and_skipped_rounds_change_nothing(preemptive: bool) -> None:
    class Always(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            return type(found := super().decide(round_, memory))(found.allocation)

    policy = DRF(preemptive=preemptive)
    some, every = (run(scenario(), kind(policy, Solver())) for kind in (BoundPolicy, Always))
    assert (some.jobs.finish_s >= 0).all()
    assert some.jobs.finish_s.tolist() == every.jobs.finish_s.tolist()
    assert some.rounds.now_s.size < every.rounds.now_s.size
    assert (some.jobs.preemptions.sum() > 0) == preemptive


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{preemptive}-{name}")
        for preemptive in (True, False)
        for name, judge in policy_checks(DRF(preemptive=preemptive))
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
