"""Tails read off the contour, against high precision, simulation-free closed forms and each other."""

import mpmath
import numpy as np
import pytest
from scipy.stats import gamma

from apportion.formulations.microservices.contour import contour
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
    laws,
)

ABSOLUTE = 1e-12


def chain(rates, target, calls=None, shift=0.0):
    """One class that calls microservices of given rates one after the other, at no load."""
    count = len(rates)
    kinds = Microservices.of(
        [f"m{at}" for at in range(count)], np.asarray(rates, float), -1e-9, shift_ms=shift
    )
    trees = CallTrees.serial(np.ones((count, 1)) if calls is None else np.reshape(calls, (-1, 1)))
    return MicroserviceRound(kinds, Services.of(["s"], 1e-12, target), CallClasses.of(["c"], trees))


def tail(round_):
    return Tails.of(round_).class_tails(np.ones(len(round_.microservices), dtype=np.int64))[0]


def exact_tail(rates, time):
    """Sum of distinct or equal exponentials by partial fractions with hundreds of digits."""
    with mpmath.workdps(60 + 60 * len(rates)):
        apart = [
            mpmath.mpf(float(r)) * (1 + mpmath.mpf(10) ** -40 * j) for j, r in enumerate(rates)
        ]
        total = mpmath.mpf(0)
        for i, own in enumerate(apart):
            part = mpmath.e ** (-own * mpmath.mpf(float(time)))
            for j, other in enumerate(apart):
                if i != j:
                    part *= other / (other - own)
            total += part
        return float(total)


@pytest.mark.parametrize("stages", [1, 2, 10, 11, 30, 31, 60, 61, 100, 101, 200, 201, 400])
def test_equal_rates_are_erlang_however_many_there_are(stages):
    nodes, weights = contour(stages)
    for scaled in stages * np.linspace(0.3, 3.0, 41):
        found = (weights * (1.0 / (1.0 + nodes / scaled)) ** stages / nodes).sum().real
        assert found == pytest.approx(gamma.cdf(scaled, stages), abs=2e-12)


@pytest.mark.parametrize("stages", [800, 1600])
def test_more_stages_than_any_request_has_are_still_read_off(stages):
    nodes, weights = contour(stages)
    for scaled in stages * np.linspace(0.8, 1.3, 13):
        found = (weights * np.exp(-stages * np.log1p(nodes / scaled)) / nodes).sum().real
        assert found == pytest.approx(gamma.cdf(scaled, stages), abs=1e-11)


@pytest.mark.parametrize("seed", range(12))
def test_tails_equal_high_precision_partial_fractions(seed):
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.uniform(-3, 2, rng.integers(1, 13)))
    if seed % 3 == 0:
        rates[:] = rates[0]
    if seed % 3 == 1:
        rates *= 1.0 + 1e-9 * rng.random(rates.size)
        rates[1:] = rates[0] * (1.0 + 1e-12 * rng.random(rates.size - 1))
    target = float((1.0 / rates).sum() * rng.uniform(0.5, 3.0))
    # the round's own rates, which a load of 1e-12 calls per second lowers by next to nothing
    round_ = chain(rates, target)
    own = laws.rates(round_.microservices, laws.loads(round_, np.ones(rates.size)))[:, 0]
    assert tail(round_) == pytest.approx(exact_tail(own, target), abs=ABSOLUTE)


def test_rates_a_few_ulps_apart_do_not_cancel():
    # where a dense matrix exponential is off by 1e-3
    found = tail(chain([0.7200000000000001, 0.72, 0.22666666666666674], 18.5))
    assert found == pytest.approx(0.0321426583, abs=5e-11)


@pytest.mark.parametrize(
    ("stages", "wanted", "scaled"),
    [(1, 0.05, 2.99573), (2, 0.05, 4.74386), (3, 0.05, 6.29579), (2, 0.01, 6.63835)],
)
def test_constants_of_erlang_tails(stages, wanted, scaled):
    assert tail(chain([0.5] * stages, 2.0 * scaled)) == pytest.approx(wanted, abs=2e-6)


