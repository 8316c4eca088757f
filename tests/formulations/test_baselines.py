"""FIFO, SRTF and the filling of types that they and every incumbent rest on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apportion.formulations.training import FIFO, SRTF
from apportion.formulations.training.greedy import fill
from apportion.instances.training import Commitments
from apportion.solver import Budget, Solver

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]


def decide(policy: Any, round_: Any) -> Any:
    program = policy.compile(round_, None, Budget.of(None))
    assert program.model is None
    decision = program.solve(Solver(), Budget.of(None))
    assert decision.status == "HEURISTIC"
    assert decision.allocation == program.incumbent().allocation
    return decision


def runs(decision: Any) -> dict[int, int]:
    plan = decision.allocation
    return dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))


def naive_fill(order: Any, score: Any, gang: Any, free: Any, *, strict: bool) -> list[int]:
    out, left = [-1] * len(gang), list(free)
    for job in order:
        kinds = [i for i in range(len(left)) if np.isfinite(score[job][i]) and left[i] >= gang[job]]
        if kinds:
            out[job] = min(kinds, key=lambda i: (score[job][i], i))
            left[out[job]] -= gang[job]
        elif strict:
            break
    return out


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("types", [1, 2, 4])
@pytest.mark.parametrize("seed", CASES)
def test_filling_equals_a_plain_loop(seed: int, types: int, strict: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 40))
    score = rng.choice([0.0, 1.0, 2.0, np.inf], (n, types), p=[0.3, 0.3, 0.3, 0.1])
    gang = rng.choice([1, 2, 4, 8], n).astype(np.int64)
    free = rng.integers(0, 60 // types, types)
    if seed % 3 == 0:
        free[1:] = 0  # one type left: the vectorised path
    order = rng.permutation(n)[: int(rng.integers(0, n + 1))]
    found = fill(order, score, gang, free, strict=strict)
    assert found.tolist() == naive_fill(order, score, gang, free, strict=strict)


@pytest.mark.quick
@pytest.mark.parametrize("policy", [FIFO(), FIFO(strict=False), SRTF()])
def test_fastest_type_first_and_the_present_one_at_equal_speed(lab: Any, policy: Any) -> None:
    round_ = lab.build([[1.0, 3.0, 2.0]], [10.0], [1], [1, 1, 1])
    assert runs(decide(policy, round_)) == {0: 1}
    round_ = lab.build([[1.0, 3.0, 2.0]], [10.0], [1], [1, 0, 1])
    assert runs(decide(policy, round_)) == {0: 2}
    for present in (0, 1, 2):
        round_ = lab.build(
            [[2.0, 2.0, 2.0]], [10.0], [1], [1, 1, 1], previous=[present], running=[True],
            held_gpus=[1],
        )  # fmt: skip
        assert runs(decide(policy, round_)) == {0: present}


@pytest.mark.quick
def test_fifo_serves_by_arrival_then_by_code(lab: Any) -> None:
    round_ = lab.build([[1.0]] * 4, [10.0] * 4, [1] * 4, [2], a=[2, 1, 1, 0], t=3)
    assert runs(decide(FIFO(), round_)) == {3: 0, 1: 0}
    round_ = lab.build(
        [[1.0]] * 4, [10.0] * 4, [1] * 4, [2], a=[2, 1, 1, 0], t=3, code=[0, 9, 5, 7]
    )
    assert runs(decide(FIFO(), round_)) == {3: 0, 2: 0}


@pytest.mark.quick
def test_strict_fifo_waits_behind_the_head_of_the_line(lab: Any) -> None:
    round_ = lab.build([[1.0]] * 3, [10.0] * 3, [2, 4, 1], [5], a=[0, 1, 2], t=3)
    assert runs(decide(FIFO(), round_)) == {0: 0}
    assert runs(decide(FIFO(strict=False), round_)) == {0: 0, 2: 0}


@pytest.mark.quick
@pytest.mark.parametrize("strict", [True, False])
def test_fifo_never_preempts(lab: Any, strict: bool) -> None:
    """The youngest runs, with more GPUs than its gang; the oldest waits behind it."""
    round_ = lab.build(
        [[1.0, 2.0]] * 2, [10.0, 1.0], [3, 2], [4, 1], a=[0, 2], t=3, previous=[-1, 0],
        running=[False, True], held_gpus=[0, 3],
    )  # fmt: skip
    decision = decide(FIFO(strict=strict), round_)
    assert runs(decision) == {1: 0}
    assert decision.allocation.gpus.tolist() == [3]
    # and it does not move to a faster type
    assert decision.next_decision_s == np.inf


@pytest.mark.quick
@pytest.mark.parametrize("policy", [FIFO(), FIFO(strict=False), SRTF()])
def test_hopeless_gangs_are_passed_over_and_named(lab: Any, policy: Any) -> None:
    round_ = lab.build(
        [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], [1.0] * 4, [3, 1, 1, 1], [2, 2],
        memory_gib=[16.0, 16.0], gpu_memory_gib=[0.0, 0.0, 80.0, 0.0],
    )  # fmt: skip
    decision = decide(policy, round_)
    assert runs(decision) == {3: 0}
    assert decision.notes == (
        "job 'job-0' can never start: its gang of 3 GPUs is larger than any type it runs on"
        " (2 GPUs)",
        "job 'job-1' can never start: no GPU type has a throughput for it",
        "job 'job-2' can never start: its model needs 80 GiB on each GPU, more than any type it"
        " runs on has",
    )


@pytest.mark.quick
def test_srtf_serves_by_time_left_at_best_speed_and_skips(lab: Any) -> None:
    """Time left: 10, 4, 6 (of 20 all but 6 is done), 1 (on the type it is fast on)."""
    round_ = lab.build(
        [[1.0, 0.5], [1.0, 2.0], [1.0, 0.0], [1.0, 10.0]], [10.0, 8.0, 20.0, 10.0], [1, 3, 1, 1],
        [2, 2], work_done=[0.0, 0.0, 14.0, 0.0],
    )  # fmt: skip
    # job 3 takes the fast type, job 1 needs three GPUs and is skipped for ever
    assert runs(decide(SRTF(), round_)) == {3: 1, 2: 0, 0: 0}


@pytest.mark.quick
def test_srtf_preempts(lab: Any) -> None:
    round_ = lab.build(
        [[1.0]] * 2, [10.0, 2.0], [2, 1], [2], previous=[0, -1], running=[True, False],
        held_gpus=[2, 0],
    )  # fmt: skip
    assert runs(decide(SRTF(), round_)) == {1: 0}


@pytest.mark.quick
def test_srtf_equal_times_go_by_code(lab: Any) -> None:
    round_ = lab.build([[1.0]] * 3, [5.0] * 3, [1] * 3, [1], code=[7, 3, 5])
    assert runs(decide(SRTF(), round_)) == {1: 0}


@pytest.mark.quick
def test_srtf_decides_again_only_where_the_order_can_change_the_choice(lab: Any) -> None:
    one = lab.build([[1.0, 1.0]] * 2, [5.0] * 2, [1] * 2, [1, 0])
    two = lab.build([[1.0, 1.0]] * 2, [5.0] * 2, [1] * 2, [1, 1])
    assert decide(SRTF(), one).next_decision_s == np.inf
    assert decide(SRTF(), two).next_decision_s is None


@pytest.mark.quick
@pytest.mark.parametrize("policy", [FIFO(), FIFO(strict=False), SRTF()])
def test_a_job_is_not_kept_on_a_type_that_it_can_no_longer_use(lab: Any, policy: Any) -> None:
    """It runs on type 0, whose speed is now reported as zero, and type 1 is taken."""
    round_ = lab.build(
        [[0.0, 1.0], [0.0, 1.0]], [10.0, 1.0], [1, 1], [1, 1], a=[1, 0], t=1, previous=[0, -1],
        running=[True, False], held_gpus=[1, 0],
    )  # fmt: skip
    assert runs(decide(policy, round_)) == {1: 1}


@pytest.mark.quick
@pytest.mark.parametrize("strict", [True, False])
def test_fifo_makes_room_for_a_reservation_that_is_due(lab: Any, strict: bool) -> None:
    """Four GPUs, all held; two are promised to the third job from now on: the youngest stops."""
    promised = Commitments.of([2], [0.0], [1e6], [2], [0])
    round_ = lab.build(
        [[1.0]] * 3, [10.0] * 3, [2] * 3, [4], a=[0, 1, 1], t=2, previous=[0, 0, -1],
        running=[True, True, False], held_gpus=[2, 2, 0], commitments=promised,
    )  # fmt: skip
    case = lab.case(round_, (0.0,) * 3)
    decision = decide(FIFO(strict=strict), round_)
    assert lab.broken(case, decision) == []
    assert runs(decision) == {0: 0, 2: 0}


@pytest.mark.quick
@pytest.mark.parametrize("policy", [FIFO(), SRTF()])
def test_a_reservation_that_may_lie_anywhere_leaves_room_for_one_that_may_not(
    lab: Any, policy: Any
) -> None:
    """Job 0 may have any type and is faster on type 1, which is promised to job 1."""
    promised = Commitments.of([0, 1], [0.0, 0.0], [1e6, 1e6], [2, 2], [-1, 1])
    round_ = lab.build([[1.0, 2.0]] * 2, [10.0] * 2, [2] * 2, [2, 2], commitments=promised)
    assert runs(decide(policy, round_)) == {0: 0, 1: 1}
    # two small ones that prefer different types would leave no type whole for the large one
    promised = Commitments.of([0, 1, 2], [0.0] * 3, [1e6] * 3, [1, 1, 3])
    round_ = lab.build(
        [[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]], [10.0] * 3, [1, 1, 3], [3, 3], commitments=promised
    )
    assert runs(decide(policy, round_)) == {0: 0, 1: 0, 2: 1}
    # only type 1 has room for the larger one
    promised = Commitments.of([0, 1], [0.0, 0.0], [1e6, 1e6], [2, 3], [-1, -1])
    round_ = lab.build([[1.0, 2.0]] * 2, [10.0] * 2, [2, 3], [2, 3], commitments=promised)
    assert runs(decide(policy, round_)) == {0: 0, 1: 1}


@pytest.mark.parametrize("seed", CASES)
@pytest.mark.parametrize("name", ["fifo", "fifo-strict", "srtf"])
def test_orders_equal_a_plain_loop_on_random_rounds(lab: Any, seed: int, name: str) -> None:
    case = lab.draw(np.random.default_rng(50_000 + seed), jobs=12, types=4)
    round_, jobs, held = case.round_, case.round_.jobs, lab.untouchable(case)
    able = np.isfinite(lab.price(case))
    policy = {"fifo": FIFO(strict=False), "fifo-strict": FIFO(), "srtf": SRTF()}[name]
    decision = decide(policy, round_)
    assert lab.broken(case, decision) == []
    left = held.free.copy()
    expected = {j: i for j, (i, _) in held.leases.items()}
    waiting = [j for j in range(len(jobs)) if j not in held.leases and able[j].any()]
    if name == "srtf":
        rate = np.where(able, jobs.throughput_per_s, 0.0).max(axis=1)
        time = {j: max(jobs.work[j] - jobs.work_done[j], 0.0) / rate[j] for j in waiting}
        waiting.sort(key=lambda j: (time[j], jobs.code[j]))
    else:
        waiting = [j for j in range(len(jobs)) if j not in held.leases]
        waiting.sort(key=lambda j: (jobs.arrival_s[j], jobs.code[j]))
        for j in [j for j in waiting if jobs.running[j]]:
            kind = int(jobs.previous_type[j])
            if able[j, kind] and left[kind] >= jobs.held_gpus[j]:
                left[kind] -= jobs.held_gpus[j]
                expected[j] = kind
        waiting = [j for j in waiting if j not in expected and able[j].any()]
    for j in waiting:
        kinds = [i for i in range(left.size) if able[j, i] and left[i] >= jobs.gang[j]]
        if kinds:
            stays = jobs.running[j] * (np.arange(left.size) == jobs.previous_type[j])
            kind = max(kinds, key=lambda i: (jobs.throughput_per_s[j, i], stays[i], -i))
            left[kind] -= jobs.gang[j]
            expected[j] = kind
        elif name == "fifo-strict":
            break
    assert runs(decision) == expected


@pytest.mark.quick
@pytest.mark.parametrize("policy", [FIFO(), SRTF()])
def test_nothing_is_remembered(lab: Any, policy: Any) -> None:
    round_ = lab.build([[1.0]], [10.0], [1], [1])
    decision = decide(policy, round_)
    assert policy.remember({"x": 1}, round_, decision, lab.served(round_, [1.0])) is None
