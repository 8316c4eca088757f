"""Which gangs run on the GPUs that users were granted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.oef.rounding import EVEN
from apportion.formulations.training.oef.users import Users
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound


@dataclass(frozen=True, eq=False)
class Placed:
    """Types of the jobs that run.

    Parameters
    ----------
    type_of_job
        -1 = waits, shape (n,).
    extra
        Jobs that run on GPUs that nobody had a claim to, shape (n,).
    """

    type_of_job: Ints
    extra: Bools


def place_gangs(
    round_: TrainingRound, users: Users, able: Bools, free: Ints, ask: Floats, granted: Ints,
    *, work_conserving: bool,
) -> Placed:  # fmt: skip
    """Put gangs on the GPUs granted to their users, then on those that are left.

    1. Within its user the job that has waited longest chooses first: the type it ran on last if
       the grant has room for it, else the fastest one. A grant that no gang of the user fits is
       left over.
    2. GPUs that are left of a type go to the largest claim still open whose gang fits.
    3. With ``work_conserving`` what nobody has a claim to goes to whoever can use it.

    Parameters
    ----------
    round_
        The round.
    users
        Its users.
    able
        Types on which each job can be placed, shape (n, k).
    free
        GPUs of each type, shape (k,).
    ask, granted
        Claims and whole GPUs, shape (u, k).
    work_conserving
        Whether GPUs may be given to those without a claim.
    """
    state = _State(round_, users, able, granted.copy(), free.copy())
    queue = waiting(round_, users)
    for row in queue.tolist():
        state.place_in_grant(row)
    # grants bind no longer: what remains of a type is offered to all
    state.offer(queue, ask)
    extra = np.zeros(len(round_.jobs), dtype=np.bool_)
    if work_conserving:
        before = state.kind.copy()
        for row in queue.tolist():
            state.place_anywhere(row)
        extra = (before == NOWHERE) & (state.kind != NOWHERE)
    return Placed(state.kind, extra)


def waiting(round_: TrainingRound, users: Users) -> Ints:
    """Rows of users' jobs, the one that has waited longest first.

    Waiting is time since arrival that was not spent running on a whole gang.
    """
    jobs = round_.jobs
    rows = np.flatnonzero(users.of_job >= 0)
    served_s = jobs.attained_gpu_s[rows] / jobs.gang[rows]
    waited_s = round_.now_s - jobs.arrival_s[rows] - served_s
    return rows[np.lexsort((jobs.code[rows], -np.round(waited_s, EVEN)))]


@dataclass(eq=False)
class _State:
    """GPUs that are left, in all and of each grant, while gangs are placed."""

    round_: TrainingRound
    users: Users
    able: Bools
    grant: Ints
    free: Ints

    def __post_init__(self) -> None:
        n = len(self.round_.jobs)
        self.gang: list[int] = self.round_.jobs.gang.tolist()
        self.kind: Ints = np.full(n, NOWHERE, dtype=np.int64)
        self.used = np.zeros(self.grant.shape, dtype=np.int64)

    def place(self, row: int, kind: int) -> None:
        """Let a job run on a type."""
        user, gang = int(self.users.of_job[row]), self.gang[row]
        self.kind[row] = kind
        self.free[kind] -= gang
        self.grant[user, kind] -= gang
        self.used[user, kind] += gang

    def _best(self, row: int, room: Ints) -> int:
        """The last type of a job if there is room for it, else the fastest with room."""
        fits = self.able[row] & (room >= self.gang[row])
        if not fits.any():
            return NOWHERE
        last = int(self.round_.jobs.previous_type[row])
        if last >= 0 and fits[last]:
            return last
        return int(np.argmax(np.where(fits, self.users.speed[self.users.of_job[row]], -1.0)))

    def place_in_grant(self, row: int) -> None:
        """Run a job within what its user was granted, if it fits."""
        room = np.minimum(self.grant[self.users.of_job[row]], self.free)
        kind = self._best(row, room)
        if kind != NOWHERE:
            self.place(row, kind)

    def place_anywhere(self, row: int) -> None:
        """Run a job that waits on what nobody uses, if it fits."""
        if self.kind[row] == NOWHERE:
            kind = self._best(row, self.free)
            if kind != NOWHERE:
                self.place(row, kind)

    def offer(self, queue: Ints, ask: Floats) -> None:
        """Offer GPUs that are left to open claims, the largest first, users in order where equal.

        A claim is asked once for each job it may still run; one whose jobs do not fit is out.
        """
        waits = [row for row in queue.tolist() if self.kind[row] == NOWHERE]
        line: dict[int, list[int]] = {}
        for row in waits:
            line.setdefault(int(self.users.of_job[row]), []).append(row)
        claim = np.full(ask.shape, -np.inf)
        some = sorted(line)
        claim[some] = np.round(ask[some] - self.used[some], EVEN)
        claim[:, self.free <= 0] = -np.inf
        while claim.size and claim.max() > 0.0:
            user, kind = (int(at) for at in np.unravel_index(int(np.argmax(claim)), claim.shape))
            row = next((r for r in line[user] if self._fits(r, kind)), None)
            if row is None:
                claim[user, kind] = -np.inf
                continue
            line[user].remove(row)
            self.place(row, kind)
            claim[user, kind] -= self.gang[row]

    def _fits(self, row: int, kind: int) -> bool:
        return bool(self.able[row, kind]) and self.gang[row] <= self.free[kind]
