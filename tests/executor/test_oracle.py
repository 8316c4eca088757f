"""Finish times against a plain simulator with an object for each job."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.executor.training import run
from apportion.instances.training import Cluster, ExecutorOptions, Jobs, Scenario, Tenants


def scenario_of(arrivals, gangs, works, gpus, round_s):
    n = len(works)
    return Scenario(
        name="small",
        cluster=Cluster.uniform({"gpu": gpus}, gpus_per_node=4),
        jobs=Jobs(
            id=[f"j{i}" for i in range(n)], gang=gangs, work=works,
            throughput_per_s=np.ones((n, 1)), arrival_s=arrivals,
        ),
        tenants=Tenants.named("all"),
        options=ExecutorOptions(round_s=round_s),
    )  # fmt: skip


JOB = st.tuples(st.integers(0, 90), st.integers(1, 6), st.integers(1, 80))


@pytest.mark.quick
@pytest.mark.parametrize("policy", ["fifo", "srtf"])
@given(jobs=st.lists(JOB, min_size=1, max_size=14), gpus=st.integers(6, 11))
@settings(max_examples=60, deadline=None)
def test_finish_times_of_random_small_cases(toys, oracle, policy, jobs, gpus):
    arrivals, gangs, works = ([float(x) for x in column] for column in zip(*jobs, strict=True))
    gangs = [int(g) for g in gangs]
    decider = {"fifo": toys.Fifo, "srtf": toys.Srtf}[policy]()
    done = run(scenario_of(arrivals, gangs, works, gpus, 10.0), decider)
    wanted = oracle.replay(arrivals, gangs, works, gpus, 10.0, policy)
    assert done.jobs.finish_s.tolist() == wanted
    assert done.stopped == ""


def compare(scenario, oracle, decider, policy):
    done = run(scenario, decider)
    jobs = scenario.jobs
    wanted = oracle.replay(
        jobs.arrival_s.tolist(), jobs.gang.tolist(), jobs.work.tolist(),
        int(scenario.cluster.gpus[0]), scenario.options.round_s, policy,
    )  # fmt: skip
    assert done.jobs.finish_s.tolist() == wanted
    return done


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_finish_times_of_the_first_philly_jobs(toys, oracle, replay, philly, policy):
    """Three thousand jobs, compressed so much that a queue builds up."""
    decider = {"fifo": toys.Fifo, "srtf": toys.Srtf}[policy]()
    done = compare(replay.philly(philly, 400.0, 3000), oracle, decider, policy)
    if policy == "srtf":
        assert done.jobs.preemptions.sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("compress", [1.0, 6.5])
@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_finish_times_of_the_whole_philly_table(toys, oracle, replay, philly, policy, compress):
    decider = {"fifo": toys.Fifo, "srtf": toys.Srtf}[policy]()
    compare(replay.philly(philly, compress), oracle, decider, policy)


@pytest.mark.slow
def test_the_whole_table_stays_within_memory(philly):
    """One process of its own for each policy: under 500 MiB at the peak."""
    for policy in ("fifo", "srtf"):
        command = [sys.executable, "benchmarks/replay.py", "--policy", policy, "--compress", "6.5"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        assert float(told.stdout.split("peak ")[1].split(" MiB")[0]) < 500
