"""What always holds of Chronus' plans, to the lease, and what bad input is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.leases import LeaseJobs, plan_leases
from apportion.instances import Decision, InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver

LEASE_S = 1200.0
EXACT = Chronus(overhead_s=0.0, safety=1.0, round_up=False)

Job = tuple[int, float, Sequence[tuple[float, float]]]
"""Gang, seconds of work, and pairs of deadline in seconds and value."""


def round_of(gpus: int, jobs: Sequence[Job], now_s: float = 0.0, **more: Any) -> TrainingRound:
    n, counts = len(jobs), [len(options) for *_, options in jobs]
    columns: dict[str, Any] = {"arrival_s": [now_s] * n} | more
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}, gpus_per_node=8), now_s=now_s,
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=[gang for gang, *_ in jobs],
            work=[work for _, work, _ in jobs], throughput_per_s=np.ones((n, 1)),
            slo=[count > 0 for count in counts],
            deadline_offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            deadline_s=[due for *_, options in jobs for due, _ in options],
            deadline_value=[value for *_, options in jobs for _, value in options], **columns,
        ),
    )  # fmt: skip


def decide(policy: Chronus, round_: TrainingRound, memory: Any = None) -> Decision:
    budget = Budget.of(None)
    found = policy.compile(round_, memory, budget).solve(Solver(gap=0.0), budget)
    assert not check(round_, found.allocation)
    return found


def drawn(seed: int, policy: Chronus, *, scale: int = 1) -> tuple[TrainingRound, int]:
    """A dozen jobs on 8 to 24 GPUs at a boundary, and the lease that begins."""
    rng = np.random.default_rng([51, seed])
    first, lease_s = int(rng.integers(0, 5)), policy.lease_s
    now_s, jobs = first * lease_s, list[Job]()
    for _ in range(12 * scale):
        work_s = float(rng.uniform(0.2, 4.0) * lease_s)
        due = now_s + work_s * rng.uniform(1.0, 3.0) + rng.uniform(0.0, 2.0) * lease_s
        options = [(float(due * late), value) for late, value in ((1.0, 10.0), (1.3, 5.0))]
        kept = options[: int(rng.choice([0, 1, 1, 2]))]
        jobs.append((int(rng.choice([1, 2, 3, 4, 5, 8])), work_s, kept))
    return round_of(8 * int(rng.integers(1, 4)), jobs, now_s), first


def leases_of(found: Decision) -> list[list[int]]:
    cuts = np.split(found.carry["lease"], found.carry["offsets"][1:-1])
    return [own.tolist() for own in cuts]


# ---------------------------------------------------------------------- plans


CHARGED = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8}
"""What gangs are charged for on nodes of 8, as published."""


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sigma", ["minimise", "maximise", "none"])
def test_reservations_fit_and_are_as_many_as_needed(seed: int, sigma: Any) -> None:
    """By the published formula, job by job: charges in each lease, leases, and the last of them."""
    policy = Chronus(sigma=sigma, counter_offer="none")
    round_, first = drawn(seed, policy)
    found, jobs = decide(policy, round_), round_.jobs
    used: dict[int, int] = {}
    accepted = np.asarray(found.per_job["state"]) == "ACCEPTED_SLO"
    for row, own in enumerate(leases_of(found)):
        gang, work_s = int(jobs.gang[row]), float(jobs.work[row])
        estimate = 1.1 * work_s * (1.0 + 0.5 * (1.0 + np.log2(gang)) / 20.0)
        assert len(own) == (ceil(estimate / LEASE_S - 1e-6) if accepted[row] else 0)
        for lease in own:
            used[lease] = used.get(lease, 0) + CHARGED[gang]
            assert first <= lease
            assert (lease + 1) * LEASE_S <= found.per_job["promised_s"][row] + 1e-6
    assert max(used.values(), default=0) <= int(round_.capacity[0])
    # guaranteed and spot GPUs are those in service at most
    plan = found.allocation
    sure = int(plan.gpus[plan.guaranteed].sum())
    spot = int(plan.gpus[~plan.guaranteed].sum())
    assert sure + spot <= int(round_.capacity[0])
    # nobody waits who fits beside them
    free = int(round_.capacity[0]) - sure - spot
    waits = np.setdiff1d(np.arange(len(jobs)), plan.job)
    assert not (jobs.gang[waits] <= free).any()


@pytest.mark.parametrize("seed", range(20))
def test_the_cached_plan_moved_on_by_a_lease_is_a_plan(seed: int) -> None:
    """Boundary by boundary: nobody loses a promise, and leases are given back as they are run."""
    policy = Chronus(counter_offer="none", sigma=("adaptive", "minimise")[seed % 2])
    round_, first = drawn(seed, policy)
    found = decide(policy, round_)
    promised = np.asarray(found.per_job["promised_s"])
    memory = found.carry
    for step in (1, 2, 3):
        ran = [row for row, own in enumerate(leases_of(found)) if first + step - 1 in own]
        done = round_.jobs.work_done.copy()
        done[ran] = np.minimum(done[ran] + LEASE_S, round_.jobs.work[ran] * (1.0 - 1e-9))
        jobs = round_.jobs.take(np.arange(len(round_.jobs)), {"work_done": done})
        round_ = replace(round_, now_s=(first + step) * LEASE_S, jobs=jobs)
        found = decide(policy, round_, memory)
        assert np.asarray(found.per_job["promised_s"]).tolist() == promised.tolist()
        assert not any("lost its promise" in note for note in found.notes)
        memory = found.carry


@pytest.mark.parametrize("seed", range(20))
def test_names_and_order_of_rows_change_nothing(seed: int) -> None:
    """With different arrivals the order of admission is that of time, wherever rows stand."""
    policy = Chronus(counter_offer="none")
    round_, _ = drawn(seed, policy)
    n = len(round_.jobs)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    arrival = round_.now_s - np.arange(n, dtype=float)[::-1]
    jobs = round_.jobs.take(np.arange(n), {"arrival_s": arrival})
    one = decide(policy, replace(round_, jobs=jobs))
    two = decide(policy, replace(round_, jobs=jobs.take(order)))
    assert np.asarray(two.per_job["promised_s"]).tolist() == (
        np.asarray(one.per_job["promised_s"])[order].tolist()
    )
    assert two.objective == pytest.approx(one.objective)


@pytest.mark.parametrize("seed", range(60))
def test_the_model_is_never_worse_than_the_greedy_plan(seed: int) -> None:
    """Admitted jobs first, then their value: what greedy does is one of the model's plans."""
    rng = np.random.default_rng([52, seed])
    n, horizon = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    gang, need = rng.integers(1, 4, n), rng.integers(1, horizon + 1, n)
    options = list[list[tuple[int, float]]]()
    for _ in range(n):
        dues = sorted(rng.permutation(np.arange(1, horizon + 1))[: int(rng.integers(1, 3))])
        options.append([(int(due), worth) for due, worth in zip(dues, (10.0, 4.0), strict=False)])
    capacity = rng.integers(1, 6, horizon)
    admitted, value = greedy(gang.tolist(), need.tolist(), options, capacity.copy())
    found = plan_leases(
        LeaseJobs.soft(gang, need, options), capacity, solver=Solver(gap=0.0),
        budget=Budget.of(None), order=("admitted", "value"),
    )  # fmt: skip
    assert found.admitted >= admitted
    if found.admitted == admitted:
        assert found.value >= value - 1e-9
    # what greedy can do altogether the model can do too
    if admitted == n:
        assert found.admitted == n


