"""Fractions become leases: who comes first, what is owed, and what memory keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.time_share_program import Fractions, TimeShareProgram
from apportion.formulations.training.time_shares import (
    Received,
    Sharers,
    leased,
    recall,
    remembered,
)
from apportion.instances import InstanceError
from apportion.instances.training import Cluster, Jobs, Outcome, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, NoSolutionError, Solver
from apportion.testing import policy_checks, random_round


@dataclass(frozen=True)
class Given:
    """Shares time by a fixed rule; counts how often it was asked."""

    name: ClassVar[str] = "given"
    source: ClassVar[str] = "a test"
    subscribes: ClassVar[frozenset[Any]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation"})

    recompute_s: float = 0.0
    work_conserving: bool = True
    fails: bool = False

    def compile(self, round_: Any, memory: Any, budget: Any) -> TimeShareProgram:
        return TimeShareProgram.of(self, round_, memory)

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        return remembered(decision, outcome)

    def fractions(self, sharers: Sharers, solver: Any, budget: Any) -> Fractions:
        if self.fails:
            raise NoSolutionError("out of time")
        return Fractions(sharers.isolated, "OPTIMAL", self.value(sharers, sharers.isolated))

    def value(self, sharers: Sharers, x: Any) -> float:
        return float(x.sum())

    def model_of(self, sharers: Sharers) -> None:
        return None


def two_types(now_s: float = 0.0) -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"v": 1, "k": 1}),
        jobs=Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[1e4, 1e4], throughput_per_s=[[4.0, 1.0], [2.0, 1.0]]
        ),
        now_s=now_s,
    )


def test_isolated_shares_by_hand() -> None:
    sharers = Sharers.of(two_types())
    assert np.allclose(sharers.isolated, 0.5)  # 1 / (2 jobs * 1 GPU) of each type
    wide = Sharers.of(
        replace(two_types(), cluster=Cluster.uniform({"v": 4, "k": 4}))
    )  # 2 of each type would be 4 rounds long: scaled down to one
    assert np.allclose(wide.isolated, 0.5)


def test_those_who_received_least_come_first() -> None:
    sharers = Sharers.of(two_types(now_s=600.0))
    x = np.full((2, 2), 0.5)
    # a had the fast type twice, b the slow one: now each is owed the other
    got = np.array([[600.0, 0.0], [0.0, 600.0]])
    received = Received(x, got, np.zeros((2, 2)), since_s=0.0)
    assert leased(sharers, received, 600.0).tolist() == [1, 0]
    # of the same ratio the one with the larger deficit
    even = Received(x, np.full((2, 2), 300.0), np.array([[0.0, 0.0], [50.0, 0.0]]), 0.0)
    assert leased(sharers, even, 600.0).tolist() == [1, 0]


def test_what_does_not_fit_is_passed_over_and_idle_gpus_are_given_away() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"v": 3}),
        jobs=Jobs.of(
            id=["big", "mid", "one"], gang=[3, 2, 1], work=[1e4] * 3,
            throughput_per_s=[[1.0]] * 3,
        ),
    )  # fmt: skip
    sharers = Sharers.of(round_)
    x = np.array([[0.1], [0.6], [0.0]])
    received = Received(x, np.zeros((3, 1)), np.zeros((3, 1)), 0.0)
    assert leased(sharers, received, 0.0).tolist() == [-1, 0, 0]
    assert leased(sharers, received, 0.0, work_conserving=False).tolist() == [-1, 0, -1]


def follow(policy: Given, round_: TrainingRound, rounds: int) -> tuple[np.ndarray, Any, list[Any]]:
    """Carry a policy's decisions out as planned; give the time of each job on each type."""
    memory, decisions = None, []
    got = np.zeros((len(round_.jobs), round_.cluster.types.size))
    for at in range(rounds):
        now = replace(round_, now_s=at * round_.duration_s)
        program = policy.compile(now, memory, Budget.of(None))
        decision = program.solve(Solver(), Budget.of(None))
        assert not check(now, decision.allocation)
        outcome = planned_outcome(now, decision.allocation)
        plan = decision.allocation
        got[plan.job, plan.gpu_type] += outcome.gpu_s[plan.job] / plan.gpus
        memory = policy.remember(memory, now, decision, outcome)
        decisions.append(decision)
    return got, memory, decisions


def test_leases_follow_the_fractions_in_the_long_run() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"v": 2, "k": 3}),
        jobs=Jobs.of(
            id=list("abcd"), gang=[1, 1, 1, 1], work=[1e9] * 4,
            throughput_per_s=[[4.0, 1.0], [2.0, 1.0], [3.0, 1.0], [5.0, 2.0]],
        ),
    )  # fmt: skip
    rounds = 60
    got, _, _ = follow(Given(work_conserving=False), round_, rounds)
    meant = Sharers.of(round_).isolated * rounds * round_.duration_s
    # whole rounds: nobody is further off than two of them
    assert np.abs(got - meant).max() <= 2.0 * round_.duration_s


