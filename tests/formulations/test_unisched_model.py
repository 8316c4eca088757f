"""UniSched's two passes as one model: what files, prices and explanations are made of."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.formulations.training.unisched import UniSched
from apportion.formulations.training.unisched.program import UniSchedProgram
from apportion.instances import InstanceError
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver, Status

LEASE = 1200.0
FREE = UniSched(restart_s=0.0)
EXACT = Solver(gap=0.0)


def compiled(round_: TrainingRound, policy: UniSched = FREE, memory: Any = None) -> UniSchedProgram:
    return policy.compile(round_, memory, Budget.of(None))


def golden(due_b: float, gpus: int = 4) -> TrainingRound:
    """A (2 GPUs, 2 leases, due 3), B (4, 1, due_b); C and D best effort, 1 and 4 leases to go."""
    jobs = Jobs.of(
        id=["A", "B", "C", "D"], gang=[2, 4, 2, 2], work=np.array([2, 1, 1, 4]) * LEASE,
        throughput_per_s=np.ones((4, 1)), slo=[True, True, False, False],
        deadline_offsets=[0, 1, 2, 2, 2], deadline_s=np.array([3, due_b]) * LEASE,
        deadline_value=[1000.0, 1000.0],
    )  # fmt: skip
    return TrainingRound(cluster=Cluster.uniform({"only": gpus}), jobs=jobs)


def drawn(seed: int, more: tuple[int, int] = (0, 0), *, least: int = 1) -> TrainingRound:
    """Two to seven jobs on two types, elastic ones and soft deadlines among them.

    ``least`` is the fewest GPUs of a type, and beyond 1 there are up to eleven jobs for them.
    """
    rng = np.random.default_rng([17, seed])
    n, gpus = int(rng.integers(2, 8)) + 4 * (least > 1), rng.integers(least, least + 5, 2)
    gang = rng.choice([1, 2, 3], n)
    speed = rng.choice([0.0, 0.5, 1.0, 2.0], (n, 2))
    speed[:, 0] = np.maximum(speed[:, 0], 0.5)
    slo = rng.random(n) < 0.6
    soft = slo & (rng.random(n) < 0.4)
    counts = slo.astype(int) + soft
    first = rng.integers(1, 4, n)
    due = [(at + late) * LEASE for row, at in enumerate(first) for late in range(counts[row])]
    worth = [value for row in range(n) for value in (10.0, 4.0)[: counts[row]]]
    grows = rng.random(n) < 0.4
    return TrainingRound(
        cluster=Cluster.uniform({"a": int(gpus[0]) + more[0], "b": int(gpus[1]) + more[1]}),
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=gang, work=rng.integers(1, 4, n) * LEASE,
            throughput_per_s=speed, slo=slo, deadline_offsets=np.concatenate(([0], counts.cumsum())),
            deadline_s=due, deadline_value=worth, min_gpus=gang,
            max_gpus=np.where(grows, 2 * gang, gang),
            config_offsets=np.concatenate(([0], grows.cumsum())), config_gpus=2 * gang[grows],
            config_type=np.zeros(int(grows.sum())),
            config_throughput_per_s=1.6 * speed[grows, 0],
        ),
    )  # fmt: skip


def best(round_: TrainingRound, policy: UniSched = FREE) -> tuple[float, float]:
    """What the selector's search finds, by other models."""
    answer = compiled(round_, policy).solve(EXACT, Budget.of(None))
    assert answer.status == "OPTIMAL"
    assert answer.objective is not None
    return answer.objective, answer.stages[-1].objective or 0.0


@pytest.mark.quick
@pytest.mark.parametrize(("due_b", "reward"), [(1, -8e-6), (3, 25.0 - 8e-6)])
def test_golden(due_b: float, reward: float) -> None:
    model = compiled(golden(due_b)).model
    assert model is not None
    found = EXACT.solve(model, budget=Budget.of(None))
    assert found.status is Status.OPTIMAL
    assert found.objectives == pytest.approx((2000.0, reward), abs=1e-9)
    on = {name for name, at in zip(model.column_names(), found.x, strict=True) if at > 0.5}
    now = {name for name in on if name.startswith("run_now")}
    assert now == ({"run_now[B,only]"} if due_b == 1 else {"run_now[A,only]", "run_now[C,only]"})
    assert {"plan[A,2xonly,3]", f"plan[B,4xonly,{due_b}]"} <= on


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(200)]
)
def test_its_optimum_is_the_decision(seed: int) -> None:
    """One lexicographic model says what the search found by several; starts cost on odd seeds."""
    round_, policy = drawn(seed), UniSched(restart_s=60.0 * (seed % 2), restarts="once")
    model = compiled(round_, policy).model
    assert model is not None
    found = EXACT.solve(model, budget=Budget.of(None))
    assert found.status is Status.OPTIMAL
    assert found.objectives == pytest.approx(best(round_, policy), abs=2e-6)


@pytest.mark.parametrize("seed", range(12))
def test_prices_are_those_of_another_cluster(seed: int) -> None:
    """One GPU more or less is worth what the search earns on a cluster that has it.

    All gangs fit, since jobs that cannot start at all are in no model.
    """
    base = best(drawn(seed, least=6))
    table = ap.prices(drawn(seed, least=6), FREE, gap=0.0)
    keys = [column.key for column in table.columns]
    for kind, row in enumerate(table.rows):
        told = dict(zip(keys, row, strict=True))
        for key, sign in (("one_more", 1), ("last_one", -1)):
            more = (sign, 0) if kind == 0 else (0, sign)
            other = best(drawn(seed, more, least=6))
            for at, end in enumerate(("", "_2")):
                assert told[key + end] == pytest.approx(sign * (other[at] - base[at]), abs=5e-6)
    assert [row[0] for row in table.rows] == ["a", "b"]


