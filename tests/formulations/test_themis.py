"""Themis: the small example of the auction, every allocation of tiny auctions, leases and debts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.executor.training import check
from apportion.formulations.training.peers import themis_auction
from apportion.formulations.training.peers.themis import Themis
from apportion.formulations.training.peers.themis_auction import Bids, hold
from apportion.instances import Decision, InstanceError
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Solver
from apportion.testing import policy_checks, random_round

SLOW = 300
EXACT = Solver(gap=0.0)


def seeds(count: int = SLOW) -> list[Any]:
    return [pytest.param(s, marks=[pytest.mark.slow] if s >= 20 else []) for s in range(count)]


def decide(
    round_: TrainingRound, memory: Any = None, seconds: float | None = None, **options: Any
) -> Decision:
    budget = Budget.of(seconds)
    return Themis(**options).compile(round_, memory, budget).solve(EXACT, budget)


def test_two_agents_and_two_gpus_by_hand() -> None:
    """V = x: one GPU each, product 1; alone the other has 2, so that each keeps a half."""
    nothing = 1e-6  # stands for a valuation of zero, whose logarithm does not exist
    gain = np.log(np.array([[1.0, 2.0], [1.0, 2.0]]) / nothing)
    bids = Bids(gain, np.array([[1, 2], [1, 2]]), np.array([0, 0]), np.array([2]))
    auction = hold(bids, EXACT, Budget.of(None))
    assert auction.option.tolist() == [0, 0]
    assert auction.kept.tolist() == pytest.approx([0.5, 0.5])
    won = bids.gpus[[0, 1], auction.option]
    assert 2 - (won * auction.kept).sum() == pytest.approx(1.0)  # one GPU is left over
    assert (auction.status, auction.exact) == ("OPTIMAL", True)


def draw_bids(rng: np.random.Generator) -> Bids:
    agents, kinds = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    kind = np.sort(rng.integers(0, kinds, int(rng.integers(1, 5))))
    gain = rng.uniform(-0.5, 3.0, (agents, kind.size))
    if rng.random() < 0.3:
        gain = np.ceil(gain)
    gain[rng.random(gain.shape) < 0.2] = -np.inf
    gpus = rng.integers(1, 4, gain.shape)
    return Bids(gain, gpus, kind, rng.integers(0, 6, kinds))


def most(bids: Bids, left_out: int | None = None) -> float:
    """Largest sum of gains over every allocation."""
    best = 0.0
    agents, options = bids.gain.shape
    ways = [range(-1, 0 if a == left_out else options) for a in range(agents)]
    for plan in itertools.product(*ways):
        used, total = [0] * bids.free.size, 0.0
        for agent, option in enumerate(plan):
            if option >= 0:
                used[int(bids.kind[option])] += int(bids.gpus[agent, option])
                total += float(bids.gain[agent, option])
        if all(u <= f for u, f in zip(used, bids.free.tolist(), strict=True)):
            best = max(best, total)
    return best


@pytest.mark.parametrize("seed", seeds())
def test_auction_and_payments_by_enumeration(seed: int) -> None:
    bids = draw_bids(np.random.default_rng(seed))
    auction = hold(bids, EXACT, Budget.of(None))
    assert auction.status == "OPTIMAL"
    assert auction.exact
    assert auction.value == pytest.approx(most(bids), abs=1e-9)
    assert auction.bound == pytest.approx(auction.value, abs=1e-6)
    for agent, option in enumerate(auction.option.tolist()):
        if option < 0:
            assert auction.kept[agent] == 1.0
            continue
        beside = auction.value - float(bids.gain[agent, option])
        assert auction.kept[agent] == pytest.approx(np.exp(beside - most(bids, agent)), rel=1e-6)


def relaxed(bids: Bids) -> float:
    agents, options = bids.gain.shape
    worth = np.where(np.isfinite(bids.gain), bids.gain, -9.0)
    rows = []
    for agent in range(agents):
        row = np.zeros((agents, options))
        row[agent] = 1.0
        rows.append(row.ravel())
    rows += [(bids.gpus * (bids.kind == kind)).ravel() for kind in range(bids.free.size)]
    limits = np.concatenate((np.ones(agents), bids.free))
    return -float(linprog(-worth.ravel(), A_ub=np.array(rows), b_ub=limits, bounds=(0, 1)).fun)


@pytest.mark.parametrize("seed", seeds())
def test_payments_by_prices_are_bounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices overrate the harm to the others by no less than the relaxation's own error."""
    bids = draw_bids(np.random.default_rng(seed))
    exact = hold(bids, EXACT, Budget.of(None))
    monkeypatch.setattr(themis_auction, "EXACT_WINNERS", 0)
    priced = hold(bids, EXACT, Budget.of(None))
    assert np.array_equal(exact.option, priced.option)
    assert ((priced.kept >= 0.0) & (priced.kept <= 1.0)).all()
    slack = np.exp(relaxed(bids) - exact.value)
    assert (priced.kept <= exact.kept * slack * (1.0 + 1e-6)).all()


