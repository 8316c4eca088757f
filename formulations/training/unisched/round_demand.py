"""From a round to what the selector chooses from: leases needed, deadlines in leases, rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.pinned import Pinned
from apportion.formulations.training.unisched.configurations import Configurations, taken
from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.formulations.training.unisched.leftovers import NEVER_ENDS
from apportion.formulations.training.unisched.memory import Reservations
from apportion.formulations.training.unisched.plan import NONE
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound

ROUNDING = 1e-9
"""Part of a lease by which times may be off: quotients of seconds lose some digits."""

SHORTEST_S = 1.0
"""Seconds that every job is taken to need at least: rewards that are inverse to the time left must
not drown those of all others."""


@dataclass(frozen=True, eq=False)
class RoundDemand:
    """What the jobs of a round ask for.

    Attributes
    ----------
    slo, slo_rows, slo_cuts
        Jobs that may get reservations, their rows of the round, and the round's configurations.
    best_effort, be_rows, be_cuts
        The same for jobs that may run in lease 0 only.
    late
        SLO jobs that can meet no deadline any more, alone on the cluster, shape (n,).
    capacity
        GPUs of each type in each lease, shape (k, T).
    kept
        Configuration and leases of each SLO job in the old plan.
    """

    slo: SloJobs
    slo_rows: Ints
    slo_cuts: Ints
    best_effort: BestEffort
    be_rows: Ints
    be_cuts: Ints
    late: Bools
    capacity: Ints
    kept: tuple[Ints, Bools]


@dataclass(frozen=True, eq=False)
class Standing:
    """A round as seen by the policy, all times in seconds.

    Parameters
    ----------
    round_, held
        The round, and the leases that go on.
    menu, left_s
        Configurations, and the seconds that each would still take, shape (c,).
    lease_s
        Length of a lease.
    need
        Leases to the end by each configuration, shape (c,).
    old
        The plan in force, or None.
    """

    round_: TrainingRound
    held: Pinned
    menu: Configurations
    left_s: Floats
    lease_s: float
    need: Ints
    old: Reservations | None

    @property
    def able(self) -> Bools:
        """Jobs that some configuration could run and that are free to be decided, shape (n,)."""
        return self.held.open & (np.diff(self.menu.offsets) > 0)

    @property
    def dated(self) -> Bools:
        """SLO jobs with deadlines, shape (n,)."""
        return self.round_.jobs.slo & (np.diff(self.round_.jobs.deadline_offsets) > 0)

    @property
    def fastest_s(self) -> Floats:
        """Seconds left of each job by its fastest configuration, shape (n,)."""
        out = np.full(len(self.round_.jobs), np.inf)
        np.minimum.at(out, self.menu.job, self.left_s)
        return out

    @property
    def time_left_s(self) -> Floats:
        """Seconds to the last deadline of each SLO job, infinite for the others, shape (n,)."""
        jobs = self.round_.jobs
        out = np.full(len(jobs), np.inf)
        rows = np.flatnonzero(self.dated)
        out[rows] = jobs.deadline_s[jobs.deadline_offsets[rows + 1] - 1] - self.round_.now_s
        return out

    @property
    def slack_s(self) -> Floats:
        """Seconds that each job could wait and still meet its last deadline, shape (n,)."""
        return self.time_left_s - np.where(np.isfinite(self.fastest_s), self.fastest_s, 0.0)

    @property
    def holds(self) -> Ints:
        """Leases for which a job would hold its GPUs once started, shape (n,)."""
        jobs = self.round_.jobs
        slowest_s = np.zeros(len(jobs))
        np.maximum.at(slowest_s, self.menu.job, self.left_s + self.menu.restart_s)
        # one more, since a slot may begin in the middle of a lease
        leases = np.ceil(np.minimum(slowest_s / self.lease_s, NEVER_ENDS) + 1.0)
        return np.where(jobs.preemptible, 1, leases).astype(np.int64)

    def configuration(self, kind: Ints, gpus: Ints) -> Ints:
        """Configuration of each job with given GPUs, -1 where it has none such, shape (n,)."""
        out = np.full(len(self.round_.jobs), NONE, dtype=np.int64)
        job = self.menu.job
        same = (self.menu.gpu_type == kind[job]) & (self.menu.gpus == gpus[job])
        out[job[same]] = np.flatnonzero(same)
        return out

    def free(self, horizon: int) -> Ints:
        """GPUs of each type in each lease that pinned leases and reservations leave, (k, T)."""
        round_, held, now = self.round_, self.held, self.round_.now_s
        out = np.repeat(round_.capacity[:, None], horizon, axis=1)
        until = pinned_until(self)
        for at in range(held.job.size):
            leases = int(min(horizon, np.ceil((until[at] - now) / self.lease_s - ROUNDING)))
            out[held.gpu_type[at], : max(1, leases)] -= held.gpus[at]
        ahead = round_.commitments
        for at in np.flatnonzero(ahead.start_s > now).tolist():
            kind = int(ahead.gpu_type[at])
            if kind < 0 and out.shape[0] > 1:
                continue
            first = int(min(horizon, (ahead.start_s[at] - now) // self.lease_s))
            last = int(min(horizon, np.ceil((ahead.end_s[at] - now) / self.lease_s)))
            out[max(kind, 0), first:last] -= ahead.gpus[at]
        out[:, 0] = np.minimum(out[:, 0], held.free)
        return np.maximum(out, 0)


def pinned_until(standing: Standing) -> Floats:
    """When each pinned lease will be over, as far as can be told, shape (pinned,)."""
    round_, held = standing.round_, standing.held
    jobs, rows = round_.jobs, held.job
    until = np.where(held.guaranteed, held.lease_end_s, round_.now_s)
    active = round_.commitments.active(round_.now_s)
    end = np.full(len(jobs), -np.inf)
    np.maximum.at(end, round_.commitments.job[active], round_.commitments.end_s[active])
    until = np.maximum(until, end[rows])
    forever = np.full(len(jobs), np.inf)
    cut = standing.configuration(jobs.previous_type, jobs.held_gpus)
    forever[cut >= 0] = round_.now_s + standing.left_s[cut[cut >= 0]]
    stays = ~jobs.preemptible[rows] & jobs.running[rows]
    return np.where(stays, np.maximum(until, forever[rows]), until)


def leases_needed(left_s: Floats, restart_s: Floats, lease_s: float, every: bool) -> Ints:
    """Leases to the end by each configuration.

    Parameters
    ----------
    left_s, restart_s
        Seconds of progress still to be made, and seconds lost by a start, same shape.
    lease_s
        Length of a lease.
    every
        True: each lease may begin with a restart. False: one restart in all.
    """
    most = float(NEVER_ENDS)
    if every:
        useful = lease_s - restart_s
        leases = np.divide(left_s, useful, out=np.full_like(left_s, most), where=useful > 0.0)
    else:
        leases = (left_s + restart_s) / lease_s
    return np.clip(np.ceil(leases - ROUNDING), 1, most).astype(np.int64)


def deadlines(standing: Standing) -> tuple[Ints, Ints, Floats]:
    """Deadlines of all jobs in leases from now on: offsets, leases and values.

    Those that are over are left out, and of several within one lease the first one stays.
    """
    jobs, now = standing.round_.jobs, standing.round_.now_s
    of = np.repeat(np.arange(len(jobs)), np.diff(jobs.deadline_offsets))
    due = np.floor((jobs.deadline_s - now) / standing.lease_s + ROUNDING)
    due = np.clip(due, -1, NEVER_ENDS).astype(np.int64)
    good = (due >= 1) & standing.dated[of]
    of, due, value = of[good], due[good], jobs.deadline_value[good]
    first = np.ones(of.size, dtype=np.bool_)
    first[1:] = (np.diff(of) > 0) | (np.diff(due) > 0)
    counts = np.bincount(of[first], minlength=len(jobs))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return offsets, due[first], value[first]


def round_demand(standing: Standing, base_reward: float, horizon_leases: int) -> RoundDemand:
    """Sort the jobs of a round into those that may get reservations and the others."""
    jobs, menu = standing.round_.jobs, standing.menu
    offsets, due, value = deadlines(standing)
    n = len(jobs)
    last = np.zeros(n, dtype=np.int64)
    some = np.diff(offsets) > 0
    last[some] = due[offsets[1:][some] - 1]
    least = np.full(n, NEVER_ENDS, dtype=np.int64)
    np.minimum.at(least, menu.job, standing.need)
    within = np.minimum(last, horizon_leases)
    possible = standing.able & standing.dated & jobs.preemptible & (least <= within)
    late = standing.dated & (np.diff(menu.offsets) > 0) & (least > last)
    rows = np.flatnonzero(possible)
    horizon = max(1, int(within[rows].max(initial=1)))
    starts, cuts = taken(menu.offsets, rows)
    due_starts, dues = taken(offsets, rows)
    rate = jobs.weight[menu.job] * base_reward / np.maximum(standing.left_s, SHORTEST_S)
    place = NONE + np.zeros(n, dtype=np.int64)
    if standing.old is not None:
        place = standing.old.rows_of(jobs.id)
    slo = SloJobs(
        menu_offsets=starts, gpu_type=menu.gpu_type[cuts], gpus=menu.gpus[cuts],
        need=standing.need[cuts],
        start_cost=np.where(menu.runs, 0.0, menu.restart_s * rate)[cuts],
        due_offsets=due_starts, due=due[dues], value=value[dues], must=place[rows] >= 0,
    )  # fmt: skip
    be_rows = np.flatnonzero(standing.able & ~possible & jobs.preemptible)
    be_starts, be_cuts = taken(menu.offsets, be_rows)
    whole = standing.left_s + np.where(menu.runs, 0.0, menu.restart_s)
    reward = jobs.weight[menu.job] * base_reward * standing.lease_s / np.maximum(whole, SHORTEST_S)
    best_effort = BestEffort(be_starts, menu.gpu_type[be_cuts], menu.gpus[be_cuts], reward[be_cuts])
    return RoundDemand(
        slo, rows, cuts, best_effort, be_rows, be_cuts, late, standing.free(horizon),
        _kept(standing, place, rows, cuts, horizon),
    )  # fmt: skip


def _kept(
    standing: Standing, place: Ints, rows: Ints, cuts: Ints, horizon: int
) -> tuple[Ints, Bools]:
    """Old plan of the SLO jobs: configurations as the selector numbers them, and leases."""
    configuration = np.full(rows.size, NONE, dtype=np.int64)
    leases = np.zeros((rows.size, horizon), dtype=np.bool_)
    old = standing.old
    if old is None or not rows.size:
        return configuration, leases
    shift = round((standing.round_.now_s - old.start_s) / standing.lease_s)
    kind, gpus = (np.full(place.size, NONE, dtype=np.int64) for _ in range(2))
    known = place >= 0
    kind[known], gpus[known] = old.gpu_type[place[known]], old.gpus[place[known]]
    chosen = standing.configuration(kind, gpus)[rows]
    number = np.full(standing.menu.job.size, NONE, dtype=np.int64)
    number[cuts] = np.arange(cuts.size)
    configuration[chosen >= 0] = number[chosen[chosen >= 0]]
    mine = place[rows] >= 0
    leases[mine] = old.table(shift, horizon)[place[rows[mine]]]
    return configuration, leases
