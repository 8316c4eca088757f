from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.solver import (
    Budget,
    Level,
    Model,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Solver,
    best_level,
    with_violation,
)

pytestmark = pytest.mark.quick

MINUTE = 60.0
SEEDS = [pytest.param(seed, marks=[] if seed < 20 else pytest.mark.slow) for seed in range(100)]


def overload(speed, gang, capacity) -> tuple[Model, slice]:
    """Least factor on the capacities that gives every job a speed yet to be set."""
    jobs, types = speed.shape
    builder = ModelBuilder("overload")
    x = builder.columns("x", (jobs, types))
    theta = builder.columns("theta", 1, upper=np.inf)
    job = np.arange(jobs)[:, None]
    need = builder.rows("need", jobs, row=job, column=x, value=speed, lower=0.0)
    builder.rows("one", jobs, row=job, column=x, value=1.0, upper=1.0)
    kind = np.arange(types)[None, :]
    row = np.vstack((np.broadcast_to(kind, x.shape), kind))
    column = np.vstack((x, np.broadcast_to(theta, (1, types))))
    value = np.vstack((np.broadcast_to(gang[:, None], x.shape), -capacity[None, :]))
    builder.rows("load", types, row=row, column=column, value=value, upper=0.0)
    builder.objective("overload", column=theta, value=1.0)
    return builder.build(allow_unbounded=True), slice(int(need[0]), int(need[-1]) + 1)


def needing(model, rows, need):
    """Sides with what the jobs need at a level."""

    def sides(level):
        lower = model.row_lower.copy()
        lower[rows] = need(level)
        return lower, model.row_upper

    return sides


def drawn(seed):
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    speed = rng.uniform(0.5, 4.0, (jobs, types))
    gang = rng.choice([1.0, 2.0, 4.0], jobs)
    capacity = np.ceil(gang.sum() * rng.uniform(0.1, 0.8, types))
    work = rng.uniform(1.0, 20.0, jobs)
    return rng, speed, gang, capacity, work


def test_finish_time_fairness_by_hand():
    # one GPU: job 1 is of age 10 with 10 steps left and nothing done alone, job 2 of age 10 with 20
    # left and 20 done; alone each would have half the GPU. (10 + 10/x) / 20 = (10 + 20/(1-x)) / 60
    age, left, alone = np.full(2, 10.0), np.array([10.0, 20.0]), np.array([20.0, 60.0])
    model, rows = overload(np.ones((2, 1)), np.ones(2), np.ones(1))
    sides = needing(model, rows, lambda rho: left / (rho * alone - age))
    found = best_level(model, sides, (1.01, 50.0), budget=Budget.of(MINUTE), target=1.0)
    first = (math.sqrt(33.0) - 3.0) / 4.0
    assert found.level == pytest.approx((10.0 + 10.0 / first) / 20.0, rel=1e-9)
    assert round(found.level, 5) == 1.22871
    np.testing.assert_allclose(found.x, [first, 1.0 - first, 1.0], atol=1e-8)
    assert found.proved == pytest.approx(found.level, rel=1e-14)
    assert found.runs <= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_finish_time_fairness_against_bisection(seed):
    rng, speed, gang, capacity, work = drawn(seed)
    age = rng.uniform(0.0, 10.0, work.size)
    alone = age + work * rng.uniform(0.5, 3.0, work.size)
    model, rows = overload(speed, gang, capacity)
    sides = needing(model, rows, lambda rho: work / (rho * alone - age))
    low = float(((work / speed.max(axis=1) + age) / alone).max())
    found = best_level(model, sides, (low, low * 1e4), budget=Budget.of(MINUTE), target=1.0)
    above, below = low, low * 1e4
    while below - above > 1e-9 * below:
        middle = 0.5 * (above + below)
        at = Solver().solve(model.with_row_sides(*sides(middle)), budget=Budget.of(MINUTE))
        above, below = (middle, below) if at.objective > 1.0 + 1e-9 else (above, middle)
    assert found.level == pytest.approx(below, rel=1e-6)
    assert found.excess <= 1e-9
    # bisection at the same accuracy takes 40 LPs
    assert found.runs <= 12


