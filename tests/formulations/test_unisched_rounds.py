"""UniSched on rounds: boundaries and slots, deadlines to the lease, promises, idle GPUs, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import check, run
from apportion.formulations.training.unisched import Estimates, UniSched
from apportion.formulations.training.unisched.configurations import Configurations
from apportion.formulations.training.unisched.round_demand import leases_needed
from apportion.instances import Decision, InstanceError
from apportion.instances.training import (
    Cluster,
    ExecutorOptions,
    Jobs,
    Scenario,
    Tenants,
    TrainingRound,
)
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

LEASE = 1200.0
SLOT = 300.0
FREE = UniSched(restart_s=0.0)


def decide(
    round_: TrainingRound, memory: Any = None, policy: UniSched = FREE, seconds: float | None = None
) -> Decision:
    budget = Budget.of(seconds)
    answer = policy.compile(round_, memory, budget).solve(Solver(gap=0.0), budget)
    assert check(round_, answer.allocation) == []
    return answer


def runs(round_: TrainingRound, answer: Decision) -> dict[str, int]:
    plan = answer.allocation
    return dict(zip(round_.jobs.id[plan.job].tolist(), plan.gpus.tolist(), strict=True))


def dated(*entries: list[tuple[float, float]]) -> dict[str, Any]:
    """Columns of deadlines and values; an empty list makes a best-effort job."""
    flat = [pair for own in entries for pair in own]
    return {
        "slo": [bool(own) for own in entries],
        "deadline_offsets": np.concatenate(([0], np.cumsum([len(own) for own in entries]))),
        "deadline_s": [due for due, _ in flat],
        "deadline_value": [value for _, value in flat],
    }


def golden(due_b: float) -> TrainingRound:
    return TrainingRound(
        cluster=Cluster.uniform({"only": 4}),
        jobs=Jobs.of(
            id=["A", "B", "C", "D"], gang=[2, 4, 2, 2], work=[2 * LEASE, LEASE, LEASE, 4 * LEASE],
            throughput_per_s=np.ones((4, 1)),
            **dated([(3 * LEASE, 1000.0)], [(due_b, 1000.0)], [], []),
        ),
    )  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(
    ("due_b", "value", "now", "reward"),
    [(LEASE, 2000.0, "B", 0.0), (3 * LEASE, 2000.0, "AC", 25.0), (LEASE - 1, 1000.0, "CD", 31.25)],
)
def test_golden(due_b: float, value: float, now: str, reward: float) -> None:
    """The example of the selector; a second too early, B is best effort and not worth its GPUs."""
    round_ = golden(due_b)
    answer = decide(round_)
    assert (answer.status, answer.objective, answer.bound) == ("OPTIMAL", value, value)
    assert "".join(sorted(runs(round_, answer))) == now
    used = 1e-6 * (2 * 2 + (4 if value == 2000.0 else 0))
    assert answer.stages[-1].objective == pytest.approx(reward - used, abs=1e-9)
    assert answer.per_job["accepted"].tolist() == [True, value == 2000.0, False, False]


@pytest.mark.parametrize(
    ("due", "accepted"), [(2 * LEASE, True), (2 * LEASE - 1, False), (3 * LEASE - 1, True)]
)
def test_a_deadline_counts_whole_leases(due: float, accepted: bool) -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 1}), now_s=7 * LEASE, duration_s=SLOT,
        jobs=Jobs.of(
            id=["one"], gang=[1], work=[2 * LEASE], throughput_per_s=[[1.0]],
            **dated([(7 * LEASE + due, 5.0)]),
        ),
    )  # fmt: skip
    answer = decide(round_)
    assert answer.objective == (5.0 if accepted else 0.0)
    assert runs(round_, answer) == {"one": 1}  # nobody is dropped
    assert any("none of its deadlines" in note for note in answer.notes) is False
    late = decide(replace(round_, jobs=with_arrival(round_.jobs, 7 * LEASE)))
    assert any("none of its deadlines" in note for note in late.notes) is not accepted


def with_arrival(jobs: Jobs, at: float) -> Jobs:
    return Jobs.of(
        id=jobs.id, gang=jobs.gang, work=jobs.work, throughput_per_s=jobs.throughput_per_s,
        arrival_s=np.full(len(jobs), at), slo=jobs.slo, deadline_offsets=jobs.deadline_offsets,
        deadline_s=jobs.deadline_s, deadline_value=jobs.deadline_value,
    )  # fmt: skip


def test_soft_deadlines_take_the_best_that_fits() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 1}),
        jobs=Jobs.of(
            id=["hard", "soft"], gang=[1, 1], work=[LEASE, LEASE], throughput_per_s=[[1.0], [1.0]],
            **dated([(LEASE, 10.0)], [(LEASE, 10.0), (1.5 * LEASE, 8.0), (2 * LEASE, 5.0)]),
        ),
    )  # fmt: skip
    answer = decide(round_)
    assert answer.objective == 15.0
    assert runs(round_, answer) == {"hard": 1}


def test_larger_configurations_meet_tighter_deadlines() -> None:
    def asked(due: float) -> TrainingRound:
        return TrainingRound(
            cluster=Cluster.uniform({"only": 4}),
            jobs=Jobs.of(
                id=["elastic"], gang=[1], work=[4 * LEASE], throughput_per_s=[[1.0]],
                min_gpus=[1], max_gpus=[4], config_offsets=[0, 2], config_gpus=[2, 4],
                config_type=[0, 0], config_throughput_per_s=[1.6, 2.5], **dated([(due, 1.0)]),
            ),
        )  # fmt: skip

    still = replace(FREE, scale_up=False)
    # 4, 3 and 2 leases on 1, 2 and 4 GPUs: the fewest GPU-leases that are in time
    for leases, gpus in ((4, 1), (3, 2), (2, 4)):
        round_ = asked(leases * LEASE)
        answer = decide(round_, policy=still)
        assert answer.objective == 1.0
        planned = answer.carry["gpus"].tolist()
        assert planned == [gpus]
    assert decide(asked(LEASE), policy=still).objective == 0.0


def test_slots_keep_the_plan_and_share_the_rest() -> None:
    round_ = golden(3 * LEASE)
    first = decide(round_)
    memory = FREE.remember(None, round_, first, planned_outcome(round_, first.allocation))
    later = replace(round_, now_s=SLOT, reasons=("boundary",))
    answer = decide(later, memory)
    assert answer.status == "HEURISTIC"
    assert answer.objective is None
    assert answer.carry["start_s"] == 0.0
    assert set(runs(later, answer)) == {"A", "C"}
    at_end = replace(round_, now_s=LEASE)
    assert decide(at_end, memory).status == "OPTIMAL"


def test_idle_gpus_go_to_jobs_ahead_of_their_plan() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 2}),
        jobs=Jobs.of(
            id=["later", "best"], gang=[2, 1], work=[LEASE, 0.25 * LEASE],
            throughput_per_s=[[1.0], [1.0]], **dated([(9 * LEASE, 1.0)], []),
        ),
    )  # fmt: skip
    first = decide(round_)
    assert runs(round_, first) == {"best": 1}
    memory = FREE.remember(None, round_, first, planned_outcome(round_, first.allocation))
    alone = replace(round_, now_s=SLOT, jobs=round_.jobs.take(np.array([0])))
    assert runs(alone, decide(alone, memory)) == {"later": 2}


def test_a_last_chance_goes_before_best_effort() -> None:
    """Half a lease of work due in a lease less a second: no lease can be promised, but time is."""

    def asked(due: float, running: bool = False) -> TrainingRound:
        return TrainingRound(
            cluster=Cluster.uniform({"only": 1}),
            jobs=Jobs.of(
                id=["short", "chance", "other"], gang=[1, 1, 1], work=[60.0, 600.0, 650.0],
                throughput_per_s=np.ones((3, 1)), running=[False, False, running],
                previous_type=[-1, -1, 0 if running else -1], held_gpus=[0, 0, int(running)],
                **dated([], [(due, 1.0)], [(LEASE - 1.0, 1.0)]),
            ),
        )  # fmt: skip

    plain = replace(FREE, last_chance=False)
    round_ = asked(LEASE - 1.0)
    assert decide(round_).objective == 0.0
    assert runs(round_, decide(round_)) == {"other": 1}  # 50 s less of slack
    assert runs(round_, decide(round_, policy=plain)) == {"short": 1}
    # who runs goes on, though another has less slack by now
    tighter = asked(601.0, running=True)
    assert runs(tighter, decide(tighter)) == {"other": 1}
    late = asked(599.0)
    assert runs(late, decide(late)) == {"other": 1}
    waits = replace(late, jobs=late.jobs.take(np.array([0, 1])))
    assert runs(waits, decide(waits)) == {"short": 1}


def test_a_cap_does_not_make_a_job_late() -> None:
    """By its cap of 900 iterations it is late; but it may need fewer, and nobody knows yet."""
    jobs = Jobs.of(
        id=["best", "metric"], gang=[1, 1], work=[60.0, 900.0], throughput_per_s=[[1.0], [1.0]],
        stop_on_metric=[False, True], metric_target=[0.0, 0.3], iteration_cap=[np.inf, 900.0],
        **dated([], [(800.0, 1.0)]),
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 1}), jobs=jobs)
    assert runs(round_, decide(round_)) == {"metric": 1}
    after = replace(round_, now_s=801.0)
    assert runs(after, decide(after)) == {"best": 1}


def test_elastic_jobs_grow_by_seconds_saved_per_gpu() -> None:
    def asked(gpus: int) -> TrainingRound:
        return TrainingRound(
            cluster=Cluster.uniform({"only": gpus}),
            jobs=Jobs.of(
                id=["steep", "flat"], gang=[1, 1], work=[9e3, 9e3], throughput_per_s=[[1.0], [1.0]],
                min_gpus=[1, 1], max_gpus=[2, 2], config_offsets=[0, 1, 2], config_gpus=[2, 2],
                config_type=[0, 0], config_throughput_per_s=[1.9, 1.2],
            ),
        )  # fmt: skip

    policy = replace(FREE, most_slots=0)
    for gpus, wanted in ((2, (1, 1)), (3, (2, 1)), (4, (2, 2))):
        round_ = asked(gpus)
        found = runs(round_, decide(round_, policy=policy))
        assert (found["steep"], found["flat"]) == wanted


def test_a_restart_that_costs_more_than_it_gains_is_not_made() -> None:
    """300 s at speed 1, or 240 s at 1.2 after a restart of 30 (1 + log2 2) s."""
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 2}),
        jobs=Jobs.of(
            id=["one"], gang=[1], work=[9e5], throughput_per_s=[[1.0]], running=[True],
            previous_type=[0], held_gpus=[1], min_gpus=[1], max_gpus=[2], config_offsets=[0, 1],
            config_gpus=[2], config_type=[0], config_throughput_per_s=[1.2],
        ),
    )  # fmt: skip
    cheap, dear = UniSched(restart_s=1.0), UniSched(restart_s=30.0)
    assert runs(round_, decide(round_, NO_PLAN, cheap)) == {"one": 2}
    # best effort prefers the least GPU time, and the move would cost progress in this slot
    assert runs(round_, decide(round_, NO_PLAN, dear)) == {"one": 1}


NO_PLAN = {
    "start_s": 0.0, "id": np.zeros(0, dtype="U1"), "offsets": np.zeros(1, dtype=np.int64),
    **{key: np.zeros(0, dtype=np.int64)
       for key in ("gpu_type", "gpus", "runs_type", "runs_gpus", "lease")},
}  # fmt: skip
"""A memory without jobs, so that a round at 0 s is a slot."""


def test_in_a_slot_too_the_steeper_job_grows() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 3}),
        jobs=Jobs.of(
            id=["flat", "steep"], gang=[1, 1], work=[9e3, 9e3], throughput_per_s=[[1.0], [1.0]],
            min_gpus=[1, 1], max_gpus=[2, 2], config_offsets=[0, 1, 2], config_gpus=[2, 2],
            config_type=[0, 0], config_throughput_per_s=[1.2, 1.9],
        ),
    )  # fmt: skip
    assert runs(round_, decide(round_, NO_PLAN)) == {"flat": 1, "steep": 2}


def test_planned_jobs_grow_for_a_whole_lease() -> None:
    """After a restart of 60 s two GPUs lose in a slot (288 s of work for 300), and gain in a lease."""
    jobs: dict[str, Any] = {
        "id": ["one"], "gang": [1], "work": [2400.0], "throughput_per_s": [[1.0]],
        "min_gpus": [1], "max_gpus": [2], "config_offsets": [0, 1], "config_gpus": [2],
        "config_type": [0], "config_throughput_per_s": [1.2], "running": [True],
        "previous_type": [0], **dated([(3 * LEASE, 1.0)]),
    }  # fmt: skip
    policy = UniSched(restart_s=30.0)
    cluster = Cluster.uniform({"only": 2})
    round_ = TrainingRound(cluster=cluster, jobs=Jobs.of(**jobs, held_gpus=[1]))
    first = decide(round_, policy=policy)
    assert first.carry["gpus"].tolist() == [1]
    assert first.carry["runs_gpus"].tolist() == [2]
    assert runs(round_, first) == {"one": 2}
    later = TrainingRound(cluster=cluster, now_s=SLOT, jobs=Jobs.of(**jobs, held_gpus=[2]))
    assert runs(later, decide(later, first.carry, policy)) == {"one": 2}


def test_the_old_plan_moves_on() -> None:
    round_ = golden(3 * LEASE)
    memory = decide(round_).carry
    program = FREE.compile(replace(round_, now_s=LEASE), memory, Budget.of(None))
    row = program.demand.slo_rows.tolist().index(0)
    leases = np.flatnonzero(program.demand.kept[1][row]).tolist()
    old = memory["lease"][memory["offsets"][0] : memory["offsets"][1]].tolist()
    assert leases == [lease - 1 for lease in old if lease > 0]
    assert 0 in old


def test_restarts_that_are_planned_once_promise_too_much() -> None:
    """2 leases' work less one restart, in two leases that do not follow one another."""
    left, restart = np.array([2 * LEASE - 60.0]), np.array([60.0])
    assert leases_needed(left, restart, LEASE, every=False).tolist() == [2]
    assert leases_needed(left, restart, LEASE, every=True).tolist() == [3]
    progress = 2 * (LEASE - 60.0)
    assert progress < left[0]
    assert leases_needed(left, np.array([LEASE]), LEASE, every=True)[0] > 1e6


