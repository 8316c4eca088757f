"""Shockwave: the golden split, every plan of whole rounds of tiny windows, and the fluid's bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.peers.shockwave import Shockwave
from apportion.instances import Decision, InstanceError
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks, random_round

SLOW = 300
LENGTH = 300.0


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def decide(
    round_: TrainingRound, memory: Any = None, seconds: float | None = None, gap: float = 0.0,
    **options: Any,
) -> Decision:  # fmt: skip
    budget = Budget.of(seconds)
    return Shockwave(**options).compile(round_, memory, budget).solve(Solver(gap=gap), budget)


def golden(now_s: float = 0.0) -> TrainingRound:
    """One GPU, an epoch a round; J1 has done 0 of 4 epochs, J2 2 of 4."""
    return TrainingRound(
        cluster=Cluster.uniform({"only": 1}),
        jobs=Jobs.of(
            id=["J1", "J2"], gang=[1, 1], work=[4.0, 4.0], work_done=[0.0, 2.0],
            throughput_per_s=[[1 / LENGTH], [1 / LENGTH]],
        ),
        now_s=now_s,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["whole", "fluid"])
@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_golden_split(form: Any, weight: float) -> None:
    answer = decide(golden(), window_rounds=4, form=form, makespan_weight=weight)
    assert answer.status == "OPTIMAL"
    assert answer.per_job["planned_rounds"].tolist() == pytest.approx([3.0, 1.0], abs=5e-3)
    # a round is left to either of them, a quarter of a window
    assert answer.objective == pytest.approx(2 * math.log(0.75) / 8 - weight / 4, abs=1e-6)
    assert answer.objective * 8 == pytest.approx(-0.5754 - 2 * weight, abs=1e-4)
    assert answer.allocation.job.tolist() == [0]
    other = math.log(0.5) + math.log(1.0)
    assert other == pytest.approx(-0.6931, abs=1e-4)  # two rounds to each


@pytest.mark.parametrize("form", ["whole", "fluid"])
def test_the_plan_is_carried_out_round_by_round(form: Any) -> None:
    policy = Shockwave(window_rounds=4, form=form)
    memory, ran = None, []
    for at in range(4):
        now = golden(at * LENGTH)
        answer = policy.compile(now, memory, Budget.of(None)).solve(Solver(), Budget.of(None))
        assert answer.stages[-1].name == ("plan" if at == 0 else "remembered")
        memory = policy.remember(memory, now, answer, planned_outcome(now, answer.allocation))
        ran += answer.allocation.job.tolist()
    assert sorted(ran) == [0, 0, 0, 1]
    later = policy.compile(golden(4 * LENGTH), memory, Budget.of(None))
    assert later.solve(Solver(), Budget.of(None)).stages[-1].name == "plan"


def draw(rng: np.random.Generator) -> TrainingRound:
    n, k = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    speed = rng.choice([0.5, 1.0, 2.0, 3.0], (n, k)) / LENGTH
    speed[:, 1:][rng.random((n, k - 1)) < 0.3] = 0.0
    work = rng.integers(2, 12, n).astype(float)
    gang = rng.choice([1, 1, 2], n)
    return TrainingRound(
        cluster=Cluster.uniform({f"type-{i}": int(rng.integers(2 if i == 0 else 1, 4))
                                 for i in range(k)}),
        jobs=Jobs.of(
            id=[f"job-{j}" for j in range(n)], gang=gang, work=work,
            work_done=work * rng.choice([0.0, 0.25, 0.5, 0.9], n), throughput_per_s=speed,
            arrival_s=rng.choice([0.0, 3.0, 6.0], n) * LENGTH,
        ),
        now_s=6 * LENGTH,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["whole", "fluid"])
@pytest.mark.parametrize(("most_rho", "kept"), [(0.75, True), (0.7, False)])
def test_finish_times_by_hand(form: Any, most_rho: float, kept: bool) -> None:
    """Alone on a half each takes 8 rounds; after 4, progress f ends at 4 + 8 (1 - f) <= 8 rho."""
    answer = decide(golden(), window_rounds=4, form=form, most_rho=most_rho)
    assert any("was given up" in note for note in answer.notes) == (not kept)


class Oracle:
    """All plans of whole rounds, from the raw columns, job by job."""

    def __init__(self, round_: TrainingRound, rounds: int, weight: float) -> None:
        jobs = round_.jobs
        self.round_, self.rounds, self.weight = round_, rounds, weight
        self.n, self.k = len(jobs), round_.cluster.types.size
        self.gpus = round_.cluster.gpus.tolist()
        self.rate = [
            [float(jobs.throughput_per_s[j, i]) if jobs.gang[j] <= self.gpus[i] else 0.0
             for i in range(self.k)] for j in range(self.n)
        ]  # fmt: skip
        self.fair = []
        for j in range(self.n):
            part = [g / (self.n * int(jobs.gang[j])) for g in self.gpus]
            scale = max(1.0, sum(part))
            self.fair.append(sum(p / scale * r for p, r in zip(part, self.rate[j], strict=True)))

    def plans(self) -> list[tuple[tuple[int, ...], ...]]:
        """All multisets of rounds, each round a type for every job (-1 = waits)."""
        gang = self.round_.jobs.gang.tolist()
        one = []
        ways = [[-1, *(i for i in range(self.k) if self.rate[j][i] > 0)] for j in range(self.n)]
        for way in itertools.product(*ways):
            used = [sum(g for g, w in zip(gang, way, strict=True) if w == i) for i in range(self.k)]
            if all(u <= g for u, g in zip(used, self.gpus, strict=True)):
                one.append(way)
        return list(itertools.combinations_with_replacement(one, self.rounds))

    def progress(self, plan: tuple[tuple[int, ...], ...]) -> list[float]:
        jobs, out = self.round_.jobs, []
        for j in range(self.n):
            done = float(jobs.work_done[j])
            done += sum(self.rate[j][w[j]] * LENGTH for w in plan if w[j] >= 0)
            out.append(min(1.0, done / float(jobs.work[j])))
        return out

    def rho(self, j: int, when_s: float, progress: float) -> float:
        """Finish-time fairness of a job with an equal share from an instant on."""
        jobs = self.round_.jobs
        alone = float(jobs.work[j]) / self.fair[j]
        return (when_s - float(jobs.arrival_s[j]) + (1.0 - progress) * alone) / alone

    def value(self, progress: list[float], weights: list[float]) -> float:
        total, longest = 0.0, 0.0
        for j, f in enumerate(progress):
            log = math.log(f) if f >= 0.01 else math.log(0.01) + (f - 0.01) / 0.01
            total += weights[j] * log
            left_s = (1.0 - f) * float(self.round_.jobs.work[j]) / max(self.rate[j])
            longest = max(longest, left_s / (self.rounds * LENGTH))
        return total / (self.n * self.rounds) - self.weight * longest

    def best(self, most_rho: float, power: float) -> tuple[float, bool]:
        """Best value, and whether finish times could be kept."""
        end_s = self.round_.now_s + self.rounds * LENGTH
        reached = {tuple(self.progress(plan)) for plan in self.plans()}
        good = [
            list(f) for f in reached
            if all(self.rho(j, end_s, f[j]) <= most_rho + 1e-9 for j in range(self.n))
        ]  # fmt: skip
        if good:
            return max(self.value(f, [1.0] * self.n) for f in good), True
        jobs, weights = self.round_.jobs, []
        for j in range(self.n):
            rho = self.rho(j, self.round_.now_s, float(jobs.work_done[j] / jobs.work[j]))
            weights.append(rho**power if rho > most_rho + 1e-9 and rho > 1.0 else 1.0)
        return max(self.value(list(f), weights) for f in reached), False


@pytest.mark.parametrize("seed", seeds())
def test_every_plan_of_whole_rounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    round_, rounds = draw(rng), int(rng.integers(1, 4))
    weight = float(rng.choice([0.0, 0.1, 10.0]))
    most_rho = float(rng.choice([1.0, 1.5, 3.0, np.inf]))
    power = float(rng.choice([1.0, 5.0]))
    best, kept = Oracle(round_, rounds, weight).best(most_rho, power)
    options: dict[str, Any] = {
        "window_rounds": rounds, "makespan_weight": weight, "most_rho": most_rho,
        "priority_power": power,
    }  # fmt: skip
    answer = decide(round_, form="whole", **options)
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert any("was given up" in note for note in answer.notes) == (not kept)
    assert not check(round_, answer.allocation)
    fluid = decide(round_, form="fluid", gap=1e-7, **options)
    assert not check(round_, fluid.allocation)
    gave_up = any("was given up" in note for note in fluid.notes)
    if gave_up == (not kept):  # parts of rounds can keep more promises
        assert fluid.bound is not None
        assert fluid.bound >= best - 1e-6


@pytest.mark.parametrize("form", ["whole", "fluid"])
@pytest.mark.parametrize(
    ("speed", "weight"),
    [([1e9, 1 / LENGTH], [1.0, 1.0]), ([1e-9, 1 / LENGTH], [1.0, 1.0]),
     ([1 / LENGTH, 1 / LENGTH], [1e-9, 1e9]), ([1e9, 1e-9], [1e9, 1e-9])],
)  # fmt: skip
def test_speeds_and_weights_that_lie_far_apart(
    form: Any, speed: list[float], weight: list[float]
) -> None:
    """One GPU; a model holds no step of 1e17 works a round, and no weight beside one 1e18 less."""
    jobs = Jobs.of(
        id=["a", "b"], gang=[1, 1], work=[1e-6, 4.0], throughput_per_s=[[one] for one in speed],
        weight=weight,
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 1}), jobs=jobs)
    options: dict[str, Any] = {"window_rounds": 4, "form": form}
    program = Shockwave(**options).compile(round_, None, Budget.of(None))
    assert program.model is not None
    answer = decide(round_, gap=1e-4, **options)
    assert answer.status == "OPTIMAL", answer.notes
    assert answer.bound is not None
    assert answer.objective is not None
    assert answer.bound >= answer.objective
    assert not check(round_, answer.allocation)


@pytest.mark.parametrize("seed", range(20))
def test_plans_stay_within_the_window(seed: int) -> None:
    round_ = random_round(np.random.default_rng(seed), jobs=12)
    answer = decide(round_, gap=1e-4)
    gpus = answer.shares.gpus
    assert (gpus.sum(axis=0) <= round_.capacity + 1e-6).all()
    on = answer.shares.of_job >= 0
    assert (gpus[answer.shares.of_job[on]].sum(axis=1) <= round_.jobs.gang[on] + 1e-6).all()
    plan, jobs = answer.allocation, round_.jobs
    left = round_.capacity - np.bincount(
        plan.gpu_type, weights=plan.gpus, minlength=round_.capacity.size
    )
    wait = np.setdiff1d(np.arange(len(jobs)), plan.job)
    assert not (round_.eligible[wait] & (jobs.gang[wait][:, None] <= left)).any()


def test_idle_gpus_go_to_the_longest() -> None:
    """Three jobs on two GPUs; one is planned for the whole window, the rest is filled up."""
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 3}),
        jobs=Jobs.of(
            id=list("abc"), gang=[1, 1, 2], work=[1.0, 40.0, 30.0],
            throughput_per_s=[[1 / LENGTH]] * 3,
        ),
    )  # fmt: skip
    counts = np.array([[0.0], [0.0], [2.0]])
    memory = {"id": round_.jobs.id, "counts": counts, "priority": np.ones(3),
              "capacity": np.array([3.0]), "rounds": 2.0}  # fmt: skip
    assert decide(round_, memory).allocation.job.tolist() == [1, 2]


def test_a_change_of_jobs_or_gpus_makes_a_new_plan() -> None:
    round_ = golden()
    first = decide(round_, window_rounds=4)
    memory = Shockwave().remember(None, round_, first, planned_outcome(round_, first.allocation))
    assert decide(golden(LENGTH), memory).stages[-1].name == "remembered"
    more = replace(golden(LENGTH), cluster=Cluster.uniform({"only": 2}))
    assert decide(more, memory).stages[-1].name == "plan"
    one = replace(
        golden(LENGTH),
        jobs=Jobs.of(id=["J2"], gang=[1], work=[4.0], throughput_per_s=[[1 / LENGTH]]),
    )
    assert decide(one, memory).stages[-1].name == "plan"


def test_no_time_serves_whose_logarithm_rises_most() -> None:
    answer = decide(golden(), seconds=1e-9)
    assert (answer.status, answer.bound, answer.time_limited) == ("FEASIBLE", None, True)
    assert answer.allocation.job.tolist() == [0]
    memory = Shockwave().remember(
        None, golden(), answer, planned_outcome(golden(), answer.allocation)
    )
    assert decide(golden(LENGTH), memory).stages[-1].name == "plan"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": None}, "memory: not one of shockwave"),
        ({"counts": [[-1.0], [0.0]]}, r"memory.counts\[0, 0\] = -1.0"),
        ({"rounds": float("nan")}, "memory.rounds = nan"),
        ({"priority": [1.0]}, "memory.priority"),
    ],
)
def test_memory_of_another_kind(change: dict[str, Any], message: str) -> None:
    memory = {"id": ["J1", "J2"], "counts": [[1.0], [0.0]], "priority": [1.0, 1.0],
              "capacity": [1.0], "rounds": 2.0}  # fmt: skip
    memory |= change
    if change.get("counts", 0) is None:
        del memory["counts"]
    with pytest.raises(InstanceError, match=message):
        decide(golden(), memory)
    with pytest.raises(InstanceError, match="memory: not one of shockwave"):
        decide(golden(), 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("window_rounds", 0), ("window_rounds", 1.5), ("makespan_weight", -1.0),
     ("makespan_weight", float("nan")), ("most_rho", 0.0), ("priority_power", -1.0),
     ("planning_s", 0.0), ("form", "round")],
)  # fmt: skip
def test_bad_parameters(field: str, value: Any) -> None:
    with pytest.raises(InstanceError, match=rf"shockwave.{field} = .*must be"):
        Shockwave(**{field: value})


@pytest.mark.parametrize("form", ["auto", "whole"])
@pytest.mark.parametrize("check_index", range(len(policy_checks(Shockwave()))))
def test_battery(form: Any, check_index: int) -> None:
    policy = Shockwave(form=form, window_rounds=20 if form == "auto" else 3)
    judge: Callable[[], None] = policy_checks(policy)[check_index][1]
    judge()
