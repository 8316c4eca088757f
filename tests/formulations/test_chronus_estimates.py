"""Chronus' estimator: profiles with noise, the pool they take their turn in, and measured pace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.chronus.profiling import (
    blended,
    profile_factor,
    profile_s,
)
from apportion.instances import Decision, InstanceError
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

LEASE_S = 1200.0
BARE = Chronus(
    overhead_s=0.0, safety=1.0, round_up=False, estimates="profiled", counter_offer="exact"
)
"""Without margins, so that leases are what the examples count."""


def round_of(
    jobs: Sequence[tuple[str, int, float, float]], *, gpus: int = 64, now_s: float = 0.0,
    **more: Any,
) -> TrainingRound:  # fmt: skip
    """Jobs as name, gang, leases of work, and deadline in leases (0: best effort), on one type."""
    due = [leases for *_, leases in jobs]
    columns: dict[str, Any] = {
        "slo": [at > 0 for at in due], "deadline_s": [at * LEASE_S for at in due if at > 0],
        "deadline_offsets": np.concatenate(([0], np.cumsum([at > 0 for at in due]))),
        "deadline_value": [10.0 for at in due if at > 0], "arrival_s": [0.0] * len(jobs),
    }  # fmt: skip
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}, gpus_per_node=8), now_s=now_s,
        tenants=more.pop("tenants", Tenants.named("all")),
        jobs=Jobs.of(
            id=[name for name, *_ in jobs], gang=[gang for _, gang, *_ in jobs],
            work=[work * LEASE_S for *_, work, _ in jobs],
            throughput_per_s=np.ones((len(jobs), 1)), **(columns | more),
        ),
    )  # fmt: skip


def decide(policy: Chronus, round_: TrainingRound, memory: Any = None) -> Decision:
    budget = Budget.of(None)
    found = policy.compile(round_, memory, budget).solve(Solver(gap=0.0), budget)
    assert not check(round_, found.allocation)
    return found


def column(round_: TrainingRound, found: Decision, name: str) -> dict[str, Any]:
    told = np.asarray(found.per_job[name]).tolist()
    return dict(zip(round_.jobs.id.tolist(), told, strict=True))


# ---------------------------------------------------------------------- numbers


@pytest.mark.quick
@pytest.mark.parametrize(
    ("profile", "measured", "part"),
    [
        (Fraction(3, 2), Fraction(1), Fraction(1, 4)), (Fraction(1, 2), Fraction(2), Fraction(1)),
        (Fraction(5, 4), Fraction(7, 8), Fraction(0)), (Fraction(1), Fraction(3), Fraction(2, 3)),
    ],
)  # fmt: skip
def test_blend_by_hand(profile: Fraction, measured: Fraction, part: Fraction) -> None:
    """The profile counts for what is still to be done, what was measured for what is done."""
    wanted = (1 - part) * profile + part * measured
    told = blended(*(np.array([float(one)]) for one in (profile, measured, part)))
    assert told[0] == pytest.approx(float(wanted), rel=1e-15)


def test_noise_has_its_spread_and_its_bounds() -> None:
    ids = np.array([f"job-{row}" for row in range(4000)])
    factor = profile_factor(ids, 0.1, 3)
    # a mean of 4000 draws is off by 0.1 / sqrt(4000) = 0.0016, four times that is not seen
    assert abs(factor.mean() - 1.0) < 0.0064
    assert 0.095 < factor.std() < 0.105
    wild = profile_factor(ids, 1.0, 3)
    assert (wild.min(), wild.max()) == (0.5, 2.0)
    # P(1 + N <= 1/2) = P(N <= -1/2) = 0.3085, and P(1 + N >= 2) = P(N >= 1) = 0.1587
    assert abs((wild == 0.5).mean() - 0.3085) < 0.03
    assert abs((wild == 2.0).mean() - 0.1587) < 0.025
    assert (profile_factor(ids, 0.0, 3) == 1.0).all()


def test_noise_is_a_jobs_own() -> None:
    ids = np.array(["a", "b", "c"])
    told = profile_factor(ids, 0.3, 0)
    assert profile_factor(ids[::-1], 0.3, 0).tolist() == told.tolist()[::-1]
    assert profile_factor(np.array(["c"]), 0.3, 0)[0] == told[2]
    assert (profile_factor(ids, 0.3, 1) != told).any()


@pytest.mark.parametrize("gang", [1, 2, 4, 8])
def test_leases_follow_the_profile(gang: int) -> None:
    """n = ceil(1.1 f p (1 + 0.5 (1 + log2 g) / 20) / L), in minutes as published."""
    names = [f"job-{row}" for row in range(12)]
    policy = Chronus(estimates="profiled", noise=0.4, pool_gpus=0)
    asked = round_of([(name, gang, 5.3, 40.0) for name in names], gpus=96)
    found = decide(policy, asked)
    factor = profile_factor(np.array(names), 0.4, 0)
    assert len(set(factor.tolist())) == 12
    minutes = 5.3 * 20.0
    wanted = [
        math.ceil(1.1 * f * minutes * (1.0 + (1.0 + math.log2(gang)) * 0.5 / 20.0) / 20.0)
        for f in factor.tolist()
    ]
    assert np.asarray(found.per_job["reserved_leases"]).tolist() == wanted
    assert len(set(wanted)) > 2
    assert found.per_job["estimate_s"] == pytest.approx(factor * 5.3 * LEASE_S)
    assert set(column(asked, found, "estimate").values()) == {"profiled"}


def test_reports_are_believed_unless_asked_otherwise() -> None:
    asked = round_of([("A", 1, 2.0, 4.0)])
    found = decide(Chronus(noise=0.9), asked)
    assert column(asked, found, "estimate") == {"A": "reported"}
    assert column(asked, found, "estimate_s") == {"A": 2 * LEASE_S}
    assert "ran_s" not in found.carry


# ---------------------------------------------------------------------- measured pace


def watched(
    policy: Chronus, asked: TrainingRound, work_s: float, to_s: float
) -> tuple[TrainingRound, Any]:
    """Let the one job of a round do so much work until a moment, and go on."""
    found = decide(policy, asked)
    seen = planned_outcome(asked, found.allocation, to_s)
    outcome = replace(seen, work=np.array([work_s]), gpu_s=to_s * asked.jobs.gang)
    memory = policy.remember(None, asked, found, outcome)
    jobs = asked.jobs
    done = Jobs.of(
        id=jobs.id, gang=jobs.gang, work=jobs.work, throughput_per_s=jobs.throughput_per_s,
        slo=jobs.slo, deadline_offsets=jobs.deadline_offsets, deadline_s=jobs.deadline_s,
        deadline_value=jobs.deadline_value, work_done=[work_s], running=[True], held_gpus=jobs.gang,
        previous_type=[0], attained_gpu_s=to_s * jobs.gang, lease_start_s=[0.0],
    )  # fmt: skip
    return replace(asked, now_s=to_s, jobs=done), load_memory(dump_memory(memory))


def test_pace_takes_the_place_of_the_profile() -> None:
    """2 of 8 leases of work took 3: by what was seen it is 3/2 times as long, for a quarter of it.

    The estimate is (3/4 + 1/4 x 3/2) x 8 = 9 leases, of which a quarter is done: 6 3/4 are left.
    """
    policy = replace(BARE, pool_gpus=0)
    later, memory = watched(policy, round_of([("A", 1, 8.0, 20.0)]), 2 * LEASE_S, 3 * LEASE_S)
    found = decide(policy, later, memory)
    assert column(later, found, "estimate") == {"A": "blended"}
    assert column(later, found, "estimate_s") == pytest.approx({"A": 9 * LEASE_S})
    assert column(later, found, "reserved_leases") == {"A": 7}
    plain = decide(replace(policy, estimates="reported"), later, memory)
    assert column(later, plain, "reserved_leases") == {"A": 6}


def test_a_wrong_profile_is_forgotten_as_work_is_done() -> None:
    """At exact pace the error of the profile shrinks with what is left."""
    name = next(
        f"j{row}" for row in range(99) if profile_factor(np.array([f"j{row}"]), 0.5, 0)[0] > 1.6
    )
    factor = float(profile_factor(np.array([name]), 0.5, 0)[0])
    policy = replace(BARE, noise=0.5, pool_gpus=0)
    errors = list[float]()
    for leases in (0, 2, 4, 7):
        asked = round_of([(name, 1, 8.0, 30.0)])
        memory = None
        if leases:
            asked, memory = watched(policy, asked, leases * LEASE_S, leases * LEASE_S)
        told = column(asked, decide(policy, asked, memory), "estimate_s")[name]
        errors.append(told / (8 * LEASE_S) - 1.0)
        assert errors[-1] == pytest.approx((1.0 - leases / 8) * (factor - 1.0))
    assert errors == sorted(errors, reverse=True)


def test_work_on_other_types_is_counted_by_their_speed() -> None:
    """3 leases on a type of half the speed do what 1 1/2 would on the fast one: the pace is 1."""
    asked = TrainingRound(
        cluster=Cluster.uniform({"slow": 1, "fast": 0}),
        jobs=Jobs.of(id=["A"], gang=[1], work=[8 * LEASE_S], throughput_per_s=[[0.5, 1.0]]),
    )
    policy = replace(BARE, pool_gpus=0)
    later, memory = watched(policy, asked, 1.5 * LEASE_S, 3 * LEASE_S)
    found = decide(policy, later, memory)
    assert memory["ran_s"].tolist() == pytest.approx([3 * LEASE_S])
    assert memory["told_s"].tolist() == pytest.approx([3 * LEASE_S])
    assert column(later, found, "estimate_s") == pytest.approx({"A": 16 * LEASE_S})


def test_a_round_that_shows_nothing_changes_nothing() -> None:
    policy = replace(BARE, pool_gpus=0, noise=0.3)
    asked = round_of([("A", 1, 8.0, 30.0)])
    before = column(asked, decide(policy, asked), "estimate_s")
    later, memory = watched(policy, asked, 0.0, 300.0)
    found = decide(policy, later, memory)
    assert column(later, found, "estimate") == {"A": "profiled"}
    assert column(later, found, "estimate_s") == before


# ---------------------------------------------------------------------- the pool


def ends(policy: Chronus, asked: TrainingRound, memory: Any = None) -> dict[str, float]:
    found = decide(policy, asked, memory)
    return dict(zip(asked.jobs.id.tolist(), found.carry["profile_end_s"].tolist(), strict=True))


def test_profiles_take_half_a_minute_for_every_gpu_and_two_at_most() -> None:
    gang = np.array([1, 2, 3, 4, 5, 8, 16])
    assert profile_s(gang).tolist() == [30.0, 60.0, 90.0, 120.0, 120.0, 120.0, 120.0]


def test_turns_in_the_pool_by_hand() -> None:
    """Eight GPUs: A takes all of them for two minutes, B and C the next two, then D half a one."""
    asked = round_of(
        [("A", 16, 2, 9), ("B", 4, 2, 9), ("C", 4, 2, 9), ("D", 1, 2, 9)], now_s=300.0,
        arrival_s=[0.0, 10.0, 20.0, 30.0],
    )  # fmt: skip
    small = replace(BARE, pool_gpus=8)
    assert ends(small, asked) == {"A": 120.0, "B": 240.0, "C": 240.0, "D": 270.0}
    assert ends(replace(BARE, pool_gpus=9), asked) == {
        "A": 120.0, "B": 240.0, "C": 240.0, "D": 60.0,
    }  # fmt: skip
    # a pool smaller than a profile gives it all that it has
    assert ends(replace(BARE, pool_gpus=2), asked)["B"] == 240.0


def test_who_is_in_the_pool_is_promised_nothing_and_runs_nowhere() -> None:
    asked = round_of([("A", 4, 2, 9), ("B", 1, 2, 0), ("C", 1, 0.2, 0)], now_s=0.0)
    found = decide(BARE, asked)
    assert column(asked, found, "state") == {
        "A": "PROFILING", "B": "PROFILING", "C": "BEST_EFFORT",
    }  # fmt: skip
    assert column(asked, found, "estimate") == {
        "A": "profiling", "B": "profiling", "C": "profiled",
    }  # fmt: skip
    # four minutes of work are done before a profile would be worth anything
    assert asked.jobs.id[found.allocation.job].tolist() == ["C"]
    memory = BARE.remember(None, asked, found, planned_outcome(asked, found.allocation, 300.0))
    # C has ended
    later = round_of([("A", 4, 2, 9), ("B", 1, 2, 0)], now_s=300.0)
    again = decide(BARE, later, load_memory(dump_memory(memory)))
    assert column(later, again, "state") == {"A": "ACCEPTED_SLO", "B": "BEST_EFFORT"}
    assert later.jobs.id[again.allocation.job].tolist() == ["A", "B"]


def test_the_pool_remembers_who_is_in_it() -> None:
    """A is in until 420 s, B came meanwhile: it waits for A although A was told of before."""
    small = replace(BARE, pool_gpus=4)
    first = round_of([("A", 4, 2, 9)], now_s=300.0, arrival_s=[300.0])
    memory = decide(small, first).carry
    both = round_of([("A", 4, 2, 9), ("B", 2, 2, 9)], now_s=400.0, arrival_s=[300.0, 350.0])
    assert ends(small, both, memory) == {"A": 420.0, "B": 480.0}
    assert ends(small, both) == {"A": 420.0, "B": 480.0}


def test_running_jobs_are_not_profiled_again() -> None:
    asked = round_of(
        [("A", 4, 2, 9)], now_s=0.0, running=[True], held_gpus=[4], previous_type=[0],
    )  # fmt: skip
    assert column(asked, decide(BARE, asked), "state") == {"A": "ACCEPTED_SLO"}


def test_equal_jobs_need_one_profile() -> None:
    again = replace(BARE, reuse_profiles=True, pool_gpus=4)
    asked = round_of(
        [("A", 4, 2, 9), ("B", 4, 2, 9), ("C", 2, 2, 9), ("D", 4, 2, 9)], now_s=1200.0,
        arrival_s=[0.0, 10.0, 20.0, 900.0], model=["vgg", "vgg", "vgg", ""],
    )  # fmt: skip
    assert ends(again, asked) == {"A": 120.0, "B": 120.0, "C": 180.0, "D": 1020.0}
    memory = load_memory(dump_memory(decide(again, asked).carry))
    other = round_of([("E", 4, 2, 9)], now_s=1500.0, arrival_s=[1300.0], model=["vgg"])
    assert ends(again, other, memory) == {"E": 1300.0}
    assert ends(again, other) == {"E": 1420.0}


def test_users_with_nearly_the_whole_pool_wait_a_minute() -> None:
    """Of 8 GPUs a has 4 from 0 to 120 s: its next ones wait, b's do not."""
    held = replace(BARE, hold_users=True, pool_gpus=8)
    asked = round_of(
        [("A", 4, 2, 9), ("B", 1, 2, 9), ("C", 1, 2, 9)], now_s=300.0,
        arrival_s=[0.0, 10.0, 20.0], tenant=[0, 0, 1], tenants=Tenants.named("a", "b"),
    )  # fmt: skip
    # B looks at 10, 70 and 130 s
    assert ends(held, asked) == {"A": 120.0, "B": 160.0, "C": 50.0}
    assert ends(replace(held, hold_users=False), asked)["B"] == 40.0


