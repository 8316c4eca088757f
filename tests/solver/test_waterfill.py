from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.solver import Budget, NoSolutionError, Sharing, UncertifiedError, water_filling
from apportion.solver.drivers import waterfill as module

SEEDS = [pytest.param(seed, marks=[] if seed < 20 else pytest.mark.slow) for seed in range(380)]

CERTIFIED = {
    1.0: ([0.50134191, 0.72967496, 1.01936946, 1.60191785], 4.10402131),
    0.7: ([0.63869699, 0.86570575, 2.1991381], 5.89249),
    3.0: ([0.28000042, 0.29416991], 0.29416991),
}
"""Bottlenecks and the largest level at each load, certified in rational arithmetic."""

SLACK = 1e-10
"""Of the reference only, whose levels are rounded; jobs without much weight amplify it by 1e4."""


def minute() -> Budget:
    return Budget.of(60.0)


def thousand(load: float, jobs: int = 1000, seed: int = 0) -> Sharing:
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.2, 1.3, jobs)
    speed = np.linspace(1, 4, 6)[None, :] ** power[:, None]
    speed = speed * np.exp(rng.normal(0, 0.15, (jobs, 6))) * np.exp(rng.normal(0, 1, jobs))[:, None]
    hole = rng.random((jobs, 6)) < 0.1
    hole[np.arange(jobs), rng.integers(0, 6, jobs)] = False
    speed[hole] = 0.0
    gang = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]).astype(float)
    part = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    capacity = np.round(gang.sum() / load * part / part.sum())
    weight = rng.choice([1.0, 2.0, 4.0], jobs, p=[0.7, 0.2, 0.1])
    equal = (speed * capacity / capacity.sum()).sum(axis=1)
    return Sharing(speed, gang, capacity, gang / (weight * np.maximum(equal, 1e-12)) / gang.mean())


def ties(seed: int) -> Sharing:
    """Few jobs, few numbers: nearly everything ties."""
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    speed = rng.choice([0.0, 1.0, 2.0, 4.0], (jobs, types), p=[0.2, 0.4, 0.2, 0.2])
    gang = rng.choice([1.0, 2.0], jobs)
    capacity = rng.choice([0.0, 1.0, 2.0, 3.0], types, p=[0.1, 0.5, 0.2, 0.2])
    ceiling = rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], jobs) if seed % 3 == 0 else None
    # the same speeds in other units: equal jobs that are not merged
    unit = rng.choice([1.0, 4.0, 0.25], jobs) if seed % 2 else np.ones(jobs)
    scale = rng.choice([1.0, 0.5], jobs)
    return Sharing(speed * unit[:, None], gang, capacity, scale / unit, ceiling)


def most(sharing: Sharing, job: int, levels: np.ndarray) -> float:
    """Largest level of a job while those no higher than it keep theirs, by an LP of its own."""
    jobs, types = sharing.speed.shape
    gain = np.zeros((jobs, jobs * types))
    time = np.zeros((jobs, jobs * types))
    load = np.zeros((types, jobs * types))
    for m in range(jobs):
        gain[m, m * types : (m + 1) * types] = sharing.scale[m] * sharing.speed[m]
        time[m, m * types : (m + 1) * types] = 1.0
        load[:, m * types : (m + 1) * types] = sharing.gang[m] * np.eye(types)
    keep = levels <= levels[job] + 1e-9
    keep[job] = False
    found = linprog(
        -gain[job],
        A_ub=np.vstack((time, load, -gain[keep])),
        b_ub=np.concatenate((np.ones(jobs), sharing.capacity, SLACK - levels[keep])),
        method="highs",
        options={"primal_feasibility_tolerance": SLACK, "dual_feasibility_tolerance": SLACK},
    )
    assert found.status == 0
    ceiling = np.inf if sharing.ceiling is None else sharing.ceiling[job]
    return min(-found.fun, ceiling)


def require_lexicographic(sharing: Sharing, found) -> None:
    """No job can rise but at the cost of one that is no higher: that is max-min fairness."""
    assert sharing.excess(found.x) <= 1e-9
    np.testing.assert_allclose(sharing.levels(found.x), found.levels, rtol=1e-9, atol=1e-12)
    for job, level in enumerate(found.levels.tolist()):
        assert most(sharing, job, found.levels) == pytest.approx(level, rel=5e-6, abs=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_jobs_that_are_equally_well_off_in_two_ways_leave_room_for_others(order):
    # taking the fractions of the first LP for granted gives the third job 2.5
    speed = np.array([[1.0, 4.0, 1.0], [1.0, 4.0, 1.0], [0.0, 0.0, 4.0]])[:, order]
    found = water_filling(Sharing(speed, np.ones(3), np.ones(3), np.ones(3)), budget=minute())
    np.testing.assert_allclose(found.levels, [2.5, 2.5, 4.0], rtol=1e-12)
    # the same without merging: half the speed, twice the scale
    scale = np.array([1.0, 2.0, 1.0])
    apart = Sharing(speed / scale[:, None], np.ones(3), np.ones(3), scale)
    assert water_filling(apart, budget=minute()).levels == pytest.approx([2.5, 2.5, 4.0], rel=1e-12)


@pytest.mark.quick
def test_a_job_that_prices_alone_would_rate_too_high():
    speed = [[3.708, 0, 0], [0.775, 0.73, 0], [2.095, 3.707, 3.988], [1.466, 1.197, 3.141]]
    scale = 1.0 / (np.array([2.0, 2.0, 1.0, 2.0]) * np.array(speed).max(axis=1))
    sharing = Sharing(
        np.array(speed), np.array([2.0, 2.0, 1.0, 1.0]), np.array([2.0, 2.0, 1.0]), scale
    )
    require_lexicographic(sharing, water_filling(sharing, budget=minute()))


@pytest.mark.parametrize("load", CERTIFIED)
def test_levels_certified_in_rationals(load):
    bottlenecks, largest = CERTIFIED[load]
    found = water_filling(thousand(load), budget=minute())
    np.testing.assert_allclose(found.bottlenecks, bottlenecks, rtol=0, atol=1e-7)
    assert found.levels.max() == pytest.approx(largest, abs=1e-5)
    for level in bottlenecks:
        assert np.isclose(found.levels, level, rtol=0, atol=1e-7).any()
    assert found.runs <= 45


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS)
def test_ties_against_an_lp_per_job(seed):
    sharing = ties(seed)
    require_lexicographic(sharing, water_filling(sharing, budget=minute()))