def test_estimates_decide_and_the_least_promise_is_given_up() -> None:
    grown = {"factor": 1.0}

    def told(round_: TrainingRound, memory: Any, refit: bool) -> tuple[Estimates, dict[str, Any]]:
        jobs = round_.jobs
        left = jobs.work * np.where(jobs.id == "dear", 1.0, grown["factor"]) - jobs.work_done
        return Estimates(np.maximum(left, 1.0), np.zeros(len(jobs), dtype=np.int64)), {}

    policy = UniSched(restart_s=0.0, estimator=told)
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 1}),
        jobs=Jobs.of(
            id=["cheap", "dear"], gang=[1, 1], work=[LEASE, LEASE], throughput_per_s=[[1.0], [1.0]],
            **dated([(3 * LEASE, 2.0)], [(3 * LEASE, 9.0)]),
        ),
    )  # fmt: skip
    first = decide(round_, policy=policy)
    assert first.objective == 11.0
    memory = policy.remember(None, round_, first, planned_outcome(round_, first.allocation))
    grown["factor"] = 3.0
    # nothing was done: a lease was lost, and three leases are asked for where two are left
    later = replace(round_, now_s=LEASE)
    answer = decide(later, memory, policy)
    assert answer.per_job["accepted"].tolist() == [False, True]
    assert any("'cheap' was accepted and is so no longer" in note for note in answer.notes)
    broken = UniSched(
        estimator=lambda round_, memory, refit: (Estimates(np.ones(1), np.zeros(1, int)), {})
    )
    with pytest.raises(InstanceError, match="answered for 1 jobs of 2"):
        broken.compile(round_, None, Budget.of(None))


