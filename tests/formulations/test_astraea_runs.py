"""Astraea over whole runs: its memory against the executor's records, leases, starvation, fairness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import Run, run
from apportion.formulations.training.astraea import Astraea, job_ltgf
from apportion.instances.policy import Decision
from apportion.instances.training import (
    Allocation,
    Cluster,
    ExecutorOptions,
    Jobs,
    Outcome,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Solver

HOUR, BUCKET, BUCKETS = 3600.0, 3600.0, 24


class Watched(BoundPolicy):
    """A policy that keeps its rounds, decisions and memories."""

    def __init__(self, policy: Astraea) -> None:
        super().__init__(policy, Solver())
        object.__setattr__(self, "seen", [])

    def remember(self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any) -> Any:
        after = super().remember(memory, round_, decision, outcome)
        self.seen.append((round_, decision, outcome, after))
        return after


def scenario(
    seed: int = 0, n: int = 60, *, gpus: int = 16, weights: tuple[float, ...] = (4.0, 3.0, 1.0),
    length: float = 6 * HOUR, round_s: float = 300.0, mean: float = 2500.0, **options: Any,
) -> Scenario:  # fmt: skip
    rng = np.random.default_rng(seed)
    u = len(weights)
    return Scenario(
        name="tenants", cluster=Cluster.uniform({"only": gpus}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=rng.choice([1, 1, 2, 4, 8], n),
            work=rng.exponential(mean, n).round() + 60.0, tenant=rng.integers(0, u, n),
            throughput_per_s=np.ones((n, 1)),
            arrival_s=np.sort(rng.uniform(0.0, length, n)).round(),
        ),
        tenants=Tenants(
            np.array([f"t{i}" for i in range(u)]), np.array(weights), np.full(u, np.inf)
        ),
        options=ExecutorOptions(round_s=round_s, **options),
    )  # fmt: skip


def quota_of(case: Scenario) -> list[int]:
    weight, gpus = case.tenants.weight, int(case.cluster.gpus.sum())
    return [math.floor(gpus * w / weight.sum() + 1e-9) for w in weight.tolist()]


class Ledger:
    """Service added up from the records and the rounds, interval by interval, job by job."""

    def __init__(self, case: Scenario, done: Run, seen: list[Any]) -> None:
        self.case, self.done = case, done
        self.executed = dict.fromkeys(case.jobs.id.tolist(), 0.0)
        self.desired = dict.fromkeys(case.jobs.id.tolist(), 0.0)
        u = case.tenants.id.size
        self.served = [dict[int, float]() for _ in range(u)]
        self.wanted = [dict[int, float]() for _ in range(u)]
        self.known = set[str]()
        for round_, _, outcome, _ in seen:
            self.add(round_, outcome.start_s, outcome.end_s)

    def overlap(self, row: int, start: float, end: float) -> float:
        """GPU-seconds that a job held in an interval, from the lease records."""
        leases = self.done.leases
        mine = leases.job == row
        inside = np.minimum(leases.end_s, end) - np.maximum(leases.start_s, start)
        return float((np.maximum(inside, 0.0) * leases.gpus)[mine].sum())

    def add(self, round_: TrainingRound, start: float, end: float) -> None:
        jobs, quota = self.case.jobs, quota_of(self.case)
        names = round_.jobs.id.tolist()
        rows = {name: int(name[1:]) for name in names}
        for u, limit in enumerate(quota):
            mine = [name for name in names if jobs.tenant[rows[name]] == u]
            asked = 0.0
            for name in mine:
                row = rows[name]
                gang = int(jobs.gang[row])
                rate = min(gang, limit / len(mine))
                ends = float(self.done.jobs.finish_s[row])
                until = ends if 0 <= ends <= end else end
                if name not in self.known:
                    self.desired[name] += rate * (start - float(jobs.arrival_s[row]))
                    self.known.add(name)
                self.desired[name] += rate * (until - start)
                self.executed[name] += self.overlap(row, start, end)
                asked += gang * (until - start)
            served = sum(self.overlap(rows[name], start, end) for name in mine)
            for bucket in range(int(start // BUCKET), math.ceil(end / BUCKET)):
                part = min(end, (bucket + 1) * BUCKET) - max(start, bucket * BUCKET)
                share = part / (end - start)
                for book, amount in (
                    (self.served[u], served), (self.wanted[u], min(asked, limit * (end - start))),
                ):  # fmt: skip
                    book[bucket] = book.get(bucket, 0.0) + amount * share


@pytest.mark.quick
@pytest.mark.parametrize("lease_s", [900.0, 1000.0])
def test_memory_is_what_the_records_add_up_to(lease_s: float) -> None:
    case = scenario(n=50)
    watch = Watched(Astraea(lease_s=lease_s, delay_s=0.0))
    done = run(case, watch)
    ledger = Ledger(case, done, watch.seen)
    round_, _, outcome, memory = watch.seen[len(watch.seen) * 2 // 3]
    half = Ledger(case, done, watch.seen[: len(watch.seen) * 2 // 3 + 1])
    names = memory["id"].tolist()
    assert names, "nobody is left to compare"
    executed = [half.executed[name] for name in names]
    assert memory["executed_gpu_s"].tolist() == pytest.approx(executed, rel=1e-9, abs=1e-6)
    desired = [half.desired[name] for name in names]
    assert memory["desired_gpu_s"].tolist() == pytest.approx(desired, rel=1e-9, abs=1e-6)
    for ends, (at_s, kept) in (
        (half, (outcome.end_s, memory)), (ledger, (watch.seen[-1][2].end_s, watch.seen[-1][3])),
    ):  # fmt: skip
        newest = math.ceil(at_s / BUCKET) - 1
        assert kept["newest"] == newest
        for u in range(3):
            for table, book in (
                ("served_gpu_s", ends.served),
                ("tenant_desired_gpu_s", ends.wanted),
            ):
                window = [book[u].get(b, 0.0) for b in range(newest - BUCKETS + 1, newest + 1)]
                assert kept[table][u].tolist() == pytest.approx(window, rel=1e-9, abs=1e-6)
    assert (done.jobs.finish_s >= 0).all()
    assert round_.jobs.id.size > 1


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(6))
def test_invariants_over_a_run(seed: int) -> None:
    lease_s = (900.0, 1000.0, 1800.0)[seed % 3]
    case = scenario(seed, n=70)
    watch = Watched(Astraea(lease_s=lease_s, block_scheduling=seed % 2 == 0))
    done = run(case, watch)
    quota = np.array(quota_of(case))
    assert quota.sum() <= 16
    assert (done.jobs.finish_s >= 0).all()
    for round_, decision, outcome, memory in watch.seen:
        plan = decision.allocation
        assert plan.gpus.sum() <= 16
        assert (plan.lease_end_s <= round_.now_s + lease_s).all()
        desired, executed = memory["desired_gpu_s"], memory["executed_gpu_s"]
        assert (desired >= 0).all()
        assert (executed >= 0).all()
        row = {name: at for at, name in enumerate(round_.jobs.id.tolist())}
        at = [row[name] for name in memory["id"].tolist()]
        alive = outcome.end_s - round_.jobs.arrival_s[at]
        assert (desired <= round_.jobs.gang[at] * alive * (1 + 1e-12)).all()
        window = min(outcome.end_s - watch.seen[0][0].now_s, BUCKETS * BUCKET)
        wanted = memory["tenant_desired_gpu_s"].sum(axis=1)
        assert (wanted <= quota * window * (1 + 1e-12)).all()
    # a lease never outlasts its length: at its end somebody decided
    leases, at = done.leases, np.array([round_.now_s for round_, *_ in watch.seen])
    for start, end in zip(leases.start_s.tolist(), leases.end_s.tolist(), strict=True):
        inside = at[(at >= start) & (at < end)]
        assert np.diff(np.append(inside, end)).max() <= lease_s + 1e-6
    whole = case.jobs.gang[leases.job]
    assert (leases.gpus == whole).all()


def waits(done: Run) -> np.ndarray:
    """Longest stretch without GPUs of each job, from its arrival to its end."""
    jobs, leases = done.scenario.jobs, done.leases
    out = np.zeros(len(jobs))
    for row in range(len(jobs)):
        mine = np.flatnonzero(leases.job == row)
        mine = mine[np.argsort(leases.start_s[mine])]
        ends = np.append(jobs.arrival_s[row], leases.end_s[mine])[: mine.size]
        out[row] = (leases.start_s[mine] - ends).max(initial=0.0)
    return out


@pytest.mark.quick
def test_the_starved_are_served_before_the_others_of_their_tenant() -> None:
    """A gang of the whole quota and a stream of small jobs, each newer and less served."""
    n, lease = 60, 900.0
    case = Scenario(
        name="stream", cluster=Cluster.uniform({"only": 4}),
        jobs=Jobs.of(
            id=["big", *(f"s{j}" for j in range(n))], gang=[4] + [1] * n,
            work=[1800.0] + [1800.0] * n, tenant=[0] * (n + 1), throughput_per_s=np.ones((n + 1, 1)),
            arrival_s=[0.0, *(450.0 * j for j in range(n))],
        ),
        tenants=Tenants.named("t"), options=ExecutorOptions(round_s=300.0),
    )  # fmt: skip
    options: dict[str, Any] = {"lease_s": lease, "block_scheduling": False}
    first_wait = {}
    for limit in (3600.0, 1e9):
        watch = Watched(Astraea(starvation_s=limit, **options))
        done = run(case, watch)
        assert (done.jobs.finish_s >= 0).all()
        first_wait[limit] = waits(done)[0]
        for round_, decision, _, _ in watch.seen:
            jobs = round_.jobs
            big = jobs.id == "big"
            idle = ~jobs.running[big] if big.any() else np.array([False])
            started = decision.allocation.lease_end_s == round_.now_s + lease
            if idle.any() and limit < 1e9:
                since = waiting_since(done, 0, round_.now_s)
                if round_.now_s - since >= limit:
                    # nobody new until the gang has its GPUs
                    names = jobs.id[decision.allocation.job[started]].tolist()
                    assert names in ([], ["big"])
    assert first_wait[3600.0] <= 3600.0 + lease + 300.0
    assert first_wait[1e9] > 2 * 3600.0


def waiting_since(done: Run, row: int, now: float) -> float:
    leases = done.leases
    ends = leases.end_s[(leases.job == row) & (leases.end_s <= now)]
    return float(ends.max(initial=float(done.scenario.jobs.arrival_s[row])))


@pytest.mark.quick
def test_equal_tenants_with_equal_jobs_converge() -> None:
    """Two tenants, three endless gangs of 2 each, 6 GPUs: a quota of 3 cannot be used whole."""
    lease, n = 900.0, 6
    case = Scenario(
        name="twins", cluster=Cluster.uniform({"only": 6}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=[2] * n, work=[1e9] * n,
            tenant=[0, 0, 0, 1, 1, 1], throughput_per_s=np.ones((n, 1)),
        ),
        tenants=Tenants.named("a", "b"),
        options=ExecutorOptions(round_s=300.0, until_s=24 * HOUR),
    )  # fmt: skip
    watch = Watched(Astraea(lease_s=lease))
    run(case, watch)
    spread = list[tuple[float, float]]()
    for _, _, outcome, memory in watch.seen:
        served = memory["served_gpu_s"].sum(axis=1)
        wanted = memory["tenant_desired_gpu_s"].sum(axis=1)
        level = served / wanted
        # one lease of all GPUs is the most that can separate them
        assert abs(level[0] - level[1]) <= 6 * lease / wanted.min() + 1e-9
        spread.append((outcome.end_s, abs(level[0] - level[1])))
    late = [gap for end, gap in spread if end > 12 * HOUR]
    early = [gap for end, gap in spread if end < 2 * HOUR]
    assert max(late) < 0.03 < max(early)
    jobs = job_ltgf(memory["executed_gpu_s"], memory["desired_gpu_s"])
    assert np.ptp(jobs) < 0.03


@pytest.mark.quick
def test_a_tenant_alone_within_its_quota_is_at_one_exactly() -> None:
    case = scenario(3, n=12, gpus=64, weights=(1.0,), length=2 * HOUR)
    watch = Watched(Astraea())
    run(case, watch)
    for *_, memory in watch.seen:
        served = memory["served_gpu_s"].sum(axis=1)
        assert served == pytest.approx(memory["tenant_desired_gpu_s"].sum(axis=1), rel=1e-12)


@pytest.mark.quick
def test_a_stopped_delay_job_loses_exactly_its_time_in_the_lease() -> None:
    """Ticks of 60 s. A resumed gang of 4 has just begun when a job that never ran arrives."""
    jobs = Jobs.of(
        id=["old", "new"], gang=[4, 4], work=[9e5, 9e5], throughput_per_s=[[2.0], [2.0]],
        arrival_s=[0.0, 9900.0], running=[True, False], previous_type=[0, -1], held_gpus=[4, 0],
        first_start_s=[0.0, -1.0], lease_start_s=[9800.0, -1.0], lease_end_s=[10_700.0, -1.0],
        attained_gpu_s=[4 * 900.0, 0.0], work_done=[1800.0, 0.0], work_in_lease=[250.0, 0.0],
    )  # fmt: skip
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 4}), jobs=jobs, now_s=9960.0, duration_s=60.0,
        tenants=Tenants.named("t"),
    )  # fmt: skip
    policy = Astraea(lease_s=900.0)
    decision = BoundPolicy(policy, Solver()).decide(round_, None)
    assert decision.allocation.job.tolist() == [1]
    assert decision.allocation.lost_job.tolist() == [0]
    assert decision.allocation.lost_work.tolist() == [250.0]
    outcome = Outcome(
        9960.0, 10_020.0, np.array([-250.0, 120.0]), np.array([0.0, 240.0]), np.zeros(2, bool)
    )
    memory = policy.remember(None, round_, decision, outcome)
    assert memory["executed_gpu_s"].tolist() == [4 * 900.0 - 4 * 160.0, 240.0]
    # a job in its first lease is left alone for its first two minutes
    first = Jobs.of(
        id=["old", "new"], gang=[4, 4], work=[9e5, 9e5], throughput_per_s=[[2.0], [2.0]],
        running=[True, False], previous_type=[0, -1], held_gpus=[4, 0],
        first_start_s=[9900.0, -1.0], lease_start_s=[9900.0, -1.0], lease_end_s=[10_800.0, -1.0],
    )  # fmt: skip
    kept = TrainingRound(
        cluster=Cluster.uniform({"only": 4}), jobs=first, now_s=9960.0, duration_s=60.0
    )
    assert BoundPolicy(policy, Solver()).decide(kept, None).allocation.job.tolist() == [0]
    settled = TrainingRound(
        cluster=Cluster.uniform({"only": 4}), jobs=first, now_s=10_020.0, duration_s=60.0
    )
    assert BoundPolicy(policy, Solver()).decide(settled, None).allocation.job.tolist() == [1]


@pytest.mark.quick
def test_delay_jobs_are_stopped_in_a_run_with_short_ticks() -> None:
    """What the executor takes back is what the policy said, and all jobs end."""
    case = scenario(5, n=40, gpus=8, weights=(1.0,), round_s=60.0, length=HOUR)
    watch = Watched(Astraea(lease_s=900.0))
    done = run(case, watch)
    lost = sum(decision.allocation.lost_job.size for _, decision, _, _ in watch.seen)
    assert lost > 0
    assert (done.leases.lost_work > 0).sum() > 0
    assert (done.jobs.finish_s >= 0).all()


@pytest.mark.quick
@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("round_s", [60.0, 300.0, 700.0])
def test_rounds_are_skipped_only_where_nothing_could_be_decided(
    block: bool, round_s: float
) -> None:
    """Asked again at every skipped boundary, it would have changed nothing."""
    case = scenario(7, n=60, round_s=round_s, length=4 * HOUR, mean=6000.0)
    policy = Astraea(lease_s=1800.0, block_scheduling=block)
    skipped = 0
    watch = Watched(policy)
    run(case, watch)
    for round_, decision, outcome, _ in watch.seen[:-1]:
        now = round_.now_s + round_s
        if decision.next_decision_s is None or outcome.end_s <= now:
            continue
        skipped += 1
        later = shifted(round_, decision.allocation, now)
        held = np.zeros(len(round_.jobs))
        held[decision.allocation.job] = decision.allocation.gpus
        partial = type(outcome)(
            round_.now_s, now, np.zeros(held.size), held * round_s, np.zeros(held.size, bool)
        )
        between = policy.remember(memory_before(watch, round_), round_, decision, partial)
        again = BoundPolicy(policy, Solver()).decide(later, between)
        assert again.allocation.job.tolist() == decision.allocation.job.tolist()
        assert again.allocation.lease_end_s.tolist() == decision.allocation.lease_end_s.tolist()
    assert skipped > 3


def memory_before(watch: Watched, round_: TrainingRound) -> Any:
    at = next(i for i, entry in enumerate(watch.seen) if entry[0] is round_)
    return watch.seen[at - 1][3] if at else None


def shifted(round_: TrainingRound, plan: Allocation, now: float) -> TrainingRound:
    """The same round one boundary later, with the plan carried out and nothing else happened."""
    jobs, n = round_.jobs, len(round_.jobs)
    runs, held, kind, end = np.zeros(n, bool), np.zeros(n, int), jobs.previous_type.copy(), None
    runs[plan.job], held[plan.job], kind[plan.job] = True, plan.gpus, plan.gpu_type
    end = np.full(n, -1.0)
    end[plan.job] = plan.lease_end_s
    begun = jobs.running & runs & (jobs.lease_end_s > round_.now_s)
    start = np.where(runs, np.where(begun, jobs.lease_start_s, round_.now_s), -1.0)
    first = np.where(runs & (jobs.first_start_s < 0), round_.now_s, jobs.first_start_s)
    gpu_s = jobs.attained_gpu_s + held * (now - round_.now_s)
    return TrainingRound(
        cluster=round_.cluster, now_s=now, duration_s=round_.duration_s, tenants=round_.tenants,
        jobs=Jobs.of(
            id=jobs.id, gang=jobs.gang, work=jobs.work, throughput_per_s=jobs.throughput_per_s,
            tenant=jobs.tenant, arrival_s=jobs.arrival_s, code=jobs.code, running=runs,
            previous_type=kind, held_gpus=held, lease_start_s=start, lease_end_s=end,
            first_start_s=first, attained_gpu_s=gpu_s,
        ),
    )  # fmt: skip


@pytest.mark.quick
def test_large_jobs_may_be_exempt_from_leases() -> None:
    case = scenario(2, n=30, length=HOUR)
    done = run(case, Watched(Astraea(lease_s=900.0, exempt_gpus=2)))
    large = case.jobs.gang > 2
    assert large.any()
    assert done.jobs.preemptions[large].sum() == 0
    assert done.jobs.preemptions[~large].sum() > 0


@pytest.mark.quick
def test_oversized_jobs_are_rejected_or_borrow() -> None:
    case = scenario(4, n=40, weights=(4.0, 3.0, 1.0))
    large = case.jobs.gang > np.array(quota_of(case))[case.jobs.tenant]
    assert large.any()
    borrow = run(case, Watched(Astraea()))
    assert (borrow.jobs.finish_s >= 0).all()
    reject = run(case, Watched(Astraea(oversized="reject")))
    assert ((reject.jobs.finish_s < 0) == large).all()


@pytest.mark.slow
def test_the_optimum_runs_a_whole_scenario_too() -> None:
    case = scenario(6, n=40, length=2 * HOUR)
    watch = Watched(Astraea(method="milp", lease_s=900.0))
    done = run(case, watch)
    assert (done.jobs.finish_s >= 0).all()
    assert {decision.status for _, decision, _, _ in watch.seen} == {"OPTIMAL"}
