"""The checker's tails: golden cases, high-precision arithmetic, and brackets that hold what they say."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from apportion.executor.microservices import accepted, violation_bounds
from apportion.executor.microservices.chains import chains
from apportion.executor.microservices.lattice_tails import chain_tail
from apportion.executor.microservices.monte_carlo import draw_latencies
from apportion.executor.microservices.serial_tails import (
    _event_by_event,
    serial_cdf,
    serial_tail,
)
from apportion.executor.tolerances import WIDEST_CHAIN
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)

NAMES = [f"m{i}" for i in range(40)]
SEEDS = [*range(20), *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 200))]


def exact_tail(rates, time):
    """Partial fractions of distinct rates, with as many digits as their cancellation needs."""
    with mpmath.workdps(400):
        r = [mpmath.mpf(float(rate)) for rate in rates]
        total = mpmath.mpf(0)
        for i, one in enumerate(r):
            factor = mpmath.mpf(1)
            for j, other in enumerate(r):
                if j != i:
                    factor *= other / (other - one)
            total += factor * mpmath.exp(-one * mpmath.mpf(float(time)))
        return float(total)


def fork_tail(root, members, time):
    """One call, then the largest of several, by inclusion and exclusion."""
    total = 0.0
    for count in range(1, len(members) + 1):
        for some in itertools.combinations(members, count):
            total -= (-1.0) ** count * exact_tail([root, math.fsum(some)], time)
    return total


def random_tree(rng, calls, depth=0):
    """Stages of calls, serial and parallel, nested."""
    stages = []
    while calls > 0:
        width = int(rng.integers(1, 4)) if calls > 1 else 1
        members = []
        for _ in range(min(width, calls)):
            calls -= 1
            member = {
                "microservice": NAMES[int(rng.integers(12))],
                "calls": int(rng.integers(1, 4)),
            }
            if depth < 2 and calls > 1 and rng.random() < 0.4:
                below = int(rng.integers(1, min(calls, 4)))
                member["stages"] = random_tree(rng, below, depth + 1)
                calls -= below
            members.append(member)
        stages.append(members)
    return stages


def of_tree(stages, rates, shifts, time, steps):
    trees = CallTrees.nested([stages], NAMES)
    rate = rates[trees.microservice] / trees.per_request
    shift = shifts[trees.microservice] * trees.per_request
    return chain_tail(chains(trees)[0], rate, shift, time, steps)


@pytest.mark.parametrize(
    ("stages", "time", "tail"),
    [(1, 2.99573, 0.05), (2, 4.74386, 0.05), (3, 6.29579, 0.05), (2, 6.63835, 0.01)],
)
def test_equal_rates_are_erlang(stages, time, tail):
    low, high = serial_tail(np.full(stages, 0.7), time / 0.7)
    exact = math.exp(-time) * sum(time**i / math.factorial(i) for i in range(stages))
    assert low <= exact <= high
    assert high - low < 1e-11
    assert exact == pytest.approx(tail, abs=2e-6)


def test_rates_a_few_ulps_apart():
    """Where a matrix exponential is off by a thousandth."""
    rates = np.array([0.7200000000000001, 0.72, 0.22666666666666674])
    low, high = serial_tail(rates, 18.5)
    assert low <= exact_tail(rates, 18.5) <= high
    assert low == pytest.approx(0.0321426583, abs=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_serial_bounds_hold_the_exact_tail(seed):
    """Rates that differ by orders of magnitude, some of them hardly at all."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.8, 9.0, 10) / rng.integers(1, 114, 10)
    rates[3] = rates[2] * (1.0 + 1e-9)
    rates[5] = np.nextafter(rates[4], 9.0)
    time = float((1.0 / rates).sum() * rng.uniform(0.3, 3.0))
    low, high = serial_tail(rates, time)
    exact = exact_tail(rates, time)
    assert low <= exact <= high
    assert high - low < 1e-8
    assert abs((low + high) / 2 - exact) < 1e-12
    shuffled = serial_tail(rng.permutation(rates), time)
    assert shuffled == pytest.approx((low, high), abs=1e-12)