def curved(observed: list[tuple[float, float]], target: float, cap: float) -> Jobs:
    return Jobs.of(
        id=["loss"], gang=[1], work=[50.0], throughput_per_s=[[1.0]], stop_on_metric=[True],
        metric_target=[target], iteration_cap=[cap], observed_offsets=[0, len(observed)],
        observed_iteration=[k for k, _ in observed], observed_metric=[m for _, m in observed],
        work_done=[float(len(observed))],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("points", "target", "left", "flag"),
    [
        (6, 0.30, 12.0, "fitted"),
        (6, 0.19, 34.0, "unreachable"),
        (2, 0.30, 38.0, "too_few_points"),
        (-6, 0.30, 34.0, "no_fit"),
    ],
)
def test_metric_stopped_jobs(points: int, target: float, left: float, flag: str) -> None:
    """l(k) = 1 / (k / 2 + 1) + 0.2 reaches 0.30 after 18 iterations, and 0.19 never: then 40."""
    curve = [(float(k), 1.0 / (0.5 * k + 1.0) + 0.2) for k in range(1, abs(points) + 1)]
    if points < 0:
        curve = [(k, 1.0 - 0.5 / (1 + k)) for k, _ in curve]  # a loss that rises
    round_ = TrainingRound(cluster=Cluster.uniform({"only": 1}), jobs=curved(curve, target, 40.0))
    answer = decide(round_)
    assert answer.per_job["left_s"][0] == pytest.approx(left, abs=0.51)
    assert answer.per_job["estimate"].tolist() == [flag]


