"""Properties of tails and plans on random small applications; numbers are the specification's."""

from dataclasses import replace

import numpy as np
import pytest

from apportion.formulations.microservices.derm.levels import Levels
from apportion.formulations.microservices.derm.outer_approximation import Cuts, level_model
from apportion.formulations.microservices.derm.requirements import requirements
from apportion.formulations.microservices.derm.search import cheapest
from apportion.formulations.microservices.derm.worst import worst_round
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

FREE = Budget.of(None)
SEEDS = range(15)


def application(seed, *, whole_first=False):
    """Three microservices in two classes; with ``whole_first`` one class makes all calls."""
    rng = np.random.default_rng(seed)
    ids = ["m0", "m1", "m2"]
    kinds = Microservices.of(
        ids, rng.uniform(0.5, 1.5, 3), -rng.uniform(0.005, 0.03, 3),
        shift_ms=rng.uniform(0.0, 0.4, 3), most_containers=60,
    )  # fmt: skip
    calls = rng.integers(1, 4, (3, 2)).astype(float)
    if whole_first:
        calls[:, 0] = calls.max(axis=1)
    else:
        calls[int(rng.integers(3)), int(rng.integers(2))] = 0.0
    share = rng.dirichlet([2.0, 2.0])
    return MicroserviceRound(
        kinds, Services.of(["s"], float(rng.uniform(20, 60)), float(rng.uniform(20, 45))),
        CallClasses.of(["c0", "c1"], CallTrees.serial(calls), share=share),
    )  # fmt: skip


def with_services(round_, **columns):
    own = round_.services
    return replace(round_, services=replace(own, **columns))


