"""Gandiva-fair: the trades worked by hand, what trading may never do, and shares of jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.peers.gandiva_fair import GandivaFair, Users
from apportion.formulations.training.peers.gandiva_fair_trading import filled, traded
from apportion.formulations.training.time_shares import Sharers
from apportion.instances import InstanceError
from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SLOW = 300


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def decide(policy: GandivaFair, round_: TrainingRound, memory: Any = None) -> Any:
    return policy.compile(round_, memory, Budget.of(None)).solve(Solver(), Budget.of(None))


def three_users(jobs_each: int = 2) -> TrainingRound:
    """One slow and one fast GPU; speed-ups 2, 3 and 4; enough jobs to use whatever is traded."""
    n = 3 * jobs_each
    tenant = np.repeat(np.arange(3), jobs_each)
    return TrainingRound(
        cluster=Cluster.uniform({"slow": 1, "fast": 1}),
        tenants=Tenants.named("one", "two", "three"),
        jobs=Jobs.of(
            id=[f"job-{j}" for j in range(n)], gang=[1] * n, work=[1e9] * n, tenant=tenant,
            throughput_per_s=np.column_stack((np.ones(n), 2.0 + tenant)),
        ),
    )  # fmt: skip


def of_users(round_: TrainingRound, shares: Any) -> np.ndarray:
    out = np.zeros((round_.tenants.id.size, round_.cluster.types.size))
    on = np.flatnonzero(shares.of_job >= 0)
    np.add.at(out, round_.jobs.tenant[on], shares.gpus[shares.of_job[on]])
    return out


def test_trades_by_hand() -> None:
    """Start with a third of each; 3 buys at price 3, 2 buys at price 2, both from 1."""
    gpus, trades = traded(
        np.full((3, 2), 1.0 / 3.0), np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]]), np.full(3, 9.0)
    )
    assert [(t.buyer, t.seller, round(t.price, 9)) for t in trades] == [(2, 0, 3.0), (1, 0, 2.0)]
    assert [t.fast for t in trades] == pytest.approx([1 / 9, 1 / 6])
    expected = [[Fraction(1), Fraction(1, 18)], [Fraction(0), Fraction(1, 2)],
                [Fraction(0), Fraction(4, 9)]]  # fmt: skip
    assert np.allclose(gpus, np.array(expected, dtype=float))


@pytest.mark.parametrize(
    ("trading", "utility"), [(True, [10 / 9, 3 / 2, 16 / 9]), (False, [1.0, 4 / 3, 5 / 3])]
)
def test_utilities_by_hand(trading: bool, utility: list[float]) -> None:
    round_ = three_users()
    answer = decide(GandivaFair(trading=trading), round_)
    own = (of_users(round_, answer.shares) * [[1, 2], [1, 3], [1, 4]]).sum(axis=1)
    assert own == pytest.approx(utility)
    assert own.sum() == pytest.approx(79 / 18 if trading else 4.0)
    assert answer.status == "HEURISTIC"
    assert not check(round_, answer.allocation)


def test_nobody_buys_more_than_it_can_use() -> None:
    """With one job each nobody has a use for more than one GPU: the seller's room binds."""
    round_ = three_users(jobs_each=1)
    gpus = of_users(round_, decide(GandivaFair(), round_).shares)
    assert (gpus.sum(axis=1) <= 1.0 + 1e-9).all()
    utility = (gpus * [[1, 2], [1, 3], [1, 4]]).sum(axis=1)
    assert (utility >= np.array([1.0, 4 / 3, 5 / 3]) - 1e-9).all()


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    users, kinds = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    speed = rng.integers(1, 6, (users, kinds)).astype(float)
    speed[rng.random((users, kinds)) < 0.15] = 0.0
    gpus = filled(
        rng.integers(0, 9, kinds).astype(float)[None, :],
        rng.integers(1, 4, users).astype(float),
        speed > 0.0,
        rng.integers(1, 20, users).astype(float),
    )
    return gpus, speed, gpus.sum(axis=1) + rng.choice([0.0, 1.0, 50.0], users)


@pytest.mark.parametrize("seed", seeds())
def test_what_trading_never_does(seed: int) -> None:
    gpus, speed, most = draw(np.random.default_rng(seed))
    after, trades = traded(gpus, speed, most)
    assert (after >= 0.0).all()
    assert np.allclose(after.sum(axis=0), gpus.sum(axis=0), atol=1e-9)  # nothing made or lost
    before_u, after_u = (gpus * speed).sum(axis=1), (after * speed).sum(axis=1)
    assert (after_u >= before_u - 1e-9).all()  # sharing incentive
    assert (after.sum(axis=1) <= most + 1e-9).all()
    assert (after[speed == 0.0] == 0.0).all()
    for trade in trades:
        buys, sells = (
            speed[u, trade.fast_type] / speed[u, trade.slow_type]
            for u in (trade.buyer, trade.seller)
        )
        assert sells - 1e-9 <= trade.price <= buys + 1e-9
        assert trade.fast > 0.0


@pytest.mark.parametrize("seed", seeds())
def test_no_gain_is_left_where_there_is_room(seed: int) -> None:
    """Two types, demand without limit: at the end no holder of slow gains from one of fast."""
    rng = np.random.default_rng(seed)
    users = int(rng.integers(2, 7))
    speed = np.column_stack((np.ones(users), rng.integers(1, 9, users)))
    gpus = filled(
        rng.integers(1, 9, 2).astype(float)[None, :], np.ones(users), speed > 0, np.full(users, 1e6)
    )
    after, _ = traded(gpus, speed, np.full(users, 1e6))
    buys = speed[after[:, 0] > 1e-9, 1].max(initial=0.0)
    sells = speed[after[:, 1] > 1e-9, 1].min(initial=np.inf)
    assert buys <= sells + 1e-9