def four_jobs(now_s: float = 600.0, **columns: Any) -> TrainingRound:
    """One GPU; work of 100 s each; arrivals 0, 200, 400, 500 s."""
    return TrainingRound(
        cluster=Cluster.uniform({"only": 1}),
        jobs=Jobs.of(
            id=list("abcd"), gang=[1] * 4, work=[100.0] * 4, throughput_per_s=[[1.0]] * 4,
            arrival_s=[0.0, 200.0, 400.0, 500.0], **columns,
        ),
        now_s=now_s,
    )  # fmt: skip


def test_rho_by_hand() -> None:
    """Alone on a quarter each job takes 400 s; a has waited 600 s and needs 100 s: 700 / 400."""
    answer = decide(four_jobs())
    assert answer.per_job["rho"].tolist() == pytest.approx([1.75, 1.25, 0.75, 0.5])
    # a alone bids: ln((600 + 300 + 400) / (600 + 100)); nobody is harmed
    assert answer.allocation.job.tolist() == [0]
    assert answer.objective == pytest.approx(np.log(1300 / 700))
    assert answer.per_job["kept"].tolist() == [1.0] * 4


def test_isolated_time_counts_the_work_done() -> None:
    """Half done: 600 s of age and 50 s left, still over 400 s alone."""
    answer = decide(four_jobs(work_done=[50.0, 0.0, 0.0, 0.0]))
    assert answer.per_job["rho"][0] == pytest.approx(650 / 400)


def test_winners_pay_with_whole_leases() -> None:
    """All bid: the youngest gains most, and pays what the next would have gained without it."""
    gains = [np.log((age + 700) / (age + 100)) for age in (600.0, 400.0, 200.0, 100.0)]
    round_ = four_jobs()
    answer = decide(round_, fairness=0.0)
    assert answer.allocation.job.tolist() == [3]
    kept = np.exp(-gains[2])
    assert answer.per_job["kept"][3] == pytest.approx(kept)
    debt = 1.0 - kept
    assert answer.carry["debt"].tolist() == pytest.approx([0.0, 0.0, 0.0, debt])
    memory = Themis().remember(None, round_, answer, None)
    # the second debt makes a whole lease: d pays, and the longest waiting gets it
    again = decide(round_, memory, fairness=0.0)
    assert 2 * debt >= 1.0
    assert again.allocation.job.tolist() == [0]
    assert again.carry["debt"].tolist() == pytest.approx([0.0, 0.0, 0.0, 2 * debt - 1.0])


def test_who_has_just_paid_comes_last() -> None:
    """a wins (its run is long), owes a whole lease, and b gets the GPU though a waits longer."""
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": 1}),
        jobs=Jobs.of(
            id=["a", "b"], gang=[1, 1], work=[1e5, 100.0], throughput_per_s=[[1.0], [1.0]],
            arrival_s=[0.0, 100.0],
        ),
        now_s=600.0,
    )  # fmt: skip
    owing = {"id": ["a", "b"], "debt": [0.7, 0.0]}
    answer = decide(round_, owing, fairness=0.0)
    kept = (500 + 100) / (500 + 300 + 200)
    assert answer.per_job["kept"].tolist() == pytest.approx([kept, 1.0])
    assert answer.allocation.job.tolist() == [1]
    assert answer.carry["debt"].tolist() == pytest.approx([0.7 + 0.4 - 1.0, 0.0])
    assert decide(round_, None, fairness=0.0).allocation.job.tolist() == [0]


