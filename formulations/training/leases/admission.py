"""Admission in order of arrival: nobody who was accepted is ever put at risk by a newcomer.

A plan for all accepted jobs is kept, and is the proof that they can be done. Forced work of the
first k leases refuses a newcomer exactly and at once. Otherwise the newcomer goes into the latest
free leases of the plan, which proves it too; only where that fails a few leases are exchanged,
then all jobs are laid anew, and only then is the exact model asked, so that a final no is proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.formulations.training.leases.exchange import exchanged
from apportion.formulations.training.leases.feasibility import Feasibility, all_fit
from apportion.formulations.training.leases.lease_jobs import lease_capacity
from apportion.instances import InstanceError
from apportion.instances.columns import Bools, Ints, ints, require
from apportion.solver import Budget, Solver

Ground: TypeAlias = Literal["forced work", "free leases", "exchange", "walk", "model", "undecided"]
"""What decided an offer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an offer.

    Attributes
    ----------
    accepted
        Whether the job is in the plan from now on.
    ground
        What decided: a refusal by ``"forced work"`` or the ``"model"`` is proved, one that is
        ``"undecided"`` is not.
    key
        Number of the job, to be told at its removal; -1 if it was refused.
    """

    accepted: bool
    ground: Ground
    key: int = -1


REFUSED = Answer(False, "forced work")
"""The answer that a full cluster gives most."""


class Admission:
    """Jobs with a guarantee, the plan that proves it, and what is left for newcomers.

    Parameters
    ----------
    capacity
        GPUs of each lease, shape (T,).
    solver
        Back end of the exact model.
    model_s
        Seconds that the exact model may take for one question.
    """

    def __init__(
        self, capacity: ArrayLike, *, solver: Solver | None = None, model_s: float = 1.0
    ) -> None:
        self.capacity = lease_capacity(capacity)
        self.solver = Solver() if solver is None else solver
        self.model_s = model_s
        self._next_key = 0
        self._clear()

    @classmethod
    def of(
        cls,
        capacity: ArrayLike,
        gang: ArrayLike,
        need: ArrayLike,
        due: ArrayLike,
        leases: NDArray[np.bool_],
        *,
        solver: Solver | None = None,
        model_s: float = 1.0,
    ) -> Admission:
        """Begin with jobs and the plan for them, shape (n, T); keys are 0 to n - 1.

        Raises
        ------
        InstanceError
            If the plan does not do the jobs.
        """
        made = cls(capacity, solver=solver, model_s=model_s)
        horizon = made.capacity.size
        gangs, needs = ints(gang, "admission.gang"), ints(need, "admission.need")
        dues = ints(due, "admission.due", gangs.shape)
        require(gangs, gangs >= 1, "admission.gang", "a gang needs at least 1 GPU")
        if leases.shape != (gangs.size, horizon):
            raise InstanceError(f"admission.leases has shape {leases.shape}")
        late = leases & (np.arange(horizon) >= dues[:, None])
        good = (leases.sum(axis=1) == needs) & ~late.any(axis=1)
        require(needs, good, "admission.need", "the plan does not do the job in time")
        free = made.capacity - gangs @ leases.astype(np.int64)
        require(free, free >= 0, "admission.leases", "the plan needs more GPUs than there are")
        made._fill(gangs, needs, dues, leases, np.arange(gangs.size))
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def key(self) -> Ints:
        """Numbers of the accepted jobs, in order of arrival."""
        return self._key[: self._count].copy()

    @property
    def jobs(self) -> tuple[Ints, Ints, Ints]:
        """Gang, need and due of the accepted jobs; the due is cut at the horizon when accepted."""
        rows = slice(self._count)
        return self._gang[rows].copy(), self._need[rows].copy(), self._due[rows].copy()

    @property
    def leases(self) -> Bools:
        """Plan of the accepted jobs, shape (n, T)."""
        return self._leases[: self._count].copy()

    @property
    def free(self) -> Ints:
        """GPUs that the plan leaves free in each lease, shape (T,)."""
        return self._free.copy()

    def offer(self, gang: int, need: int, due: int) -> Answer:
        """Accept a job if it and all accepted ones can be done, and refuse it if not.

        Parameters
        ----------
        gang, need, due
            GPUs, leases, and leases before the deadline.

        Raises
        ------
        InstanceError
            If gang or need is below 1.
        """
        due = self._checked(gang, need, due)
        # the first test, written out: most arrivals of a full cluster end here
        known = self._profiles.get((gang, need, due))
        if need > due or gang > self._most:
            return REFUSED
        profile = self._profile(gang, need, due) if known is None else known
        if (profile > self._slack).any():
            return REFUSED
        open_ = (self._free[:due] >= gang).nonzero()[0]
        if open_.size >= need:
            return self._added(gang, need, due, open_[open_.size - need :], "free leases")
        moved = exchanged(
            self._leases[: self._count], self._gang[: self._count], self._due[: self._count],
            self._free, (gang, need, due),
        )  # fmt: skip
        if moved is not None:
            self._free = moved.free
            for row, out_of, into in moved.moves:
                self._leases[row, out_of], self._leases[row, into] = False, True
            return self._added(gang, need, due, moved.chosen, "exchange", booked=True)
        found = self._asked(gang, need, due, self.capacity)
        if found.leases is None:
            return Answer(False, found.ground)
        answer = self._added(gang, need, due, np.arange(need), found.ground)
        self._relay(found.leases)
        return answer

    def counter_offer(self, gang: int, need: int, due: int) -> int | None:
        """Give the smallest due, from the one asked for on, by which the job could be done.

        ``None`` if there is none within the horizon. Nothing is changed. Every due is tried in
        turn by the exact test: quick tests do not get easier with time alone.
        """
        self._checked(gang, need, due)
        for later in range(max(need, due), self.capacity.size + 1):
            if self._could(gang, need, later, self.capacity):
                return later
        return None

    def extra_gpus(self, gang: int, need: int, due: int) -> int | None:
        """Give the fewest GPUs more in every lease before the due with which the job could be done.

        ``None`` if no number of GPUs helps, since the leases before the due are too few.
        """
        due = self._checked(gang, need, due)
        if need > due:
            return None
        short = self._profile(gang, need, due) - self._slack
        leases = np.minimum(np.arange(1, self.capacity.size + 1), due)
        least = max(0, int((-(-short // leases)).max(initial=0)))
        for extra in range(least, gang):
            more = self.capacity.copy()
            more[:due] += extra
            if self._could(gang, need, due, more):
                return extra
        # with a gang's GPUs in every lease the job needs nobody else's
        return gang

    def remove(self, key: int) -> None:
        """Let a job go: it ended, or was cancelled.

        Raises
        ------
        InstanceError
            If no accepted job has the key.
        """
        found = np.flatnonzero(self._key[: self._count] == key)
        if not found.size:
            raise InstanceError(f"admission.key = {key}: no accepted job has it")
        self._keep(np.arange(self._count) != found[0])

    def shift(self, next_capacity: int, ran: Bools | None = None) -> list[int]:
        """Go on by one lease.

        Parameters
        ----------
        next_capacity
            GPUs of the lease that comes into the horizon.
        ran
            Jobs that ran in lease 0, in the order of ``key``; by default those of the plan. One
            that ran without a reservation gives back its earliest one.

        Returns
        -------
        Keys of jobs that did not run as planned and cannot be done any more; they are let go.
        """
        rows = slice(self._count)
        planned = self._leases[rows, 0].copy()
        done = planned if ran is None else ran
        need, leases = self._need[rows] - done, self._leases[rows].copy()
        for row in np.flatnonzero(done & ~planned).tolist():
            leases[row, np.flatnonzero(leases[row])[0]] = False
        missed = planned & ~done
        leases = np.hstack((leases[:, 1:], np.zeros((leases.shape[0], 1), dtype=np.bool_)))
        capacity = np.append(self.capacity[1:], next_capacity)
        return self._restart(capacity, need, self._due[rows] - 1, leases, missed)

    def set_capacity(self, capacity: ArrayLike) -> list[int]:
        """Go on with other GPUs in the same leases.

        Returns
        -------
        Keys of jobs that cannot be done any more; they are let go, the latest arrivals first.
        """
        gpus = ints(lease_capacity(capacity), "admission.capacity", self.capacity.shape)
        rows = slice(self._count)
        leases, need, due = (
            self._leases[rows].copy(),
            self._need[rows].copy(),
            self._due[rows].copy(),
        )
        fine = (self._gang[rows] @ leases.astype(np.int64) <= gpus).all()
        # where the plan has too few GPUs now, everybody is offered anew in order of arrival
        return self._restart(gpus, need, due, leases, np.full(self._count, not fine))

    def _restart(
        self, capacity: Ints, need: Ints, due: Ints, leases: Bools, missed: Bools
    ) -> list[int]:
        """Take over jobs with their leases, and offer those anew that have missed theirs."""
        gang, key = self._gang[: self._count].copy(), self._key[: self._count].copy()
        self.capacity = lease_capacity(capacity)
        stay = (need > 0) & ~missed
        self._fill(gang[stay], need[stay], due[stay], leases[stay], key[stay])
        lost = list[int]()
        for row in np.flatnonzero(missed).tolist():
            answer = self.offer(int(gang[row]), int(need[row]), int(due[row]))
            if answer.accepted:
                self._key[self._count - 1] = key[row]
            else:
                lost.append(int(key[row]))
        order = np.argsort(self._key[: self._count], kind="stable")
        self._keep(order)
        return lost

    def _clear(self, room: int = 64) -> None:
        horizon = self.capacity.size
        self._count = 0
        self._gang, self._need, self._due, self._key = (
            np.zeros(room, dtype=np.int64) for _ in range(4)
        )
        self._leases = np.zeros((room, horizon), dtype=np.bool_)
        self._free = self.capacity.copy()
        self._slack = np.cumsum(self.capacity)
        self._most = int(self.capacity.max(initial=0))
        self._profiles: dict[tuple[int, int, int], Ints] = {}

    def _fill(self, gang: Ints, need: Ints, due: Ints, leases: Bools, key: Ints) -> None:
        """Start again from columns."""
        count = gang.size
        self._clear(max(64, 2 * count))
        self._count = count
        self._gang[:count], self._need[:count] = gang, need
        self._due[:count], self._key[:count] = np.minimum(due, self.capacity.size), key
        self._leases[:count] = leases
        self._free = self.capacity - gang @ leases.astype(np.int64)
        outside = np.maximum(self._due[:count, None] - np.arange(1, self.capacity.size + 1), 0)
        self._slack = self._slack - gang @ np.maximum(need[:, None] - outside, 0)
        self._next_key = max(self._next_key, int(key.max(initial=-1)) + 1)

    def _keep(self, rows: Bools | Ints) -> None:
        known = slice(self._count)
        self._fill(
            self._gang[known][rows],
            self._need[known][rows],
            self._due[known][rows],
            self._leases[known][rows],
            self._key[known][rows],
        )

    def _checked(self, gang: int, need: int, due: int) -> int:
        if gang < 1 or need < 1:
            raise InstanceError(f"offer: gang = {gang}, need = {need}: must be at least 1")
        return max(0, min(due, self.capacity.size))

    def _profile(self, gang: int, need: int, due: int) -> Ints:
        """GPUs that a job is forced to use in the first k leases, for every k."""
        known = self._profiles.get((gang, need, due))
        if known is None:
            outside = np.maximum(due - np.arange(1, self.capacity.size + 1), 0)
            known = self._profiles[gang, need, due] = gang * np.maximum(need - outside, 0)
        return known

    def _refused(self, gang: int, need: int, due: int) -> bool:
        if need > due or gang > self._most:
            return True
        return bool((self._profile(gang, need, due) > self._slack).any())

    def _added(
        self, gang: int, need: int, due: int, chosen: Ints, ground: Ground, *, booked: bool = False
    ) -> Answer:
        row, key = self._count, self._next_key
        if row == self._gang.size:
            self._grow()
        self._gang[row], self._need[row], self._due[row], self._key[row] = gang, need, due, key
        self._leases[row, chosen] = True
        if not booked:
            self._free[chosen] -= gang
        self._slack -= self._profiles[gang, need, due]
        self._count, self._next_key = row + 1, key + 1
        return Answer(True, ground, key)

    def _grow(self) -> None:
        self._gang, self._need, self._due, self._key = (
            np.concatenate((column, np.zeros_like(column)))
            for column in (self._gang, self._need, self._due, self._key)
        )
        self._leases = np.vstack((self._leases, np.zeros_like(self._leases)))

    def _columns(self) -> tuple[Ints, Ints]:
        """Codes of gang, need and due of the accepted jobs, different ones rising, and each job's."""
        rows, size = slice(self._count), self.capacity.size + 1
        code = (self._gang[rows] * size + self._need[rows]) * size + self._due[rows]
        different, of_job = np.unique(code, return_inverse=True)
        return different, of_job

    def _asked(self, gang: int, need: int, due: int, capacity: Ints) -> Feasibility:
        """Decide on the accepted jobs and one more; its columns are those of the jobs with it."""
        size = self.capacity.size + 1
        different, of_job = self._columns()
        count = np.bincount(of_job, minlength=different.size)
        mine = (gang * size + need) * size + due
        place = int(np.searchsorted(different, mine))
        if place < different.size and different[place] == mine:
            count[place] += 1
        else:
            different, count = np.insert(different, place, mine), np.insert(count, place, 1)
        return all_fit(
            different // (size * size), different // size % size, different % size, count,
            capacity, self.solver, Budget.of(self.model_s), late=True,
        )  # fmt: skip

    def _could(self, gang: int, need: int, due: int, capacity: Ints) -> bool:
        due = min(due, self.capacity.size)
        if capacity is self.capacity and self._refused(gang, need, due):
            return False
        free = self._free[:due] + capacity[:due] - self.capacity[:due]
        if int((free >= gang).sum()) >= need:
            return True
        return self._asked(gang, need, due, capacity).feasible is True

    def _relay(self, leases: Ints) -> None:
        """Deal the leases of every column out to its jobs, in order of time and in turn."""
        different, of_job = self._columns()
        members = np.argsort(of_job, kind="stable")
        count = np.bincount(of_job, minlength=different.size)
        column, time = np.nonzero(leases)
        slots = leases[column, time]
        column, time = np.repeat(column, slots), np.repeat(time, slots)
        total = leases.sum(axis=1)
        turn = (np.arange(column.size) - (np.cumsum(total) - total)[column]) % count[column]
        job = members[(np.cumsum(count) - count)[column] + turn]
        self._leases[: self._count] = False
        self._leases[job, time] = True
        gang = different // (self.capacity.size + 1) ** 2
        self._free = self.capacity - gang @ leases
