"""Every rule of the checker: plans that obey it pass, and every breach is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.executor.listing import MESSAGES_PER_RULE
from apportion.executor.microservices import check, violation_bounds
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Nodes,
    Services,
)

pytestmark = pytest.mark.quick
SEEDS = [*range(20), *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 200))]


def round_of(**changes):
    """Example 3 with sizes, bounds and two nodes."""
    parts = {
        "microservices": Microservices.of(
            ["A", "B"], [0.6, 0.5], [-0.02, -0.1], cpu_cores=[0.5, 1.0],
            memory_mib=[512.0, 1024.0], least_containers=1, most_containers=[12, 8],
        ),
        "services": Services.of(["s"], [100.0], [14.0], 0.05),
        "classes": CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]
        ),
        "nodes": Nodes.of(["n1", "n2"], [8.0, 4.0], [8192.0, 4096.0], cpu_used=[3.0, 0.0]),
    }  # fmt: skip
    return MicroserviceRound(**{**parts, **changes})


def plan(containers=(6, 3), guaranteed=(True,), **rest):
    return Allocation.of(list(containers), list(guaranteed), **rest)


PLACED = [[6, 0], [0, 3]]


def rules(round_, allocation):
    return {violation.rule for violation in check(round_, allocation)}


def test_the_optimum_of_the_example_passes():
    assert check(round_of(), plan()) == []
    assert check(round_of(), plan(rank=[0, 0], placement=PLACED)) == []
    assert check(round_of(), plan((1, 1), [False])) == []  # claims nothing


@pytest.mark.parametrize(
    ("rule", "allocation", "words"),
    [
        ("shape", plan((6, 3, 1)), "containers has shape (3,), expected (2,)"),
        ("shape", plan(guaranteed=[True, True]), "guaranteed has shape (2,)"),
        ("shape", plan(rank=[0]), "rank has shape (1,)"),
        ("shape", plan(placement=[[6, 0, 0], [0, 3, 0]]), "placement has shape (2, 3)"),
        ("shape", replace(plan(), containers=np.array([6.0, 3.0])), "holds float64"),
        ("shape", replace(plan(), guaranteed=np.array([1])), "true or false"),
        ("least_containers", plan((0, 3), [False]), "A: 0 containers, at least 1"),
        ("least_containers", plan((6, -1), [False]), "B: -1 containers"),
        ("most_containers", plan((6, 9)), "B: 9 containers, at most 8"),
        ("cpu", plan((12, 8)), "14 cores, there are 9"),
        ("memory", plan((12, 8)), "14336 MiB, there are 12288"),
        ("rank", plan(rank=[0, -1]), "class C has rank -1"),
        ("placement", plan(placement=[[7, -1], [0, 3]]), "A: -1 containers on a node"),
        ("placement_sum", plan(placement=[[5, 0], [0, 3]]), "A: 5 containers are placed, 6"),
        ("node_cpu", plan(placement=[[6, 0], [3, 0]]), "n1: containers ask for 6 cores, 5 are"),
        ("node_memory", plan(placement=[[0, 6], [1, 2]]), "n2: containers ask for 5120 MiB"),
        ("guarantee", plan((5, 8)), "service s: its SLA is claimed to be kept, but at least 0.0"),
        ("guarantee", plan((6, 2)), "more than 14 ms"),
    ],
)
def test_every_breach_is_named(rule, allocation, words):
    found = check(round_of(), allocation)
    assert rule in {violation.rule for violation in found}
    assert any(words in violation.message for violation in found if violation.rule == rule)


def test_placement_without_nodes():
    assert rules(round_of(nodes=None), plan(placement=PLACED)) == {"placement"}


def test_the_cluster_limits_too():
    assert rules(round_of(cpu_cores=5.9), plan()) == {"cpu"}
    assert rules(round_of(cpu_cores=6.0, memory_mib=6144.0), plan()) == set()
    assert rules(round_of(memory_mib=6143.0), plan()) == {"memory"}


def test_sums_of_fractions_are_no_breach():
    table = Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1], cpu_cores=0.1)
    assert rules(round_of(microservices=table, nodes=None, cpu_cores=0.9), plan()) == set()


def test_a_service_nobody_calls_binds_nothing():
    idle = round_of(services=Services.of(["s"], [0.0], [14.0], 0.05))
    assert check(idle, plan((1, 1))) == []


def test_lost_requests_count_against_a_claim():
    lost = round_of(
        services=Services.of(["s"], [100.0], [14.0], 0.05, 0.02),
        classes=CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.08]
        ),
    )  # fmt: skip
    assert rules(lost, plan()) == {"guarantee"}


def test_claims_by_order_are_judged_by_the_law_of_order():
    """With C in front its calls meet less load, and fewer of them are late."""
    round_ = round_of(nodes=None)
    counts, order = np.array([6, 3]), np.array([1, 0])
    budget = float(violation_bounds(round_, counts, order).high[0])
    assert budget < float(violation_bounds(round_, counts).low[0])
    tight = round_of(nodes=None, services=Services.of(["s"], [100.0], [14.0], budget))
    assert rules(tight, plan(rank=[1, 0])) == set()
    assert rules(tight, plan()) == {"guarantee"}
    assert rules(tight, plan(rank=[0, 1])) == {"guarantee"}  # that helps less


def forked(target=20.0, budget=0.05):
    stages = [[{"microservice": "A", "stages": [[{"microservice": "B"}, {"microservice": "C"}]]}]]
    return MicroserviceRound(
        microservices=Microservices.of(["A", "B", "C"], [0.6, 0.5, 0.7], [-0.02, -0.1, -0.05]),
        services=Services.of(["s"], [10.0], [target], budget),
        classes=CallClasses.of(["k"], CallTrees.nested([stages], ["A", "B", "C"])),
    )


def test_claims_with_forks_are_refuted_from_three_millionths_on():
    round_ = forked()
    counts = np.array([3, 5, 4])
    true = float(violation_bounds(round_, counts, steps=32000).middle[0])
    for off, expected in ((3e-6, set()), (-3e-6, {"guarantee"})):
        other = forked(budget=true + off)
        assert rules(other, Allocation.of(counts, [True])) == expected
    # nearer than any lattice can tell, a claim stands
    assert rules(forked(budget=true - 1e-8), Allocation.of(counts, [True])) == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_corrupted_claims_of_random_serial_plans(seed):
    """A budget a millionth below the violation refutes the claim, one at it does not."""
    rng = np.random.default_rng(seed)
    calls = rng.integers(0, 20, (6, 3)).astype(float)
    calls[0] = 1.0
    table = Microservices.of(
        list("ABCDEF"), rng.uniform(2.0, 9.0, 6), rng.uniform(-0.09, -0.006, 6), shift_ms=0.3,
        least_rate_per_ms=0.8,
    )  # fmt: skip
    round_ = MicroserviceRound(
        microservices=table, services=Services.of(["s"], [30.0], [60.0]),
        classes=CallClasses.of(list("xyz"), CallTrees.serial(calls), share=[0.5, 0.3, 0.2]),
    )  # fmt: skip
    counts = np.ceil(round_.calls_per_s / table.most_load_per_s * 1.3).astype(int) + 1
    for target in 30.0 * 1.3 ** np.arange(
        30
    ):  # the first that is neither out of reach nor far away
        round_ = replace(round_, services=Services.of(["s"], [30.0], [target]))
        true = float(violation_bounds(round_, counts).middle[0])
        if true < 0.9:
            break
    assert 1e-5 < true < 0.9
    for budget, expected in ((true * (1 + 1e-7), set()), (true - 1e-6, {"guarantee"})):
        other = replace(round_, services=Services.of(["s"], [30.0], [target], budget))
        assert rules(other, Allocation.of(counts, [True])) == expected
        assert rules(other, Allocation.of(counts, [False])) == set()


def test_long_lists_are_cut():
    size = MESSAGES_PER_RULE + 5
    round_ = MicroserviceRound(
        microservices=Microservices.of(
            [f"m{i}" for i in range(size)], [1.0] * size, [-0.1] * size, least_containers=1
        ),
        services=Services.of(["s"], [0.0], [1.0]),
        classes=CallClasses.of(["k"], CallTrees.serial(np.ones((size, 1)))),
    )
    found = check(round_, Allocation.of(np.zeros(size, dtype=int), [False]))
    assert len(found) == MESSAGES_PER_RULE + 1
    assert found[-1].message == "and 5 more"