def test_repeated_calls_are_one_exponential_of_the_same_mean():
    assert tail(chain([0.5], 16.0, calls=[3])) == pytest.approx(np.exp(-16.0 / 6.0), abs=1e-13)
    assert tail(chain([0.5], 16.0, calls=[3])) == pytest.approx(0.06948, abs=5e-6)


def test_a_target_within_the_shifts_is_always_missed():
    assert tail(chain([5.0, 5.0], 4.0, shift=2.0)) == 1.0
    assert tail(chain([5.0, 5.0], 3.9, shift=2.0)) == 1.0
    assert tail(chain([5.0, 5.0], 5.0, shift=2.0)) == pytest.approx(np.exp(-5) * 6, abs=1e-13)


def forked(rates, stages, target, shift=0.0):
    ids = [f"m{at}" for at in range(len(rates))]
    kinds = Microservices.of(ids, np.asarray(rates, float), -1e-9, shift_ms=shift)
    trees = CallTrees.nested([stages], ids)
    return MicroserviceRound(kinds, Services.of(["s"], 1e-12, target), CallClasses.of(["c"], trees))


def call(at, *stages, calls=1):
    return {"microservice": f"m{at}", "calls": calls, "stages": list(stages)}


def test_a_fork_after_its_root():
    found = tail(forked([0.5, 0.4, 0.25], [[call(0, [call(1), call(2)])]], 16.0))
    alone = [tail(chain([0.5, rate], 16.0)) for rate in (0.4, 0.25, 0.65)]
    assert found == pytest.approx(alone[0] + alone[1] - alone[2], abs=ABSOLUTE)
    assert found == pytest.approx(0.041910, abs=5e-7)


def test_shifts_of_branches_count_where_they_matter():
    # max(1 + E1, 4 + E2) <= t, in closed form
    for target in (3.9, 4.5, 9.0, 30.0):
        found = tail(forked([0.5, 0.4], [[call(0), call(1)]], target, shift=[1.0, 4.0]))
        met = (1 - np.exp(-0.5 * max(target - 1, 0))) * (1 - np.exp(-0.4 * max(target - 4, 0)))
        assert found == pytest.approx(1.0 - met, abs=ABSOLUTE)


@pytest.mark.parametrize("seed", range(6))
def test_chains_side_by_side_equal_the_product_of_their_laws(seed):
    rng = np.random.default_rng(seed)
    rates, shift = np.exp(rng.uniform(-2, 1, 6)), rng.uniform(0, 2, 6)
    branches = [call(0, [call(1)], [call(2)]), call(3, [call(4)]), call(5)]
    target = float(rng.uniform(1.0, 3.0) * ((1 / rates).sum() + shift.sum()) / 2)
    found = tail(forked(rates, [branches], target, shift))
    met = 1.0
    for rows in ([0, 1, 2], [3, 4], [5]):
        room = target - shift[rows].sum()
        met *= 1.0 - exact_tail(rates[rows], room) if room > 0 else 0.0
    assert found == pytest.approx(1.0 - met, abs=1e-8)


def test_forks_inside_forks():
    # max(A + max(B, C), D) without shifts, integrated numerically
    rates = np.array([0.9, 0.5, 0.7, 0.3])
    found = tail(forked(rates, [[call(0, [call(1), call(2)]), call(3)]], 8.0))
    steps = np.linspace(0.0, 8.0, 200_001)
    inner = (1 - np.exp(-0.5 * (8.0 - steps))) * (1 - np.exp(-0.7 * (8.0 - steps)))
    first = np.trapezoid(0.9 * np.exp(-0.9 * steps) * inner, steps)
    assert found == pytest.approx(1.0 - first * (1 - np.exp(-0.3 * 8.0)), abs=1e-8)


