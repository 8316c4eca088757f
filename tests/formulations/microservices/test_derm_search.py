"""Derm's search against enumeration on small random applications."""

from itertools import product

import numpy as np
import pytest

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.orders import cheapest_order
from apportion.formulations.microservices.derm.requirements import requirements
from apportion.formulations.microservices.derm.robust import worst_shares
from apportion.formulations.microservices.derm.search import cheapest, reachable
from apportion.formulations.microservices.derm.tangent_bound import TangentBound
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget

MOST = 12
FREE = Budget.of(None)


def application(seed):
    """Up to three microservices, two services, forks, shifts, unequal costs; counts up to 12."""
    rng = np.random.default_rng(seed)
    count, services = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    ids = [f"m{at}" for at in range(count)]
    cost = [1.0, rng.integers(1, 4, count).astype(float), rng.uniform(0.5, 2.0, count)][seed % 3]
    kinds = Microservices.of(
        ids, rng.uniform(0.4, 1.5, count), -rng.uniform(0.01, 0.05, count),
        shift_ms=rng.uniform(0, 0.5, count) * (seed % 2), cost=cost, most_containers=MOST,
    )  # fmt: skip
    trees, owner, share = [], [], []
    for s in range(services):
        classes = int(rng.integers(1, 3))
        owner += [s] * classes
        share += rng.dirichlet(np.full(classes, 1.5)).tolist()
        for _ in range(classes):
            stages = []
            for _ in range(int(rng.integers(1, 4))):
                members = rng.choice(count, min(count, 1 + int(rng.random() < 0.3)), replace=False)
                stages.append(
                    [{"microservice": ids[m], "calls": int(rng.integers(1, 3))} for m in members]
                )
            trees.append(stages)
    return MicroserviceRound(
        kinds,
        Services.of(
            [f"s{at}" for at in range(services)], rng.uniform(20, 60, services),
            rng.uniform(15, 50, services), rng.choice([0.02, 0.05, 0.1], services),
        ),
        CallClasses.of([f"c{at}" for at in range(len(trees))], CallTrees.nested(trees, ids),
                       share=share, service=owner),
    )  # fmt: skip


def enumerated(need):
    """Cost of the cheapest plan over all counts up to the bounds, infinite where there is none."""
    best = np.inf
    ranges = [range(int(low), int(high) + 1) for low, high in zip(need.low, need.high, strict=True)]
    for counts in product(*ranges):
        plan = np.array(counts)
        if need.value(plan) < best - 1e-9 and need.kept(plan):
            best = need.value(plan)
    return best


@pytest.mark.parametrize("mode", ["budget", "uniform", "floor", "churn"])
@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 220))]
)
def test_the_cheapest_plan_is_that_of_enumeration(seed, mode):
    round_ = application(seed)
    if mode == "churn":
        running = np.random.default_rng(seed).integers(0, MOST, len(round_.microservices))
        round_ = MicroserviceRound(
            round_.microservices, round_.services, round_.classes, containers=running
        )
    need = requirements(
        round_, "uniform" if mode == "uniform" else "budget",
        floor=0.8 if mode == "floor" else 0.0, churn_cost=0.6 if mode == "churn" else 0.0,
    )  # fmt: skip
    best, found = enumerated(need), cheapest(need, FREE)
    if not np.isfinite(best):
        assert found.containers is None
        assert found.impossible
        return
    assert need.kept(found.containers)
    assert found.bound <= best * (1 + 1e-6)
    assert need.value(found.containers) >= best - 1e-9
    if found.proved:
        assert need.value(found.containers) == pytest.approx(best, rel=1e-6)
    assert found.proved or found.nodes > 1000


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_classes_is_that_of_enumeration(seed):
    round_ = application(3 * seed)
    need = requirements(round_)
    best = np.inf
    for rank in product(range(len(round_.classes)), repeat=len(round_.classes)):
        if len(set(rank)) < len(rank):
            continue
        own = requirements(round_)
        own = type(own)(**{**own.__dict__, "rank": np.array(rank)})
        best = min(best, enumerated(own))
    found, _ = cheapest_order(need, FREE, gap=0.0, most_nodes=5000)
    if not np.isfinite(best):
        assert found.containers is None
    else:
        assert need.value(found.containers) == pytest.approx(best, rel=1e-9)
        assert found.bound <= best + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_no_box_is_refuted_that_holds_a_plan(seed):
    need = requirements(application(seed))
    best = enumerated(need)
    assert reachable(need) == bool(np.isfinite(best))
    if not reachable(need):
        return
    bound = TangentBound(need)
    assert bound.verdict(bound.root(), best + 1e-9, 25).state != "none"


