"""Other forms of Derm against its search, on every back end that takes continuous columns."""

import numpy as np
import pytest

from apportion.formulations.microservices.derm import Derm
from apportion.formulations.microservices.derm.chernoff import _Calls, best_thetas, log_bound
from apportion.formulations.microservices.derm.levels import Levels
from apportion.formulations.microservices.derm.outer_approximation import (
    Cuts,
    by_levels,
    largest_missing,
    tangent_values,
)
from apportion.formulations.microservices.derm.requirements import requirements
from apportion.formulations.microservices.derm.search import cheapest
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

FREE = Budget.of(None)


def application(seed):
    """Two or three microservices in two classes, one of which may fork."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 4))
    ids = [f"m{at}" for at in range(count)]
    kinds = Microservices.of(
        ids, rng.uniform(0.4, 1.5, count), -rng.uniform(0.01, 0.05, count), shift_ms=0.2,
        cost=rng.integers(1, 3, count).astype(float), most_containers=12,
    )  # fmt: skip
    whole = [[{"microservice": name, "calls": int(rng.integers(1, 3))}] for name in ids]
    forked = [[{"microservice": ids[0]}, {"microservice": ids[1]}], *whole[2:]]
    trees = CallTrees.nested([whole, forked if seed % 2 else whole[:1]], ids)
    share = rng.dirichlet([2.0, 2.0])
    services = Services.of(["s"], float(rng.uniform(30, 60)), float(rng.uniform(15, 30)))
    return MicroserviceRound(kinds, services, CallClasses.of(["c0", "c1"], trees, share=share))


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc"])
@pytest.mark.parametrize("tangents", [True, False])
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(s, marks=pytest.mark.slow) for s in range(8, 208))]
)
def test_level_models_find_what_the_search_proves(seed, tangents, backend):
    need = requirements(application(seed))
    known = cheapest(need, FREE)
    found, _ = by_levels(need, Solver(gap=1e-6, backend=backend), FREE, tangents=tangents)
    assert found.impossible == known.impossible
    if known.containers is None:
        return
    assert known.proved
    assert need.kept(found.containers)
    assert found.proved
    assert need.value(found.containers) == pytest.approx(need.value(known.containers))
    assert found.bound <= need.value(known.containers) + 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_tangents_lie_above_at_random_points(seed):
    need = requirements(application(seed))
    levels, rng = Levels(need, need.high), np.random.default_rng(seed)
    cuts = Cuts()
    for _ in range(4):
        cuts.add_tangent(need, levels.nu(rng.integers(need.low, need.high + 1)))
    for _ in range(30):
        plan = rng.integers(need.low, need.high + 1)
        true = np.log(np.maximum(need.met(plan), 1e-12))
        assert (tangent_values(cuts, levels.nu(plan)) >= true - 1e-8).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_largest_missing_plan_misses_and_cannot_grow(seed):
    need = requirements(application(seed))
    if need.kept(need.low):
        return
    plan = largest_missing(need, need.low, need.high)
    assert not need.kept(plan)
    for m in range(plan.size):
        if plan[m] < need.high[m]:
            more = plan.copy()
            more[m] += 1
            assert need.kept(more)


@pytest.mark.parametrize("seed", range(20))
def test_chernoff_never_underrates_and_its_plan_keeps_every_row(seed):
    round_ = application(seed)
    need = requirements(round_)
    calls = _Calls.of(need)
    for plan in (need.low + 1, need.low + 3):
        rate = need.tails.rates(plan)[:, 0]
        theta = best_thetas(calls, rate, need.tails.classes.size)
        bound = np.exp(np.minimum(log_bound(calls, rate, theta), 0.0))
        assert (bound >= 1.0 - need.met(plan) - 1e-12).all()
    known = cheapest(need, FREE)
    decision = Derm(form="chernoff").compile(round_, None, FREE).solve(Solver(gap=1e-6), FREE)
    if known.containers is None:
        assert decision.status == "INFEASIBLE"
        return
    assert decision.status == "HEURISTIC"
    assert need.kept(decision.allocation.containers)
    assert decision.objective >= need.value(known.containers) - 1e-9


def test_the_model_of_the_levels_can_be_written():
    written = [
        (round_, model)
        for round_ in map(application, range(8))
        if (model := Derm(form="levels").compile(round_, None, FREE).model) is not None
    ]
    assert len(written) >= 3  # in the others the least admissible counts do, or none do
    round_, model = written[0]
    solution = Solver(gap=1e-6).solve(model, budget=FREE)
    need = requirements(round_)
    value = need.value(need.low) + solution.objectives[0]
    assert value <= need.value(cheapest(need, FREE).containers) + 1e-6
    assert Derm().compile(round_, None, FREE).model is None
