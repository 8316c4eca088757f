"""TetriSched: the plan against enumeration, the greedy one against a loop, ends at boundaries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.peers.tetrisched import TetriSched
from apportion.formulations.training.peers.tetrisched_plan import Runs, Starts, earliest, shifted
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]
LEASE_S = 100.0
Due = list[tuple[float, float]]
"""Deadlines of a job and what they earn."""


def jobs_of(gang: list[int], work: list[float], due: list[Due], **columns: Any) -> Jobs:
    n = len(gang)
    base = {
        "throughput_per_s": np.ones((n, 1)), "arrival_s": np.zeros(n),
        "slo": [bool(own) for own in due],
        "deadline_offsets": np.cumsum([0, *map(len, due)]),
        "deadline_s": [at for own in due for at, _ in own],
        "deadline_value": [value for own in due for _, value in own],
    }  # fmt: skip
    return Jobs.of(id=[chr(65 + row) for row in range(n)], gang=gang, work=work, **base | columns)


def hard(*due: float | None) -> list[Due]:
    return [[] if at is None else [(at, 10.0)] for at in due]


def round_of(jobs: Jobs, gpus: int, **more: Any) -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs, duration_s=LEASE_S, **more
    )


def decide(policy: TetriSched, round_: TrainingRound, memory: Any = None) -> Any:
    solver = Solver(gap=0.0)
    return policy.compile(round_, memory, Budget.of(None)).solve(solver, Budget.of(None))


def names_of(round_: TrainingRound, decision: Any) -> list[str]:
    return round_.jobs.id[decision.allocation.job].tolist()


# ---------------------------------------------------------------- by hand


@pytest.mark.quick
@pytest.mark.parametrize(("method", "value"), [("milp", 3.0), ("greedy", 2.0)])
def test_the_plan_misses_nothing_where_deadline_order_does(method: Any, value: float) -> None:
    """Two GPUs; A due after 1 lease, B and C after 2, C needs both: A and C start, B follows."""
    jobs = jobs_of([1, 1, 1], [100.0, 100.0, 200.0], hard(100.0, 200.0, 200.0))
    round_ = round_of(jobs, 2)
    found = decide(TetriSched(method=method), round_)
    assert found.objective == value
    assert found.status == ("OPTIMAL" if method == "milp" else "HEURISTIC")
    if method == "milp":
        assert names_of(round_, found) == ["A", "C"]
        assert found.bound == pytest.approx(3.0)
        assert found.per_job["start_lease"].tolist() == [0, 1, 0]
    else:
        assert names_of(round_, found) == ["A", "B"]


@pytest.mark.quick
def test_leases_are_consecutive() -> None:
    """Two GPUs, three jobs of two leases each, all due after three leases."""
    jobs = jobs_of([1, 1, 1], [200.0] * 3, hard(300.0, 300.0, 300.0))
    found = decide(TetriSched(), round_of(jobs, 2))
    # scattered leases would do all three, 110, 101 and 011; of runs there is room for two
    assert found.objective == 2.0
    assert found.bound == pytest.approx(2.0)
    assert found.per_job["start_lease"].tolist().count(0) == 2


@pytest.mark.quick
def test_a_soft_deadline_earns_what_the_end_of_its_run_is_worth() -> None:
    """One GPU. A alone by 100 earns 10; then B by 200 8 of 10. The other way 5 of 10 and 10."""
    due: list[Due] = [[(100.0, 10.0), (200.0, 5.0)], [(100.0, 10.0), (200.0, 8.0)]]
    jobs = jobs_of([1, 1], [100.0, 100.0], due)
    found = decide(TetriSched(), round_of(jobs, 1))
    assert found.objective == pytest.approx(1.8)
    assert found.per_job["start_lease"].tolist() == [0, 1]


@pytest.mark.quick
def test_best_effort_fills_the_lease_by_reward_and_never_costs_a_deadline() -> None:
    """Rewards 25 / 1, 25 / 2 and 25 / 5: with two GPUs beside A it is B, with one GPU C."""
    jobs = jobs_of([2, 2, 1, 1], [200.0, 100.0, 150.0, 500.0], hard(200.0, None, None, None))
    assert names_of(round_of(jobs, 4), decide(TetriSched(), round_of(jobs, 4))) == ["A", "B"]
    assert names_of(round_of(jobs, 3), decide(TetriSched(), round_of(jobs, 3))) == ["A", "C"]
    later = jobs_of([2, 2, 1, 1], [200.0, 100.0, 150.0, 500.0], hard(300.0, None, None, None))
    # A can wait for a lease, so that both are served: 25 is more than 12.5 + 5
    assert names_of(round_of(later, 2), decide(TetriSched(), round_of(later, 2))) == ["B"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("due", "ends", "first"),
    [
        (200.0, "lease", "B"), (200.0 - 1e-3, "lease", "A"), (299.0, "lease", "B"),
        (150.0, "work", "B"), (150.0 - 1e-3, "work", "A"), (150.0, "lease", "A"),
    ],
)  # fmt: skip
def test_a_run_is_in_time_up_to_the_end_of_its_last_lease(
    due: float, ends: Any, first: str
) -> None:
    """B takes 150 s, two leases of 100; A is best effort, short, and wants the same GPU."""
    jobs = jobs_of([1, 1], [100.0, 150.0], hard(None, due))
    for method in ("milp", "greedy"):
        found = decide(TetriSched(method=method, ends=ends), round_of(jobs, 1))  # pyright: ignore
        assert names_of(round_of(jobs, 1), found) == [first]
        assert found.objective == float(first == "B")


# ---------------------------------------------------------------- against enumeration


def draw(rng: np.random.Generator) -> TrainingRound:
    n, types, now_s = int(rng.integers(1, 6)), int(rng.integers(1, 3)), 1000.0
    rate = rng.choice([0.0, 1.0, 2.0], (n, types), p=[0.1, 0.6, 0.3])
    gang = rng.choice([1, 2, 3], n).tolist()
    due: list[Due] = []
    for _ in range(n):
        times = np.unique(rng.integers(1, 17, int(rng.integers(0, 3)))) * 25.0
        due.append([(now_s + at, 10.0 - 4.0 * step) for step, at in enumerate(times.tolist())])
    jobs = jobs_of(
        gang, (rng.integers(1, 13, n) * 25.0).tolist(), due, throughput_per_s=rate,
        arrival_s=rng.uniform(0, 900, n).round(), slo=rng.random(n) < 0.8,
    )  # fmt: skip
    cluster = Cluster.uniform({f"t{k}": int(rng.integers(1, 5)) for k in range(types)})
    return TrainingRound(cluster=cluster, jobs=jobs, now_s=now_s, duration_s=LEASE_S)


def ways(round_: TrainingRound, ends: str) -> list[list[tuple[int, int, int, float]]]:
    """Type, start, leases and worth of every run in time of each job."""
    jobs, out = round_.jobs, []
    for j in range(len(jobs)):
        own = slice(int(jobs.deadline_offsets[j]), int(jobs.deadline_offsets[j + 1]))
        due = list(
            zip(jobs.deadline_s[own].tolist(), jobs.deadline_value[own].tolist(), strict=True)
        )
        runs = []
        for k, start in itertools.product(range(round_.capacity.size), range(5)):
            rate = float(jobs.throughput_per_s[j, k])
            if not (jobs.slo[j] and rate > 0 and jobs.gang[j] <= round_.capacity[k]):
                continue
            takes_s = float(jobs.work[j]) / rate
            leases = int(-(-takes_s // LEASE_S))
            length_s = leases * LEASE_S if ends == "lease" else takes_s
            end_s = round_.now_s + start * LEASE_S + length_s
            worth = max((v for at, v in due if end_s <= at + 1e-6), default=0.0)
            if worth:
                runs.append((k, start, leases, worth / due[0][1]))
        out.append(runs)
    return out


def enumerated(round_: TrainingRound, ends: str) -> tuple[float, float]:
    """The most that deadlines can earn, and with that the most best-effort reward."""
    jobs, k = round_.jobs, round_.capacity.size
    runs, best = ways(round_, ends), (0.0, 0.0)
    planned = [j for j, own in enumerate(runs) if own]
    fillers = [j for j, own in enumerate(runs) if not own]

    def fill(at: int, free: np.ndarray, value: float, reward: float) -> None:
        nonlocal best
        if at == len(fillers):
            best = max(best, (round(value, 9), round(reward, 9)))
            return
        j = fillers[at]
        fill(at + 1, free, value, reward)
        for kind in range(k):
            rate = float(jobs.throughput_per_s[j, kind])
            if rate > 0 and jobs.gang[j] <= free[kind]:
                left = free.copy()
                left[kind] -= jobs.gang[j]
                leases = max(1, int(-(-float(jobs.work[j]) / rate // LEASE_S)))
                fill(at + 1, left, value, reward + 25.0 / leases)

    def place(at: int, free: np.ndarray, value: float) -> None:
        if at == len(planned):
            if round(value, 9) >= best[0]:
                fill(0, free[:, 0], value, 0.0)
            return
        j = planned[at]
        place(at + 1, free, value)
        for kind, start, leases, worth in runs[j]:
            if (free[kind, start : start + leases] >= jobs.gang[j]).all():
                left = free.copy()
                left[kind, start : start + leases] -= jobs.gang[j]
                place(at + 1, left, value + worth)

    place(0, np.repeat(round_.capacity[:, None], 20, axis=1), 0.0)
    return best


def rewarded(round_: TrainingRound, decision: Any, ends: str) -> float:
    """Best-effort reward of a decision."""
    plan, jobs, total = decision.allocation, round_.jobs, 0.0
    runs = ways(round_, ends)
    for j, kind in zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True):
        if not runs[j]:
            takes_s = float(jobs.work[j]) / float(jobs.throughput_per_s[j, kind])
            total += 25.0 / max(1, int(-(-takes_s // LEASE_S)))
    return total


@pytest.mark.parametrize("ends", ["lease", "work"])
@pytest.mark.parametrize("seed", CASES)
def test_against_enumeration(seed: int, ends: Any) -> None:
    round_ = draw(np.random.default_rng(seed))
    found = decide(TetriSched(ends=ends), round_)
    value, reward = enumerated(round_, ends)
    assert not check(round_, found.allocation)
    assert found.status == "OPTIMAL"
    assert found.objective == pytest.approx(value, abs=1e-6)
    assert rewarded(round_, found, ends) == pytest.approx(reward, abs=1e-6)
    greedy = decide(TetriSched(ends=ends, method="greedy"), round_)
    assert not check(round_, greedy.allocation)
    assert greedy.objective <= value + 1e-9
    starts_fit(round_, found, ends)
    starts_fit(round_, greedy, ends)


def starts_fit(round_: TrainingRound, decision: Any, ends: str) -> None:
    """Each planned start is a run in time on some type, and those of lease 0 run now."""
    start, runs = decision.per_job["start_lease"], ways(round_, ends)
    for j in np.flatnonzero(start >= 0).tolist():
        assert any(own[1] == start[j] for own in runs[j])
        assert (start[j] > 0) or j in decision.allocation.job
    if round_.capacity.size == 1:
        free = np.full(20, int(round_.capacity[0]))
        for j in np.flatnonzero(start >= 0).tolist():
            leases = next(own[2] for own in runs[j])
            free[start[j] : start[j] + leases] -= round_.jobs.gang[j]
        assert (free >= 0).all()


@pytest.mark.quick
def test_the_first_gap_that_is_long_enough() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        free = rng.choice([0, 1, 2], int(rng.integers(1, 9)))
        gang, need, last = (int(rng.integers(*pair)) for pair in ((1, 3), (1, 5), (-1, 12)))
        padded = np.concatenate((free, np.full(need, 9)))
        good = [
            at for at in range(min(last + 1, free.size)) if (padded[at : at + need] >= gang).all()
        ]
        assert earliest(free, gang, need, last) == (good[0] if good else -1)


@pytest.mark.quick
def test_starts_move_forward_where_room_is_left() -> None:
    """Two GPUs: B, planned for lease 2, moves to 0 beside A; C of two GPUs then to 2 from 4."""
    runs = Runs(
        np.array([1, 1, 2]),
        np.array([[2], [2], [1]]),
        np.array([[[5]], [[5]], [[5]]]),
        np.ones((3, 1)),
    )
    starts = Starts(np.zeros(3, dtype=np.int64), np.array([0, 2, 4]))
    left = np.array([[1, 1, 1, 1, 0, 2]])
    assert shifted(runs, starts, left).lease.tolist() == [0, 0, 2]
    assert left.tolist() == [[1, 1, 1, 1, 0, 2]]


# ---------------------------------------------------------------- runs


@pytest.mark.quick
@pytest.mark.parametrize("method", ["milp", "greedy"])
def test_what_has_started_by_plan_goes_on_and_is_in_time(method: Any) -> None:
    rng = np.random.default_rng(6)
    n = 30
    arrival = np.sort(rng.integers(0, 15, n)) * LEASE_S
    work = rng.integers(1, 6, n) * LEASE_S
    due = hard(*(
        float(a + w * f) if f else None
        for a, w, f in zip(arrival, work, rng.choice([0.0, 1.0, 1.5, 3.0], n), strict=True)
    ))  # fmt: skip
    jobs = jobs_of(rng.choice([1, 2], n).tolist(), work.tolist(), due, arrival_s=arrival)
    scenario = Scenario(
        name="runs", cluster=Cluster.uniform({"GPU": 4}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=LEASE_S),
    )  # fmt: skip
    started: set[str] = set()

    class Watch(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            found = super().decide(round_, memory)
            assert not check(round_, found.allocation)
            going = started & set(round_.jobs.id.tolist())
            assert going <= set(names_of(round_, found))
            started.update(found.carry["id"].tolist())
            return found

    policy = TetriSched(method=method)
    ends = run(scenario, Watch(policy, Solver(work_limit=10_000))).jobs.finish_s
    assert len(started) >= 5
    for row in np.flatnonzero(np.isin(jobs.id, sorted(started))).tolist():
        assert ends[row] <= due[row][0][0] + 1e-6
    assert (ends > 0).all()


@pytest.mark.quick
def test_a_run_that_takes_longer_than_told_loses_its_place_when_it_has_missed() -> None:
    on = {"running": [True, False], "previous_type": [0, -1], "held_gpus": [1, 0],
          "work_done": [190.0, 0.0]}  # fmt: skip
    jobs = jobs_of([1, 1], [200.0, 100.0], hard(1200.0, 1200.0), **on)
    memory = {"id": np.array(["A", "gone"])}
    # A began by plan: it goes on, although B would be late then
    on_time = round_of(jobs, 1, now_s=1100.0)
    assert names_of(on_time, decide(TetriSched(), on_time, memory)) == ["A"]
    late = jobs_of([1, 1], [400.0, 100.0], hard(1200.0, 1200.0), **on)
    missed = round_of(late, 1, now_s=1100.0)
    assert names_of(missed, decide(TetriSched(), missed, memory)) == ["B"]


@pytest.mark.quick
def test_a_model_that_is_too_large_leaves_the_greedy_plan() -> None:
    jobs = jobs_of([1, 1, 1], [100.0, 100.0, 200.0], hard(100.0, 200.0, 200.0))
    found = decide(TetriSched(most_entries=4), round_of(jobs, 2))
    assert (found.status, found.objective, found.bound) == ("FEASIBLE", 2.0, None)
    assert "too large" in found.stages[-1].note
    policy, budget = TetriSched(), Budget.of(1e-9)
    late = policy.compile(round_of(jobs, 2), None, budget).solve(Solver(), budget)
    assert late.time_limited
    assert (late.status, late.objective) == ("FEASIBLE", 2.0)


@pytest.mark.quick
def test_a_horizon_cuts_runs_but_does_not_forbid_them() -> None:
    jobs = jobs_of([1, 1], [1000.0, 100.0], hard(2000.0, 2000.0))
    found = decide(TetriSched(horizon=2), round_of(jobs, 1))
    assert found.objective == 2.0
    assert names_of(round_of(jobs, 1), found) == ["B"]


# ---------------------------------------------------------------- bad input, battery


@pytest.mark.quick
@pytest.mark.parametrize(
    "wrong",
    [{"method": "lp"}, {"ends": "never"}, {"horizon": 0}, {"horizon": 2.0}, {"most_entries": -1}],
    ids=str,
)
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=rf"tetrisched\.{next(iter(wrong))} = "):
        TetriSched(**wrong)


@pytest.mark.quick
@pytest.mark.parametrize("bad", [{}, 3, [], {"id": np.array([""])}])
def test_a_memory_of_somebody_else_is_refused(bad: Any) -> None:
    round_ = round_of(jobs_of([1], [1.0], hard(None)), 1)
    with pytest.raises(InstanceError, match="memory"):
        TetriSched().compile(round_, bad, Budget.of(None))


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{policy.method}-{name}")
        for policy in (TetriSched(), TetriSched(method="greedy", ends="work"))
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
