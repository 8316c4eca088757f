"""Themis: GPUs whose leases have ended are offered to the jobs that sharing hurts most."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.peers.allox_running import free_beside, staying
from apportion.formulations.training.peers.themis_auction import Auction, Bids, hold, placed
from apportion.formulations.training.peers.themis_memory import debts
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound
from apportion.instances.training.laws import isolated_throughput_per_s
from apportion.solver import Solver

Method = Literal["auction", "max-min"]

WHOLE = 1.0 - 1e-9
"""A debt from here on is a whole lease: a billionth is rounding."""


@dataclass(frozen=True)
class Themis:
    """Finish-time fairness by leases and auctions (Mahajan et al., NSDI 2020).

    Every job is an app. GPUs that nobody holds a lease on are offered to the contending jobs with
    the worst ``rho``, the time they take when sharing over the time on an equal share of their
    own. What the auction leaves or withholds goes to the others, the longest waiting first.

    Parameters
    ----------
    fairness
        The knob f: of the contending jobs the worst ``1 - f`` bid. 0: all of them.
    lease_s
        Length of a lease, rounded up to whole rounds.
    method
        ``auction``: the partial-allocation auction. ``max-min``: the stand-in of published
        simulators, the worst ``rho`` first among the worst part ``f``.
    """

    source: ClassVar[str] = (
        "Themis (NSDI 2020), auction from its literature; see docs/systems/themis.md"
    )
    name: ClassVar[str] = "themis"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    fairness: float = 0.8
    lease_s: float = 300.0
    method: Method = "auction"

    def __post_init__(self) -> None:
        if not 0.0 <= self.fairness < 1.0:
            raise InstanceError(f"themis.fairness = {self.fairness}: must be in [0, 1)")
        if not 0.0 < self.lease_s < np.inf:
            raise InstanceError(f"themis.lease_s = {self.lease_s}: must be positive and finite")
        if self.method not in ("auction", "max-min"):
            raise InstanceError(f"themis.method = {self.method!r}: must be one of auction, max-min")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> ThemisProgram:
        """Find whose leases go on, and how much sharing has hurt the others.

        Raises
        ------
        InstanceError
            On a memory that is not Themis'.
        """
        return ThemisProgram(self, round_, pinned(round_), debts(round_.jobs.id, memory))

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep what each job still has to pay."""
        return {"id": round_.jobs.id, "debt": decision.carry["debt"]}


