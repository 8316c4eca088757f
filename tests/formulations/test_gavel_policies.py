"""Gavel's policies as policies: the battery, memory, parameters, side rules, little time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion import solve
from apportion.executor.training import check
from apportion.formulations.training.gavel import (
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelThroughput,
)
from apportion.formulations.training.gavel.hierarchy import fill_entities
from apportion.formulations.training.time_share_program import TIME, fractions_of
from apportion.formulations.training.time_shares import Sharers
from apportion.instances import InstanceError
from apportion.instances.training import Cluster, Jobs, Outcome, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, ModelBuilder, ModelError, Solver
from apportion.testing import policy_checks, random_round

POLICIES: tuple[Any, ...] = (
    GavelLAS(),
    GavelLAS(aware=False),
    GavelLAS(levels="lexicographic"),
    GavelLAS(tenants="fairness"),
    GavelLAS(tenants="fifo"),
    GavelFTF(),
    GavelMakespan(),
    GavelCost(),
    GavelCost(form="ratio", units="normalised"),
    GavelCost(deadlines="ignored", recompute_s=1920.0),
    GavelThroughput(),
    GavelThroughput(units="normalised"),
)


@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{policy.name}-{at}-{name}")
        for at, policy in enumerate(POLICIES)
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_proved_answer_through_the_face(policy: Any) -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        round_ = random_round(rng)
        answer = solve(round_, policy, gap=0.0)
        assert answer.status == "OPTIMAL"
        assert answer.gap is not None
        assert answer.gap <= 1e-6
        assert not check(round_, answer.allocation)


def test_without_time_everybody_has_an_equal_share() -> None:
    round_ = random_round(np.random.default_rng(1), running=False)

    class Over:
        def left_s(self) -> float:
            return 0.0

    for policy in POLICIES:
        decision = policy.compile(round_, None, Over()).solve(Solver(), Over())
        assert decision.status == "FEASIBLE"
        assert decision.time_limited
        assert decision.bound is None
        assert not check(round_, decision.allocation)


def test_entities_without_time_keep_what_they_have() -> None:
    # a search that ends after the first step leaves a valid, unproved answer
    round_ = TrainingRound(
        cluster=Cluster.uniform({"v": 2}),
        jobs=Jobs.of(
            id=["a", "b", "c"], gang=[1, 1, 1], work=[1.0] * 3,
            throughput_per_s=[[1.0]] * 3, weight=[1.0, 3.0, 9.0],
        ),
    )  # fmt: skip

    class Once:
        """Solves one model and no more."""

        gap, asked = 0.0, 0

        def solve(self, model: Any, **given: Any) -> Any:
            self.asked += 1
            found = Solver(gap=0.0).solve(model, **given)
            return found if self.asked == 1 else replace(found, point=None)

    policy, sharers = GavelLAS(tenants="fairness"), Sharers.of(round_)
    levels = policy.levels_of(sharers)
    whole = fill_entities(levels, policy.entities(sharers), Solver(), Budget.of(None))
    assert whole.finished
    assert whole.steps == 2  # c is at its cap, then the rest of the second GPU
    assert whole.level == pytest.approx([0.25, 0.75, 1.0])
    answer = policy.fractions(sharers, Once(), Budget.of(None))
    assert answer.status == "FEASIBLE"
    assert any("ended early" in note for note in answer.notes)
    assert policy.value(sharers, answer.x) == pytest.approx(13.0 / 9.0)
    assert answer.x.sum(axis=1) == pytest.approx([1 / 9, 3 / 9, 1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GavelLAS(levels="min"), r"gavel-las.levels = 'min': must be one of max-min"),
        (lambda: GavelLAS(tenants="all"), r"gavel-las.tenants = 'all': must be one of ignored"),
        (lambda: GavelFTF(recompute_s=-1.0), r"gavel-ftf.recompute_s = -1.0: must be a number"),
        (lambda: GavelMakespan(recompute_s=np.nan), r"gavel-makespan.recompute_s = nan"),
        (lambda: GavelCost(form="sum"), r"gavel-cost.form = 'sum': must be one of code, ratio"),
        (lambda: GavelCost(deadlines="no"), r"gavel-cost.deadlines = 'no': must be one of"),
        (lambda: GavelThroughput(units="si"), r"gavel-throughput.units = 'si': must be one of"),
    ],
)
def test_bad_parameters(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        make()


def remembered(policy: Any, round_: TrainingRound) -> Any:
    budget = Budget.of(None)
    decision = policy.compile(round_, None, budget).solve(Solver(), budget)
    return policy.remember(None, round_, decision, planned_outcome(round_, decision.allocation))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "memory: not one of gavel-ftf: it lacks id or isolated_s"),
        ([1.0], "memory.isolated_s has shape"),
        ([-1.0, 0.0], r"memory.isolated_s\[0\] = -1.0: must not be negative"),
        ([np.nan, 0.0], r"memory.isolated_s\[0\] = NaN"),
    ],
)
def test_memory_of_another_policy(value: Any, message: str) -> None:
    round_ = random_round(np.random.default_rng(0), jobs=2, running=False)
    memory = remembered(GavelFTF(), round_)
    broken = {key: one for key, one in memory.items() if key != "isolated_s"}
    broken |= {} if value is None else {"isolated_s": value}
    with pytest.raises(InstanceError, match=message):
        GavelFTF().compile(round_, broken, Budget.of(None))
    for policy in POLICIES:
        with pytest.raises(InstanceError, match=f"memory: not one of {policy.name}"):
            policy.compile(round_, 3, Budget.of(None))


def test_isolated_time_adds_up_by_id() -> None:
    # alone each of two jobs has half of the GPU
    jobs = Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[1e3, 1e3], throughput_per_s=[[1.0], [2.0]],
        work_done=[0.0, 100.0],
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"v": 1}), jobs=jobs)
    policy, budget = GavelFTF(), Budget.of(None)
    decision = policy.compile(round_, None, budget).solve(Solver(), budget)
    done = Outcome(0.0, 300.0, np.array([30.0, 40.0]), np.zeros(2), np.zeros(2, bool))
    memory = policy.remember(None, round_, decision, done)
    # b's work before it was seen counts at today's speed, 1 a second
    assert memory["isolated_s"].tolist() == [60.0, 140.0]
    later = replace(
        round_, now_s=300.0,
        jobs=Jobs.of(
            id=["new", "b"], gang=[1, 1], work=[1e3, 1e3], throughput_per_s=[[1.0], [2.0]],
            work_done=[0.0, 140.0],
        ),
    )  # fmt: skip
    decision = policy.compile(later, memory, budget).solve(Solver(), budget)
    again = policy.remember(memory, later, decision, done)
    assert again["isolated_s"].tolist() == [60.0, 180.0]


SINGLE = [policy for policy in POLICIES if policy.name != "gavel-ftf"]


@pytest.mark.parametrize("policy", SINGLE, ids=lambda policy: policy.name)
def test_the_model_says_what_the_policy_does(policy: Any) -> None:
    rng = np.random.default_rng(7)
    for _ in range(5):
        round_ = random_round(rng, running=False)
        budget = Budget.of(None)
        program = policy.compile(round_, None, budget)
        if program.model is None:
            return
        own = program.solve(Solver(gap=0.0), budget)
        other = program.with_model(program.model).solve(Solver(gap=0.0), budget)
        assert other.status == "OPTIMAL"
        assert other.objective == pytest.approx(own.objective, rel=1e-6)
        assert other.bound == pytest.approx(own.objective, rel=1e-6)
        assert not check(round_, other.allocation)


def two() -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"v": 1, "k": 1}),
        jobs=Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[1e4, 1e4], throughput_per_s=[[4.0, 1.0], [2.0, 1.0]]
        ),
    )


def test_side_rules_bind_the_fractions() -> None:
    def no_v_for_a(problem: Any, x: Any) -> Any:
        problem += x["a"]["v"] <= 0.25
        return problem

    free = solve(two(), GavelThroughput(), gap=0.0)
    assert free.objective == pytest.approx(5.0)
    bound = solve(two(), GavelThroughput(), gap=0.0, side_rules=no_v_for_a)
    # a: 1/4 v, 3/4 k; b: 3/4 v, 1/4 k
    assert bound.objective == pytest.approx(1.75 + 1.75)
    assert bound.status == "OPTIMAL"
    makespan = solve(two(), GavelMakespan(), gap=0.0, side_rules=no_v_for_a)
    assert makespan.objective == pytest.approx(1e4 / 1.75)

    def impossible(problem: Any, x: Any) -> Any:
        problem += x["a"]["v"] >= 2.0
        return problem

    none = solve(two(), GavelThroughput(), gap=0.0, side_rules=impossible)
    assert none.status == "INFEASIBLE"
    assert any("side rules" in note for note in none.notes)
    with pytest.raises(InstanceError, match="no model that rules can be added to"):
        solve(two(), GavelFTF(), side_rules=no_v_for_a)


def test_fractions_are_read_by_name() -> None:
    builder = ModelBuilder("other")
    y = builder.columns("y", 2)
    builder.objective("y", column=y, value=1.0)
    model = builder.build()
    found = Solver().solve(model, budget=Budget.of(None))
    with pytest.raises(ModelError, match=f"no columns '{TIME}'"):
        fractions_of(model, found, 1, 2)
    builder = ModelBuilder("plain")
    x = builder.columns(TIME, 2)
    builder.objective("x", column=x, value=1.0)
    with pytest.raises(ModelError, match="have no codes for 'job'"):
        fractions_of(builder.build(), found, 1, 2)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_numbers_of_very_different_size(policy: Any) -> None:
    # a is nearly done, b has hardly begun; their speeds are 1e6 apart
    round_ = TrainingRound(
        cluster=Cluster.uniform({"v": 2, "k": 2}), now_s=1e5,
        jobs=Jobs.of(
            id=["a", "b", "c", "d"], gang=[1, 2, 1, 2], work=[1e9, 1e9, 1e3, 1.0],
            throughput_per_s=[[1e3, 5e2], [2e3, 1e3], [1e-3, 2e-3], [1e-3, 1e-3]],
            work_done=[1e9, 0.0, 1.0, 0.0], weight=[1.0, 100.0, 1e-2, 1.0],
        ),
    )  # fmt: skip
    answer = solve(round_, policy, gap=0.0)
    assert answer.status == "OPTIMAL"
