"""AlloX: the example of the literature, every schedule of tiny rounds, a dense matching, prices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from apportion.executor.training import check
from apportion.formulations.training.peers import allox_matching
from apportion.formulations.training.peers.allox import AlloX
from apportion.formulations.training.peers.allox_matching import Queues, match
from apportion.instances import Decision, InstanceError
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks, random_round

SLOW = 300


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def decide(round_: TrainingRound, seconds: float | None = None, **options: Any) -> Decision:
    budget = Budget.of(seconds)
    return AlloX(**options).compile(round_, None, budget).solve(Solver(gap=0.0), budget)


def waiting(p: Any, machines: list[int], **columns: Any) -> TrainingRound:
    """Jobs of one GPU and of given durations; infinity where they cannot run."""
    durations = np.array(p, dtype=float)
    n = durations.shape[0]
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": count for i, count in enumerate(machines)}),
        jobs=Jobs.of(
            id=[f"job-{j}" for j in range(n)], gang=columns.pop("gang", [1] * n), work=[1.0] * n,
            throughput_per_s=1.0 / durations, **columns,
        ),
        now_s=100.0,
    )  # fmt: skip


def test_golden_example() -> None:
    round_ = waiting([[2, 6], [4, 5], [9, 10]], [1, 1], arrival_s=[100.0] * 3)
    answer = decide(round_, alpha=1.0)
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(18.0)
    plan = answer.allocation
    started = dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))
    # two optima: job 0 before job 2 beside job 1, or before job 1 beside job 2
    assert started in ({0: 0, 1: 1}, {0: 0, 2: 1})


def every_schedule(p: np.ndarray, machines: list[int]) -> float:
    """Least sum of completion times over all assignments and all orders, by adding times up."""
    kinds = [kind for kind, count in enumerate(machines) for _ in range(count)]
    n, best = p.shape[0], np.inf
    for order in itertools.permutations(range(n)):
        for place in itertools.product(range(len(kinds)), repeat=n):
            clock, total = [0.0] * len(kinds), 0.0
            for job in order:
                clock[place[job]] += p[job, kinds[place[job]]]
                total += clock[place[job]]
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", seeds())
def test_no_schedule_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    machines = rng.integers(0, 3, int(rng.integers(1, 3))).tolist()
    machines[0] = max(machines[0], 1)
    p = rng.integers(1, 12, (n, len(machines))).astype(float)
    p[:, 1:][rng.random((n, len(machines) - 1)) < 0.2] = np.inf
    arrival_s = rng.integers(0, 100, n).astype(float)
    answer = decide(waiting(p, machines, arrival_s=arrival_s), alpha=1.0)
    expected = every_schedule(p, machines) + float((100.0 - arrival_s).sum())
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(expected, rel=1e-9)
    assert answer.bound == pytest.approx(expected, rel=1e-6)


def dense(p: np.ndarray, machines: np.ndarray) -> float:
    """The matching of the source: one column for every machine and position."""
    columns = [
        (kind, q)
        for kind, count in enumerate(machines.tolist())
        for _ in range(count)
        for q in range(1, p.shape[0] + 1)
    ]
    cost = np.array([[q * row[kind] for kind, q in columns] for row in np.minimum(p, 1e9)])
    row, column = linear_sum_assignment(cost)
    return float(cost[row, column].sum())


@pytest.mark.parametrize("dense_arcs", [0, 10**6])
@pytest.mark.parametrize("seed", seeds())
def test_merged_machines_are_the_dense_matching(
    seed: int, dense_arcs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few arcs at first or all of them: the same value, proved."""
    monkeypatch.setattr(allox_matching, "DENSE", dense_arcs)
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    machines = rng.integers(1, 5, k)
    p = rng.lognormal(3.0, 1.0, (n, k))
    if seed % 2:
        p = np.ceil(p / 10.0)  # many equal ones
    p[rng.random((n, k)) < 0.2] = np.inf
    p[np.isinf(p).all(axis=1), 0] = 7.0
    found = match(Queues(p, machines), Budget.of(None))
    assert found.value == pytest.approx(dense(p, machines), rel=1e-9)
    assert found.gap is not None
    assert found.gap <= 1e-8


def test_arcs_are_added_until_none_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a guess that leaves types empty, places that were not written down have to be found."""
    monkeypatch.setattr(allox_matching, "DENSE", 0)
    monkeypatch.setattr(Queues, "greedy", lambda self: np.zeros(len(self.duration), dtype=np.int64))
    rng = np.random.default_rng(4)
    p, machines = rng.lognormal(3.0, 1.0, (60, 3)), np.array([1, 2, 1])
    found = match(Queues(p, machines), Budget.of(None))
    assert found.value == pytest.approx(dense(p, machines), rel=1e-9)
    assert found.gap is not None
    assert found.gap <= 1e-8


def test_only_the_first_of_each_machine_starts_and_running_jobs_stay() -> None:
    round_ = waiting(
        [[9, 9], [1, 9], [2, 9], [3, 9]], [2, 0], running=[True, False, False, False],
        previous_type=[0, -1, -1, -1], held_gpus=[1, 0, 0, 0],
    )  # fmt: skip
    plan = decide(round_, alpha=1.0).allocation
    assert plan.job.tolist() == [0, 1]  # though job 0 is the longest


def test_only_the_oldest_take_part() -> None:
    p = [[9.0], [8.0], [1.0]]
    round_ = waiting(p, [1], arrival_s=[0.0, 10.0, 20.0])
    assert decide(round_, alpha=1.0).allocation.job.tolist() == [2]
    assert decide(round_, alpha=0.7).allocation.job.tolist() == [1]
    assert decide(round_, alpha=0.1).allocation.job.tolist() == [0]  # as many as free machines


def test_a_gang_costs_its_gpu_time() -> None:
    # two GPUs; the pair for 3 s takes 6 GPU-seconds: after both of 4 and 5, before none
    round_ = waiting([[3.0], [4.0], [5.0]], [2], gang=[2, 1, 1])
    assert decide(round_, alpha=1.0).allocation.job.tolist() == [1, 2]
    # for 1 s it takes 2, and goes first
    round_ = waiting([[1.0], [4.0], [5.0]], [2], gang=[2, 1, 1])
    assert decide(round_, alpha=1.0).allocation.job.tolist() == [0]


@pytest.mark.parametrize("seed", range(20))
def test_running_jobs_go_on_whatever_waits(seed: int) -> None:
    round_ = random_round(np.random.default_rng(seed), jobs=12)
    answer = decide(round_, alpha=1.0)
    assert not check(round_, answer.allocation)
    on = set(answer.allocation.job.tolist())
    for job in np.flatnonzero(round_.jobs.running).tolist():
        assert job in on


def test_no_time_gives_the_greedy_matching() -> None:
    round_ = random_round(np.random.default_rng(3), jobs=12)
    answer = decide(round_, seconds=1e-9)
    assert answer.time_limited
    assert (answer.status, answer.bound, answer.gap) == ("FEASIBLE", None, None)
    assert not check(round_, answer.allocation)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1.5, float("nan")])
def test_bad_alpha(alpha: float) -> None:
    with pytest.raises(InstanceError, match=r"allox.alpha = .*: must be in \(0, 1\]"):
        AlloX(alpha=alpha)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("check_index", range(len(policy_checks(AlloX()))))
def test_battery(alpha: float, check_index: int) -> None:
    judge: Callable[[], None] = policy_checks(AlloX(alpha=alpha))[check_index][1]
    judge()
