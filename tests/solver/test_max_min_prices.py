"""Max-min by prices against one plain LP, and its bound at any prices."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import Budget, ModelError, Sharing, Solver, solve_max_min
from apportion.solver.drivers import sharing
from apportion.solver.drivers.max_min_prices import cheapest, level_bound, level_by_prices

SOME, MANY = 40, 400
FOREVER = Budget.of(None)


def seeds(count: int) -> list[object]:
    return [
        pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
        for seed in range(count)
    ]


def draw(rng: np.random.Generator, jobs: int = 0) -> Sharing:
    """Few or many jobs; ties, types that are of no use or not there, and any load."""
    n, k = jobs or int(rng.integers(1, 40)), int(rng.integers(1, 6))
    speed = (
        rng.integers(0, 4, (n, k)).astype(float),
        np.linspace(1.0, 4.0, k) ** rng.uniform(0.2, 1.3, (n, 1)),
        rng.lognormal(0.0, 1.0, (n, k)),
    )[rng.integers(0, 3)]
    if rng.random() < 0.8:
        speed[:, 0] = np.maximum(speed[:, 0], 0.5)
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], n)
    capacity = np.round(gang.sum() * rng.dirichlet(np.ones(k)) / rng.choice([0.5, 1.0, 3.0, 10.0]))
    capacity[rng.integers(0, k)] += 1.0
    scale = rng.choice([1.0, 0.5], n) if rng.random() < 0.5 else rng.uniform(0.5, 2.0, n)
    return Sharing(speed, gang, capacity, scale)


def plain(problem: Sharing) -> float:
    answer = Solver().solve(problem.max_min_model(), budget=FOREVER)
    assert answer.objective is not None
    return answer.objective


@pytest.mark.quick
def test_example_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs on one slow and one fast GPU: A is as fast on both, B twice as fast on the second.

    A has the slow GPU all the time and B the fast one: levels 1 and 2. To raise the least one, A
    needs the fast GPU, too, but can run at no more than 1 in all. So 1 it is; with B's weight at 3,
    B's level is 2 / 3 on the fast GPU, and nothing helps: 2 / 3.
    """
    monkeypatch.setattr(sharing, "PRICES_FROM", 0)
    speed = np.array([[1.0, 1.0], [1.0, 2.0]])
    for weight, level in ((1.0, 1.0), (3.0, 2.0 / 3.0)):
        problem = Sharing(speed, np.ones(2), np.ones(2), np.array([1.0, 1.0 / weight]))
        found = solve_max_min(problem, budget=FOREVER)
        assert found.level == pytest.approx(level, rel=1e-12)
        assert found.bound == pytest.approx(level, rel=1e-12)
        assert found.excess <= 1e-12


@pytest.mark.parametrize("seed", seeds(MANY))
def test_tiny_problems_equal_one_lp(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "PRICES_FROM", 0)
    problem = draw(np.random.default_rng(seed))
    found = solve_max_min(problem, budget=FOREVER)
    assert found.level == pytest.approx(plain(problem), rel=1e-7, abs=1e-12)
    assert found.excess <= 1e-7
    assert found.bound is not None
    assert found.bound >= found.level * (1.0 - 1e-9)


@pytest.mark.parametrize("seed", seeds(SOME))
def test_prices_alone_are_right_or_say_nothing(seed: int) -> None:
    problem = draw(np.random.default_rng(1000 + seed)).merged()[0]
    found = level_by_prices(problem, Solver(), FOREVER)
    if found is not None:
        assert found.bound - found.level <= 1e-9 * found.level
        assert found.level == pytest.approx(plain(problem), rel=1e-7)
        assert problem.levels(found.x).min() >= found.level * (1.0 - 1e-7)
        assert problem.excess(found.x) <= 1e-7


@pytest.mark.quick
def test_larger_problems_are_proved_by_prices_and_by_old_ones() -> None:
    """1500 different jobs on 5 types; then another round in which one in twenty is new."""
    rng = np.random.default_rng(3)
    speed = np.linspace(1.0, 4.0, 5) ** rng.uniform(0.2, 1.3, (1500, 1))
    gang, scale = rng.choice([1.0, 2.0, 4.0], 1500), rng.uniform(0.5, 1.0, 1500)
    capacity = np.round(gang.sum() / 15 * np.array([0.4, 0.2, 0.2, 0.1, 0.1]))
    first = solve_max_min(Sharing(speed, gang, capacity, scale), budget=FOREVER)
    speed[::20] = np.linspace(1.0, 4.0, 5) ** rng.uniform(0.2, 1.3, (75, 1))
    problem = Sharing(speed, gang, capacity, scale)
    for start in (None, first.prices, np.ones(5), np.array([1.0, 0.0, 0.0, 0.0, 0.0])):
        found = solve_max_min(problem, budget=FOREVER, prices=start)
        assert found.level == pytest.approx(plain(problem), rel=1e-8)
        assert found.bound is not None
        assert found.bound - found.level <= 1e-9 * found.level
    for start in (None, first.prices):
        by_prices = level_by_prices(problem, Solver(), FOREVER, start)
        assert by_prices is not None