def test_leftovers_go_to_those_who_did_not_bid() -> None:
    """a bids nothing for the slow GPU, as waiting is better; b takes it though a waits longer."""
    round_ = TrainingRound(
        cluster=Cluster.uniform({"slow": 1, "fast": 1}),
        jobs=Jobs.of(
            id=["a", "b", "c"], gang=[1, 1, 1], work=[1e4, 1e5, 1e5],
            throughput_per_s=[[0.1, 10.0], [1.0, 0.0], [1.0, 1.0]],
            arrival_s=[0.0, 500.0, 500.0], running=[False, False, True],
            previous_type=[-1, -1, 1], held_gpus=[0, 0, 1], preemptible=[True, True, False],
        ),
        now_s=600.0,
    )  # fmt: skip
    answer = decide(round_, fairness=0.5)
    assert answer.per_job["rho"][0] > answer.per_job["rho"][1]
    assert answer.allocation.job.tolist() == [1, 2]


def test_leases_go_on_to_their_end() -> None:
    columns: dict[str, Any] = {
        "running": [False, False, False, True], "previous_type": [-1, -1, -1, 0],
        "held_gpus": [0, 0, 0, 1],
    }  # fmt: skip
    goes_on = decide(four_jobs(lease_end_s=[-1.0, -1.0, -1.0, 700.0], **columns))
    assert goes_on.allocation.job.tolist() == [3]
    assert goes_on.allocation.lease_end_s.tolist() == [700.0]
    ended = decide(four_jobs(lease_end_s=[-1.0, -1.0, -1.0, 600.0], **columns), lease_s=301.0)
    assert ended.allocation.job.tolist() == [0]
    assert ended.allocation.lease_end_s.tolist() == [1200.0]  # two whole rounds


def test_max_min_serves_the_worst_first() -> None:
    round_ = replace(four_jobs(), cluster=Cluster.uniform({"only": 2}))
    answer = decide(round_, method="max-min")
    assert answer.status == "HEURISTIC"
    assert answer.allocation.job.tolist() == [0, 1]


@pytest.mark.parametrize("method", ["auction", "max-min"])
@pytest.mark.parametrize("seed", range(20))
def test_no_gang_that_fits_is_left_out(seed: int, method: Any) -> None:
    round_ = random_round(np.random.default_rng(seed), jobs=12)
    answer = decide(round_, method=method)
    assert not check(round_, answer.allocation)
    plan, jobs = answer.allocation, round_.jobs
    left = round_.capacity - np.bincount(
        plan.gpu_type, weights=plan.gpus, minlength=round_.capacity.size
    )
    wait = np.setdiff1d(np.arange(len(jobs)), plan.job)
    fits = round_.eligible[wait] & (jobs.gang[wait][:, None] <= left)
    assert not fits.any()


def test_no_time_gives_the_worst_first() -> None:
    round_ = random_round(np.random.default_rng(2), jobs=12)
    answer = decide(round_, seconds=1e-9)
    assert answer.time_limited
    assert answer.allocation == decide(round_, method="max-min").allocation
    assert (answer.status, answer.bound) == ("HEURISTIC", None)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (3, "memory: not one of themis"),
        ({"id": ["a"]}, "memory: not one of themis"),
        ({"id": ["a"], "debt": [2.0]}, r"memory.debt\[0\] = 2.0"),
        ({"id": ["a"], "debt": [0.0, 0.0]}, "memory.debt"),
        ({"id": ["a", "a"], "debt": [0.0, 0.0]}, r"memory.id\[1\]"),
    ],
)
def test_memory_of_another_kind(memory: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        decide(four_jobs(), memory)


def test_memory_of_those_who_left_and_came() -> None:
    memory = {"id": np.array(["z", "b"]), "debt": np.array([0.5, 0.25])}
    answer = decide(four_jobs(), memory)
    assert answer.carry["debt"].tolist() == [0.0, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("fairness", 1.0), ("fairness", -0.1), ("fairness", float("nan")), ("lease_s", 0.0),
     ("lease_s", float("inf")), ("method", "lottery")],
)  # fmt: skip
def test_bad_parameters(field: str, value: Any) -> None:
    with pytest.raises(InstanceError, match=rf"themis.{field} = .*must be"):
        Themis(**{field: value})


@pytest.mark.parametrize("method", ["auction", "max-min"])
@pytest.mark.parametrize("check_index", range(len(policy_checks(Themis()))))
def test_battery(method: Any, check_index: int) -> None:
    judge: Callable[[], None] = policy_checks(Themis(method=method))[check_index][1]
    judge()
