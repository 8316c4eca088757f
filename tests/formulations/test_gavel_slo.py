"""Gavel with deadlines: by hand, the fewest dropped by trying all sets, what each answer tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.deciding import BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.gavel import GavelCost, GavelSLO
from apportion.instances import InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

SOME, MANY = 20, 300
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]
NEAR = 1e-6
"""Relative distance at which two optima are the same: simplex codes work to 1e-7."""


def decide(policy: GavelCost, round_: TrainingRound, memory: Any = None) -> Any:
    solver, budget = Solver(gap=0.0), Budget.of(None)
    return policy.compile(round_, memory, budget).solve(solver, budget)


def example(due: float) -> TrainingRound:
    jobs = Jobs.of(
        id=["one", "two"], gang=[1, 1], work=[1e3, 160.0],
        throughput_per_s=[[4.0, 1.0], [2.0, 1.0]], slo=[False, True],
        deadline_offsets=[0, 0, 1], deadline_s=[due], deadline_value=[1.0],
    )  # fmt: skip
    return TrainingRound(cluster=Cluster.uniform({"V100": 1, "K80": 1}), jobs=jobs)


@pytest.mark.quick
def test_the_example_by_hand() -> None:
    """The second job must reach 1.6: x = (2/5, 3/5) and (3/5, 2/5), 19/5 in all; 5 without."""
    found = decide(GavelSLO(), example(100.0))
    assert found.status == "OPTIMAL"
    assert found.objective == pytest.approx(19 / 5)
    assert found.shares.gpus == pytest.approx(np.array([[0.4, 0.6], [0.6, 0.4]]), abs=1e-6)
    assert found.per_job["deadline"].tolist() == ["", "kept"]
    free = decide(GavelSLO(), example(160.0))
    assert free.objective == pytest.approx(5.0)
    assert free.per_job["deadline"].tolist() == ["", "kept"]


@pytest.mark.quick
@pytest.mark.parametrize(("due", "verdict"), [(80.0, "kept"), (80.0 - 1e-3, "dropped")])
def test_a_deadline_counts_while_the_job_alone_could_keep_it(due: float, verdict: str) -> None:
    found = decide(GavelSLO(), example(due))
    assert found.per_job["deadline"].tolist() == ["", verdict]
    assert found.objective == pytest.approx(3.0 if verdict == "kept" else 5.0)
    assert bool(found.notes) == (verdict == "dropped")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("values", "verdict", "objective"), [([10.0, 5.0], "kept", 3.8), ([10.0, 0.0], "dropped", 5.0)]
)
def test_a_soft_job_asks_for_the_next_deadline_it_can_keep(
    values: list[float], verdict: str, objective: float
) -> None:
    """Due after 50 s the second job would need 3.2, after 100 s 1.6; its best speed is 2."""
    one = example(100.0)
    jobs = replace(
        one.jobs, deadline_offsets=[0, 0, 2], deadline_s=[50.0, 100.0], deadline_value=values
    )
    found = decide(GavelSLO(), replace(one, jobs=jobs))
    assert found.per_job["deadline"].tolist() == ["", verdict]
    assert found.objective == pytest.approx(objective)
    assert bool(found.notes) == (verdict == "dropped")


@pytest.mark.quick
def test_the_fewest_are_dropped_or_all_of_them() -> None:
    """One GPU: the first asks for all of it, the others for a half each."""
    jobs = Jobs.of(
        id=["a", "b", "c"], gang=[1] * 3, work=[100.0] * 3, throughput_per_s=np.ones((3, 1)),
        slo=[True] * 3, deadline_offsets=[0, 1, 2, 3], deadline_s=[100.0, 200.0, 200.0],
        deadline_value=[1.0] * 3,
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"GPU": 1}), jobs=jobs)
    few = decide(GavelSLO(), round_)
    assert few.per_job["deadline"].tolist() == ["dropped", "kept", "kept"]
    assert few.notes == ("1 deadline was given up: 'a'",)
    assert few.status == "OPTIMAL"
    everything = decide(GavelSLO(deadlines="all"), round_)
    assert everything.notes == ("3 deadlines were given up: 'a', 'b', 'c'",)


def draw(rng: np.random.Generator) -> TrainingRound:
    n, types = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    rate = rng.choice([0.0, 1.0, 2.0, 4.0], (n, types), p=[0.1, 0.3, 0.3, 0.3])
    jobs = Jobs.of(
        id=[f"j{row}" for row in range(n)], gang=rng.choice([1, 1, 2], n),
        work=rng.integers(20, 400, n).astype(float), throughput_per_s=rate,
        slo=rng.random(n) < 0.8, deadline_offsets=np.arange(n + 1), deadline_value=np.ones(n),
        deadline_s=100.0 + rng.choice([50.0, 100.0, 300.0], n),
    )  # fmt: skip
    cluster = Cluster.uniform({f"t{k}": int(rng.integers(1, 4)) for k in range(types)})
    return TrainingRound(cluster=cluster, jobs=jobs, now_s=100.0)


def most(round_: TrainingRound, kept: set[int]) -> float | None:
    """Most throughput with the deadlines of some jobs; None where they cannot all be kept."""
    jobs, n, k = round_.jobs, len(round_.jobs), round_.capacity.size
    speed = np.where(round_.jobs.gang[:, None] <= round_.capacity, jobs.throughput_per_s, 0.0)
    rows, sides = [], []
    for j in range(n):
        row = np.zeros((n, k))
        row[j] = 1.0
        rows.append(row.ravel())
        sides.append(1.0)
    for kind in range(k):
        row = np.zeros((n, k))
        row[:, kind] = jobs.gang
        rows.append(row.ravel())
        sides.append(float(round_.capacity[kind]))
    for j in sorted(kept):
        row = np.zeros((n, k))
        row[j] = -speed[j]
        rows.append(row.ravel())
        sides.append(-float(jobs.work[j]) / float(jobs.deadline_s[j] - round_.now_s))
    bounds = [(0.0, None if one > 0 else 0.0) for one in speed.ravel()]
    found = linprog(-speed.ravel(), np.array(rows), sides, bounds=bounds)
    return -float(found.fun) if found.status == 0 else None


@pytest.mark.parametrize("seed", CASES)
def test_the_dropped_are_a_smallest_set(seed: int) -> None:
    round_ = draw(np.random.default_rng(seed))
    found = decide(GavelSLO(), round_)
    assert not check(round_, found.allocation)
    told = found.per_job["deadline"]
    # a job that no type can start shares nothing, and no answer of any kind is told for it
    asking = np.flatnonzero(round_.jobs.slo & round_.startable).tolist()
    assert set(np.flatnonzero(told != "").tolist()) == set(asking)
    kept = set(np.flatnonzero(told == "kept").tolist())
    value = most(round_, kept)
    assert value is not None
    # where nobody can start there is no objective
    assert (found.objective or 0.0) == pytest.approx(value, rel=NEAR, abs=NEAR)
    assert all(
        most(round_, set(more)) is None for more in itertools.combinations(asking, len(kept) + 1)
    )
    assert found.status == "OPTIMAL"


@pytest.mark.quick
def test_what_was_decided_is_told_again_without_being_computed() -> None:
    policy, round_ = GavelSLO(recompute_s=1e4), example(100.0)
    first = decide(policy, round_)
    memory = policy.remember(None, round_, first, planned_outcome(round_, first.allocation))
    again = decide(policy, round_, memory)
    assert again.per_job["deadline"].tolist() == ["", "kept"]
    program = policy.compile(round_, None, Budget.of(None))
    assert program.incumbent().per_job["deadline"].tolist() == ["", "dropped"]


@pytest.mark.quick
@pytest.mark.parametrize(("due", "in_time"), [(400.0, True), (399.0, False)])
def test_carried_out_a_deadline_at_a_boundary(due: float, in_time: bool) -> None:
    """One GPU: 400 s of work due after 400 s is all of it; a second less is given up."""
    jobs = Jobs.of(
        id=["best", "slo"], gang=[1, 1], work=[400.0, 400.0], throughput_per_s=[[3.0], [1.0]],
        slo=[False, True], deadline_offsets=[0, 0, 1], deadline_s=[due], deadline_value=[1.0],
    )  # fmt: skip
    scenario = Scenario(
        name="slo", cluster=Cluster.uniform({"GPU": 1}), jobs=jobs,
        tenants=Tenants.named("default"), options=ExecutorOptions(round_s=100.0),
    )  # fmt: skip
    solver = Solver(work_limit=10_000)
    ends = run(scenario, BoundPolicy(GavelSLO(), solver)).jobs.finish_s.tolist()
    assert (ends[1] <= due) == in_time
    assert (ends[0] < ends[1]) == (not in_time)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GavelSLO(deadlines="ignored"), r"gavel-slo\.deadlines = 'ignored'"),
        (lambda: GavelSLO(form="sum"), r"gavel-slo\.form = 'sum'"),
        (lambda: GavelSLO(prices={"V100": -1.0}), r"gavel-slo\.prices\['V100'\]"),
        (lambda: GavelSLO(recompute_s=-1.0), r"gavel-slo\.recompute_s = -1"),
        (lambda: decide(GavelSLO(prices="V100=2"), example(100.0)), r"gavel-slo\.prices: has no"),
    ],
)  # fmt: skip
def test_errors_name_this_policy(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InstanceError, match=text):
        make()


@pytest.mark.quick
def test_a_memory_of_somebody_else_is_refused() -> None:
    for bad in ({}, 3, []):
        with pytest.raises(InstanceError, match="memory"):
            GavelSLO().compile(example(100.0), bad, Budget.of(None))


@pytest.mark.quick
def test_equal_parameters_are_equal_and_can_be_counted() -> None:
    assert len({GavelSLO(), GavelSLO(), GavelSLO(deadlines="all"), GavelCost()}) == 3


@pytest.mark.quick
@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{at}-{name}")
        for at, policy in enumerate(
            [GavelSLO(), GavelSLO(form="ratio", units="normalised", deadlines="all")]
        )
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
