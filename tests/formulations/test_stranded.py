"""A node that fails under a running job: the call still answers."""

from __future__ import annotations

import pytest

import apportion as ap
from apportion.instances.training import Placement

pytestmark = pytest.mark.quick

POLICIES = ("fft", "fifo", "srtf")


def asked(**columns):
    given = {"running": [True], "previous_type": [0], "held_gpus": [4], **columns}
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"A": 8}, gpus_per_node=4),
        jobs=ap.Jobs.of(id=["j0"], gang=[4], work=[1e4], throughput_per_s=[[1.0]], **given),
        placement=Placement.of([0], [1], [4]),
        node_up=[True, False],
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "columns",
    [{}, {"preemptible": [False]}, {"guaranteed": [True], "lease_end_s": [900.0]}],
    ids=["preemptible", "not", "guaranteed"],
)
def test_the_job_goes_where_there_is_room(policy, columns):
    answer = ap.solve(asked(**columns), policy)
    assert ap.check(answer.round_, answer.allocation) == []
    assert answer.allocation.placement == Placement.of([0], [0], [4])
    assert "job 'j0' has lost its GPUs: one of its nodes is out of service" in answer.notes


@pytest.mark.parametrize("policy", POLICIES)
def test_more_held_than_is_left_in_service_is_no_contradiction(policy):
    round_ = ap.TrainingRound(
        cluster=ap.Cluster.uniform({"A": 8}, gpus_per_node=4),
        jobs=ap.Jobs.of(
            id=["j0", "j1"], gang=[4, 4], work=[1e4, 1e4], throughput_per_s=[[1.0], [1.0]],
            running=[True, True], previous_type=[0, 0], held_gpus=[4, 4],
            preemptible=[False, False],
        ),
        placement=Placement.of([0, 1], [0, 1], [4, 4]),
        node_up=[True, False],
    )  # fmt: skip
    answer = ap.solve(round_, policy)
    assert ap.check(round_, answer.allocation) == []
    assert answer.allocation.job.tolist() == [0]
