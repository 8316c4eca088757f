"""Derm's worked example, and what each mode, floor and limit makes of it."""

import numpy as np
import pytest

from apportion.executor.microservices import check
from apportion.formulations.microservices.derm import Derm
from apportion.formulations.microservices.tails import Tails
from apportion.instances import InstanceError
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Nodes,
    Services,
)
from apportion.solver import Budget, Solver


def example(target_ms=14.0, **parts):
    """Class S calls A (90 %), class C calls A and then B (10 %), 100 requests per second."""
    given = {name: parts.pop(name) for name in ("most_containers", "cost") if name in parts}
    kinds = Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1], **given)
    trees = CallTrees.serial([[1, 1], [0, 1]])
    classes = CallClasses.of(["S", "C"], trees, share=[0.9, 0.1])
    return MicroserviceRound(kinds, Services.of(["s"], 100.0, target_ms), classes, **parts)


def decided(round_, time_limit_s=None, gap=0.0, **parameters):
    budget = Budget.of(time_limit_s)
    with Solver(gap=gap) as solver:
        decision = Derm(**parameters).compile(round_, None, budget).solve(solver, budget)
    assert check(round_, decision.allocation) == []
    return decision


@pytest.mark.parametrize(
    ("parameters", "cost", "plan"),
    [
        ({}, 9, [6, 3]),
        ({"priority": "uniform"}, 14, [8, 6]),
        ({"floor": 0.95}, 14, [8, 6]),
        ({"priority": "worst"}, 59, None),
    ],
)
def test_the_dynamic_graph(parameters, cost, plan):
    decision = decided(example(), **parameters)
    assert (decision.status, decision.objective, decision.bound) == ("OPTIMAL", cost, cost)
    assert decision.gap == 0.0
    assert decision.allocation.guaranteed.tolist() == [True]
    if plan is not None:  # unique
        assert decision.allocation.containers.tolist() == plan


def test_tails_of_the_dynamic_graph():
    tails = Tails.of(example())
    assert tails.class_tails(np.array([6, 3])) == pytest.approx([0.023913, 0.218737], abs=5e-7)
    assert tails.violations(np.array([6, 3])) == pytest.approx([0.043395], abs=5e-7)
    assert tails.class_tails(np.array([8, 6])) == pytest.approx([0.007447, 0.048543], abs=5e-7)
    assert tails.violations(np.array([8, 6])) == pytest.approx([0.011556], abs=5e-7)
    five = tails.violations(np.array([5, 1000]))[0]
    assert five > 0.0547


def test_a_target_nobody_can_keep_is_said_and_served_near_the_least_violation():
    round_ = example(target_ms=1.0)
    decision = decided(round_)
    assert decision.status == "INFEASIBLE"
    assert decision.bound is None
    assert not decision.allocation.guaranteed.any()
    assert "no number of containers keeps its SLA" in decision.notes[0]
    least = Tails.of(round_).violations(np.array([10**6, 10**6]))[0]
    got = Tails.of(round_).violations(decision.allocation.containers)[0]
    assert least < got <= least + 0.05 * (1.0 - least) + 1e-9


def test_bounds_below_what_the_load_needs_are_infeasible():
    decision = decided(example(most_containers=4))
    assert decision.status == "INFEASIBLE"
    assert (decision.allocation.containers <= 4).all()


@pytest.mark.parametrize(
    ("cores", "fits"), [(1.8, True), (1.79, False), (0.9, False), (0.0, False)]
)
def test_a_cluster_of_nine_containers_is_just_enough(cores, fits):
    decision = decided(example(cpu_cores=cores))
    assert decision.status == ("OPTIMAL" if fits else "INFEASIBLE")
    assert decision.allocation.guaranteed.tolist() == [fits]
    assert 0.2 * decision.allocation.containers.sum() <= cores + 1e-9
    incumbent = Derm().compile(example(cpu_cores=cores), None, Budget.of(None)).incumbent()
    assert check(example(cpu_cores=cores), incumbent.allocation) == []


def test_memory_limits_too():
    assert decided(example(memory_mib=9 * 1024.0)).status == "OPTIMAL"
    assert decided(example(memory_mib=9 * 1024.0 - 1)).status == "INFEASIBLE"


def test_containers_lie_on_nodes_within_their_sizes():
    round_ = example(nodes=Nodes.of(["n0", "n1"], [1.0, 1.2], 8192.0, [0.2, 0.2], 0.0))
    plan = decided(round_).allocation
    assert plan.placement.sum(axis=1).tolist() == plan.containers.tolist()


def test_cores_that_no_node_has_in_one_piece_leave_containers_unplaced():
    nodes = Nodes.of([f"n{at}" for at in range(20)], 0.19, 8192.0)
    decision = decided(example(nodes=nodes))
    assert decision.allocation.placement is None
    assert "not placed" in decision.notes[-1]


