"""What priorities, merged stages and limits do: rules that hold, and those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.microservices import check
from apportion.formulations.microservices.erms import Erms, exact
from apportion.formulations.microservices.erms.problem import Workload
from apportion.formulations.microservices.erms.targets import targets
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    LinearLatency,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

NO_LIMIT = Budget.of(None)


def straight(slope: list[float], intercept: list[float] | None = None) -> LinearLatency:
    a = np.array(slope, dtype=float)
    b = np.zeros(a.size) if intercept is None else np.array(intercept, dtype=float)
    return LinearLatency(a, b, a, b, np.full(a.size, np.inf))


def decide(round_: MicroserviceRound, budget: Any = NO_LIMIT, **options: Any) -> Any:
    program = Erms(**options).compile(round_, None, budget)
    decision = program.solve(Solver(gap=0.0), budget)
    assert not check(round_, decision.allocation)
    return program, decision


def crowded(services: int, slope: Any = None, target: Any = 30.0) -> MicroserviceRound:
    """Services with a microservice of their own each, and one that all call."""
    own = np.eye(services)
    ids = [f"own-{at}" for at in range(services)] + ["shared"]
    names = [f"s{at}" for at in range(services)]
    return MicroserviceRound(
        Microservices.of(ids, 10.0, -1e-6), Services.of(names, 1.0, target),
        CallClasses.of(
            names, CallTrees.serial(np.vstack((own, np.ones(services)))), share=np.ones(services),
            service=np.arange(services),
        ),
        linear=straight([100.0] * (services + 1) if slope is None else slope),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_under_priorities_nobody_meets_more_and_the_last_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    rest = rng.uniform(0.5, 2.0, m)
    calls = rng.integers(0, 3, (m, k)).astype(float)
    calls[0] = 1.0
    round_ = MicroserviceRound(
        Microservices.of([f"m{at}" for at in range(m)], rest, -0.02 * rest),
        Services.of(["s"], 40.0, 15.0),
        CallClasses.of([f"k{at}" for at in range(k)], CallTrees.serial(calls),
                       share=rng.dirichlet(np.ones(k))),
    )  # fmt: skip
    x, rank = rng.integers(2, 9, m), rng.permutation(k)
    tails = Tails.of(round_)
    queue, together = tails.class_tails(x, rank), tails.class_tails(x)
    assert (queue <= together + 1e-12).all()
    last = int(np.argmax(rank))
    assert queue[last] == pytest.approx(together[last], abs=1e-12)
    assert tails.class_tails(x, np.zeros(k, dtype=int)) == pytest.approx(together, abs=1e-12)


def test_the_order_of_the_targets_is_not_always_best() -> None:
    # the tight service is the large one: behind the small one it would meet hardly more
    round_ = crowded(2)
    work = replace(
        round_.services, rate_per_s=np.array([9.0, 1.0]), target_ms=np.array([30.0, 32.0])
    )
    linear = straight([100.0, 4000.0, 100.0])
    round_ = replace(round_, services=work, linear=linear)
    _, rule = decide(round_, form="exact")
    _, best = decide(round_, form="exact", order="enumerate")
    _, arrival = decide(round_, form="exact", scheme="fcfs")
    assert rule.status == best.status == "OPTIMAL"
    assert best.objective <= rule.objective <= arrival.objective
    costs = []
    for position in ([0, 1], [1, 0]):
        view = Workload(round_, linear)
        problem = view.together(view.of_order(np.array(position)), view.request_target_ms)
        guess = problem.most.clip(max=1000).astype(float)
        found = exact.solve_one(problem, round_, guess, np.inf, Solver(gap=0.0), NO_LIMIT)
        assert found.counts is not None
        costs.append(int(found.counts.sum()))
    assert best.objective == min(costs)
    assert costs[0] != costs[1]


def test_merging_is_best_where_intercepts_beside_one_another_are_equal() -> None:
    assert _cost_by_rule([0.0, 0.0]) == pytest.approx(_cost_at_best([0.0, 0.0]), rel=1e-6)
    assert _cost_by_rule([3.0, 3.0]) == pytest.approx(_cost_at_best([3.0, 3.0]), rel=1e-6)
    assert _cost_by_rule([10.0, 0.0]) > 1.01 * _cost_at_best([10.0, 0.0])


def _cost_by_rule(intercept: list[float]) -> float:
    """Two calls side by side, then one more; all of slope 100, T = 30; before rounding."""
    ids = ["a", "b", "c"]
    tree = [[{"microservice": "a"}, {"microservice": "b"}], [{"microservice": "c"}]]
    linear = straight([100.0] * 3, [*intercept, 0.0])
    round_ = MicroserviceRound(
        Microservices.of(ids, 10.0, -1e-6), Services.of(["s"], 1.0, 30.0),
        CallClasses.of(["k"], CallTrees.nested([tree], ids)), linear=linear,
    )  # fmt: skip
    work = Workload(round_, linear)
    found = targets(work.forest, linear, np.ones(3), work.of_own, work.request_target_ms)
    base = linear.intercept_before_ms[work.forest.microservice]
    return float((100.0 / (found.own_ms - base)).sum())


def _cost_at_best(intercept: list[float]) -> float:
    end = np.linspace(max(intercept) + 1e-3, 30.0 - 1e-3, 2_000_001)
    return float((sum(100.0 / (end - b) for b in intercept) + 100.0 / (30.0 - end)).min())


def test_seven_services_are_not_enumerated() -> None:
    target = 30.0 + np.arange(7.0)
    program, decision = decide(crowded(7, target=target), form="exact", order="enumerate")
    assert program.order == "targets"
    assert decision.status == "OPTIMAL"
    assert decision.allocation.rank.tolist() == list(range(7))


def test_services_that_meet_nobody_are_not_permuted() -> None:
    apart = replace(
        crowded(6), classes=CallClasses.of(
            [f"s{at}" for at in range(6)], CallTrees.serial(np.vstack((np.eye(6), np.zeros(6)))),
            share=np.ones(6), service=np.arange(6),
        ),
    )  # fmt: skip
    program, decision = decide(apart, form="exact", order="enumerate")
    assert len(list(program._problems())) == 1
    assert decision.objective == 6 * 4


def test_a_cluster_too_small_for_the_targets() -> None:
    round_ = replace(crowded(2), cpu_cores=3.0)  # 15 containers of .2 cores
    for scheme in ("fcfs", "priority", "partition"):
        _, decision = decide(round_, scheme=scheme, form="exact")
        assert decision.status == "INFEASIBLE"
        assert decision.bound is None
        assert decision.objective <= 15.0
        assert any("the cluster" in note for note in decision.notes)
    assert decide(replace(crowded(2), cpu_cores=10.0), form="exact")[1].status == "OPTIMAL"


def test_a_target_below_what_lines_reach() -> None:
    base = replace(crowded(1), linear=straight([10.0, 10.0], [20.0, 15.0]))
    program, decision = decide(base, form="exact")
    assert program.work.target_ms.tolist() == [1.25 * 35.0]
    assert decision.status == "INFEASIBLE"
    assert any("below 35 ms" in note for note in decision.notes)
    # 8.75 ms to share: 10 / 4.375 each
    assert decision.allocation.containers.tolist() == [3, 2]
    assert decide(base)[1].status == "HEURISTIC"
    few = replace(
        base, linear=straight([10.0, 10.0]),
        microservices=replace(base.microservices, most_containers=np.array([1, 1])),
        services=replace(base.services, target_ms=np.array([15.0])),
    )  # fmt: skip
    program, decision = decide(few, form="exact")
    assert program.work.target_ms.tolist() == [20.0]  # as far as the bounds go
    assert decision.allocation.containers.tolist() == [1, 1]


def test_too_many_steps_are_not_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MOST_LEVELS", 3)
    _, decision = decide(crowded(2), form="exact", scheme="fcfs")
    assert decision.status == "FEASIBLE"
    assert decision.bound is not None
    assert decision.bound <= decision.objective
    assert any("steps" in note for note in decision.notes)


def test_no_time_gives_the_published_plan() -> None:
    _, decision = decide(crowded(2), Budget(0.0), form="exact")
    assert decision.time_limited
    assert decision.objective == decide(crowded(2))[1].objective


def test_lines_derived_from_laws_keep_the_sla() -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        rest = rng.uniform(0.5, 3.0, 4)
        round_ = MicroserviceRound(
            Microservices.of(list("abcd"), rest, -0.01 * rest, least_rate_per_ms=0.2 * rest),
            Services.of(["s"], 60.0, 40.0),
            CallClasses.of(["k"], CallTrees.serial(rng.integers(1, 3, (4, 1)))),
        )  # fmt: skip
        for form in ("kkt", "exact"):
            _, decision = decide(round_, form=form)
            if not any("planned for" in note for note in decision.notes):
                assert decision.allocation.guaranteed.all()
