"""The selector: golden cases, every plan of tiny instances, and what must not change the optimum."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training.leases import LeaseJobs, plan_leases
from apportion.formulations.training.unisched import (
    BestEffort,
    Selection,
    SloJobs,
    bucket_edges,
    capacity_table,
    latest_fit,
    plan_faults,
    select,
)
from apportion.formulations.training.unisched.select import LEASE_COST
from apportion.instances import InstanceError
from apportion.solver import Budget, Solver

SLOW = 320
CLOSE = 1e-6


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def solved(
    slo: SloJobs, best_effort: BestEffort, capacity: Any, *, most_slots: int = 20_000,
    seconds: float | None = None, kept: Any = None,
) -> Selection:  # fmt: skip
    gpus = capacity_table(capacity)
    start = latest_fit(slo, best_effort, gpus, kept)
    assert plan_faults(slo, best_effort, gpus, start) == []
    found = select(
        slo, best_effort, gpus, start, solver=Solver(gap=0.0), budget=Budget.of(seconds),
        most_slots=most_slots,
    )  # fmt: skip
    assert plan_faults(slo, best_effort, gpus, found.plan) == []
    assert found.value == pytest.approx(found.plan.value(slo))
    return found


@pytest.mark.quick
@pytest.mark.parametrize(("due_b", "total", "now"), [(1, 2000.0, "B"), (3, 2025.0, "AC")])
def test_golden(due_b: int, total: float, now: str) -> None:
    """4 GPUs, 3 leases: A (2 GPUs, 2 leases, due 3), B (4, 1, due_b); C, D best effort on 2 each."""
    slo = SloJobs.rigid([2, 4], [2, 1], [3, due_b], 1000.0)
    found = solved(slo, BestEffort.rigid([2, 2], [25.0, 6.25]), [4, 4, 4])
    assert found.status == "OPTIMAL"
    used = LEASE_COST * (2 * 2 + 4)
    assert found.value + found.reward == pytest.approx(total - used, abs=1e-9)
    assert (found.value_bound, found.gap) == (pytest.approx(2000.0), 0.0)
    running = "".join(name for name, on in zip("AB", found.plan.leases[:, 0], strict=True) if on)
    running += "".join(name for name, cut in zip("CD", found.plan.chosen, strict=True) if cut >= 0)
    assert running == now


@dataclass
class Case:
    """A tiny instance in plain lists, and everything that can be done in it."""

    capacity: list[list[int]]
    slo: list[dict[str, Any]]
    best_effort: list[list[tuple[int, int, float]]]

    def problem(self) -> tuple[SloJobs, BestEffort, np.ndarray]:
        menus = [job["menu"] for job in self.slo]
        flat = [entry for menu in menus for entry in menu]
        dues = [job["deadlines"] for job in self.slo]
        dated = [entry for own in dues for entry in own]
        slo = SloJobs(
            menu_offsets=offsets([len(menu) for menu in menus]),
            gpu_type=column([entry[0] for entry in flat]),
            gpus=column([entry[1] for entry in flat]), need=column([entry[2] for entry in flat]),
            start_cost=np.array([entry[3] for entry in flat], dtype=float),
            due_offsets=offsets([len(own) for own in dues]),
            due=column([entry[0] for entry in dated]),
            value=np.array([entry[1] for entry in dated], dtype=float),
            must=np.array([job["must"] for job in self.slo], dtype=bool),
        )  # fmt: skip
        other = [entry for menu in self.best_effort for entry in menu]
        best_effort = BestEffort(
            offsets([len(menu) for menu in self.best_effort]),
            column([entry[0] for entry in other]), column([entry[1] for entry in other]),
            np.array([entry[2] for entry in other], dtype=float),
        )  # fmt: skip
        return slo, best_effort, np.array(self.capacity)

    def best(self) -> tuple[float, float, float]:
        """Kept promises' value, then value, then reward; by depth-first search over all plans."""
        horizon = len(self.capacity[0])
        found = (-1.0, -1.0, -1.0)

        def ways(job: dict[str, Any]) -> list[tuple[Any, ...]]:
            out: list[tuple[Any, ...]] = [(None, 0.0, (), 0.0)]
            for kind, gpus, need, cost in job["menu"]:
                for leases in itertools.combinations(range(horizon), need):
                    for due, value in job["deadlines"]:
                        if not leases or leases[-1] < due:
                            paid = LEASE_COST * gpus * need + (cost if 0 in leases else 0.0)
                            out.append(((kind, gpus), value, leases, paid))
                            break
            return out

        def go(at: int, left: list[list[int]], kept: float, value: float, cost: float) -> None:
            nonlocal found
            if at == len(self.slo):
                total = (kept, value, self.reward([kind[0] for kind in left]) - cost)
                if any(abs(a - b) > 1e-9 for a, b in zip(total, found, strict=True)):
                    rounded = (round(total[0], 9), round(total[1], 9), round(total[2], 9))
                    found = max(found, rounded)
                return
            job = self.slo[at]
            for how, worth, leases, paid in ways(job):
                after = [list(kind) for kind in left]
                if how is not None:
                    for lease in leases:
                        after[how[0]][lease] -= how[1]
                if all(free >= 0 for kind in after for free in kind):
                    keeps = job["deadlines"][0][1] if job["must"] and how is not None else 0.0
                    go(at + 1, after, kept + keeps, value + worth, cost + paid)

        go(0, self.capacity, 0.0, 0.0, 0.0)
        return found

    def reward(self, free: list[int]) -> float:
        best = 0.0
        for chosen in itertools.product(*[[None, *menu] for menu in self.best_effort]):
            left = list(free)
            for entry in chosen:
                if entry is not None:
                    left[entry[0]] -= entry[1]
            if min(left) >= 0:
                best = max(best, sum(entry[2] for entry in chosen if entry is not None))
        return best


