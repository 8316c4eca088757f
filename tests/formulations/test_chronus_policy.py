"""Chronus decides: worked examples, every small case by enumeration, boundaries, bad input."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import check, check_commitments
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.chronus.clock import Clock, charged_gpus
from apportion.instances import Decision, InstanceError
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.training import Cluster, Commitments, Jobs, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks

LEASE_S = 1200.0

Job = tuple[str, int, float, Sequence[tuple[float, float]]]
"""Name, gang, leases of work, and pairs of deadline (in leases from now) and value."""

EXACT = Chronus(overhead_s=0.0, safety=1.0, round_up=False, counter_offer="exact")
"""Estimates without margins, gangs as they are: leases are what the examples count."""


def round_of(gpus: int, jobs: Sequence[Job], *, now_s: float = 0.0, **more: Any) -> TrainingRound:
    """Build a round on one type; jobs without deadlines are best effort."""
    counts = [len(options) for *_, options in jobs]
    columns: dict[str, Any] = {
        "slo": [count > 0 for count in counts],
        "deadline_offsets": np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        "deadline_s": [now_s + due * LEASE_S for *_, options in jobs for due, _ in options],
        "deadline_value": [value for *_, options in jobs for _, value in options],
        "arrival_s": [now_s] * len(jobs),
    }
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}, gpus_per_node=more.pop("gpus_per_node", 8)),
        jobs=Jobs.of(
            id=[name for name, *_ in jobs],
            gang=[gang for _, gang, *_ in jobs],
            work=[leases * LEASE_S for _, _, leases, _ in jobs],
            throughput_per_s=np.ones((len(jobs), 1)),
            **(columns | more),
        ),
        now_s=now_s,
    )


def decide(policy: Chronus, round_: TrainingRound, memory: Any = None) -> Decision:
    """Decide without a limit, to proved optima; what leaves passes the checkers."""
    budget = Budget.of(None)
    found = policy.compile(round_, memory, budget).solve(Solver(gap=0.0), budget)
    assert not check(round_, found.allocation)
    if found.commitments is not None:
        assert not check_commitments(round_, found.commitments, found.allocation)
    return found


def on(round_: TrainingRound, decision: Decision, to_s: float) -> tuple[TrainingRound, Any]:
    """Carry a decision out in thought: the round at a later time, and the memory for it."""
    seen = planned_outcome(round_, decision.allocation, to_s)
    memory = Chronus().remember(None, round_, decision, seen)
    jobs, plan = round_.jobs, decision.allocation
    stay = np.flatnonzero(~seen.finished)
    held = np.zeros(len(jobs), dtype=np.int64)
    held[plan.job] = plan.gpus
    ends, sure = np.full(len(jobs), -1.0), np.zeros(len(jobs), dtype=np.bool_)
    ends[plan.job], sure[plan.job] = plan.lease_end_s, plan.guaranteed
    view = jobs.take(stay)
    columns = {
        name: getattr(view, name)
        for name in ("gang", "work", "throughput_per_s", "code", "arrival_s", "slo",
                     "deadline_offsets", "deadline_s", "deadline_value")
    }  # fmt: skip
    return replace(
        round_,
        now_s=to_s,
        commitments=Commitments(),
        jobs=Jobs.of(
            id=view.id, work_done=(jobs.work_done + seen.work)[stay],
            attained_gpu_s=(jobs.attained_gpu_s + seen.gpu_s)[stay], running=held[stay] > 0,
            held_gpus=held[stay], previous_type=np.where(held[stay] > 0, 0, -1),
            lease_end_s=ends[stay], guaranteed=sure[stay],
            lease_start_s=np.where(held[stay] > 0, round_.now_s, -1.0), **columns,
        ),
    ), memory  # fmt: skip


def reserved(round_: TrainingRound, decision: Decision) -> dict[str, list[int]]:
    """Leases of each job that has some, by name."""
    cuts = np.split(decision.carry["lease"], decision.carry["offsets"][1:-1])
    ids = round_.jobs.id.tolist()
    return {name: own.tolist() for name, own in zip(ids, cuts, strict=True) if own.size}


def states(round_: TrainingRound, decision: Decision) -> dict[str, str]:
    """State of each job, by name."""
    told = np.asarray(decision.per_job["state"]).tolist()
    return dict(zip(round_.jobs.id.tolist(), told, strict=True))


def sure(round_: TrainingRound, decision: Decision) -> list[str]:
    """Jobs with a guaranteed lease."""
    plan = decision.allocation
    return round_.jobs.id[plan.job[plan.guaranteed]].tolist()


# ---------------------------------------------------------------------- worked examples


def test_golden_c1_unique_plan() -> None:
    asked = round_of(4, [("A", 4, 1, [(3, 10)]), ("B", 2, 2, [(2, 10)]), ("C", 2, 2, [(2, 10)])])
    found = decide(EXACT, asked)
    assert (found.status, found.objective, found.bound) == ("OPTIMAL", 30.0, 30.0)
    assert reserved(asked, found) == {"A": [2], "B": [0, 1], "C": [0, 1]}
    assert sure(asked, found) == ["B", "C"]


def test_golden_c1_counter_offer() -> None:
    asked = round_of(4, [("B", 2, 2, [(2, 10)]), ("C", 2, 2, [(2, 10)]), ("A", 4, 1, [(2, 10)])])
    found = decide(EXACT, asked)
    assert states(asked, found)["A"] == "UNACCEPTED_SLO"
    assert found.per_job["counter_offer_s"][2] == 3 * LEASE_S
    assert any("'A' is rejected" in note and "3600 s" in note for note in found.notes)


@pytest.mark.parametrize(
    ("sigma", "first", "weighted"), [("minimise", 0, 20.0), ("maximise", 4, 21.0)]
)
def test_golden_c3_first_lease(sigma: Any, first: int, weighted: float) -> None:
    asked = round_of(4, [("A", 2, 1, [(2, 10)]), ("B", 2, 1, [(2, 10)])])
    found = decide(replace(EXACT, sigma=sigma), asked)
    plan = found.allocation
    guaranteed = int(plan.gpus[plan.guaranteed].sum())
    assert guaranteed == first
    sign = 1.0 if sigma == "maximise" else -1.0
    assert found.objective is not None
    assert found.objective + sign * guaranteed / 4 == weighted
    # what is not guaranteed is spot, and jobs run ahead of their leases on it
    assert int(plan.gpus.sum()) == 4


def test_golden_c5_exact_before_reject() -> None:
    asked = round_of(2, [(name, 1, 2, [(3, 10)]) for name in "ABC"])
    assert set(states(asked, decide(EXACT, asked)).values()) == {"ACCEPTED_SLO"}


def test_golden_c6_not_earliest_deadline_first() -> None:
    asked = round_of(2, [("A", 1, 1, [(1, 10)]), ("B", 1, 1, [(2, 10)]), ("C", 1, 2, [(2, 10)])])
    found = decide(EXACT, asked)
    assert reserved(asked, found) == {"A": [0], "B": [1], "C": [0, 1]}


def test_adaptive_leaves_room_after_a_rejection() -> None:
    """+1 at first; -1 at the boundary after one at which a rejected job was there."""
    waits = round_of(4, [("A", 2, 2, [(4, 10)]), ("no", 4, 3, [(3, 10)])])
    told = decide(EXACT, waits)
    assert states(waits, told)["no"] == "UNACCEPTED_SLO"
    later, memory = on(waits, told, LEASE_S)
    assert memory["rejected"]
    assert sure(later, decide(EXACT, later, memory)) == []
    assert sure(later, decide(replace(EXACT, sigma="maximise"), later, memory)) == ["A"]


# ---------------------------------------------------------------------- every case


Need = tuple[int, int, int]
"""Gang, leases, due."""


def fits(jobs: Sequence[Need], gpus: int, length: int) -> bool:
    """Try every choice of leases for every job."""

    def place(at: int, free: tuple[int, ...]) -> bool:
        if at == len(jobs):
            return True
        gang, need, due = jobs[at]
        for chosen in itertools.combinations(range(min(due, length)), need):
            if all(free[lease] >= gang for lease in chosen) and place(
                at + 1,
                tuple(f - gang if t in chosen else f for t, f in enumerate(free)),
            ):
                return True
        return False

    return place(0, (gpus,) * length)


def least_first(jobs: Sequence[Need], gpus: int, length: int, worst: bool) -> int:
    """Fewest or most GPUs in lease 0 over all plans."""
    found: list[int] = []
    for first in itertools.product((0, 1), repeat=len(jobs)):
        used = sum(gang for on, (gang, *_) in zip(first, jobs, strict=True) if on)
        if used > gpus:
            continue
        rest = [
            (gang, need - on, due - 1) for on, (gang, need, due) in zip(first, jobs, strict=True)
        ]
        if any(on and due < 1 for on, (_, _, due) in zip(first, jobs, strict=True)):
            continue
        if fits([one for one in rest if one[1] > 0], gpus, length - 1):
            found.append(used)
    return max(found) if worst else min(found)


def random_case(rng: np.random.Generator) -> tuple[int, list[Job]]:
    jobs: list[Job] = []
    for number in range(int(rng.integers(2, 6))):
        due = sorted(rng.choice(np.arange(1, 5), int(rng.choice([1, 1, 2])), replace=False))
        values = [10.0, 8.0][: len(due)]
        options = [(float(at), value) for at, value in zip(due, values, strict=True)]
        jobs.append((f"j{number}", int(rng.integers(1, 4)), float(rng.integers(1, 4)), options))
    return int(rng.integers(1, 6)), jobs


def judge_case(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus, jobs = random_case(rng)
    sigma = ("maximise", "minimise", "none")[seed % 3]
    asked = round_of(gpus, jobs)
    found = decide(replace(EXACT, sigma=sigma), asked)
    told, promised = states(asked, found), np.asarray(found.per_job["promised_s"])
    offers = np.asarray(found.per_job["counter_offer_s"])
    accepted: list[Need] = []
    for row, (name, gang, leases, options) in enumerate(jobs):
        need, length = int(leases), 12
        due = [int(at) for at, _ in options]
        kept = [at for at in due if fits([*accepted, (gang, need, at)], gpus, length)]
        assert (told[name] == "ACCEPTED_SLO") == bool(kept), (seed, name)
        if kept:
            assert promised[row] == kept[0] * LEASE_S
            accepted.append((gang, need, kept[0]))
            continue
        assert promised[row] == -1
        later = [
            at for at in range(due[-1] + 1, length + 1)
            if fits([*accepted, (gang, need, at)], gpus, length)
        ]  # fmt: skip
        # a gang larger than the cluster has no deadline that would do
        assert offers[row] == (later[0] * LEASE_S if later else -1), (seed, name)
    if not accepted:
        return
    assert found.status == "OPTIMAL"
    rows = [row for row, (name, *_) in enumerate(jobs) if told[name] == "ACCEPTED_SLO"]
    best = 0.0
    choices = [
        [(at, value) for at, value in jobs[row][3] if at * LEASE_S <= promised[row]] for row in rows
    ]
    for choice in itertools.product(*choices):
        needs = [
            (gang, need, int(at)) for (gang, need, _), (at, _) in zip(accepted, choice, strict=True)
        ]
        if fits(needs, gpus, 4):
            best = max(best, sum(value for _, value in choice))
    assert found.objective == pytest.approx(best)
    if sigma != "none" and all(len(options) == 1 for *_, options in jobs):
        plan = found.allocation
        first = int(plan.gpus[plan.guaranteed].sum())
        # rejected jobs may have been given short runs, which are guaranteed too
        first -= sum(
            int(plan.gpus[at]) for at in np.flatnonzero(plan.guaranteed).tolist()
            if plan.job[at] not in rows
        )  # fmt: skip
        assert first == least_first(accepted, gpus, 4, sigma == "maximise")


@pytest.mark.parametrize("seed", range(20))
def test_admission_counter_offers_and_plans(seed: int) -> None:
    judge_case(seed)


@pytest.mark.slow
def test_admission_counter_offers_and_plans_of_many() -> None:
    for seed in range(20, 420):
        judge_case(seed)


# ---------------------------------------------------------------------- boundaries


@pytest.mark.parametrize(
    ("now", "due", "leases", "accepted"),
    [
        (0.0, 2.0, 2, True), (0.0, 1.999, 2, False), (0.0, 2.999, 2, True),
        (0.25, 1.75, 1, True), (0.25, 1.5, 1, False), (0.25, 2.75, 2, True),
        (0.25, 2.7, 2, False),
    ],
)  # fmt: skip
def test_deadline_at_the_end_of_a_lease(
    now: float, due: float, leases: int, accepted: bool
) -> None:
    """Leases count from the next boundary on, one at this very moment included."""
    asked = round_of(1, [("A", 1, leases, [(due, 10)])], now_s=now * LEASE_S)
    told = states(asked, decide(EXACT, asked))
    assert (told["A"] == "ACCEPTED_SLO") == accepted


def test_clock() -> None:
    clock = Clock.at(3600.0, 1200.0, 300.0)
    assert (clock.current, clock.first, clock.boundary, clock.next_s) == (3, 3, True, 3900.0)
    clock = Clock.at(3599.0, 1200.0, 300.0)
    assert (clock.current, clock.first, clock.boundary, clock.next_s) == (2, 3, False, 3600.0)
    assert clock.due(np.array([3600.0, 3599.9, 4800.0 - 1e-7])).tolist() == [3, 2, 4]
    assert clock.leases(np.array([0.0, 1.0, 1200.0, 1200.0 + 1e-5, 1201.0])).tolist() == [
        0, 1, 1, 1, 2,
    ]  # fmt: skip
    # slots that do not divide a lease start anew with it
    assert Clock.at(1000.0, 1200.0, 500.0).next_s == 1200.0


def test_gangs_are_rounded_up_within_nodes() -> None:
    gang = np.arange(1, 10)
    eight = charged_gpus(gang, Cluster.uniform({"a": 16, "b": 12}, gpus_per_node=8))
    assert eight[:, 0].tolist() == [1, 2, 4, 4, 8, 8, 8, 8, 9]
    six = charged_gpus(gang, Cluster.uniform({"a": 12}, gpus_per_node=6))
    assert six[:, 0].tolist() == [1, 2, 3, 6, 6, 6, 7, 8, 9]


def test_plan_is_charged_for_rounded_gangs() -> None:
    jobs: list[Job] = [("A", 3, 1, [(1, 10)]), ("B", 3, 1, [(1, 10)]), ("C", 2, 1, [(1, 10)])]
    rounded = decide(replace(EXACT, round_up=True), round_of(8, jobs))
    assert states(round_of(8, jobs), rounded)["C"] == "UNACCEPTED_SLO"
    # 6 GPUs are held, so that C gets a run that is not stopped before the lease ends
    assert rounded.allocation.gpus.tolist() == [3, 3, 2]
    assert states(round_of(8, jobs), decide(EXACT, round_of(8, jobs)))["C"] == "ACCEPTED_SLO"


def test_estimate_has_margins() -> None:
    """1.1 x (1 + 0.5 min x (1 + log2 8) / 20 min) = 1.21: 17 of 20 min need two leases."""
    asked = round_of(8, [("A", 8, 17 / 20, [(2, 10)]), ("B", 8, 16 / 20, [(3, 10)])])
    found = decide(Chronus(), asked)
    assert np.asarray(found.per_job["reserved_leases"]).tolist() == [2, 1]


# ---------------------------------------------------------------------- through time


def test_reservations_move_on_and_hold() -> None:
    asked = round_of(2, [("A", 2, 2, [(4, 10)]), ("B", 1, 9, [])])
    first = decide(replace(EXACT, sigma="minimise"), asked)
    assert sure(asked, first) == []
    later, memory = on(asked, first, LEASE_S)
    text = load_memory(dump_memory(memory))
    second = decide(replace(EXACT, sigma="minimise"), later, text)
    assert second.per_job["state"].tolist() == ["ACCEPTED_SLO", "BEST_EFFORT"]
    # it ran ahead of B, of which more is left, and needs one lease less
    left = reserved(later, second)["A"]
    assert len(left) == 2 - int(0 in first.allocation.job)
    assert all(1 <= lease < 4 for lease in left)


def test_runs_ahead_give_back_the_earliest_lease() -> None:
    asked = round_of(2, [("A", 2, 2, [(4, 10)])])
    late = replace(EXACT, sigma="minimise")
    first = decide(late, asked)
    assert sure(asked, first) == []
    assert first.allocation.job.tolist() == [0]
    before = reserved(asked, first)["A"]
    later, memory = on(asked, first, LEASE_S)
    second = decide(replace(late, sigma="none"), later, memory)
    assert reserved(later, second)["A"] == before[1:]


def test_commitments_begin_after_the_next_boundary() -> None:
    asked = round_of(1, [("A", 1, 3, [(3, 10)]), ("B", 1, 2, [(6, 10)])])
    found = decide(EXACT, asked)
    promised = found.commitments
    assert reserved(asked, found) == {"A": [0, 1, 2], "B": found.carry["lease"].tolist()[3:]}
    assert promised.start_s.min() == 2 * LEASE_S
    gpu_s = (promised.gpus * (promised.end_s - promised.start_s)).sum()
    assert gpu_s == 3 * LEASE_S
    quiet = decide(replace(EXACT, publish=False), asked)
    assert quiet.commitments is None


def test_other_peoples_reservations_are_kept_and_planned_around() -> None:
    asked = round_of(2, [("X", 2, 1, []), ("A", 2, 2, [(3, 10)])])
    asked = replace(asked, commitments=Commitments.of([0], [LEASE_S], [2 * LEASE_S], [2], [0]))
    found = decide(EXACT, asked)
    assert reserved(asked, found) == {"A": [0, 2]}
    assert found.commitments.kind.tolist() == ["reservation", "chronus"]


@pytest.mark.parametrize(
    ("pinned", "leases"),
    [
        ({"preemptible": [False, True]}, []),
        ({"guaranteed": [True, False], "lease_end_s": [1.5 * LEASE_S, -1.0]}, [2, 3]),
    ],
)
def test_leases_are_planned_on_what_is_not_bound(pinned: dict[str, Any], leases: list[int]) -> None:
    """A job that may not stop holds its GPU for good, a guaranteed lease until it ends."""
    asked = round_of(
        2, [("X", 1, 9, []), ("A", 2, 2, [(4, 10)])], running=[True, False],
        previous_type=[0, -1], held_gpus=[1, 0], **pinned,
    )  # fmt: skip
    assert reserved(asked, decide(EXACT, asked)).get("A", []) == leases


def test_newcomers_never_push_accepted_jobs_out() -> None:
    asked = round_of(2, [("A", 2, 2, [(2, 1)])])
    first = decide(EXACT, asked)
    later, memory = on(asked, first, 300.0)
    jobs = later.jobs
    both = replace(
        later,
        jobs=Jobs.of(
            id=["A", "B"], gang=[2, 2], work=[*jobs.work, 600.0],
            throughput_per_s=[[1.0], [1.0]], code=[0, 1], arrival_s=[0.0, 300.0],
            slo=[True, True], deadline_offsets=[0, 1, 2],
            deadline_s=[2 * LEASE_S, 2 * LEASE_S], deadline_value=[1.0, 10.0],
            work_done=[*jobs.work_done, 0.0], running=[True, False], held_gpus=[2, 0],
            previous_type=[0, -1], lease_end_s=[LEASE_S, -1.0], guaranteed=[True, False],
        ),
    )  # fmt: skip
    found = decide(EXACT, both, memory)
    assert states(both, found) == {"A": "ACCEPTED_SLO", "B": "UNACCEPTED_SLO"}


def test_demotion_at_the_estimate() -> None:
    asked = round_of(1, [("A", 1, 1, [(9, 10)])])
    first = decide(EXACT, asked)
    later, memory = on(asked, first, LEASE_S / 2)
    stuck = Jobs.of(
        id=["A"], gang=[1], work=[LEASE_S], throughput_per_s=[[1.0]], slo=[True],
        deadline_offsets=[0, 1], deadline_s=[9 * LEASE_S], deadline_value=[10.0],
        work_done=[LEASE_S / 2], attained_gpu_s=[LEASE_S],
    )  # fmt: skip
    found = decide(EXACT, replace(later, now_s=2 * LEASE_S, jobs=stuck), memory)
    assert found.per_job["state"].tolist() == ["UNACCEPTED_SLO"]
    assert any("as long as was estimated" in note for note in found.notes)
    # it is not dropped
    assert found.allocation.job.tolist() == [0]


def test_failed_nodes_take_the_latest_promises() -> None:
    asked = round_of(2, [("A", 1, 2, [(2, 10)]), ("B", 1, 2, [(2, 10)])], gpus_per_node=1)
    first = decide(EXACT, asked)
    memory = Chronus().remember(None, asked, first, planned_outcome(asked, first.allocation, 1.0))
    broken = replace(asked, now_s=0.0, node_up=np.array([True, False]))
    found = decide(EXACT, broken, memory)
    assert states(broken, found) == {"A": "ACCEPTED_SLO", "B": "UNACCEPTED_SLO"}
    assert any("'B' lost its promise" in note for note in found.notes)


def test_several_types_promise_on_the_fastest_that_has_room() -> None:
    asked = TrainingRound(
        cluster=Cluster.uniform({"slow": 1, "fast": 1}),
        jobs=Jobs.of(
            id=["A", "B", "C"], gang=[1, 1, 1], work=[LEASE_S] * 3,
            throughput_per_s=[[0.5, 1.0]] * 3, slo=[True] * 3, deadline_offsets=[0, 1, 2, 3],
            deadline_s=[LEASE_S, 2 * LEASE_S, 2 * LEASE_S], deadline_value=[10.0] * 3,
        ),
    )  # fmt: skip
    found = decide(EXACT, asked)
    assert found.carry["kind"].tolist() == [1, 1, 0]
    assert reserved(asked, found) == {"A": [0], "B": [1], "C": [0, 1]}


# ---------------------------------------------------------------------- spot GPUs


def test_order_of_spot_gpus() -> None:
    """Rejected jobs that end within the lease first; then least GPU-time; late jobs last."""
    asked = round_of(
        1,
        [("late", 1, 5, [(1, 10)]), ("long", 1, 3, []), ("brief", 1, 2, []),
         ("short", 1, 0.5, [(0.6, 10)])],
    )  # fmt: skip
    found = decide(EXACT, asked)
    assert states(asked, found)["late"] == "LOWEST"
    assert asked.jobs.id[found.allocation.job].tolist() == ["short"]
    assert found.allocation.guaranteed.tolist() == [True]
    rest = round_of(1, [("late", 1, 5, [(1, 10)]), ("long", 1, 3, []), ("brief", 1, 2, [])])
    assert rest.jobs.id[decide(EXACT, rest).allocation.job].tolist() == ["brief"]


def test_jobs_that_may_not_stop_leave_reservations_their_room() -> None:
    """With leases of an hour nobody runs ahead: the GPUs are free now, and B may not have them."""
    asked = round_of(2, [("A", 2, 1, [(6, 10)]), ("B", 1, 9, [])], preemptible=[True, False])
    hours = replace(EXACT, sigma="minimise", lease_s=3600.0)
    assert reserved(asked, decide(hours, asked)) == {"A": [1]}
    assert decide(hours, asked).allocation.job.size == 0
    free = round_of(2, [("A", 2, 1, [(6, 10)]), ("B", 1, 9, [])])
    assert free.jobs.id[decide(hours, free).allocation.job].tolist() == ["B"]
    alone = round_of(3, [("A", 2, 1, [(2, 10)]), ("B", 1, 9, [])], preemptible=[True, False])
    assert decide(EXACT, alone).allocation.job.size == 2


# ---------------------------------------------------------------------- bad input, no time


def test_negative_slack_and_long_needs_are_rejected_with_a_note() -> None:
    asked = round_of(1, [("A", 1, 5, [(2, 10)]), ("B", 1, 30, [(40, 10)])])
    found = decide(replace(EXACT, horizon=20), asked)
    assert states(asked, found) == {"A": "LOWEST", "B": "UNACCEPTED_SLO"}
    assert any("negative slack" in note for note in found.notes)
    assert any("the horizon has 20" in note for note in found.notes)


def test_deadlines_beyond_the_horizon_lie_at_its_end() -> None:
    asked = round_of(1, [("A", 1, 2, [(50, 10)])])
    found = decide(replace(EXACT, horizon=3), asked)
    assert found.per_job["promised_s"].tolist() == [3 * LEASE_S]


def test_no_lease_is_left_to_run() -> None:
    """A deadline within the running lease leaves none, and is no reason to crash."""
    asked = round_of(1, [("A", 1, 0.1, [(0.2, 10)])], now_s=100.0)
    found = decide(EXACT, asked)
    assert states(asked, found) == {"A": "UNACCEPTED_SLO"}
    assert found.allocation.job.tolist() == [0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"lease_s": 0.0}, "chronus.lease_s = 0.0"),
        ({"lease_s": float("nan")}, "chronus.lease_s = nan"),
        ({"slot_s": 2400.0}, "must not be longer than a lease"),
        ({"slot_s": -1.0}, "chronus.slot_s"),
        ({"horizon": 0}, "chronus.horizon = 0"),
        ({"sigma": "up"}, "chronus.sigma = 'up'"),
        ({"safety": 0.5}, "chronus.safety"),
        ({"overhead_s": -1.0}, "chronus.overhead_s"),
        ({"most_asked": -1}, "chronus.most_asked"),
        ({"counter_offer": "all"}, "chronus.counter_offer"),
        ({"placement": "any"}, "chronus.placement"),
    ],
)
def test_bad_parameters(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InstanceError, match=told):
        Chronus(**given)


@pytest.mark.parametrize(
    "change",
    [
        {"state": None}, {"state": [7, 0]}, {"kind": [5, 0]}, {"kind": [-1, -1]},
        {"offsets": [0, 2, 1]}, {"lease": [1]}, {"lease_s": 600.0}, {"code": [1]},
        {"due": ["x", "y"]},
    ],
)  # fmt: skip
def test_bad_memory(change: dict[str, Any]) -> None:
    asked = round_of(2, [("A", 2, 1, [(3, 10)]), ("B", 2, 2, [(3, 10)])])
    memory = dict(decide(EXACT, asked).carry)
    decide(EXACT, asked, memory)
    for name, value in change.items():
        memory.pop(name)
        if value is not None:
            memory[name] = value
    with pytest.raises(InstanceError, match="memory"):
        EXACT.compile(asked, memory, Budget.of(None))
    with pytest.raises(InstanceError, match="memory"):
        EXACT.compile(asked, 3, Budget.of(None))


def test_without_time_the_quick_tests_and_the_cached_plan_answer() -> None:
    asked = round_of(2, [(name, 1, 2, [(3, 10)]) for name in "ABC"])
    budget = Budget.of(1e-9)
    found = EXACT.compile(asked, None, budget).solve(Solver(), budget)
    assert found.time_limited
    assert found.status != "OPTIMAL"
    assert not check(asked, found.allocation)


def test_incumbent_claims_nothing() -> None:
    asked = round_of(4, [("A", 2, 1, [(2, 10)])])
    found = EXACT.compile(asked, None, Budget.of(None)).incumbent()
    assert (found.status, found.bound) == ("FEASIBLE", None)


def test_spent_questions_are_told() -> None:
    """Where the model may not be asked and quick tests do not settle it, the note says so."""
    jobs: list[Job] = [("A", 2, 2, [(4, 10)]), ("B", 3, 2, [(4, 10)]), ("C", 4, 2, [(4, 10)])]
    for seed in range(200):
        rng = np.random.default_rng(seed)
        jobs = [
            (f"j{at}", int(rng.integers(1, 5)), float(rng.integers(1, 4)),
             [(float(rng.integers(2, 6)), 10.0)]) for at in range(8)
        ]  # fmt: skip
        asked = round_of(6, jobs)
        found = decide(replace(EXACT, most_asked=0), asked)
        if any("not proved" in note for note in found.notes):
            return
    pytest.fail("no case needed the model")


@pytest.mark.parametrize(
    "judge",
    [
        pytest.param(judge, id=f"{name}-{policy.placement}")
        for policy in (Chronus(), Chronus(placement="exact"))
        for name, judge in policy_checks(policy)
    ],
)
def test_battery(judge: Callable[[], None]) -> None:
    judge()