@pytest.mark.quick
@pytest.mark.parametrize("seed", SEEDS[:40])
def test_mixed_speeds_against_an_lp_per_job(seed):
    sharing = thousand((0.7, 1.0, 3.0)[seed % 3], jobs=12, seed=seed)
    sharing = Sharing(sharing.speed, sharing.gang, np.maximum(sharing.capacity, 1.0), sharing.scale)
    require_lexicographic(sharing, water_filling(sharing, budget=minute()))


@pytest.mark.parametrize("seed", [1, 5, 11, 16, 22])
def test_heavy_ties_do_not_depend_on_the_order(seed):
    # seed 11 needs jobs at their cap to leave the dearer one of two equally fast types
    rng = np.random.default_rng(seed)
    jobs = [300, 1000][seed % 2]
    speed = rng.choice([0.0, 1.0, 2.0, 4.0], (jobs, 6), p=[0.3, 0.3, 0.2, 0.2])
    unit, weight = 2.0 ** rng.integers(-3, 4, jobs), rng.choice([1.0, 2.0, 4.0], jobs)
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], jobs)
    supply = gang.sum() / rng.choice([0.7, 1.0, 3.0])
    capacity = np.round(supply * np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05]))
    sharing = Sharing(speed * unit[:, None], gang, capacity, weight / unit)
    found = water_filling(sharing, budget=minute())
    p, q = rng.permutation(jobs), rng.permutation(6)
    other = Sharing(sharing.speed[p][:, q], gang[p], capacity[q], sharing.scale[p])
    again = water_filling(other, budget=minute())
    np.testing.assert_allclose(again.levels, found.levels[p], rtol=1e-9)


@pytest.mark.quick
def test_many_equal_jobs_are_as_well_off_as_one_of_their_size():
    rng = np.random.default_rng(5)
    kinds = thousand(1.0, jobs=20)
    pick = rng.integers(0, 20, 5000)
    gang = kinds.gang[pick]
    capacity = np.round(gang.sum() * np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05]))
    many = Sharing(kinds.speed[pick], gang, capacity, kinds.scale[pick])
    found = water_filling(many, budget=minute())
    assert found.classes.first.size == 20
    assert many.excess(found.x) <= 1e-9
    for kind in range(20):
        assert np.ptp(found.levels[pick == kind]) == 0.0


@pytest.mark.quick
def test_hardly_anything():
    def filled(speed, capacity, ceiling=None):
        jobs = len(speed)
        sharing = Sharing(
            np.array(speed), np.ones(jobs), np.array(capacity), np.ones(jobs), ceiling
        )
        return water_filling(sharing, budget=minute())

    assert filled(np.zeros((0, 2)), [1.0, 1.0]).levels.size == 0
    assert filled([[0.0, 3.0]], [1.0, 0.0]).levels.tolist() == [0.0]
    assert filled([[2.0], [0.0]], [1.0]).levels.tolist() == [2.0, 0.0]
    assert filled([[2.0], [2.0]], [1.0]).levels == pytest.approx([1.0, 1.0])
    # a ceiling leaves the rest to the other
    assert filled([[2.0], [2.0]], [1.0], np.array([0.5, np.inf])).levels == pytest.approx(
        [0.5, 1.5]
    )
    assert filled([[2.0], [2.0]], [1.0], np.array([0.0, np.inf])).levels == pytest.approx(
        [0.0, 2.0]
    )


@pytest.mark.quick
def test_time_that_is_up_is_said():
    with pytest.raises(NoSolutionError, match="budget"):
        water_filling(thousand(1.0, jobs=20), budget=Budget(0.0))


@pytest.mark.quick
def test_an_end_that_does_not_hold_is_refused(monkeypatch):
    settled = module._settled

    def too_high(state, point, *more):
        loose = settled(state, point, *more)
        state.level *= 1.001
        return loose

    monkeypatch.setattr(module, "_settled", too_high)
    with pytest.raises(UncertifiedError):
        water_filling(thousand(1.0, jobs=20), budget=minute())


@pytest.mark.parametrize(
    ("speed", "weight"),
    [
        ([2, 2, 3, 2, 3], [5.68e-05, 11868.0, 3.05e-03, 1.78e-06, 613.0]),
        ([2, 2], [1.843e-09, 237591773.76]),
    ],
)
def test_levels_that_numbers_cannot_hold_side_by_side_are_refused(speed, weight):
    jobs = len(speed)
    sharing = Sharing(
        np.array(speed, dtype=float)[:, None], np.ones(jobs), np.ones(1), 1.0 / np.array(weight)
    )
    with pytest.raises(UncertifiedError, match="orders of magnitude"):
        water_filling(sharing, budget=Budget.of(None))
