"""The round after a decision: who leaves, who carries on with what, who joins."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.instances import InstanceError
from apportion.instances.training import (
    Allocation,
    Cluster,
    Jobs,
    Outcome,
    Placement,
    TrainingRound,
    round_after,
)
from apportion.instances.training.allocation import Commitments

pytestmark = pytest.mark.quick


def asked() -> TrainingRound:
    """Job a has run 100 of 1000 on slow, b and c wait; a and b get GPUs, c waits on."""
    return TrainingRound(
        cluster=Cluster.uniform({"slow": 2, "fast": 2}, gpus_per_node=2),
        jobs=Jobs.of(
            id=["a", "b", "c"], gang=[1, 2, 1], work=[1000.0, 500.0, 300.0],
            throughput_per_s=[[1.0, 2.0], [1.0, 3.0], [1.0, 1.0]], code=[4, 7, 9],
            running=[True, False, False], previous_type=[0, -1, -1], held_gpus=[1, 0, 0],
            work_done=[100.0, 0.0, 0.0], work_in_lease=[100.0, 0.0, 0.0],
            lease_start_s=[200.0, -1.0, -1.0], lease_end_s=[np.inf, -1.0, -1.0],
            first_start_s=[200.0, -1.0, -1.0], attained_gpu_s=[100.0, 0.0, 0.0],
            deadline_offsets=[0, 1, 1, 2], deadline_s=[900.0, 800.0], deadline_value=[10.0, 5.0],
        ),
        now_s=300.0, index=1,
        commitments=Commitments.of([2, 0], [600.0, 300.0], [900.0, 500.0], [1, 1]),
    )  # fmt: skip


def plan(b_end_s: float = 600.0) -> Allocation:
    return Allocation.of(
        [0, 1], [0, 1], [1, 2], lease_end_s=[np.inf, b_end_s],
        placement=Placement.of([0, 1], [0, 1], [1, 2]),
    )  # fmt: skip


def seen(*, b_finished: bool) -> Outcome:
    return Outcome(
        300.0, 600.0, np.array([300.0, 500.0, 0.0]), np.array([300.0, 340.0, 0.0]),
        np.array([False, b_finished, False]),
    )  # fmt: skip


def test_finished_jobs_leave_and_the_others_carry_on():
    later = round_after(asked(), plan(), seen(b_finished=True))
    jobs = later.jobs
    assert (later.now_s, later.index) == (600.0, 2)
    assert jobs.id.tolist() == ["a", "c"]
    assert jobs.code.tolist() == [4, 9]
    assert jobs.work_done.tolist() == [400.0, 0.0]
    assert jobs.attained_gpu_s.tolist() == [400.0, 0.0]
    assert jobs.running.tolist() == [True, False]
    assert jobs.held_gpus.tolist() == [1, 0]
    # the same lease goes on: it began at 200 and has done 400
    assert jobs.lease_start_s.tolist() == [200.0, -1.0]
    assert jobs.work_in_lease.tolist() == [400.0, 0.0]
    assert later.placement == Placement.of([0], [0], [1])
    assert jobs.deadline_offsets.tolist() == [0, 1, 2]
    assert jobs.deadline_s.tolist() == [900.0, 800.0]
    # a's reservation is over, c's lies ahead
    assert later.commitments == Commitments.of([1], [600.0], [900.0], [1])


def test_a_lease_that_ended_holds_nothing():
    jobs = round_after(asked(), plan(b_end_s=500.0), seen(b_finished=False)).jobs
    assert jobs.id.tolist() == ["a", "b", "c"]
    assert jobs.running.tolist() == [True, False, False]
    assert jobs.previous_type.tolist() == [0, 1, -1]
    assert jobs.first_start_s.tolist() == [200.0, 300.0, -1.0]


def test_a_lease_that_ends_now_may_be_continued():
    later = round_after(asked(), plan(b_end_s=600.0), seen(b_finished=False))
    assert later.jobs.running.tolist() == [True, True, False]
    assert later.jobs.held_gpus.tolist() == [1, 2, 0]
    assert later.placement == Placement.of([0, 1], [0, 1], [1, 2])


def test_newcomers_join_with_their_ragged_columns():
    new = Jobs.of(
        id=["d"], gang=[1], work=[60.0], throughput_per_s=[[1.0, 1.0]], arrival_s=[450.0],
        deadline_offsets=[0, 2], deadline_s=[700.0, 800.0], deadline_value=[2.0, 1.0],
    )  # fmt: skip
    jobs = round_after(asked(), plan(), seen(b_finished=True), arrivals=new).jobs
    assert jobs.id.tolist() == ["a", "c", "d"]
    assert jobs.code.tolist() == [4, 9, 0]
    assert jobs.deadline_offsets.tolist() == [0, 1, 2, 4]
    assert jobs.deadline_s.tolist() == [900.0, 800.0, 700.0, 800.0]


def test_a_taken_code_is_numbered_on_and_a_taken_id_is_refused():
    new = Jobs.of(id=["d"], gang=[1], work=[1.0], throughput_per_s=[[1.0, 1.0]], code=[4])
    assert round_after(asked(), plan(), seen(b_finished=True), arrivals=new).jobs.code.tolist() == [
        4, 9, 10,
    ]  # fmt: skip
    again = Jobs.of(id=["a"], gang=[1], work=[1.0], throughput_per_s=[[1.0, 1.0]], code=[50])
    with pytest.raises(InstanceError, match=r"jobs.id\[2\] = 'a'"):
        round_after(asked(), plan(), seen(b_finished=True), arrivals=again)
