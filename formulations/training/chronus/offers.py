"""One job's question: would its deadline be met, by what, at whose cost, and if not, what would do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.training.chronus.capacity import lease_gpus
from apportion.formulations.training.chronus.desk import Desk, Settled
from apportion.formulations.training.chronus.reservations import arrival_order
from apportion.formulations.training.chronus.standing import (
    ACCEPTED,
    BEST_EFFORT,
    NEW,
    NOTHING,
    Standing,
)
from apportion.formulations.training.leases import Admission
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools
from apportion.solver import Budget, Solver


@dataclass(frozen=True)
class Offer:
    """What a job is told.

    Attributes
    ----------
    accepted
        Whether a deadline of it is or would be promised.
    known
        Whether it has the promise already.
    gpu_type
        Row of the type its leases are on, -1 without any.
    deadline_s, value
        The deadline that is kept, and what it earns; None if none is.
    leases_s
        Start of each reserved lease.
    gpus, charged
        GPUs of a lease, and those it is charged for after rounding up.
    displaced
        Rows of the newcomers that would be promised something without it and are not with it.
    displaced_value
        What others lose by it: promises that are gone or that became later ones. What anybody
        gains, since somebody else is displaced, is not set against it.
    counter_offer_s
        Earliest deadline that would be promised instead; None where it is accepted, or where the
        horizon has no such deadline.
    extra_gpus, extra_type
        Fewest GPUs more before the last deadline that would do, and of which type; None where it
        is accepted or no number would do.
    decided
        False where time or questions ran out before the answer was proved.
    note
        Why it is rejected.
    """

    accepted: bool
    known: bool
    gpu_type: int
    deadline_s: float | None
    value: float | None
    leases_s: tuple[float, ...]
    gpus: int
    charged: int
    displaced: tuple[int, ...] = ()
    displaced_value: float = 0.0
    counter_offer_s: float | None = None
    extra_gpus: int | None = None
    extra_type: int = NOTHING
    decided: bool = True
    note: str = ""


def offer_to(
    desk: Desk, before: Standing, held: Pinned, row: int, solver: Solver, budget: Budget
) -> Offer:
    """Answer one job of a round, at its turn in the order of arrival.

    A job that has a promise is told it; one that was rejected before is asked about anew, after
    all promises that are in force. Counter-offers are exact.

    Parameters
    ----------
    desk
        What the jobs need.
    before
        What memory knows of them.
    held
        Pinned leases.
    row
        The job.
    solver, budget
        How the exact model is asked.
    """
    if desk.rules.counter_offer != "none":
        desk = replace(desk, rules=replace(desk.rules, counter_offer="exact"))
    desk = replace(desk, profile=desk.profile.at_once())
    ask = _Question(desk, held, row, solver, budget)
    if before.state[row] == ACCEPTED:
        settled = ask.settled(before.copy())
        if settled.standing.state[row] == ACCEPTED:
            return _accepted(desk, row, settled.standing, settled.standing, known=True)
        return _rejected(desk, row, settled, held)
    asked = before.copy()
    asked.state[row] = NEW
    settled = ask.settled(asked)
    if settled.standing.state[row] == ACCEPTED:
        other = before.copy()
        other.state[row] = BEST_EFFORT
        there = ask.settled(other).standing
        return _accepted(desk, row, settled.standing, there, known=False)
    return _rejected(desk, row, ask.settled(ask.at_its_turn(asked.copy())), held)


@dataclass(frozen=True, eq=False)
class _Question:
    desk: Desk
    held: Pinned
    row: int
    solver: Solver
    budget: Budget

    def settled(self, standing: Standing) -> Settled:
        """Answer everybody who is new in a standing, and change it."""
        return self.desk.settle(standing.copy(), self.held, self.solver, self.budget, None)

    def at_its_turn(self, standing: Standing) -> Standing:
        """Leave out the newcomers that come after the job."""
        jobs = self.desk.round_.jobs
        order = arrival_order(jobs.arrival_s, jobs.code)
        later = order[int(np.flatnonzero(order == self.row)[0]) + 1 :]
        standing.state[later[standing.state[later] == NEW]] = BEST_EFFORT
        return standing


def _accepted(desk: Desk, row: int, standing: Standing, there: Standing, *, known: bool) -> Offer:
    """Tell a promise; ``there`` is how all would stand without the job."""
    kind = int(standing.kind[row])
    deadline_s, value = _promise(desk, row, standing)
    own = standing.leases.get(row, np.zeros(0, dtype=np.int64))
    gone = (there.state == ACCEPTED) & (standing.state != ACCEPTED)
    rows = there.accepted()
    rows = rows[rows != row]
    lost = sum(
        max(0.0, _worth(desk, one, there) - _worth(desk, one, standing)) for one in rows.tolist()
    )
    gone[row] = False
    return Offer(
        True, known, kind, deadline_s, value,
        tuple((own * desk.clock.lease_s).tolist()),
        int(desk.round_.jobs.gang[row]), int(desk.charged[row, kind]),
        tuple(np.flatnonzero(gone).tolist()), float(lost),
    )  # fmt: skip


def _worth(desk: Desk, row: int, standing: Standing) -> float:
    return (_promise(desk, row, standing)[1] or 0.0) if standing.state[row] == ACCEPTED else 0.0


def _promise(desk: Desk, row: int, standing: Standing) -> tuple[float | None, float | None]:
    """First deadline of a job that its promise keeps, and its value."""
    jobs = desk.round_.jobs
    cut = slice(int(jobs.deadline_offsets[row]), int(jobs.deadline_offsets[row + 1]))
    kept: Bools = desk.clock.due(jobs.deadline_s[cut]) >= standing.due[row]
    if not kept.any():
        return None, None
    at = int(np.argmax(kept))
    return float(jobs.deadline_s[cut][at]), float(jobs.deadline_value[cut][at])


def _extra_gpus(desk: Desk, row: int, settled: Settled, held: Pinned) -> tuple[int, int] | None:
    """Fewest GPUs more that would do, and of which type; also of types that are too small now."""
    found: tuple[int, int] | None = None
    due = desk.dues_of(row)[-1]
    gpus = lease_gpus(desk.round_, held, desk.clock, max(due, 0))
    for kind in desk.types_of(row):
        pool = settled.pools.get(kind)
        wanted = desk.wanted(kind, settled.standing) if pool is None else pool.wanted
        # nobody has leases on types that were not looked at
        admission = Admission(gpus[kind]) if pool is None else pool.admission
        need, charged = max(1, int(wanted.padded[row])), int(wanted.charged[row])
        more = admission.extra_gpus(charged, need, due)
        if more is not None and (found is None or more < found[0]):
            found = (more, kind)
    return found


def _rejected(desk: Desk, row: int, settled: Settled, held: Pinned) -> Offer:
    jobs, name = desk.round_.jobs, f"job {str(desk.round_.jobs.id[row])!r} "
    notes = [note for note in settled.notes if note.startswith(name)]
    notes += [settled.why[row]] if row in settled.why else []
    if not desk.slo[row]:
        notes = [f"{name}has no deadline that counts: it is best effort"]
    offered = float(settled.standing.counter_offer_s[row])
    extra: tuple[int, int] | None = None
    if desk.slo[row] and jobs.preemptible[row]:
        extra = _extra_gpus(desk, row, settled, held)
    return Offer(
        False, False, NOTHING, None, None, (), int(jobs.gang[row]), int(jobs.gang[row]),
        counter_offer_s=None if offered < 0 else offered,
        extra_gpus=None if extra is None else extra[0],
        extra_type=NOTHING if extra is None else extra[1],
        decided=not settled.undecided,
        note=notes[-1] if notes else "",
    )  # fmt: skip