def test_one_more_gpu_lets_a_gang_in_beside_a_job_that_stays() -> None:
    """Three of four GPUs are left, the gang of four is due after a lease: the fifth earns it all."""
    jobs = Jobs.of(
        id=["stays", "gang"], gang=[1, 4], work=[1e6, LEASE], throughput_per_s=[[1.0], [1.0]],
        slo=[False, True], deadline_offsets=[0, 0, 1], deadline_s=[LEASE], deadline_value=[7.0],
        running=[True, False], previous_type=[0, -1], held_gpus=[1, 0], preemptible=[False, True],
    )  # fmt: skip
    told = ap.prices(
        TrainingRound(cluster=Cluster.uniform({"only": 4}), jobs=jobs), FREE, gap=0.0
    ).rows[0]
    assert told[:4] == ("only", 3.0, 7.0, 0.0)
    wider = TrainingRound(cluster=Cluster.uniform({"only": 5}), jobs=jobs)
    assert best(wider)[0] == 7.0


def test_an_explanation_forces_jobs_by_it() -> None:
    """B is due after one lease: whoever else runs now costs its value; nobody else's."""
    round_ = golden(1)
    told = ap.explain(round_, FREE, "C", gap=0.0)
    assert [(one.gpu_type, one.objective_change) for one in told.options] == [
        ("only", -1000.0), (None, 0.0),
    ]  # fmt: skip
    idle = ap.explain(golden(3), FREE, "B", gap=0.0)
    assert [one.objective_change for one in idle.options] == [0.0, 0.0]


@pytest.mark.quick
def test_it_is_written_as_a_file(tmp_path: Path) -> None:
    asked, out = tmp_path / "round.json", tmp_path / "model.mps"
    ap.write_round(golden(3), asked)
    done = subprocess.run(
        [sys.executable, "-m", "apportion", "solve", str(asked), "--policy", "unisched",
         "--export-mps", str(out)], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert "run_now" in text
    assert "capacity" in text


def test_slots_have_none() -> None:
    round_ = golden(3)
    first = compiled(round_).solve(EXACT, Budget.of(None))
    memory = FREE.remember(None, round_, first, planned_outcome(round_, first.allocation))
    assert compiled(replace(round_, now_s=300.0), FREE, memory).model is None
    assert compiled(replace(round_, now_s=LEASE), FREE, memory).model is not None


def test_buckets_make_it_a_part() -> None:
    """With leases only counted in buckets its optimum is a bound, which nobody may call a price."""
    rough = replace(FREE, most_slots=0)
    program = compiled(golden(30), rough)
    assert program.model_is_part
    assert not compiled(golden(30)).model_is_part
    assert program.model is not None
    found = EXACT.solve(program.model, budget=Budget.of(None))
    assert found.objectives[0] >= best(golden(30))[0] - 1e-6
    with pytest.raises(InstanceError, match="no single model of policy 'unisched'"):
        ap.prices(golden(30), rough)


@pytest.mark.parametrize("seed", range(16))
def test_buckets_bound_what_single_leases_earn(seed: int) -> None:
    model = compiled(drawn(seed), replace(FREE, most_slots=0)).model
    assert model is not None
    found = EXACT.solve(model, budget=Budget.of(None))
    value, reward = best(drawn(seed))
    assert found.objectives[0] >= value - 2e-6
    if found.objectives[0] <= value + 2e-6:
        assert found.objectives[1] >= reward - 2e-6


def test_a_bucket_has_the_gpus_of_its_leases() -> None:
    """One GPU, buckets of 1, 1 and 2 leases: four jobs of a lease fit before the fourth ends."""
    jobs = Jobs.of(
        id=list("abcde"), gang=[1] * 5, work=[LEASE] * 5, throughput_per_s=[[1.0]] * 5,
        slo=[True] * 5, deadline_offsets=np.arange(6), deadline_s=[4 * LEASE] * 5,
        deadline_value=[1.0] * 5,
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 1}), jobs=jobs)
    model = compiled(round_, replace(FREE, most_slots=0)).model
    assert model is not None
    assert EXACT.solve(model, budget=Budget.of(None)).objectives[0] == pytest.approx(4.0)


def test_broken_promises_make_it_impossible() -> None:
    """Half of the GPUs fail under two promises: the decision gives one up, the model says why."""
    jobs = Jobs.of(
        id=["one", "two"], gang=[1, 1], work=[LEASE, LEASE], throughput_per_s=[[1.0], [1.0]],
        slo=[True, True], deadline_offsets=[0, 1, 2], deadline_s=[LEASE, LEASE],
        deadline_value=[2.0, 1.0],
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 2}, gpus_per_node=1), jobs=jobs)
    memory = compiled(round_).solve(EXACT, Budget.of(None)).carry
    memory = {**memory, "start_s": -LEASE, "lease": memory["lease"] + 1}
    assert compiled(round_, FREE, memory).model is not None
    broken = replace(round_, node_up=np.array([True, False]))
    program = compiled(broken, FREE, memory)
    assert program.model is not None
    assert EXACT.solve(program.model, budget=Budget.of(None)).status is Status.INFEASIBLE
    told = ap.explain(broken, FREE, memory=memory)
    assert any("one_plan" in rule or "one plan" in rule for rule in told.conflict), told


def test_a_round_without_jobs() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 4}),
        jobs=Jobs.of(id=[], gang=[], work=[], throughput_per_s=np.zeros((0, 1))),
    )
    model = compiled(round_).model
    assert model is not None
    found = EXACT.solve(model, budget=Budget.of(None))
    assert found.objectives == (0.0, 0.0)
