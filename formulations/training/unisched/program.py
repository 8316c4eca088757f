"""A compiled round: a plan at a boundary of leases, a slot of idle GPUs in between."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.formulations.training.unisched.estimates import Estimates
from apportion.formulations.training.unisched.joint import Named, joint_model
from apportion.formulations.training.unisched.latest_fit import latest_fit
from apportion.formulations.training.unisched.leftovers import Leftovers
from apportion.formulations.training.unisched.memory import Reservations, with_prefix
from apportion.formulations.training.unisched.model import Selector, bucket_edges
from apportion.formulations.training.unisched.plan import NONE, Plan
from apportion.formulations.training.unisched.round_demand import (
    RoundDemand,
    Standing,
    round_demand,
)
from apportion.formulations.training.unisched.select import LEASE_COST, Selection, select
from apportion.instances import Decision, Stage
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.policy import Column
from apportion.instances.training.fit import Flag
from apportion.solver import Budget, Model, Solver

BY_CAP = (Flag.CAPPED, Flag.UNREACHABLE, Flag.TOO_FEW_POINTS, Flag.NO_FIT)
"""Estimates that are a cap."""


@dataclass(frozen=True, eq=False)
class UniSchedProgram:
    """A compiled round.

    Parameters
    ----------
    standing
        The round as the policy sees it.
    told, fits
        What the estimator said, and what it remembers.
    boundary
        Whether the leases in force are over and a plan is due.
    reward
        Reward of a best-effort job with one lease to go.
    horizon_leases
        Leases beyond which deadlines are not told apart.
    most_slots
        Columns of leases from which on time is planned in buckets.
    scale_up
        Whether idle GPUs make elastic jobs larger.
    last_chance
        Whether jobs without a promise that can still be in time go before best effort.
    """

    standing: Standing
    told: Estimates
    fits: dict[str, Any]
    boundary: bool
    reward: float
    horizon_leases: int
    most_slots: int
    scale_up: bool
    last_chance: bool

    @cached_property
    def model(self) -> Model | None:
        """Both passes as one model, with names; None between boundaries, where none is solved.

        The search asks smaller ones, one after the other. Where promises cannot all be kept this
        one is impossible.
        """
        if not self.boundary:
            return None
        demand, jobs = self.demand, self.standing.round_.jobs
        named = Named(
            jobs.id[demand.slo_rows].tolist(), jobs.id[demand.be_rows].tolist(),
            self.standing.round_.cluster.types.tolist(),
        )  # fmt: skip
        return joint_model(
            demand.slo, demand.best_effort, demand.capacity, self._edges, named, LEASE_COST
        )

    @property
    def model_is_part(self) -> bool:
        """Whether leases are only counted by buckets, so that the model's optimum is a bound."""
        return self.boundary and self._edges.size <= self.demand.capacity.shape[1]

    @cached_property
    def _edges(self) -> Ints:
        demand, horizon = self.demand, self.demand.capacity.shape[1]
        whole = bucket_edges(horizon, doubling=False)
        slots = Selector(demand.slo, demand.best_effort, demand.capacity, whole).slots[0].size
        return bucket_edges(horizon, doubling=True) if slots > self.most_slots else whole

    @cached_property
    def demand(self) -> RoundDemand:
        """What the selector chooses from."""
        return round_demand(self.standing, self.reward, self.horizon_leases)

    @cached_property
    def start(self) -> Plan:
        """The greedy plan."""
        demand = self.demand
        return latest_fit(demand.slo, demand.best_effort, demand.capacity, demand.kept)

    def incumbent(self) -> Decision:
        """Decide without a solver: promises in their leases, the others as late as possible."""
        if not self.boundary:
            return self._slot()
        started = time.perf_counter()
        demand, plan = self.demand, self.start
        value = plan.value(demand.slo)
        given_up = np.flatnonzero(demand.slo.must & (plan.configuration < 0))
        took_s = time.perf_counter() - started
        return self._planned(
            Selection(
                plan, value, plan.reward(demand.slo, demand.best_effort, LEASE_COST), None, None,
                None, "FEASIBLE", given_up, (Stage("latest fit", took_s, value, answered=True),),
            )
        )  # fmt: skip

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide within the budget."""
        if not self.boundary:
            return self._slot()
        if budget.left_s() <= 0.0:
            return replace(self.incumbent(), time_limited=True)
        demand = self.demand
        found = select(
            demand.slo, demand.best_effort, demand.capacity, self.start, solver=solver,
            budget=budget, most_slots=self.most_slots,
        )  # fmt: skip
        return self._planned(found)

    # ------------------------------------------------------------------ a boundary of leases

    def _planned(self, found: Selection) -> Decision:
        """Carry a plan's lease 0 out, and give away what it leaves idle."""
        demand, n = self.demand, len(self.standing.round_.jobs)
        plan = found.plan
        planned = np.full(n, NONE, dtype=np.int64)
        inside = np.flatnonzero(plan.configuration >= 0)
        planned[demand.slo_rows[inside]] = demand.slo_cuts[plan.configuration[inside]]
        choice = np.full(n, NONE, dtype=np.int64)
        now = np.flatnonzero(plan.leases[:, 0])
        choice[demand.slo_rows[now]] = demand.slo_cuts[plan.configuration[now]]
        free = demand.capacity - plan.use(demand.slo, demand.capacity.shape[0])
        period = np.full(n, self.standing.round_.duration_s)
        # who is in the plan keeps what it has for the whole lease, so that it restarts once in it
        period[choice >= 0] = self.standing.lease_s
        best_effort = demand.be_cuts[plan.chosen[plan.chosen >= 0]]
        nobody = np.zeros(n, dtype=np.bool_)
        choice = self._filled(free, choice, planned, period, nobody, best_effort)
        ran = np.where((planned >= 0) & plan_now(plan, demand, n), choice, NONE)
        kept = reservations(self.standing, demand, plan, planned, ran)
        return Decision(
            joined(self.standing.held, *self._types(choice)), status=found.status,
            objective=found.value, bound=found.value_bound, gap=found.gap, carry=self._carry(kept),
            per_job=self._columns(planned), stages=found.stages,
            notes=(*self._notes(demand, found.given_up), *self._hopeless()),
            time_limited=found.time_limited,
        )  # fmt: skip

    def _notes(self, demand: RoundDemand, given_up: Ints) -> tuple[str, ...]:
        jobs, old = self.standing.round_.jobs, self.standing.old
        gone = [int(demand.slo_rows[row]) for row in given_up.tolist()]
        known = np.full(len(jobs), NONE, dtype=np.int64) if old is None else old.rows_of(jobs.id)
        lost = (known >= 0) & self.standing.held.open
        lost[demand.slo_rows] = False
        gone += np.flatnonzero(lost).tolist()
        notes = [
            f"job {str(jobs.id[row])!r} was accepted and is so no longer: by the new estimates or"
            " the GPUs in service its deadline cannot be promised"
            for row in sorted(gone)
        ]
        new = jobs.arrival_s > self.standing.round_.now_s - self.standing.lease_s
        notes += [
            f"job {str(jobs.id[row])!r} can meet none of its deadlines, even alone: it runs as"
            " best effort"
            for row in np.flatnonzero(demand.late & new & (known < 0)).tolist()
        ]
        beyond = self.standing.dated & self.standing.able & jobs.preemptible & ~demand.late
        beyond[demand.slo_rows] = False
        notes += [
            f"job {str(jobs.id[row])!r} needs more leases than the horizon of"
            f" {self.horizon_leases} has: it runs as best effort"
            for row in np.flatnonzero(beyond & new & (known < 0)).tolist()
        ]
        return tuple(notes)

    # ------------------------------------------------------------------ a slot in between

    def _slot(self) -> Decision:
        """Let planned jobs go on, and give the rest away anew."""
        started = time.perf_counter()
        standing, old = self.standing, self.standing.old
        if old is None:
            raise AssertionError("without a plan a boundary is due")
        jobs, n = standing.round_.jobs, len(standing.round_.jobs)
        place = old.rows_of(jobs.id)
        planned, ran = (
            standing.configuration(*_columns_of(place, kind, gpus))
            for kind, gpus in ((old.gpu_type, old.gpus), (old.runs_type, old.runs_gpus))
        )
        horizon = 1 + int(old.lease.max(initial=0))
        free = standing.free(horizon)
        leases = np.zeros((n, horizon), dtype=np.bool_)
        leases[place >= 0] = old.table(0, horizon)[place[place >= 0]]
        choice = np.full(n, NONE, dtype=np.int64)
        for row in np.flatnonzero((place >= 0) & standing.able).tolist():
            cut = int(planned[row])
            if cut >= 0:
                free[standing.menu.gpu_type[cut], leases[row]] -= standing.menu.gpus[cut]
                choice[row] = cut if leases[row, 0] else NONE
        choice = self._grown(free, choice, ran)
        period = np.full(n, standing.round_.duration_s)
        none = np.zeros(0, dtype=np.int64)
        choice = self._filled(free, choice, planned, period, choice >= 0, none)
        took_s = time.perf_counter() - started
        return Decision(
            joined(standing.held, *self._types(choice)), carry=self._carry(old),
            per_job=self._columns(planned), stages=(Stage("slot", took_s, answered=True),),
            notes=self._hopeless(),
        )  # fmt: skip

    def _grown(self, free: Ints, choice: Ints, ran: Ints) -> Ints:
        """Let planned jobs keep the GPUs they were given; drop who no longer fits at all."""
        menu, code = self.standing.menu, self.standing.round_.jobs.code
        now = np.flatnonzero(choice >= 0)
        # nodes may have failed since: jobs with the least slack stay
        for row in now[np.lexsort((code[now], -self.standing.slack_s[now]))].tolist():
            kind, gpus = int(menu.gpu_type[choice[row]]), int(menu.gpus[choice[row]])
            if free[kind, 0] < 0:
                free[kind, 0] += gpus
                choice[row] = NONE
        for row in now[choice[now] >= 0].tolist():
            more = int(menu.gpus[ran[row]] - menu.gpus[choice[row]]) if ran[row] >= 0 else 0
            if 0 < more <= free[menu.gpu_type[choice[row]], 0]:
                free[menu.gpu_type[choice[row]], 0] -= more
                choice[row] = ran[row]
        np.maximum(free, 0, out=free)
        return choice

    # ------------------------------------------------------------------ idle GPUs

    def _filled(
        self, free: Ints, choice: Ints, planned: Ints, period_s: Floats, settled: Bools,
        selected: Ints,
    ) -> Ints:  # fmt: skip
        """Give idle GPUs away.

        First to jobs that no lease could be promised and that can still be in time, then to the
        best-effort jobs that were selected and the others, then to jobs ahead of their plan; what
        is left makes elastic jobs larger, those aside that are settled.
        """
        standing, jobs = self.standing, self.standing.round_.jobs
        rest = Leftovers(standing.menu, standing.left_s, jobs.code, free, choice)
        owner, time_left_s = standing.menu.job, standing.time_left_s
        # a cap that stands in for an estimate says what is enough, not what is needed
        unsure = np.isin(self.told.flag, BY_CAP) & (time_left_s > 0.0)
        in_time = (rest.whole_s <= time_left_s[owner]) | unsure[owner]
        timely = planned >= 0
        timely[owner[in_time]] = True
        timely &= standing.dated & jobs.preemptible
        if self.last_chance:
            waits = standing.able & timely & (planned < 0)
            rest.fill(
                rest.by_chance(waits, in_time, jobs.running, standing.slack_s), standing.holds
            )
        rest.fill(selected, standing.holds)
        rest.fill(rest.by_reward(standing.able & ~timely, jobs.weight), standing.holds)
        ahead = rest.by_slack(standing.able & timely, standing.slack_s, planned)
        rest.fill(ahead, standing.holds)
        if self.scale_up:
            rest.scale_up(jobs.preemptible & ~settled, period_s)
        return rest.choice

    def _types(self, choice: Ints) -> tuple[Ints, Ints]:
        """Type and GPUs of each job; -1 and its gang where it waits."""
        menu, on = self.standing.menu, np.flatnonzero(choice >= 0)
        kind = np.full(choice.size, NONE, dtype=np.int64)
        gpus = self.standing.round_.jobs.gang.copy()
        kind[on], gpus[on] = menu.gpu_type[choice[on]], menu.gpus[choice[on]]
        return kind, gpus

    def _columns(self, planned: Ints) -> dict[str, Column]:
        fastest = self.standing.fastest_s
        return {
            "accepted": planned >= 0,
            "left_s": np.where(np.isfinite(fastest), fastest, -1.0),
            "estimate": np.array(
                [Flag(flag).name.lower() for flag in self.told.flag.tolist()], dtype=np.str_
            ),
        }

    def _carry(self, kept: Reservations) -> dict[str, Any]:
        return {**kept.data, **with_prefix(self.fits)}

    def _hopeless(self) -> tuple[str, ...]:
        """Notes on jobs that can never start, those aside that a configuration lets start."""
        jobs = self.standing.round_.jobs
        could = np.flatnonzero(
            ~self.standing.round_.startable & (np.diff(self.standing.menu.offsets) > 0)
        )
        spared = tuple(f"job {str(jobs.id[row])!r} can never start" for row in could.tolist())
        notes = notes_on_hopeless(self.standing.round_)
        return tuple(note for note in notes if not spared or not note.startswith(spared))


