"""Times that differ by rounding only are one instant."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import run
from apportion.executor.training.agenda import (
    boundary_after,
    boundary_before,
    boundary_from,
    on_boundary,
)
from apportion.formulations.training import FFT, FIFO, SRTF
from apportion.instances.training import Cluster, ExecutorOptions, Jobs, Scenario, Tenants
from apportion.solver import Solver

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("round_s", [7.3, 0.1, 100.1, 33.3, 299.9, 300.0, 1 / 3])
def test_boundaries_are_found_whatever_the_rounding(round_s):
    total = 0.0
    for index in range(1, 2000):
        total += round_s  # drifts away from index * round_s
        assert on_boundary(index * round_s, round_s) == index * round_s
        for instant in (index * round_s, (index - 1) * round_s + round_s, total):
            assert boundary_from(instant, round_s) == index
            assert boundary_before(instant, round_s) == index
            assert boundary_after(instant, round_s) == index + 1
    middle = 10.5 * round_s
    assert boundary_from(middle, round_s) == 11
    assert boundary_before(middle, round_s) == 10
    assert boundary_after(middle, round_s) == 11


def scenario(jobs: Jobs, round_s: float) -> Scenario:
    return Scenario(
        name="t", cluster=Cluster.uniform({"only": 1}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=round_s),
    )  # fmt: skip


@pytest.mark.parametrize("round_s", [7.3, 0.1, 100.1, 299.9, 33.3])
def test_a_job_alone_is_never_interrupted(round_s):
    jobs = Jobs.of(id=["a"], gang=[1], work=[200.5 * round_s], throughput_per_s=[[1.0]])
    done = run(scenario(jobs, round_s), BoundPolicy(FFT(), Solver()))
    assert done.leases.ended.tolist() == ["completed"]
    assert done.jobs.preemptions.tolist() == [0]


def test_a_job_that_may_not_be_stopped_is_not_stopped_by_rounding():
    jobs = Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[100.0, 3.65], throughput_per_s=[[1.0], [1.0]],
        arrival_s=[40.15, 47.45], preemptible=[False, True],
    )  # fmt: skip
    done = run(scenario(jobs, 7.3), BoundPolicy(FFT(), Solver()))
    assert done.jobs.preemptions.tolist() == [0, 0]
    assert done.jobs.finish_s[0] == pytest.approx(43.8 + 100.0)


@pytest.mark.parametrize("policy", [FFT(), FIFO(), SRTF()], ids=lambda p: p.name)
def test_a_job_that_ends_with_a_round_frees_its_gpu_then(policy):
    """42 units at 0.7 a second are 60 s, which binary fractions miss by an ulp."""
    jobs = Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[42.0, 63.0], throughput_per_s=[[0.7], [1.0]],
        arrival_s=[0.0, 60.0],
    )  # fmt: skip
    done = run(scenario(jobs, 60.0), BoundPolicy(policy, Solver()))
    assert done.jobs.finish_s.tolist() == pytest.approx([60.0, 123.0])
    assert done.jobs.first_start_s.tolist() == [0.0, 60.0]


def test_an_arrival_on_a_boundary_is_in_it():
    jobs = Jobs.of(id=["a"], gang=[1], work=[1.0], throughput_per_s=[[1.0]], arrival_s=[300.3])
    done = run(scenario(jobs, 100.1), BoundPolicy(FIFO(), Solver()))
    assert done.jobs.first_start_s[0] == pytest.approx(300.3)


def test_a_gang_that_can_never_start_does_not_lengthen_the_run():
    jobs = Jobs.of(id=["a", "b"], gang=[2, 1], work=[9.0, 10.0], throughput_per_s=[[1.0], [1.0]])
    runs = [run(scenario(jobs, 7.3), BoundPolicy(policy, Solver())) for policy in (FFT(), FIFO())]
    for done in runs:
        assert "1 jobs can never start" in done.stopped
        assert done.jobs.finish_s.tolist() == [-1.0, 10.0]
        assert done.rounds.index.size <= 4
        # nobody who could run waits for these GPUs
        assert np.all(done.rounds.idle_no_pack_gpu_s == 0)
