"""Rejections of Chronus are proved, and say so where they are not; what would do instead is told."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import apportion as ap
from apportion.executor.training import check
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.chronus.window import refuted_by_window
from apportion.formulations.training.leases.forced_work import refuted
from apportion.instances import Decision
from apportion.instances.training import Cluster, Commitments, Jobs, TrainingRound
from apportion.solver import Budget, Solver

LEASE_S = 1200.0
EXACT = Chronus(overhead_s=0.0, safety=1.0, round_up=False)

Need = tuple[int, int, int]
"""Gang, leases, leases before the deadline."""


def round_of(gpus: int, needs: Sequence[Need], **more: Any) -> TrainingRound:
    """Jobs with one deadline each, on one type."""
    n = len(needs)
    columns: dict[str, Any] = {"id": [f"j{row}" for row in range(n)], "slo": [True] * n} | more
    return TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}, gpus_per_node=gpus),
        jobs=Jobs.of(
            gang=[gang for gang, _, _ in needs], work=[need * LEASE_S for _, need, _ in needs],
            throughput_per_s=np.ones((n, 1)), deadline_offsets=np.arange(n + 1),
            deadline_s=[due * LEASE_S for _, _, due in needs], deadline_value=[10.0] * n, **columns,
        ),
    )  # fmt: skip


def decide(policy: Chronus, round_: TrainingRound) -> Decision:
    budget = Budget.of(None)
    found = policy.compile(round_, None, budget).solve(Solver(gap=0.0), budget)
    assert not check(round_, found.allocation)
    return found


def fits(jobs: Sequence[Need], capacity: Sequence[int]) -> bool:
    """Try every choice of leases for every job."""

    def place(at: int, free: tuple[int, ...]) -> bool:
        if at == len(jobs):
            return True
        gang, need, due = jobs[at]
        return any(
            all(free[lease] >= gang for lease in chosen)
            and place(at + 1, tuple(f - gang * (t in chosen) for t, f in enumerate(free)))
            for chosen in itertools.combinations(range(min(due, len(free))), need)
        )

    return place(0, tuple(capacity))


def asked(jobs: Sequence[Need], capacity: Sequence[int], last: int) -> tuple[bool, bool]:
    """Whether the window refutes jobs, and whether forced work does."""
    different, count = np.unique(np.array(jobs).T, axis=1, return_counts=True)
    gpus, budget = np.array(capacity), Budget.of(None)
    by_window = refuted_by_window(*different, count, gpus, last, Solver(), budget)
    return by_window, refuted(*different, count, gpus)


@pytest.mark.quick
def test_gangs_that_do_not_pack_are_refuted_by_the_first_leases() -> None:
    """8 GPU-leases are wanted and there; but each 3 of 4 leaves one that the gang of 2 cannot use.

    However far the other leases reach, and whoever may wait for them.
    """
    jobs = [(3, 1, 2), (3, 1, 2), (2, 1, 2)]
    assert asked(jobs, [4] * 30, 2) == (True, False)
    assert asked([*jobs[:2], (2, 1, 3)], [4] * 30, 3) == (False, False)
    assert asked([*jobs, (4, 5, 30)], [4] * 30, 2) == (True, False)


def judge(seed: int) -> tuple[bool, bool]:
    rng = np.random.default_rng([41, seed])
    capacity = rng.integers(2, 6, 4).tolist()
    jobs = list[Need]()
    for _ in range(int(rng.integers(3, 6))):
        need = int(rng.integers(1, 3))
        jobs.append((int(rng.integers(1, 5)), need, int(rng.integers(need, 5))))
    by_window, by_work = asked(jobs, capacity, int(rng.integers(1, 4)))
    if by_window:
        assert not fits(jobs, capacity), seed
    return by_window, by_work


def test_what_a_window_refutes_cannot_be_done() -> None:
    told = [judge(seed) for seed in range(120)]
    assert sum(by_window and not by_work for by_window, by_work in told) >= 1
    assert not all(by_window for by_window, _ in told)


@pytest.mark.slow
def test_what_a_window_refutes_cannot_be_done_in_many() -> None:
    for seed in range(120, 3000):
        judge(seed)


def test_a_rejection_by_packing_is_proved_and_told_apart() -> None:
    round_ = round_of(4, [(3, 1, 2), (3, 1, 2), (2, 1, 2), (2, 1, 2)])
    found = decide(EXACT, round_)
    assert found.per_job["state"].tolist() == ["ACCEPTED_SLO"] * 2 + ["UNACCEPTED_SLO"] * 2
    assert not any("not proved" in note for note in found.notes)
    assert not np.asarray(found.per_job["rejected_unproved"]).any()
    unasked = decide(replace(EXACT, most_asked=0), round_)
    assert np.asarray(unasked.per_job["rejected_unproved"]).tolist() == [False, False, True, True]
    assert sum("not proved" in note for note in unasked.notes) == 2


def test_a_question_is_asked_once() -> None:
    """Who was refused with a proof stays so, and so does everybody who wants as much or more."""
    needs = [(3, 1, 2), (3, 1, 2), *[(2, 1, 2)] * 9, (2, 1, 1), (3, 1, 2)]
    policy = replace(EXACT, counter_offer="none")
    program = policy.compile(round_of(4, needs), None, Budget.of(None))
    settled = program.desk.settle(
        program.before.copy(), program.held, Solver(), Budget.of(None), most=20
    )
    assert (settled.standing.state == 1).sum() == len(needs) - 2
    told = settled.pools[0].admission.asking
    assert (told.windows, told.asked, told.undecided) == (1, 0, 0)


def test_an_acceptance_makes_nothing_easier_but_is_not_a_refusal() -> None:
    """Refused at 2, accepted at 3: only what is at most as easy as the refusal is refused unasked."""
    needs = [(3, 1, 2), (3, 1, 2), (2, 1, 2), (2, 1, 3), (1, 1, 2), (1, 1, 2), (1, 1, 2)]
    found = decide(EXACT, round_of(4, needs))
    state = found.per_job["state"].tolist()
    assert [one == "ACCEPTED_SLO" for one in state] == [True, True, False, True, True, True, False]


def test_a_refusal_says_nothing_of_later_deadlines() -> None:
    """(2, 1, 3) is laid by moving everybody, after (3, 1, 1) was refused; tried by hand beside."""
    needs = [
        (2, 2, 2), (3, 1, 3), (3, 1, 4), (4, 1, 4), (3, 1, 2), (1, 1, 1), (3, 1, 1), (2, 1, 3),
        (2, 1, 2),
    ]  # fmt: skip
    accepted = list[Need]()
    for one in needs:
        if fits([*accepted, one], [5] * 4):
            accepted.append(one)
    found = decide(EXACT, round_of(5, needs))
    state = found.per_job["state"].tolist()
    assert [needs[row] for row, one in enumerate(state) if one == "ACCEPTED_SLO"] == accepted
    assert (2, 1, 3) in accepted


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_on_a_full_cluster_leaves_nothing_open(seed: int) -> None:
    """Three hundred jobs at once for 64 GPUs: all that are rejected are so with a proof."""
    rng = np.random.default_rng([42, seed])
    needs = list[Need]()
    for _ in range(300):
        gang, need = int(rng.choice([1, 1, 2, 4, 8, 16])), int(rng.integers(1, 12))
        needs.append((gang, need, need + int(rng.integers(0, 2 * need + 2))))
    found = decide(Chronus(overhead_s=0.0, safety=1.0, counter_offer="none"), round_of(64, needs))
    state = np.asarray(found.per_job["state"])
    assert 30 < (state == "ACCEPTED_SLO").sum() < 250
    assert not np.asarray(found.per_job["rejected_unproved"]).any()


# ---------------------------------------------------------------------- reservations of others


def test_short_runs_end_before_others_reservations_begin() -> None:
    """At 60 s a rejected job could end within the lease; but its GPUs are reserved from 600 s on."""
    round_ = replace(
        round_of(
            2, [(2, 1, 1), (2, 5, 1)], slo=[True, False], id=["short", "reserved"],
        ),
        now_s=60.0, commitments=Commitments.of([1], [600.0], [1200.0], [2]),
    )  # fmt: skip
    jobs = Jobs.of(
        id=["short", "reserved"], gang=[2, 2], work=[1000.0, 5000.0],
        throughput_per_s=[[1.0], [1.0]], slo=[True, False], deadline_offsets=[0, 1, 1],
        deadline_s=[1200.0], deadline_value=[10.0],
    )  # fmt: skip
    found = ap.solve(replace(round_, jobs=jobs), "chronus")
    plan = found.allocation
    assert (plan.job.tolist(), plan.guaranteed.tolist()) == ([0], [False])
    free = ap.solve(replace(round_, jobs=jobs, commitments=Commitments()), "chronus").allocation
    assert (free.job.tolist(), free.guaranteed.tolist()) == ([0], [True])


@pytest.mark.parametrize("seed", range(60))
def test_rounds_with_others_reservations_pass_the_checker(seed: int) -> None:
    rng = np.random.default_rng([43, seed])
    n, gpus = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    now_s = float(rng.choice([0.0, 60.0, 700.0, 1200.0]))
    slo = rng.random(n) < 0.6
    start_s = now_s + float(rng.choice([0.0, 100.0, 400.0, 900.0, 1500.0]))
    round_ = TrainingRound(
        cluster=Cluster.uniform({"GPU": gpus}, gpus_per_node=1), now_s=now_s,
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=rng.integers(1, gpus + 1, n),
            work=rng.choice([100.0, 900.0, 3000.0], n), throughput_per_s=np.ones((n, 1)), slo=slo,
            deadline_offsets=np.concatenate(([0], np.cumsum(slo))),
            deadline_s=now_s + rng.choice([500.0, 1300.0, 5000.0], int(slo.sum())),
            deadline_value=np.full(int(slo.sum()), 10.0), preemptible=rng.random(n) < 0.8,
        ),
    )  # fmt: skip
    gang = int(round_.jobs.gang[0])
    ahead = Commitments.of([0], [start_s], [start_s + float(rng.choice([300.0, 2000.0]))], [gang])
    for policy in (Chronus(), Chronus(slot_s=600.0, lease_s=1200.0, counter_offer="exact")):
        answer = ap.solve(replace(round_, commitments=ahead), policy)
        assert answer.status != "NO_SOLUTION"


def test_counter_offers_reach_beyond_others_reservations() -> None:
    """Two leases are reserved: the third one is the first that is free."""
    round_ = replace(
        round_of(2, [(2, 1, 1), (2, 5, 1)], slo=[True, False], id=["a", "reserved"]),
        commitments=Commitments.of([1], [0.0], [2 * LEASE_S], [2]),
    )
    told = ap.admit(round_, "a", EXACT)
    assert (told.accepted, told.counter_offer_s) == (False, 3 * LEASE_S)
    near = ap.admit(round_, "a", replace(EXACT, horizon=2))
    assert near.counter_offer_s in (None, 3 * LEASE_S)


# ---------------------------------------------------------------------- more GPUs


def test_more_gpus_are_the_answer_where_a_gang_is_too_large() -> None:
    told = ap.admit(round_of(4, [(8, 1, 2)]), "j0", EXACT)
    assert (told.accepted, told.extra_gpus, told.extra_type) == (False, 4, "GPU")


def test_the_cheapest_type_is_told() -> None:
    """Two more of t0, on which a has what there is, or one more of t1, which has but one."""
    jobs = Jobs.of(
        id=["a", "b"], gang=[2, 2], work=[LEASE_S] * 2, throughput_per_s=[[1.0, 0.0], [1.0, 1.0]],
        slo=[True] * 2, deadline_offsets=[0, 1, 2], deadline_s=[LEASE_S] * 2,
        deadline_value=[10.0] * 2,
    )  # fmt: skip
    for gpus, wanted in ((1, (1, "t1")), (0, (2, "t0"))):
        asked_ = TrainingRound(cluster=Cluster.uniform({"t0": 2, "t1": gpus}), jobs=jobs)
        told = ap.admit(asked_, "b", EXACT)
        assert (told.accepted, told.extra_gpus, told.extra_type) == (False, *wanted)


@pytest.mark.parametrize("seed", range(20, 40))
def test_what_others_lose_is_the_sum_of_their_losses(seed: int) -> None:
    """Decided with and without the job: value by value, gains left out (in 26 and 36 there are some)."""
    rng = np.random.default_rng([44, seed])
    n = int(rng.integers(3, 7))
    needs = [(int(rng.integers(1, 4)), int(rng.integers(1, 4)), 1) for _ in range(n)]
    first = rng.integers(1, 4, n)
    jobs = Jobs.of(
        id=[f"j{row}" for row in range(n)], gang=[gang for gang, *_ in needs],
        work=[need * LEASE_S for _, need, _ in needs], throughput_per_s=np.ones((n, 1)),
        slo=[True] * n, deadline_offsets=2 * np.arange(n + 1),
        deadline_s=np.stack((first, first + 2), axis=1).ravel() * LEASE_S,
        deadline_value=[10.0, 4.0] * n,
    )  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"GPU": 4}, gpus_per_node=4), jobs=jobs)

    def worth(rows: list[int]) -> dict[str, float]:
        found = decide(EXACT, replace(round_, jobs=jobs.take(np.array(rows))))
        out = dict[str, float]()
        for row, due in zip(rows, np.asarray(found.per_job["promised_s"]).tolist(), strict=True):
            own = jobs.deadline_s[2 * row : 2 * row + 2].tolist()
            out[str(jobs.id[row])] = 0.0 if due < 0 else (10.0, 4.0)[own.index(due)]
        return out

    told = ap.admit(round_, "j0", EXACT)
    if not told.accepted:
        return
    one, other = worth(list(range(n))), worth(list(range(1, n)))
    losses = [max(0.0, value - one[name]) for name, value in other.items()]
    assert told.displaced_value == pytest.approx(sum(losses))