def test_wide_chains_go_event_by_event():
    rng = np.random.default_rng(5)
    rates = rng.uniform(1.0, 3.0, WIDEST_CHAIN + 1)
    time = float((1.0 / rates).sum() * 1.2)
    low, high = serial_tail(rates, time)
    assert low <= exact_tail(rates, time) <= high
    assert high - low < 1e-9
    few = rates[:20]
    under_way, arrived = _event_by_event(few, 12.0)
    low, high = serial_tail(few, 12.0)
    assert low <= under_way <= 1.0 - arrived <= high


def test_stages_too_fast_to_matter_are_bracketed():
    slow = serial_tail(np.array([1.0, 0.5]), 10.0)
    low, high = serial_tail(np.array([1e12, 1.0, 0.5]), 10.0)
    assert slow[0] - 1e-12 <= low <= slow[1]
    assert slow[0] < high < slow[1] + 1e-6


def test_edges():
    assert serial_tail(np.zeros(0), 1.0) == (0.0, 0.0)
    assert serial_tail(np.array([1.0]), 0.0) == (1.0, 1.0)
    assert serial_tail(np.array([1.0]), -5.0) == (1.0, 1.0)
    low, high = serial_cdf(np.array([1.0]), 5.0, 0.1, 40)
    assert not low.any()  # the shift lies beyond the lattice
    assert not high.any()


def test_tails_fall_with_time_and_rise_with_every_stage():
    rng = np.random.default_rng(1)
    for _ in range(20):
        rates = rng.uniform(0.05, 2.0, int(rng.integers(1, 8)))
        time = float(rng.uniform(0.5, 40.0))
        low, high = serial_tail(rates, time)
        assert serial_tail(rates, time * 1.1)[0] <= high
        assert serial_tail(np.append(rates, 1.0), time)[1] >= low
        slower = rates.copy()
        slower[0] *= 0.9
        assert serial_tail(slower, time)[1] >= low


def test_example_5_of_a_fork():
    """Root, then the larger of two: 0.041910."""
    stages = [
        [{"microservice": "m0", "stages": [[{"microservice": "m1"}, {"microservice": "m2"}]]}]
    ]
    rates, none = np.array([0.5, 0.4, 0.25] + [1.0] * 37), np.zeros(40)
    exact = fork_tail(0.5, [0.4, 0.25], 16.0)
    assert exact == pytest.approx(0.041910, abs=1e-6)
    widths = []
    for steps in (500, 1000, 2000, 4000):
        low, high = of_tree(stages, rates, none, 16.0, steps)
        assert low <= exact <= high
        widths.append(high - low)
    assert all(fine < 0.6 * coarse for coarse, fine in itertools.pairwise(widths))


def test_a_fork_alone_needs_no_rounding():
    stages = [[{"microservice": "m0"}, {"microservice": "m1"}, {"microservice": "m2"}]]
    rates, none = np.array([0.5, 0.4, 0.25] + [1.0] * 37), np.zeros(40)
    low, high = of_tree(stages, rates, none, 12.0, 50)
    exact = 1.0 - np.prod([1.0 - math.exp(-rate * 12.0) for rate in (0.5, 0.4, 0.25)])
    assert low <= exact <= high
    assert high - low < 1e-10


def test_shifts_are_not_rounded_where_nothing_follows():
    stages = [[{"microservice": "m0"}, {"microservice": "m1"}, {"microservice": "m2"}]]
    rates = np.array([0.5, 0.4, 0.25] + [1.0] * 37)
    shifts = np.array([1.0, math.pi, 0.777] + [0.0] * 37)
    low, high = of_tree(stages, rates, shifts, 12.0, 50)
    pairs = zip(rates[:3].tolist(), shifts[:3].tolist(), strict=True)
    exact = 1.0 - np.prod([1.0 - math.exp(-rate * (12.0 - shift)) for rate, shift in pairs])
    assert low <= exact <= high
    assert high - low < 1e-10


