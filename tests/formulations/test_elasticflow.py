"""ElasticFlow: minimum satisfactory shares by enumeration, admission by a plain loop, runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.baselines.deadlines import choices_of
from apportion.formulations.training.peers.elasticflow import ElasticFlow
from apportion.formulations.training.peers.elasticflow_plan import (
    Asked,
    Levels,
    admit,
    least_share,
    levels_of,
)
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]
SLOT_S = 100.0
Table = dict[int, float]
"""Speed by GPUs."""
CONCAVE: Table = {1: 1.0, 2: 1.5, 4: 2.0}


def jobs_of(
    gang: list[int], work: list[float], due: list[float | None], tables: list[Table | None],
    **columns: Any,
) -> Jobs:  # fmt: skip
    n = len(gang)
    given = [[*own.items()] if own else [] for own in tables]
    flat = [entry for own in given for entry in own]
    base = {
        "throughput_per_s": [[own[gang[j]] if (own := tables[j]) else 1.0] for j in range(n)],
        "arrival_s": np.zeros(n), "slo": [at is not None for at in due],
        "min_gpus": [min(own) if (own := tables[j]) else gang[j] for j in range(n)],
        "max_gpus": [max(own) if (own := tables[j]) else gang[j] for j in range(n)],
        "config_offsets": np.cumsum([0, *map(len, given)]),
        "config_gpus": [entry[0] for entry in flat], "config_type": [0 for _ in flat],
        "config_throughput_per_s": [entry[1] for entry in flat],
        "deadline_offsets": np.cumsum([0, *(int(at is not None) for at in due)]),
        "deadline_s": [at for at in due if at is not None],
        "deadline_value": [1.0 for at in due if at is not None],
    }  # fmt: skip
    ids = [f"j{row}" for row in range(n)]
    return Jobs.of(id=ids, gang=gang, work=work, **base | columns)


def round_of(jobs: Jobs, gpus: int, **more: Any) -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs, duration_s=SLOT_S, **more
    )


def decide(policy: ElasticFlow, round_: TrainingRound, memory: Any = None) -> Any:
    return policy.compile(round_, memory, Budget.of(None)).solve(Solver(), Budget.of(None))


def gpus_of(round_: TrainingRound, decision: Any) -> dict[str, int]:
    plan = decision.allocation
    return dict(zip(round_.jobs.id[plan.job].tolist(), plan.gpus.tolist(), strict=True))


# ---------------------------------------------------------------- minimum satisfactory shares


@pytest.mark.quick
@pytest.mark.parametrize(
    ("work", "due", "share"),
    [(300.0, 3.0, 1), (300.0, 2.0, 2), (400.0, 2.0, 4), (400.0, 1.99, 0), (301.0, 2.0, 4),
     (200.0, 1.0, 4), (100.0, 1.0, 1)],
)  # fmt: skip
def test_the_least_cap_that_is_in_time(work: float, due: float, share: int) -> None:
    """Speeds 1, 1.5 and 2 with 1, 2 and 4 GPUs: work 400 by the end of two slots needs four."""
    jobs = jobs_of([1], [work], [due * SLOT_S], [CONCAVE])
    found = decide(ElasticFlow(scale_up=False), round_of(jobs, 4))
    assert found.per_job["least_share"].tolist() == [share]
    assert gpus_of(round_of(jobs, 4), found) == {"j0": max(share, 1)}


def enumerated(free: list[int], table: Table, work: int, due: Fraction) -> int | None:
    """Least cap for which some choice of GPUs in every slot does the work in time."""
    best = None
    for cap in sorted(table):
        ways = [[0, *(g for g in table if g <= min(cap, room))] for room in free]
        for way in itertools.product(*ways):
            left = Fraction(work)
            for slot, gpus in enumerate(way):
                rate = Fraction(table[gpus]) if gpus else Fraction(0)
                if rate and left <= rate:
                    if slot + left / rate <= due and best is None:
                        best = cap
                    break
                left -= rate
    return best


@pytest.mark.parametrize("seed", CASES)
def test_shares_against_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        slots = int(rng.integers(1, 5))
        free = rng.integers(0, 9, slots)
        counts = np.sort(rng.choice([1, 2, 3, 4, 8], int(rng.integers(1, 4)), replace=False))
        # speeds that may fall with more GPUs
        table = {int(g): float(rng.integers(1, 9)) for g in counts}
        work, due = int(rng.integers(1, 20)), Fraction(int(rng.integers(1, 4 * slots + 1)), 4)
        kept = [g for g in table if all(table[g] > table[h] for h in table if h < g)]
        levels = Levels(0, np.array([0, *kept]), np.array([0.0, *(table[g] for g in kept)]))
        found = least_share(free, levels, float(work), float(due))
        assert (found.most if found else None) == enumerated(free.tolist(), table, work, due)
        if found:
            assert (found.use <= free[: found.use.size]).all()
            assert set(found.use.tolist()) <= {0, *table}
            assert sum(table.get(int(g), 0.0) for g in found.use) >= work


@pytest.mark.quick
def test_levels_are_powers_of_two_and_the_gang_without_those_that_are_no_faster() -> None:
    table: Table = {1: 1.0, 2: 0.9, 3: 2.0, 4: 2.5, 6: 9.0, 8: 2.5}
    jobs = jobs_of([3, 2], [1.0, 1.0], [None, None], [table, None])
    round_ = round_of(jobs, 8)
    rows = np.array([1, 0])
    rigid, elastic = levels_of(choices_of(round_), jobs.gang, rows, SLOT_S)
    assert [level.gpus.tolist() for level in rigid] == [[0, 2]]
    assert [level.gpus.tolist() for level in elastic] == [[0, 1, 3, 4]]
    assert elastic[0].rate.tolist() == [0.0, 100.0, 200.0, 250.0]


# ---------------------------------------------------------------- admission


@pytest.mark.quick
def test_a_newcomer_that_would_push_another_out_is_rejected_for_good() -> None:
    jobs = jobs_of([2, 2, 1, 2], [100.0, 100.0, 100.0, 50.0], [200.0, 200.0, 200.0, None],
                   [None] * 4, arrival_s=[-3.0, -2.0, -1.0, -4.0])  # fmt: skip
    round_ = round_of(jobs, 2)
    found = decide(ElasticFlow(), round_)
    assert found.per_job["admitted"].tolist() == [True, True, False, False]
    assert gpus_of(round_, found) == {"j0": 2}
    memory = ElasticFlow().remember(None, round_, found, None)
    # the first one has gone, so that there would be room: still best effort
    later = Jobs.of(
        id=["j1", "j2"], gang=[2, 1], work=[100.0, 100.0], throughput_per_s=np.ones((2, 1)),
        slo=[True, True], deadline_offsets=[0, 1, 2], deadline_s=[200.0, 200.0],
        deadline_value=[1.0, 1.0],
    )  # fmt: skip
    again = decide(ElasticFlow(), round_of(later, 2), memory)
    assert again.per_job["admitted"].tolist() == [True, False]
    fresh = decide(ElasticFlow(), round_of(later, 2))
    assert fresh.per_job["admitted"].tolist() == [True, True]


@pytest.mark.quick
def test_without_plans_left_a_newcomer_waits_to_be_decided() -> None:
    """The second fits only if the first, due later, gives way: that needs a plan anew."""
    jobs = jobs_of([2, 2], [100.0, 100.0], [200.0, 100.0], [None] * 2, arrival_s=[-2.0, -1.0])
    round_ = round_of(jobs, 2)
    none = decide(ElasticFlow(searches=0), round_)
    assert none.per_job["admitted"].tolist() == [True, False]
    assert none.carry["id"].tolist() == ["j0"]
    one = decide(ElasticFlow(searches=10), round_)
    assert one.per_job["admitted"].tolist() == [True, True]
    assert gpus_of(round_, one) == {"j1": 2}
    assert decide(ElasticFlow(searches=10), round_, none.carry).per_job["admitted"].all()


def shares(
    tables: list[Table], work: list[int], due: list[Fraction], free: list[int], members: list[int]
) -> dict[int, int | None]:
    """Shares in order of deadline (the order of rows), slot by slot with exact numbers."""
    left, out = list(free), dict[int, int | None]()
    for job in members:
        out[job] = None
        for cap in sorted(tables[job]):
            rest, use, end = Fraction(work[job]), [], None
            for slot, room in enumerate(left):
                fits = [g for g in tables[job] if g <= min(cap, room)]
                gpus = max(fits, key=lambda g: (tables[job][g], -g), default=0)
                rate = Fraction(tables[job][gpus]) if gpus else Fraction(0)
                use.append(gpus)
                if rate and rest <= rate:
                    end = slot + rest / rate
                    break
                rest -= rate
            if end is not None and end <= due[job]:
                out[job] = cap
                for slot, gpus in enumerate(use):
                    left[slot] -= gpus
                break
    return out


@pytest.mark.parametrize("seed", CASES)
def test_admission_against_a_plain_loop(seed: int) -> None:
    """Every newcomer in turn: in if all that were in before keep a share, whatever the shortcut."""
    rng = np.random.default_rng(seed)
    m, slots = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    free = [int(rng.integers(1, 7))] * slots
    tables: list[Table] = []
    for _ in range(m):
        counts = np.sort(rng.choice([1, 2, 4], int(rng.integers(1, 4)), replace=False))
        tables.append({int(g): float(i + rng.integers(1, 3) + i) for i, g in enumerate(counts)})
    work = rng.integers(1, 8, m).tolist()
    due = sorted(Fraction(int(at), 2) for at in rng.integers(1, 2 * slots + 1, m))
    order = rng.permutation(m)
    accepted: list[int] = []
    for job in order.tolist():
        before = shares(tables, work, due, free, sorted(accepted))
        after = shares(tables, work, due, free, sorted([*accepted, job]))
        if after[job] and all(after[one] for one in accepted if before[one]):
            accepted.append(job)
    asked = Asked(
        [[_pareto(own)] for own in tables], np.array(work, dtype=float),
        np.array([float(at) for at in due]),
    )  # fmt: skip
    state = admit(asked, np.array([free]), np.zeros(m, dtype=bool), order, searches=10_000)
    plan, took, refused = state.plan, state.accepted, state.rejected
    assert np.flatnonzero(took).tolist() == sorted(accepted)
    assert (took ^ refused).all()
    final = shares(tables, work, due, free, sorted(accepted))
    assert {job: plan.share[job].most for job in accepted} == final  # pyright: ignore
    assert (plan.free >= 0).all()


def _pareto(table: Table) -> Levels:
    kept = [g for g in table if all(table[g] > table[h] for h in table if h < g)]
    return Levels(0, np.array([0, *kept]), np.array([0.0, *(table[g] for g in kept)]))


# ---------------------------------------------------------------- idle GPUs


@pytest.mark.quick
def test_idle_gpus_go_where_they_save_most() -> None:
    """A is due in time with one GPU; from 1 to 2 A loses 1/3 of its GPU time, B nothing.

    A: 300 work at 1, 1.5: GPU time 300, then 400. B, best effort: 300 at 1, 2, then 2.5 with 4:
    300, 300, 480, that is 90 more for each of two GPUs. One idle GPU goes to B. Three go to B, then
    to B again, since A's 100 for one is more than B's 90.
    """
    linear = {1: 1.0, 2: 2.0, 4: 2.5}
    jobs = jobs_of([1, 1], [300.0, 300.0], [300.0, None], [CONCAVE, linear])
    for gpus, expected in ((3, (1, 2)), (5, (1, 4)), (4, (2, 2)), (6, (2, 4)), (8, (4, 4))):
        round_ = round_of(jobs, gpus)
        found = decide(ElasticFlow(), round_)
        assert gpus_of(round_, found) == dict(zip(("j0", "j1"), expected, strict=True))
        assert not check(round_, found.allocation)
    idle = decide(ElasticFlow(scale_up=False), round_of(jobs, 8))
    assert gpus_of(round_of(jobs, 8), idle) == {"j0": 1, "j1": 1}


@pytest.mark.quick
def test_of_those_that_begin_later_the_earlier_deadline_goes_first() -> None:
    """Five GPUs: A holds 4 for a slot; B and C of 2 could not start beside it, D and E of 1 can."""
    jobs = jobs_of([4, 2, 2, 1, 1], [100.0, 300.0, 300.0, 50.0, 50.0],
                   [100.0, 900.0, 800.0, 950.0, 900.0], [None] * 5,
                   arrival_s=[-9.0, -8.0, -7.0, -6.0, -5.0])  # fmt: skip
    found = decide(ElasticFlow(), round_of(jobs, 5))
    assert found.per_job["admitted"].all()
    assert gpus_of(round_of(jobs, 5), found) == {"j0": 4, "j4": 1}


@pytest.mark.quick
def test_admitted_jobs_that_come_later_and_best_effort_take_what_is_idle_first() -> None:
    jobs = jobs_of([2, 2, 1, 1], [100.0, 200.0, 50.0, 50.0], [100.0, 400.0, None, None],
                   [None] * 4, arrival_s=[0.0, 0.0, -1.0, -2.0])  # fmt: skip
    assert gpus_of(round_of(jobs, 3), decide(ElasticFlow(), round_of(jobs, 3))) == {
        "j0": 2, "j3": 1,
    }  # fmt: skip
    assert gpus_of(round_of(jobs, 4), decide(ElasticFlow(), round_of(jobs, 4))) == {
        "j0": 2, "j1": 2,
    }  # fmt: skip


# ---------------------------------------------------------------- runs


def scenario(jobs: Jobs, gpus: int) -> Scenario:
    return Scenario(
        name="elasticflow", cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=SLOT_S),
    )  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(("due", "ends"), [(150.0, [500.0, 150.0]), (149.9, [300.0, 450.0])])
def test_a_deadline_inside_a_slot_is_met_to_the_second(due: float, ends: list[float]) -> None:
    """A job of 150 s that is due after 150 s, beside best effort that came first, on one GPU."""
    jobs = jobs_of([1, 1], [300.0, 150.0], [None, due], [None, None], arrival_s=[-1.0, 0.0])
    found = run(scenario(jobs, 1), BoundPolicy(ElasticFlow(), Solver())).jobs.finish_s.tolist()
    # GPUs are given anew at the end of a slot, so that what ends inside one leaves its rest idle
    assert found == ends


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(5))
def test_admitted_jobs_of_one_gpu_are_in_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    arrival = np.sort(rng.integers(0, 20, n)) * SLOT_S
    work = rng.integers(1, 8, n) * SLOT_S
    due = [float(a + w * f) if f else None for a, w, f in zip(
        arrival, work, rng.choice([0.0, 1.0, 1.5, 3.0], n), strict=True
    )]  # fmt: skip
    jobs = jobs_of([1] * n, work.tolist(), due, [None] * n, arrival_s=arrival)
    admitted: set[str] = set()
    refused = 0

    class Watch(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            nonlocal refused
            found = super().decide(round_, memory)
            assert not check(round_, found.allocation)
            admitted.update(round_.jobs.id[found.per_job["admitted"]].tolist())
            refused = max(refused, int((~found.carry["admitted"]).sum()))
            return found

    ends = run(scenario(jobs, 4), Watch(ElasticFlow(searches=10_000), Solver())).jobs.finish_s
    for row, at in enumerate(due):
        if str(jobs.id[row]) in admitted:
            assert at is not None
            assert ends[row] <= at + 1e-6
    assert len(admitted) >= 5
    assert refused


@pytest.mark.quick
def test_an_elastic_run_obeys_every_rule() -> None:
    rng = np.random.default_rng(4)
    n = 40
    arrival = np.sort(rng.uniform(0, 3000, n)).round()
    work = rng.uniform(100.0, 1500.0, n).round()
    due = [float(a + w * f) if f else None for a, w, f in zip(
        arrival, work, rng.choice([0.0, 0.6, 1.0, 3.0], n), strict=True
    )]  # fmt: skip
    tables: list[Table | None] = [CONCAVE if rng.random() < 0.7 else None for _ in range(n)]
    gang = [int(rng.choice([1, 2])) for _ in range(n)]
    jobs = jobs_of(gang, work.tolist(), due, tables, arrival_s=arrival)
    seen: set[int] = set()

    class Watch(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            found = super().decide(round_, memory)
            assert not check(round_, found.allocation)
            seen.update(found.allocation.gpus.tolist())
            return found

    ends = run(scenario(jobs, 8), Watch(ElasticFlow(), Solver())).jobs.finish_s
    assert (ends > 0).all()
    assert seen == {1, 2, 4}


@pytest.mark.quick
def test_deadlines_beyond_the_plan_make_slots_longer() -> None:
    jobs = jobs_of([1, 1], [100.0, 5000.0], [150.0, 10_000.0], [None, None])
    found = decide(ElasticFlow(slots=10), round_of(jobs, 1))
    # one slot is ten rounds: the first job is in time, the second after it
    assert found.per_job["admitted"].tolist() == [True, True]
    assert found.allocation.job.tolist() == [0]


# ---------------------------------------------------------------- bad input, battery


@pytest.mark.quick
@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"slots": 1.5}, {"searches": -1}, {"searches": True}, {"scale_up": 1}],
    ids=str,
)  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InstanceError, match=rf"elasticflow\.{next(iter(wrong))} = "):
        ElasticFlow(**wrong)


@pytest.mark.quick
@pytest.mark.parametrize(
    "bad", [{}, 3, [], {"id": np.array(["a"])}, {"id": np.array(["a"]), "admitted": np.zeros(2)}]
)
def test_a_memory_of_somebody_else_is_refused(bad: Any) -> None:
    with pytest.raises(InstanceError, match="memory"):
        ElasticFlow().compile(
            round_of(jobs_of([1], [1.0], [None], [None]), 1), bad, Budget.of(None)
        )


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [pytest.param(judge, id=name) for name, judge in policy_checks(ElasticFlow())],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