def test_whoever_asks_is_answered_at_once() -> None:
    asked = round_of([("A", 4, 2, 9)])
    told = ap.admit(asked, "A", BARE)
    assert told.accepted
    assert column(asked, decide(BARE, asked), "state") == {"A": "PROFILING"}


# ---------------------------------------------------------------------- carried out


def carried_out(policy: Chronus, *, slower: float = 1.0, seed: int = 0) -> tuple[Any, set[int]]:
    """Run two dozen jobs on 16 GPUs; whose promise was lost."""
    rng = np.random.default_rng(seed)
    n = 24
    gang = rng.choice([1, 2, 4], n)
    work = np.exp(rng.uniform(np.log(1200.0), np.log(12_000.0), n)).round()
    arrival = np.sort(rng.uniform(0.0, 15_000.0, n)).round()
    due = arrival + work * rng.uniform(1.5, 4.0, n) + 3600.0
    speed = np.ones((n, 1))
    scenario = Scenario(
        name="paces", cluster=Cluster.uniform({"GPU": 16}, gpus_per_node=8),
        tenants=Tenants.named("all"), options=ExecutorOptions(round_s=300.0),
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=gang, work=work, throughput_per_s=speed,
            arrival_s=arrival, slo=np.ones(n, dtype=bool), deadline_offsets=np.arange(n + 1),
            deadline_s=due, deadline_value=np.full(n, 10.0),
        ),
        true_throughput_per_s=speed / slower,
    )  # fmt: skip
    watch = _Watch(policy)
    done = run(scenario, watch)
    assert (done.jobs.finish_s >= 0).all()
    return done, watch.lost


