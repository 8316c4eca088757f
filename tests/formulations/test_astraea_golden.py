"""Long-term GPU-time fairness by hand: the examples of the page, in space and in time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import run
from apportion.formulations.training.astraea import (
    Astraea,
    desired_rates,
    fairness_class,
    job_ltgf,
    tenant_ltgf,
)
from apportion.formulations.training.astraea.ended import Ended, ends_in_next_lease
from apportion.formulations.training.astraea.window import Window
from apportion.formulations.training.baselines.quota import quotas
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Outcome,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick

HOUR = 3600.0


def tenants(*weight: float, quota: Any = None) -> Tenants:
    names = [f"t{u}" for u in range(len(weight))]
    limits = np.full(len(weight), np.inf) if quota is None else np.array(quota, dtype=float)
    return Tenants(np.array(names), np.array(weight, dtype=float), limits)


def build(
    gang: list[int], owner: list[int], gpus: int, *weight: float, now: float = 0.0, **columns: Any
) -> TrainingRound:
    n = len(gang)
    return TrainingRound(
        cluster=Cluster.uniform({"only": gpus}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.full(n, 1e6),
            throughput_per_s=np.ones((n, 1)), tenant=owner, **columns,
        ),
        now_s=now, tenants=tenants(*weight),
    )  # fmt: skip


def served(
    round_: TrainingRound, gpu_s: list[float], end_s: float, finished: Any = None
) -> Outcome:
    n = len(round_.jobs)
    done = np.zeros(n, dtype=bool) if finished is None else np.array(finished)
    return Outcome(round_.now_s, end_s, np.zeros(n), np.array(gpu_s, dtype=float), done)


def after(policy: Astraea, round_: TrainingRound, outcome: Outcome, memory: Any = None) -> Any:
    decision = policy.compile(round_, memory, Budget.of(None)).incumbent()
    return policy.remember(memory, round_, decision, outcome)


def of_tenants(memory: Any) -> list[float]:
    return tenant_ltgf(
        memory["served_gpu_s"].sum(axis=1), memory["tenant_desired_gpu_s"].sum(axis=1)
    ).tolist()


def of_jobs(memory: Any) -> list[float]:
    return job_ltgf(memory["executed_gpu_s"], memory["desired_gpu_s"]).tolist()


def test_a1_two_tenants_where_one_borrows() -> None:
    """Quotas 4 and 4, demands 8 and 2, served 6 and 2 for an hour: LTGF 3/2 and 1."""
    round_ = build([6, 2, 2], [0, 0, 1], 8, 1.0, 1.0)
    assert quotas(round_).tolist() == [4.0, 4.0]
    _, rate = desired_rates(
        round_.jobs.gang, round_.jobs.tenant, np.ones(3), np.ones(3, dtype=bool), quotas(round_)
    )
    assert rate.tolist() == [4.0, 2.0]
    memory = after(Astraea(), round_, served(round_, [6 * HOUR, 0.0, 2 * HOUR], HOUR))
    assert of_tenants(memory) == [1.5, 1.0]
    assert memory["entitled_gpu_s"].sum(axis=1).tolist() == [4 * HOUR, 4 * HOUR]


def test_a2_two_jobs_that_cannot_run_together() -> None:
    """Shares 2 and 2, desired rates 2 and 1; leases to J1, J2, J2 and again: both at 2/3."""
    lease = 900.0
    jobs = Jobs.of(
        id=["J1", "J2"], gang=[4, 1], work=[1e6, 1e6], throughput_per_s=[[1.0], [1.0]],
        tenant=[0, 0],
    )  # fmt: skip
    scenario = Scenario(
        name="a2", cluster=Cluster.uniform({"only": 4}), jobs=jobs, tenants=tenants(1.0),
        options=ExecutorOptions(round_s=lease, until_s=6 * lease),
    )  # fmt: skip
    watch = Watched(Astraea(lease_s=lease))
    run(scenario, watch)
    expected = [  # by hand, after 1 to 6 leases
        (Fraction(2), Fraction(0)), (Fraction(1), Fraction(1, 2)), (Fraction(2, 3), Fraction(2, 3)),
        (Fraction(1), Fraction(1, 2)), (Fraction(4, 5), Fraction(3, 5)),
        (Fraction(2, 3), Fraction(2, 3)),
    ]  # fmt: skip
    assert watch.ran == [["J1"], ["J2"], ["J2"], ["J1"], ["J2"], ["J2"]]
    for memory, pair in zip(watch.memories, expected, strict=True):
        assert of_jobs(memory) == [float(level) for level in pair]


def test_a2_no_other_rhythm_has_a_higher_least_level() -> None:
    """By enumeration of three leases: one to J1 and two to J2 is best."""
    level = {a: min(Fraction(4 * a, 6), Fraction(3 - a, 3)) for a in range(4)}
    assert max(level.values()) == level[1] == Fraction(2, 3)
    assert sorted(level.values())[-2] < Fraction(2, 3)


@pytest.mark.parametrize(("gpus", "levels"), [((4, 4), (1, 1)), ((2, 4), (0.5, 1))])
def test_levels_of_tenants_differ_by_gpus_alone(gpus: Any, levels: Any) -> None:
    """Space: both run all the time; the first on half of what it asked for."""
    round_ = build([2, 2, 4], [0, 0, 1], 8, 1.0, 1.0)
    amounts = [2 * HOUR, (gpus[0] - 2) * HOUR, gpus[1] * HOUR]
    assert of_tenants(after(Astraea(), round_, served(round_, amounts, HOUR))) == list(levels)


@pytest.mark.parametrize("waited", [0.0, 0.25, 0.5])
def test_levels_of_tenants_differ_by_waiting_alone(waited: float) -> None:
    """Time: both run on 4 GPUs; the first waited a part of the hour before."""
    round_ = build([4, 4], [0, 1], 8, 1.0, 1.0)
    memory = after(Astraea(), round_, served(round_, [4 * HOUR * (1 - waited), 4 * HOUR], HOUR))
    assert of_tenants(memory) == [1 - waited, 1.0]


def test_levels_of_jobs_differ_by_gpus_alone() -> None:
    """Space: both run for the whole hour, on 4 GPUs and on 1, with a share of 2 GPUs each."""
    round_ = build([4, 1], [0, 0], 8, 1.0, 1.0)
    assert quotas(round_).tolist() == [4.0, 4.0]
    memory = after(Astraea(), round_, served(round_, [4 * HOUR, HOUR], HOUR))
    assert of_jobs(memory) == [2.0, 1.0]
    assert memory["desired_gpu_s"].tolist() == [2 * HOUR, HOUR]


def test_levels_of_jobs_differ_by_waiting_alone() -> None:
    """Time: the same gang and share; one waited for half of the hour, one for all of it."""
    round_ = build([2, 2, 2], [0, 0, 0], 6, 1.0)
    memory = after(Astraea(), round_, served(round_, [2 * HOUR, HOUR, 0.0], HOUR))
    assert of_jobs(memory) == [1.0, 0.5, 0.0]


def test_weights_of_jobs_split_the_quota_where_they_are_asked_for() -> None:
    round_ = build([8, 8], [0, 0], 8, 1.0, weight=[3.0, 1.0])
    outcome = served(round_, [8 * HOUR, 0.0], HOUR)
    equal = after(Astraea(), round_, outcome)
    assert equal["desired_gpu_s"].tolist() == [4 * HOUR, 4 * HOUR]
    weighted = after(Astraea(job_weights="jobs"), round_, outcome)
    assert weighted["desired_gpu_s"].tolist() == [6 * HOUR, 2 * HOUR]


def test_nothing_desired_is_fair_for_a_tenant_and_nothing_for_a_job() -> None:
    none = np.zeros(1)
    assert tenant_ltgf(none, none).tolist() == [1.0]
    assert job_ltgf(none, none).tolist() == [0.0]


def test_what_is_executed_counts_and_not_what_was_planned() -> None:
    """The plan gives both 4 GPUs; the second one's node died, it had a tenth of it."""
    round_ = build([4, 4], [0, 1], 8, 1.0, 1.0)
    memory = after(Astraea(), round_, served(round_, [4 * HOUR, 0.4 * HOUR], HOUR))
    assert of_jobs(memory) == pytest.approx([1.0, 0.1])