def test_what_ended_jobs_took_is_remembered() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 1}), jobs=curved([(1.0, 0.9)], 0.3, 400.0)
    )
    answer = decide(round_)
    outcome = replace(
        planned_outcome(round_, answer.allocation), work=np.array([9.0]), finished=np.array([True])
    )
    memory = FREE.remember(None, round_, answer, outcome)
    assert memory["estimator_history_iterations"].tolist() == [10.0]
    other = replace(round_, now_s=SLOT)
    assert decide(other, memory).per_job["left_s"][0] == pytest.approx(9.0)


@pytest.mark.parametrize("restarts", ["every", "once"])
@pytest.mark.parametrize("seed", range(4))
def test_accepted_jobs_never_miss(seed: int, restarts: Any) -> None:
    """Exact estimates: whoever was accepted ends by its deadline, whatever arrives later."""
    # without restarts both readings are exact; with them only leases that allow for each are
    charged = restarts == "every"
    scenario = crowded(seed, 30.0 if charged else 0.0)
    policy = UniSched(restart_s=30.0 if charged else 0.0, restarts=restarts)
    watch = Watch(BoundPolicy(policy, Solver(work_limit=WORK_LIMIT)), {})
    ends = run(scenario, watch).jobs.finish_s
    jobs = scenario.jobs
    assert len(watch.accepted) >= 5
    for name in watch.accepted:
        row = jobs.id.tolist().index(name)
        last = jobs.deadline_s[jobs.deadline_offsets[row + 1] - 1]
        assert 0.0 <= ends[row] <= last + 1e-6
    assert watch.given_up == []
    assert (ends >= 0).all()


