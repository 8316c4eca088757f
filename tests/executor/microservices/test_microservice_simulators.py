"""The simulators against what is known in closed form, within four standard deviations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.executor.microservices import (
    EventSimulation,
    accepted,
    calibrated,
    missed_sla,
    violation_bounds,
    wilson_interval,
)
from apportion.executor.microservices.monte_carlo import draw_round, requests_to_draw
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)

SIGMAS = 4.0
ONE = CallTrees.serial([[1.0]])
FORK = [[{"microservice": "R", "stages": [[{"microservice": "P"}, {"microservice": "Q"}]]}]]


def drawn(round_, containers, requests=1_000_000, rank=None, phases=None):
    rngs = np.random.default_rng(11), np.random.default_rng(12)
    parts = phases or [(1.0, np.array(containers))]
    counts = np.full(len(round_.services), requests)
    return draw_round(round_, parts, rank, counts, rngs)


def share(measured):
    total, violations = measured.totals()
    return violations / total, total


# ---------------------------------------------------------------------- drawn from the laws


def example_3():
    return MicroserviceRound(
        microservices=Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]),
        services=Services.of(["s"], [100.0], [14.0], 0.05),
        classes=CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]
        ),
    )  # fmt: skip


def example_5():
    return MicroserviceRound(
        microservices=Microservices.of(["R", "P", "Q"], [0.5, 0.4, 0.25], [-1e-9] * 3),
        services=Services.of(["s"], [1.0], [16.0], 0.05),
        classes=CallClasses.of(["k"], CallTrees.nested([FORK], ["R", "P", "Q"])),
    )


def collapsed():
    """Three calls as one exponential of a third of the rate: 0.06948."""
    return MicroserviceRound(
        microservices=Microservices.of(["A"], [0.5], [-1e-9]),
        services=Services.of(["s"], [1.0], [16.0], 0.05),
        classes=CallClasses.of(["k"], CallTrees.serial([[3.0]])),
    )


@pytest.mark.parametrize(
    ("round_", "containers", "violation"),
    [
        (example_3(), [6, 3], 0.043395),
        (example_3(), [8, 6], 0.011556),
        (example_5(), [1, 1, 1], 0.041910),
        (collapsed(), [1], 0.06948),
    ],
    ids=["budget", "uniform", "fork", "repeats"],
)
def test_draws_agree_with_the_worked_examples(round_, containers, violation):
    measured = drawn(round_, containers)
    found, total = share(measured)
    assert accepted(found[0], violation, int(total[0]))
    expected = violation_bounds(round_, np.array(containers))
    assert expected.middle[0] == pytest.approx(violation, abs=2e-5)
    assert accepted(found[0], float(expected.middle[0]), int(total[0]))


def test_percentiles_of_the_mixture():
    p50, p95, p99, tail = drawn(example_3(), [6, 3], 2_000_000).percentiles()[0]
    assert p95 == pytest.approx(13.3186, abs=0.05)
    assert p99 == pytest.approx(21.3846, abs=0.15)
    assert tail == p95
    assert p50 < p95


def test_draws_see_phases_order_and_lost_requests():
    round_ = MicroserviceRound(
        microservices=Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1], shift_ms=0.5),
        services=Services.of(["s", "t"], [100.0, 20.0], [14.0, 16.0], [0.05, 0.1], [0.02, 0.0]),
        classes=CallClasses.of(
            ["S", "C", "D"], CallTrees.serial([[1, 1, 2], [0, 1, 1]]), share=[0.9, 0.08, 1.0],
            service=[0, 0, 1],
        ),
    )  # fmt: skip
    rank = np.array([1, 2, 0])
    few, many = np.array([9, 12]), np.array([12, 18])
    measured = drawn(round_, None, 400_000, rank, [(0.25, few), (0.75, many)])
    found, total = share(measured)
    each = [violation_bounds(round_, counts, rank) for counts in (few, many)]
    expected = 0.25 * each[0].middle + 0.75 * each[1].middle
    for service in range(2):
        assert accepted(found[service], float(expected[service]), int(total[service]))
    of_class = 0.25 * each[0].class_middle + 0.75 * each[1].class_middle
    kept = measured.class_kept / measured.class_measured
    for k in range(3):
        assert accepted(1.0 - kept[k], float(of_class[k]), int(measured.class_measured[k]))
    alone = violation_bounds(round_, many)
    assert not accepted(found[1], float(alone.middle[1]), int(total[1]))  # order shows


def test_how_many_are_drawn():
    services = Services.of(["s", "t", "u"], 1.0, 1.0, [0.05, 1e-4, 1e-9])
    table = Microservices.of(["A"], [1.0], [-0.1])
    classes = CallClasses.of(
        ["S", "T", "U"], CallTrees.serial([[1, 1, 1]]), share=[1, 1, 1], service=[0, 1, 2]
    )
    round_ = MicroserviceRound(microservices=table, services=services, classes=classes)
    assert requests_to_draw(round_, None).tolist() == [100_000, 1_000_000, 5_000_000]
    assert requests_to_draw(round_, 7).tolist() == [7, 7, 7]


def test_calls_that_do_not_end_are_infinite():
    measured = drawn(example_3(), [6, 2], 10_000)
    assert measured.class_kept[1] == 0
    assert math.isinf(measured.percentiles()[0, -1])
    assert math.isfinite(measured.percentiles()[0, 0])


# ---------------------------------------------------------------------- queues


def simulated(trees, rates, containers, per_ms, *, shares=(1.0,), count=200_000, seed=1, **rest):
    """Requests of a Poisson process; latencies in the order in which they came."""
    rng = np.random.default_rng(seed)
    came = np.cumsum(rng.exponential(1.0 / per_ms, count))
    kinds = rng.choice(len(shares), count, p=shares)
    rates = np.array(rates, dtype=float)
    simulation = EventSimulation(
        trees, rates, np.array(rest.pop("shift", np.zeros(rates.size))), np.array(containers),
        rng, **rest,
    )  # fmt: skip
    ended = simulation.advance(math.inf, came, kinds)
    assert simulation.unfinished == 0
    order = np.argsort(ended.came_ms, kind="stable")
    return ended.of_class[order], (ended.ended_ms - ended.came_ms)[order], simulation


def agrees(values, expected, batches=40):
    """Means of long batches are nearly independent, though requests that follow are not."""
    values = values[values.size // 20 :]  # the queue was empty at first
    means = np.array([batch.mean() for batch in np.array_split(values, batches)])
    error = means.std(ddof=1) / math.sqrt(batches)
    assert error < 0.05 * expected, "too few requests to tell"
    return abs(means.mean() - expected) <= SIGMAS * error


def erlang_c(servers, load):
    below = sum(load**n / math.factorial(n) for n in range(servers))
    full = load**servers / math.factorial(servers) * servers / (servers - load)
    return full / (below + full)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_container_is_mm1(load):
    _, latency, _ = simulated(ONE, [1.0], [1], load)
    rate = 1.0 - load
    assert agrees(latency, 1.0 / rate)
    late = (latency > 2.0 / rate).astype(float)
    assert agrees(late, math.exp(-2.0), batches=20)  # exponential: the form of Derm's law


def test_containers_with_their_own_queues_split_the_load():
    _, latency, _ = simulated(ONE, [1.0], [4], 2.8)
    assert agrees(latency, 1.0 / 0.3)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (2, 1.4), (5, 4.0)])
def test_one_queue_before_many_is_mmc(servers, load):
    _, latency, _ = simulated(ONE, [1.0], [servers], load, queue="shared")
    assert agrees(latency, 1.0 + erlang_c(servers, load) / (servers - load))


@pytest.mark.parametrize(("first", "second"), [(0.35, 0.35), (0.5, 0.2), (0.1, 0.75)])
def test_preemptive_priority(first, second):
    """Two classes, equal rates: the first meets only itself, the second all."""
    both = first + second
    kinds, latency, _ = simulated(
        CallTrees.serial([[1.0, 1.0]]), [1.0], [1], both, shares=[first / both, second / both],
        rank=np.array([0, 1]), count=300_000,
    )  # fmt: skip
    assert agrees(latency[kinds == 0], 1.0 / (1.0 - first))
    assert agrees(latency[kinds == 1], 1.0 / ((1.0 - first) * (1.0 - both)))
    # the law of order says 1 / (1 - both) of the second: delay is moved, not removed
    assert not agrees(latency[kinds == 1], 1.0 / (1.0 - both))


def test_three_ranks_and_equal_ranks():
    kinds, latency, _ = simulated(
        CallTrees.serial([[1.0] * 3]), [1.0], [1], 0.75, shares=[0.4, 0.3, 0.3],
        rank=np.array([2, 0, 1]), count=300_000,
    )  # fmt: skip
    below = 0.0
    for k in (1, 2, 0):
        upto = below + 0.75 * (0.4, 0.3, 0.3)[k]
        assert agrees(latency[kinds == k], 1.0 / ((1.0 - below) * (1.0 - upto)))
        below = upto
    kinds, latency, _ = simulated(
        CallTrees.serial([[1.0, 1.0]]), [1.0], [1], 0.7, shares=[0.5, 0.5], rank=np.array([3, 3])
    )
    assert agrees(latency[kinds == 0], 1.0 / 0.3)
    assert agrees(latency[kinds == 1], 1.0 / 0.3)


def test_a_tandem_is_a_jackson_network():
    """Means add; shifts hold no container; classes that skip a stage lighten it."""
    trees = CallTrees.serial([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    kinds, latency, simulation = simulated(
        trees, [1.0, 2.0, 0.8], [2, 1, 3], 1.2, shares=[0.5, 0.5], shift=np.array([0.5, 0.0, 1.0])
    )
    own = [1.0 / (1.0 - 0.6), 1.0 / (2.0 - 0.6), 1.0 / (0.8 - 0.4)]
    assert agrees(latency[kinds == 0], sum(own) + 1.5)
    assert agrees(latency[kinds == 1], own[0] + own[2] + 1.5)
    for m, values in enumerate(simulation.take_own_ms()):
        assert agrees(values, own[m] + (0.5, 0.0, 1.0)[m])


def test_fork_and_join_without_load():
    """Hardly ever two requests at once: the largest of independent times."""
    trees = CallTrees.nested([FORK], ["R", "P", "Q"])
    _, latency, _ = simulated(trees, [0.5, 0.4, 0.25], [1, 1, 1], 1e-4, count=100_000)
    assert agrees(latency, 2.0 + 1 / 0.4 + 1 / 0.25 - 1 / 0.65)
    late = float((latency > 16.0).mean())
    assert accepted(late, 0.041910, latency.size)


def test_repeats_are_made_one_after_the_other_with_what_is_below():
    nested = [
        [{"microservice": "a", "calls": 2, "stages": [[{"microservice": "b", "calls": 1.5}]]}]
    ]
    trees = CallTrees.nested([nested], ["a", "b"])
    _, latency, simulation = simulated(trees, [0.5, 0.25], [1, 1], 1e-4, count=100_000)
    assert agrees(latency, 2 * 2.0 + 2 * 1.5 * 4.0)
    calls = [own.size for own in simulation.take_own_ms()]
    assert calls[0] == 200_000
    assert abs(calls[1] - 300_000) < SIGMAS * math.sqrt(200_000 * 0.25)


def test_same_stream_same_events():
    one, two = (
        simulated(CallTrees.serial([[2.0, 1.0]]), [1.0], [3], 1.5, shares=[0.3, 0.7], count=5000)
        for _ in range(2)
    )
    assert np.array_equal(one[1], two[1])
    assert one[2].events == two[2].events == 5000 + one[2].take_own_ms()[0].size


@pytest.mark.parametrize("rank", [None, np.array([0])])
def test_containers_come_and_go(rank):
    """Those let go end with what they have; calls without any wait for the next one."""
    rng = np.random.default_rng(0)
    simulation = EventSimulation(ONE, np.array([1.0]), np.zeros(1), np.array([0]), rng, rank=rank)
    kinds = np.zeros(50, dtype=np.int64)
    first = simulation.advance(100.0, np.linspace(0.0, 99.0, 50), kinds)
    assert first.of_class.size == 0
    assert simulation.unfinished == 50
    simulation.set_containers(np.array([25]))
    second = simulation.advance(100.0 + 1e-9, np.zeros(0), kinds[:0])
    assert second.of_class.size <= 1
    simulation.set_containers(np.array([1]))
    third = simulation.advance(math.inf, np.zeros(0), kinds[:0])
    assert simulation.unfinished == 0
    assert second.of_class.size + third.of_class.size == 50
    assert third.ended_ms.min() > 100.0
    assert third.ended_ms.max() < 130.0  # 25 queues of two went on, not one of fifty


def test_a_shared_queue_has_no_order_among_classes():
    with pytest.raises(ValueError, match="rank"):
        EventSimulation(
            ONE, np.ones(1), np.zeros(1), np.ones(1, dtype=int), np.random.default_rng(0),
            queue="shared", rank=np.array([0]),
        )  # fmt: skip


def test_laws_fitted_to_queues_are_those_of_mm1():
    """At a rate mu a container that is called w times a second has rate mu - w / 1000."""
    round_ = MicroserviceRound(
        microservices=Microservices.of(
            ["A", "B", "unused"], [0.6, 0.5, 1.0], [-0.01, -0.01, -0.01], shift_ms=[1.0, 0.0, 0.0]
        ),
        services=Services.of(["s"], [1000.0], [50.0]),
        classes=CallClasses.of(["S"], CallTrees.serial([[1], [1], [0]])),
    )
    table, fits = calibrated(round_, np.array([3, 4, 1]), requests=40_000)
    assert fits[2] is None
    assert table.rate_slope_per_ms[2] == -0.01
    for m, rate in ((0, 0.6), (1, 0.5)):
        assert table.rate_at_rest_per_ms[m] == pytest.approx(rate, rel=0.05)
        assert table.rate_slope_per_ms[m] == pytest.approx(-1e-3, rel=0.1)
        assert fits[m].ks < 0.02
    assert table.shift_ms[:2] == pytest.approx([1.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("rank", [None, [0, 1], [1, 0]])
def test_the_law_of_order_against_queues(rank):
    """Right in order of arrival and of who goes first; those who go last lose what others gain."""
    round_ = MicroserviceRound(
        microservices=Microservices.of(["A", "B"], [0.6, 0.5], [-0.001, -0.001]),
        services=Services.of(["s"], [3000.0], [14.0], 0.05),
        classes=CallClasses.of(
            ["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.7, 0.3]
        ),
    )  # fmt: skip
    order = None if rank is None else np.array(rank)
    law = violation_bounds(round_, np.array([9, 4]), order).class_middle
    kinds, latency, _ = simulated(
        round_.classes.trees, [0.6, 0.5], [9, 4], 3.0, shares=[0.7, 0.3], rank=order,
        count=200_000,
    )  # fmt: skip
    late = np.array([(latency[kinds == k] > 14.0).mean() for k in (0, 1)])
    for k in (0, 1):
        if rank is None or rank[k] == 0:
            assert late[k] == pytest.approx(law[k], rel=0.15)
        else:
            assert late[k] > 1.9 * law[k]


# ---------------------------------------------------------------------- counts


def test_wilson_intervals():
    low, high = wilson_interval([0, 5, 100], [100, 100, 100])
    assert low[0] == 0.0
    assert high[2] == 1.0
    assert (low[1], high[1]) == pytest.approx((0.02154, 0.11175), abs=1e-5)  # textbook
    assert wilson_interval(0, 0) == (0.0, 1.0)
    rng = np.random.default_rng(0)
    low, high = wilson_interval(rng.binomial(500, 0.05, 4000), 500)
    assert 0.93 < ((low <= 0.05) & (high >= 0.05)).mean() < 0.97


def test_the_binomial_test_is_a_sum_of_binomials():
    n, budget = 60, 0.05
    chance = [math.comb(n, i) * budget**i * (1 - budget) ** (n - i) for i in range(n + 1)]
    for hits in range(n + 1):
        assert missed_sla(hits, n, budget) == (math.fsum(chance[hits:]) < 0.01)
    assert not missed_sla(0, 0, 0.05)
    rng = np.random.default_rng(1)
    wrong = missed_sla(rng.binomial(100_000, 0.05, 20_000), 100_000, 0.05).mean()
    assert 0.006 < wrong < 0.014