def test_demand_ends_with_the_job() -> None:
    """Alone and always served, a tenant is at 1 exactly, though its job ended early."""
    round_ = build([4], [0], 8, 1.0, 1.0)
    memory = after(Astraea(), round_, served(round_, [4 * 600.0], HOUR, finished=[True]))
    assert of_tenants(memory) == [1.0, 1.0]
    assert memory["tenant_desired_gpu_s"].sum(axis=1).tolist() == [2400.0, 0.0]
    assert memory["id"].size == 0


def test_newcomers_have_wanted_their_share_since_they_arrived() -> None:
    round_ = build([1, 1], [0, 0], 8, 1.0, now=600.0, arrival_s=[0.0, 600.0])
    policy = Astraea()
    program = policy.compile(round_, None, Budget.of(None))
    assert program.incumbent().per_job["ltgf"].tolist() == [0.0, 0.0]
    memory = after(policy, round_, served(round_, [300.0, 300.0], 900.0))
    assert memory["desired_gpu_s"].tolist() == [900.0, 300.0]


@pytest.mark.parametrize(
    ("weight", "gpus", "expected"),
    [
        ([1, 1, 1], 10, [3, 3, 3]),
        ([2690, 2568, 36], 1120, [569, 543, 7]),
        ([0.1, 0.2, 0.7], 10, [1, 2, 7]),
        ([1e-3, 1], 4, [0, 3]),
    ],
)
def test_quotas_are_whole_and_never_more_than_there_are(
    weight: list[float], gpus: int, expected: list[int]
) -> None:
    for factor in (1.0, 1e-3, 7.0, 1e6):
        round_ = build([1], [0], gpus, *(w * factor for w in weight))
        assert quotas(round_).tolist() == expected
    assert sum(expected) <= gpus


