"""Who is promised what: needs, admission in order of arrival, demotions, and plans."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from apportion.formulations.training.chronus.capacity import blocked_leases, lease_gpus
from apportion.formulations.training.chronus.clock import (
    Clock,
    bare_s,
    charged_gpus,
    overhead_of,
)
from apportion.formulations.training.chronus.planning import Mode, Planned, planned, sign_of
from apportion.formulations.training.chronus.profiling import Profile
from apportion.formulations.training.chronus.reservations import (
    COUNTER_CELLS,
    Asking,
    Pool,
    Wanted,
    arrival_order,
)
from apportion.formulations.training.chronus.standing import (
    ACCEPTED,
    BEST_EFFORT,
    LOWEST,
    NEW,
    UNACCEPTED,
    Standing,
)
from apportion.formulations.training.leases import LeaseJobs
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound
from apportion.solver import Budget, Solver

CounterOffers = Literal["auto", "exact", "quick", "none"]

ALWAYS_ANSWERED = 500
"""Newcomers that are answered whatever the clock says, by quick tests at its end: it takes some
hundredths of a second, and a round without time is not one without promises."""

MOST_NOTES = 20
"""Rejections of one decision that are told by notes; all have their reason in a column."""


@dataclass(frozen=True)
class Rules:
    """Parameters of the policy that the desk goes by; see ``Chronus``."""

    slot_s: float
    horizon: int
    sigma: Mode
    round_up: bool
    overhead_s: float
    safety: float
    counter_offer: CounterOffers
    most_asked: int


@dataclass(eq=False)
class Settled:
    """Promises after the newcomers of a round were answered.

    Attributes
    ----------
    standing
        States and reservations.
    pools
        Reservations by GPU type.
    notes
        What the caller should read.
    undecided
        Questions to the exact model that were left open.
    asked
        Questions to the exact model.
    limited
        Whether the clock left them open.
    unproved
        Rows of the newcomers that were rejected without a proof.
    why
        Why newcomers were rejected, by row.
    """

    standing: Standing
    pools: dict[int, Pool]
    notes: tuple[str, ...] = ()
    undecided: int = 0
    asked: int = 0
    limited: bool = False
    unproved: tuple[int, ...] = ()
    why: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def told(self) -> str:
        """What was asked, in a line."""
        open_ = f", {self.undecided} left open" if self.undecided else ""
        return f"{self.asked} exact questions{open_}" if self.asked or open_ else ""


@dataclass(frozen=True, eq=False)
class Desk:
    """What the jobs of a round need, and the answers they get.

    Parameters
    ----------
    round_
        The round.
    clock
        Where the moment lies among the leases.
    rules
        The policy's parameters.
    profile
        How long jobs are thought to take, beside what was reported.
    """

    round_: TrainingRound
    clock: Clock
    rules: Rules
    profile: Profile

    # ------------------------------------------------------------------ what jobs need

    @cached_property
    def bare_s(self) -> Floats:
        """Estimated time of each job's whole work on each type, shape (n, k)."""
        told = bare_s(self.round_.jobs, self.round_.cluster.types.size)
        return told * self.profile.factor[:, None]

    @cached_property
    def whole_s(self) -> Floats:
        """Estimated time on the best type, -1 for jobs that no type can run, shape (n,)."""
        best = np.where(self.round_.eligible, self.bare_s, np.inf).min(axis=1, initial=np.inf)
        return np.where(np.isfinite(best), best, -1.0)

    @cached_property
    def overhead(self) -> Floats:
        """Time that a start costs each job, shape (n,)."""
        return overhead_of(self.round_.jobs.gang, self.rules.overhead_s)

    @cached_property
    def planned_s(self) -> Floats:
        """Estimate with its margins: one start a lease, and a share for safety, shape (n, k)."""
        return self.rules.safety * self.bare_s * (1.0 + self.overhead / self.clock.lease_s)[:, None]

    @cached_property
    def done(self) -> Floats:
        """Part of the reported work that is done, may pass 1, shape (n,)."""
        return self.round_.jobs.work_done / self.round_.jobs.work

    @cached_property
    def remaining_s(self) -> Floats:
        """Time of the reported work that is left, shape (n, k)."""
        left = np.maximum(1.0 - self.done, 0.0)
        out = np.full(self.bare_s.shape, np.inf)
        np.multiply(self.bare_s, left[:, None], out=out, where=np.isfinite(self.bare_s))
        return out

    @cached_property
    def executed_s(self) -> Floats:
        """Time each job has held its gang, shape (n,)."""
        return self.round_.jobs.attained_gpu_s / self.round_.jobs.gang

    @cached_property
    def spent(self) -> Bools:
        """Jobs that have run for as long as was estimated, shape (n,).

        A job that ran on a slow type may take as long as was estimated for that one.
        """
        finite = np.where(np.isfinite(self.planned_s), self.planned_s, 0.0)
        return self.executed_s >= finite.max(axis=1, initial=0.0)

    @cached_property
    def overdue(self) -> Bools:
        """Jobs whose reported work or estimated time is over, shape (n,)."""
        return self.spent | (self.done >= 1.0)

    @cached_property
    def to_go_s(self) -> Floats:
        """Time to go on the best type; of a job beyond its estimate the whole, shape (n,)."""
        able = np.where(self.round_.eligible, self.bare_s, np.inf)
        best = able.min(axis=1, initial=np.inf)
        left = np.where(self.overdue, 1.0, np.maximum(1.0 - self.done, 0.0))
        return np.where(np.isfinite(best), best, 0.0) * left

    @cached_property
    def last_deadline_s(self) -> Floats:
        """Last deadline of each job, infinite without one, shape (n,)."""
        jobs = self.round_.jobs
        out = np.full(len(jobs), np.inf)
        some = np.diff(jobs.deadline_offsets) > 0
        out[some] = jobs.deadline_s[jobs.deadline_offsets[1:][some] - 1]
        return out

    @cached_property
    def slack_s(self) -> Floats:
        """Time a job may wait and still meet its last deadline, shape (n,)."""
        slack = self.last_deadline_s - self.round_.now_s - self.to_go_s
        return np.where(np.isfinite(slack), slack, 0.0)

    @cached_property
    def slo(self) -> Bools:
        """Jobs with deadlines that count, shape (n,)."""
        return self.round_.jobs.slo & (np.diff(self.round_.jobs.deadline_offsets) > 0)

    @cached_property
    def charged(self) -> Ints:
        """GPUs that reservations are charged for, shape (n, k)."""
        jobs, cluster = self.round_.jobs, self.round_.cluster
        if self.rules.round_up:
            return charged_gpus(jobs.gang, cluster)
        return np.repeat(jobs.gang[:, None], cluster.types.size, axis=1)

    def wanted(self, kind: int, standing: Standing) -> Wanted:
        """Tell what the jobs need of one type, from the first lease that can be planned."""
        jobs = self.round_.jobs
        ahead = np.zeros(len(jobs))
        if not self.clock.boundary:
            for row, own in standing.leases.items():
                if own[0] == self.clock.current and jobs.running[row] and jobs.guaranteed[row]:
                    ahead[row] = self.clock.end_s - self.clock.now_s
        able = np.isfinite(self.bare_s[:, kind])
        bare = np.where(able, self.bare_s[:, kind], 0.0)
        planned = np.where(able, self.planned_s[:, kind], 0.0)
        done_s = bare * self.done
        order = np.empty(len(jobs), dtype=np.int64)
        order[arrival_order(jobs.arrival_s, jobs.code)] = np.arange(len(jobs))
        return Wanted(
            self.charged[:, kind],
            self.clock.leases(planned - done_s - ahead),
            self.clock.leases(bare - done_s - ahead),
            order,
        )

    # ------------------------------------------------------------------ what they are promised

    def settle(
        self, standing: Standing, held: Pinned, solver: Solver, budget: Budget, most: int | None
    ) -> Settled:
        """Bring promises up to date and answer the newcomers in order of arrival.

        Parameters
        ----------
        standing
            What is known; changed.
        held
            Pinned leases.
        solver, budget
            How the exact model is asked.
        most
            How often it may be asked; None: as often as there is a question.
        """
        notes = list[str]()
        jobs, before = self.round_.jobs, dict(standing.leases)
        standing.state[(standing.state == NEW) & ~self.slo & ~self.profile.waiting] = BEST_EFFORT
        self._demote_overdue(standing, notes)
        newcomers = self._newcomers(standing, notes)
        asking = Asking(solver, budget, most)
        pools = self._pools(standing, held, newcomers, asking)
        for pool in pools.values():
            for row in pool.lost:
                standing.demote(row)
                name = str(jobs.id[row])
                notes.append(f"job {name!r} lost its promise: what it needs is not free any more")
        unproved, why, late = list[int](), dict[int, str](), 0
        for at, row in enumerate(newcomers.tolist()):
            if at >= ALWAYS_ANSWERED and budget.expired():
                late = newcomers.size - at
                notes.append(f"{late} newcomers are not answered yet, since time ran out: they are"
                             " asked about again at the next slot")  # fmt: skip
                break
            if self._answer(row, standing, pools, why):
                unproved.append(row)
        notes += [why[row] for row in list(why)[:MOST_NOTES]]
        if len(why) > MOST_NOTES:
            notes.append(
                f"{len(why) - MOST_NOTES} more jobs are rejected; column 'why' has reasons"
            )
        out = Settled(
            standing, pools, tuple(notes), asking.undecided, asking.asked,
            bool(asking.undecided or late) and budget.expired(), tuple(unproved), why,
        )  # fmt: skip
        for kind, pool in pools.items():
            self._write(kind, pool, pool.admission.leases, pool.rows, standing, before)
        self._mark_late(standing)
        return out

    def _demote_overdue(self, standing: Standing, notes: list[str]) -> None:
        rows = standing.accepted()
        for row in rows[self.spent[rows]].tolist():
            standing.demote(row)
            name = str(self.round_.jobs.id[row])
            notes.append(f"job {name!r} lost its promise: it has run for as long as was estimated")

    def _newcomers(self, standing: Standing, notes: list[str]) -> Ints:
        jobs = self.round_.jobs
        new = (standing.state == NEW) & ~self.profile.waiting
        for row in np.flatnonzero(new & ~jobs.preemptible).tolist():
            standing.state[row] = UNACCEPTED
            name = str(jobs.id[row])
            notes.append(f"job {name!r} is promised nothing: one that may not be stopped has no"
                         " leases")  # fmt: skip
        rows = np.flatnonzero(new & jobs.preemptible)
        return rows[arrival_order(jobs.arrival_s[rows], jobs.code[rows])]

    def _pools(
        self, standing: Standing, held: Pinned, newcomers: Ints, asking: Asking
    ) -> dict[int, Pool]:
        accepted = standing.accepted()
        jobs, first, most = self.round_.jobs, self.clock.first, self.rules.horizon
        due = self.clock.due(jobs.deadline_s) - first
        rows = np.repeat(np.arange(len(jobs)), np.diff(jobs.deadline_offsets))
        new_due = due[np.isin(rows, newcomers)] if newcomers.size else due[:0]
        horizon = min(most, max(int(new_due.max(initial=0)), 0))
        horizon = max(horizon, int((standing.due[accepted] - first).max(initial=0)))
        kinds = set(standing.kind[accepted].tolist())
        if newcomers.size:
            kinds |= set(np.flatnonzero(self.round_.eligible[newcomers].any(axis=0)).tolist())
        every = {kind: self.wanted(kind, standing) for kind in sorted(kinds)}
        if newcomers.size and self.rules.counter_offer != "none":
            # the earliest deadline that would do lies at most a job's need beyond all others, and
            # beyond what others have taken
            need = [int(one.padded[newcomers].max()) for one in every.values()]
            horizon = max(horizon, min(most, blocked_leases(self.round_, held, self.clock)))
            horizon += min(most, max(need, default=0))
        gpus = lease_gpus(self.round_, held, self.clock, horizon)
        out = dict[int, Pool]()
        for kind, wanted in every.items():
            own = accepted[standing.kind[accepted] == kind]
            own = own[np.argsort(wanted.order[own])]
            leases = np.zeros((own.size, horizon), dtype=np.bool_)
            for at, row in enumerate(own.tolist()):
                if (cached := standing.leases.get(row)) is not None:
                    place = cached[cached >= first] - first
                    leases[at, place[place < horizon]] = True
            due_of = np.minimum(standing.due[own] - first, horizon)
            out[kind] = Pool.of(gpus[kind], wanted, own, due_of, leases, asking)
        return out

    def _answer(
        self, row: int, standing: Standing, pools: dict[int, Pool], why: dict[int, str]
    ) -> bool:
        """Accept a newcomer at the most valuable deadline that fits, or reject it.

        Returns
        -------
        Whether it was rejected without a proof.
        """
        kinds, open_ = self.kinds_of(row), False
        for due in self.dues_of(row):
            for kind in kinds:
                answer = pools[kind].offer(row, due)
                open_ |= answer.ground == "undecided"
                if answer.accepted:
                    standing.state[row], standing.kind[row] = ACCEPTED, kind
                    standing.due[row] = self.clock.first + due
                    return False
        standing.state[row] = UNACCEPTED
        text = self._rejection(row, standing, pools, kinds)
        why[row] = f"{text} (not proved: time or questions ran out)" if open_ else text
        return open_

    def _rejection(
        self, row: int, standing: Standing, pools: dict[int, Pool], kinds: list[int]
    ) -> str:
        name = f"job {str(self.round_.jobs.id[row])!r}"
        if not kinds:
            return f"{name} is rejected: no GPU type in service can run it"
        last_s = float(self.last_deadline_s[row])
        need = min(int(pools[kind].wanted.padded[row]) for kind in kinds)
        if need > self.rules.horizon:
            return (
                f"{name} is rejected: it needs {need} leases, the horizon has {self.rules.horizon}"
            )
        why = "no room before its deadline"
        if self.round_.now_s + self.to_go_s[row] > last_s:
            why = f"it could not meet its deadline at {last_s:.12g} s even alone (negative slack)"
        elif need > self.dues_of(row)[-1]:
            there = max(self.dues_of(row)[-1], 0)
            why = f"it needs {need} whole leases, {there} lie before its deadline"
        offer_s = self.counter_offer(row, pools, kinds)
        if offer_s is None:
            return f"{name} is rejected: {why}"
        standing.counter_offer_s[row] = offer_s
        return f"{name} is rejected: {why}; a deadline at {offer_s:.12g} s could be kept"

    def counter_offer(self, row: int, pools: dict[int, Pool], kinds: list[int]) -> float | None:
        """Earliest deadline that could be promised to a rejected job."""
        how = self.rules.counter_offer
        if how == "none":
            return None
        found = list[int]()
        after = max(self.dues_of(row)[-1], 0)
        for kind in kinds:
            pool = pools[kind]
            small = len(pool.admission) * pool.capacity.size <= COUNTER_CELLS
            exact = how == "exact" or (how == "auto" and small)
            due = pool.counter_offer(row, after, exact=exact)
            if due is not None:
                found.append(due)
        return (self.clock.first + min(found)) * self.clock.lease_s if found else None

    def types_of(self, row: int) -> list[int]:
        """Types on which a job has a speed, whatever GPUs are in service, the fastest first."""
        cluster, jobs = self.round_.cluster, self.round_.jobs
        runs = np.isfinite(self.bare_s[row])
        runs &= jobs.gpu_memory_gib[row] <= cluster.type_memory_gib
        able = np.flatnonzero(runs)
        return able[np.argsort(self.bare_s[row, able], kind="stable")].tolist()

    def kinds_of(self, row: int) -> list[int]:
        """Types that can run a job, the fastest first."""
        order, count = self._kinds
        return order[row][: count[row]]

    @cached_property
    def _kinds(self) -> tuple[list[list[int]], list[int]]:
        """Types of each job, the fastest first, and how many of them can run it."""
        eligible = self.round_.eligible
        speed = np.where(eligible, self.bare_s, np.inf)
        return np.argsort(speed, axis=1, kind="stable").tolist(), eligible.sum(axis=1).tolist()

    def dues_of(self, row: int) -> list[int]:
        """Give the different first late leases of a job's deadlines, counted from the first one."""
        due, cut = self._dues
        own = due[cut[row] : cut[row + 1]]
        return own if len(own) == 1 else sorted(set(own))

    @cached_property
    def _dues(self) -> tuple[list[int], list[int]]:
        """First late lease of every deadline, and where those of each job begin."""
        jobs = self.round_.jobs
        due = np.minimum(self.clock.due(jobs.deadline_s) - self.clock.first, self.rules.horizon)
        return due.tolist(), jobs.deadline_offsets.tolist()

    def _write(
        self, kind: int, pool: Pool, leases: Bools, rows: Ints, standing: Standing,
        before: dict[int, Ints],
    ) -> None:  # fmt: skip
        """Write the leases of a pool's plan, and the one that is running, to the standing."""
        first, now = self.clock.first, self.clock.current
        for row in np.flatnonzero((standing.state == ACCEPTED) & (standing.kind == kind)).tolist():
            had = before.get(row)
            runs = not self.clock.boundary and had is not None and had[0] == now
            standing.leases[row] = np.array([now] if runs else [], dtype=np.int64)
        job, time = np.nonzero(leases)
        cuts = np.searchsorted(job, np.arange(1, rows.size))
        for row, own in zip(rows.tolist(), np.split(time + first, cuts), strict=False):
            standing.leases[row] = np.concatenate((standing.leases[row], own))
        for row in [row for row, own in standing.leases.items() if not own.size]:
            del standing.leases[row]

    def _mark_late(self, standing: Standing) -> None:
        """Tell rejected jobs that can still be in time from those that cannot."""
        open_ = self.slo & ((standing.state == UNACCEPTED) | (standing.state == LOWEST))
        late = self.round_.now_s + self.to_go_s > self.last_deadline_s
        standing.state[open_] = np.where(late[open_], LOWEST, UNACCEPTED)

    # ------------------------------------------------------------------ plans

    def plan(
        self, settled: Settled, solver: Solver, budget: Budget, *, replan: bool
    ) -> list[Planned]:
        """Plan the leases of every type at a boundary."""
        standing, out = settled.standing, list[Planned]()
        sigma = sign_of(self.rules.sigma, standing.rejected)
        for kind, pool in settled.pools.items():
            if not len(pool.admission):
                continue
            rows, cached = pool.rows, pool.admission.leases
            jobs = self._lease_jobs(kind, rows, pool, cached, standing)
            found = planned(jobs, pool.capacity, cached, sigma if replan else 0, solver, budget)
            if not replan:
                found = replace(found, bound=None, proved=False)
            self._write(kind, pool, found.leases, rows, standing, {})
            out.append(found)
        return out

    def _lease_jobs(
        self, kind: int, rows: Ints, pool: Pool, cached: Bools, standing: Standing
    ) -> LeaseJobs:
        """Accepted jobs with the deadlines that are no later than what was promised."""
        jobs = self.round_.jobs
        options = list[list[tuple[int, float]]]()
        all_due = self.clock.due(jobs.deadline_s)
        need = cached.sum(axis=1)
        for row, least in zip(rows.tolist(), need.tolist(), strict=True):
            cut = slice(int(jobs.deadline_offsets[row]), int(jobs.deadline_offsets[row + 1]))
            promised, own = int(standing.due[row]), dict[int, float]()
            for due, value in zip(all_due[cut].tolist(), jobs.deadline_value[cut].tolist(),
                                  strict=True):  # fmt: skip
                at = min(due, promised) - self.clock.first
                if at >= least:
                    own.setdefault(at, value)
            last = promised - self.clock.first
            own.setdefault(last, 0.0)
            options.append(sorted(own.items()))
        return LeaseJobs.soft(self.charged[rows, kind], need, options)

    def fills(self, settled: Settled) -> Ints:
        """GPUs of each type that no planned lease needs, for jobs that may not stop, shape (k,)."""
        out = self.round_.capacity.copy()
        if self.round_.jobs.preemptible.all():
            return out
        for kind, pool in settled.pools.items():
            used = np.zeros(pool.capacity.size, dtype=np.int64)
            for row, own in settled.standing.leases.items():
                if settled.standing.kind[row] == kind:
                    place = own[own >= self.clock.first] - self.clock.first
                    used[place] += self.charged[row, kind]
            out[kind] = (pool.capacity - used).min(initial=int(out[kind]))
        return out
