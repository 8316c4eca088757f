"""Reservations that cannot be kept: an answer all the same, and a word about what was given up."""

from __future__ import annotations

import numpy as np
import pytest

import apportion as ap
from apportion.instances.training import Commitments, Placement

pytestmark = pytest.mark.quick

POLICIES = ("fft", "fifo", "srtf")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_may_not_be_stopped_holds_what_was_reserved(policy):
    round_ = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"A": 2}),
        jobs=ap.Jobs.of(
            id=["a", "b", "c"], gang=[1, 1, 1], work=[1e4] * 3, throughput_per_s=[[1.0]] * 3,
            running=[True, True, False], previous_type=[0, 0, -1], held_gpus=[1, 1, 0],
            preemptible=[False, False, True],
        ),
        now_s=300.0,
        commitments=Commitments.of([2], [200.0], [900.0], [1]),
        placement=Placement.of([0, 1], [0, 0], [1, 1]),
    )  # fmt: skip
    answer = ap.solve(round_, policy)
    assert answer.status == "INFEASIBLE"
    assert answer.bound is None
    assert answer.allocation.job.tolist() == [0, 1]
    assert answer.notes[0].startswith("job 'c': its reservation of 1 GPUs until 900 was given up")
    assert ap.check(answer.round_, answer.allocation) == []
    assert [one.rule for one in ap.check(round_, answer.allocation)] == ["commitment"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_node_breaks_one_of_two_promises(policy):
    round_ = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"A": 4, "B": 2}, gpus_per_node=2),
        jobs=ap.Jobs.of(
            id=["a", "b", "c"], gang=[2, 2, 1], work=[1e4] * 3,
            throughput_per_s=[[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]],
        ),
        commitments=Commitments.of([0, 1], [0.0, 0.0], [900.0, 900.0], [2, 2], [0, 0]),
        node_up=[True, False, True],
    )  # fmt: skip
    answer = ap.solve(round_, policy)
    assert answer.status == "INFEASIBLE"
    assert sum("was given up" in note for note in answer.notes) == 1
    assert ap.check(answer.round_, answer.allocation) == []
    # one of the two is served, and the rest of the round is solved (in fifo it waits in line)
    wanted = ([0], [1]) if policy == "fifo" else ([0, 2], [1, 2])
    assert sorted(answer.allocation.job.tolist()) in wanted


@pytest.mark.parametrize("policy", POLICIES)
def test_random_reservations_always_get_an_answer(policy):
    rng = np.random.default_rng(11)
    served = 0
    for _ in range(60):
        n, k = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        rates = rng.choice([0.0, 0.5, 1.0, 2.0], (n, k))
        gang = rng.integers(1, 4, n)
        rows = rng.permutation(n)[: int(rng.integers(1, n + 1))]
        able = [np.flatnonzero(rates[row] > 0) for row in rows]
        rows = np.array(
            [row for row, kinds in zip(rows, able, strict=True) if kinds.size], dtype=int
        )
        if not rows.size:
            continue
        kinds = [int(rng.choice([-1, *np.flatnonzero(rates[row] > 0)])) for row in rows]
        round_ = ap.TrainingRound(
            cluster=ap.Cluster.uniform({f"t{i}": int(rng.integers(1, 6)) for i in range(k)}),
            jobs=ap.Jobs.of(
                id=[f"j{i}" for i in range(n)], gang=gang, work=np.full(n, 1e3),
                throughput_per_s=rates, preemptible=rng.random(n) < 0.7,
            ),
            now_s=100.0,
            commitments=Commitments.of(
                rows, rng.choice([0.0, 200.0], rows.size), np.full(rows.size, 900.0),
                gang[rows], kinds,
            ),
        )  # fmt: skip
        answer = ap.solve(round_, policy)
        assert ap.check(answer.round_, answer.allocation) == []
        whole = answer.status != "INFEASIBLE"
        assert whole == (not any("given up" in note for note in answer.notes))
        served += whole
    assert served
