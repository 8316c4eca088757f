"""Lease 0 of large rounds: what is forced into it, what leaves it, and what that proves."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training.unisched import (
    BestEffort,
    Plan,
    Selection,
    SloJobs,
    latest_fit,
    plan_faults,
    select,
)
from apportion.formulations.training.unisched.first_lease import (
    emptied,
    forced_now,
    latest_as_good,
)
from apportion.formulations.training.unisched.select import LEASE_COST
from apportion.solver import Budget, Solver

NOBODY = BestEffort.rigid([], [])
SLOW = 300


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def ways(slo: SloJobs, row: int, horizon: int) -> list[tuple[int, ...]]:
    due = min(horizon, int(slo.due[slo.due_offsets[row + 1] - 1]))
    return list(itertools.combinations(range(due), int(slo.need[row])))


def plans(slo: SloJobs, capacity: np.ndarray, choices: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Every way to give jobs leases (None: left out) that the GPUs allow, by recursion."""
    out = list[tuple[Any, ...]]()

    def go(row: int, free: np.ndarray, made: tuple[Any, ...]) -> None:
        if row == len(choices):
            out.append(made)
            return
        for one in choices[row]:
            left = free.copy()
            if one is not None:
                left[list(one)] -= slo.gpus[row]
            if (left >= 0).all():
                go(row + 1, left, (*made, one))

    go(0, capacity[0], ())
    return out


def now(slo: SloJobs, made: tuple[Any, ...]) -> int:
    return sum(int(slo.gpus[row]) for row, one in enumerate(made) if one is not None and 0 in one)


def drawn(rng: np.random.Generator, gangs: tuple[int, ...]) -> tuple[SloJobs, np.ndarray]:
    """Up to 5 jobs with one deadline each, on up to 6 GPUs for 3 to 5 leases."""
    horizon, n = int(rng.integers(3, 6)), int(rng.integers(2, 6))
    slo = SloJobs.rigid(
        rng.choice(gangs, n), rng.integers(1, 4, n), rng.integers(3, horizon + 1, n),
        rng.choice([1.0, 2.0, 5.0], n),
    )  # fmt: skip
    return slo, rng.integers(1, 7, (1, horizon))


def all_planned(slo: SloJobs, capacity: np.ndarray, made: tuple[Any, ...]) -> Plan:
    leases = np.zeros((len(slo), capacity.shape[1]), dtype=np.bool_)
    for row, one in enumerate(made):
        leases[row, list(one)] = True
    each = np.arange(len(slo))
    return Plan(each, each, leases, np.zeros(0, dtype=np.int64))


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("gangs", [(1,), (2,), (1, 2, 3)], ids=str)
def test_the_least_in_lease_0(seed: int, gangs: tuple[int, ...]) -> None:
    """Of all plans of the same jobs; up to the packing of gangs, which one size does not know."""
    rng = np.random.default_rng(seed)
    slo, capacity = drawn(rng, gangs)
    every = plans(slo, capacity, [ways(slo, row, capacity.shape[1]) for row in range(len(slo))])
    if not every:
        return
    least = min(now(slo, made) for made in every)
    rows = np.arange(len(slo))
    forced = int(forced_now(slo, capacity, rows, rows)[0, 0])
    before = all_planned(slo, capacity, every[int(rng.integers(len(every)))])
    after = emptied(slo, capacity, before, Budget.of(None))
    assert plan_faults(slo, NOBODY, capacity, after) == []
    assert (after.configuration >= 0).all()
    used = int(after.use(slo, 1)[0, 0])
    assert forced <= least <= used <= int(before.use(slo, 1)[0, 0])
    if len(gangs) == 1:
        assert forced == used


def test_two_thirds_of_the_draws_have_a_plan_and_some_are_forced() -> None:
    found = forced = 0
    for seed in range(60):
        slo, capacity = drawn(np.random.default_rng(seed), (1, 2, 3))
        every = plans(slo, capacity, [ways(slo, row, capacity.shape[1]) for row in range(len(slo))])
        found += bool(every)
        forced += bool(every) and min(now(slo, made) for made in every) > 0
    assert (found >= 20, forced >= 5) == (True, True)


@pytest.mark.parametrize("seed", seeds())
def test_bounds_of_large_rounds_hold(seed: int) -> None:
    """Against every plan: the most value, then the most reward beside it."""
    rng = np.random.default_rng(500 + seed)
    slo, capacity = drawn(rng, (1, 2, 3))
    slo.__dict__["start_cost"] = rng.choice([0.0, 0.5, 3.0], len(slo))
    best_effort = BestEffort.rigid([1, 2, 3], [2.0, 6.25, 7.0])
    choices: list[list[Any]] = [
        [None, *ways(slo, row, capacity.shape[1])] for row in range(len(slo))
    ]
    best = (-1.0, -np.inf)
    for made in plans(slo, capacity, choices):
        on = [row for row, one in enumerate(made) if one is not None]
        value = float(slo.value[on].sum())
        if value < best[0]:
            continue
        cost = sum(slo.start_cost[row] for row in on if 0 in made[row])
        cost += LEASE_COST * sum(int(slo.gpus[row] * slo.need[row]) for row in on)
        free = int(capacity[0, 0]) - now(slo, made)
        sets = itertools.product((0, 1), repeat=3)
        gained = max(
            np.dot(take, best_effort.reward) for take in sets if np.dot(take, [1, 2, 3]) <= free
        )
        best = max(best, (value, float(gained - cost)))
    start = latest_fit(slo, best_effort, capacity)
    found = select(
        slo, best_effort, capacity, start, solver=Solver(gap=0.0), budget=Budget.of(None),
        most_slots=0,
    )  # fmt: skip
    assert plan_faults(slo, best_effort, capacity, found.plan) == []
    assert found.value == pytest.approx(best[0])
    assert found.reward <= best[1] + 1e-9
    assert found.reward_bound is not None
    assert found.reward_bound >= best[1] - 1e-9
    if found.status == "OPTIMAL":
        assert found.reward == pytest.approx(best[1])