@dataclass(frozen=True, eq=False)
class ThemisProgram:
    """A compiled round.

    Parameters
    ----------
    policy
        Parameters.
    round_
        The round.
    held
        Leases that go on whatever is decided.
    debt
        Parts of leases won that each job has not yet paid for, below 1, shape (n,).
    """

    policy: Themis
    round_: TrainingRound
    held: Pinned
    debt: Floats

    @property
    def model(self) -> None:
        """There is none: payments need an auction for every winner."""
        return None

    @cached_property
    def running(self) -> Ints:
        """Type of each job whose lease goes on, shape (n,)."""
        end_s = self.round_.jobs.lease_end_s
        return staying(self.round_, self.held, (end_s > self.round_.now_s) & np.isfinite(end_s))

    @cached_property
    def free(self) -> Ints:
        """GPUs of each type on offer, shape (k,)."""
        return free_beside(self.held.free, self.running, self.round_.jobs.gang)

    @cached_property
    def speed(self) -> Floats:
        """Throughput of each job on each type on offer, 0 where it cannot run, shape (n, k)."""
        round_, jobs = self.round_, self.round_.jobs
        able = round_.eligible & (jobs.gang[:, None] <= self.free[None, :])
        able &= (self.held.open & (self.running < 0))[:, None]
        return np.where(able, jobs.throughput_per_s.reshape(able.shape), 0.0)

    @cached_property
    def fair_per_s(self) -> Floats:
        """Throughput of each job on an equal share of its own, 0 where it runs nowhere."""
        round_, jobs = self.round_, self.round_.jobs
        throughput = np.where(round_.eligible, jobs.throughput_per_s.reshape(-1, self.free.size), 0)
        if not len(jobs):
            return np.zeros(0)
        return isolated_throughput_per_s(throughput, jobs.gang, round_.capacity, len(jobs))

    @cached_property
    def left(self) -> Floats:
        """Work left of each job, at least a billionth of its whole work."""
        jobs = self.round_.jobs
        return np.maximum(jobs.work - jobs.work_done, 1e-9 * jobs.work)

    @cached_property
    def rho(self) -> Floats:
        """Age and time left on the fastest type, over the whole time on an equal share.

        0 for jobs that can run nowhere.
        """
        jobs = self.round_.jobs
        best = np.where(self.round_.eligible, jobs.throughput_per_s, 0.0).max(axis=1, initial=0.0)
        age_s = self.round_.now_s - jobs.arrival_s
        fair = self.fair_per_s
        time_s = age_s + np.divide(self.left, best, out=np.zeros_like(best), where=best > 0.0)
        return np.where(best > 0.0, time_s * fair / jobs.work, 0.0)

    @cached_property
    def contending(self) -> Ints:
        """Jobs without a lease that fit somewhere, the worst rho first."""
        jobs = self.round_.jobs
        rows = np.flatnonzero((self.speed > 0.0).any(axis=1))
        worst = np.round(-self.rho[rows], 12)
        return rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows], worst))]

    def gain(self, rows: Ints) -> Floats:
        """Logarithm of the valuation of a gang on each type over that of nothing.

        The valuation is 1 / rho. With a gang, a job runs on to its end; without, it has its
        equal share after the next lease.
        """
        age_s = (self.round_.now_s - self.round_.jobs.arrival_s)[rows]
        fair, left, speed = self.fair_per_s[rows], self.left[rows], self.speed[rows]
        nothing_s = age_s + self.policy.lease_s + left / fair
        able = speed > 0.0
        run_s = np.divide(left[:, None], speed, out=np.full_like(speed, np.inf), where=able)
        ratio = nothing_s[:, None] / (age_s[:, None] + run_s)
        return np.where(able, np.log(np.where(able, ratio, 1.0)), -np.inf)

    def incumbent(self) -> Decision:
        """Serve the worst rho first."""
        return self._max_min("incumbent")

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Hold the auction, or serve the worst rho first."""
        if self.policy.method == "max-min":
            return self._max_min("max-min")
        if budget.left_s() <= 0.0:
            return replace(self._max_min("incumbent"), time_limited=True)
        start = time.perf_counter()
        rows = self.contending
        bidders = rows[: math.ceil((1.0 - self.policy.fairness) * rows.size - 1e-9)]
        k = self.free.size
        gpus = np.broadcast_to(self.round_.jobs.gang[bidders, None], (bidders.size, k))
        bids = Bids(self.gain(bidders), gpus, np.arange(k), self.free)
        auction = hold(bids, solver, budget)
        kinds, kept, debt = self._after(bidders, auction)
        own = Stage(
            "auction", time.perf_counter() - start, auction.value, auction.bound, answered=True,
            note=f"{bidders.size} bidders, {int((auction.option >= 0).sum())} winners",
        )  # fmt: skip
        notes = () if auction.exact else (
            "themis: payments are bounded by prices of GPUs, not auctions without each winner",
        )  # fmt: skip
        gap = None
        if auction.bound is not None:
            gap = (auction.bound - auction.value) / max(abs(auction.bound), 1e-12)
        return self._decision(
            kinds, kept, debt, status=auction.status, objective=auction.value,
            bound=auction.bound, gap=gap, stages=(*auction.stages, own), notes=notes,
            time_limited=auction.time_limited,
        )  # fmt: skip

    def _after(self, bidders: Ints, auction: Auction) -> tuple[Ints, Floats, Floats]:
        """Take payments as whole leases when they add up to one, and hand out what is left."""
        n = len(self.round_.jobs)
        won, kept, debt = np.full(n, -1, dtype=np.int64), np.ones(n), self.debt.copy()
        won[bidders], kept[bidders] = auction.option, auction.kept
        debt += np.where(won >= 0, 1.0 - kept, 0.0)
        pays = (won >= 0) & (debt >= WHOLE)
        debt[pays] -= 1.0
        kinds = np.where(pays, -1, won)
        free = free_beside(self.free, kinds, self.round_.jobs.gang)
        # those outside the auction first, who has just paid last
        rank = np.zeros(n, dtype=np.int64)
        rank[bidders] = 1
        rank[pays] = 2
        rest = self.contending[kinds[self.contending] < 0]
        rest = self._longest_waiting(rest, rank)
        more = placed(rest, self.speed, self.round_.jobs.gang, free)
        return np.maximum(kinds, more), kept, np.clip(debt, 0.0, 1.0)

    def _longest_waiting(self, rows: Ints, rank: Ints) -> Ints:
        jobs = self.round_.jobs
        ran_s = jobs.attained_gpu_s[rows] / jobs.gang[rows]
        waited_s = self.round_.now_s - jobs.arrival_s[rows] - ran_s
        return rows[np.lexsort((jobs.code[rows], -waited_s, rank[rows]))]

    def _max_min(self, stage: str) -> Decision:
        start = time.perf_counter()
        rows, n = self.contending, len(self.round_.jobs)
        part = self.policy.fairness if self.policy.fairness > 0.0 else 1.0
        first = math.ceil(part * rows.size - 1e-9)
        rest = self._longest_waiting(rows[first:], np.zeros(n, dtype=np.int64))
        order = np.concatenate((rows[:first], rest))
        kinds = placed(order, self.speed, self.round_.jobs.gang, self.free)
        took = Stage(stage, time.perf_counter() - start, answered=True)
        return self._decision(kinds, np.ones(n), self.debt, stages=(took,))

    def _decision(
        self, kinds: Ints, kept: Floats, debt: Floats, *, notes: tuple[str, ...] = (), **said: Any
    ) -> Decision:
        round_, policy = self.round_, self.policy
        rounds = math.ceil(policy.lease_s / round_.duration_s - 1e-9)
        plan = joined(
            self.held, np.maximum(self.running, kinds), round_.jobs.gang,
            round_.now_s + rounds * round_.duration_s,
        )  # fmt: skip
        old = self.running[plan.job] >= 0
        end_s = np.where(old, round_.jobs.lease_end_s[plan.job], plan.lease_end_s)
        return Decision(
            replace(plan, lease_end_s=end_s),
            carry={"debt": debt},
            per_job={"rho": self.rho, "kept": kept},
            notes=(*notes, *notes_on_hopeless(round_)),
            **said,
        )