def crowded(seed: int, restart_s: float) -> Scenario:
    """Forty jobs on eight GPUs, half of them elastic, two thirds with deadlines."""
    rng = np.random.default_rng(seed)
    n = 40
    gang = rng.choice([1, 2, 4], n)
    arrival = np.sort(rng.uniform(0.0, 30_000.0, n)).round()
    work = rng.uniform(600.0, 9_000.0, n).round()
    slo = rng.random(n) < 0.66
    due = arrival + work * rng.uniform(1.3, 3.0, n) + LEASE
    return Scenario(
        name="crowded", cluster=Cluster.uniform({"only": 8}, gpus_per_node=8),
        tenants=Tenants.named("default"),
        jobs=Jobs.of(
            id=[f"j{at}" for at in range(n)], gang=gang, work=work, arrival_s=arrival,
            throughput_per_s=np.ones((n, 1)), slo=slo, restart_s=np.full(n, restart_s),
            min_gpus=gang, max_gpus=np.where(rng.random(n) < 0.5, 2 * gang, gang),
            config_offsets=np.arange(n + 1), config_gpus=2 * gang, config_type=np.zeros(n),
            config_throughput_per_s=np.full(n, 1.7), deadline_offsets=np.arange(n + 1),
            deadline_s=due, deadline_value=rng.choice([2.0, 5.0, 10.0], n),
        ),
        options=ExecutorOptions(
            switch=SwitchCost(
                fixed_s=0.0, charge_start=restart_s > 0, charge_resume=restart_s > 0,
                charge_move=restart_s > 0,
            )
        ),
    )  # fmt: skip