@pytest.mark.parametrize("seed", SEEDS)
def test_makespan_against_one_explicit_lp(seed):
    _, speed, gang, capacity, work = drawn(seed)
    model, rows = overload(speed, gang, capacity)
    sides = needing(model, rows, lambda span: work / span)
    low = float((work / speed.max(axis=1)).max())
    found = best_level(model, sides, (low, low * 1e4), budget=Budget.of(MINUTE), target=1.0)
    # the rate 1 / span is one more column: work * rate <= speed, and the loads count once
    builder = ModelBuilder("rate")
    x = builder.columns("x", speed.shape)
    rate = builder.columns("rate", 1, upper=1.0 / low)
    job, kind = np.arange(work.size)[:, None], np.arange(capacity.size)[None, :]
    builder.rows("one", work.size, row=job, column=x, value=1.0, upper=1.0)
    builder.rows("load", kind.size, row=kind, column=x, value=gang[:, None], upper=capacity)
    builder.rows(
        "need",
        work.size,
        row=np.hstack((np.broadcast_to(job, x.shape), job)),
        column=np.hstack((x, np.broadcast_to(rate, job.shape))),
        value=np.hstack((speed, -work[:, None])),
        lower=0.0,
    )
    builder.objective("rate", column=rate, value=1.0, maximise=True)
    explicit = Solver(gap=1e-9).solve(builder.build(), budget=Budget.of(MINUTE))
    assert found.level == pytest.approx(1.0 / explicit.objective, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_greatest_level_by_violation_against_an_explicit_lp(seed):
    # the greatest t with A x >= t * b + c over a box: t is linear, so it may be a column as well
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    matrix = rng.integers(0, 5, (rows, columns)).astype(float)
    b, c = rng.integers(1, 4, rows).astype(float), rng.integers(-3, 1, rows).astype(float)
    builder = ModelBuilder("linear")
    x = builder.columns("x", columns)
    t = builder.columns("t", 1, upper=100.0)
    every = np.arange(rows)[:, None]
    builder.rows(
        "need",
        rows,
        row=np.broadcast_to(every, (rows, columns + 1)),
        column=np.append(x, t),
        value=np.hstack((matrix, -b[:, None])),
        lower=c,
    )
    builder.objective("t", column=t, value=1.0, maximise=True)
    explicit = Solver(gap=1e-9).solve(builder.build(), budget=Budget.of(MINUTE))
    builder = ModelBuilder("moving")
    x = builder.columns("x", columns)
    builder.rows("need", rows, row=every, column=x, value=matrix, lower=c)
    builder.objective("nothing", column=x, value=0.0)
    model = with_violation(builder.build(), b)
    found = best_level(
        model,
        lambda level: (level * b + c, model.row_upper),
        (0.0, 100.0),
        budget=Budget.of(MINUTE),
        greatest=True,
    )
    assert isinstance(found, Level)
    assert found.level == pytest.approx(explicit.objective, rel=1e-7, abs=1e-7)
    assert (matrix @ found.x[:-1] >= found.level * b + c - 1e-7).all()


def test_the_end_of_the_interval_is_enough_where_nothing_binds():
    model, rows = overload(np.ones((1, 1)), np.ones(1), np.ones(1))
    sides = needing(model, rows, lambda span: np.array([1.0]) / span)
    found = best_level(model, sides, (4.0, 9.0), budget=Budget.of(MINUTE), target=1.0)
    assert (found.level, found.proved, found.runs) == (4.0, 4.0, 1)
    assert not found.duals.any()


def test_no_level_is_feasible():
    model, rows = overload(np.ones((2, 1)), np.ones(2), np.ones(1))
    sides = needing(model, rows, lambda span: np.ones(2) / span)
    with pytest.raises(NoSolutionError, match="no level"):
        best_level(model, sides, (1.0, 1.5), budget=Budget.of(MINUTE), target=1.0)
    # below one even a GPU of its own is too slow for a job, whatever the overload
    with pytest.raises(NoSolutionError, match="whatever the level"):
        best_level(model, sides, (0.5, 1.5), budget=Budget.of(MINUTE), target=1.0)


def test_questions_that_make_no_sense():
    model, rows = overload(np.ones((1, 1)), np.ones(1), np.ones(1))
    sides = needing(model, rows, lambda span: np.ones(1) / span)
    with pytest.raises(ModelError, match="interval"):
        best_level(model, sides, (1.0, math.inf), budget=Budget.of(MINUTE))
    with pytest.raises(ModelError, match="two sides"):
        with_violation(model.with_row_sides(np.zeros(3), np.ones(3)), np.ones(3))