def offsets(counts: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)


def column(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def drawn(rng: np.random.Generator, *, must: bool = False) -> Case:
    """Up to 5 GPUs of 1 or 2 types, 4 leases, 4 jobs of 1 or 2 configurations and deadlines."""
    kinds, horizon = int(rng.integers(1, 3)), int(rng.integers(1, 5))
    capacity = [[int(rng.integers(1, 6)) for _ in range(horizon)] for _ in range(kinds)]

    def menu() -> list[tuple[int, int]]:
        every = [(kind, gpus) for kind in range(kinds) for gpus in (1, 2, 3, 4)]
        picked = rng.permutation(len(every))[: int(rng.integers(1, 3))]
        return sorted(every[at] for at in picked)

    slo = list[dict[str, Any]]()
    for _ in range(int(rng.integers(1, 4))):
        dues = sorted(
            rng.permutation(np.arange(1, horizon + 2))[: int(rng.integers(1, 3))].tolist()
        )
        values = sorted(rng.choice([1, 2, 3, 5, 8, 10], len(dues)).tolist(), reverse=True)
        entries = [
            (kind, gpus, int(rng.integers(1, horizon + 1)), float(rng.choice([0.0, 0.5, 3.0])))
            for kind, gpus in menu()
        ]
        slo.append({
            "menu": entries, "deadlines": list(zip(dues, values, strict=True)),
            "must": bool(must and rng.random() < 0.6),
        })  # fmt: skip
    best_effort = [
        [(kind, gpus, float(rng.choice([1.0, 2.5, 6.25, 25.0]))) for kind, gpus in menu()]
        for _ in range(int(rng.integers(0, 3)))
    ]
    return Case(capacity, slo, best_effort)


@pytest.mark.parametrize("seed", seeds())
def test_every_plan(seed: int) -> None:
    case = drawn(np.random.default_rng(seed))
    slo, best_effort, capacity = case.problem()
    _, value, reward = case.best()
    found = solved(slo, best_effort, capacity)
    assert found.status == "OPTIMAL"
    assert found.value == pytest.approx(value, abs=CLOSE)
    assert found.reward == pytest.approx(reward, abs=CLOSE)
    assert found.value_bound == pytest.approx(value, abs=1e-5)
    assert found.reward_bound == pytest.approx(reward, abs=1e-5)


@pytest.mark.parametrize("seed", seeds())
def test_promises_first(seed: int) -> None:
    """Accepted jobs go before value; where not all can stay, the least value is given up."""
    case = drawn(np.random.default_rng(1000 + seed), must=True)
    slo, best_effort, capacity = case.problem()
    found = solved(slo, best_effort, capacity)
    kept, value, reward = case.best()
    inside = found.plan.configuration >= 0
    assert slo.top_value[slo.must & inside].sum() == pytest.approx(kept)
    assert found.given_up.tolist() == np.flatnonzero(slo.must & ~inside).tolist()
    assert found.status == "OPTIMAL"
    # between sets of promises of equal value either may be kept, and then others fit beside it
    assert found.value <= value + CLOSE
    if not found.given_up.size:
        assert found.value == pytest.approx(value, abs=CLOSE)
        assert found.reward == pytest.approx(reward, abs=CLOSE)


@pytest.mark.parametrize("seed", seeds())
def test_buckets_are_a_relaxation(seed: int) -> None:
    case = drawn(np.random.default_rng(2000 + seed), must=seed % 2 == 0)
    slo, best_effort, capacity = case.problem()
    exact = solved(slo, best_effort, capacity)
    rough = solved(slo, best_effort, capacity, most_slots=0)
    if not exact.given_up.size and not rough.given_up.size:
        assert rough.value <= exact.value + CLOSE
        assert rough.value_bound is not None
        assert rough.value_bound >= exact.value - 1e-5
        if rough.status == "OPTIMAL":
            assert rough.value == pytest.approx(exact.value, abs=CLOSE)
            assert rough.reward == pytest.approx(exact.reward, abs=CLOSE)


def test_buckets_stay_below_by_hand() -> None:
    """Leases 2 and 3 are one bucket: 3 GPUs and 1 GPU count as 4, and two gangs of 2 do not fit."""
    slo = SloJobs.rigid([2, 2], [1, 1], [4, 4])
    capacity = np.array([[0, 0, 3, 1]])
    found = solved(slo, BestEffort.rigid([], []), capacity)
    assert (found.value, found.status) == (1.0, "OPTIMAL")
    two_types = replace(slo, gpu_type=np.array([0, 1]))
    rough = solved(
        two_types, BestEffort.rigid([], []), np.vstack((capacity, capacity)), most_slots=0
    )
    assert rough.value == 2.0
    both = SloJobs(
        menu_offsets=np.array([0, 2, 4]), gpu_type=np.zeros(4, dtype=np.int64),
        gpus=np.array([2, 4, 2, 4]), need=np.ones(4, dtype=np.int64), start_cost=np.zeros(4),
        due_offsets=np.array([0, 1, 2]), due=np.array([4, 4]), value=np.ones(2),
        must=np.zeros(2, dtype=np.bool_),
    )  # fmt: skip
    rough = solved(both, BestEffort.rigid([], []), capacity, most_slots=0)
    assert (rough.value, rough.status) == (1.0, "FEASIBLE")
    # one gang may use lease 2 only, so that the bucket's rows allow 1 lease to each of two jobs
    assert rough.value_bound == pytest.approx(2.0)


def test_widths_double() -> None:
    assert bucket_edges(12, doubling=True).tolist() == [0, 1, 2, 4, 8, 12]
    assert bucket_edges(3, doubling=False).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_best_effort_never_costs_value(seed: int) -> None:
    case = drawn(np.random.default_rng(3000 + seed))
    slo, best_effort, capacity = case.problem()
    with_all = solved(slo, best_effort, capacity)
    without = solved(slo, BestEffort.rigid([], []), capacity)
    assert with_all.value == without.value
    if case.best_effort:
        fewer = Case(case.capacity, case.slo, case.best_effort[:-1])
        some = solved(*fewer.problem())
        assert some.value == with_all.value
        assert some.reward <= with_all.reward + CLOSE


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [1e-3, 1000.0])
def test_scale_of_values_does_not_matter(seed: int, scale: float) -> None:
    slo, best_effort, capacity = drawn(np.random.default_rng(4000 + seed)).problem()
    one = solved(slo, best_effort, capacity)
    other = solved(replace(slo, value=slo.value * scale), best_effort, capacity)
    assert other.value == pytest.approx(scale * one.value)
    assert other.reward == pytest.approx(one.reward, abs=CLOSE)


