"""A storm: many rounds with random limits from four threads at once, searches killed on the way.

Usage: ``python benchmarks/storm.py [--count 500] [--threads 4] [--seed 0] [--json] [--strict]``

Rounds have 20 to 2000 jobs and limits from 1 ms to 2 s, both spread evenly over the orders of
magnitude; one round in eight has 2 to 3 s, from where on large searches go to workers. Meanwhile
workers are killed at random moments. Every answer must pass the executor's checker, and nothing may
be left behind: otherwise, and with ``--strict`` also where the 99th percentile of lateness is above
0.25 s or the largest above 1 s, the command ends with 1. Lateness is only fair with nothing else
running on the machine; the load at the start is told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import apportion as ap
from apportion.executor.training import check
from apportion.solver import Solver
from apportion.solver.workers.worker_pool import WORKERS

P99_S, LARGEST_S = 0.25, 1.0
"""What lateness may be at the 99th percentile, and at most."""

SHORTEST_S, LONGEST_S = 1e-3, 2.0
WITH_WORKERS_S = (2.05, 3.0)
METHODS = ("auto", "milp", "lp_repair")


@dataclass(frozen=True)
class Task:
    """One round to be decided, and how."""

    round_: ap.TrainingRound
    method: str
    work_conservation: str
    limit_s: float

    def __str__(self) -> str:
        size = f"{len(self.round_.jobs)} jobs x {self.round_.capacity.size} types"
        return f"{self.limit_s:.3f} s, {self.method} {self.work_conservation}, {size}"


@dataclass(frozen=True)
class Record:
    """What came of it; the round itself is let go, so that memory tells of leaks only."""

    task: str
    late_s: float
    broken: str
    status: str
    answered: str
    note: str


def make_task(seed: int) -> Task:
    """Draw a contended round of mixed gangs, and a limit."""
    rng = np.random.default_rng(seed)
    jobs = int(np.exp(rng.uniform(np.log(20), np.log(2000))))
    types = int(rng.integers(2, 9))
    gang = rng.choice([1, 2, 4, 8], jobs, p=[0.6, 0.2, 0.15, 0.05])
    gpus = max(8, int(rng.uniform(0.2, 0.9) * gang.sum() / types))
    speed = rng.uniform(1.0, 3.0, types) ** rng.uniform(0.5, 1.2, (jobs, 1))
    speed[:, 1:][rng.random((jobs, types - 1)) < 0.05] = 0.0
    now_s = 60 * 300.0
    round_ = ap.TrainingRound(
        cluster=ap.Cluster.uniform({f"type-{i}": gpus for i in range(types)}),
        jobs=ap.Jobs.of(
            id=[f"job-{i}" for i in range(jobs)],
            gang=gang,
            work=np.clip(np.exp(rng.normal(2.2, 0.9, jobs)), 3.0, 200.0),
            throughput_per_s=speed / 300.0,
            arrival_s=now_s - rng.integers(0, 60, jobs) * 300.0,
            previous_type=rng.integers(-1, types, jobs),
        ),
        now_s=now_s,
    )
    long = rng.random() < 0.125
    limit_s = (
        rng.uniform(*WITH_WORKERS_S)
        if long
        else np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S)))
    )
    return Task(
        round_,
        "milp" if long else str(rng.choice(METHODS)),
        str(rng.choice(["lexicographic", "reward", "none"], p=[0.6, 0.2, 0.2])),
        float(limit_s),
    )


def decide(task: Task) -> Record:
    """Decide one round, and have the answer checked."""
    policy = ap.FFT(method=task.method, work_conservation=task.work_conservation)
    start = time.monotonic()
    answer = ap.solve(task.round_, policy, time_limit_s=task.limit_s, gap=0.0)
    late_s = time.monotonic() - start - task.limit_s
    broken = check(task.round_, answer.allocation)
    return Record(
        str(task),
        late_s,
        broken[0].message if broken else "",
        answer.status,
        next((stage.name for stage in answer.decision.stages if stage.answered), "none"),
        next((note for note in answer.decision.notes if "the search" in note), ""),
    )


def kill_workers(over: threading.Event, seed: int, killed: list[int]) -> None:
    """Kill a worker of this process, chosen at random, again and again."""
    rng = np.random.default_rng(seed)
    while not over.wait(rng.uniform(0.2, 1.5)):
        pids = WORKERS.pids()
        if pids:
            pid = int(rng.choice(pids))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)


def children() -> list[int]:
    """Processes that this one has started and that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.append(int(stat.parent.name))
    return found


def resident_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def storm(count: int, threads: int, seed: int) -> dict[str, Any]:
    """Run it, and sum up."""
    load = os.getloadavg()[0]
    over, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_workers, args=(over, seed, killed))
    memory_mib: list[float] = []

    def one(position: int) -> Record:
        record = decide(make_task(seed * 1_000_000 + position))
        memory_mib.append(resident_mib())
        return record

    # what is imported late is not the storm's
    decide(make_task(seed))
    start = time.monotonic()
    killer.start()
    try:
        with Solver(), ThreadPoolExecutor(threads) as pool:
            records = list(pool.map(one, range(count)))
    finally:
        over.set()
        killer.join()
    took_s = time.monotonic() - start
    return {
        **summary(records),
        "workers killed": len(killed),
        "children left": len(children()),
        "memory MiB by quarter": quarters(memory_mib),
        "load before": round(load, 1),
        "took s": round(took_s, 1),
    }


def quarters(samples: list[float]) -> list[float]:
    """Median over each quarter of the storm: flat memory does not grow in the last ones."""
    parts = np.array_split(np.array(samples), 4)
    return [round(float(np.median(part)), 1) for part in parts if part.size]


def summary(records: list[Record]) -> dict[str, Any]:
    """Count answers and spread lateness out."""
    late = np.array([record.late_s for record in records])
    worst = sorted(records, key=lambda record: -record.late_s)[:3]
    return {
        "solves": len(records),
        "broken": [record.broken for record in records if record.broken],
        "searches that failed": sorted({record.note for record in records if record.note}),
        "statuses": dict(Counter(record.status for record in records)),
        "answered by": dict(Counter(record.answered for record in records)),
        "late p50 s": round(float(np.quantile(late, 0.5)), 3),
        "late p99 s": round(float(np.quantile(late, 0.99)), 3),
        "late max s": round(float(late.max()), 3),
        "latest": [f"+{record.late_s:.3f} s of {record.task}" for record in worst],
    }


def main() -> int:
    """Run the storm and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    # deaths are what this is about
    logging.getLogger("apportion").setLevel(logging.CRITICAL)
    found = storm(options.count, options.threads, options.seed)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        for name, value in found.items():
            sys.stdout.write(f"{name}: {value}\n")
    late = found["late p99 s"] > P99_S or found["late max s"] > LARGEST_S
    bad = found["broken"] or found["children left"] or (options.strict and late)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