@pytest.mark.parametrize("seed", SEEDS)
def test_forks_hold_inclusion_and_exclusion(seed):
    rng = np.random.default_rng(seed)
    root, members = rng.uniform(0.2, 1.0), rng.uniform(0.1, 1.0, int(rng.integers(2, 5)))
    stages = [
        [{"microservice": "m0"}],
        [{"microservice": f"m{i + 1}"} for i in range(members.size)],
    ]
    rates = np.concatenate(([root], members, np.ones(40)))
    time = float(rng.uniform(5.0, 40.0))
    low, high = of_tree(stages, rates[:40], np.zeros(40), time, 2000)
    exact = fork_tail(root, members.tolist(), time)
    assert low <= exact <= high
    assert high - low < 1e-3
    alone = [1.0 - serial_tail(np.array([root, rate]), time)[0] for rate in members]
    assert high >= 1.0 - min(alone)  # not shorter than any member
    assert low <= sum(1.0 - one for one in alone)


@pytest.mark.parametrize("seed", SEEDS)
def test_nested_trees_agree_with_draws_and_shrink(seed):
    """Invariant 14, with shifts: no closed form here, so a fine bracket against 2e5 draws."""
    rng = np.random.default_rng(100 + seed)
    stages = random_tree(rng, int(rng.integers(2, 12)))
    rates, shifts = rng.uniform(0.3, 3.0, 40), rng.uniform(0.0, 0.8, 40)
    trees = CallTrees.nested([stages], NAMES)
    rate = rates[trees.microservice] / trees.per_request
    shift = shifts[trees.microservice] * trees.per_request
    chain = chains(trees)[0]
    drawn = draw_latencies(chain, rate, shift, 200_000, rng)
    time = float(np.quantile(drawn, 0.95))
    brackets = [chain_tail(chain, rate, shift, time, steps) for steps in (500, 1000, 2000, 4000)]
    for (low, high), (lower, higher) in itertools.pairwise(brackets):
        assert low - 1e-9 <= lower <= higher <= high + 1e-9
    low, high = brackets[-1]
    assert high - low < 2e-3
    counted = float((drawn > time).mean())
    nearest = min(max(counted, low), high)
    assert accepted(counted, nearest, drawn.size)


def naive_latency(stages, rates, shifts, rng):
    """One request, walked through as the grammar says."""
    total = 0.0
    for members in stages:
        ends = []
        for call in members:
            m, n = NAMES.index(call["microservice"]), call.get("calls", 1)
            own = n * shifts[m] + rng.exponential(n / rates[m])
            ends.append(own + n_times(call, n, rates, shifts, rng))
        total += max(ends)
    return total


def n_times(call, n, rates, shifts, rng):
    """A repeated call repeats what is below it."""
    below = [
        [{**member, "calls": member.get("calls", 1) * n} for member in members]
        for members in call.get("stages", [])
    ]
    return naive_latency(below, rates, shifts, rng)


def test_draws_walk_the_tree_as_the_grammar_says():
    rng = np.random.default_rng(3)
    stages = [
        [{"microservice": "m0", "calls": 2, "stages": [
            [{"microservice": "m1"}, {"microservice": "m2", "calls": 3}],
            [{"microservice": "m3"}],
        ]}, {"microservice": "m4"}],
        [{"microservice": "m5"}],
    ]  # fmt: skip
    rates, shifts = rng.uniform(0.3, 3.0, 40), rng.uniform(0.0, 0.8, 40)
    trees = CallTrees.nested([stages], NAMES)
    rate = rates[trees.microservice] / trees.per_request
    shift = shifts[trees.microservice] * trees.per_request
    drawn = draw_latencies(chains(trees)[0], rate, shift, 20_000, rng)
    walked = np.array([naive_latency(stages, rates, shifts, rng) for _ in range(20_000)])
    error = math.sqrt((drawn.var() + walked.var()) / 20_000)
    assert abs(drawn.mean() - walked.mean()) < 4 * error
    assert abs(drawn.std() - walked.std()) < 0.03 * drawn.std()