@pytest.mark.parametrize("seed", range(20))
def test_a_configuration_more_never_costs(seed: int) -> None:
    rng = np.random.default_rng(5000 + seed)
    case = drawn(rng)
    before = solved(*case.problem())
    row = int(rng.integers(len(case.slo)))
    case.slo[row]["menu"].append((0, int(rng.integers(1, 5)), 1, 0.5))
    case.slo[row]["menu"].sort()
    after = solved(*case.problem())
    assert (after.value, after.reward) >= (before.value - CLOSE, -np.inf)
    if after.value == pytest.approx(before.value):
        assert after.reward >= before.reward - CLOSE


@pytest.mark.parametrize("seed", range(20))
def test_rigid_jobs_are_the_lease_model(seed: int) -> None:
    """One configuration each, nobody else: the model of leases with at most one deadline a job."""
    rng = np.random.default_rng(6000 + seed)
    n, horizon = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    gpus, need = rng.integers(1, 4, n), rng.integers(1, horizon + 1, n)
    due, value = rng.integers(1, horizon + 1, n), rng.choice([1.0, 2.0, 5.0, 10.0], n)
    capacity = rng.integers(1, 6, horizon)
    jobs = LeaseJobs.hard(gpus, need, due, value)
    plain = plan_leases(jobs, capacity, solver=Solver(gap=0.0), budget=Budget.of(None))
    slo = SloJobs.rigid(gpus, need, due, value)
    found = solved(slo, BestEffort.rigid([], []), capacity)
    assert found.value == pytest.approx(plain.value)
    # a second type that is empty sends the same jobs through the selector's own model
    other = SloJobs(
        menu_offsets=2 * np.arange(n + 1), gpu_type=np.tile([0, 1], n), gpus=np.repeat(gpus, 2),
        need=np.repeat(need, 2), start_cost=np.zeros(2 * n), due_offsets=np.arange(n + 1), due=due,
        value=value, must=np.zeros(n, dtype=np.bool_),
    )  # fmt: skip
    own = solved(other, BestEffort.rigid([], []), np.vstack((capacity, 0 * capacity)))
    assert "value by classes" not in [stage.name for stage in own.stages]
    assert own.value == pytest.approx(plain.value)