def plan_now(plan: Plan, demand: RoundDemand, count: int) -> Bools:
    """Jobs of the round that the plan has in lease 0, shape (n,)."""
    out = np.zeros(count, dtype=np.bool_)
    out[demand.slo_rows[plan.leases[:, 0]]] = True
    return out


def _columns_of(place: Ints, kind: Ints, gpus: Ints) -> tuple[Ints, Ints]:
    out = np.full((2, place.size), NONE, dtype=np.int64)
    known = place >= 0
    out[0, known], out[1, known] = kind[place[known]], gpus[place[known]]
    return out[0], out[1]


def reservations(
    standing: Standing, demand: RoundDemand, plan: Plan, planned: Ints, ran: Ints
) -> Reservations:
    """Write a plan down, counted from now."""
    menu, jobs = standing.menu, standing.round_.jobs
    inside = np.flatnonzero(plan.configuration >= 0)
    rows = demand.slo_rows[inside]
    _, lease = np.nonzero(plan.leases[inside])
    counts = plan.leases[inside].sum(axis=1)
    cut, runs = planned[rows], ran[rows]
    return Reservations(
        start_s=standing.round_.now_s, id=jobs.id[rows], gpu_type=menu.gpu_type[cut],
        gpus=menu.gpus[cut], runs_type=np.where(runs >= 0, menu.gpu_type[runs], NONE),
        runs_gpus=np.where(runs >= 0, menu.gpus[runs], 0),
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        lease=lease.astype(np.int64),
    )  # fmt: skip
