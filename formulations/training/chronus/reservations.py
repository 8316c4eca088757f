"""Reservations of one GPU type: brought up to date, admitted to, and planned anew."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from apportion.formulations.training.chronus.window import refuted_by_window
from apportion.formulations.training.leases import Admission, Answer, Feasibility
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Budget, Solver

COUNTER_CELLS = 20_000
"""Accepted jobs times leases up to which counter-offers are exact unless asked for: every later
lease is one exact question, and a full cluster refuses thousands of jobs a day."""


MOST_MODELLED = 30_000
"""Variables of one exact model, class by class, up to which it is asked: such models take a second
or two, and a full cluster with a week of leases has twenty thousand."""

MOST_MODELLED_IN_ALL = 150_000
"""Variables of all exact models of one decision: at a full cluster the first few settle what is
free, and what comes after them is refused by what is known."""

MOST_WALKED = 10_000
"""Leases walked to lay everybody anew in one decision, over all questions: each costs a third of a
millisecond with a thousand different jobs."""

MOST_WINDOWS = 200
"""Models of the first leases in one decision, some hundredths of a second each."""


_NO_TIME_S = 1e-9


@dataclass
class Asking:
    """How the exact model is asked, and how often it has been.

    Parameters
    ----------
    solver, budget
        With what, and until when.
    most
        Questions beyond the quick tests that may be asked; what is not settled then is undecided.
        None: as many as there are, however large.
    """

    solver: Solver
    budget: Budget
    most: int | None
    asked: int = 0
    walked: int = 0
    modelled: int = 0
    windows: int = 0
    undecided: int = 0

    def closed(self, length: int) -> bool:
        """Whether no further question over so many leases may be asked."""
        if self.budget.expired():
            return True
        if self.most is None:
            return False
        return self.asked >= self.most or self.walked + length > MOST_WALKED > length

    def looks(self) -> bool:
        """Whether the first leases may be asked alone."""
        if self.budget.expired() or self.most == 0:
            return False
        return self.most is None or self.windows < MOST_WINDOWS

    def seconds(self, size: int) -> float:
        """Wall time for one exact model; without time jobs are laid anew and it is left out."""
        large = size > MOST_MODELLED or self.modelled + size > MOST_MODELLED_IN_ALL
        if self.most is not None and large:
            return _NO_TIME_S
        return max(self.budget.left_s(), _NO_TIME_S)


class Admitting(Admission):
    """An admission that asks at most so many questions beyond the quick tests.

    What was refused with a proof is remembered: who is accepted later makes nothing easier.
    """

    asking: Asking

    @classmethod
    def of_plan(
        cls, asking: Asking, capacity: Ints, gang: Ints, need: Ints, due: Ints, leases: Bools
    ) -> Admitting:
        """Begin with jobs and the plan for them."""
        made = cls.of(capacity, gang, need, due, leases, solver=asking.solver)
        assert isinstance(made, Admitting)
        made.asking = asking
        return made

    def _clear(self, room: int = 64) -> None:
        super()._clear(room)
        self.refused = list[tuple[int, int, int]]()

    def _asked(self, gang: int, need: int, due: int, capacity: Ints) -> Feasibility:
        asking, length = self.asking, self.capacity.size
        own = capacity is self.capacity
        if own and any(gang >= g and need >= n and due <= d for g, n, d in self.refused):
            return Feasibility(False, "model")
        if asking.looks() and self._refuted_early(gang, need, due, capacity):
            found = Feasibility(False, "model")
        elif asking.closed(length):
            found = Feasibility(None, "undecided")
        else:
            asking.asked += 1
            asking.walked += length
            size = self._size()
            self.model_s = asking.seconds(size)
            found = super()._asked(gang, need, due, capacity)
            if found.ground not in ("forced work", "walk") and self.model_s > _NO_TIME_S:
                asking.modelled += size
        if found.feasible is False and own:
            self.refused.append((gang, need, due))
        asking.undecided += found.feasible is None
        return found

    def _refuted_early(self, gang: int, need: int, due: int, capacity: Ints) -> bool:
        """Whether the leases up to a little after the deadline prove that a job is too many."""
        asking = self.asking
        asking.windows += 1
        gangs, needs, dues = self.jobs
        jobs = np.stack((np.append(gangs, gang), np.append(needs, need), np.append(dues, due)))
        different, count = np.unique(jobs, axis=1, return_counts=True)
        return refuted_by_window(
            different[0], different[1], different[2], count, capacity, due, asking.solver,
            asking.budget,
        )  # fmt: skip

    def _size(self) -> int:
        """Variables of the exact model: leases before the due of each class of equal jobs."""
        gang, need, due = self.jobs
        return int(np.unique(np.stack((gang, need, due)), axis=1)[2].sum())


@dataclass(frozen=True, eq=False)
class Wanted:
    """What jobs want of one type, of shape (n,) each.

    Parameters
    ----------
    charged
        GPUs a reservation is charged for.
    padded, bare
        Leases still needed by the estimate with its margins, and without them.
    order
        Place of each job in the order of arrival.
    """

    charged: Ints
    padded: Ints
    bare: Ints
    order: Ints


@dataclass(eq=False)
class Pool:
    """Reservations on one GPU type, from the first lease that can be planned.

    Attributes
    ----------
    capacity
        GPUs of each lease, shape (T,).
    wanted
        What the jobs of the round want.
    admission
        The accepted jobs with leases, and the plan that proves them.
    row_of
        Row of the round by the number the admission gave to a job.
    idle
        Accepted jobs that need no more leases.
    lost
        Jobs that had to be given up.
    """

    capacity: Ints
    wanted: Wanted
    admission: Admitting
    row_of: dict[int, int]
    idle: list[int] = field(default_factory=list[int])
    lost: list[int] = field(default_factory=list[int])

    @classmethod
    def of(
        cls, capacity: Ints, wanted: Wanted, rows: Ints, due: Ints, leases: Bools, asking: Asking
    ) -> Pool:
        """Bring reservations up to date with progress and capacity.

        A job that has come further than its plan gives back its earliest leases. One that lags
        behind gets another lease where one is free. Where GPUs are missing the latest arrivals
        lose their leases; they and jobs whose leases do not suffice even without margins are laid
        anew if they can be, and are given up if not.

        Parameters
        ----------
        capacity
            GPUs of each lease, shape (T,).
        wanted
            What the jobs want.
        rows, due
            Accepted jobs in order of arrival, and their first late lease, shape (m,).
        leases
            Their cached plan, shape (m, T).
        asking
            How the exact model is asked.
        """
        need, bare = wanted.padded[rows], wanted.bare[rows]
        leases, gang = leases.copy(), wanted.charged[rows]
        surplus = leases.sum(axis=1) - need
        for at in np.flatnonzero(surplus > 0).tolist():
            leases[at, np.flatnonzero(leases[at])[: surplus[at]]] = False
        free = capacity - gang @ leases.astype(np.int64)
        lost = _overbooked(leases, gang, free)
        for at in np.flatnonzero(surplus < 0).tolist():
            if at not in lost:
                _extended(leases[at], int(gang[at]), int(due[at]), int(-surplus[at]), free)
        have = leases.sum(axis=1)
        anew = set(np.flatnonzero(have < bare).tolist()) | lost
        leases[sorted(anew)] = False
        stay = np.array([have[at] > 0 and at not in anew for at in range(rows.size)], dtype=bool)
        admission = Admitting.of_plan(
            asking, capacity, gang[stay], have[stay], due[stay], leases[stay]
        )
        out = cls(
            capacity, wanted, admission, {at: int(row) for at, row in enumerate(rows[stay])},
            [int(rows[at]) for at in np.flatnonzero(~stay).tolist() if at not in anew],
        )  # fmt: skip
        for at in sorted(anew):
            row = int(rows[at])
            if not out._accepted(row, int(need[at]), int(bare[at]), int(due[at])):
                out.lost.append(row)
        return out

    def _accepted(self, row: int, need: int, bare: int, due: int) -> bool:
        if need == 0:
            self.idle.append(row)
            return True
        for leases in sorted({need, max(1, bare)}, reverse=True):
            if self.offer(row, due, leases).accepted:
                return True
        return False

    def offer(self, row: int, due: int, need: int | None = None) -> Answer:
        """Accept a job of the round if it and all accepted ones can be done."""
        leases = max(1, int(self.wanted.padded[row])) if need is None else need
        answer = self.admission.offer(int(self.wanted.charged[row]), leases, due)
        if answer.accepted:
            self.row_of[answer.key] = row
        return answer

    def counter_offer(self, row: int, after: int, *, exact: bool) -> int | None:
        """First lease after which the job could be done, later than ``after``.

        Where it is not exact the job surely could be done by then, and perhaps earlier.
        """
        gang, need = int(self.wanted.charged[row]), max(1, int(self.wanted.padded[row]))
        if exact:
            return self.admission.counter_offer(gang, need, after + 1)
        open_ = np.flatnonzero(self.admission.free >= gang)
        return max(after + 1, int(open_[need - 1]) + 1) if open_.size >= need else None

    @property
    def rows(self) -> Ints:
        """Accepted jobs with leases, in the order of the admission."""
        return np.array([self.row_of[key] for key in self.admission.key.tolist()], dtype=np.int64)

    def unused(self) -> Ints:
        """GPUs that are not reserved in each lease, shape (T,)."""
        return self.admission.free


def _overbooked(leases: Bools, gang: Ints, free: Ints) -> set[int]:
    """Take leases from the latest arrivals until no lease has too many; changes its arguments."""
    lost = set[int]()
    for at in range(gang.size - 1, -1, -1):
        if not (free < 0).any():
            break
        if (leases[at] & (free < 0)).any():
            free[leases[at]] += gang[at]
            leases[at] = False
            lost.add(at)
    return lost


def _extended(own: Bools, gang: int, due: int, missing: int, free: Ints) -> None:
    """Give a job the latest free leases before its due; changes its arguments."""
    open_ = np.flatnonzero((free[: max(due, 0)] >= gang) & ~own[: max(due, 0)])
    more = open_[open_.size - min(missing, open_.size) :]
    own[more] = True
    free[more] -= gang


def arrival_order(arrival_s: Floats, code: Ints) -> Ints:
    """Rows in order of arrival, ties by code."""
    return np.lexsort((code, arrival_s))