def test_different_shifts_deep_inside():
    # the fork of B and C starts after A, and C is ready 3 ms before B
    rates, shift = np.array([0.9, 0.5, 0.7, 0.3]), np.array([0.5, 3.0, 0.1, 1.0])
    target = 14.0
    round_ = forked(rates, [[call(0, [call(1), call(2)]), call(3)]], target, shift)
    assert Tails.of(round_).exact.all()
    steps = np.linspace(0.0, target - shift[0], 400_001)
    left = target - shift[0] - steps
    inner = np.ones_like(steps)
    for m in (1, 2):
        inner *= 1 - np.exp(-rates[m] * np.maximum(left - shift[m], 0.0))
    first = np.trapezoid(rates[0] * np.exp(-rates[0] * steps) * inner, steps)
    alone = 1 - np.exp(-rates[3] * (target - shift[3]))
    assert tail(round_) == pytest.approx(1.0 - first * alone, abs=1e-7)


def test_branches_with_forks_may_be_ahead_themselves():
    # max(D, A + max(B, C), E + max(A + max(B, C), D)) with shifts everywhere
    rates, shift = np.array([0.9, 0.5, 0.7, 0.3, 1.2]), np.array([0.5, 3.0, 0.1, 9.0, 2.0])
    deep = call(0, [call(1), call(2)])
    tree = [[call(3), deep, call(4, [deep, call(3)])]]
    target = 26.0
    round_ = forked(rates, tree, target, shift)
    assert Tails.of(round_).exact.all()
    rng = np.random.default_rng(5)
    count = 1_000_000

    def draw(m):
        return shift[m] + rng.exponential(1 / rates[m], count)

    def inner():
        return draw(0) + np.maximum(draw(1), draw(2))

    found = np.maximum(np.maximum(draw(3), inner()), draw(4) + np.maximum(inner(), draw(3)))
    seen = (found > target).mean()
    assert tail(round_) == pytest.approx(seen, abs=4 * np.sqrt(seen * (1 - seen) / count))