@pytest.mark.parametrize("seed", range(20))
def test_trimmed_plans_can_spare_nothing(seed):
    need = requirements(application(seed))
    plan = climb(need, FREE)
    if not plan.kept:
        assert not reachable(need)
        return
    counts = trim(need, plan.containers, FREE).containers
    assert need.kept(counts)
    for m in range(counts.size):
        if counts[m] > need.low[m]:
            less = counts.copy()
            less[m] -= 1
            assert not need.kept(less)


@pytest.mark.parametrize("seed", range(20))
def test_scaling_load_and_counts_changes_no_tail(seed):
    round_ = application(seed)
    services = round_.services
    triple = MicroserviceRound(
        round_.microservices,
        Services(services.id, services.rate_per_s * 3, services.target_ms,
                 services.violation_budget, services.unmodelled_share),
        round_.classes,
    )  # fmt: skip
    counts = np.full(len(round_.microservices), 9)
    assert Tails.of(triple).class_tails(3 * counts) == pytest.approx(
        Tails.of(round_).class_tails(counts), abs=1e-13
    )


@pytest.mark.parametrize("seed", range(20))
def test_modes_cost_in_their_order_and_targets_only_help(seed):
    round_ = application(seed)

    def cost(r, **how):
        found = cheapest(requirements(r, **how), FREE)
        return (
            np.inf if found.containers is None else float(requirements(r).value(found.containers))
        )

    budget, uniform = cost(round_), cost(round_, priority="uniform")
    assert budget <= uniform + 1e-9
    services = round_.services
    looser = MicroserviceRound(
        round_.microservices,
        Services(services.id, services.rate_per_s, services.target_ms * 1.2,
                 services.violation_budget, services.unmodelled_share),
        round_.classes,
    )  # fmt: skip
    assert cost(looser) <= budget + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_classes_that_do_not_occur_or_are_split_change_nothing(seed):
    round_ = application(seed)
    nested = round_.classes.trees.nested_lists(round_.microservices.id.tolist())
    share, owner = round_.classes.share.tolist(), round_.classes.service.tolist()
    split = CallClasses.of(
        [f"d{at}" for at in range(2 * len(share) + 1)],
        CallTrees.nested([*nested, *nested, nested[0]], round_.microservices.id.tolist()),
        share=[*(np.array(share) * 0.5), *(np.array(share) * 0.5), 0.0],
        service=[*owner, *owner, owner[0]],
    )
    other = MicroserviceRound(round_.microservices, round_.services, split)
    one, two = (cheapest(requirements(r), FREE) for r in (round_, other))
    if one.containers is None:
        assert two.containers is None
    else:
        assert requirements(round_).value(two.containers) == pytest.approx(
            requirements(round_).value(one.containers)
        )


def test_the_worst_shares_move_mass_from_the_best_to_the_worst():
    found = worst_shares(np.array([0.5, 0.2, 0.3]), np.array([0.01, 0.2, 0.05]), 0.4)
    assert found == pytest.approx([0.3, 0.4, 0.3])
    all_of_it = worst_shares(np.array([0.5, 0.2, 0.3]), np.array([0.01, 0.2, 0.05]), 2.0)
    assert all_of_it == pytest.approx([0.0, 1.0, 0.0])
    rng = np.random.default_rng(0)
    for _ in range(200):
        share, tail = rng.dirichlet([1, 1, 1]), rng.random(3)
        error = rng.uniform(0, 2)
        worst = worst_shares(share, tail, error)
        assert np.abs(worst - share).sum() <= error + 1e-12
        other = rng.dirichlet([1, 1, 1])
        way = np.abs(other - share).sum()
        other = share + (other - share) * min(1.0, error / way)
        assert worst @ tail >= other @ tail - 1e-12
