"""Long-term GPU-time fairness: by hand, beside finish-time fairness, and against time-stepping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training.records import JobRecords, LeaseRecords, Run
from apportion.instances.training import Cluster, Jobs, Scenario, Tenants
from apportion.results import (
    job_ltgf,
    job_outcomes,
    tenant_fairness,
    tenant_ltgf,
    training_metrics,
)
from apportion.results.ltgf import _quotient, quotas
from apportion.results.range_sums import sums_below

Build = Callable[..., Run]


@dataclass(frozen=True)
class Job:
    """One job: who owns it, when it is there, and when it runs; finish -1 = still there."""

    gang: int
    arrival: float
    finish: float
    runs: Sequence[tuple[float, float]] = ()
    tenant: int = 0
    weight: float = 1.0
    fits: bool = True


@dataclass(frozen=True)
class World:
    """GPUs, owners and jobs of a run on one type, and when its records end."""

    gpus: int
    jobs: Sequence[Job]
    end: float
    weights: Sequence[float] = (1.0,)
    quota: Sequence[float] = field(default=())

    def run(self, build: Build) -> Run:
        n = len(self.jobs)
        plain = build(
            gpus={"t": self.gpus},
            jobs={
                "id": [f"j{at}" for at in range(n)],
                "gang": [job.gang for job in self.jobs],
                "work": [max(1.0, sum(e - s for s, e in job.runs)) for job in self.jobs],
                "throughput_per_s": [[1.0 if job.fits else 0.0] for job in self.jobs],
                "arrival_s": [job.arrival for job in self.jobs],
                "weight": [job.weight for job in self.jobs],
            },
            first_start_s=[min((s for s, _ in job.runs), default=-1.0) for job in self.jobs],
            finish_s=[job.finish for job in self.jobs],
            leases=[
                (at, start, end, 0, job.gang, 0.0, 1.0, "completed")
                for at, job in enumerate(self.jobs)
                for start, end in job.runs
            ],
            intervals=[(0.0, self.end, "HEURISTIC", np.nan, {})],
        )
        u = len(self.weights)
        tenants = Tenants(
            np.array([f"T{at + 1}" for at in range(u)]), np.array(self.weights, dtype=float),
            np.array(self.quota or [np.inf] * u, dtype=float),
        )  # fmt: skip
        owned = replace(plain.scenario.jobs, tenant=np.array([job.tenant for job in self.jobs]))
        return replace(plain, scenario=replace(plain.scenario, jobs=owned, tenants=tenants))


def of_tenants(run: Run, window_s: float = 86_400.0) -> dict[str, tuple[float, float]]:
    found = tenant_fairness(run, window_s)
    return dict(
        zip(
            found.tenant.tolist(),
            zip(found.mean.tolist(), found.loss.tolist(), strict=True),
            strict=True,
        )
    )


def test_jobs_that_differ_in_space_only(build_run: Build) -> None:
    # 4 GPUs, 2 for each of two jobs. Both run all the time, one with 1 GPU, one with 3.
    run = World(4, [Job(1, 0, 100, [(0, 100)]), Job(3, 0, 100, [(0, 100)])], 100).run(build_run)
    assert job_ltgf(run) == pytest.approx([100 / 100, 300 / 200])
    # neither waited: against the cluster alone, finish times tell them apart by nothing
    assert job_outcomes(run).ftf_exclusive == pytest.approx([1, 1])
    # against an equal share the small job has its gang all the time, the large one 2/3 of it
    assert job_outcomes(run).ftf_share == pytest.approx([1, 2 / 3])


def test_jobs_that_differ_in_time_only(build_run: Build) -> None:
    # 2 GPUs, two jobs of 2 GPUs and 100 s, one after the other.
    run = World(2, [Job(2, 0, 100, [(0, 100)]), Job(2, 0, 200, [(100, 200)])], 200).run(build_run)
    # due 1 GPU each while both are there, then 2: 100, and 100 + 200
    assert job_ltgf(run) == pytest.approx([200 / 100, 200 / 300])
    # half of the time: 200 s for the first. The second has 1.5 sharers on average: 2/3, 150 s.
    assert job_outcomes(run).ftf_share == pytest.approx([100 / 200, 200 / 150])


def test_tenants_that_differ_in_space_only(build_run: Build) -> None:
    """Example A1: two equal tenants, 8 GPUs, one hour; T1 wants 8 and has 6, T2 has the 2 it wants."""
    jobs = [
        Job(6, 0, -1, [(0, 3600)]), Job(2, 0, -1), Job(2, 0, -1, [(0, 3600)], tenant=1),
    ]  # fmt: skip
    run = World(8, jobs, 3600, (1, 1)).run(build_run)
    assert of_tenants(run) == {"T1": pytest.approx((1.5, 0)), "T2": pytest.approx((1.0, 0))}
    got = training_metrics(run)
    assert got.ltgf_tenant_loss == pytest.approx(0)
    assert got.ltgf_tenant_spread == pytest.approx(0.5)
    assert got.ltgf_tenant_jain == pytest.approx(2.5**2 / (2 * (1.5**2 + 1)))
    # T1's jobs are due 2 each: 6 of 2, 0 of 2. T2's job 2 of 2. Nobody ended: no FTF at all.
    assert job_ltgf(run) == pytest.approx([3, 0, 1])
    assert got.ftf_share_mean is None
    assert got.ltgf_fair_fraction == pytest.approx(1 / 3)
    assert got.ltgf_loss_fraction == pytest.approx(1 / 3)
    assert got.ltgf_benefit_fraction == pytest.approx(1 / 3)
    # T2 with 1 of the 2 GPUs it wants, and T1 with 4 of its quota of 4
    jobs = [
        Job(4, 0, 100, [(0, 100)]), Job(1, 0, 100, [(0, 100)], 1), Job(1, 0, -1, (), 1),
    ]  # fmt: skip
    run = World(8, jobs, 100, (1, 1)).run(build_run)
    assert of_tenants(run) == {"T1": pytest.approx((1, 0)), "T2": pytest.approx((0.5, 0.5))}
    assert training_metrics(run).ltgf_tenant_loss == pytest.approx(0.25)


def test_tenants_that_differ_in_time_only(build_run: Build) -> None:
    # 2 GPUs, 1 for each of two tenants; both want 1 at once; T2 starts 100 s late.
    jobs = [Job(1, 0, 200, [(0, 200)]), Job(1, 0, 200, [(100, 200)], tenant=1)]
    run = World(2, jobs, 200, (1, 1)).run(build_run)
    # T2 has (t - 100)/t from 100 on: the mean over 200 s is (100 - 100 ln 2)/200
    late = (100 - 100 * math.log(2)) / 200
    assert of_tenants(run) == {"T1": pytest.approx((1, 0)), "T2": pytest.approx((late, 1 - late))}
    # a window of 100 s has forgotten the wait at the end: (t - 100)/100, 50 of 200
    assert of_tenants(run, 100)["T2"] == pytest.approx((0.25, 0.75))
    assert job_ltgf(run) == pytest.approx([1, 1 / 2])
    # FTF of T2's job: 200 s for 100 s of work that an equal share gives in 100 s
    assert job_outcomes(run).ftf_share == pytest.approx([1, 2])


def test_moments(build_run: Build) -> None:
    jobs = [Job(1, 0, 200, [(0, 200)]), Job(1, 0, 200, [(100, 200)], tenant=1)]
    run = World(2, jobs, 200, (1, 1)).run(build_run)
    at = np.array([-5.0, 0.0, 50.0, 100.0, 150.0, 200.0])
    got = tenant_ltgf(run, at)
    assert got["T1"] == pytest.approx([1] * 6)
    assert got["T2"] == pytest.approx([1, 1, 0, 0, 1 / 3, 1 / 2])
    assert tenant_ltgf(run, at, 100)["T2"] == pytest.approx([1, 1, 0, 0, 1 / 2, 1])


@pytest.mark.parametrize(
    ("leases", "expected"), [(1, (2, 0)), (2, (1, 1 / 2)), (3, (2 / 3, 2 / 3))]
)
def test_jobs_that_cannot_run_together(
    build_run: Build, leases: int, expected: tuple[float, float]
) -> None:
    """Example A2: quota 4, gangs 4 and 1, served in the order 1, 2, 2."""
    runs = [[(0, 60)], [(60, 120), (120, 180)][: leases - 1]]
    run = World(4, [Job(4, 0, -1, runs[0]), Job(1, 0, -1, runs[1])], 60.0 * leases).run(build_run)
    assert job_ltgf(run) == pytest.approx(expected)


def test_a_surplus_before_a_loss_counts_once(build_run: Build) -> None:
    # 4 GPUs, quota 2. T1 has 4 for 100 s, then nothing while it wants 2: LTGF 2, then 200/t...
    jobs = [Job(4, 0, 100, [(0, 100)]), Job(2, 100, -1)]
    run = World(4, jobs, 400, (1, 1)).run(build_run)
    # ... = 400 / 2 t: 1 at t = 200; the mean of max(0, 1 - 200/t) over [200, 400] of 400 s
    loss = (200 - 200 * math.log(2)) / 400
    mean = (2 * 100 + 200 * math.log(4)) / 400
    assert of_tenants(run) == {"T1": pytest.approx((mean, loss))}


def test_time_in_which_nothing_was_due_is_left_out(build_run: Build) -> None:
    # wants 1 GPU in [100, 200) of 1000 s and gets it for the second half; window 100 s
    run = World(1, [Job(1, 100, 200, [(150, 200)])], 1000).run(build_run)
    # [100, 150): 0; [150, 200]: (t - 150)/(t - 100); [200, 250): 50 of 300 - t; [250, 300): 1
    first = 50 - 50 * math.log(2)
    second = 50 * math.log(2)
    assert of_tenants(run, 100)["T1"] == pytest.approx(
        ((first + second + 50) / 200, (200 - first - second - 50) / 200)
    )


@pytest.mark.parametrize("growth", [1e-12, 1e-3, 0.09, 0.11, 1.0, 1e3, 1e9])
def test_quotients_of_linear_functions(growth: float) -> None:
    # 3 over (2 .. 2 + growth), 5 s long, and the same backwards
    one = np.ones(1)
    exact = 15 * math.log1p(growth / 2) / growth
    for d0, d1 in ((2 * one, (2 + growth) * one), ((2 + growth) * one, 2 * one)):
        assert _quotient(5 * one, 3 * one, 3 * one, d0, d1) == pytest.approx(exact, rel=1e-12)


def test_quotas() -> None:
    tenants = Tenants(
        np.array(["a", "b", "c"]), np.array([2.0, 1.0, 1.0]), np.array([np.inf, np.inf, 7])
    )
    assert quotas(tenants, 9).tolist() == [4, 2, 7]
    third = Tenants(np.array(["a", "b", "c"]), np.full(3, 0.1), np.full(3, np.inf))
    assert quotas(third, 3).tolist() == [1, 1, 1]
    assert quotas(third, 2).tolist() == [0, 0, 0]
    # three quarters of 4 are 3, though 0.3 / (0.1 + 0.3) is a little less in floats
    parts = Tenants(np.array(["a", "b"]), np.array([0.1, 0.3]), np.full(2, np.inf))
    assert quotas(parts, 4).tolist() == [1, 3]


def test_tenants_without_a_quota_and_jobs_that_fit_nowhere_are_left_out(build_run: Build) -> None:
    jobs = [
        Job(1, 0, 10, [(0, 10)]), Job(1, 0, 10, [(0, 10)], tenant=1), Job(1, 0, -1, fits=False),
        Job(1, 5, 5, ()), Job(1, 50, -1),
    ]  # fmt: skip
    run = World(3, jobs, 10, (1, 1), (2, 0)).run(build_run)
    assert job_ltgf(run) == pytest.approx([1, np.nan, np.nan, 1, np.nan], nan_ok=True)
    assert of_tenants(run) == {"T1": pytest.approx((1, 0))}


def test_normalised_throughput(three_jobs: Run) -> None:
    # A: 200 units, slow 1 a second on 1 GPU: 200. B: 300 at 1 a second for its 2 GPUs: 600.
    # C: 100. Over 200 s.
    got = training_metrics(three_jobs)
    assert job_outcomes(three_jobs).normalised_gpu_s == pytest.approx([200, 600, 100])
    assert got.normalised_gpu_s == pytest.approx(900)
    assert got.normalised_throughput == pytest.approx(900 / 200)
    assert got.normalised_jain == pytest.approx(1)
    # A and B are one tenant's, C another's of weight 2: 800 / 170 s, and 100 / (2 x 150 s)
    tenants = Tenants(np.array(["x", "y"]), np.array([1.0, 2.0]), np.full(2, np.inf))
    owned = replace(three_jobs.scenario.jobs, tenant=np.array([0, 0, 1]))
    run = replace(three_jobs, scenario=replace(three_jobs.scenario, jobs=owned, tenants=tenants))
    a, b = 800 / 170, 100 / 300
    assert training_metrics(run).normalised_jain == pytest.approx(
        (a + b) ** 2 / (2 * (a**2 + b**2))
    )


def random_world(seed: int) -> World:
    """Whole seconds; jobs may run whenever they are there: capacity is not what is tested."""
    rng = np.random.default_rng([seed, 57])
    u, end, gpus = int(rng.integers(1, 4)), int(rng.integers(10, 40)), int(rng.integers(2, 12))
    jobs: list[Job] = []
    for _ in range(int(rng.integers(1, 8))):
        arrival = int(rng.integers(0, end - 1))
        ends = bool(rng.random() < 0.7)
        stop = int(rng.integers(arrival + 1, end + 1)) if ends else end
        cuts = np.unique(rng.integers(arrival, stop + 1, 4)).tolist()
        runs = [pair for pair in zip(cuts[::2], cuts[1::2], strict=False) if rng.random() < 0.8]
        jobs.append(
            Job(
                int(rng.integers(1, min(5, gpus) + 1)), arrival, stop if ends else -1, runs,
                int(rng.integers(0, u)), float(rng.choice([0.5, 1.0, 1.0, 3.0])),
            )
        )  # fmt: skip
    quota = [float(rng.choice([np.inf, rng.integers(0, 6)])) for _ in range(u)]
    return World(gpus, jobs, end, rng.integers(1, 4, u).tolist(), quota)


def _quota(world: World, tenant: int) -> float:
    own = world.quota[tenant]
    return own if own < np.inf else world.gpus * world.weights[tenant] // sum(world.weights)


def step_through_jobs(world: World) -> list[float]:
    due = [0.0] * len(world.jobs)
    for second in range(int(world.end)):
        there = [
            at for at, job in enumerate(world.jobs)
            if job.arrival <= second and (job.finish < 0 or second < job.finish)
        ]  # fmt: skip
        for at in there:
            job = world.jobs[at]
            all_ = sum(world.jobs[i].weight for i in there if world.jobs[i].tenant == job.tenant)
            due[at] += min(job.gang, _quota(world, job.tenant) * job.weight / all_)
    out: list[float] = []
    for at, job in enumerate(world.jobs):
        had = job.gang * sum(end - start for start, end in job.runs)
        out.append(math.nan if _quota(world, job.tenant) == 0 else had / due[at])
    return out


def step_through_tenants(world: World, tenant: int, window: int, parts: int) -> tuple[Any, Any]:
    """GPU time had and due within the window, at ``parts`` midpoints of every second."""
    end = int(world.end)
    had, due = np.zeros(end), np.zeros(end)
    for second in range(end):
        wanted = 0
        for job in world.jobs:
            if job.tenant == tenant:
                if job.arrival <= second and (job.finish < 0 or second < job.finish):
                    wanted += job.gang
                if any(start <= second < stop for start, stop in job.runs):
                    had[second] += job.gang
        due[second] = min(wanted, _quota(world, tenant))

    def total(per_second: Any, until: float) -> float:
        whole = int(until)
        rest = (until - whole) * per_second[whole] if whole < end else 0.0
        return float(per_second[:whole].sum() + rest)

    moments = [second + (part + 0.5) / parts for second in range(end) for part in range(parts)]
    both = [
        [total(one, t) - total(one, max(0.0, t - window)) for t in moments] for one in (had, due)
    ]
    return np.array(both[0]), np.array(both[1])


def judge(build: Build, seed: int, parts: int = 40) -> None:
    world = random_world(seed)
    run = world.run(build)
    assert job_ltgf(run) == pytest.approx(step_through_jobs(world), nan_ok=True, rel=1e-9)
    window = int(np.random.default_rng(seed).choice([3, 10, 100]))
    found = of_tenants(run, float(window))
    moments = np.array([(at + 0.5) / parts for at in range(int(world.end) * parts)])
    series = tenant_ltgf(run, moments, float(window))
    for tenant in range(len(world.weights)):
        name = f"T{tenant + 1}"
        had, due = step_through_tenants(world, tenant, window, parts)
        some = due > 1e-9
        if not some.any():
            assert name not in found
            continue
        ratio = np.where(some, had / np.where(some, due, 1.0), 1.0)
        assert series[name] == pytest.approx(ratio, abs=1e-7)
        mean, loss = found[name]
        assert mean == pytest.approx(ratio[some].mean(), abs=2e-3)
        assert loss == pytest.approx(np.maximum(0, 1 - ratio[some]).mean(), abs=2e-3)


@pytest.mark.parametrize("seed", range(20))
def test_stepping_through_time(build_run: Build, seed: int) -> None:
    judge(build_run, seed)


@pytest.mark.slow
def test_stepping_through_time_often(build_run: Build) -> None:
    for seed in range(20, 400):
        judge(build_run, seed)


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_low_entries(seed: int) -> None:
    rng = np.random.default_rng([seed, 58])
    m, q = int(rng.integers(0, 20)), 30
    rank = rng.permutation(m)
    values = rng.integers(-5, 6, (2, m)).astype(float)
    ends = np.sort(rng.integers(0, m + 1, (2, q)), axis=0)
    cut = rng.integers(0, m + 1, q)
    got = sums_below(rank, values, ends[0], ends[1], cut)
    for at in range(q):
        inside = [i for i in range(ends[0, at], ends[1, at]) if rank[i] < cut[at]]
        assert got[:, at].tolist() == [values[row, inside].sum() for row in range(2)]


def large_run(build: Build, n: int, leases: int) -> Run:
    rng = np.random.default_rng(0)
    arrival = np.sort(rng.uniform(0, 5e6, n))
    gang = rng.choice([1, 2, 4, 8], n)
    start = np.repeat(arrival, leases) + np.tile(np.arange(leases) * 700.0, n)
    job = np.repeat(np.arange(n), leases)
    end = start + 600.0
    finish = arrival + leases * 700.0 - 100.0
    jobs = Jobs.of(
        id=np.arange(n).astype(str), gang=gang, work=np.full(n, 600.0 * leases),
        throughput_per_s=np.ones((n, 1)), arrival_s=arrival, tenant=rng.integers(0, 15, n),
        weight=rng.uniform(0.5, 2.0, n),
    )  # fmt: skip
    tenants = Tenants.named(*(f"T{at}" for at in range(15)))
    ones, none = np.ones(n * leases), np.zeros(n * leases)
    small = World(1, [Job(1, 0, 1, [(0, 1)])], 1)
    from_hand = small.run(build)
    return replace(
        from_hand,
        scenario=Scenario("large", Cluster.uniform({"t": 1200}), jobs, tenants),
        jobs=JobRecords(
            arrival, finish, np.full(n, 600.0 * leases), gang * 600.0 * leases,
            np.zeros(n, dtype=int), np.zeros(n, dtype=int),
        ),
        leases=LeaseRecords(
            job, start, end, np.zeros_like(job), gang[job], np.ones_like(job), none, ones,
            600.0 * ones, none, np.full(n * leases, "preempted"),
        ),
    )  # fmt: skip


@pytest.mark.slow
def test_a_hundred_thousand_jobs_take_seconds(build_run: Build) -> None:
    run = large_run(build_run, 100_000, 3)
    began = time.perf_counter()
    own = job_ltgf(run)
    middle = time.perf_counter()
    found = tenant_fairness(run)
    done = time.perf_counter()
    print(f"jobs {middle - began:.2f} s, tenants {done - middle:.2f} s")
    assert np.isfinite(own).all()
    assert found.tenant.size == 15
    # far above what it takes, so that a busy machine does not fail it; an O(n^2) way would
    assert done - began < 60.0