def greedy(
    gang: list[int], need: list[int], options: list[list[tuple[int, float]]], free: Any
) -> tuple[int, float]:
    """The published fallback: by value, then gang, then slack; into the latest leases that fit."""
    order = sorted(
        range(len(gang)),
        key=lambda row: (-options[row][0][1], -gang[row], options[row][0][0] - need[row]),
    )
    admitted, value = 0, 0.0
    for row in order:
        for due, worth in options[row]:
            open_ = [lease for lease in range(due) if free[lease] >= gang[row]]
            if len(open_) >= need[row]:
                free[open_[len(open_) - need[row] :]] -= gang[row]
                admitted, value = admitted + 1, value + worth
                break
    return admitted, value


# ---------------------------------------------------------------------- to the lease


@pytest.mark.parametrize("lease_s", [1200.0, 0.75, 1e6 + 0.125])
def test_leases_before_a_deadline_by_fractions(lease_s: float) -> None:
    """One job alone: promised if and only if floor(due / L) - ceil(now / L) leases are enough."""
    policy = replace(EXACT, lease_s=lease_s, slot_s=lease_s / 4, counter_offer="none")
    length, rng = Fraction(lease_s), np.random.default_rng(53)
    for _ in range(60):
        now = Fraction(int(rng.integers(0, 9)), int(rng.choice([1, 1, 4, 8]))) * length
        due = now + Fraction(int(rng.integers(1, 33)), 8) * length
        due += int(rng.choice([-1, 0, 0, 1])) * length / 64
        need = int(rng.integers(1, 4))
        asked = round_of(1, [(1, need * lease_s, [(float(due), 10.0)])], float(now))
        told = decide(policy, asked).per_job["state"][0]
        there = floor(due / length) - ceil(now / length)
        assert (told == "ACCEPTED_SLO") == (there >= need), (now, due, need)