@pytest.mark.parametrize("seed", seeds())
def test_trading_goes_on_until_no_pair_of_types_trades(seed: int) -> None:
    gpus, speed, most = draw(np.random.default_rng(seed))
    after, _ = traded(gpus, speed, most)
    _, more = traded(after, speed, most)
    assert all(trade.fast <= 1e-6 for trade in more)


@pytest.mark.parametrize("seed", seeds())
def test_filling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, kinds, groups = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    supply = rng.integers(0, 6, (groups, kinds)).astype(float)
    able, most = rng.random((rows, kinds)) < 0.7, rng.integers(1, 5, rows).astype(float)
    group = rng.integers(0, groups, rows)
    out = filled(supply, rng.uniform(0.5, 2.0, rows), able, most, group)
    assert (out >= 0).all()
    assert (out[~able] == 0.0).all()
    assert (out.sum(axis=1) <= most + 1e-9).all()
    for g in range(groups):
        mine = group == g
        left = supply[g] - out[mine].sum(axis=0)
        assert (left >= -1e-9).all()
        # what is left over is of no use to anybody who has room
        hungry = mine & (out.sum(axis=1) < most - 1e-6)
        assert not (able[hungry] & (left > 1e-6)[None, :]).any()


def test_filling_is_in_proportion() -> None:
    out = filled(np.array([[6.0]]), np.array([1.0, 2.0]), np.ones((2, 1), bool), np.full(2, 9.0))
    assert out.ravel().tolist() == [2.0, 4.0]
    out = filled(np.array([[6.0]]), np.array([1.0, 2.0]), np.ones((2, 1), bool), np.full(2, 3.0))
    assert out.ravel() == pytest.approx([3.0, 3.0])


def draw_round(seed: int) -> TrainingRound:
    rng = np.random.default_rng(seed)
    n, k, tenants = int(rng.integers(1, 14)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    speed = rng.integers(1, 6, (n, k)).astype(float)
    speed[rng.random((n, k)) < 0.15] = 0.0
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(rng.integers(0, 7)) for i in range(k)}),
        tenants=replace(
            Tenants.named(*(f"tenant-{t}" for t in range(tenants))),
            weight=rng.integers(1, 4, tenants).astype(float),
        ),
        jobs=Jobs.of(
            id=[f"job-{j}" for j in range(n)], gang=rng.choice([1, 1, 2, 4], n), work=[1e6] * n,
            throughput_per_s=speed, tenant=rng.integers(0, tenants, n),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("trading", [True, False])
@pytest.mark.parametrize("seed", seeds())
def test_shares_of_jobs(seed: int, trading: bool) -> None:
    round_ = draw_round(seed)
    answer = decide(GandivaFair(trading=trading), round_)
    assert not check(round_, answer.allocation)
    sharers, gpus = Sharers.of(round_), answer.shares.gpus
    assert (gpus.sum(axis=0) <= round_.capacity + 1e-6).all()
    rows = sharers.rows
    own = gpus[answer.shares.of_job[rows]]
    assert (own.sum(axis=1) <= sharers.gang + 1e-6).all()
    assert (own[sharers.speed == 0.0] == 0.0).all()
    # nothing that a job could still use is left over
    left = round_.capacity - gpus.sum(axis=0)
    hungry = own.sum(axis=1) < sharers.gang - 1e-5
    assert not ((sharers.speed[hungry] > 0) & (left > 1e-5)[None, :]).any()


def test_tickets_are_weights_and_absent_users_leave_their_share() -> None:
    round_ = three_users(4)
    tenants = replace(round_.tenants, weight=np.array([2.0, 1.0, 1.0]))
    users = Users.of(Sharers.of(replace(round_, tenants=tenants)))
    assert users.entitled(np.ones(2))[:, 0].tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_turns_follow_shares_in_the_long_run() -> None:
    round_, policy = three_users(), GandivaFair(work_conserving=False)
    memory, got = None, np.zeros((3, 2))
    rounds = 180
    for at in range(rounds):
        now = replace(round_, now_s=at * round_.duration_s)
        answer = decide(policy, now, memory)
        plan = answer.allocation
        outcome = planned_outcome(now, plan)
        np.add.at(got, (now.jobs.tenant[plan.job], plan.gpu_type), outcome.gpu_s[plan.job])
        memory = policy.remember(memory, now, answer, outcome)
    meant = np.array([[1, 1 / 18], [0, 1 / 2], [0, 4 / 9]]) * rounds * round_.duration_s
    assert np.abs(got - meant).max() <= 4 * round_.duration_s


def test_memory_and_parameters() -> None:
    with pytest.raises(InstanceError, match="memory: not one of gandiva-fair"):
        decide(GandivaFair(), three_users(), {"id": ["a"]})
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InstanceError, match=r"gandiva-fair.recompute_s = "):
            GandivaFair(recompute_s=value)


@pytest.mark.parametrize("trading", [True, False])
@pytest.mark.parametrize("check_index", range(len(policy_checks(GandivaFair()))))
def test_battery(trading: bool, check_index: int) -> None:
    judge: Callable[[], None] = policy_checks(GandivaFair(trading=trading))[check_index][1]
    judge()
