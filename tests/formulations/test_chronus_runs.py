"""Chronus carried out: what was promised is kept, nobody is dropped, and every lease is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import run
from apportion.executor.training.records import Run
from apportion.formulations.training.chronus import Chronus
from apportion.instances import Decision
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.scenario import Failure
from apportion.solver import Solver

HOUR_S = 3600.0


class Watch:
    """A decider that keeps what the jobs were told, and looks at every decision."""

    def __init__(self, policy: Chronus) -> None:
        self.inner = BoundPolicy(policy, Solver(work_limit=WORK_LIMIT))
        self.subscribes, self.reacts_to = self.inner.subscribes, self.inner.reacts_to
        self.lease_s = policy.lease_s
        self.promised: dict[int, float] = {}
        self.lost: set[int] = set()
        self.notes: list[str] = []
        self.times: list[float] = []
        self.ahead = 0

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        decision = self.inner.decide(round_, memory)
        self.times.append(round_.now_s)
        self.notes += decision.notes
        codes = round_.jobs.code.tolist()
        promised = np.asarray(decision.per_job["promised_s"]).tolist()
        for code, due in zip(codes, promised, strict=True):
            if due >= 0:
                assert self.promised.setdefault(code, due) == due
            elif code in self.promised:
                self.lost.add(code)
        self.look_at(round_, decision)
        return decision

    def look_at(self, round_: TrainingRound, decision: Decision) -> None:
        """Guaranteed and spot GPUs add up; reservations fit and are all in time."""
        plan, told = decision.allocation, decision.carry
        used = np.bincount(plan.gpu_type, weights=plan.gpus, minlength=round_.capacity.size)
        assert (used <= round_.capacity).all()
        job = np.repeat(np.arange(len(round_.jobs)), np.diff(told["offsets"]))
        future = told["lease"] * self.lease_s >= round_.now_s
        assert (told["lease"][future] < told["due"][job[future]]).all()
        key = told["kind"][job] * 10**6 + told["lease"]
        if key.size:
            load = np.bincount(key - key.min(), weights=round_.jobs.gang[job])
            for at in np.flatnonzero(load).tolist():
                kind = int((at + key.min()) // 10**6)
                assert load[at] <= round_.cluster.gpus[kind]
        now = told["lease"] == int(round_.now_s // self.lease_s)
        if not round_.now_s % self.lease_s:
            # whoever has a reservation for now runs on it, guaranteed
            sure = plan.job[plan.guaranteed]
            assert set(job[now].tolist()) <= set(sure.tolist())
        self.ahead += decision.commitments is not None and decision.commitments.job.size

    def remember(self, *told: Any) -> Any:
        return self.inner.remember(*told)

    def react(self, *told: Any) -> Any:
        return self.inner.react(*told)


def scenario(seed: int, n: int = 28, *, types: int = 1, **more: Any) -> Scenario:
    """Draw jobs of a few hours on 16 GPUs a type, far more than fit, two thirds with deadlines."""
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 1, 2, 3, 4, 8], n)
    work = np.exp(rng.uniform(np.log(600.0), np.log(4.0 * HOUR_S), n)).round()
    arrival = np.sort(rng.uniform(0.0, 6.0 * HOUR_S, n)).round()
    speed = np.ones((n, types)) * np.array([1.0, 0.6])[:types]
    slo = rng.random(n) < 0.67
    soft = slo & (rng.random(n) < 0.4)
    offsets, due, value = [0], list[float](), list[float]()
    for row in range(n):
        if slo[row]:
            first = arrival[row] + work[row] * rng.uniform(1.1, 2.0) + rng.uniform(0.0, HOUR_S)
            steps = ((1.0, 10.0), (1.3, 8.0), (1.6, 5.0)) if soft[row] else ((1.0, 10.0),)
            due += [arrival[row] + (first - arrival[row]) * late for late, _ in steps]
            value += [worth for _, worth in steps]
        offsets.append(len(due))
    names = ("switch", "failures", "round_s")
    options = ExecutorOptions(**{name: more.pop(name) for name in names if name in more})
    return Scenario(
        name="drawn",
        cluster=Cluster.uniform(dict(list({"a": 16, "b": 8}.items())[:types]), gpus_per_node=8),
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=gang, work=work, throughput_per_s=speed,
            arrival_s=arrival, slo=slo, deadline_offsets=offsets, deadline_s=due,
            deadline_value=value, restart_s=30.0 * (1.0 + np.log2(gang)),
        ),
        tenants=Tenants.named("all"),
        options=options,
        **more,
    )  # fmt: skip


def carried_out(asked: Scenario, policy: Chronus) -> tuple[Run, Watch]:
    watch = Watch(policy)
    done = run(asked, watch)
    # no job is ever dropped, whatever became of its deadline
    assert (done.jobs.finish_s >= 0).all(), done.stopped
    return done, watch


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sigma", ["adaptive", "minimise"])
def test_promises_are_kept_with_exact_estimates(seed: int, sigma: Any) -> None:
    done, watch = carried_out(scenario(seed), Chronus(sigma=sigma))
    assert watch.promised
    assert watch.ahead
    assert not watch.lost
    for code, due in watch.promised.items():
        assert done.jobs.finish_s[code] <= due + 1e-6


@pytest.mark.slow
def test_promises_are_kept_in_many_runs() -> None:
    for seed in range(4, 34):
        types = 1 + seed % 2
        policy = Chronus(sigma=("adaptive", "minimise", "maximise", "none")[seed % 4])
        done, watch = carried_out(scenario(seed, types=types), policy)
        assert not watch.lost
        for code, due in watch.promised.items():
            assert done.jobs.finish_s[code] <= due + 1e-6, (seed, code)


@pytest.mark.parametrize("seed", range(2))
def test_estimates_cover_the_cost_of_starts(seed: int) -> None:
    """Every start costs half a minute and more, as the source has it; promises are kept."""
    cost = SwitchCost(fixed_s=0.0, charge_start=True, charge_resume=True, charge_move=True)
    done, watch = carried_out(scenario(seed, switch=cost), Chronus())
    assert done.leases.stall_s.sum() > 0
    late = [c for c, due in watch.promised.items() if done.jobs.finish_s[c] > due + 1e-6]
    assert not late
    assert not watch.lost


def test_two_types() -> None:
    done, watch = carried_out(scenario(1, types=2), Chronus())
    assert not watch.lost
    assert all(done.jobs.finish_s[c] <= due + 1e-6 for c, due in watch.promised.items())


@pytest.mark.parametrize("placement", ["batch", "exact"])
def test_with_own_placement(placement: Any) -> None:
    done, watch = carried_out(scenario(2, n=20), Chronus(placement=placement))
    assert not watch.lost
    assert all(done.jobs.finish_s[c] <= due + 1e-6 for c, due in watch.promised.items())


def test_wrong_estimates_cost_promises_and_no_jobs() -> None:
    asked = scenario(3)
    longer = asked.jobs.work * np.where(np.arange(len(asked.jobs)) % 3 == 0, 1.8, 1.0)
    _, watch = carried_out(replace(asked, true_work=longer), Chronus())
    assert watch.lost
    assert any("as long as was estimated" in note for note in watch.notes)
    told = [note for note in watch.notes if "lost its promise" in note]
    assert len(told) >= len(watch.lost)


def test_failures_cost_promises_and_no_jobs() -> None:
    failures = (
        Failure(0, 2.0 * HOUR_S + 100.0, 5.0 * HOUR_S),
        Failure(1, 3.0 * HOUR_S, 3.1 * HOUR_S),
    )
    _, watch = carried_out(scenario(0, failures=failures), Chronus())
    assert 2.0 * HOUR_S + 100.0 in watch.times
    told = [note for note in watch.notes if "lost its promise" in note]
    assert watch.lost
    assert len(told) >= len(watch.lost)


def test_decisions_fall_on_slots_and_leases() -> None:
    _, watch = carried_out(scenario(1, n=12, round_s=600.0), Chronus(lease_s=1000.0, slot_s=400.0))
    grid = [at for at in watch.times if at % 1000.0 and at % 400.0 and at % 600.0]
    assert not grid
    assert any(at % 1000.0 == 0 for at in watch.times)
