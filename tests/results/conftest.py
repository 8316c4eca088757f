"""Small runs written down column by column, so that every metric can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training.records import JobRecords, LeaseRecords, RoundRecords, Run
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.scenario import Scenario
from apportion.instances.training.tenants import Tenants
from apportion.results import CAUSES

LEASES = ("job", "start_s", "end_s", "gpu_type", "gpus", "stall_s", "rate_per_s", "ended")


def build(
    *,
    gpus: Mapping[str, int],
    jobs: Mapping[str, Any],
    first_start_s: Sequence[float] = (),
    finish_s: Sequence[float] = (),
    leases: Sequence[tuple[Any, ...]] = (),
    intervals: Sequence[tuple[float, float, str, float, Mapping[str, Sequence[float]]]] = (),
    preemptions: Sequence[int] | None = None,
    migrations: Sequence[int] | None = None,
    decide_s: Sequence[float] = (),
) -> Run:
    """Complete a run: GPU-seconds and work of the jobs follow from their leases."""
    cluster = Cluster.uniform(gpus, gpus_per_node=2)
    k, n, m = len(gpus), len(jobs["id"]), len(intervals)
    rows = {name: [lease[at] for lease in leases] for at, name in enumerate(LEASES)}

    def column(name: str, kind: type = float) -> Any:
        return np.array(rows[name], dtype=kind)

    length = column("end_s") - column("start_s")
    work = column("rate_per_s") * (length - column("stall_s"))
    job, held = column("job", int), column("gpus", int)
    records = LeaseRecords(
        job=job,
        start_s=column("start_s"),
        end_s=column("end_s"),
        gpu_type=column("gpu_type", int),
        gpus=held,
        hosts=np.ones(len(leases), dtype=int),
        stall_s=column("stall_s"),
        rate_per_s=column("rate_per_s"),
        work=work,
        lost_work=np.zeros(len(leases)),
        ended=column("ended", str),
    )
    ledger = {
        f"{cause}_gpu_s": np.array(
            [interval[4].get(cause, [0.0] * k) for interval in intervals], dtype=float
        ).reshape(m, k)
        for cause in CAUSES
    }
    return Run(
        scenario=Scenario("hand", cluster, Jobs(**jobs), Tenants.named("default")),
        policy="fifo",
        jobs=JobRecords(
            first_start_s=np.array(first_start_s, dtype=float),
            finish_s=np.array(finish_s, dtype=float),
            work=np.bincount(job, weights=work, minlength=n).astype(float),
            gpu_s=np.bincount(job, weights=held * length, minlength=n).astype(float),
            preemptions=np.array(preemptions or [0] * n, dtype=int),
            migrations=np.array(migrations or [0] * n, dtype=int),
        ),
        leases=records,
        rounds=RoundRecords(
            index=np.arange(m),
            now_s=np.array([interval[0] for interval in intervals], dtype=float),
            end_s=np.array([interval[1] for interval in intervals], dtype=float),
            reasons=np.array(["boundary"] * m, dtype=str),
            active=np.zeros(m, dtype=int),
            running=np.zeros(m, dtype=int),
            status=np.array([interval[2] for interval in intervals], dtype=str),
            objective=np.full(m, np.nan),
            gap=np.array([interval[3] for interval in intervals], dtype=float),
            **ledger,
        ),
        decide_s=np.array(decide_s, dtype=float),
    )


# Two slow and two fast GPUs, rounds of 100 s.
#   A: 1 GPU,  200 units, 1 or 2 a second, arrives at 0
#   B: 2 GPUs, 300 units, 1 or 3 a second, arrives at 0
#   C: 1 GPU,  100 units, slow only, 1 a second, arrives at 50
# [0, 100):   A on slow does 100 units, B on fast does 300 and ends at 100.
# [100, 200): A moves to fast, stands still for 20 s, does its last 100 units in 50 s and ends at
#             170; C on slow does 100 units and ends at 200.
THREE: dict[str, Any] = {
    "gpus": {"slow": 2, "fast": 2},
    "jobs": {
        "id": ["A", "B", "C"],
        "gang": [1, 2, 1],
        "work": [200.0, 300.0, 100.0],
        "throughput_per_s": [[1.0, 2.0], [1.0, 3.0], [1.0, 0.0]],
        "arrival_s": [0.0, 0.0, 50.0],
    },
    "first_start_s": [0.0, 0.0, 100.0],
    "finish_s": [170.0, 100.0, 200.0],
    "leases": [
        (0, 0.0, 100.0, 0, 1, 0.0, 1.0, "moved"),
        (1, 0.0, 100.0, 1, 2, 0.0, 3.0, "completed"),
        (0, 100.0, 170.0, 1, 1, 20.0, 2.0, "completed"),
        (2, 100.0, 200.0, 0, 1, 0.0, 1.0, "completed"),
    ],
    "intervals": [
        (0.0, 100.0, "OPTIMAL", 0.0, {"busy": [100, 200], "idle_no_demand": [100, 0]}),
        (
            100.0, 200.0, "FEASIBLE", 0.02,
            {
                "busy": [100, 50],
                "stalled": [0, 20],
                "idle_no_demand": [100, 100],
                "idle_finished": [0, 30],
            },
        ),
    ],
    "migrations": [1, 0, 0],
    "decide_s": [0.1, 0.3],
}  # fmt: skip


@pytest.fixture
def build_run() -> Callable[..., Run]:
    return build


@pytest.fixture
def three_jobs() -> Run:
    return build(**THREE)


@pytest.fixture
def with_unfinished() -> Run:
    """Two jobs more: D arrives at 150 and never starts; E asks for more GPUs than any type has."""
    parts = {**THREE, "jobs": dict(THREE["jobs"])}
    more = {
        "id": ["D", "E"],
        "gang": [2, 3],
        "work": [1000.0, 10.0],
        "throughput_per_s": [[0.0, 1.0], [1.0, 1.0]],
        "arrival_s": [150.0, 0.0],
    }
    for name, values in more.items():
        parts["jobs"][name] = [*parts["jobs"][name], *values]
    parts["first_start_s"] = [*THREE["first_start_s"], -1.0, -1.0]
    parts["finish_s"] = [*THREE["finish_s"], -1.0, -1.0]
    parts["migrations"] = None
    return build(**parts)


@pytest.fixture
def no_jobs() -> Run:
    return build(
        gpus={"slow": 2},
        jobs={"id": [], "gang": [], "work": [], "throughput_per_s": np.zeros((0, 1))},
    )


@pytest.fixture
def heuristic(three_jobs: Run) -> Run:
    status = np.array(["HEURISTIC", "HEURISTIC"])
    gap = np.array([np.nan, np.nan])
    return replace(three_jobs, rounds=replace(three_jobs.rounds, status=status, gap=gap))
