"""OEF round by round: users, whole GPUs, gangs, memory, and the battery every policy passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.oef import OEFCooperative, OEFNoncooperative
from apportion.formulations.training.oef.rounding import whole_gpus
from apportion.instances import Decision, InstanceError, dump_memory, load_memory
from apportion.instances.training import Cluster, Jobs, Outcome, Tenants, TrainingRound
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks, random_round

NO_LIMIT = Budget.of(None)
BOTH = (OEFNoncooperative(), OEFCooperative())
MORE = (*BOTH, OEFNoncooperative(users="job"), OEFCooperative(users="model", work_conserving=False))


@pytest.mark.parametrize(
    "judge",
    [judge for policy in MORE for _, judge in policy_checks(policy)],
    ids=[f"{at}-{name}" for at, policy in enumerate(MORE) for name, _ in policy_checks(policy)],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()


def round_of(
    speed: Any, gang: Any, m: Any, *, tenant: Any = None, weight: Any = None, now_s: float = 0.0,
    **columns: Any,
) -> TrainingRound:  # fmt: skip
    n = len(gang)
    owner = np.arange(n) if tenant is None else np.array(tenant)
    count = int(owner.max()) + 1 if n else 1
    shares = np.ones(count) if weight is None else np.array(weight, dtype=float)
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(count) for i, count in enumerate(m)}),
        jobs=Jobs.of(
            id=[f"job-{i:03}" for i in range(n)], gang=gang, work=np.full(n, 1e9),
            throughput_per_s=np.array(speed, dtype=float).reshape(n, len(m)), tenant=owner,
            **columns,
        ),
        tenants=Tenants([f"t{i:03}" for i in range(count)], shares, np.full(count, np.inf)),
        now_s=now_s,
    )  # fmt: skip


def decide(policy: Any, round_: TrainingRound, memory: Any = None) -> Decision:
    decision = policy.compile(round_, memory, NO_LIMIT).solve(Solver(gap=0.0), NO_LIMIT)
    assert not check(round_, decision.allocation)
    return decision


def follow(
    policy: Any, round_: TrainingRound, count: int
) -> tuple[list[Decision], list[np.ndarray], Any]:
    """Decide the same round again and again, as it looks when plans are carried out."""
    memory, decisions, grants = None, [], []
    jobs = round_.jobs
    for _ in range(count):
        decision = decide(policy, round_, memory)
        plan, users = decision.allocation, decision.shares
        grant = np.zeros(users.gpus.shape)
        np.add.at(grant, (users.of_job[plan.job], plan.gpu_type), plan.gpus)
        decisions.append(decision)
        grants.append(grant)
        end_s = round_.now_s + round_.duration_s
        gpu_s = np.zeros(len(jobs))
        gpu_s[plan.job] = plan.gpus * round_.duration_s
        outcome = Outcome(
            round_.now_s, end_s, np.zeros(len(jobs)), gpu_s, np.zeros(len(jobs), dtype=bool)
        )
        memory = policy.remember(memory, round_, decision, outcome)
        last = jobs.previous_type.copy()
        last[plan.job] = plan.gpu_type
        jobs = Jobs.of(
            id=jobs.id, gang=jobs.gang, work=jobs.work, throughput_per_s=jobs.throughput_per_s,
            tenant=jobs.tenant, previous_type=last, attained_gpu_s=jobs.attained_gpu_s + gpu_s,
        )  # fmt: skip
        round_ = replace(round_, jobs=jobs, now_s=end_s)
    return decisions, grants, memory


def owners(n: int, jobs: int) -> np.ndarray:
    return np.repeat(np.arange(n), jobs)


# ----------------------------------------------------------------------------------------- users


def test_a_tenants_weight_is_divided_among_its_users() -> None:
    speed = [[1, 2], [2, 4], [1, 3], [1, 2]]
    round_ = round_of(speed, [1, 2, 1, 1], [2, 2], tenant=[0, 0, 0, 1], weight=[3.0, 1.0])
    shares = decide(OEFCooperative(), round_).shares
    assert shares.user.tolist() == ["t000/1:2", "t000/1:3", "t001/1:2"]
    assert shares.weight.tolist() == [1.5, 1.5, 1.0]
    # twice as fast on every type is the same profile
    assert shares.of_job.tolist() == [0, 0, 1, 2]


def test_groupings() -> None:
    speed, model = [[1, 2]] * 3, ["a", "b", "a"]
    round_ = round_of(speed, [1, 1, 1], [2, 2], tenant=[0, 0, 0], model=model)
    by = {
        grouping: decide(OEFNoncooperative(users=grouping), round_).shares
        for grouping in ("profile", "model", "job")
    }
    assert by["profile"].user.tolist() == ["t000/1:2"]
    assert by["model"].user.tolist() == ["t000/a/1:2", "t000/b/1:2"]
    assert by["model"].of_job.tolist() == [0, 1, 0]
    assert by["job"].user.size == 3
    assert by["job"].weight == pytest.approx([1 / 3] * 3)


def test_speeds_are_relative_to_the_slowest_type_that_can_be_used() -> None:
    # type 0 is too small for the gang of four, so that its slowest type is type 1
    round_ = round_of([[1, 2, 6], [1, 2, 6]], [1, 4], [2, 4, 4])
    assert decide(OEFNoncooperative(), round_).shares.user.tolist() == ["t000/1:2:6", "t001/0:1:3"]


def test_who_can_run_nowhere_is_left_out_and_noted() -> None:
    round_ = round_of([[1, 2], [0, 0], [1, 1]], [1, 1, 9], [2, 2])
    for policy in BOTH:
        decision = decide(policy, round_)
        assert decision.shares.of_job.tolist() == [0, -1, -1]
        assert any("job-001" in note for note in decision.notes)
        assert any("job-002" in note for note in decision.notes)
        assert decision.objective > 0
        assert decision.per_job["user"].tolist() == ["t000/1:2", "", ""]


def test_pinned_leases_are_left_alone_and_only_the_rest_is_shared() -> None:
    round_ = round_of(
        [[1, 2]] * 3, [2, 1, 1], [2, 2], running=[True, False, False], previous_type=[1, -1, -1],
        held_gpus=[2, 0, 0], preemptible=[False, True, True],
    )  # fmt: skip
    for policy in BOTH:
        decision = decide(policy, round_)
        assert decision.shares.of_job.tolist() == [-1, 0, 1]
        assert decision.shares.gpus.sum(axis=0).tolist() == pytest.approx([2.0, 0.0])


def test_a_gang_that_leases_leave_no_room_for_is_noted() -> None:
    round_ = round_of(
        [[1.0]] * 3, [2, 2, 1], [3], running=[True, False, False], previous_type=[0, -1, -1],
        held_gpus=[2, 0, 0], preemptible=[False, True, True],
    )  # fmt: skip
    decision = decide(OEFCooperative(), round_)
    assert decision.shares.of_job.tolist() == [-1, -1, 0]
    assert any("'job-001' has no part in the shares" in note for note in decision.notes)


def test_debts_that_cannot_be_paid_are_forgotten() -> None:
    """Four GPUs are meant for gangs of three: one GPU-round a round that nobody can grant."""
    round_ = round_of([[1.0]] * 5, [3] * 5, [4], tenant=[0] * 5)
    _, _, memory = follow(OEFCooperative(), round_, 12)
    assert memory["owed"].tolist() == [[8.0]]


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", range(8))
def test_numbers_of_all_sizes(policy: Any, seed: int) -> None:
    """Speeds and weights far apart: a valid answer, fair by its own words, and a usable memory."""
    rng = np.random.default_rng([11, seed])
    n = 6
    speed = 10.0 ** rng.uniform(-12, 12, (n, 3))
    round_ = round_of(
        speed, rng.choice([1, 2], n), [3, 2, 4], weight=10.0 ** rng.uniform(-9, 9, n)
    )  # fmt: skip
    _, _, memory = follow(policy, round_, 2)
    decision = decide(policy, round_, memory)
    assert decision.bound >= decision.objective
    assert (decision.shares.gpus.sum(axis=0) <= np.array([3, 2, 4]) * (1 + 1e-6)).all()
    if decision.status == "OPTIMAL":
        assert decision.gap <= 1e-9


# ------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 200))]
)
def test_long_run_grants_are_the_shares(seed: int) -> None:
    """Columns exact, nobody more than two GPUs behind, means within 2/T; jobs of one GPU."""
    rng = np.random.default_rng([8, seed])
    u, k, rounds = int(rng.integers(1, 9)), int(rng.integers(1, 4)), 100
    free = rng.integers(1, 9, k)
    part = rng.dirichlet(np.ones(u), k).T
    share = part * free * (1.0 if seed % 2 else rng.uniform(0.2, 1.0, k))
    owed, total = np.zeros((u, k)), np.zeros((u, k))
    for _ in range(rounds):
        ask = share + owed
        granted = whole_gpus(ask, free)
        assert (granted >= 0).all()
        expected = np.clip(np.floor(np.round(ask.sum(axis=0), 9) + 0.5), 0, free)
        assert granted.sum(axis=0).tolist() == expected.tolist()
        owed = ask - granted
        assert np.abs(owed).max() < 2.0
        total += granted
    assert np.abs(total / rounds - share).max() <= 2.0 / rounds


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", range(4))
def test_whole_rounds_grant_the_shares_in_the_long_run(policy: Any, seed: int) -> None:
    rng = np.random.default_rng([9, seed])
    n, m, rounds = 4, rng.integers(1, 5, 2), 60
    gpus = int(m.sum())
    speed = np.c_[np.ones(n), rng.uniform(1.0, 3.0, n)].round(2)
    round_ = round_of(
        np.repeat(speed, gpus, axis=0), np.ones(n * gpus, int), m, tenant=owners(n, gpus),
        weight=rng.choice([1.0, 2.0], n),
    )  # fmt: skip
    decisions, grants, memory = follow(policy, round_, rounds)
    shares = decisions[0].shares.gpus
    assert all(np.array_equal(one.shares.gpus, shares) for one in decisions)
    assert all((grant.sum(axis=0) == m).all() for grant in grants)
    assert np.abs(np.mean(grants, axis=0) - shares).max() <= 2.0 / rounds
    assert np.abs(memory["owed"]).max() < 2.0


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
def test_large_gangs_wait_until_they_are_owed_enough(policy: Any) -> None:
    """Two users share four GPUs; one has gangs of four, so that it runs every second round."""
    round_ = round_of(
        [[1.0]] * 6, [4, 4, 1, 1, 1, 1], [4], tenant=[0, 0, 1, 1, 1, 1]
    )  # fmt: skip
    strict = replace(policy, work_conserving=False)
    decisions, grants, memory = follow(strict, round_, 40)
    assert decisions[0].shares.gpus.ravel() == pytest.approx([2.0, 2.0])
    assert {float(grant[0, 0]) for grant in grants} == {0.0, 4.0}
    mean = np.mean(grants, axis=0).ravel()
    assert mean == pytest.approx([2.0, 2.0], abs=0.2)
    assert np.abs(memory["owed"]).max() <= 10.0


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_could_run_stays_idle(policy: Any, seed: int) -> None:
    round_ = random_round(np.random.default_rng([10, seed]), jobs=12)
    decision = decide(policy, round_)
    plan = decision.allocation
    left = round_.capacity - np.bincount(
        plan.gpu_type, weights=plan.gpus, minlength=round_.capacity.size
    )
    waits = np.setdiff1d(np.arange(len(round_.jobs)), plan.job)
    could = round_.eligible[waits] & (round_.jobs.gang[waits][:, None] <= left)
    assert not could.any()


def test_work_conservation_can_be_turned_off_and_is_not_charged() -> None:
    """Shares of 1.5 GPUs are no gang of two: without claims nobody runs, with the option one does."""
    round_ = round_of([[1.0]] * 2, [2, 2], [3])
    idle = decide(OEFNoncooperative(work_conserving=False), round_)
    assert idle.allocation.job.size <= 1
    policy = OEFNoncooperative()
    decisions, grants, _ = follow(policy, round_, 20)
    assert all(grant.sum() == 2.0 for grant in grants)
    assert decisions[0].shares.gpus.ravel() == pytest.approx([1.5, 1.5])
    assert np.mean(grants, axis=0).ravel() == pytest.approx([1.0, 1.0], abs=0.1)


def test_gpus_that_nobody_had_a_claim_to_are_not_charged() -> None:
    round_ = round_of([[1.0]] * 6, [4, 4, 1, 1, 1, 1], [4], tenant=[0, 0, 1, 1, 1, 1])
    _, grants, memory = follow(OEFCooperative(), round_, 1)
    assert grants[0].ravel().tolist() == [0.0, 4.0]
    assert memory["owed"].ravel() == pytest.approx([2.0, 0.0])


def test_who_has_waited_longest_runs_first_and_stays_on_its_type() -> None:
    columns = {"arrival_s": [0.0, 500.0, 900.0], "previous_type": [0, 1, -1]}
    round_ = round_of(
        [[1.0, 2.0]] * 3, [1, 1, 1], [1, 1], tenant=[0, 0, 0], now_s=1000.0, **columns
    )
    plan = decide(OEFCooperative(), round_).allocation
    assert plan.job.tolist() == [0, 1]
    assert plan.gpu_type.tolist() == [0, 1]


# --------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
def test_shares_are_kept_until_something_changes(policy: Any) -> None:
    speed = np.repeat([[1, 2], [1, 3], [1, 4]], 4, axis=0)
    round_ = round_of(speed, [1] * 12, [2, 2], tenant=owners(3, 4))
    decisions, _, memory = follow(policy, round_, 2)
    assert [one.stages[0].name for one in decisions] == ["lp", "recalled"]
    assert decisions[1].objective == decisions[0].objective
    assert decisions[1].status == "OPTIMAL"
    again = load_memory(dump_memory(memory))
    assert decide(policy, round_, again).stages[0].name == "recalled"
    # other GPUs, other users, other weights
    more = round_of(speed, [1] * 12, [2, 3], tenant=owners(3, 4))
    fewer = round_of(speed[:8], [1] * 8, [2, 2], tenant=owners(2, 4))
    heavy = round_of(speed, [1] * 12, [2, 2], tenant=owners(3, 4), weight=[1.0, 2.0, 1.0])
    for other in (more, fewer, heavy):
        assert decide(policy, other, memory).stages[0].name == "lp"
    # a job that ends changes a cap that holds nobody back
    rows = np.array([at for at in range(12) if at != 3])
    ended = round_of(speed[rows], [1] * 11, [2, 2], tenant=owners(3, 4)[rows])
    assert decide(policy, ended, memory).stages[0].name == "recalled"
    # a cap that binds
    rows = np.array([0, *range(4, 12)])
    capped = round_of(speed[rows], [1] * 9, [2, 2], tenant=owners(3, 4)[rows])
    decision = decide(policy, capped, memory)
    fresh = decide(policy, capped)
    assert decision.objective == pytest.approx(fresh.objective)


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
def test_newcomers_and_leavers(policy: Any) -> None:
    first = round_of([[1, 2], [1, 3]], [1, 1], [1, 0])
    _, _, memory = follow(policy, first, 1)
    joined = round_of([[1, 2], [1, 3], [1, 4]], [1, 1, 1], [1, 1])
    assert decide(policy, joined, memory).shares.user.size == 3
    alone = round_of([[1, 2]], [1], [1, 1])
    assert decide(policy, alone, memory).shares.user.size == 1
    nobody = round_of(np.zeros((0, 2)), [], [1, 1])
    assert decide(policy, nobody, memory).allocation.job.size == 0


@pytest.mark.parametrize(
    "change",
    [
        {"form": "fft"}, {"user": ["a", "a"]}, {"weight": [1.0]}, {"weight": [0.0, 1.0]},
        {"gpus": [[-1.0, 0.0], [0.0, 0.0]]}, {"owed": [[np.nan, 0.0], [0.0, 0.0]]},
        {"value": "much"}, {"bound": -1.0}, {"proved": 1}, {"speed": [[1.0], [1.0]]},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_bad_memory(change: dict[str, Any]) -> None:
    policy = OEFCooperative()
    round_ = round_of([[1, 2], [1, 3]], [1, 1], [1, 1])
    _, _, memory = follow(policy, round_, 1)
    with pytest.raises(InstanceError, match=r"^memory"):
        policy.compile(round_, {**memory, **change}, NO_LIMIT)


@pytest.mark.parametrize("memory", [{"rho": []}, 3, "text", [1, 2]])
def test_a_memory_of_somebody_else(memory: Any) -> None:
    round_ = round_of([[1, 2]], [1], [1, 1])
    with pytest.raises(InstanceError, match="not one of oef"):
        OEFNoncooperative().compile(round_, memory, NO_LIMIT)


@pytest.mark.parametrize("make", [OEFNoncooperative, OEFCooperative])
def test_bad_parameters(make: Any) -> None:
    with pytest.raises(InstanceError, match=r"oef-\w+\.users = 'tenant': must be one of"):
        make(users="tenant")
    with pytest.raises(InstanceError, match=r"oef-\w+\.work_conserving = 2: must be"):
        make(work_conserving=2)


# ----------------------------------------------------------------------------------- no time


@pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.name)
def test_without_time_shares_are_fair_and_say_so(policy: Any) -> None:
    round_ = round_of([[1, 2], [1, 3]], [1, 1], [1, 1])
    budget = Budget.of(1e-9)
    decision = policy.compile(round_, None, budget).solve(Solver(), budget)
    assert decision.time_limited
    assert decision.status == "FEASIBLE"
    assert decision.bound >= decision.objective
    assert decision.shares.gpus == pytest.approx(np.full((2, 2), 0.5))


def test_models_are_given_for_a_second_opinion() -> None:
    round_ = round_of([[1, 2], [1, 3]], [1, 1], [1, 1])
    for policy in BOTH:
        program = policy.compile(round_, None, NO_LIMIT)
        found = Solver(gap=0.0).solve(program.model, budget=NO_LIMIT)
        decision = program.solve(Solver(gap=0.0), NO_LIMIT)
        assert found.objectives[0] == pytest.approx(decision.objective)
    rng = np.random.default_rng(0)
    speed = np.c_[np.ones(61), rng.uniform(1.0, 2.0, 61)]
    many = round_of(speed, np.full(61, 40), [40, 40])
    assert OEFCooperative().compile(many, None, NO_LIMIT).model is None
    assert OEFNoncooperative().compile(many, None, NO_LIMIT).model is not None