def test_dear_containers_are_saved_first():
    cheap_b = decided(example(cost=[10.0, 1.0]))
    assert cheap_b.status == "OPTIMAL"
    tails = Tails.of(example())
    every = [
        10 * a + b
        for a in range(4, 9)
        for b in range(3, 50)
        if tails.violations(np.array([a, b]))[0] <= 0.05
    ]
    assert cheap_b.objective == min(every) < 90  # and so no plan of nine A or more is cheaper


def test_churn_keeps_what_runs_while_that_is_cheaper():
    running = np.array([9, 9])
    free = decided(example(containers=running))
    assert free.allocation.containers.tolist() == [6, 3]
    dear = decided(example(containers=running), churn_cost=1.5)
    assert dear.allocation.containers.tolist() == [9, 9]
    some = decided(example(containers=np.array([4, 9])), churn_cost=0.5)
    assert some.status == "OPTIMAL"
    tails = Tails.of(example())
    best = min(
        a + b + 0.5 * (abs(a - 4) + abs(b - 9))
        for a in range(4, 15)
        for b in range(3, 15)
        if tails.violations(np.array([a, b]))[0] <= 0.05
    )
    assert some.objective == pytest.approx(best)


def test_robust_shares_keep_the_sla_for_the_worst_of_them():
    decision = decided(example(share_error=[0.1]), robust=True)
    tail = Tails.of(example()).class_tails(decision.allocation.containers)
    assert 0.85 * tail[0] + 0.15 * tail[1] <= 0.05
    assert decision.objective == 10
    assert decided(example(share_error=[0.1])).objective == 9


def test_queue_mode_is_proved_over_both_orders():
    decision = decided(example(), priority="queue")
    assert (decision.status, decision.objective) == ("OPTIMAL", 9)
    tails = Tails.of(example())
    for rank in (np.array([0, 1]), np.array([1, 0])):
        for a in range(4, 9):
            b = 8 - a
            if b >= 3:
                assert tails.violations(np.array([a, b]), rank)[0] > 0.05


def test_no_time_still_gives_a_plan():
    for parameters in ({}, {"priority": "uniform"}, {"priority": "queue"}, {"form": "levels"}):
        decision = decided(example(), time_limit_s=1e-9, **parameters)
        assert (decision.status, decision.time_limited) == ("HEURISTIC", True)
        assert decision.allocation.guaranteed.all()


def test_no_time_does_not_make_a_hopeless_target_less_so():
    decision = decided(example(target_ms=1.0), time_limit_s=1e-9)
    assert (decision.status, decision.time_limited) == ("INFEASIBLE", True)
    assert "no number of containers keeps its SLA" in decision.notes[0]


def test_a_hopeless_target_in_a_small_cluster_is_infeasible_and_promises_no_nearness():
    decision = decided(example(target_ms=1.0, cpu_cores=1.0))
    assert decision.status == "INFEASIBLE"
    assert not any("within 5%" in note for note in decision.notes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "budgets"),
        ("form", "level"),
        ("floor", 1.0),
        ("churn_cost", -1.0),
        ("most_nodes", 0),
    ],
)
def test_unusable_parameters_are_named(field, value):
    with pytest.raises(InstanceError, match=f"derm.{field}"):
        Derm(**{field: value})


def test_nobody_calls_and_nothing_is_there():
    kinds = Microservices.of(["A"], [0.6], -0.02, least_containers=2)
    trees = CallTrees.serial([[1.0]])
    quiet = MicroserviceRound(kinds, Services.of(["s"], 0.0, 14.0), CallClasses.of(["c"], trees))
    assert decided(quiet).allocation.containers.tolist() == [2]
    none = MicroserviceRound(
        Microservices.of([], [], []), Services.of([], [], []),
        CallClasses.of([], CallTrees.serial(np.zeros((0, 0)))),
    )  # fmt: skip
    assert decided(none).allocation.containers.size == 0


def test_nothing_is_proved_where_tails_are_only_known_from_above():
    ids = [f"m{at}" for at in range(12)]
    kinds = Microservices.of(ids, 0.9, -0.01)
    trees = CallTrees.nested([[[{"microservice": name} for name in ids]]], ids)
    round_ = MicroserviceRound(
        kinds, Services.of(["s"], 50.0, 14.0), CallClasses.of(["wide"], trees)
    )
    decision = decided(round_)
    assert (decision.status, decision.bound) == ("FEASIBLE", None)
    assert "only known from above" in decision.notes[0]
    assert decision.allocation.guaranteed.all()


def test_forks_in_forks_with_shifts_of_their_own_are_proved():
    kinds = Microservices.of(["A", "B", "C", "D"], 0.9, -0.01, shift_ms=[0.1, 0.5, 1.0, 0.2])
    fork = [{"microservice": "B"}, {"microservice": "C"}]
    tree = [[{"microservice": "A", "stages": [fork]}, {"microservice": "D"}]]
    classes = CallClasses.of(["deep"], CallTrees.nested([tree], ["A", "B", "C", "D"]))
    decision = decided(MicroserviceRound(kinds, Services.of(["s"], 50.0, 14.0), classes))
    assert decision.status == "OPTIMAL"
    assert decision.bound == decision.objective
