"""Placement of Chronus: the exact model against every layout, the batch rule by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.chronus.placement import (
    PATTERNS,
    Hosts,
    batch_placement,
    emptiest_first,
    exact_placement,
    reward,
)
from apportion.instances.columns import Floats, Ints
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Solver

SOLVER = Solver(gap=0.0)


def layouts(parts: Sequence[int], free: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to put parts on different nodes, as GPUs taken of each node."""
    found = set[tuple[int, ...]]()
    for nodes in itertools.permutations(range(len(free)), len(parts)):
        taken = [0] * len(free)
        for node, part in zip(nodes, parts, strict=True):
            taken[node] = part
        if all(t <= f for t, f in zip(taken, free, strict=True)):
            found.add(tuple(taken))
    return sorted(found)


def best_of_all(gang: Ints, speed: Floats, free: Ints) -> float | None:
    """Most reward over every choice of patterns and nodes; None where nothing fits."""

    def search(job: int, left: tuple[int, ...]) -> float | None:
        if job == gang.size:
            return 0.0
        best: float | None = None
        for parts in PATTERNS[int(gang[job])]:
            worth = float(gang[job] * speed[job, min(len(parts), speed.shape[1]) - 1])
            for taken in layouts(parts, left):
                rest = search(job + 1, tuple(a - b for a, b in zip(left, taken, strict=True)))
                if rest is not None and (best is None or worth + rest > best):
                    best = worth + rest
        return best

    return search(0, tuple(free.tolist()))


def valid(gang: Ints, free: Ints, hosts: Sequence[Hosts]) -> bool:
    """Parts add up to gangs, lie on different nodes, and nodes hold what is free."""
    used = np.zeros_like(free)
    for size, own in zip(gang.tolist(), hosts, strict=True):
        nodes = [node for node, _ in own]
        if sum(gpus for _, gpus in own) != size or len(set(nodes)) < len(nodes):
            return False
        for node, gpus in own:
            used[node] += gpus
    return bool((used <= free).all())


def drawn(seed: int) -> tuple[Ints, Floats, Ints]:
    rng = np.random.default_rng(seed)
    free = rng.integers(0, 5, int(rng.integers(2, 4)))
    gang = list[int]()
    while sum(gang) < free.sum() and len(gang) < 3:
        size = int(rng.integers(1, 6))
        if sum(gang) + size <= free.sum():
            gang.append(size)
        elif rng.random() < 0.3:
            break
    gangs = np.array(gang, dtype=np.int64)
    drops = np.sort(rng.uniform(0.2, 1.0, (gangs.size, 5)).round(2))[:, ::-1]
    drops[:, 0] = 1.0
    return gangs, drops[:, : int(gangs.max(initial=1))], free.astype(np.int64)


def judge(seed: int) -> None:
    gang, speed, free = drawn(seed)
    if not gang.size:
        return
    best = best_of_all(gang, speed, free)
    found = exact_placement(gang, speed, free, SOLVER, Budget.of(None))
    greedy = batch_placement(gang, speed, free)
    assert valid(gang, free, greedy)
    most = float((gang * speed.max(axis=1)).sum())
    assert reward(gang, speed, greedy) <= most + 1e-9
    if best is None:
        assert found is None
        return
    assert found is not None
    assert valid(gang, free, found)
    assert reward(gang, speed, found) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(20))
def test_exact_against_every_layout(seed: int) -> None:
    judge(seed)


@pytest.mark.slow
def test_exact_against_every_layout_of_many() -> None:
    for seed in range(20, 320):
        judge(seed)


def test_batch_prefers_tight_nodes() -> None:
    gang, free = np.array([2]), np.array([4, 2, 3])
    assert batch_placement(gang, np.array([[1.0, 0.5]]), free) == [((1, 2),)]
    # a whole node that fits, though not exactly, before a split
    assert batch_placement(np.array([3]), np.ones((1, 3)), np.array([8, 4, 2])) == [((1, 3),)]


def test_batch_splits_on_the_largest_and_a_tight_one() -> None:
    found = batch_placement(np.array([5]), np.ones((1, 5)), np.array([3, 4, 1]))
    assert found == [((1, 4), (2, 1))]
    scattered = batch_placement(np.array([5]), np.ones((1, 5)), np.array([2, 2, 1]))
    assert scattered == [((0, 2), (1, 2), (2, 1))]


def test_batch_keeps_the_best_of_its_orders() -> None:
    """Two gangs want the one node of 4; the sensitive one gets it by the first order alone."""
    gang, free = np.array([4, 4]), np.array([4, 2, 2])
    speed = np.array([[1.0, 0.9], [1.0, 0.3]])
    found = batch_placement(gang, speed, free)
    assert found == [((1, 2), (2, 2)), ((0, 4),)]
    assert reward(gang, speed, found) == pytest.approx(4 * 0.9 + 4)


def test_exact_beats_the_batch_rule() -> None:
    """The batch rule never splits what fits whole: here the gang of 5 had better be split."""
    gang, free = np.array([5, 3, 2, 3, 2]), np.array([6, 6, 3])
    speed = np.array(
        [[1.0, 1.0, 0.5], [1.0, 0.7, 0.5], [1.0, 0.9, 0.8], [1.0, 0.7, 0.6], [1.0, 0.9, 0.9]]
    )
    found = exact_placement(gang, speed, free, SOLVER, Budget.of(None))
    assert found is not None
    assert len(found[0]) == 2
    assert reward(gang, speed, found) == pytest.approx(15.0)
    greedy = batch_placement(gang, speed, free)
    assert len(greedy[0]) == 1
    assert reward(gang, speed, greedy) == pytest.approx(14.8)


def test_too_few_gpus() -> None:
    with pytest.raises(ValueError, match="3 GPUs to place, 2 free"):
        batch_placement(np.array([3]), np.ones((1, 3)), np.array([1, 1]))


def test_large_gangs_take_the_fewest_nodes() -> None:
    assert emptiest_first(12, np.array([8, 2, 6, 8])) == ((0, 8), (3, 4))


@pytest.mark.parametrize("mode", ["batch", "exact"])
def test_decisions_carry_their_placement(mode: str) -> None:
    """Who runs on stays, the larger gang is laid first, and the checker of nodes agrees."""
    asked = TrainingRound(
        cluster=Cluster.uniform({"a": 16, "b": 4}, gpus_per_node=4),
        jobs=Jobs.of(
            id=["big", "on", "new"], gang=[10, 2, 4], work=[1e4] * 3,
            throughput_per_s=[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]],
            running=[False, True, False], previous_type=[-1, 0, -1], held_gpus=[0, 2, 0],
            preemptible=[True, False, True], spread_offsets=[0, 0, 0, 1], spread_hosts=[2.0],
            spread_speed=[0.4],
        ),
    )  # fmt: skip
    policy = Chronus(placement=mode)  # type: ignore[arg-type]
    found = policy.compile(asked, None, Budget.of(None)).solve(SOLVER, Budget.of(None))
    assert found.allocation.placement is not None
    assert found.allocation.job.tolist() == [0, 1, 2]
    assert not check(asked, found.allocation)


def test_cores_are_left_to_the_executor() -> None:
    asked = TrainingRound(
        cluster=Cluster.uniform({"a": 4}),
        jobs=Jobs.of(id=["a"], gang=[2], work=[1e4], throughput_per_s=[[1.0]], cpus=[4.0]),
    )
    policy = Chronus(placement="exact")
    found = policy.compile(asked, None, Budget.of(None)).solve(SOLVER, Budget.of(None))
    assert found.allocation.placement is None
    assert any("CPU cores" in note for note in found.notes)
