"""A decision of Chronus: admission, the plan of leases, and the GPUs that are left over."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from apportion.formulations.training.chronus.capacity import KIND, foreign, reserved_before
from apportion.formulations.training.chronus.clock import Clock
from apportion.formulations.training.chronus.desk import Desk, Settled
from apportion.formulations.training.chronus.offers import Offer, offer_to
from apportion.formulations.training.chronus.placement import PlacementMode, placed
from apportion.formulations.training.chronus.planning import Planned
from apportion.formulations.training.chronus.spot import (
    LONGEST_FOR_SHORT_RUNS_S,
    Spot,
    Waiting,
    hand_out,
)
from apportion.formulations.training.chronus.standing import (
    ACCEPTED,
    BEST_EFFORT,
    LOWEST,
    NEW,
    NOTHING,
    STATE_NAMES,
    UNACCEPTED,
    Standing,
    written,
)
from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.pinned import Pinned
from apportion.formulations.training.plain import notes_on_hopeless
from apportion.instances import Decision, Stage
from apportion.instances.columns import Bools, Ints
from apportion.instances.training import Allocation, Commitments, TrainingRound
from apportion.solver import Budget, Solver


@dataclass(frozen=True, eq=False)
class ChronusProgram:
    """A compiled round.

    Parameters
    ----------
    round_, held
        The round and its pinned leases.
    clock
        Where the moment lies among leases and slots.
    desk
        What jobs need, and what may be promised.
    before
        What memory knows of the jobs.
    placement
        How gangs are put on nodes.
    publish
        Whether reservations are given as commitments.
    """

    round_: TrainingRound
    held: Pinned
    clock: Clock
    desk: Desk
    before: Standing
    placement: PlacementMode
    publish: bool

    @property
    def model(self) -> None:
        """There is no single model: plans are made for each type, by classes of jobs."""
        return None

    def incumbent(self) -> Decision:
        """Admit by the quick tests, keep the cached plan, and hand out what is left."""
        return self._decide(Solver(), Budget.of(None), most=0, replan=False)

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Admit, asking the exact model before anybody is rejected, and plan the leases anew."""
        return self._decide(solver, budget, most=self.desk.rules.most_asked, replan=True)

    def offer(self, row: int, solver: Solver, budget: Budget) -> Offer:
        """Tell one job whether its deadline would be met, by what, and at whose cost."""
        return offer_to(self.desk, self.before, self.held, row, solver, budget)

    def _decide(self, solver: Solver, budget: Budget, *, most: int, replan: bool) -> Decision:
        began = time.perf_counter()
        out_of_time = budget.expired()
        settled = self.desk.settle(self.before.copy(), self.held, solver, budget, most)
        standing = settled.standing
        stages = (Stage("admission", time.perf_counter() - began, note=settled.told),)
        plans = list[Planned]()
        if self.clock.boundary:
            plans = self.desk.plan(settled, solver, budget, replan=replan)
            stages += tuple(stage for plan in plans for stage in plan.stages)
            standing.rejected = bool((standing.state == UNACCEPTED).any())
        began = time.perf_counter()
        sure = self._guaranteed(standing)
        spot = hand_out(
            self._waiting(settled, sure), self._spot_gpus(sure),
            self._reserved, forcing=self.clock.lease_s <= LONGEST_FOR_SHORT_RUNS_S,
        )  # fmt: skip
        allocation = self._allocation(sure, spot)
        stages += (Stage("spot", time.perf_counter() - began),)
        limited = out_of_time or settled.limited or any(plan.time_limited for plan in plans)
        decision = self._told(allocation, settled, plans, stages)
        return replace(
            placed(self.round_, decision, self.placement, solver, budget),
            time_limited=limited and replan,
        )

    # ------------------------------------------------------------------ who runs

    def _guaranteed(self, standing: Standing) -> Ints:
        """Type of each job that has a reservation for now and is not running on it already."""
        kinds = np.full(len(self.round_.jobs), NOWHERE, dtype=np.int64)
        able = self.held.open & self.round_.startable
        free = np.maximum(self.held.free - self._reserved, 0)
        for row in standing.accepted().tolist():
            own = standing.leases.get(row)
            if own is None or own[0] != self.clock.current or not able[row]:
                continue
            kind, gang = int(standing.kind[row]), int(self.round_.jobs.gang[row])
            if free[kind] >= gang and self.round_.eligible[row, kind]:
                kinds[row] = kind
                free[kind] -= gang
        return kinds

    @cached_property
    def _reserved(self) -> Ints:
        """GPUs that others' reservations take before the lease ends, shape (k,)."""
        return reserved_before(self.round_, self.held, self.clock.end_s)

    def _spot_gpus(self, sure: Ints) -> Ints:
        """GPUs that reservations leave, shape (k,)."""
        rows = np.flatnonzero(sure != NOWHERE)
        gang = self.round_.jobs.gang[rows]
        used = np.bincount(sure[rows], weights=gang, minlength=self.held.free.size)
        return self.held.free - used.astype(np.int64)

    def _waiting(self, settled: Settled, sure: Ints) -> Waiting:
        jobs, desk = self.round_.jobs, self.desk
        open_ = self.held.open & self.round_.startable & (sure == NOWHERE)
        # whose profile is not over runs in the pool, not in the cluster
        open_ &= ~desk.profile.waiting
        stays = jobs.running & ~self.round_.stranded & (jobs.held_gpus == jobs.gang)
        if self.clock.boundary:
            # everybody is released and placed anew
            stays = stays & ~jobs.preemptible
        on = np.where(open_ & stays, jobs.previous_type, NOWHERE)
        eligible = self.round_.eligible
        left_s = self.clock.end_s - self.clock.now_s
        start_s = np.where(jobs.running, 0.0, desk.overhead)
        short = eligible & (desk.remaining_s + start_s[:, None] <= left_s)
        # what a job beyond its estimate still needs is not known
        short &= ~desk.overdue[:, None]
        moving = jobs.running & (not self.clock.boundary)
        kinds: Ints = np.arange(eligible.shape[1], dtype=np.int64)
        same: Bools = kinds[None, :] == jobs.previous_type[:, None]
        short &= ~moving[:, None] | same
        return Waiting(
            gang=jobs.gang,
            state=settled.standing.state,
            open=open_,
            on=on,
            remaining_s=desk.to_go_s,
            slack_s=desk.slack_s,
            arrival_s=jobs.arrival_s,
            code=jobs.code,
            slowness=np.where(eligible, desk.bare_s, np.inf),
            short=short,
            fills=self.desk.fills(settled),
            binding=~jobs.preemptible,
        )

    def _allocation(self, sure: Ints, spot: Spot) -> Allocation:
        held, jobs = self.held, self.round_.jobs
        kinds = np.where(sure != NOWHERE, sure, spot.kinds)
        bound: Bools = (sure != NOWHERE) | spot.forced
        own = np.flatnonzero(kinds != NOWHERE)
        job = np.concatenate((held.job, own))
        order = np.argsort(job, kind="stable")
        ends = np.where(bound[own], self.clock.end_s, np.inf)
        return Allocation.of(
            job[order],
            np.concatenate((held.gpu_type, kinds[own]))[order],
            np.concatenate((held.gpus, jobs.gang[own]))[order],
            lease_end_s=np.concatenate((held.lease_end_s, ends))[order],
            guaranteed=np.concatenate((held.guaranteed, bound[own]))[order],
        )

    # ------------------------------------------------------------------ what is told

    def _told(
        self, allocation: Allocation, settled: Settled, plans: list[Planned],
        stages: tuple[Stage, ...],
    ) -> Decision:  # fmt: skip
        standing = settled.standing
        value = sum(plan.value for plan in plans) if plans else None
        known = [plan.bound for plan in plans if plan.bound is not None]
        bound = sum(known) if plans and len(known) == len(plans) else None
        status = "HEURISTIC"
        if plans:
            status = "OPTIMAL" if all(plan.proved for plan in plans) else "FEASIBLE"
        gap = None
        if bound is not None and value is not None:
            gap = max(0.0, bound - value) / max(abs(value), 1.0)
        return Decision(
            allocation,
            status=status,
            objective=value,
            bound=bound,
            gap=gap,
            carry=written(self.round_, standing, self.clock.lease_s) | self.desk.profile.memory(),
            next_decision_s=self._next(allocation),
            commitments=self._commitments(standing),
            per_job=self._columns(settled),
            stages=stages,
            notes=notes_on_hopeless(self.round_) + settled.notes,
        )

    def _next(self, allocation: Allocation) -> float:
        """Give the next slot; where nobody is there and rounds are as fine, the next arrival."""
        slot_s, step_s = self.desk.rules.slot_s, self.round_.duration_s
        fine = abs(round(slot_s / step_s) * step_s - slot_s) <= 1e-9 * slot_s
        return np.inf if not len(self.round_.jobs) and fine else self.clock.next_s

    def _commitments(self, standing: Standing) -> Commitments | None:
        """Reservations beyond the next boundary, which is planned anew when it comes."""
        old = self.round_.commitments
        if not self.publish and not old.job.size:
            return None
        stay = np.flatnonzero(foreign(self.round_) & (old.end_s > self.clock.now_s))
        own = self._reserved_later(standing) if self.publish else ()
        row, first, last = np.array(own, dtype=np.int64).reshape(-1, 3).T
        return Commitments.of(
            np.concatenate((old.job[stay], row)),
            np.concatenate((old.start_s[stay], first * self.clock.lease_s)),
            np.concatenate((old.end_s[stay], (last + 1) * self.clock.lease_s)),
            np.concatenate((old.gpus[stay], self.round_.jobs.gang[row])),
            np.concatenate((old.gpu_type[stay], standing.kind[row])),
            np.concatenate((old.kind[stay].astype(np.str_), np.full(row.size, KIND))),
        )

    def _reserved_later(self, standing: Standing) -> list[tuple[int, int, int]]:
        """Row, first and last lease of every stretch that begins after the next boundary."""
        out = list[tuple[int, int, int]]()
        for row in sorted(standing.leases):
            own = standing.leases[row]
            own = own[own > self.clock.current + 1]
            if own.size:
                cuts = np.flatnonzero(np.diff(own) > 1)
                begins, ends = own[np.r_[0, cuts + 1]], own[np.r_[cuts, own.size - 1]]
                out += zip([row] * begins.size, begins.tolist(), ends.tolist(), strict=True)
        return out

    def _columns(self, settled: Settled) -> dict[str, Any]:
        standing = settled.standing
        unproved = np.zeros(len(self.round_.jobs), dtype=np.bool_)
        unproved[list(settled.unproved)] = True
        count = np.zeros(len(self.round_.jobs), dtype=np.int64)
        rows = sorted(standing.leases)
        count[rows] = [standing.leases[row].size for row in rows]
        names = np.array(
            [STATE_NAMES[code] for code in (NEW, LOWEST, ACCEPTED, UNACCEPTED, BEST_EFFORT)]
        )
        due_s = np.where(standing.due == NOTHING, NOTHING, standing.due * self.clock.lease_s)
        state = names[standing.state - NEW]
        waiting = self.desk.profile.waiting & (standing.state == NEW)
        return {
            "state": np.where(waiting, "PROFILING", state) if waiting.any() else state,
            "reserved_leases": count,
            "promised_s": due_s.astype(np.float64),
            "counter_offer_s": standing.counter_offer_s.copy(),
            "estimate": self.desk.profile.told,
            "estimate_s": self.desk.whole_s,
            "rejected_unproved": unproved,
            "why": np.array(
                [settled.why.get(row, "") for row in range(unproved.size)], dtype=np.str_
            ),
        }
