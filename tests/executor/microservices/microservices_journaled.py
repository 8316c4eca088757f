"""A microservice run with a journal, in a process of its own that a test can kill.

usage: python microservices_journaled.py FOLDER SECONDS_FOR_EACH_DECISION SIMULATOR
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import fields

import numpy as np

from apportion.executor.microservices import run
from apportion.instances import Decision
from apportion.instances.microservices import (
    Allocation,
    CallClasses,
    CallTrees,
    ExecutorOptions,
    MicroserviceRound,
    Microservices,
    Nodes,
    Scenario,
    Services,
)
from apportion.instances.microservices.laws import least_admissible


def scenario(simulator="monte-carlo", rounds=14, **options):
    rng = np.random.default_rng(3)
    start = MicroserviceRound(
        microservices=Microservices.of(
            ["A", "B", "C"], [0.6, 0.5, 0.8], [-0.02, -0.1, -0.01], shift_ms=0.3,
            least_containers=1, most_containers=40,
        ),
        services=Services.of(["s", "t"], [100.0, 30.0], [14.0, 20.0], [0.05, 0.01], [0.0, 0.002]),
        classes=CallClasses.of(
            ["S", "C", "T"], CallTrees.serial([[1, 1, 0], [0, 1, 1], [0, 1, 2]]),
            share=[0.9, 0.1, 0.998], service=[0, 0, 1],
        ),
        containers=[8, 6, 6], nodes=Nodes.of(["n"], [30.0], [80_000.0]),
        duration_s=60.0 if simulator == "monte-carlo" else 12.0,
    )  # fmt: skip
    wave = np.sin(np.arange(rounds) / 2.0)
    heavy = rng.uniform(0.05, 0.2, rounds)
    return Scenario(
        name="journaled", start=start,
        rate_per_s=np.column_stack([100.0 + 40.0 * wave, 30.0 - 10.0 * wave]),
        share=np.column_stack([1.0 - heavy, heavy, np.full(rounds, 0.998)]), seed=7,
        options=ExecutorOptions(
            **{"simulator": simulator, "requests": 4000, "robust": True, **options}
        ),
    )  # fmt: skip


class Wandering:
    """Decides by its memory: a number that every outcome changes, so a lost one would show."""

    subscribes = frozenset()
    reacts_to = frozenset()

    def __init__(self, wait_s=0.0):
        self.wait_s, self.asked, self.seen = wait_s, 0, []

    def decide(self, round_, memory):
        time.sleep(self.wait_s)
        self.asked += 1
        self.seen.append(round_)
        state = 0 if memory is None else memory["state"]
        more = [state % 3, state % 4, state % 5]
        counts = np.clip(least_admissible(round_) + 1 + more, 1, 40)
        placed = counts[:, None] if state % 2 else None
        rank = [state % 2, 0, 1] if state % 3 == 0 else None
        return Decision(
            Allocation.of(counts, [False, False], rank=rank, placement=placed),
            objective=float(state), notes=("noted",) * (state % 3), carry={"state": state},
            gap=0.5 if state % 2 else None,
        )  # fmt: skip

    def remember(self, memory, round_, decision, outcome):
        told = decision.carry["state"] + int(outcome.violations.sum() * 1e6)
        return {"state": (told + int(outcome.class_requests.sum())) % 1009}

    def react(self, plan, event, view):
        return None, plan


def digest(done):
    out = hashlib.sha256()
    for table in (done.rounds, done.services, done.microservices, done.classes):
        for field in fields(table):
            column = getattr(table, field.name)
            out.update(f"{field.name}{column.dtype}{column.shape}".encode() + column.tobytes())
    return out.hexdigest()


if __name__ == "__main__":
    folder, wait, simulator = sys.argv[1:]
    run(
        scenario(simulator), Wandering(float(wait)), policy="wandering", journal=folder,
    )  # fmt: skip