class _Watch:
    def __init__(self, policy: Chronus) -> None:
        self.inner = BoundPolicy(policy, Solver(work_limit=WORK_LIMIT))
        self.subscribes, self.reacts_to = self.inner.subscribes, self.inner.reacts_to
        self.promised, self.lost, self.flags = set[int](), set[int](), set[str]()

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        found = self.inner.decide(round_, memory)
        self.flags |= set(np.asarray(found.per_job["estimate"]).tolist())
        sure = np.asarray(found.per_job["promised_s"]) >= 0
        now = set(round_.jobs.code[sure].tolist())
        self.lost |= (self.promised & set(round_.jobs.code.tolist())) - now
        self.promised |= now
        return found

    def remember(self, *told: Any) -> Any:
        return self.inner.remember(*told)

    def react(self, *told: Any) -> Any:
        return self.inner.react(*told)


@pytest.mark.parametrize("seed", range(2))
def test_exact_profiles_decide_as_reports_do(seed: int) -> None:
    plain, _ = carried_out(Chronus(), seed=seed)
    same, lost = carried_out(Chronus(estimates="profiled", pool_gpus=0), seed=seed)
    assert same.jobs.finish_s.tolist() == pytest.approx(plain.jobs.finish_s.tolist())
    assert not lost


def test_noisy_profiles_lose_no_job() -> None:
    _, lost = carried_out(Chronus(estimates="profiled", noise=0.5, pool_gpus=8))
    _, calm = carried_out(Chronus(estimates="profiled", noise=0.0, pool_gpus=8))
    assert not calm
    assert len(lost) < 12