def test_one_restart_for_all_leases_breaks_promises() -> None:
    """The run that shows why each lease is charged: the published form loses a promise in it."""
    watch = Watch(
        BoundPolicy(UniSched(restarts="once"), Solver(work_limit=WORK_LIMIT)), {}
    )  # fmt: skip
    run(crowded(1, 30.0), watch)
    assert watch.given_up


class Watch:
    """A decider that notes who was accepted, and who lost that again."""

    def __init__(self, inner: BoundPolicy, seen: dict[str, float]) -> None:
        self.inner, self.accepted = inner, set[str]()
        self.given_up = list[str]()

    @property
    def subscribes(self) -> Any:
        return self.inner.subscribes

    @property
    def reacts_to(self) -> Any:
        return self.inner.reacts_to

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        answer = self.inner.decide(round_, memory)
        self.accepted |= set(round_.jobs.id[answer.per_job["accepted"]].tolist())
        self.given_up += [note for note in answer.notes if "is so no longer" in note]
        return answer

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> Any:
        return self.inner.remember(memory, round_, decision, outcome)

    def react(self, plan: Any, event: Any, view: Any) -> tuple[Any | None, Any]:
        return self.inner.react(plan, event, view)


def test_jobs_that_cannot_be_stopped_leave_promises_alone() -> None:
    """A best-effort job of 3 leases that cannot be stopped waits for a reservation of lease 1."""

    def asked(gpus: int) -> TrainingRound:
        return TrainingRound(
            cluster=Cluster.uniform({"only": gpus}),
            jobs=Jobs.of(
                id=["slo", "stuck"], gang=[2, 1], work=[2 * LEASE, 3 * LEASE],
                throughput_per_s=[[1.0], [1.0]], preemptible=[True, False],
                **dated([(2 * LEASE, 1.0)], []),
            ),
        )  # fmt: skip

    assert runs(asked(2), decide(asked(2))) == {"slo": 2}
    assert runs(asked(3), decide(asked(3))) == {"slo": 2, "stuck": 1}


