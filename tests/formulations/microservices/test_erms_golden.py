"""Erms on examples worked by hand: targets, rounded plans, exact plans, three ways of sharing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from apportion.executor.microservices import check
from apportion.formulations.microservices.erms import Erms
from apportion.formulations.microservices.erms.exact import cheapest, incumbent, solve_one
from apportion.formulations.microservices.erms.problem import Workload
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    LinearLatency,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick
NO_LIMIT = Budget.of(None)


def straight(slope: list[float], intercept: list[float] | float = 0.0) -> LinearLatency:
    """One line for each microservice."""
    a = np.array(slope, dtype=float)
    b = np.broadcast_to(np.array(intercept, dtype=float), a.shape).copy()
    return LinearLatency(a, b, a, b, np.full(a.size, np.inf))


def lively(ids: list[str], **more: Any) -> Microservices:
    """Microservices whose laws bind nothing."""
    return Microservices.of(ids, 10.0, -1e-6, **more)


def chain(slope: list[float], target: float, **lines: Any) -> MicroserviceRound:
    ids = [f"m{at}" for at in range(len(slope))]
    return MicroserviceRound(
        lively(ids), Services.of(["s"], 1.0, target),
        CallClasses.of(["k"], CallTrees.serial([[1.0]] * len(slope))),
        linear=straight(slope, **lines),
    )  # fmt: skip


def side_by_side(slope: list[float], target: float, **lines: Any) -> MicroserviceRound:
    ids = [f"m{at}" for at in range(len(slope))]
    tree = CallTrees.nested([[[{"microservice": name} for name in ids]]], ids)
    return MicroserviceRound(
        lively(ids), Services.of(["s"], 1.0, target), CallClasses.of(["k"], tree),
        linear=straight(slope, **lines),
    )  # fmt: skip


def shared() -> MicroserviceRound:
    """Two services with a microservice of their own each, and one that both call."""
    return MicroserviceRound(
        lively(["U", "H", "P"]),
        Services.of(["u", "h"], [1.0, 1.0], 30.0),
        CallClasses.of(
            ["u", "h"], CallTrees.serial([[1, 0], [0, 1], [1, 1]]), share=[1.0, 1.0],
            service=[0, 1],
        ),
        linear=straight([400.0, 100.0, 100.0]),
    )  # fmt: skip


def decide(round_: MicroserviceRound, **options: Any) -> Any:
    program = Erms(**options).compile(round_, None, NO_LIMIT)
    decision = program.solve(Solver(gap=0.0), NO_LIMIT)
    assert not check(round_, decision.allocation)
    return program, decision


@pytest.mark.parametrize("form", ["kkt", "exact"])
def test_a_chain_gets_targets_by_roots(form: str) -> None:
    program, decision = decide(chain([100.0, 400.0], 30.0), form=form)
    assert program.targets_ms[:, 0] == pytest.approx([10.0, 20.0])
    assert decision.allocation.containers.tolist() == [10, 20]
    assert decision.objective == 30.0
    if form == "exact":
        assert decision.status == "OPTIMAL"
        assert decision.bound == pytest.approx(30.0)
    else:
        assert decision.per_job["target_ms"] == pytest.approx([10.0, 20.0])


@pytest.mark.parametrize("form", ["kkt", "exact"])
def test_calls_side_by_side_get_the_whole_target(form: str) -> None:
    program, decision = decide(side_by_side([100.0, 400.0], 30.0), form=form)
    assert program.targets_ms[:, 0] == pytest.approx([30.0, 30.0])
    assert decision.allocation.containers.tolist() == [4, 14]


def test_intercepts_come_first() -> None:
    # 3 + 2 of 30 are spoken for; the other 25 go 1 to 2
    program, decision = decide(chain([100.0, 400.0], 30.0, intercept=[3.0, 2.0]))
    assert program.targets_ms[:, 0] == pytest.approx([3.0 + 25 / 3, 2.0 + 50 / 3])
    assert decision.allocation.containers.tolist() == [12, 24]


def test_members_with_unequal_intercepts_share_the_largest() -> None:
    program, decision = decide(side_by_side([100.0, 400.0], 30.0, intercept=[20.0, 2.0]))
    assert program.targets_ms[:, 0] == pytest.approx([30.0, 30.0])
    assert decision.allocation.containers.tolist() == [10, 15]


def test_cost_weighs_in_the_root() -> None:
    round_ = chain([100.0, 100.0], 30.0)
    dear = MicroserviceRound(
        lively(["m0", "m1"], cost=[4.0, 1.0]), round_.services, round_.classes,
        linear=round_.linear,
    )  # fmt: skip
    program, decision = decide(dear)
    assert program.targets_ms[:, 0] == pytest.approx([20.0, 10.0])
    assert decision.allocation.containers.tolist() == [5, 10]
    assert decision.objective == 30.0


def test_repeats_multiply_latency_and_work() -> None:
    round_ = MicroserviceRound(
        lively(["m"]), Services.of(["s"], 1.0, 30.0),
        CallClasses.of(["k"], CallTrees.serial([[3.0]])), linear=straight([10.0], 1.0),
    )  # fmt: skip
    # 3 calls of 10 * 3 / x + 1 each within 30: 90 / x <= 27
    program, decision = decide(round_)
    assert program.targets_ms[0, 0] == pytest.approx(10.0)
    assert decision.allocation.containers.tolist() == [4]


def test_every_class_of_a_service_must_be_in_time() -> None:
    """Erms knows one graph a service: a rare long class counts as much as a frequent short one."""
    classes = CallClasses.of(
        ["short", "long"], CallTrees.serial([[1.0, 1.0], [0.0, 1.0]]), share=[0.9, 0.1]
    )
    round_ = MicroserviceRound(
        lively(["A", "B"]), Services.of(["s"], 1.0, 30.0), classes,
        linear=straight([100.0, 1000.0]),
    )  # fmt: skip
    program, decision = decide(round_)
    # work 1 and .1: the long class is the chain of 100 and 100
    assert program.targets_ms[:, 0] == pytest.approx([15.0, 15.0])
    assert decision.allocation.containers.tolist() == [7, 7]
    assert decide(round_, form="exact")[1].objective == 14.0


def test_the_light_line_where_the_target_lies_left_of_the_inflection() -> None:
    # 10 w + 1 up to w = 4 (41), then 40 w - 119; work 20
    linear = LinearLatency(*(np.array([x]) for x in (10.0, 1.0, 40.0, -119.0, 4.0)))
    services, classes = (
        Services.of(["s"], 20.0, 31.0),
        CallClasses.of(["k"], CallTrees.serial([[1.0]])),
    )
    program, decision = decide(MicroserviceRound(lively(["m"]), services, classes, linear=linear))
    assert not program.plan.targets.after.any()
    assert decision.allocation.containers.tolist() == [7]  # load 3
    services = Services.of(["s"], 20.0, 81.0)
    program, decision = decide(MicroserviceRound(lively(["m"]), services, classes, linear=linear))
    assert program.plan.targets.after.all()
    assert decision.allocation.containers.tolist() == [4]  # load 5


def test_each_call_has_its_own_line() -> None:
    # 10 w + 1 then 40 w - 119 from w = 4; 5 w + 3.5 then 20 w + 2 from w = .1; work 20 each
    linear = LinearLatency(
        *(
            np.array(pair)
            for pair in ((10.0, 5.0), (1.0, 3.5), (40.0, 20.0), (-119.0, 2.0), (4.0, 0.1))
        )
    )
    round_ = MicroserviceRound(
        lively(["m0", "m1"]), Services.of(["s"], 20.0, 65.0),
        CallClasses.of(["k"], CallTrees.serial([[1.0], [1.0]])), linear=linear,
    )  # fmt: skip
    program, decision = decide(round_)
    # with both heavy m0 gets -12.4 ms and moves, m1 gets 77.4 ms and stays; then 62 ms are shared
    assert program.plan.targets.after.tolist() == [False, True]
    root = np.sqrt([200.0, 400.0])
    assert program.targets_ms[:, 0] == pytest.approx([1.0, 2.0] + 62.0 * root / root.sum())
    assert decision.allocation.containers.tolist() == [8, 12]


@pytest.mark.parametrize(
    ("scheme", "form", "cost"),
    [
        ("fcfs", "kkt", 47), ("fcfs", "exact", 45), ("partition", "kkt", 44),
        ("partition", "exact", 44), ("priority", "kkt", 41), ("priority", "exact", 38),
    ],
)  # fmt: skip
def test_a_shared_microservice(scheme: str, form: str, cost: int) -> None:
    program, decision = decide(shared(), scheme=scheme, form=form)
    assert decision.objective == cost
    assert program.first.per_call_ms == pytest.approx([10.0 * 2, 10.0, 15.0, 15.0])
    if form == "exact":
        assert decision.status == "OPTIMAL"
        assert decision.bound == pytest.approx(cost)
    if scheme == "priority":
        assert decision.allocation.rank.tolist() == [0, 1]  # 10 ms before 15 ms
    else:
        assert decision.allocation.rank is None


def test_priority_has_one_best_plan() -> None:
    _, decision = decide(shared(), scheme="priority", form="exact")
    assert decision.allocation.containers.tolist() == [18, 7, 13]
    best = _plans(shared(), 38, met=np.array([1, 2]))
    assert best == [(18, 7, 13)]


def test_order_of_arrival_has_four_best_plans() -> None:
    _, decision = decide(shared(), scheme="fcfs", form="exact")
    best = _plans(shared(), 45, met=np.array([2, 2]))
    assert best == [(20, 5, 20), (22, 6, 17), (23, 6, 16), (24, 6, 15)]
    assert tuple(decision.allocation.containers.tolist()) in best


def test_priority_to_the_other_service_costs_more() -> None:
    work = Workload(shared(), straight([400.0, 100.0, 100.0]))
    problem = work.together(work.of_order(np.array([1, 0])), work.request_target_ms)
    found = cheapest(
        iter([(np.array([1, 0]), problem, np.full(3, 50.0))]), shared(), Solver(gap=0.0), NO_LIMIT
    )
    assert found.counts is not None
    assert (found.status, int(found.counts.sum())) == ("OPTIMAL", 44)


def test_a_search_for_something_cheaper_finds_one_container_less() -> None:
    work = Workload(shared(), straight([400.0, 100.0, 100.0]))
    problem = work.together(work.of_order(np.array([0, 1])), work.request_target_ms)
    guess = np.array([14.0, 4.0, 1000.0])  # P fast: a first plan far from the best
    for best, status in ((np.inf, "OPTIMAL"), (39.0, "OPTIMAL"), (38.0, "WORSE")):
        found = solve_one(problem, shared(), guess, best, Solver(gap=0.0), NO_LIMIT)
        assert found.status == status
        assert found.counts is None or int(found.counts.sum()) == 38
    first = incumbent(problem, shared(), guess)
    assert first is not None
    assert int(first.sum()) > 39


def test_enumerated_orders_find_the_same() -> None:
    assert decide(shared(), form="exact", order="enumerate")[1].objective == 38
    assert decide(shared(), order="enumerate")[1].objective == 41


def _plans(round_: MicroserviceRound, total: int, met: Any) -> list[tuple[int, int, int]]:
    """All plans of a total in which both chains are in time, P carrying the load each meets."""
    out = []
    for u, h in itertools.product(range(1, total), repeat=2):
        p = total - u - h
        if p < 1:
            continue
        if 400 / u + 100 * met[0] / p <= 30 + 1e-9 and 100 / h + 100 * met[1] / p <= 30 + 1e-9:
            out.append((u, h, p))
    return out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scheme": "fifo"}, "erms.scheme = 'fifo'"),
        ({"form": "kkts"}, "did you mean 'kkt'"),
        ({"order": "all"}, "erms.order"),
        ({"percentile": 95.0}, "erms.percentile = 95.0"),
    ],
)
def test_bad_parameters(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        Erms(**options)
