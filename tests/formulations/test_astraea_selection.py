"""Astraea's selection against plain loops, and its optimum against every choice of jobs.

Both are written from the published rules a second time, job by job, from the raw columns: nothing
of the code under test is used but the policy itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.executor.training import check
from apportion.formulations.training.astraea import Astraea
from apportion.instances.training import Cluster, Jobs, Tenants, TrainingRound
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]
NOW, LEASE, BUCKET = 40_000.0, 900.0, 3600.0


@dataclass(frozen=True)
class Case:
    """A round with tenants, some jobs in their leases, and a past."""

    round_: TrainingRound
    memory: dict[str, Any]
    policy: Astraea

    def decide(self, **options: Any) -> Any:
        program = self.policy.compile(self.round_, self.memory, Budget.of(None))
        return program.solve(Solver(gap=0.0), Budget.of(None))


def draw(
    seed: int, *, jobs: int = 9, types: int = 1, crowded: bool = False, **options: Any
) -> Case:
    """Draw a case; ``crowded``: all jobs wait, and one or two tenants own many of them."""
    rng = np.random.default_rng(seed)
    n, u = int(rng.integers(1, jobs + 1)), int(rng.integers(1, 5))
    n, u = (jobs, (u + 1) // 2) if crowded else (n, u)
    gpus = rng.integers(2, 12 // types + 2, types)
    gang = rng.choice([1, 1, 2, 3, 4], n)
    rates = rng.choice([1.0, 2.0, 3.0], (n, types)) * (rng.random((n, types)) > 0.15)
    kinds, free = np.full(n, -1), gpus.copy()
    for j in range(n):
        kind = int(rng.integers(types))
        if rng.random() < 0.45 * (not crowded) and rates[j, kind] > 0 and gang[j] <= free[kind]:
            kinds[j] = kind
            free[kind] -= gang[j]
    on = kinds >= 0
    age = rng.choice([0.0, 60.0, 130.0, 200.0, 600.0, 900.0], n)
    ran = on | (rng.random(n) < 0.5)
    arrival = rng.integers(0, 50, n) * 600.0
    start = np.where(on, NOW - age, -1.0)
    first = np.where(ran, np.where(rng.random(n) < 0.5, arrival + 60.0, start), -1.0)
    first = np.where(ran & (first < 0), arrival, first)
    did = np.where(on, 10.0 + age, 0.0)
    round_ = TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(c) for i, c in enumerate(gpus)}),
        jobs=Jobs.of(
            id=[f"j{j}" for j in range(n)], gang=gang, work=np.full(n, 1e6),
            throughput_per_s=rates, tenant=rng.integers(0, u, n), arrival_s=arrival,
            running=on, previous_type=np.where(on, kinds, -1), held_gpus=np.where(on, gang, 0),
            lease_start_s=start, lease_end_s=np.where(on, start + LEASE, -1.0),
            first_start_s=first, work_done=did, work_in_lease=did,
            attained_gpu_s=np.where(ran, gang * 100.0, 0.0),
        ),
        now_s=NOW, duration_s=60.0,
        tenants=Tenants(
            np.array([f"t{i}" for i in range(u)]), rng.choice([1.0, 2.0, 3.0, 0.01], u),
            np.full(u, np.inf),
        ),
    )  # fmt: skip
    memory = {
        "id": round_.jobs.id, "code": round_.jobs.code,
        "executed_gpu_s": np.where(ran, rng.choice([0.0, 900.0, 1800.0, 5400.0], n), 0.0),
        "desired_gpu_s": rng.choice([900.0, 1800.0, 3600.0], n),
        "last_run_s": np.where(on, NOW, NOW - rng.choice([60.0, 3000.0, 22_000.0][: 2 if crowded else 3], n)),
        "tenant": round_.tenants.id,
        "served_gpu_s": rng.choice([0.0, 900.0, 1800.0, 3600.0], (u, 24)),
        "tenant_desired_gpu_s": np.full((u, 24), 3600.0),
        "entitled_gpu_s": rng.choice([1800.0, 3600.0, 9000.0], (u, 24)),
        "newest": math.ceil(NOW / BUCKET) - 1, "bucket_s": BUCKET,
        "ended_gang": np.zeros(0, int), "ended_bin": np.zeros(0, int),
        "ended_count": np.zeros(0, int),
    }  # fmt: skip
    given = {
        "lease_s": LEASE, "block_scheduling": bool(rng.random() < 0.5),
        "oversized": str(rng.choice(["borrow", "borrow", "reject"])),
    }  # fmt: skip
    return Case(round_, memory, Astraea(**(given | options)))


class Naive:
    """The rules as they are written down, one job at a time."""

    def __init__(self, case: Case) -> None:
        self.case, self.jobs = case, case.round_.jobs
        jobs, memory, policy = self.jobs, case.memory, case.policy
        weight = case.round_.tenants.weight
        total = sum(int(c) for c in case.round_.cluster.gpus)
        self.quota = [math.floor(total * float(w) / float(weight.sum()) + 1e-9) for w in weight]
        n = len(jobs)
        self.free = [int(c) for c in case.round_.cluster.gpus]
        self.used = [0] * len(self.quota)
        self.kept: dict[int, int] = {}
        for j in range(n):
            if jobs.running[j] and jobs.lease_end_s[j] > NOW:
                kind = int(jobs.previous_type[j])
                self.kept[j] = kind
                self.free[kind] -= int(jobs.gang[j])
                self.used[int(jobs.tenant[j])] += int(jobs.gang[j])
        self.level = [
            float(memory["executed_gpu_s"][j]) / float(memory["desired_gpu_s"][j]) for j in range(n)
        ]
        wait = [NOW - float(memory["last_run_s"][j]) for j in range(n)]
        self.waits, self.starved = list[int](), set[int]()
        for j in range(n):
            large = jobs.gang[j] > self.quota[int(jobs.tenant[j])]
            able = any(self.runs_on(j, i) for i in range(len(self.free)))
            if j in self.kept or not able or (large and policy.oversized == "reject"):
                continue
            self.waits.append(j)
            if not jobs.running[j] and wait[j] >= policy.starvation_s:
                self.starved.add(j)
        self.served = memory["served_gpu_s"].sum(axis=1).tolist()
        self.entitled = [
            float(memory["entitled_gpu_s"][u].sum()) + q * LEASE for u, q in enumerate(self.quota)
        ]

    def runs_on(self, j: int, i: int) -> bool:
        rate, gpus = self.jobs.throughput_per_s, self.case.round_.cluster.gpus
        return bool(rate[j, i] > 0 and self.jobs.gang[j] <= gpus[i])

    def best_type(self, j: int, free: list[int]) -> int | None:
        """The fastest with room, at equal speed the last one, else the first in the table."""
        rate, last = self.jobs.throughput_per_s, int(self.jobs.previous_type[j])
        fits = [i for i in range(len(free)) if self.runs_on(j, i) and free[i] >= self.jobs.gang[j]]
        return max(fits, key=lambda i: (rate[j, i], i == last, -i), default=None)

    def line(self, u: int) -> list[int]:
        jobs = self.jobs
        mine = [j for j in self.waits if jobs.tenant[j] == u]

        def key(j: int) -> tuple[Any, ...]:
            late = j not in self.starved
            return (late, self.level[j] if late else 0.0, jobs.arrival_s[j], jobs.code[j])

        return sorted(mine, key=key)

    def budgets(self) -> list[int]:
        free, used, served = list(self.free), list(self.used), list(self.served)
        left = {u: self.line(u) for u in range(len(self.quota))}
        out = [0] * len(self.quota)
        while sum(free) > 0 and any(left.values()):
            some = [u for u in left if left[u]]

            def part(u: int) -> float:
                return used[u] / self.quota[u] if self.quota[u] else math.inf

            def ratio(u: int) -> float:
                return served[u] / self.entitled[u] if self.entitled[u] else math.inf

            who = min(some, key=lambda u: (part(u), u))
            if part(who) >= 0.2:
                who = min(some, key=lambda u: (ratio(u), u))
            j = left[who].pop(0)
            kind = self.best_type(j, free)
            if kind is None:
                continue
            gang = int(self.jobs.gang[j])
            free[kind] -= gang
            out[who] += gang
            used[who] += gang
            served[who] += gang * LEASE
        return out

    def delay(self, j: int) -> bool:
        jobs, policy = self.jobs, self.case.policy
        ran = NOW - jobs.lease_start_s[j]
        first = jobs.first_start_s[j] == jobs.lease_start_s[j]
        return bool(ran < policy.delay_s and (not first or ran >= policy.first_delay_s))

    def select(self) -> tuple[dict[int, int], set[int]]:
        jobs, free = self.jobs, list(self.free)
        started, stopped, budget = dict[int, int](), set[int](), self.budgets()

        def ratio(u: int) -> float:
            return self.served[u] / self.entitled[u] if self.entitled[u] else math.inf

        for u in sorted(range(len(self.quota)), key=lambda u: (ratio(u), u)):
            for j in self.line(u):
                gang = int(jobs.gang[j])
                never = jobs.first_start_s[j] < 0 and jobs.attained_gpu_s[j] == 0
                if never and gang > budget[u]:
                    victims = [
                        v for v in self.kept
                        if jobs.tenant[v] == u and v not in stopped and self.delay(v)
                    ]  # fmt: skip
                    victims.sort(key=lambda v: (-self.level[v], jobs.code[v]))
                    for count in range(1, len(victims) + 1):
                        after, more = list(free), 0
                        for v in victims[:count]:
                            after[self.kept[v]] += int(jobs.gang[v])
                            more += int(jobs.gang[v])
                        if budget[u] + more >= gang and self.best_type(j, after) is not None:
                            stopped |= set(victims[:count])
                            free, budget[u] = after, budget[u] + more
                            break
                kind = self.best_type(j, free) if gang <= budget[u] else None
                if kind is not None:
                    started[j] = kind
                    free[kind] -= gang
                    budget[u] -= gang
                elif self.case.policy.block_scheduling or j in self.starved:
                    break
        return started, stopped

    def ratios(self, chosen: set[int]) -> list[float]:
        """Sorted ratios of the tenants with a quota and somebody to choose from."""
        out = list[float]()
        for u in sorted({int(self.jobs.tenant[j]) for j in self.free_to_choose()}):
            more = sum(int(self.jobs.gang[j]) for j in chosen if self.jobs.tenant[j] == u)
            if self.entitled[u] > 0:
                out.append((self.served[u] + LEASE * more) / self.entitled[u])
        return sorted(out)

    def forced(self) -> dict[int, int]:
        free, out = list(self.free), dict[int, int]()
        for j in sorted(self.starved, key=lambda j: (self.jobs.arrival_s[j], self.jobs.code[j])):
            kind = self.best_type(j, free)
            if kind is not None:
                out[j] = kind
                free[kind] -= int(self.jobs.gang[j])
        return out

    def free_to_choose(self) -> list[int]:
        left = list(self.free)
        for j, kind in self.forced().items():
            left[kind] -= int(self.jobs.gang[j])
        return [
            j for j in self.waits
            if j not in self.starved and self.best_type(j, left) is not None
        ]  # fmt: skip

    def best_ratios(self) -> tuple[list[float], int]:
        """The largest sorted vector over every choice of jobs and types, and then most GPUs."""
        forced, some = self.forced(), self.free_to_choose()
        left = list(self.free)
        for j, kind in forced.items():
            left[kind] -= int(self.jobs.gang[j])
        best: tuple[list[float], int] = ([], -1)
        for places in itertools.product(range(-1, len(left)), repeat=len(some)):
            load = [0] * len(left)
            good = True
            for j, kind in zip(some, places, strict=True):
                if kind >= 0:
                    load[kind] += int(self.jobs.gang[j])
                    good &= self.runs_on(j, kind)
            good &= all(a <= b for a, b in zip(load, left, strict=True))
            chosen = {j for j, kind in zip(some, places, strict=True) if kind >= 0}
            if not good or not self.in_order(chosen, some):
                continue
            # ratios of one choice are compared as numbers rounded far below a GPU's worth
            vector = [round(r, 12) for r in self.ratios(chosen | set(forced))]
            best = max(best, (vector, sum(load)))
        return best

    def in_order(self, chosen: set[int], some: list[int]) -> bool:
        jobs = self.jobs
        for j in chosen:
            for i in some:
                same = jobs.tenant[i] == jobs.tenant[j] and i not in chosen
                wider = all(
                    self.runs_on(i, kind) or not self.runs_on(j, kind)
                    for kind in range(len(self.free))
                )
                before = self.level[i] < self.level[j] and jobs.gang[i] <= jobs.gang[j]
                if same and wider and before:
                    return False
        return True


def runs(decision: Any) -> dict[int, int]:
    plan = decision.allocation
    return dict(zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True))


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("seed", CASES)
def test_two_phases_equal_a_plain_loop(seed: int, types: int) -> None:
    case = draw(seed, jobs=14, types=types)
    decision, naive = case.decide(), Naive(case)
    started, stopped = naive.select()
    kept = {j: kind for j, kind in naive.kept.items() if j not in stopped}
    assert runs(decision) == kept | started
    plan, jobs = decision.allocation, case.round_.jobs
    assert set(plan.lost_job.tolist()) == stopped
    assert plan.lost_work.tolist() == jobs.work_in_lease[plan.lost_job].tolist()
    ends = dict(zip(plan.job.tolist(), plan.lease_end_s.tolist(), strict=True))
    for j, end in ends.items():
        assert end == (NOW + LEASE if j in started else jobs.lease_end_s[j])
    assert not check(case.round_, plan)


@pytest.mark.quick
def test_cases_reach_every_rule() -> None:
    """What the loop is compared on: stopped jobs, starved ones, blocked lines, borrowers."""
    seen = dict.fromkeys(("stopped", "starved", "blocked", "borrowed", "rejected"), 0)
    for seed in range(SOME):
        for types in (1, 2):
            case = draw(seed, jobs=14, types=types)
            naive = Naive(case)
            started, stopped = naive.select()
            seen["stopped"] += bool(stopped)
            seen["starved"] += bool(naive.starved & set(started))
            gang, owner = case.round_.jobs.gang, case.round_.jobs.tenant
            granted = naive.budgets()
            for u, quota in enumerate(naive.quota):
                own = sum(int(gang[j]) for j in started if owner[j] == u)
                seen["blocked"] += own < granted[u]
                seen["borrowed"] += naive.used[u] + own > quota
            large = case.round_.jobs.gang > np.array(naive.quota)[owner]
            seen["rejected"] += bool(large.any()) and case.policy.oversized == "reject"
    assert min(seen.values()) >= 2, seen


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("seed", CASES)
def test_optimum_equals_every_choice(seed: int, types: int, crowded: bool) -> None:
    case = draw(seed, jobs=9 if types == 1 else 6, types=types, crowded=crowded, method="milp")
    decision, naive = case.decide(), Naive(case)
    assert decision.status == "OPTIMAL"
    assert not check(case.round_, decision.allocation)
    assert not decision.allocation.lost_job.size
    chosen = set(runs(decision)) - set(naive.kept)
    assert set(naive.forced()) <= chosen
    assert naive.in_order(chosen - naive.starved, naive.free_to_choose())
    best, gpus = naive.best_ratios()
    found = naive.ratios(chosen)
    assert found == pytest.approx(best, rel=1e-9, abs=1e-12)
    own = sum(int(case.round_.jobs.gang[j]) for j in chosen - set(naive.forced()))
    assert own == gpus
    if best:
        assert decision.objective == pytest.approx(best[0], rel=1e-9)
        assert decision.bound == pytest.approx(best[0], rel=1e-6)
        assert decision.gap == pytest.approx(0.0, abs=1e-6)


@pytest.mark.quick
def test_starved_jobs_are_exempt_from_the_order() -> None:
    """Quota 4, 4 GPUs free, a starved job of 4 with LTGF 1 and another of 1 with LTGF 0."""
    jobs = Jobs.of(
        id=["starved", "other"], gang=[4, 1], work=[1e6, 1e6], throughput_per_s=[[1.0], [1.0]],
        first_start_s=[0.0, -1.0], attained_gpu_s=[400.0, 0.0],
    )  # fmt: skip
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 4}), jobs=jobs, now_s=NOW,
        tenants=Tenants(np.array(["t0"]), np.ones(1), np.full(1, np.inf)),
    )  # fmt: skip
    memory = {
        "id": jobs.id, "code": jobs.code, "executed_gpu_s": np.array([400.0, 0.0]),
        "desired_gpu_s": np.array([400.0, 400.0]), "last_run_s": np.array([0.0, NOW]),
        "tenant": np.array(["t0"]), "served_gpu_s": np.zeros((1, 24)),
        "tenant_desired_gpu_s": np.zeros((1, 24)), "entitled_gpu_s": np.zeros((1, 24)),
        "newest": 11, "bucket_s": 3600.0, "ended_gang": np.zeros(0, int),
        "ended_bin": np.zeros(0, int), "ended_count": np.zeros(0, int),
    }  # fmt: skip
    for method in ("two-phase", "milp"):
        case = Case(round_, memory, Astraea(method=method))
        assert runs(case.decide()) == {0: 0}


@pytest.mark.quick
def test_an_optimum_can_be_verified() -> None:
    """What the model proves last is how many GPUs are in use; the answer tells the least ratio."""
    for seed in range(8):
        round_ = draw(seed, jobs=9, crowded=True).round_
        answer = ap.solve(round_, Astraea(method="milp"))
        assert answer.status == "OPTIMAL"
        assert ap.verify(answer, round_).faults == ()


@pytest.mark.quick
def test_without_time_the_two_phases_answer() -> None:
    case = draw(3, method="milp")
    program = case.policy.compile(case.round_, case.memory, Budget.of(None))
    late = Budget.of(1e-9)
    while late.left_s() > 0:
        pass
    decision = program.solve(Solver(), late)
    assert decision.time_limited
    assert decision.status == "HEURISTIC"
    assert decision.allocation == program.incumbent().allocation


@pytest.mark.quick
def test_a_search_that_fails_is_not_called_a_plan() -> None:
    class Silent(Solver):
        def solve(self, model: Any, **options: Any) -> Any:
            found = Solver(gap=0.0).solve(model, budget=Budget.of(None))
            return type(found)(
                status=type(found.status).NO_SOLUTION, point=None, objectives=(), bounds=(),
                backend="none", elapsed_s=0.0, message="gave up",
            )  # fmt: skip

    case = next(
        case for case in (draw(seed, method="milp") for seed in range(20))
        if case.policy.compile(case.round_, case.memory, Budget.of(None)).model is not None
    )  # fmt: skip
    program = case.policy.compile(case.round_, case.memory, Budget.of(None))
    decision = program.solve(Silent(), Budget.of(None))
    assert decision.status == "NO_SOLUTION"
    assert (decision.bound, decision.gap) == (None, None)
    assert "gave up" in decision.notes[0]
    assert decision.allocation == program.incumbent().allocation


@pytest.mark.parametrize("seed", CASES)
def test_work_is_conserved_where_lines_do_not_block(seed: int) -> None:
    """On one type, with nobody starved, no waiting job fits the GPUs that are left."""
    case = draw(seed, jobs=14, block_scheduling=False, starvation_s=1e9, delay_s=0.0)
    decision, naive = case.decide(), Naive(case)
    gang = case.round_.jobs.gang
    left = naive.free[0] - sum(int(gang[j]) for j in set(runs(decision)) - set(naive.kept))
    waiting = [j for j in naive.waits if j not in runs(decision)]
    assert all(gang[j] > left for j in waiting)


@pytest.mark.parametrize("seed", CASES)
def test_scaled_weights_and_renamed_jobs_change_nothing(seed: int) -> None:
    case = draw(seed, jobs=14, types=1 + seed % 2)
    tenants = case.round_.tenants
    scaled = Tenants(tenants.id, tenants.weight * 1024.0, tenants.quota_gpus)
    other = TrainingRound(
        cluster=case.round_.cluster, jobs=case.round_.jobs, now_s=NOW, duration_s=60.0,
        tenants=scaled,
    )  # fmt: skip
    moved = Case(other, case.memory, case.policy)
    assert moved.decide().allocation == case.decide().allocation


POLICIES = [
    Astraea(), Astraea(lease_s=900.0, block_scheduling=False), Astraea(order="class"),
    Astraea(method="milp"), Astraea(oversized="reject"), Astraea(exempt_gpus=1),
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{at}-{name}")
        for at, policy in enumerate(POLICIES)
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
