"""Tiresias: queues by attained service, against a plain loop and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import run
from apportion.formulations.training.baselines.tiresias import Tiresias, queue_of
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


def runs(decision: Any) -> dict[int, int]:
    plan = decision.allocation
    return dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))


def decide(policy: Tiresias, round_: TrainingRound, memory: Any = None) -> Any:
    return policy.compile(round_, memory, Budget.of(None)).solve(Solver(), Budget.of(None))


def build(gang: list[int], attained: list[float], gpus: int, **columns: Any) -> TrainingRound:
    n = len(gang)
    return TrainingRound(
        cluster=Cluster.uniform({"only": gpus}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.full(n, 1e9),
            throughput_per_s=np.ones((n, 1)), attained_gpu_s=attained, **columns,
        ),
        now_s=10_000.0,
    )  # fmt: skip


@pytest.mark.quick
def test_queues_by_hand() -> None:
    policy = Tiresias(queues=3, threshold_gpu_s=100.0, growth=5.0)
    assert policy.thresholds_gpu_s.tolist() == [100.0, 500.0]
    attained = np.array([0.0, 99.9, 100.0, 499.9, 500.0, 1e9])
    assert queue_of(attained, policy.thresholds_gpu_s).tolist() == [0, 0, 1, 1, 2, 2]
    assert Tiresias(queues=1).thresholds_gpu_s.size == 0
    assert Tiresias().thresholds_gpu_s.tolist() == [8 * 3600.0]


@pytest.mark.quick
def test_least_attained_queue_first_then_first_start_then_arrival() -> None:
    """Service counts in two dimensions: four GPUs for 50 s are 200 GPU-s."""
    round_ = build(
        [1] * 5, [200.0, 0.0, 50.0, 50.0, 0.0], 3,
        first_start_s=[10.0, -1.0, 900.0, 800.0, -1.0], arrival_s=[0.0, 70.0, 1.0, 2.0, 60.0],
    )  # fmt: skip
    assert runs(decide(Tiresias(threshold_gpu_s=100.0), round_)) == {3: 0, 2: 0, 4: 0}
    assert decide(Tiresias(threshold_gpu_s=100.0), round_).per_job["queue"].tolist() == [
        1, 0, 0, 0, 0,
    ]  # fmt: skip


@pytest.mark.quick
def test_a_gang_that_does_not_fit_is_skipped_and_a_long_job_is_stopped_for_it() -> None:
    round_ = build(
        [2, 8, 2], [500.0, 0.0, 0.0], 3, running=[True, False, False],
        previous_type=[0, -1, -1], held_gpus=[2, 0, 0], first_start_s=[0.0, -1.0, -1.0],
    )  # fmt: skip
    assert runs(decide(Tiresias(threshold_gpu_s=100.0), round_)) == {2: 0}
    assert runs(decide(Tiresias(threshold_gpu_s=1000.0), round_)) == {0: 0}


@pytest.mark.parametrize("seed", CASES)
def test_equals_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 15)), int(rng.integers(1, 4))
    gpus = {f"t{i}": int(rng.integers(0, 9)) for i in range(k)}
    rate = rng.choice([0.0, 1.0, 2.0], (n, k))
    gang, attained = rng.choice([1, 2, 4], n), rng.choice([0.0, 50.0, 150.0, 900.0], n)
    first = np.where(attained > 0, rng.integers(0, 5, n) * 10.0, -1.0)
    round_ = TrainingRound(
        cluster=Cluster.uniform(gpus), now_s=1000.0,
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.ones(n), throughput_per_s=rate,
            attained_gpu_s=attained, first_start_s=first, arrival_s=rng.integers(0, 3, n) * 5.0,
            previous_type=rng.integers(-1, k, n),
        ),
    )  # fmt: skip
    jobs, free, expected = round_.jobs, list(gpus.values()), dict[int, int]()

    def key(j: int) -> tuple[Any, ...]:
        level = sum(attained[j] >= t for t in (100.0, 400.0))
        started = first[j] if first[j] >= 0 else np.inf
        return (level, started, jobs.arrival_s[j], j)

    for j in sorted(range(n), key=key):
        fits = [i for i in range(k) if rate[j, i] > 0 and free[i] >= gang[j]]
        last = int(jobs.previous_type[j])
        if fits:
            expected[j] = max(fits, key=lambda i: (rate[j, i], i == last, -i))
            free[expected[j]] -= int(gang[j])
    policy = Tiresias(queues=3, threshold_gpu_s=100.0, growth=4.0)
    assert runs(decide(policy, round_)) == expected


def scenario(work: list[float], arrival: list[float], gang: list[int], gpus: int) -> Scenario:
    n = len(work)
    return Scenario(
        name="queues", cluster=Cluster.uniform({"only": gpus}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=work,
            throughput_per_s=np.ones((n, 1)), arrival_s=arrival,
        ),
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=100.0),
    )  # fmt: skip


@pytest.mark.quick
def test_a_long_job_falls_behind_a_short_one_and_ends_after_it() -> None:
    """One GPU, threshold 200 GPU-s. The long job runs to 200, the short one is served whole, then
    the long one goes on: ends 300 and 700."""
    two = scenario([600.0, 100.0], [0.0, 50.0], [1, 1], 1)
    done = run(two, BoundPolicy(Tiresias(threshold_gpu_s=200.0), Solver()))
    assert done.jobs.finish_s.tolist() == [700.0, 300.0]
    # where nobody can fall any more, first come is first served
    done = run(two, BoundPolicy(Tiresias(threshold_gpu_s=1e6), Solver()))
    assert done.jobs.finish_s.tolist() == [600.0, 700.0]


@pytest.mark.quick
def test_who_has_waited_long_enough_is_promoted() -> None:
    """Threshold 100, knob 2. The first job falls at 100 s, waits twice that while the stream of
    short jobs is served, and returns to the first queue, where it started first, at 300 s."""
    stream = scenario([200.0] + [100.0] * 6, [0.0] + [100.0] * 6, [1] * 7, 1)
    plain = run(stream, BoundPolicy(Tiresias(threshold_gpu_s=100.0), Solver()))
    assert plain.jobs.finish_s[0] == 800.0
    policy = Tiresias(threshold_gpu_s=100.0, promote_knob=2.0)
    knob = run(stream, BoundPolicy(policy, Solver()))
    assert knob.jobs.finish_s[0] == 400.0
    never = run(stream, BoundPolicy(Tiresias(threshold_gpu_s=100.0, promote_knob=50.0), Solver()))
    assert never.jobs.finish_s[0] == 800.0


@pytest.mark.quick
def test_rounds_are_skipped_only_where_time_changes_nothing() -> None:
    """The same decisions at every boundary as when it is asked at every boundary."""
    rng = np.random.default_rng(5)
    n = 40
    many = scenario(
        rng.uniform(50.0, 900.0, n).round().tolist(), np.sort(rng.uniform(0, 3000, n)).tolist(),
        rng.choice([1, 2, 4], n).tolist(), 8,
    )  # fmt: skip

    class Always(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            found = super().decide(round_, memory)
            return type(found)(found.allocation)

    policy = Tiresias(threshold_gpu_s=400.0)
    some = run(many, BoundPolicy(policy, Solver()))
    every = run(many, Always(policy, Solver()))
    assert some.jobs.finish_s.tolist() == every.jobs.finish_s.tolist()
    assert some.rounds.now_s.size < every.rounds.now_s.size


@pytest.mark.quick
@pytest.mark.parametrize(
    "wrong",
    [{"queues": 0}, {"queues": 99}, {"threshold_gpu_s": 0.0}, {"growth": 1.0},
     {"promote_knob": 0.0}, {"promote_knob": np.nan}],
    ids=str,
)  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=rf"tiresias\.{next(iter(wrong))} = "):
        Tiresias(**wrong)


@pytest.mark.quick
def test_a_memory_of_somebody_else_is_refused() -> None:
    round_ = build([1], [0.0], 1)
    good = {"id": np.array(["j0"]), "base_gpu_s": np.zeros(1), "last_run_s": np.zeros(1)}
    policy = Tiresias(promote_knob=1.0)
    policy.compile(round_, good, Budget.of(None))
    for bad in (
        {}, 3, [], good | {"base_gpu_s": np.zeros(2)}, good | {"last_run_s": np.array([np.nan])},
        good | {"id": np.array([""])},
    ):  # fmt: skip
        with pytest.raises(InstanceError, match="memory"):
            policy.compile(round_, bad, Budget.of(None))


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{at}-{name}")
        for at, policy in enumerate(
            [Tiresias(), Tiresias(queues=4, threshold_gpu_s=600.0, promote_knob=1.0)]
        )
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
