"""Gavel's policies on examples worked by hand, in exact fractions."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training.gavel import (
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelThroughput,
)
from apportion.formulations.training.gavel.hierarchy import fill_entities
from apportion.formulations.training.time_shares import Sharers
from apportion.instances import Decision, InstanceError
from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick

TWO = ((4.0, 1.0), (2.0, 1.0))
THREE = (*TWO, (3.0, 1.0))
PRICES = {"v": 3.0, "k": 1.0}


def case(speed: Any, gpus: tuple[int, ...] = (1, 1), **columns: Any) -> TrainingRound:
    n, kinds = len(speed), "vkpq"[: len(gpus)]
    tenants = columns.pop("tenants", Tenants.named("default"))
    now_s = columns.pop("now_s", 0.0)
    columns = {"gang": [1] * n, "work": [100.0] * n, **columns}
    return TrainingRound(
        cluster=Cluster.uniform(dict(zip(kinds, gpus, strict=True))),
        jobs=Jobs.of(id=list("abcdefgh"[:n]), throughput_per_s=speed, **columns),
        now_s=now_s, tenants=tenants,
    )  # fmt: skip


def decide(policy: Any, round_: TrainingRound, memory: Any = None) -> Decision:
    budget = Budget.of(None)
    decision = policy.compile(round_, memory, budget).solve(Solver(gap=0.0), budget)
    assert decision.status == "OPTIMAL"
    assert decision.bound == pytest.approx(decision.objective, rel=1e-6)
    return decision


def fractions(round_: TrainingRound, decision: Decision) -> Any:
    return decision.shares.gpus / round_.jobs.gang[decision.shares.of_job >= 0][:, None]


def speeds(round_: TrainingRound, decision: Decision) -> list[float]:
    x = fractions(round_, decision)
    return (round_.jobs.throughput_per_s * x).sum(axis=1).tolist()


def test_two_jobs_share_both_types_evenly() -> None:
    round_ = case(TWO)
    decision = decide(GavelLAS(), round_)
    assert decision.objective == pytest.approx(1.0, rel=1e-12)
    assert speeds(round_, decision) == pytest.approx([2.5, 1.5])


@pytest.mark.parametrize("levels", ["max-min", "lexicographic"])
def test_three_jobs_reach_eight_elevenths(levels: Any) -> None:
    round_ = case(THREE)
    decision = decide(GavelLAS(levels=levels), round_)
    assert decision.objective == pytest.approx(float(Fraction(8, 11)), rel=1e-12)
    assert speeds(round_, decision) == pytest.approx([20 / 11, 12 / 11, 16 / 11])


def test_weights_and_gangs_count() -> None:
    # alone on one GPU: x_a 1 / 2 = x_b 1 / 1, so a of weight 2 runs two thirds of the time
    one = case(((1.0,), (1.0,)), (1,), weight=[2.0, 1.0])
    assert fractions(one, decide(GavelLAS(), one))[:, 0] == pytest.approx([2 / 3, 1 / 3])
    # a gang of 2 has twice the level per time: 2 x_a = x_b and 2 x_a + x_b = 2
    two = case(((1.0,), (1.0,)), (2,), gang=[2, 1])
    assert fractions(two, decide(GavelLAS(), two))[:, 0] == pytest.approx([1 / 2, 1.0])


def test_the_unaware_give_time_and_not_speed() -> None:
    round_ = case(THREE)
    x = fractions(round_, decide(GavelLAS(aware=False), round_))
    assert x.sum(axis=1) == pytest.approx([2 / 3] * 3)


def test_the_second_level_rises_where_there_is_room() -> None:
    # a and b share v; c alone can use k
    round_ = case(((1.0, 0.0), (1.0, 0.0), (0.0, 1.0)))
    decision = decide(GavelLAS(levels="lexicographic"), round_)
    assert decision.objective == pytest.approx(1.0)  # half the time at 1, over 1/2
    assert speeds(round_, decision) == pytest.approx([0.5, 0.5, 1.0])


def test_tenants_fill_up_by_their_weights() -> None:
    tenants = Tenants(["one", "two"], [1.0, 2.0], [math.inf] * 2)
    columns = {"tenant": [0, 0, 1], "tenants": tenants, "weight": [1.0, 3.0, 1.0]}
    round_ = case(((1.0,), (1.0,), (1.0,)), (1,), **columns)
    fair = speeds(round_, decide(GavelLAS(tenants="fairness"), round_))
    assert fair == pytest.approx([1 / 12, 3 / 12, 2 / 3])
    fifo = speeds(round_, decide(GavelLAS(tenants="fifo"), round_))
    assert fifo == pytest.approx([1 / 3, 0.0, 2 / 3])
    # of two GPUs c takes the whole one it can use, a the one that tenant one can have; b waits
    wide = replace(round_, cluster=Cluster.uniform({"v": 2}))
    assert speeds(wide, decide(GavelLAS(tenants="fifo"), wide)) == pytest.approx([1.0, 0.0, 1.0])
    # a and b have 1/4 and 3/4 of a GPU when c has its whole one
    rates = speeds(wide, decide(GavelLAS(tenants="fairness"), wide))
    assert rates == pytest.approx([1 / 4, 3 / 4, 1.0])


def test_first_come_first_served_inside_a_tenant() -> None:
    columns = {"arrival_s": [5.0, 1.0, 3.0], "now_s": 10.0}
    round_ = case(((1.0,), (1.0,), (1.0,)), (2,), **columns)
    rates = speeds(round_, decide(GavelLAS(tenants="fifo"), round_))
    assert rates == pytest.approx([0.0, 1.0, 1.0])


def test_makespan_of_two_jobs() -> None:
    round_ = case(TWO)
    decision = decide(GavelMakespan(), round_)
    assert decision.objective == pytest.approx(float(Fraction(400, 7)), rel=1e-12)
    assert fractions(round_, decision) == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]))
    assert speeds(round_, decision) == pytest.approx([1.75, 1.75])
    # at the speed of the first type everywhere: 25 s and 50 s of time on two GPUs
    assert decide(GavelMakespan(aware=False), round_).objective == pytest.approx(50.0)


def due(time_s: float) -> dict[str, Any]:
    """Let the second of two jobs be due."""
    return {
        "slo": [False, True], "deadline_offsets": [0, 0, 1], "deadline_s": [time_s],
        "deadline_value": [1.0],
    }  # fmt: skip


def test_throughput_for_money_as_a_sum() -> None:
    policy = GavelCost(prices=PRICES)
    free = case(TWO)
    decision = decide(policy, free)
    assert decision.objective == pytest.approx(float(Fraction(7, 3)))
    assert fractions(free, decision) == pytest.approx(np.eye(2))
    bound = case(TWO, **due(100.0 / 1.5))
    decision = decide(policy, bound)
    assert decision.objective == pytest.approx(2.0)
    assert fractions(bound, decision) == pytest.approx(np.full((2, 2), 0.5))


def test_throughput_for_money_as_a_ratio() -> None:
    policy = GavelCost(prices=PRICES, form="ratio")
    free = case(TWO)
    decision = decide(policy, free)
    assert decision.objective == pytest.approx(float(Fraction(4, 3)))
    # as much is spent as can be at that ratio
    assert fractions(free, decision) == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.0]]), abs=1e-6)
    # of many optima (a on k anywhere up to half the time) any one will do
    bound = case(TWO, **due(100.0 / 1.5))
    decision = decide(policy, bound)
    assert decision.objective == pytest.approx(1.0)
    assert speeds(bound, decision)[1] >= 1.5 - 1e-6


def test_a_speed_that_a_deadline_asks_for() -> None:
    free, bound = case(TWO), case(TWO, **due(100.0 / 1.6))
    assert decide(GavelCost(), free).objective == pytest.approx(5.0)
    assert decide(GavelThroughput(), bound).objective == pytest.approx(5.0)
    decision = decide(GavelCost(), bound)
    assert decision.objective == pytest.approx(3.8)
    assert fractions(bound, decision) == pytest.approx(np.array([[0.4, 0.6], [0.6, 0.4]]))
    assert decision.notes == ()


def test_fewest_deadlines_are_given_up() -> None:
    # a asks for the whole GPU; b and c for half of it each
    columns = {
        "slo": [True] * 3, "deadline_offsets": [0, 1, 2, 3], "deadline_s": [100.0, 200.0, 200.0],
        "deadline_value": [1.0] * 3,
    }  # fmt: skip
    round_ = case(((1.0,), (1.0,), (1.0,)), (1,), **columns)
    decision = decide(GavelCost(), round_)
    assert decision.notes == ("1 deadline was given up: 'a'",)
    assert speeds(round_, decision) == pytest.approx([0.0, 0.5, 0.5])
    everything = decide(GavelCost(deadlines="all"), round_)
    assert everything.notes == ("3 deadlines were given up: 'a', 'b', 'c'",)
    assert decide(GavelCost(deadlines="ignored"), round_).notes == ()


def test_a_deadline_that_has_passed_or_is_too_near() -> None:
    for time_s in (99.0, 120.0):  # at 100 s; then 100 units of work at speed 2 are too much
        round_ = case(TWO, now_s=100.0, **due(time_s))
        decision = decide(GavelCost(), round_)
        assert decision.objective == pytest.approx(5.0)
        assert decision.notes == ("1 deadline was given up: 'b'",)


def test_finish_time_fairness_of_two_jobs() -> None:
    round_ = case(
        ((1.0,), (1.0,)), (1,), work=[10.0, 40.0], work_done=[0.0, 20.0], now_s=10.0
    )  # fmt: skip
    nothing = np.zeros((2, 1))
    memory = {
        "id": ["a", "b"], "x": nothing, "received_s": nothing, "deficit_s": nothing,
        "capacity": [2.0], "since_s": 0.0, "isolated_s": [0.0, 20.0],
    }  # fmt: skip
    decision = decide(GavelFTF(), round_, memory)
    root = math.sqrt(33.0)
    assert decision.objective == pytest.approx((10.0 + 10.0 / ((root - 3.0) / 4.0)) / 20.0)
    assert decision.objective == pytest.approx(1.22871, abs=1e-5)
    assert fractions(round_, decision)[:, 0] == pytest.approx([(root - 3) / 4, (7 - root) / 4])


def test_types_taken_by_others_leave_a_job_out() -> None:
    round_ = case(
        ((1.0, 0.0), (1.0, 0.0), (1.0, 1.0)), running=[True, False, False],
        previous_type=[0, -1, -1], held_gpus=[1, 0, 0], preemptible=[False, True, True],
    )  # fmt: skip
    for policy in (GavelLAS(), GavelFTF(), GavelMakespan(), GavelCost(), GavelThroughput()):
        decision = decide(policy, round_)
        assert any("left out" in note and "'b'" in note for note in decision.notes)
        assert decision.shares.of_job.tolist() == [1, -1, 0]


def test_prices_name_the_types() -> None:
    with pytest.raises(InstanceError, match=r"gavel-cost.prices: has no price of type 'k'"):
        decide(GavelCost(prices={"v": 1.0}), case(TWO))
    with pytest.raises(InstanceError, match=r"gavel-cost.prices\['v'\] = 0.0: must be"):
        GavelCost(prices={"v": 0.0})
    for prices, message in (
        ("v=3,k", r"prices\['k'\] = : must be a number"),
        ({"v": "dear"}, r"prices\['v'\] = dear: must be a number"),
        (3.0, r"prices = 3.0: must be prices by type"),
    ):
        with pytest.raises(InstanceError, match=message):
            GavelCost(prices=prices)
    assert GavelCost(prices="v=3, k=1") == GavelCost(prices=PRICES)
    assert hash(GavelCost(prices=PRICES)) == hash(GavelCost(prices="v=3,k=1"))


def test_jobs_that_reach_their_caps_together_hold_nobody_back() -> None:
    # on one type a gang's cap is its size: a and b end at 1 in one step, c goes on to 2
    tenants = Tenants(["one", "two", "three"], [1.0] * 3, [math.inf] * 3)
    columns = {"gang": [1, 1, 2], "tenant": [0, 1, 2], "tenants": tenants}
    policy, sharers = GavelLAS(tenants="fifo"), Sharers.of(case(((1.0,),) * 3, (5,), **columns))
    filled = fill_entities(
        policy.levels_of(sharers), policy.entities(sharers), Solver(gap=0.0), Budget.of(None)
    )
    assert filled.level == pytest.approx([1.0, 1.0, 2.0])