def test_lengths_that_floats_do_not_hold() -> None:
    """Multiples of a third of a day are boundaries, although their products are rounded."""
    lease_s = 28_800.1
    policy = replace(EXACT, lease_s=lease_s, slot_s=3600.0, counter_offer="none")
    for first in (0, 3, 7, 31):
        for need in (1, 3):
            asked = round_of(
                1, [(1, need * lease_s, [((first + need) * lease_s, 10.0)])], first * lease_s
            )
            found = decide(policy, asked)
            assert found.per_job["state"][0] == "ACCEPTED_SLO"
            assert leases_of(found) == [list(range(first, first + need))]
            early = round_of(
                1, [(1, need * lease_s, [((first + need) * lease_s - 0.01, 10.0)])],
                first * lease_s,
            )  # fmt: skip
            assert decide(policy, early).per_job["state"][0] != "ACCEPTED_SLO"


@pytest.mark.parametrize(("late_s", "accepted"), [(0.0, True), (-1.0, False)])
def test_the_last_reserved_lease_ends_on_the_deadline(late_s: float, accepted: bool) -> None:
    """Carried out: three leases of work that begin at the second boundary end with the fourth."""
    scenario = Scenario(
        name="edge", cluster=Cluster.uniform({"GPU": 2}), tenants=Tenants.named("all"),
        options=ExecutorOptions(round_s=300.0),
        jobs=Jobs.of(
            id=["edge", "wall"], gang=[2, 2], work=[3 * LEASE_S, 1200.0],
            throughput_per_s=[[1.0], [1.0]], arrival_s=[600.0, 0.0], slo=[True, False],
            deadline_offsets=[0, 1, 1], deadline_s=[4 * LEASE_S + late_s], deadline_value=[10.0],
            preemptible=[True, False],
        ),
    )  # fmt: skip
    done = run(scenario, BoundPolicy(EXACT, Solver(work_limit=WORK_LIMIT)))
    assert done.jobs.finish_s[0] == 4 * LEASE_S
    asked = round_of(2, [(2, 3 * LEASE_S, [(4 * LEASE_S + late_s, 10.0)])], 600.0)
    assert (decide(EXACT, asked).per_job["state"][0] == "ACCEPTED_SLO") is accepted


# ---------------------------------------------------------------------- bad input


@pytest.mark.quick
def test_a_deadline_before_the_submission_is_an_error() -> None:
    with pytest.raises(InstanceError, match=r"jobs.deadline_s\[0\] = 500.0 \(job 'j0'\)"):
        round_of(1, [(1, 60.0, [(500.0, 10.0)])], 600.0)


@pytest.mark.quick
def test_values_that_rise_with_lateness_are_an_error() -> None:
    with pytest.raises(InstanceError, match=r"jobs.deadline_value\[1\] = 9.0 \(job 'j0'\)"):
        round_of(1, [(1, 60.0, [(500.0, 8.0), (900.0, 9.0)])])


@pytest.mark.parametrize(
    ("lease_s", "told"),
    [(86_400.0, "it needs 1 whole leases, 0 lie before its deadline"), (1200.0, "negative slack")],
)
def test_leases_beyond_every_deadline_reject_with_a_note(lease_s: float, told: str) -> None:
    """Nothing can be promised by leases of a day to a job that is due in an hour; it runs at once."""
    work_s = 3000.0 if lease_s > 1200.0 else 4000.0
    policy = replace(EXACT, lease_s=lease_s)
    asked = round_of(1, [(1, work_s, [(3600.0, 10.0)])], 1.0, arrival_s=[0.0])
    found = decide(policy, asked)
    assert any(told in note for note in found.notes), found.notes
    assert found.per_job["state"][0] == ("UNACCEPTED_SLO" if lease_s > 1200.0 else "LOWEST")
    assert found.allocation.job.tolist() == [0]


def test_late_jobs_are_rejected_at_arrival_and_not_dropped() -> None:
    """A minute of slack too little, and a deadline that is over: both run on what is left."""
    asked = round_of(
        2, [(1, 3600.0, [(3540.0, 10.0)]), (1, 60.0, [(1000.0, 10.0)])], 1200.0,
        arrival_s=[0.0, 0.0],
    )  # fmt: skip
    found = decide(EXACT, asked)
    assert found.per_job["state"].tolist() == ["LOWEST", "LOWEST"]
    assert sum("negative slack" in note for note in found.notes) == 2
    assert found.allocation.job.tolist() == [0, 1]
