"""Rules of thumb for microservices: hand-computed sequences, and what must hold of every policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.microservices import check
from apportion.formulations.microservices.baselines import (
    HPA,
    Autopilot,
    Firm,
    GrandSlam,
    Rhythm,
    Sinan,
    StaticWorst,
    Ursa,
)
from apportion.formulations.microservices.baselines.autopilot import weighted_percentile
from apportion.formulations.microservices.baselines.static_worst import worst_plan
from apportion.formulations.microservices.erms import Erms
from apportion.formulations.microservices.plain import fitted
from apportion.formulations.microservices.tails import Tails
from apportion.instances.errors import InstanceError
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Nodes,
    Observed,
    Services,
)
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

NO_LIMIT = Budget.of(None)
POLICIES: list[Any] = [
    Erms(), Erms(form="exact"), Erms(scheme="fcfs", form="exact"), Erms(scheme="partition"),
    Erms(form="exact", order="enumerate"), HPA(), GrandSlam(), Rhythm(), Firm(), StaticWorst(),
    Sinan(), Autopilot(), Ursa(),
]  # fmt: skip
EVERY = pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda p: f"{p.name}-{getattr(p, 'scheme', '')}{getattr(p, 'form', '')}"
)


def decide(
    policy: Any, round_: MicroserviceRound, memory: Any = None, budget: Any = NO_LIMIT
) -> Any:
    decision = policy.compile(round_, memory, budget).solve(Solver(), budget)
    broken = check(round_, decision.allocation)
    assert not broken, broken
    return decision


def draw(rng: np.random.Generator, *, m: int = 5, services: int = 2) -> MicroserviceRound:
    """Draw a round of ordinary magnitudes with trees, repeats, bounds and a running plan."""
    ids = [f"m{at}" for at in range(m)]
    trees, owner, share = [], [], []
    for service in range(services):
        part = rng.dirichlet(np.ones(2))
        for at in range(2):
            some = rng.permutation(m)[: int(rng.integers(1, m + 1))]
            calls = [{"microservice": ids[i], "calls": float(rng.integers(1, 4))} for i in some]
            cut = int(rng.integers(0, len(calls)))
            stages: list[Any] = [[call] for call in calls[:cut]] + [calls[cut:]]
            if rng.random() < 0.5:
                calls[0]["stages"] = [[{"microservice": ids[int(rng.integers(m))]}]]
            trees.append(stages)
            owner.append(service)
            share.append(float(part[at]))
    rest = rng.uniform(0.5, 3.0, m)
    return MicroserviceRound(
        Microservices.of(
            ids, rest, -rest * rng.uniform(0.005, 0.02, m), shift_ms=rng.uniform(0.0, 1.0, m),
            least_rate_per_ms=0.1 * rest, cost=rng.choice([1.0, 2.0], m),
            least_containers=1, most_containers=500,
        ),
        Services.of(
            [f"s{at}" for at in range(services)], rng.uniform(5.0, 100.0, services),
            rng.uniform(20.0, 100.0, services), 0.05,
        ),
        CallClasses.of(
            [f"k{at}" for at in range(2 * services)], CallTrees.nested(trees, ids), share=share,
            service=owner,
        ),
        containers=rng.integers(0, 20, m), now_s=600.0,
    )  # fmt: skip


def one(rate: float = 30.0, **more: Any) -> MicroserviceRound:
    """One microservice whose containers carry up to 10 calls a second."""
    return MicroserviceRound(
        Microservices.of(["m"], 1.0, -0.1, least_containers=1, most_containers=100),
        Services.of(["s"], rate, 50.0), CallClasses.of(["k"], CallTrees.serial([[1.0]])), **more,
    )  # fmt: skip


def cluster(cores: float, rate: float = 0.0, **more: Any) -> MicroserviceRound:
    """Two microservices of a core a container; the first is called, 10 calls/s on a container."""
    return MicroserviceRound(
        Microservices.of(["a", "b"], 1.0, -0.1, least_rate_per_ms=0.1, cpu_cores=1.0, **more),
        Services.of(["s"], rate, 50.0), CallClasses.of(["k"], CallTrees.serial([[1.0], [0.0]])),
        cpu_cores=cores,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("round_", "wanted", "expected"),
    [
        (cluster(30.0), [10, 20], [10, 20]),
        (cluster(15.0), [10, 20], [5, 10]),
        (cluster(8.0), [10, 5], [6, 2]),  # 5 and 2 by the factor, one more to the first
        (cluster(10.0, 36.0), [10, 6], [7, 3]),  # 4 carry the load, 6 are shared
        (cluster(3.0, 36.0), [10, 6], [2, 1]),  # not even those fit: all from the bounds up
        (cluster(3.0, least_containers=[0, 2]), [10, 6], [1, 2]),
        (cluster(30.0, most_containers=[4, 30]), [10, 5.5], [4, 6]),
        (cluster(30.0, most_containers=[4, 30]), [np.inf, 0.0], [4, 0]),
    ],
)
def test_plans_are_cut_to_size(round_: MicroserviceRound, wanted: Any, expected: Any) -> None:
    found = fitted(round_, np.array(wanted, dtype=float))
    assert found.containers.tolist() == expected
    assert found.whole == (found.containers.tolist() == np.ceil(wanted).tolist())
    assert bool(found.notes) != found.whole


# --- HPA -------------------------------------------------------------------------------------


def seen(load: float) -> Observed:
    return Observed(*(np.array([x]) for x in (load, 1.0, 1.0, 30.0, 1.0)), np.array([False]))


def play(policy: Any, steps: list[tuple[float, float]], start: int) -> list[int]:
    """Carry a policy through times and calls per second, its plans being carried out at once."""
    memory, now, out = None, start, []
    for time_s, calls in steps:
        round_ = one(calls, containers=[now], observed=seen(calls / now), now_s=time_s)
        decision = decide(policy, round_, memory)
        memory = load_memory(dump_memory(policy.remember(memory, round_, decision, None)))
        now = int(decision.allocation.containers[0])
        out.append(now)
    return out


def test_hpa_rises_at_once_and_falls_after_five_minutes() -> None:
    # target 6 calls a second on a container
    steps = [
        (0.0, 60.0),  # 10 are right
        (60.0, 66.0),  # ratio 1.1: within the tolerance
        (120.0, 69.0),  # 1.15: ceil(10 * 1.15) = 12
        (180.0, 30.0),  # would be 5, but 12 were recommended lately
        (240.0, 30.0), (300.0, 30.0), (360.0, 30.0),
        (420.0, 30.0),  # 120 lies 300 s back and still counts
        (480.0, 30.0),  # since 180 s nothing above 5
        (540.0, 34.0),  # ratio 34 / 5 / 6 = 1.133: ceil(5.67)
    ]  # fmt: skip
    assert play(HPA(), steps, 10) == [10, 10, 12, 12, 12, 12, 12, 12, 5, 6]


def test_hpa_without_stabilisation_follows_the_ratio() -> None:
    steps = [(0.0, 60.0), (60.0, 120.0), (120.0, 6.0), (180.0, 6.5), (240.0, 7.0)]
    # 120 calls on 10: ratio 2; 6 calls on 20: 1; 6.5 on 1: ratio 1.083; 7 on 1: 1.167
    assert play(HPA(stabilisation_s=0.0), steps, 10) == [10, 20, 1, 1, 2]


def test_hpa_takes_the_highest_recommendation_of_several() -> None:
    steps = [(0.0, 60.0), (60.0, 48.0), (120.0, 36.0), (400.0, 36.0)]
    # recommendations 10, 8, 6; at 400 s those of 120 s and now count
    assert play(HPA(), steps, 10) == [10, 10, 10, 6]


def test_hpa_starts_from_nothing_and_from_nothing_known() -> None:
    assert decide(HPA(), one(30.0, containers=[0])).allocation.containers.tolist() == [5]
    assert decide(HPA(), one(30.0)).allocation.containers.tolist() == [5]
    over = one(30.0, containers=[2], observed=seen(np.inf))
    assert decide(HPA(), over).allocation.containers.tolist() == [5]


def test_hpa_obeys_bounds() -> None:
    plan = decide(HPA(), one(3000.0, containers=[90], observed=seen(33.0)))
    assert plan.allocation.containers.tolist() == [100]
    assert not plan.allocation.guaranteed[0]


# --- the others by hand -----------------------------------------------------------------------


def test_grandslam_splits_by_mean_latency() -> None:
    # at 60 % of the heaviest loads 100 and 50 rates are .4 and .2: means 2.5 and 5 of T = 30
    round_ = MicroserviceRound(
        Microservices.of(["a", "b"], [1.0, 0.5], [-0.01, -0.01]), Services.of(["s"], 90.0, 30.0),
        CallClasses.of(["k"], CallTrees.serial([[1.0], [1.0]])),
    )  # fmt: skip
    # shares 10 and 20: rates ln 20 / 10 = .29957 and .14979, loads 70.04 and 35.02 of 90
    decision = decide(GrandSlam(), round_)
    assert decision.allocation.containers.tolist() == [2, 3]
    assert decision.per_job["target_ms"] == pytest.approx([10.0, 20.0])


def test_rhythm_gives_more_to_what_varies_more() -> None:
    # shifts 4 and 0, exponential parts 1 and 5 at the reference load
    round_ = MicroserviceRound(
        Microservices.of(["a", "b"], [2.5, 0.5], [-0.01, -0.002], shift_ms=[4.0, 0.0]),
        Services.of(["s"], 90.0, 30.0), CallClasses.of(["k"], CallTrees.serial([[1.0], [1.0]])),
    )  # fmt: skip
    # scores: cbrt(5 * 1 * 1 / sqrt 26), cbrt(5 * 5 * 5 / sqrt 26); 26 ms above the shifts
    score = np.cbrt(np.array([5.0, 125.0]) / np.sqrt(26.0))
    share = 26.0 * score / score.sum()
    rate = np.log(20.0) / share
    load = (rate - [2.5, 0.5]) / [-0.01, -0.002]
    expected = np.ceil(90.0 / load).astype(int).tolist()
    assert decide(Rhythm(), round_).allocation.containers.tolist() == expected


def two(containers: list[int], **more: Any) -> MicroserviceRound:
    return MicroserviceRound(
        Microservices.of(["a", "b"], [1.0, 1.0], [-0.01, -0.01], least_containers=1),
        Services.of(["s"], 90.0, 30.0), CallClasses.of(["k"], CallTrees.serial([[1.0], [1.0]])),
        containers=containers, **more,
    )  # fmt: skip


def measured(p50: list[float], p95: list[float], tail: float, violated: bool) -> Observed:
    return Observed(
        np.array([1.0, 1.0]), np.array(p50), np.array(p95), np.array([90.0]), np.array([tail]),
        np.array([violated]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (measured([5.0, 5.0], [10.0, 20.0], 40.0, True), [4, 25]),  # b varies more: 22 + 3
        (measured([5.0, 5.0], [20.0, 10.0], 40.0, True), [5, 22]),  # a: 4 + 1
        (measured([5.0, 5.0], [np.inf, 10.0], np.inf, True), [5, 22]),
        (measured([5.0, 5.0], [20.0, 10.0], 25.0, False), [4, 22]),  # 17 % slack: nothing
        (measured([5.0, 5.0], [20.0, 10.0], 20.0, False), [4, 21]),  # 33 %: b varies least
    ],
)
def test_firm_moves_one_at_a_time(observed: Observed, expected: list[int]) -> None:
    assert (
        decide(Firm(), two([4, 22], observed=observed)).allocation.containers.tolist() == expected
    )


def test_firm_looks_at_the_critical_path_only() -> None:
    tree = CallTrees.nested([[[{"microservice": "a"}, {"microservice": "b"}]]], ["a", "b"])
    round_ = replace(
        two([4, 4], observed=measured([1.0, 30.0], [5.0, 40.0], 40.0, True)),
        classes=CallClasses.of(["k"], tree),
    )
    assert decide(Firm(), round_).allocation.containers.tolist() == [4, 5]


def test_firm_reaches_its_target_in_rounds() -> None:
    now, memory = [1, 1], None
    for _ in range(60):
        round_ = two(now)
        decision = decide(Firm(), round_, memory)
        memory = Firm().remember(memory, round_, decision, None)
        now = decision.allocation.containers.tolist()
    assert decision.allocation.guaranteed.all()
    assert sum(now) <= 6


def test_autopilot_by_hand() -> None:
    # 10 calls a second on a container, 6 planned for: ceil(1.15 * 30 / 6)
    assert decide(Autopilot(), one(30.0)).allocation.containers.tolist() == [6]


def test_weighted_percentile_by_hand() -> None:
    samples = np.array([[1.0, 4.0], [3.0, 3.0], [2.0, 2.0]])
    weight = np.array([1.0, 1.0, 2.0])
    assert weighted_percentile(samples, weight, 0.5).tolist() == [2.0, 2.0]
    assert weighted_percentile(samples, weight, 0.76).tolist() == [3.0, 4.0]
    assert weighted_percentile(samples, weight, 0.25).tolist() == [1.0, 2.0]


def test_autopilot_forgets_by_half_lives() -> None:
    policy, memory = Autopilot(half_life_s=60.0), None
    plans = []
    for at, rate in enumerate([60.0] + [30.0] * 8):
        round_ = one(rate, now_s=60.0 * at)
        decision = decide(policy, round_, memory)
        memory = load_memory(dump_memory(policy.remember(memory, round_, decision, None)))
        plans.append(int(decision.allocation.containers[0]))
    # the peak weighs 2^-n of less than 2 in all: 5 % of it are passed at n = 4: 1 / 31 < .05
    assert plans == [12, 12, 12, 12, 6, 6, 6, 6, 6]


def example() -> MicroserviceRound:
    """The dynamic graph of the specification: budget 9, uniform 14, worst 59 containers."""
    return MicroserviceRound(
        Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]), Services.of(["s"], 100.0, 14.0),
        CallClasses.of(["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]),
    )  # fmt: skip


def test_static_worst_plans_for_the_longer_graph_at_the_highest_rate() -> None:
    policy = StaticWorst()
    first = decide(policy, example())
    # the optimum is 59; the rule takes one utilisation for all and trims
    assert 59 <= first.objective <= 66
    assert first.allocation.guaranteed.all()
    memory = load_memory(dump_memory(policy.remember(None, example(), first, None)))
    slow = replace(example(), services=replace(example().services, rate_per_s=np.array([10.0])))
    second = decide(policy, slow, memory)
    assert second.allocation == first.allocation
    memory = policy.remember(memory, slow, second, None)
    fast = replace(example(), services=replace(example().services, rate_per_s=np.array([200.0])))
    third = decide(policy, fast, memory)
    assert (third.allocation.containers >= first.allocation.containers).all()
    assert third.objective == pytest.approx(2 * first.objective, abs=4)
    memory = policy.remember(memory, fast, third, None)
    assert decide(policy, slow, memory).allocation == third.allocation


def test_static_worst_carries_all_services_at_once() -> None:
    both = MicroserviceRound(
        Microservices.of(["m"], 1.0, -0.1), Services.of(["s", "t"], 30.0, 50.0),
        CallClasses.of(["s", "t"], CallTrees.serial([[1.0, 1.0]]), share=[1.0, 1.0], service=[0, 1]),
    )  # fmt: skip
    decision = decide(StaticWorst(), both)
    # exp(-rate 50) <= .05: load 9.4 at most, of 60 calls
    assert decision.allocation.containers.tolist() == [7]
    assert decision.allocation.guaranteed.all()


def test_static_worst_ignores_shares() -> None:
    rare = replace(example(), classes=example().classes.with_share([0.999, 0.001]))
    rate = example().services.rate_per_s
    assert worst_plan(rare, rate).tolist() == worst_plan(example(), rate).tolist()
    gone = replace(example(), classes=example().classes.with_share([1.0, 0.0]))
    assert worst_plan(gone, rate).sum() < 20  # a class that does not occur is none


def test_sinan_descends_to_a_plan_that_loses_nothing_more() -> None:
    now, policy = [20, 20], Sinan()
    for _ in range(40):
        decision = decide(policy, replace(example(), containers=now))
        assert decision.allocation.guaranteed.all()
        now = decision.allocation.containers.tolist()
    tails, budget = Tails.of(example()), example().services.violation_budget
    for row in range(2):
        less = np.array(now)
        less[row] -= 1
        assert (tails.violations(less) > budget).any()


def test_sinan_climbs_out_of_a_violation() -> None:
    now = [4, 3]
    for _ in range(10):
        decision = decide(Sinan(), replace(example(), containers=now))
        now = decision.allocation.containers.tolist()
    assert decision.allocation.guaranteed.all()


def test_ursa_splits_the_budget_by_hand() -> None:
    # one call, T = 50, exp(-rate 50) <= .05: rate .0599, load 9.4 of 10, counts at tenths of 10:
    # 30 / 10 has no rate, 30 / 9 does
    plan = decide(Ursa(), one(30.0))
    assert plan.status == "OPTIMAL"
    assert plan.allocation.containers.tolist() == [4]
    # two calls: half the budget each at best, so rates of ln 40 / t
    pair = MicroserviceRound(
        Microservices.of(["a", "b"], 1.0, -0.01), Services.of(["s"], 90.0, 10.0),
        CallClasses.of(["k"], CallTrees.serial([[1.0], [1.0]])),
    )  # fmt: skip
    plan = decide(Ursa(), pair)
    rate = 1.0 - 0.01 * 90.0 / plan.allocation.containers
    assert (np.log(40.0) / rate).sum() <= 10.0
    assert plan.allocation.guaranteed.all()


BATTERY = [
    (policy, judge)
    for policy in (*POLICIES, Erms(scheme="partition", form="exact"))
    for _, judge in policy_checks(policy)
]


@pytest.mark.parametrize(
    ("policy", "judge"), BATTERY,
    ids=[f"{policy!r}-{judge.__name__}" for policy, judge in BATTERY],
)  # fmt: skip
def test_battery(policy: Any, judge: Callable[[], None]) -> None:
    judge()


# --- every policy ------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("seed", range(6))
def test_plans_are_valid_and_claims_hold(policy: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    round_ = draw(rng)
    if seed % 2:
        cpu = float(rng.uniform(2.0, 20.0))
        round_ = replace(round_, cpu_cores=cpu, memory_mib=6000.0 * cpu)
    decision = decide(policy, round_)
    assert decision.objective == pytest.approx(
        float(round_.microservices.cost @ decision.allocation.containers)
    )
    violation = Tails.of(round_).violations(
        decision.allocation.containers, decision.allocation.rank
    )
    kept = violation <= round_.services.violation_budget
    assert decision.allocation.guaranteed.tolist() == kept.tolist()
    for row in np.flatnonzero(~kept).tolist():
        assert any(str(round_.services.id[row]) in note for note in decision.notes)
    assert decision.allocation == decide(policy, round_).allocation  # the same twice


@EVERY
def test_nothing_at_all(policy: Any) -> None:
    nothing = MicroserviceRound(
        Microservices.of([], [], []), Services.of([], [], []),
        CallClasses.of([], CallTrees.serial(np.zeros((0, 0))), share=[], service=[]),
    )  # fmt: skip
    decision = decide(policy, nothing)
    assert decision.allocation.containers.size == 0
    assert decision.objective == 0.0
    policy.remember(None, nothing, decision, None)


@EVERY
def test_no_classes_and_no_calls(policy: Any) -> None:
    kinds = Microservices.of(["a", "b"], 1.0, -0.1, least_containers=[0, 2])
    empty = CallClasses.of([], CallTrees([0], [], [], [], []), share=[], service=[])
    unknown = MicroserviceRound(kinds, Services.of(["s"], 10.0, 5.0, 0.05, 1.0), empty)
    decision = decide(policy, unknown)
    assert decision.allocation.containers.tolist() == [0, 2]
    assert not decision.allocation.guaranteed[0]
    silent = replace(example(), services=Services.of(["s"], 0.0, 14.0))
    assert decide(policy, silent).allocation.containers.tolist() == [0, 0]


@EVERY
def test_hopeless_targets_get_a_plan_and_a_note(policy: Any) -> None:
    round_ = replace(
        example(), services=Services.of(["s"], 100.0, 0.5), cpu_cores=40.0,
        microservices=replace(example().microservices, shift_ms=np.array([1.0, 0.0])),
    )  # fmt: skip
    decision = decide(policy, round_)
    assert decision.status in ("HEURISTIC", "INFEASIBLE")
    assert not decision.allocation.guaranteed[0]
    assert any("100.000%" in note for note in decision.notes)


@EVERY
def test_no_room(policy: Any) -> None:
    for room in (
        {"cpu_cores": 0.0}, {"memory_mib": 3000.0}, {"nodes": Nodes.of(["n"], 1.0, 1e6, 0.5)},
        {"nodes": Nodes.of([], [], [])},
    ):  # fmt: skip
        round_ = replace(example(), **room)
        decision = decide(policy, round_)
        assert decision.notes
        assert not decision.allocation.guaranteed[0]
        assert decision.status in ("HEURISTIC", "INFEASIBLE")


@EVERY
def test_no_time(policy: Any) -> None:
    decision = decide(policy, draw(np.random.default_rng(1)), budget=Budget(0.0))
    if getattr(policy, "form", "") == "exact" or policy.name == "ursa":
        assert decision.time_limited


@pytest.mark.parametrize(
    "policy",
    [policy for policy in POLICIES if "permutation" in policy.traits],
    ids=lambda p: f"{p.name}-{getattr(p, 'scheme', '')}{getattr(p, 'form', '')}",
)
@pytest.mark.parametrize("seed", range(3))
def test_order_of_rows_changes_no_cost(policy: Any, seed: int) -> None:
    rng = np.random.default_rng(70 + seed)
    round_ = draw(rng)
    m, s = rng.permutation(len(round_.microservices)), rng.permutation(len(round_.services))
    k = rng.permutation(len(round_.classes))
    one_way, other = decide(policy, round_), decide(policy, permuted(round_, m, s, k))
    assert other.objective == pytest.approx(one_way.objective, rel=1e-6)


def permuted(round_: MicroserviceRound, m: Any, s: Any, k: Any) -> MicroserviceRound:
    """The same round with microservices, services and classes in another order."""
    kinds, services, classes = round_.microservices, round_.services, round_.classes
    back_m, back_s = np.argsort(m), np.argsort(s)
    nested = classes.trees.nested_lists(kinds.id.tolist())
    names = kinds.id[m].tolist()
    assert round_.containers is not None
    assert kinds.id[m][back_m].tolist() == kinds.id.tolist()
    return replace(
        round_,
        microservices=Microservices(
            *(getattr(kinds, field)[m] for field in kinds.__dataclass_fields__)
        ),
        services=Services(*(getattr(services, f)[s] for f in services.__dataclass_fields__)),
        classes=CallClasses.of(
            classes.id[k], CallTrees.nested([nested[at] for at in k.tolist()], names),
            share=classes.share[k], service=back_s[classes.service[k]],
        ),
        containers=round_.containers[m], share_error=None,
    )  # fmt: skip


@EVERY
def test_memory_survives_text_and_change(policy: Any) -> None:
    rng = np.random.default_rng(3)
    memory = None
    for size in (4, 6, 3):
        round_ = replace(draw(rng, m=size), containers=None, now_s=60.0 * size)
        decision = decide(policy, round_, memory)
        memory = load_memory(dump_memory(policy.remember(memory, round_, decision, None)))
        assert (memory is None) == (policy.name in ("erms", "grandslam", "rhythm", "ursa"))


@pytest.mark.parametrize("policy", [HPA(), Firm(), StaticWorst(), Sinan(), Autopilot()])
@pytest.mark.parametrize("memory", [{}, [], {"id": ["m"]}, {"id": ["m"], "containers": [1.0, 2.0]}])
def test_foreign_memory_is_refused(policy: Any, memory: Any) -> None:
    with pytest.raises(InstanceError, match="memory"):
        policy.compile(replace(one(), containers=None), memory, NO_LIMIT).incumbent()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: HPA(target_utilisation=0.0), "hpa.target_utilisation = 0.0"),
        (lambda: HPA(tolerance=-0.1), "hpa.tolerance = -0.1"),
        (lambda: HPA(stabilisation_s=-1.0), "hpa.stabilisation_s = -1.0"),
        (lambda: GrandSlam(reference_utilisation=1.0), "grandslam.reference_utilisation"),
        (lambda: Rhythm(reference_utilisation=-1.0), "rhythm.reference_utilisation"),
        (lambda: Firm(step=-1.0), "firm.step"),
        (lambda: Firm(slack=2.0), "firm.slack"),
        (lambda: StaticWorst(headroom=0.5), "static-worst.headroom"),
        (lambda: Sinan(step=2.0), "sinan.step"),
        (lambda: Autopilot(half_life_s=0.0), "autopilot.half_life_s"),
        (lambda: Autopilot(margin=float("nan")), "autopilot.margin"),
        (lambda: Ursa(levels=0), "ursa.levels"),
        (lambda: Ursa(parts=31), "ursa.parts"),
    ],
)
def test_bad_parameters(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        make()
