"""GENIE: counts and allowances by hand, against a plain loop, and in runs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.baselines.genie import Genie
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
Table = dict[tuple[int, int], float]
"""Speed by GPUs and type."""


def jobs_of(
    gang: list[int], work: list[float], due: list[float | None], tables: list[Table], types: int = 1,
    **columns: Any,
) -> Jobs:  # fmt: skip
    n = len(gang)
    rate = [[tables[j].get((gang[j], k), 0.0) for k in range(types)] for j in range(n)]
    more = [[(g, k, s) for (g, k), s in own.items()] for own in tables]
    flat = [entry for own in more for entry in own]
    given = {
        "arrival_s": np.zeros(n), "slo": [at is not None for at in due],
        "min_gpus": [min(g for g, _ in own) for own in tables],
        "max_gpus": [max(g for g, _ in own) for own in tables],
        "config_offsets": np.cumsum([0, *map(len, more)]),
        "config_gpus": [entry[0] for entry in flat], "config_type": [entry[1] for entry in flat],
        "config_throughput_per_s": [entry[2] for entry in flat],
        "deadline_offsets": np.cumsum([0, *(int(at is not None) for at in due)]),
        "deadline_s": [at for at in due if at is not None],
        "deadline_value": [1.0 for at in due if at is not None],
    }  # fmt: skip
    ids = [f"j{row}" for row in range(n)]
    return Jobs.of(id=ids, gang=gang, work=work, throughput_per_s=rate, **given | columns)


def decide(policy: Genie, round_: TrainingRound) -> Any:
    return policy.compile(round_, None, Budget.of(None)).solve(Solver(), Budget.of(None))


def gpus_of(round_: TrainingRound, decision: Any) -> dict[str, int]:
    plan = decision.allocation
    return dict(zip(round_.jobs.id[plan.job].tolist(), plan.gpus.tolist(), strict=True))


LINEAR: Table = {(1, 0): 1.0, (2, 0): 2.0, (4, 0): 4.0, (8, 0): 8.0}
CONCAVE: Table = {(1, 0): 1.0, (2, 0): 1.8, (4, 0): 3.0, (8, 0): 4.0}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("table", "due", "gpus", "allowance"),
    [
        # 240 work; GPU time 240, 240 / 1.8 x 2, 80 x 4, 60 x 8: the fewest GPUs in time
        (CONCAVE, 300.0, 1, Fraction(60)),
        (CONCAVE, 240.0, 1, Fraction(0)),
        (CONCAVE, 239.0, 2, (239 - Fraction(2400, 18)) * 2),
        (CONCAVE, 100.0, 4, Fraction(20 * 4)),
        (CONCAVE, 60.0, 8, Fraction(0)),
        (CONCAVE, 59.0, None, None),
        (LINEAR, 125.0, 2, Fraction(5 * 2)),
    ],
)
def test_the_least_gpu_time_that_is_in_time(
    table: Table, due: float, gpus: int | None, allowance: Fraction | None
) -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"GPU": 8}), jobs=jobs_of([4], [240.0], [due], [table])
    )
    found = decide(Genie(), round_)
    assert gpus_of(round_, found) == {"j0": gpus or 4}
    expected = np.inf if allowance is None else float(allowance)
    assert found.per_job["allowance_gpu_s"][0] == pytest.approx(expected, abs=1e-9)
    assert not check(round_, found.allocation)


@pytest.mark.quick
def test_counts_lie_near_the_gang_and_rigid_jobs_keep_theirs() -> None:
    """A gang of 8 tries 2 to 32, not 1; without configurations it is 8 or nothing."""
    table = LINEAR | {(3, 0): 3.0, (16, 0): 16.0}
    round_ = TrainingRound(
        cluster=Cluster.uniform({"GPU": 16}),
        jobs=jobs_of([8, 3], [80.0, 30.0], [1e4, 1e4], [table, {(3, 0): 3.0}]),
    )
    assert gpus_of(round_, decide(Genie(), round_)) == {"j0": 2, "j1": 3}
    assert gpus_of(round_, decide(Genie(spread=1.0), round_)) == {"j0": 8, "j1": 3}


@pytest.mark.quick
def test_the_shortest_allowance_first_and_it_holds_the_others_back() -> None:
    """Allowances 40 x 4, 10 x 2 and 30 x 1 GPU-s: the second first, then the third."""
    rigid: list[Table] = [{(4, 0): 1.0}, {(2, 0): 1.0}, {(1, 0): 1.0}, {(1, 0): 1.0}]
    jobs = jobs_of([4, 2, 1, 1], [10.0] * 4, [50.0, 20.0, 40.0, None], rigid)
    for gpus, names in ((4, {"j1", "j2", "j3"}), (3, {"j1", "j2"}), (7, {"j0", "j1", "j2"})):
        round_ = TrainingRound(cluster=Cluster.uniform({"GPU": gpus}), jobs=jobs)
        assert set(gpus_of(round_, decide(Genie(), round_))) == names
    busy = jobs_of([2, 2, 1, 1], [900.0, 10.0, 10.0, 10.0], [None, 20.0, 40.0, None],
                   [{(2, 0): 1.0}, {(2, 0): 1.0}, {(1, 0): 1.0}, {(1, 0): 1.0}],
                   running=[True, False, False, False], previous_type=[0, -1, -1, -1],
                   held_gpus=[2, 0, 0, 0])  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"GPU": 3}), jobs=busy)
    assert set(gpus_of(round_, decide(Genie(), round_))) == {"j0", "j3"}
    assert set(gpus_of(round_, decide(Genie(strict=False), round_))) == {"j0", "j2"}


@pytest.mark.quick
@pytest.mark.parametrize(("due", "first"), [(60.0, 1), (59.999, 0)])
def test_a_job_that_no_count_can_save_is_best_effort(due: float, first: int) -> None:
    """Carried out: the wide count meets its deadline to the second, or is not tried at all."""
    jobs = jobs_of([8, 4], [800.0, 240.0], [None, due], [{(8, 0): 8.0}, CONCAVE],
                   arrival_s=[-1.0, 0.0])  # fmt: skip
    scenario = Scenario(
        name="genie", cluster=Cluster.uniform({"GPU": 8}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=100.0),
    )  # fmt: skip
    ends = run(scenario, BoundPolicy(Genie(), Solver())).jobs.finish_s.tolist()
    assert ends == ([200.0, 60.0] if first else [100.0, 180.0])


def draw(rng: np.random.Generator) -> TrainingRound:
    n, types = int(rng.integers(1, 9)), int(rng.integers(1, 3))
    cluster = Cluster.uniform({f"t{k}": int(rng.integers(2, 12)) for k in range(types)})
    gang = rng.choice([1, 2, 3, 4], n).tolist()
    tables: list[Table] = []
    for own in gang:
        speed = float(rng.choice([1.0, 2.0, 3.0]))
        power = float(rng.choice([1.0, 0.6, 1.2]))
        table: Table = {(own, 0): speed * own**power}
        for count in (1, 2, 4, 6, 8):
            for kind in range(types):
                if rng.random() < 0.5:
                    table[count, kind] = speed * (1 + kind) * count**power
        tables.append(table)
    work = rng.uniform(50.0, 500.0, n).round().tolist()
    due = [
        None if rng.random() < 0.3 else 1000.0 + float(rng.choice([20.0, 60.0, 150.0, 400.0]))
        for _ in range(n)
    ]
    arrival = rng.uniform(0.0, 900.0, n).round()
    jobs = jobs_of(gang, work, due, tables, types, arrival_s=arrival)
    return TrainingRound(cluster=cluster, jobs=jobs, now_s=1000.0)


def expected(policy: Genie, round_: TrainingRound) -> dict[str, tuple[int, int]]:
    """The rule in words: GPUs and type of each job that starts; no job runs yet."""
    jobs, free = round_.jobs, round_.capacity.tolist()
    pressed, others = [], []
    for j in range(len(jobs)):
        gang = int(jobs.gang[j])
        own = slice(int(jobs.config_offsets[j]), int(jobs.config_offsets[j + 1]))
        speed = {
            (int(g), int(k)): float(s) for g, k, s in zip(
                jobs.config_gpus[own], jobs.config_type[own], jobs.config_throughput_per_s[own],
                strict=True,
            ) if g <= round_.capacity[int(k)]
        }  # fmt: skip
        if not any((gang, k) in speed for k in range(len(free))):
            continue  # its gang can never start
        due = [] if not jobs.slo[j] else jobs.deadline_s[
            jobs.deadline_offsets[j] : jobs.deadline_offsets[j + 1]
        ].tolist()  # fmt: skip
        best = None
        for count in {g for g, _ in speed}:
            power = count in (1, 2, 4, 8, 16)
            near = gang / policy.spread <= count <= gang * policy.spread
            if count != gang and not (power and near):
                continue
            takes = jobs.work[j] / max(s for (g, _), s in speed.items() if g == count)
            for at in due:
                if 1000.0 + takes <= at + 1e-6:
                    key = (round(takes * count, 6), count)
                    if best is None or key < best[0]:
                        best = (key, (at - takes - 1000.0) * count, count)
        if best is None:
            others.append((jobs.arrival_s[j], j, gang, speed))
        else:
            pressed.append((round(best[1], 6), jobs.arrival_s[j], j, best[2], speed))
    plan: dict[str, tuple[int, int]] = {}

    def place(j: int, count: int, speed: Table) -> bool:
        kinds = [(s, -k) for (g, k), s in speed.items() if g == count and free[k] >= g]
        if kinds:
            kind = -max(kinds)[1]
            free[kind] -= count
            plan[str(jobs.id[j])] = (count, kind)
        return bool(kinds)

    for _, _, j, count, speed in sorted(pressed, key=lambda one: one[:3]):
        if not place(j, count, speed) and policy.strict:
            break
    for _, j, gang, speed in sorted(others, key=lambda one: one[:2]):
        place(j, gang, speed)
    return plan


@pytest.mark.parametrize("policy", [Genie(), Genie(spread=2.0, strict=False)], ids=str)
@pytest.mark.parametrize("seed", CASES)
def test_against_a_plain_loop(seed: int, policy: Genie) -> None:
    round_ = draw(np.random.default_rng(seed))
    plan = decide(policy, round_).allocation
    assert not check(round_, plan)
    found = {
        str(round_.jobs.id[j]): (g, k) for j, g, k in zip(
            plan.job.tolist(), plan.gpus.tolist(), plan.gpu_type.tolist(), strict=True
        )
    }  # fmt: skip
    assert found == expected(policy, round_)


@pytest.mark.quick
def test_elastic_runs_keep_what_they_hold() -> None:
    """Every allocation of a run is checked; nobody changes its number of GPUs."""
    rng = np.random.default_rng(8)
    n = 30
    arrival = np.sort(rng.uniform(0, 3000, n)).round()
    work = rng.uniform(100.0, 2000.0, n).round()
    due = [float(a + w * f) if f else None for a, w, f in zip(
        arrival, work, rng.choice([0.0, 0.4, 0.8, 2.0], n), strict=True
    )]  # fmt: skip
    jobs = jobs_of([4] * n, work.tolist(), due, [CONCAVE] * n, arrival_s=arrival)
    scenario = Scenario(
        name="genie", cluster=Cluster.uniform({"GPU": 16}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=100.0),
    )  # fmt: skip
    held: dict[str, set[int]] = {}

    class Watch(BoundPolicy):
        def decide(self, round_: Any, memory: Any) -> Any:
            found = super().decide(round_, memory)
            assert not check(round_, found.allocation)
            for name, gpus in gpus_of(round_, found).items():
                held.setdefault(name, set()).add(gpus)
            return found

    ends = run(scenario, Watch(Genie(), Solver())).jobs.finish_s
    assert (ends > 0).all()
    assert all(len(counts) == 1 for counts in held.values())
    assert {1, 2, 4} <= set().union(*held.values())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"spread": 0.5}, "spread"), ({"spread": np.nan}, "spread"), ({"strict": 1}, "strict")],
)
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InstanceError, match=rf"genie\.{text} = "):
        Genie(**wrong)


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{policy.strict}-{name}")
        for policy in (Genie(), Genie(spread=1.0, strict=False))
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
