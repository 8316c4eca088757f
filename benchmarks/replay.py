"""Replay the Philly table through the executor, every allocation checked.

usage: python benchmarks/replay.py [--policy fifo|srtf] [--compress 6.5] [--jobs N] [TABLE]

The table (``philly_jobs.csv.gz``) is looked for under APPORTION_DATA, by default in
``../shared/data`` beside the checkout. Prints CPU seconds of the run (the policy's own work and
the checker included, reading the table not), beside a yardstick loop timed around it, rounds, and the
peak memory of the process.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd

from apportion import FIFO, SRTF
from apportion.deciding import BoundPolicy
from apportion.executor.training import run
from apportion.instances.training import Cluster, ExecutorOptions, Jobs, Scenario, Tenants
from apportion.solver import Solver

ROOT = Path(__file__).resolve().parents[1]
NODES, LAST = 311, 2


def table(path: Path, jobs: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrival since the first, duration and gang of each job, in order of arrival."""
    frame = pd.read_csv(path, usecols=["timestamp", "duration", "num_gpus"]).dropna()
    frame = frame[(frame.duration > 0) & (frame.num_gpus > 0)]
    submitted = pd.to_datetime(frame.timestamp).astype("datetime64[s]").astype(np.int64).to_numpy()
    order = np.argsort(submitted, kind="stable")[:jobs]
    arrival = (submitted[order] - submitted[order[0]]).astype(np.float64)
    gang = frame.num_gpus.to_numpy().astype(np.int64)[order]
    return arrival, np.ceil(frame.duration.to_numpy()[order]), gang


def philly(path: Path, compress: float = 1.0, jobs: int | None = None) -> Scenario:
    """The table as a scenario: 311 nodes of 8 GPUs and one of 2, a second of work a second."""
    arrival, work, gang = table(path, jobs)
    n = work.size
    return Scenario(
        name="philly",
        cluster=Cluster.uniform({"gpu": NODES * 8 + LAST}),
        jobs=Jobs(
            id=np.char.add("job-", np.arange(n).astype(np.str_)), gang=gang, work=work,
            throughput_per_s=np.ones((n, 1)), arrival_s=np.floor(arrival / compress),
        ),
        tenants=Tenants.named("default"),
        options=ExecutorOptions(round_s=300.0),
    )  # fmt: skip


def decider(policy: str) -> BoundPolicy:
    """The policy as any run uses it."""
    return BoundPolicy({"fifo": FIFO(), "srtf": SRTF()}[policy], Solver())


def yardstick() -> float:
    """CPU seconds of a plain loop, so that runs on a busy or another machine can be compared."""
    began, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number & 7
    return time.process_time() - began


def main() -> None:
    data = Path(os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--policy", choices=["fifo", "srtf"], default="fifo")
    parser.add_argument("--compress", type=float, default=1.0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("table", nargs="?", type=Path, default=data / "philly/philly_jobs.csv.gz")
    given = parser.parse_args()
    scenario = philly(given.table, given.compress, given.jobs)
    gc.collect()
    loop = yardstick()
    began = time.process_time()
    done = run(scenario, decider(given.policy), policy=given.policy)
    spent = time.process_time() - began
    loop = (loop + yardstick()) / 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rounds = done.rounds
    print(
        f"{given.policy} x{given.compress:g}: {spent:.2f} CPU s ({spent / loop:.1f} times a loop of"
        f" ten million additions, {loop:.2f} s), {rounds.index.size} rounds,"
        f" {len(scenario.jobs)} jobs, {int(done.jobs.preemptions.sum())} preemptions,"
        f" {rounds.active.mean():.0f} active and {rounds.running.mean():.0f} running on average,"
        f" peak {peak:.0f} MiB"
    )


if __name__ == "__main__":
    main()
