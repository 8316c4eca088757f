"""A run with a journal, in a process of its own that a test can kill.

usage: python journaled.py FOLDER SECONDS_FOR_EACH_DECISION
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import fields

import numpy as np

from apportion.executor.training import run
from apportion.instances import Decision
from apportion.instances.training import (
    Allocation,
    Cluster,
    Commitments,
    ExecutorOptions,
    Failure,
    Jobs,
    Scenario,
    Tenants,
)
from apportion.instances.training.laws import SwitchCost


def scenario(seed=0):
    rng = np.random.default_rng(seed)
    n = 40
    return Scenario(
        name="journaled",
        cluster=Cluster.uniform({"fast": 6, "slow": 8}, gpus_per_node=4),
        jobs=Jobs(
            id=[f"j{i}" for i in range(n)], gang=rng.integers(1, 5, n),
            work=rng.uniform(50.0, 900.0, n), throughput_per_s=rng.uniform(0.5, 2.0, (n, 2)),
            arrival_s=np.sort(rng.uniform(0.0, 3000.0, n)), state_gb=rng.uniform(0, 9, n),
        ),
        tenants=Tenants.named("all"),
        options=ExecutorOptions(
            round_s=100.0, backfill=True, switch=SwitchCost(charge_resume=True),
            failures=(Failure(1, 950.0, 1330.0),),
        ),
    )  # fmt: skip


class Wandering:
    """Decides by its memory: a number that every outcome changes, so a lost one would show."""

    subscribes = frozenset({"failure"})
    reacts_to = frozenset({"arrival"})

    def __init__(self, wait_s=0.0):
        self.wait_s, self.asked = wait_s, 0

    def decide(self, round_, memory):
        time.sleep(self.wait_s)
        self.asked += 1
        memory = memory or {"state": 1.0, "credit": {}}
        rng = np.random.default_rng(int(memory["state"] * 1e6) % 2**32)
        rows = self.pick(round_, rng.permutation(len(round_.jobs)))
        promise = Commitments.of(
            [rows[0][0]], [round_.now_s + 100], [round_.now_s + 150], [1]
        ) if rows and rng.random() < 0.2 else Commitments()  # fmt: skip
        return Decision(
            self.allocation(round_, rows, lease_s=130.0), status="FEASIBLE",
            objective=float(rng.random()), carry={"noise": rng.random(3), "n": (1, np.inf)},
            next_decision_s=None if rng.random() < 0.7 else round_.now_s + 70.0,
            commitments=promise,
        )  # fmt: skip

    def pick(self, round_, order):
        jobs, free, rows = round_.jobs, round_.capacity.tolist(), []
        for row in [*round_.commitments.job[round_.commitments.active(round_.now_s)], *order]:
            kind = int(np.argmax(jobs.throughput_per_s[row]))
            if all(row != other for other, _ in rows) and jobs.gang[row] <= free[kind]:
                free[kind] -= int(jobs.gang[row])
                rows.append((int(row), kind))
        return rows

    def allocation(self, round_, rows, lease_s):
        jobs = round_.jobs
        taken = {row for row, _ in rows}
        stopped = [r for r in np.flatnonzero(jobs.running).tolist() if r not in taken]
        return Allocation.of(
            [r for r, _ in rows], [k for _, k in rows], jobs.gang[[r for r, _ in rows]],
            lease_end_s=round_.now_s + lease_s,
            lost_job=stopped, lost_work=jobs.work_in_lease[stopped] * 0.25,
        )  # fmt: skip

    def remember(self, memory, round_, decision, outcome):
        memory = memory or {"state": 1.0}
        told = decision.carry["noise"].sum() + decision.objective
        return {"state": float(memory["state"] * 0.5 + told + outcome.work.sum() % 1.0)}

    def react(self, plan, event, view):
        if view.now_s % 2 < 1:
            return None, plan
        runs = np.flatnonzero(view.jobs.running).tolist()
        rows = [(row, int(view.jobs.previous_type[row])) for row in runs]
        return self.allocation(view, rows, lease_s=90.0), plan


def digest(done):
    """SHA-256 over every column of the records."""
    out = hashlib.sha256()
    for part in (done.jobs, done.leases, done.rounds):
        for field in fields(part):
            out.update(getattr(part, field.name).tobytes())
    return out.hexdigest()


if __name__ == "__main__":
    run(scenario(), Wandering(float(sys.argv[2])), policy="wandering", journal=sys.argv[1])