def test_without_time_the_greedy_plan_answers() -> None:
    slo, best_effort, capacity = drawn(np.random.default_rng(3)).problem()
    budget = Budget.of(1e-9)
    start = latest_fit(slo, best_effort, capacity)
    found = select(slo, best_effort, capacity, start, solver=Solver(), budget=budget)
    assert found.time_limited
    assert found.status == "FEASIBLE"
    assert found.gap is None
    assert found.plan is start


def test_old_leases_are_kept() -> None:
    """Three jobs of 1 GPU on 2 GPUs, 2 of 3 leases each: late fits do not find this plan."""
    slo = replace(SloJobs.rigid([1, 1, 1], [2, 2, 2], [3, 3, 3]), must=np.ones(3, dtype=np.bool_))
    nobody = BestEffort.rigid([], [])
    table = np.array([[True, False, True], [False, True, True], [True, True, False]])
    alone = latest_fit(slo, nobody, np.full((1, 3), 2))
    assert (alone.configuration >= 0).sum() == 2
    kept = latest_fit(slo, nobody, np.full((1, 3), 2), (np.arange(3), table))
    assert (kept.configuration >= 0).all()
    assert kept.leases.tolist() == table.tolist()
    # without the old plan the promises are looked for, and found
    found = solved(slo, nobody, [2, 2, 2])
    assert found.given_up.size == 0
    assert "promises" in [stage.name for stage in found.stages]