@pytest.mark.parametrize("seed", seeds(SOME))
def test_no_prices_bound_the_level_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw(rng)
    best = float(problem.best.min())
    if best <= 0.0:
        return
    optimum = plain(problem)
    for _ in range(10):
        price = rng.exponential(size=problem.capacity.size) * rng.integers(0, 2)
        ways = cheapest(problem, rng.uniform(0.1, 1.0) * best, price)
        assert level_bound(problem, price, ways) >= optimum * (1.0 - 1e-7)


@pytest.mark.parametrize("seed", seeds(SOME))
def test_ways_are_the_cheapest_ones(seed: int) -> None:
    """Each job's own small LP, by its vertices: one type, or two with fractions that add up to 1."""
    rng = np.random.default_rng(seed)
    problem = draw(rng)
    best = float(problem.best.min())
    if best <= 0.0:
        return
    level, price = rng.uniform(0.1, 1.0) * best, rng.integers(0, 4, problem.capacity.size) * 1.0
    ways = cheapest(problem, level, price)
    need = level / problem.scale
    for job, gang in enumerate(problem.gang.tolist()):
        kinds = np.flatnonzero((problem.speed[job] > 0) & (problem.capacity > 0)).tolist()
        found = [np.inf]
        for a in kinds:
            fast = problem.speed[job, a]
            if fast >= need[job] * (1.0 - 1e-12):
                found.append(gang * price[a] * need[job] / fast)
            for b in kinds:
                slow = problem.speed[job, b]
                if slow < need[job] < fast:
                    part = (need[job] - slow) / (fast - slow)
                    found.append(gang * (part * price[a] + (1.0 - part) * price[b]))
        claimed = ways.reward[job] * need[job] - ways.rent[job]
        assert claimed == pytest.approx(min(found), rel=1e-9, abs=1e-9)
        assert ways.regret[job].min() >= -1e-9


@pytest.mark.quick
def test_what_is_refused_and_what_ends() -> None:
    problem = draw(np.random.default_rng(0), jobs=30)
    with pytest.raises(ModelError, match="prices have shape"):
        solve_max_min(problem, budget=FOREVER, prices=np.ones(9))
    stuck = Sharing(np.zeros((2, 2)), np.ones(2), np.ones(2), np.ones(2))
    assert level_by_prices(stuck, Solver(), FOREVER) is None
    assert level_by_prices(problem, Solver(), Budget.of(1e-9)) is None


@pytest.mark.quick
@pytest.mark.parametrize("part", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("prices_from", [0, 10**9])
def test_small_levels_have_bounds_as_tight_as_large_ones(
    part: float, prices_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels of 2e-5 and less: tolerances of the LP are absolute, and were 4e-3 of the bound."""
    monkeypatch.setattr("apportion.solver.drivers.sharing.PRICES_FROM", prices_from)
    rng = np.random.default_rng(357)
    speed = np.cumprod(np.c_[np.ones(300), rng.uniform(1, 2, (300, 5))], axis=1)
    speed *= np.exp(rng.normal(0, 2, 300))[:, None]
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], 300)
    scale = part * np.exp(rng.normal(0, 3, 300))
    sharing = Sharing(speed, gang, np.full(6, 5.0), scale)
    found = solve_max_min(sharing, budget=Budget.of(60.0))
    assert found.bound is not None
    assert found.level <= found.bound * (1 + 1e-9)
    assert found.bound <= found.level * (1 + 2e-6)
    # prices are in the units of the level
    large = Sharing(speed, gang, np.full(6, 5.0), scale / part * 1e6)
    of_large = solve_max_min(large, budget=Budget.of(60.0))
    assert found.prices is not None
    assert of_large.prices is not None
    np.testing.assert_allclose(found.prices / part * 1e6, of_large.prices, rtol=1e-5, atol=0.0)
    assert found.bound / part * 1e6 == pytest.approx(of_large.bound, rel=2e-5)
