"""Quotas: by hand, against plain loops, and over whole runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.baselines.quota import DynamicQuota, StaticQuota
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    Commitments,
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


def runs(decision: Any) -> dict[int, int]:
    plan = decision.allocation
    return dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))


def decide(policy: Any, round_: TrainingRound) -> Any:
    return policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))


def tenants(*quota: float) -> Tenants:
    u = len(quota)
    return Tenants(np.array([f"t{i}" for i in range(u)]), np.ones(u), np.array(quota))


def build(
    gang: list[int], owner: list[int], gpus: int, *quota: float, on: dict[int, float] | None = None,
    **columns: Any,
) -> TrainingRound:  # fmt: skip
    """Make a round; ``on`` tells when the jobs that run were started."""
    n, since = len(gang), on or {}
    running = np.array([j in since for j in range(n)])
    return TrainingRound(
        cluster=Cluster.uniform({"only": gpus}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.full(n, 1e6), tenant=owner,
            throughput_per_s=np.ones((n, 1)), arrival_s=np.arange(n) * 1.0, running=running,
            previous_type=np.where(running, 0, -1), held_gpus=np.where(running, gang, 0),
            lease_start_s=[since.get(j, -1.0) for j in range(n)], **columns,
        ),
        now_s=1000.0, tenants=tenants(*quota),
    )  # fmt: skip


@pytest.mark.quick
def test_idle_gpus_of_others_stay_idle_under_static_quotas() -> None:
    round_ = build([2, 2, 2, 1], [0, 0, 0, 1], 8, 4, 4)
    assert runs(decide(StaticQuota(), round_)) == {0: 0, 1: 0, 3: 0}
    assert runs(decide(DynamicQuota(), round_)) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert runs(decide(DynamicQuota(overcommit=1.0), round_)) == {0: 0, 1: 0, 3: 0}


@pytest.mark.quick
def test_the_head_of_a_line_holds_back_its_own_tenant_only() -> None:
    round_ = build([3, 2, 1, 1], [0, 0, 0, 1], 8, 4, 4)
    assert runs(decide(StaticQuota(), round_)) == {0: 0, 3: 0}
    assert runs(decide(StaticQuota(strict=False), round_)) == {0: 0, 2: 0, 3: 0}


@pytest.mark.quick
def test_running_jobs_are_never_stopped_by_static_quotas() -> None:
    """The tenant is above its quota, because that has shrunk: nothing new starts for it."""
    round_ = build([4, 4, 2], [0, 0, 1], 12, 4, 4, on={0: 10.0, 1: 20.0})
    assert runs(decide(StaticQuota(), round_)) == {0: 0, 1: 0, 2: 0}
    round_ = build([4, 4, 1], [0, 0, 0], 12, 4, 4, on={0: 10.0, 1: 20.0})
    assert runs(decide(StaticQuota(), round_)) == {0: 0, 1: 0}


@pytest.mark.quick
def test_whoever_runs_beyond_its_quota_is_stopped_for_one_within() -> None:
    """Full cluster; the second tenant comes back for its quota: the last started goes."""
    round_ = build([4, 2, 2, 2], [0, 0, 0, 1], 8, 4, 4, on={0: 1.0, 1: 2.0, 2: 3.0})
    assert runs(decide(DynamicQuota(overcommit=2.0), round_)) == {0: 0, 1: 0, 3: 0}
    # where GPUs are idle nobody is stopped
    round_ = build([4, 2, 2, 2], [0, 0, 0, 1], 10, 4, 4, on={0: 1.0, 1: 2.0, 2: 3.0})
    assert runs(decide(DynamicQuota(overcommit=2.0), round_)) == {0: 0, 1: 0, 2: 0, 3: 0}
    # and for a job beyond its own quota nobody is stopped either
    round_ = build([4, 4, 6], [0, 0, 1], 8, 4, 4, on={0: 1.0, 1: 2.0})
    assert runs(decide(DynamicQuota(overcommit=2.0), round_)) == {0: 0, 1: 0}


@pytest.mark.quick
def test_idle_gpus_of_a_slower_type_are_taken_before_anybody_is_stopped() -> None:
    jobs = Jobs.of(
        id=["within", "beyond", "new"], gang=[2, 2, 2], work=[9e9] * 3, tenant=[0, 0, 1],
        throughput_per_s=[[1.0, 2.0]] * 3, running=[True, True, False],
        previous_type=[1, 1, -1], held_gpus=[2, 2, 0], lease_start_s=[1.0, 2.0, -1.0],
    )  # fmt: skip
    for slow, expected in ((2, {0: 1, 1: 1, 2: 0}), (1, {0: 1, 2: 1})):
        round_ = TrainingRound(
            cluster=Cluster.uniform({"slow": slow, "fast": 4}), jobs=jobs, now_s=9.0,
            tenants=tenants(2, 2),
        )  # fmt: skip
        assert runs(decide(DynamicQuota(overcommit=2.0), round_)) == expected


@pytest.mark.quick
def test_jobs_larger_than_the_quota() -> None:
    round_ = build([6, 1, 2], [0, 0, 1], 8, 4, 4)
    static, dynamic = StaticQuota(), DynamicQuota()
    assert runs(decide(static, round_)) == {0: 0, 2: 0}
    # within the quota first: what they leave is not enough for the large one
    assert runs(decide(dynamic, round_)) == {1: 0, 2: 0}
    for policy in (StaticQuota(oversized="reject"), DynamicQuota(oversized="reject")):
        decision = decide(policy, round_)
        assert runs(decision) == {1: 0, 2: 0}
        assert decision.notes[-1].endswith("'j0'; they are rejected")
    many = decide(static, build([6] * 8, [0] * 8, 8, 4, 4))
    assert many.notes[-1].endswith("'j3', 'j4' and 3 more; they may borrow")
    alone = build([6], [0], 8, 4, 4)
    assert runs(decide(dynamic, alone)) == runs(decide(static, alone)) == {0: 0}


@pytest.mark.quick
@pytest.mark.parametrize("policy", [StaticQuota(), DynamicQuota()])
def test_a_reservation_takes_the_gpus_of_the_youngest(policy: Any) -> None:
    round_ = build([2, 2, 2], [0, 0, 1], 4, 4, 4, on={0: 1.0, 1: 2.0})
    round_ = TrainingRound(
        cluster=round_.cluster, jobs=round_.jobs, now_s=1000.0, tenants=round_.tenants,
        commitments=Commitments.of([2], [900.0], [2000.0], [2]),
    )  # fmt: skip
    assert runs(decide(policy, round_)) == {0: 0, 2: 0}


def draw(seed: int) -> TrainingRound:
    rng = np.random.default_rng(seed)
    n, u, gpus = int(rng.integers(1, 16)), int(rng.integers(1, 4)), int(rng.integers(2, 14))
    gang, on, left = rng.choice([1, 1, 2, 3, 5], n), dict[int, float](), gpus
    for j in range(n):
        if rng.random() < 0.5 and gang[j] <= left:
            on[j] = float(rng.integers(0, 6))
            left -= int(gang[j])
    quota = rng.integers(0, gpus // u + 1, u)
    return build(gang.tolist(), rng.integers(0, u, n).tolist(), gpus, *quota.tolist(), on=on)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("reject", [True, False])
@pytest.mark.parametrize("seed", CASES)
def test_static_equals_a_plain_loop(seed: int, reject: bool, strict: bool) -> None:
    round_ = draw(seed)
    jobs, quota = round_.jobs, round_.tenants.quota_gpus.tolist()
    gang, owner = jobs.gang.tolist(), jobs.tenant.tolist()
    used, out = [0] * len(quota), set[int]()
    for j in range(len(gang)):
        if jobs.running[j]:
            out.add(j)
            used[owner[j]] += gang[j]
    free, closed = int(round_.capacity[0]) - sum(used), set[int]()
    for j in range(len(gang)):
        u, large = owner[j], gang[j] > quota[owner[j]]
        able = gang[j] <= int(round_.capacity[0])
        if j in out or u in closed or not able or (large and reject):
            continue
        within = used[u] + gang[j] <= quota[u] or (large and used[u] == 0)
        if within and gang[j] <= free:
            out.add(j)
            used[u] += gang[j]
            free -= gang[j]
        elif strict:
            closed.add(u)
    policy = StaticQuota(strict=strict, oversized="reject" if reject else "borrow")
    assert set(runs(decide(policy, round_))) == out


@pytest.mark.parametrize("overcommit", [1.0, 1.5, np.inf])
@pytest.mark.parametrize("seed", CASES)
def test_dynamic_keeps_its_promises(seed: int, overcommit: float) -> None:
    """What any such policy owes: quotas are served, and only who exceeds one is stopped."""
    round_ = draw(seed)
    jobs, quota = round_.jobs, round_.tenants.quota_gpus
    decision = decide(DynamicQuota(overcommit=overcommit), round_)
    assert not check(round_, decision.allocation)
    on = np.zeros(len(jobs), dtype=bool)
    on[decision.allocation.job] = True
    had, has = (
        np.bincount(jobs.tenant, weights=jobs.gang * mask, minlength=quota.size)
        for mask in (jobs.running, on)
    )
    free = int(round_.capacity[0]) - int(has.sum())
    stopped = np.flatnonzero(jobs.running & ~on)
    assert (had[jobs.tenant[stopped]] > quota[jobs.tenant[stopped]]).all()
    started = np.flatnonzero(on & ~jobs.running)
    if stopped.size:
        # somebody within its quota came for the GPUs
        owners = jobs.tenant[started]
        assert (had[owners] < quota[owners]).any()
        assert (jobs.gang[stopped] > free).all()
    for j in np.flatnonzero(~on & ~jobs.running).tolist():
        u = int(jobs.tenant[j])
        # nobody waits who fits the idle GPUs within the limit of its tenant
        assert jobs.gang[j] > free or has[u] + jobs.gang[j] > overcommit * max(quota[u], 1e-9)
    grew = np.unique(jobs.tenant[started])
    large = np.bincount(
        jobs.tenant, weights=on & (jobs.gang > quota[jobs.tenant]), minlength=quota.size
    )
    most = overcommit * np.maximum(quota, 1e-9)
    assert ((has[grew] <= most[grew]) | (large[grew] > 0)).all()


def scenario(seed: int = 1) -> Scenario:
    rng = np.random.default_rng(seed)
    n = 80
    return Scenario(
        name="quotas", cluster=Cluster.uniform({"only": 16}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=rng.choice([1, 2, 4, 8], n),
            work=rng.uniform(100.0, 4000.0, n).round(), tenant=rng.choice([0, 1, 2], n),
            throughput_per_s=np.ones((n, 1)),
            arrival_s=np.sort(rng.uniform(0.0, 12_000.0, n)).round(),
        ),
        tenants=Tenants(np.array(["a", "b", "c"]), np.array([3.0, 2.0, 1.0]), np.full(3, np.inf)),
        options=ExecutorOptions(round_s=300.0),
    )  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(
    "policy", [StaticQuota(), StaticQuota(strict=False), DynamicQuota(), DynamicQuota(strict=True)]
)
def test_all_jobs_end_and_skipped_rounds_change_nothing(policy: Any) -> None:
    class Always(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            return type(found := super().decide(round_, memory))(found.allocation)

    some, every = (run(scenario(), kind(policy, Solver())) for kind in (BoundPolicy, Always))
    assert (some.jobs.finish_s >= 0).all()
    assert some.jobs.finish_s.tolist() == every.jobs.finish_s.tolist()
    if policy.name == "static-quota":
        assert some.jobs.preemptions.sum() == 0
        assert some.rounds.now_s.size < every.rounds.now_s.size


@pytest.mark.quick
def test_static_quotas_hold_over_a_whole_run() -> None:
    """Rejecting what is larger, no tenant ever holds more than 8, 5 and 2 of 16 GPUs."""
    done = run(scenario(), BoundPolicy(StaticQuota(oversized="reject"), Solver()))
    leases, jobs = done.leases, done.scenario.jobs
    for tenant, quota in enumerate((8, 5, 2)):
        mine = jobs.tenant[leases.job] == tenant
        for now in leases.start_s[mine].tolist():
            on = mine & (leases.start_s <= now) & (leases.end_s > now)
            assert leases.gpus[on].sum() <= quota
    large = jobs.gang > np.array([8, 5, 2])[jobs.tenant]
    assert large.any()
    assert ((done.jobs.finish_s < 0) == large).all()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (StaticQuota, {"oversized": "x"}), (DynamicQuota, {"oversized": "x"}),
        (DynamicQuota, {"overcommit": 0.9}), (DynamicQuota, {"overcommit": np.nan}),
    ],
)  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(make: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=rf"{make.name}\.{next(iter(wrong))} = "):
        make(**wrong)


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{at}-{name}")
        for at, policy in enumerate(
            [StaticQuota(), StaticQuota(strict=False), DynamicQuota(),
             DynamicQuota(strict=True, overcommit=np.inf), DynamicQuota(oversized="reject")]
        )
        for name, judge in policy_checks(policy)
    ],
)  # fmt: skip
def test_battery(judge: Callable[[], None]) -> None:
    judge()
