"""Plans and admission against enumeration of tiny instances, which shares no code with them."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from apportion.formulations.training.leases import (
    Admission,
    LeaseJobs,
    LeasePlan,
    all_fit,
    job_model,
    plan_faults,
    plan_leases,
)
from apportion.solver import Budget, Solver

EXACT = Solver(gap=0.0)
SEEDS = [
    *range(20),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 320)),
]


def no_limit() -> Budget:
    return Budget.of(None)


def can_do(jobs: tuple[tuple[int, int, int], ...], capacity: tuple[int, ...]) -> bool:
    """Whether gangs with leases to run before a deadline all fit: every choice of leases."""

    @functools.cache
    def rest(at: int, free: tuple[int, ...]) -> bool:
        if at == len(jobs):
            return True
        gang, need, due = jobs[at]
        window = [t for t in range(min(due, len(free))) if free[t] >= gang]
        return any(
            rest(at + 1, tuple(f - gang * (t in chosen) for t, f in enumerate(free)))
            for chosen in itertools.combinations(window, need)
        )

    return rest(0, capacity)


def best_plan(
    gang: list[int], need: list[int], options: list[list[tuple[int, float]]],
    capacity: tuple[int, ...], kept: list[bool] | None = None,
) -> tuple[float, tuple[int, float]] | None:  # fmt: skip
    """Most value, and most admitted with the most value then; None if the kept ones do not fit."""
    must = kept or [False] * len(gang)
    values, pairs = list[float](), list[tuple[int, float]]()
    choices = [
        [*range(len(own)), *([] if m else [-1])] for own, m in zip(options, must, strict=True)
    ]
    for choice in itertools.product(*choices):
        inside = [j for j, k in enumerate(choice) if k >= 0]
        jobs = tuple((gang[j], need[j], options[j][choice[j]][0]) for j in inside)
        if can_do(jobs, capacity):
            value = sum(options[j][choice[j]][1] for j in inside)
            values.append(value)
            pairs.append((len(inside), value))
    return (max(values), max(pairs)) if values else None


def draw(
    seed: int,
) -> tuple[list[int], list[int], list[list[tuple[int, float]]], tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    horizon, jobs = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    kind = seed % 4
    most = int(rng.integers(1, 6))
    capacity = np.full(horizon, most) if kind < 2 else rng.integers(0, most + 1, horizon)
    if kind == 3:
        capacity = np.sort(capacity)
    gang = rng.integers(1, 5, jobs) if seed % 3 else np.full(jobs, rng.integers(1, 4))
    options = list[list[tuple[int, float]]]()
    for _ in range(jobs):
        dues = np.sort(rng.choice(np.arange(0, horizon + 2), int(rng.integers(1, 3)), False))
        values = np.sort(rng.choice([2.0, 5.0, 8.0, 10.0], dues.size))[::-1]
        options.append([(int(d), float(v)) for d, v in zip(dues, values, strict=True)])
    need = rng.integers(1, horizon + 1, jobs)
    if seed % 5 == 0:  # equal jobs tie everywhere
        gang[:], need[:], options = gang[0], need[0], [options[0]] * jobs
    return gang.tolist(), need.tolist(), options, tuple(capacity.tolist())


def faults(jobs: LeaseJobs, capacity: tuple[int, ...], plan: LeasePlan) -> tuple[str, ...]:
    return plan_faults(jobs, np.array(capacity), plan.option, plan.offsets, plan.lease)


@pytest.mark.parametrize("seed", SEEDS)
def test_value_is_the_best(seed: int) -> None:
    gang, need, options, capacity = draw(seed)
    jobs = LeaseJobs.soft(gang, need, options)
    expected = best_plan(gang, need, options, capacity)
    assert expected is not None
    plan = plan_leases(jobs, capacity, solver=EXACT, budget=no_limit())
    assert plan.status == "OPTIMAL"
    assert plan.value == expected[0]
    assert plan.bound == expected[0]
    assert not faults(jobs, capacity, plan)
    model, _ = job_model(jobs, np.array(capacity))
    answer = EXACT.solve(model, budget=no_limit())
    assert answer.objective == pytest.approx(plan.value, abs=1e-9)
    pair = plan_leases(jobs, capacity, solver=EXACT, budget=no_limit(), order=("admitted", "value"))
    assert (pair.status, pair.objectives) == ("OPTIMAL", expected[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_jobs_stay(seed: int) -> None:
    gang, need, options, capacity = draw(seed)
    jobs = LeaseJobs.soft(gang, need, options)
    kept = (np.random.default_rng(seed).random(len(gang)) < 0.4).tolist()
    expected = best_plan(gang, need, options, capacity, kept)
    plan = plan_leases(jobs, capacity, solver=EXACT, budget=no_limit(), accepted=kept)
    assert not faults(jobs, capacity, plan)
    if expected is None:
        assert plan.status == "INFEASIBLE"
        return
    assert plan.status == "OPTIMAL"
    assert plan.value == expected[0]
    assert (plan.option[kept] >= 0).all()


@pytest.mark.parametrize("sigma", [-1, 1])
@pytest.mark.parametrize("seed", SEEDS[:60])
def test_first_lease(seed: int, sigma: int) -> None:
    """Few or many GPUs in lease 0, among all plans of the jobs that are in."""
    gang, need, options, capacity = draw(seed)
    jobs = LeaseJobs.soft(gang, need, options)
    plan = plan_leases(jobs, capacity, solver=EXACT, budget=no_limit(), sigma=sigma)
    inside = [j for j, k in enumerate(plan.option.tolist()) if k >= 0]
    chosen = tuple((gang[j], need[j], options[j][int(plan.option[j])][0]) for j in inside)
    reached = list[int]()
    for now in itertools.product([0, 1], repeat=len(chosen)):
        use = sum(g * x for (g, _, _), x in zip(chosen, now, strict=True))
        late = any(x and due < 1 for (_, _, due), x in zip(chosen, now, strict=True))
        left = tuple((g, n - x, d - 1) for (g, n, d), x in zip(chosen, now, strict=True) if n > x)
        if use <= capacity[0] and not late and can_do(left, capacity[1:]):
            reached.append(use)
    assert plan.status == "OPTIMAL"
    assert plan.use[0] == (max(reached) if sigma > 0 else min(reached))
    assert plan.first_lease_bound == plan.use[0]
    assert not faults(jobs, capacity, plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_admission_is_exact(seed: int) -> None:
    """Every decision, counter-offer and extra capacity on a stream of small jobs."""
    rng = np.random.default_rng(1000 + seed)
    horizon = int(rng.integers(1, 5))
    capacity = rng.integers(0, 6, horizon) if seed % 2 else np.full(horizon, rng.integers(1, 6))
    admission, accepted = Admission(capacity), list[tuple[int, int, int]]()
    room = tuple(capacity.tolist())
    for _ in range(6):
        job = (int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(0, horizon + 2)))
        later = next(
            (d for d in range(max(job[1:]), horizon + 1)
             if can_do((*accepted, (*job[:2], d)), room)), None,
        )  # fmt: skip
        assert admission.counter_offer(*job) == later
        window = min(job[2], horizon)
        more = next(
            (e for e in range(6) if can_do(
                (*accepted, job), tuple(c + e * (t < window) for t, c in enumerate(room)))), None,
        )  # fmt: skip
        assert admission.extra_gpus(*job) == more
        answer = admission.offer(*job)
        assert answer.accepted == can_do((*accepted, job), room)
        if answer.accepted:
            accepted.append(job)
        gang, need, due = admission.jobs
        assert (admission.leases.sum(axis=1) == need).all()
        assert (gang @ admission.leases.astype(np.int64) + admission.free == capacity).all()
        assert (admission.free >= 0).all()
        assert not (admission.leases & (np.arange(horizon) >= due[:, None])).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_feasibility(seed: int) -> None:
    gang, need, options, capacity = draw(3000 + seed)
    due = np.array([own[-1][0] for own in options])
    ones = np.ones(len(gang), dtype=np.int64)
    found = all_fit(
        np.array(gang), np.array(need), due, ones, np.array(capacity), EXACT, no_limit()
    )
    assert found.feasible == can_do(tuple(zip(gang, need, due.tolist(), strict=True)), capacity)
    if found.leases is not None:
        assert (found.leases.sum(axis=1) == need).all()
        assert (np.array(gang) @ found.leases <= capacity).all()
