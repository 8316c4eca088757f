"""An answer leads to the next round: what a scheduler would otherwise write by hand."""

from __future__ import annotations

import numpy as np
import pytest

import apportion as ap

pytestmark = pytest.mark.quick


def asked() -> ap.TrainingRound:
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"slow": 4, "fast": 4}, gpus_per_node=4),
        jobs=ap.Jobs.of(
            id=[f"job-{i}" for i in range(6)], gang=[1, 2, 4, 1, 2, 1],
            work=[300.0, 9000.0, 4000.0, 2500.0, 700.0, 60.0],
            throughput_per_s=np.tile([1.0, 2.5], (6, 1)),
        ),
    )  # fmt: skip


def test_a_loop_ends_with_every_job_done_and_every_allocation_valid():
    round_, answer, seen = asked(), None, []
    for _ in range(60):
        answer = ap.solve(round_, "fft", previous=answer)
        assert ap.check(round_, answer.allocation) == []
        seen.append(len(round_.jobs))
        round_ = answer.next_round()
        if not len(round_.jobs):
            break
    assert seen == sorted(seen, reverse=True)
    assert len(round_.jobs) == 0


def test_jobs_that_stay_keep_their_gpus():
    answer = ap.solve(asked(), "fifo")
    later = answer.next_round()
    again = ap.solve(later, "fifo", previous=answer)
    held = {}
    for found, round_ in ((answer, answer.round_), (again, later)):
        where = found.allocation.placement
        for row, node, gpus in zip(where.job, where.node, where.gpus, strict=True):
            held.setdefault(str(round_.jobs.id[row]), []).append((int(node), int(gpus)))
    stayed = {
        name: places
        for name, places in held.items()
        if name in later.jobs.id[later.jobs.running].tolist() and len(places) == 2
    }
    assert stayed
    assert all(first == second for first, second in stayed.values())


def test_two_different_ends_are_refused():
    answer = ap.solve(asked(), "fifo")
    n = len(answer.round_.jobs)
    outcome = ap.Outcome(0.0, 300.0, np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
    with pytest.raises(ap.InstanceError, match=r"now_s = 600.*ends at 300"):
        answer.next_round(outcome, now_s=600.0)