def test_a_quota_that_is_set_holds() -> None:
    round_ = build([1], [0], 8, 1.0, 1.0)
    other = TrainingRound(
        cluster=round_.cluster, jobs=round_.jobs, tenants=tenants(1.0, 1.0, quota=[6, np.inf])
    )
    assert quotas(other).tolist() == [6.0, 4.0]


def test_classes_rise_with_the_level() -> None:
    """K = 5: f(1) = 0, so class 5 - floor(2.5) = 3; nothing executed is class 0."""
    level = np.array([0.0, 1e-9, 0.3, 1.0, 3.0, 1e9])
    assert fairness_class(level, 5).tolist() == [0, 1, 1, 3, 5, 5]
    for x in (0.2, 0.7, 1.4, 2.0):
        f = -math.log(x) / math.sqrt(1 + math.log(x) ** 2)
        assert fairness_class(np.array([x]), 5)[0] == 5 - math.floor(5 * (f + 1) / 2)


def test_chance_to_end_in_the_next_lease() -> None:
    """Of gang 1: six ended after 0..5 leases, one each; of those that ran 2 or more, a quarter
    ran 2. Gang 2 has one length only, so that all seven count."""
    ended = Ended(np.array([1, 1, 1, 1, 1, 1, 2]), np.array([0, 1, 2, 3, 4, 5, 2]), np.ones(7, int))
    chance = ends_in_next_lease(ended, np.array([1, 1, 1, 2, 9]), np.array([0, 2, 6, 2, 5]))
    assert chance.tolist() == [1 / 6, 1 / 4, 0.0, 2 / 5, 1.0]
    none = Ended(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    assert ends_in_next_lease(none, np.array([1]), np.array([0])).tolist() == [0.0]


def test_a_window_forgets_what_is_older_than_it() -> None:
    past = Window.empty(1, 3, 10.0, 0.0)
    one = np.ones(1)
    past = past.with_interval(0.0, 25.0, 25 * one, 50 * one, 75 * one)
    assert past.served_gpu_s.tolist() == [[10.0, 10.0, 5.0]]
    assert past.entitled_gpu_s.tolist() == [[30.0, 30.0, 15.0]]
    later = past.until(40.0)
    assert later.served_gpu_s.tolist() == [[10.0, 5.0, 0.0]]
    assert later.desired_gpu_s.tolist() == [[20.0, 10.0, 0.0]]
    assert past.until(40.1).served_gpu_s.tolist() == [[5.0, 0.0, 0.0]]
    assert past.until(1e6).served_gpu_s.tolist() == [[0.0, 0.0, 0.0]]
    # an interval longer than the window leaves its end only
    long = past.with_interval(25.0, 125.0, 100 * one, one, one)
    assert long.served_gpu_s.tolist() == [[10.0, 10.0, 5.0]]


class Watched:
    """A decider that keeps what it decided and what it remembered."""

    reacts_to: frozenset[str] = frozenset()

    def __init__(self, policy: Astraea) -> None:
        self.policy, self.subscribes = policy, policy.subscribes
        self.ran: list[list[str]] = []
        self.memories: list[Any] = []

    def decide(self, round_: TrainingRound, memory: Any) -> Any:
        decision = self.policy.compile(round_, memory, Budget.of(None)).solve(
            Solver(), Budget.of(None)
        )
        self.ran.append(round_.jobs.id[decision.allocation.job].tolist())
        return decision

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        self.memories.append(self.policy.remember(memory, round_, decision, outcome))
        return self.memories[-1]

    def react(self, plan: Any, event: Any, view: Any) -> Any:
        return None, plan


GOOD = {
    "id": np.array(["j0"]), "code": np.array([0]), "executed_gpu_s": np.ones(1),
    "desired_gpu_s": np.ones(1), "last_run_s": np.zeros(1), "tenant": np.array(["t0"]),
    "served_gpu_s": np.ones((1, 24)), "tenant_desired_gpu_s": np.ones((1, 24)),
    "entitled_gpu_s": np.ones((1, 24)), "newest": 0, "bucket_s": 3600.0,
    "ended_gang": np.zeros(0, int), "ended_bin": np.zeros(0, int), "ended_count": np.zeros(0, int),
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": None}, {"code": np.array([0, 1])}, {"executed_gpu_s": np.array([-1.0])},
        {"executed_gpu_s": np.array([np.nan])}, {"desired_gpu_s": np.ones(2)},
        {"last_run_s": np.array([np.inf])}, {"served_gpu_s": np.ones((1, 23))},
        {"served_gpu_s": -np.ones((1, 24))}, {"tenant_desired_gpu_s": np.ones((2, 24))},
        {"newest": "x"}, {"bucket_s": 60.0}, {"ended_bin": np.zeros(3, int)}, {"tenant": 7},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_a_memory_of_somebody_else_is_refused(wrong: dict[str, Any]) -> None:
    round_ = build([1], [0], 8, 1.0)
    Astraea().compile(round_, GOOD, Budget.of(None))
    with pytest.raises(InstanceError, match="memory"):
        Astraea().compile(round_, GOOD | wrong, Budget.of(None))
    for other in ({}, [], 3, {"id": np.array(["j0"])}):
        with pytest.raises(InstanceError, match="memory"):
            Astraea().compile(round_, other, Budget.of(None))


def test_memory_finds_jobs_by_name_whatever_their_codes() -> None:
    memory = GOOD | {
        "id": np.array(["a", "b", "c"]), "code": np.array([0, 1, 2]),
        "executed_gpu_s": np.array([1.0, 2.0, 3.0]), "desired_gpu_s": np.full(3, 8.0),
        "last_run_s": np.zeros(3),
    }  # fmt: skip
    jobs = Jobs.of(
        id=["c", "new", "a"], gang=[1] * 3, work=[9.0] * 3, throughput_per_s=np.ones((3, 1)),
        code=[0, 2, 1],
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 8}), jobs=jobs, tenants=tenants(1.0))
    found = Astraea().compile(round_, memory, Budget.of(None)).incumbent()
    assert found.per_job["ltgf"].tolist() == [3 / 8, 0.0, 1 / 8]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_s": 0.0}, {"lease_s": math.inf}, {"lease_s": math.nan}, {"order": "x"},
        {"oversized": "x"}, {"job_weights": "x"}, {"method": "x"}, {"bucket_s": -1.0},
        {"starvation_s": -1.0}, {"delay_s": math.nan}, {"first_delay_s": -1.0}, {"classes": 0},
        {"buckets": 0}, {"exempt_gpus": -1},
    ],
    ids=str,
)  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=rf"astraea\.{next(iter(wrong))} = "):
        Astraea(**wrong)