def large(slo: SloJobs, best_effort: BestEffort, capacity: Any) -> Selection:
    """Select as in a large round, from the greedy plan on."""
    gpus = np.array([capacity])
    found = select(
        slo, best_effort, gpus, latest_fit(slo, best_effort, gpus), solver=Solver(gap=0.0),
        budget=Budget.of(None), most_slots=0,
    )  # fmt: skip
    assert plan_faults(slo, best_effort, gpus, found.plan) == []
    return found


@pytest.mark.quick
def test_best_effort_gets_lease_0_that_value_alone_would_fill() -> None:
    """2 GPUs, 9 leases: A (1 GPU, 5 leases, worth 6) is worth more per GPU than B (2, 8, 17).

    The greedy plan has A, the best one B, which is laid from lease 0 on; it need not be.
    """
    slo = SloJobs.rigid([1, 2], [5, 8], [9, 9], [6.0, 17.0])
    found = large(slo, BestEffort.rigid([2], [25.0]), [2] * 9)
    assert (found.value, found.value_bound) == (17.0, pytest.approx(17.0))
    assert not found.plan.leases[:, 0].any()
    assert found.plan.chosen.tolist() == [0]
    assert found.reward == pytest.approx(25.0 - 16 * LEASE_COST)


@pytest.mark.quick
def test_another_choice_of_the_same_value_may_leave_lease_0_free() -> None:
    """A (1 GPU, leases 0 and 1) or B (2 GPUs, lease 1), both worth 5: with B lease 0 is free."""
    slo = SloJobs.rigid([1, 2], [2, 1], [2, 2], 5.0)
    found = large(slo, BestEffort.rigid([1], [25.0]), [1, 2, 0, 0])
    assert (found.value, found.value_bound) == (5.0, pytest.approx(5.0))
    assert found.reward_bound == pytest.approx(25.0)
    # with A accepted before there is no choice
    slo.__dict__["must"] = np.array([True, False])
    found = large(slo, BestEffort.rigid([1], [25.0]), [1, 2, 0, 0])
    assert found.reward_bound == pytest.approx(0.0)


@pytest.mark.quick
def test_a_promise_may_be_kept_by_its_last_deadline() -> None:
    slo = SloJobs(
        menu_offsets=np.array([0, 1, 2]), gpu_type=np.zeros(2, dtype=np.int64),
        gpus=np.ones(2, dtype=np.int64), need=np.ones(2, dtype=np.int64), start_cost=np.zeros(2),
        due_offsets=np.array([0, 2, 3]), due=np.array([1, 2, 1]), value=np.array([5.0, 4.0, 1.0]),
        must=np.array([True, False]),
    )  # fmt: skip
    found = large(slo, BestEffort.rigid([1], [25.0]), [1, 1, 0, 0])
    assert (found.value, found.value_bound) == (5.0, pytest.approx(5.0))
    # the bound knows of the promise only, and that it could be kept in lease 1
    assert found.reward_bound == pytest.approx(25.0)


@pytest.mark.quick
def test_of_equal_jobs_those_that_run_go_on() -> None:
    slo = SloJobs.rigid([1, 1, 1], [2, 2, 2], [3, 3, 3])
    slo.__dict__["start_cost"] = np.array([2.0, 0.0, 1.0])
    capacity = np.array([[2, 2, 2]])
    leases = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.bool_)
    each = np.arange(3)
    before = Plan(each, each, leases, np.zeros(0, dtype=np.int64))
    after = emptied(slo, capacity, before, Budget.of(None))
    # six leases of one GPU on two GPUs: both of lease 0 are needed
    assert after.leases[:, 0].tolist() == [False, True, True]
    assert plan_faults(slo, NOBODY, capacity, after) == []


@pytest.mark.quick
def test_a_later_deadline_that_is_worth_the_same_will_do() -> None:
    slo = SloJobs(
        menu_offsets=np.array([0, 1, 2]), gpu_type=np.zeros(2, dtype=np.int64),
        gpus=np.ones(2, dtype=np.int64), need=np.ones(2, dtype=np.int64), start_cost=np.zeros(2),
        due_offsets=np.array([0, 3, 5]), due=np.array([1, 2, 3, 1, 2]),
        value=np.array([5.0, 5.0, 2.0, 2.0, 2.0]), must=np.zeros(2, dtype=np.bool_),
    )  # fmt: skip
    assert latest_as_good(slo, np.arange(5)).tolist() == [1, 1, 2, 4, 4]
    capacity = np.array([[2, 2, 2]])
    each, leases = np.arange(2), np.array([[1, 0, 0], [1, 0, 0]], dtype=np.bool_)
    before = Plan(each, np.array([0, 3]), leases, np.zeros(0, dtype=np.int64))
    after = emptied(slo, capacity, before, Budget.of(None))
    assert not after.leases[:, 0].any()
    assert after.value(slo) == before.value(slo)
    assert forced_now(slo, capacity, np.arange(2), np.array([0, 3])).tolist() == [[0]]


@pytest.mark.quick
def test_without_time_the_plan_stays() -> None:
    slo = SloJobs.rigid([1], [1], [3])
    before = Plan(
        np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64),
        np.array([[True, False, False]]), np.zeros(0, dtype=np.int64),
    )  # fmt: skip
    after = emptied(slo, np.array([[1, 1, 1]]), before, Budget(-np.inf))
    assert after.leases.tolist() == before.leases.tolist()