def test_the_least_value_is_given_up() -> None:
    slo = SloJobs.rigid([2, 1, 1], [1, 1, 1], [1, 1, 1], [3.0, 2.0, 2.0])
    slo = replace(slo, must=np.ones(3, dtype=np.bool_))
    found = solved(slo, BestEffort.rigid([], []), [2])
    assert found.given_up.tolist() == [0]
    assert found.value == 4.0


def test_a_promise_stands_against_more_value() -> None:
    """One GPU, one lease, both jobs with two configurations: 1 that was accepted stays before 10."""
    slo = SloJobs(
        menu_offsets=np.array([0, 2, 4]), gpu_type=np.zeros(4, dtype=np.int64),
        gpus=np.array([1, 2, 1, 2]), need=np.array([1, 1, 1, 1]), start_cost=np.zeros(4),
        due_offsets=np.array([0, 1, 2]), due=np.array([1, 1]), value=np.array([1.0, 10.0]),
        must=np.array([True, False]),
    )  # fmt: skip
    found = solved(slo, BestEffort.rigid([], []), [1])
    assert (found.value, found.value_bound, found.status) == (1.0, 1.0, "OPTIMAL")
    free = solved(replace(slo, must=np.zeros(2, dtype=np.bool_)), BestEffort.rigid([], []), [1])
    assert free.value == 10.0


def test_an_idle_cluster_needs_no_model_of_leases() -> None:
    """All jobs fit late: both bounds come from what cannot be passed alone."""
    slo = SloJobs.rigid([1, 2], [1, 2], [4, 4])
    found = solved(slo, BestEffort.rigid([2, 1], [3.0, 2.0]), [4, 4, 4, 4])
    assert found.status == "OPTIMAL"
    assert [stage.name for stage in found.stages] == ["latest fit", "reward"]
    assert found.stages[-1].backend is None
    assert found.reward == pytest.approx(5.0 - LEASE_COST * 5)


def test_restarts_are_charged() -> None:
    """Who runs now goes on if that is free; a start in lease 0 costs even if it is the first."""
    nobody = BestEffort.rigid([], [])
    slo = SloJobs.rigid([1, 1], [1, 1], [2, 2])
    one = replace(slo, start_cost=np.array([0.0, 2.0]))
    found = solved(one, nobody, [1, 1])
    assert found.plan.leases[:, 0].tolist() == [True, False]
    alone = replace(SloJobs.rigid([1], [1], [2]), start_cost=np.array([2.0]))
    assert not solved(alone, nobody, [1, 1]).plan.leases[0, 0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"gpus": [0, 4]}, r"slo.gpus\[0\] = 0"),
        ({"need": [0, 1]}, r"slo.need\[0\] = 0"),
        ({"start_cost": [np.nan, 0.0]}, "slo.start_cost"),
        ({"start_cost": [-1.0, 0.0]}, "must not be negative"),
        ({"value": [-1.0, 0.0]}, "must not be negative"),
        ({"due_offsets": [0, 2, 2]}, "must rise within a job|must not rise"),
        ({"must": [True]}, "slo"),
    ],
)
def test_wrong_columns(change: dict[str, Any], text: str) -> None:
    slo = SloJobs.rigid([2, 4], [2, 1], [3, 3])
    with pytest.raises(InstanceError, match=text):
        replace(slo, **{name: np.array(values) for name, values in change.items()})


def test_values_that_rise_with_lateness() -> None:
    with pytest.raises(InstanceError, match="must not rise with lateness"):
        SloJobs(
            menu_offsets=np.array([0, 1]), gpu_type=np.array([0]), gpus=np.array([1]),
            need=np.array([1]), start_cost=np.zeros(1), due_offsets=np.array([0, 2]),
            due=np.array([1, 2]), value=np.array([1.0, 2.0]), must=np.array([False]),
        )  # fmt: skip


@pytest.mark.parametrize("capacity", [[-1], [0.5], [[]]])
def test_wrong_capacity(capacity: Any) -> None:
    with pytest.raises(InstanceError, match="capacity"):
        capacity_table(capacity)