def cost(round_, **how):
    found = cheapest(requirements(round_, **how), FREE)
    return np.inf if found.containers is None else float(found.containers.sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_1_tails_follow_target_calls_load_and_shift(seed):
    round_ = application(seed)
    tails = Tails.of(round_)
    plan = requirements(round_).low + 2
    own = tails.class_tails(plan)
    assert ((own >= 0) & (own <= 1)).all()
    later = with_services(round_, target_ms=round_.services.target_ms * 1.1)
    assert (Tails.of(later).class_tails(plan) <= own + 1e-13).all()
    kinds = round_.microservices
    slower = replace(round_, microservices=replace(kinds, shift_ms=kinds.shift_ms + 0.1))
    assert (Tails.of(slower).class_tails(plan) >= own - 1e-13).all()
    busier = with_services(round_, rate_per_s=round_.services.rate_per_s * 1.05)
    assert (Tails.of(busier).class_tails(plan) >= own - 1e-13).all()
    trees = round_.classes.trees
    more = replace(trees, calls=trees.calls * 1.2)
    often = replace(round_, classes=replace(round_.classes, trees=more))
    assert (Tails.of(often).class_tails(plan) >= own - 1e-13).all()
    mixed = tails.violations(plan)[0]
    assert own.min() - 1e-13 <= mixed <= own.max() + 1e-13


@pytest.mark.parametrize("seed", SEEDS)
def test_3_the_order_of_stages_is_irrelevant(seed):
    round_ = application(seed)
    trees = round_.classes.trees
    turned = replace(trees, stage=trees.stage.max() - trees.stage)
    other = replace(round_, classes=replace(round_.classes, trees=turned))
    plan = requirements(round_).low + 1
    assert Tails.of(other).class_tails(plan) == pytest.approx(
        Tails.of(round_).class_tails(plan), abs=1e-13
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_4_side_by_side_lies_between_its_members_and_their_sum(seed):
    round_ = application(seed)
    ids = round_.microservices.id.tolist()
    calls = [{"microservice": name} for name in ids]
    trees = CallTrees.nested([[calls], [[one] for one in calls], *([[one]] for one in calls)], ids)
    share = np.full(5, 0.2)
    plan = requirements(round_).low + 3
    forked = replace(round_, classes=CallClasses.of(list("abcde"), trees, share=share))
    plan = np.maximum(plan, requirements(forked).low + 1)
    for target in (2.0, 6.0, 12.0):
        tail = Tails.of(with_services(forked, target_ms=[target])).class_tails(plan)
        assert tail[0] >= tail[2:].max() - 1e-12
        assert tail[0] <= tail[2:].sum() + 1e-12
        assert tail[1] >= tail[0] - 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_6_budget_costs_no_more_than_uniform_and_that_than_the_worst(seed):
    round_ = application(seed, whole_first=True)
    budget, uniform = cost(round_), cost(round_, priority="uniform")
    worst, notes = worst_round(round_, FREE)
    assert notes == ()
    assert worst.classes.share.tolist() == [1.0, 0.0]
    assert budget <= uniform <= cost(worst)
    alone = replace(round_, classes=round_.classes.with_share([1.0, 0.0]))
    assert cost(alone) == cost(alone, priority="uniform") == cost(worst)
    assert cost(round_, floor=0.95) == uniform


@pytest.mark.parametrize("seed", SEEDS)
def test_7_cost_follows_target_budget_load_and_the_dear_share(seed):
    round_ = application(seed, whole_first=True)
    own, services = cost(round_), round_.services
    assert cost(with_services(round_, target_ms=services.target_ms * 1.1)) <= own
    assert cost(with_services(round_, violation_budget=services.violation_budget * 1.5)) <= own
    assert cost(with_services(round_, rate_per_s=services.rate_per_s * 1.2)) >= own
    dear = min(1.0, round_.classes.share[0] + 0.1)
    assert cost(replace(round_, classes=round_.classes.with_share([dear, 1.0 - dear]))) >= own


@pytest.mark.parametrize("seed", SEEDS)
def test_9_values_of_level_models_rise_and_stay_below_the_optimum(seed):
    round_ = application(seed)
    need = requirements(round_)
    known = cheapest(need, FREE)
    if known.containers is None:
        return
    levels = Levels.within(need, need.value(known.containers))
    if not levels.owner.size:
        return
    cuts, last = Cuts(), -np.inf
    rng = np.random.default_rng(seed)
    for _ in range(4):
        cuts.add_tangent(need, levels.nu(rng.integers(need.low, levels.most + 1)))
        solution = Solver(gap=1e-9).solve(level_model(levels, cuts), budget=FREE)
        value = need.value(need.low) + solution.objectives[0]
        assert last - 1e-6 <= value <= need.value(known.containers) + 1e-6
        last = value


@pytest.mark.parametrize("seed", SEEDS)
def test_11_twice_the_load_costs_at_most_twice(seed):
    round_ = application(seed)
    double = with_services(round_, rate_per_s=round_.services.rate_per_s * 2)
    kinds = round_.microservices
    double = replace(
        double, microservices=replace(kinds, most_containers=kinds.most_containers * 2)
    )
    assert cost(double) <= 2 * cost(round_)


@pytest.mark.parametrize("seed", SEEDS)
def test_13_names_and_places_change_no_cost(seed):
    round_ = application(seed)
    order = np.random.default_rng(seed).permutation(3)
    kinds = round_.microservices
    moved = Microservices(
        **{name: getattr(kinds, name)[order] for name in kinds.__dataclass_fields__}
    )
    calls = round_.demand[order][:, ::-1]
    other = MicroserviceRound(
        moved, round_.services,
        CallClasses.of(["x", "y"], CallTrees.serial(calls), share=round_.classes.share[::-1]),
    )  # fmt: skip
    assert cost(other) == cost(round_)


@pytest.mark.parametrize("seed", SEEDS)
def test_18_shifts_beyond_the_target_are_infeasible(seed):
    round_ = application(seed)
    kinds = round_.microservices
    late = replace(round_, microservices=replace(kinds, shift_ms=kinds.shift_ms + 50.0))
    found = cheapest(requirements(late), FREE)
    assert found.impossible
    assert found.containers is None