def random_round(seed, services=1):
    """A small application with forks, shared microservices, shifts and repeated calls."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    ids = [f"m{at}" for at in range(count)]
    kinds = Microservices.of(
        ids, rng.uniform(0.4, 2.0, count), -np.exp(rng.uniform(-5, -3, count)),
        shift_ms=rng.uniform(0, 0.3, count),
    )  # fmt: skip

    def tree(depth):
        stages = []
        for _ in range(int(rng.integers(1, 3))):
            members = [
                {
                    "microservice": ids[int(rng.integers(count))],
                    "calls": int(rng.integers(1, 3)),
                    "stages": tree(depth - 1) if depth and rng.random() < 0.4 else [],
                }
                for _ in range(1 + int(rng.random() < 0.3))
            ]
            stages.append(members)
        return stages

    classes = 2 * services
    share = rng.dirichlet([2.0, 2.0], services).ravel()
    trees = CallTrees.nested([tree(1) for _ in range(classes)], ids)
    owner = np.repeat(np.arange(services), 2)
    return MicroserviceRound(
        kinds,
        Services.of([f"s{at}" for at in range(services)], rng.uniform(5, 40, services), 40.0),
        CallClasses.of([f"c{at}" for at in range(classes)], trees, share=share, service=owner),
    )


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_and_slopes_equal_what_is_computed_one_by_one(seed):
    round_ = random_round(seed, services=1 + seed % 2)
    tails = Tails.of(round_)
    counts = (
        laws.least_admissible(round_)
        + 1
        + np.random.default_rng(seed).integers(0, 3, len(round_.microservices))
    )
    rate, other = tails.rates(counts), tails.rates(counts + 1)
    found = tails.neighbours(rate, other)
    met, slope = tails.met_and_slopes(rate)
    assert met == pytest.approx(tails.met(rate), abs=1e-14)
    together = tails.met_at(np.stack((rate, other)))
    assert together[0] == pytest.approx(met, abs=1e-13)
    assert together[1] == pytest.approx(tails.met(other), abs=1e-13)
    for m in range(len(round_.microservices)):
        changed = rate.copy()
        changed[m] = other[m]
        assert found[m] == pytest.approx(tails.met(changed), abs=1e-12)
        lower, upper = rate.copy(), rate.copy()
        lower[m] *= np.exp(-1e-4)
        upper[m] *= np.exp(1e-4)
        numeric = (tails.met(lower) - tails.met(upper)) / 2e-4
        assert slope[m] == pytest.approx(numeric, abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_the_logarithm_is_concave_in_the_log_means(seed):
    round_ = random_round(seed)
    tails = Tails.of(round_)
    rng = np.random.default_rng(seed)
    shape = (len(round_.microservices), 1)
    for _ in range(20):
        one, two = rng.uniform(-1.5, 1.0, shape), rng.uniform(-1.5, 1.0, shape)
        middle = np.log(tails.met(np.exp(-(one + two) / 2)))
        ends = (np.log(tails.met(np.exp(-one))) + np.log(tails.met(np.exp(-two)))) / 2
        assert (middle >= ends - 1e-8).all()


@pytest.mark.parametrize("seed", range(20))
def test_more_containers_never_violate_more(seed):
    round_ = random_round(seed)
    tails = Tails.of(round_)
    counts = laws.least_admissible(round_)
    before = tails.violations(counts)
    for m in range(counts.size):
        more = counts.copy()
        more[m] += 1
        assert (tails.violations(more) <= before + 1e-13).all()


def test_a_class_meets_only_the_load_of_those_before_it():
    round_ = random_round(3)
    tails = Tails.of(round_)
    counts = laws.least_admissible(round_) + 1
    together = tails.class_tails(counts)
    first = tails.class_tails(counts, np.array([0, 1]))
    assert first[0] <= together[0] + 1e-13
    assert first[1] == pytest.approx(together[1], abs=1e-13)
    assert tails.class_tails(counts, np.array([0, 0])) == pytest.approx(together, abs=1e-13)


@pytest.mark.parametrize("members", [11, 14, 25])
def test_wide_forks_are_never_underrated(members):
    rng = np.random.default_rng(members)
    rates, shift = rng.uniform(0.5, 0.9, members), rng.uniform(0.0, 1.0, members)
    branches = [call(at) for at in range(members)]
    # of two calls more follow one another: neither a single call nor a fork
    branches += [call(0, [call(1)])]
    round_ = forked(rates, [branches], 14.0, shift)
    chained = 1.0 - exact_tail(rates[:2], 14.0 - shift[:2].sum())
    true = chained * (1 - np.exp(-rates * (14.0 - shift))).prod()
    assert not Tails.of(round_).exact[0]
    assert 1.0 - true <= tail(round_) + 1e-9
    # single calls count as the slowest of them, with the longest of their shifts
    alike = (1 - np.exp(-rates.min() * (14.0 - shift.max()))) ** members
    assert tail(round_) == pytest.approx(1.0 - chained * alike, abs=1e-8)


def test_equal_calls_side_by_side_are_exact_as_a_chain():
    wide = tail(forked([0.5] * 14, [[call(at) for at in range(14)]], 12.0))
    assert wide == pytest.approx(1.0 - (1.0 - np.exp(-6.0)) ** 14, abs=1e-8)


def test_branches_that_fork_are_put_one_after_the_other_where_states_run_out():
    ids = range(24)
    branch = [call(3 * at, [call(3 * at + 1), call(3 * at + 2)]) for at in range(8)]
    rates = np.linspace(0.8, 1.4, len(ids))
    round_ = forked(rates, [branch], 40.0)
    assert not Tails.of(round_).exact[0]
    draw = np.random.default_rng(2).exponential(1 / rates, (200_000, 24)).reshape(-1, 8, 3)
    true = ((draw[:, :, 0] + draw[:, :, 1:].max(axis=2)).max(axis=1) > 40.0).mean()
    assert true <= tail(round_) < 1.0