def test_measured_pace_saves_promises() -> None:
    """Everything is a quarter slower than reported: who watches it takes more leases in time."""
    lost = [
        sum(len(carried_out(policy, slower=1.25, seed=seed)[1]) for seed in range(3))
        for policy in (Chronus(), Chronus(estimates="profiled", pool_gpus=0))
    ]
    assert lost[1] < lost[0]


# ---------------------------------------------------------------------- bad input, battery


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"estimates": "guessed"}, "chronus.estimates = 'guessed'"),
        ({"noise": -0.1}, "chronus.noise"), ({"noise": float("nan")}, "chronus.noise"),
        ({"noise": 1.5}, "chronus.noise"), ({"pool_gpus": -1}, "chronus.pool_gpus"),
        ({"noise_seed": -1}, "chronus.noise_seed"),
    ],
)  # fmt: skip
def test_bad_parameters(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InstanceError, match=told):
        Chronus(**given)


@pytest.mark.parametrize(
    "change",
    [
        {"ran_s": None}, {"ran_s": [1.0, 2.0]}, {"told_s": [-1.0]}, {"measured_part": ["x"]},
        {"profile_end_s": [np.nan]}, {"profile_end_s": [-2.0]}, {"template_model": [3]},
        {"template_gang": ["x"]}, {"template_end_s": [1.0, 2.0, 3.0]},
    ],
)  # fmt: skip
def test_bad_memory(change: dict[str, Any]) -> None:
    policy = replace(BARE, reuse_profiles=True)
    asked = round_of([("A", 4, 2, 9)], model=["vgg"])
    memory = dict(decide(policy, asked).carry)
    decide(policy, asked, memory)
    for name, value in change.items():
        memory.pop(name)
        if value is not None:
            memory[name] = np.array(value)
    with pytest.raises(InstanceError, match="memory"):
        policy.compile(asked, memory, Budget.of(None))


@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=name)
        for name, judge in policy_checks(
            Chronus(estimates="profiled", noise=0.3, reuse_profiles=True, hold_users=True)
        )
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