def test_configurations_are_those_the_checker_takes() -> None:
    round_ = TrainingRound(
        cluster=Cluster.uniform({"a": 4, "b": 2}),
        jobs=Jobs.of(
            id=["one"], gang=[2], work=[1.0], throughput_per_s=[[1.0, 0.0]], min_gpus=[1],
            max_gpus=[3], config_offsets=[0, 7], config_gpus=[2, 2, 1, 3, 4, 1, 8],
            config_type=[0, 1, 0, 0, 0, 1, 0],
            config_throughput_per_s=[9.0, 0.5, 0.6, 1.4, 2.0, 0.0, 3.0],
        ),
    )  # fmt: skip
    menu = Configurations.of(round_, 10.0)
    told = list(zip(menu.gpu_type.tolist(), menu.gpus.tolist(), menu.speed.tolist(), strict=True))
    assert told == [(0, 1, 0.6), (0, 2, 1.0), (0, 3, 1.4), (1, 2, 0.5)]
    assert menu.restart_s.tolist() == pytest.approx([10.0, 20.0, 10.0 * (1 + np.log2(3)), 20.0])


def test_incumbent_and_no_time_are_the_greedy_plan() -> None:
    round_ = golden(3 * LEASE)
    program = FREE.compile(round_, None, Budget.of(None))
    greedy = program.incumbent()
    assert (greedy.status, greedy.objective) == ("FEASIBLE", 2000.0)
    budget = Budget(0.0)
    answer = FREE.compile(round_, None, budget).solve(Solver(), budget)
    assert answer.time_limited
    assert answer.allocation == greedy.allocation


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_s", 0.0), ("lease_s", np.nan), ("restart_s", -1.0), ("restarts", "never"),
        ("reward", 0.0), ("horizon_s", 600.0), ("most_slots", -1), ("most_slots", 0.5),
        ("slo_quantile", 1.0), ("best_effort_quantile", 0.0), ("estimator", 3),
    ],
)  # fmt: skip
def test_wrong_parameters(field: str, value: Any) -> None:
    with pytest.raises(InstanceError, match=rf"unisched\.{field if field != 'horizon' else ''}"):
        UniSched(**{field: value})


@pytest.mark.parametrize(
    "change",
    [
        {"start_s": None}, {"start_s": np.inf}, {"gpus": np.array([0])}, {"gpus": np.zeros(3)},
        {"lease": np.array([-1])}, {"offsets": np.array([0])}, {"runs_type": np.array(["x"])},
    ],
)  # fmt: skip
def test_wrong_memory(change: dict[str, Any]) -> None:
    round_ = golden(LEASE)
    memory = dict(decide(round_).carry)
    with pytest.raises(InstanceError, match="memory"):
        FREE.compile(round_, {**memory, **change}, Budget.of(None))
    for key in ("start_s", "id", "lease"):
        rest = {name: column for name, column in memory.items() if name != key}
        with pytest.raises(InstanceError, match="not one of unisched"):
            FREE.compile(round_, rest, Budget.of(None))
    with pytest.raises(InstanceError, match="not one of unisched"):
        FREE.compile(round_, 7, Budget.of(None))


def test_newcomers_and_leavers() -> None:
    round_ = golden(3 * LEASE)
    memory = decide(round_).carry
    for rows in ([1], [0, 2], [3, 2, 1, 0]):
        some = replace(round_, now_s=SLOT, jobs=round_.jobs.take(np.array(rows)))
        decide(some, memory)
        decide(replace(some, now_s=LEASE), memory)
    other = replace(round_, now_s=SLOT, jobs=Jobs.of(
        id=["new"], gang=[1], work=[1.0], throughput_per_s=[[1.0]]
    ))  # fmt: skip
    assert runs(other, decide(other, memory)) == {"new": 1}


@pytest.mark.parametrize("policy", [UniSched(), UniSched(most_slots=0, restarts="once")])
@pytest.mark.parametrize("number", range(len(policy_checks(UniSched()))))
def test_battery(policy: UniSched, number: int) -> None:
    judge: Callable[[], None] = policy_checks(policy)[number][1]
    judge()
