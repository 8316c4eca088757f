"""Plans where changes cost: of what nobody calls, and in clusters too small to keep what runs."""

from itertools import product

import numpy as np
import pytest

from apportion.executor.microservices import check, violation_bounds
from apportion.formulations.microservices.derm import Derm
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

MOST = 9


def application(running, cpu_cores=np.inf, cost=1.0):
    """Class S calls A (90 %), class C calls A and then B (10 %); nobody calls idle."""
    kinds = Microservices.of(
        ["A", "B", "idle"], [0.6, 0.5, 1.0], [-0.02, -0.1, -0.1], cost=cost, cpu_cores=1.0,
        most_containers=MOST,
    )  # fmt: skip
    trees = CallTrees.serial([[1, 1], [0, 1], [0, 0]])
    return MicroserviceRound(
        kinds, Services.of(["s"], 100.0, 14.0), CallClasses.of(["S", "C"], trees, share=[0.9, 0.1]),
        containers=np.array(running), cpu_cores=cpu_cores,
    )  # fmt: skip


def decided(round_, **parameters):
    budget = Budget.of(None)
    program = Derm(**parameters).compile(round_, None, budget)
    first = program.incumbent()
    assert check(round_, first.allocation) == []
    with Solver(gap=0.0) as solver:
        decision = program.solve(solver, budget)
    assert check(round_, decision.allocation) == []
    return first, decision


def enumerated(round_, churn):
    """Least cost of a plan that keeps the SLA and fits, by the checker's own tails."""
    best = np.inf
    for counts in product(range(MOST + 1), repeat=3):
        plan = np.array(counts)
        value = float(
            round_.microservices.cost @ plan + churn * np.abs(plan - round_.containers).sum()
        )
        if value < best - 1e-9 and plan.sum() <= round_.cpu_cores and (plan[:2] > [3, 2]).all():
            best = value if violation_bounds(round_, plan).high[0] <= 0.05 else best
    return best


def test_what_nobody_calls_is_kept_where_stopping_it_costs_more():
    _, decision = decided(application([6, 3, 5]), churn_cost=1.5)
    assert decision.allocation.containers.tolist() == [6, 3, 5]
    assert (decision.status, decision.objective, decision.bound) == ("OPTIMAL", 14.0, 14.0)
    _, cheap = decided(application([6, 3, 5]), churn_cost=0.5)
    assert cheap.allocation.containers.tolist() == [6, 3, 0]
    assert (cheap.status, cheap.objective) == ("OPTIMAL", 11.5)


def test_a_cluster_too_small_to_keep_what_runs_is_given_a_plan():
    round_ = application([9, 2, 8], cpu_cores=9.0)  # only [6, 3, 0] fits and keeps the SLA
    first, decision = decided(round_, churn_cost=5.0)
    for one in (first, decision):
        assert one.allocation.containers.tolist() == [6, 3, 0]
        assert one.allocation.guaranteed.tolist() == [True]
        assert one.objective == 9 + 5 * (3 + 1 + 8)
    assert decision.status in ("OPTIMAL", "FEASIBLE")


@pytest.mark.parametrize("form", ["search", "levels", "no-good"])
@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(s, marks=pytest.mark.slow) for s in range(7, 60))]
)
def test_bounds_hold_in_small_clusters_whatever_runs(seed, form):
    rng = np.random.default_rng(seed)
    cost = rng.choice([0.5, 1.0, 2.0], 3)
    churn = float(rng.choice([0.5, 1.0, 1.5, 5.0]))
    round_ = application(rng.integers(0, 10, 3), float(rng.integers(8, 16)), cost)
    best = enumerated(round_, churn)
    _, decision = decided(round_, churn_cost=churn, form=form)
    if decision.status == "INFEASIBLE":
        assert best == np.inf
        return
    assert decision.allocation.guaranteed.tolist() == [True]
    assert decision.objective >= best - 1e-6
    assert decision.bound is None or decision.bound <= best + 1e-6
    if decision.status == "OPTIMAL":
        assert decision.objective == pytest.approx(best, rel=1e-6)
