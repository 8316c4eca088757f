"""Reservations: served together where any choice can, never blocked by what starts before them."""

from __future__ import annotations

import pytest

from apportion.executor.training import check
from apportion.formulations.training import FFT, FIFO, SRTF
from apportion.instances.training import Allocation, Cluster, Jobs, TrainingRound
from apportion.instances.training.allocation import Commitments
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick

POLICIES = (FFT(), FFT(method="milp"), FIFO(), SRTF())


def decide(policy, round_):
    budget = Budget.of(None)
    return policy.compile(round_, None, budget).solve(Solver(gap=0.0), budget)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p.name}-{getattr(p, 'method', '')}")
def test_four_reservations_that_only_one_choice_serves(policy):
    round_ = TrainingRound(
        cluster=Cluster.uniform({"t0": 4, "t1": 2, "t2": 5}),
        jobs=Jobs.of(
            id=["j0", "j1", "j2", "j3"], gang=[1, 3, 2, 2], work=[100.0] * 4,
            throughput_per_s=[
                [0.38, 0.29, 0.0], [0.12, 0.0, 0.56], [0.0, 0.53, 1.01], [0.0, 0.93, 1.03]
            ],
        ),
        commitments=Commitments.of(
            [0, 1, 2, 3], [0.0] * 4, [900.0] * 4, [1, 3, 1, 2], [1, -1, -1, 2]
        ),
    )  # fmt: skip
    decision = decide(policy, round_)
    assert check(round_, decision.allocation) == []
    assert decision.allocation.job.tolist() == [0, 1, 2, 3]


def test_an_optimum_beside_a_chosen_type_is_not_called_one():
    """On A the reserved gang would leave B to the other: 7 GPUs instead of 3."""
    round_ = TrainingRound(
        cluster=Cluster.uniform({"A": 3, "B": 4}),
        jobs=Jobs.of(
            id=["res", "other"], gang=[3, 4], work=[100.0, 100.0],
            throughput_per_s=[[1.0, 2.0], [0.0, 1.0]],
        ),
        commitments=Commitments.of([0], [0.0], [900.0], [3]),
    )  # fmt: skip
    decision = decide(FFT(), round_)
    assert check(round_, decision.allocation) == []
    assert (decision.status, decision.bound, decision.gap) == ("FEASIBLE", None, None)
    assert any(note.startswith("reservations for any type") for note in decision.notes)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p.name}-{getattr(p, 'method', '')}")
def test_what_cannot_be_stopped_does_not_start_before_a_reservation(policy):
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 2}),
        jobs=Jobs.of(
            id=["a", "b", "c"], gang=[1, 1, 1], work=[1000.0, 1000.0, 1000.0],
            throughput_per_s=[[1.0], [1.0], [1.0]], preemptible=[False, False, True],
        ),
        commitments=Commitments.of([2], [200.0], [900.0], [1]),
    )  # fmt: skip
    decision = decide(policy, round_)
    assert check(round_, decision.allocation) == []
    assert 0 not in decision.allocation.job
    assert 1 not in decision.allocation.job
    broken = check(round_, Allocation.of([0, 1], [0, 0], [1, 1]))
    assert [one.rule for one in broken] == ["reservation_ahead"]
    assert check(round_, Allocation.of([0, 2], [0, 0], [1, 1])) == []


def test_a_paused_job_goes_back_to_its_type_at_equal_speed():
    round_ = TrainingRound(
        cluster=Cluster.uniform({"x": 1, "y": 1}),
        jobs=Jobs.of(
            id=["a"], gang=[1], work=[10.0], throughput_per_s=[[1.0, 1.0]], previous_type=[1]
        ),
    )
    assert decide(SRTF(), round_).allocation.gpu_type.tolist() == [1]
    assert decide(FIFO(), round_).allocation.gpu_type.tolist() == [1]


def test_a_guaranteed_lease_stays_on_its_node():
    from apportion.instances.training import Placement

    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 2}, gpus_per_node=1),
        jobs=Jobs.of(
            id=["a"], gang=[1], work=[1e4], throughput_per_s=[[1.0]], running=[True],
            previous_type=[0], held_gpus=[1], guaranteed=[True], lease_end_s=[900.0],
        ),
        placement=Placement.of([0], [0], [1]),
    )  # fmt: skip

    def placed(node):
        return Allocation.of(
            [0], [0], [1], lease_end_s=[900.0], guaranteed=[True],
            placement=Placement.of([0], [node], [1]),
        )  # fmt: skip

    assert check(round_, placed(0)) == []
    assert [one.rule for one in check(round_, placed(1))] == ["guaranteed_lease"]