def test_waiting_starts_anew_when_a_job_has_run() -> None:
    """The first ran to the end of the interval; the second has waited since it arrived."""
    round_ = build([2, 2], [0, 0], 8, 1.0, now=600.0, arrival_s=[0.0, 300.0])
    memory = after(Astraea(), round_, served(round_, [600.0, 0.0], 900.0))
    assert memory["last_run_s"].tolist() == [900.0, 300.0]
    later = build([2, 2], [0, 0], 8, 1.0, now=900.0, arrival_s=[0.0, 300.0])
    again = after(Astraea(), later, served(later, [0.0, 0.0], 1200.0), memory)
    assert again["last_run_s"].tolist() == [900.0, 300.0]


def test_a_larger_job_that_waits_does_not_hold_back_a_smaller_one() -> None:
    """4 GPUs, quotas 2 and 2. The second tenant, served less, takes 3; of the first tenant's jobs
    the larger one is served less, and only the smaller one fits beside: ratios 1 and 3 leases."""
    round_ = build([4, 1, 3], [0, 0, 1], 4, 1.0, 1.0)
    memory = GOOD | {
        "id": round_.jobs.id, "code": round_.jobs.code, "desired_gpu_s": np.full(3, 900.0),
        "executed_gpu_s": np.array([90.0, 450.0, 0.0]), "last_run_s": np.zeros(3),
        "tenant": np.array(["t0", "t1"]),
    }  # fmt: skip
    memory |= {
        field: np.zeros((2, 24))
        for field in ("served_gpu_s", "tenant_desired_gpu_s", "entitled_gpu_s")
    }
    policy = Astraea(method="milp", lease_s=900.0)
    decision = policy.compile(round_, memory, Budget.of(None)).solve(Solver(), Budget.of(None))
    assert decision.allocation.job.tolist() == [1, 2]
    assert decision.objective == pytest.approx(1 / 2)
    assert decision.status == "OPTIMAL"