def test_long_chains_of_calls_below_calls():
    """A tree deeper than Python's own recursion goes."""
    calls, names = 3000, ["m"]
    trees = CallTrees(
        np.array([0, calls]), np.zeros(calls, int), np.arange(calls) - 1, np.zeros(calls, int),
        np.ones(calls),
    )  # fmt: skip
    round_ = MicroserviceRound(
        microservices=Microservices.of(names, [4.0], [-0.001]),
        services=Services.of(["s"], [0.1], [760.0]), classes=CallClasses.of(["k"], trees),
    )  # fmt: skip
    found = violation_bounds(round_, np.array([1]))
    assert found.high[0] - found.low[0] < 1e-6
    rate = 4.0 - 0.001 * 300.0
    assert found.low[0] == pytest.approx(1.0 if rate * 760.0 < 2900 else 0.0, abs=0.05)


def example_3(**changes):
    parts = {
        "microservices": Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1]),
        "services": Services.of(["s"], [100.0], [14.0], 0.05),
        "classes": CallClasses.of(["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.1]),
    }
    return MicroserviceRound(**{**parts, **changes})


@pytest.mark.quick
def test_example_3_of_a_mixture():
    found = violation_bounds(example_3(), np.array([6, 3]))
    assert found.middle == pytest.approx([0.043395], abs=1e-6)
    assert found.class_middle == pytest.approx([0.023913, 0.218737], abs=1e-6)
    assert (found.high - found.low).max() < 1e-11
    uniform = violation_bounds(example_3(), np.array([8, 6]))
    assert uniform.class_middle == pytest.approx([0.007447, 0.048543], abs=1e-6)
    assert uniform.middle == pytest.approx([0.9 * 0.007447 + 0.1 * 0.048543], abs=1e-6)


def test_what_does_not_end_and_what_does_not_occur():
    found = violation_bounds(example_3(), np.array([6, 2]))  # B: 0.5 - 0.1 * 5 = 0
    assert found.class_middle[1] == 1.0
    assert found.low[0] == pytest.approx(0.9 * 0.023913 + 0.1, abs=1e-6)
    alone = example_3(
        classes=CallClasses.of(["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[1.0, 0.0])
    )
    found = violation_bounds(alone, np.array([6, 0]))
    assert np.isnan(found.class_low[1])
    assert found.low[0] == pytest.approx(0.023913, abs=1e-6)
    idle = example_3(services=Services.of(["s"], [0.0], [14.0], 0.05))
    assert violation_bounds(idle, np.array([0, 0])).high[0] == 0.0
    lost = example_3(
        services=Services.of(["s"], [100.0], [14.0], 0.05, 0.1),
        classes=CallClasses.of(["S", "C"], CallTrees.serial([[1, 1], [0, 1]]), share=[0.9, 0.0]),
    )
    assert violation_bounds(lost, np.array([6, 0])).low[0] > 0.1
    late = example_3(
        microservices=Microservices.of(["A", "B"], [0.6, 0.5], [-0.02, -0.1], shift_ms=7.0)
    )
    found = violation_bounds(late, np.array([60, 30]))
    assert found.class_middle[1] == 1.0  # the shifts alone take all of the target
    assert found.class_middle[0] < 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_order_among_classes(seed):
    """Invariant 16: nobody is worse off than in order of arrival, the last are as they were."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(1, 5))
    calls = rng.integers(0, 3, (4, classes)).astype(float)
    calls[0] = 1.0
    round_ = MicroserviceRound(
        microservices=Microservices.of(NAMES[:4], rng.uniform(0.5, 1.0, 4), [-0.01] * 4),
        services=Services.of(["s"], [50.0], [float(rng.uniform(10.0, 30.0))]),
        classes=CallClasses.of(
            NAMES[:classes], CallTrees.serial(calls), share=rng.dirichlet(np.ones(classes))
        ),
    )
    containers = np.ceil(round_.calls_per_s / 30.0).astype(int) + 1
    rank = rng.permutation(classes)
    fcfs = violation_bounds(round_, containers)
    queue = violation_bounds(round_, containers, rank)
    assert (queue.class_low <= fcfs.class_high).all()
    last = int(np.argmax(rank))
    assert queue.class_middle[last] == pytest.approx(fcfs.class_middle[last], abs=1e-10)
    if classes == 1:
        assert queue.low == pytest.approx(fcfs.low, abs=1e-10)
    equal = violation_bounds(round_, containers, np.zeros(classes, dtype=np.int64))
    assert equal.low == pytest.approx(fcfs.low, abs=1e-10)