def test_fractions_are_kept_until_the_jobs_change() -> None:
    policy, round_ = Given(), two_types()
    _, memory, decisions = follow(policy, round_, 3)
    assert [d.stages[-1].name for d in decisions] == ["fractions", "remembered", "remembered"]
    more = TrainingRound(
        cluster=round_.cluster, now_s=900.0,
        jobs=Jobs.of(
            id=["b", "c"], gang=[1, 1], work=[1e4, 1e4],
            throughput_per_s=[[2.0, 1.0], [3.0, 1.0]],
        ),
    )  # fmt: skip
    again = policy.compile(more, memory, Budget.of(None)).solve(Solver(), Budget.of(None))
    assert again.stages[-1].name == "fractions"
    patient = replace(policy, recompute_s=1e4)
    kept = patient.compile(more, memory, Budget.of(None)).solve(Solver(), Budget.of(None))
    assert kept.stages[-1].name == "remembered"
    gpus = kept.shares.gpus
    assert np.allclose(gpus, 0.5)  # b's own, and an equal share for the newcomer


def test_deficit_is_what_was_meant_less_what_was_received() -> None:
    sharers = Sharers.of(two_types())
    x = np.full((2, 2), 0.5)
    had = Received(x, np.array([[300.0, 0.0], [0.0, 300.0]]), np.zeros((2, 2)), since_s=0.0)
    fresh = had.fresh(x, 400.0)
    assert fresh.deficit_s.tolist() == [[-100.0, 200.0], [200.0, -100.0]]
    assert fresh.since_s == 400.0
    assert not fresh.received_s.any()
    assert sharers.rows.tolist() == [0, 1]


def test_a_search_that_fails_is_said_and_tried_again() -> None:
    policy, round_ = Given(fails=True, recompute_s=1e6), two_types()
    failed = policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))
    assert failed.status == "NO_SOLUTION"
    assert failed.bound is None
    assert any("out of time" in note for note in failed.notes)
    assert not check(round_, failed.allocation)
    memory = policy.remember(None, round_, failed, planned_outcome(round_, failed.allocation))
    later = replace(round_, now_s=300.0)
    good = replace(policy, fails=False).compile(later, memory, Budget.of(None))
    assert good.solve(Solver(), Budget.of(None)).stages[-1].name == "fractions"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("x", None, "memory: not one of given"),
        ("x", [[0.5, 0.5]], "memory.x has shape"),
        ("received_s", [[0.0, -1.0], [0.0, 0.0]], r"memory.received_s\[0, 1\] = -1.0"),
        ("since_s", float("nan"), "memory.since_s = nan"),
        ("id", ["a", "a"], r"memory.id\[1\]"),
    ],
)
def test_memory_of_another_kind(key: str, value: Any, message: str) -> None:
    policy, round_ = Given(), two_types()
    _, memory, _ = follow(policy, round_, 1)
    broken = {k: v for k, v in memory.items() if k != key} | ({} if value is None else {key: value})
    with pytest.raises(InstanceError, match=message):
        recall(Sharers.of(round_), broken, "given")
    with pytest.raises(InstanceError, match="not one of given"):
        recall(Sharers.of(round_), 3, "given")


def test_never_more_than_there_is() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        round_ = random_round(rng)
        sharers = Sharers.of(round_)
        x = rng.random((len(round_.jobs), round_.cluster.types.size))
        received = Received(x, rng.random(x.shape) * 100, rng.normal(size=x.shape), 0.0)
        kinds = leased(sharers, received, 300.0)
        on = np.flatnonzero(kinds >= 0)
        assert sharers.able[on, kinds[on]].all()
        used = np.bincount(kinds[on], weights=round_.jobs.gang[on], minlength=x.shape[1])
        assert (used <= sharers.held.free).all()
        left = sharers.held.free - used
        wait = np.setdiff1d(sharers.rows, on)
        fits = sharers.able[wait] & (round_.jobs.gang[wait][:, None] <= left[None, :])
        assert not fits.any()


@pytest.mark.parametrize(("name", "judge"), policy_checks(Given()))
def test_battery(name: str, judge: Callable[[], None]) -> None:
    judge()


def test_outcome_is_counted_by_the_time_a_gang_was_held() -> None:
    policy, round_ = Given(), two_types()
    decision = policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))
    outcome = Outcome(0.0, 300.0, np.zeros(2), np.array([120.0, 300.0]), np.zeros(2, bool))
    memory = remembered(decision, outcome)
    plan = decision.allocation
    held = dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))
    assert memory["received_s"][0, held[0]] == 120.0
    assert memory["received_s"][1, held[1]] == 300.0
    assert memory["received_s"].sum() == 420.0