def test_within_a_class_whoever_is_likely_to_end_goes_first() -> None:
    """One GPU; jobs of levels 0.9, 1 and 1.05 are all of class 3, one of 2.9 is not. Of six that
    ended five had run one lease: the chance of those that have run one is 5/6, of the first 0."""
    round_ = build([1, 1, 1, 1], [0, 0, 0, 0], 1, 1.0)
    executed = np.array([900.0 * 0.9, 900.0, 945.0, 900.0 * 2.9])
    memory = GOOD | {
        "id": round_.jobs.id, "code": round_.jobs.code, "executed_gpu_s": executed,
        "desired_gpu_s": np.full(4, 900.0), "last_run_s": np.zeros(4),
        "ended_gang": np.array([1, 1]), "ended_bin": np.array([1, 2]),
        "ended_count": np.array([5, 1]),
    }  # fmt: skip
    assert fairness_class(executed / 900.0, 5).tolist() == [3, 3, 3, 5]
    chosen = {}
    for order in ("ltgf", "class"):
        policy = Astraea(lease_s=900.0, order=order)
        decision = policy.compile(round_, memory, Budget.of(None)).incumbent()
        chosen[order] = decision.allocation.job.tolist()
    assert chosen == {"ltgf": [0], "class": [1]}


def test_a_job_without_leases_is_no_delay_job() -> None:
    columns: dict[str, Any] = {
        "running": [True, False], "previous_type": [0, -1], "held_gpus": [4, 0],
        "first_start_s": [100.0, -1.0], "lease_start_s": [9900.0, -1.0],
        "lease_end_s": [10_800.0, -1.0],
    }  # fmt: skip
    round_ = build([4, 4], [0, 0], 4, 1.0, now=9960.0, **columns)
    for exempt, runs in ((0, [1]), (2, [0])):
        policy = Astraea(lease_s=900.0, exempt_gpus=exempt)
        decision = policy.compile(round_, None, Budget.of(None)).incumbent()
        assert decision.allocation.job.tolist() == runs
    assert decision.allocation.lease_end_s.tolist() == [np.inf]
