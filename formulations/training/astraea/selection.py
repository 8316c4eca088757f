"""Astraea's two phases: GPUs for tenants first, then their jobs in order of need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from apportion.formulations.training.baselines.quota import Room
from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.running import fastest
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import TrainingRound


@dataclass(frozen=True, eq=False)
class Standing:
    """Where everybody stands before a selection.

    Parameters
    ----------
    round_
        The round.
    kinds
        Type on which running jobs are kept, ``NOWHERE`` for all others, shape (n,).
    free
        GPUs left of each type, shape (k,).
    pending
        Jobs that may start or start again, shape (n,).
    starved
        Pending jobs that have waited too long, shape (n,).
    delay
        Kept jobs that their tenant may stop for another one, shape (n,).
    ltgf
        Fairness of each job, shape (n,).
    key
        Order of the pending jobs of a tenant, lower first, columns of shape (n,), the most
        important one first; then arrival and code decide.
    used, quota
        GPUs that each tenant holds and is entitled to, shape (tenants,).
    served_gpu_s, entitled_gpu_s
        GPU-seconds in the window, the coming lease included in what each is entitled to, shape
        (tenants,).
    lease_s
        Length of a lease.
    """

    round_: TrainingRound
    kinds: Ints
    free: Ints
    pending: Bools
    starved: Bools
    delay: Bools
    ltgf: Floats
    key: tuple[Floats, ...]
    used: Floats
    quota: Floats
    served_gpu_s: Floats
    entitled_gpu_s: Floats
    lease_s: float

    @property
    def ratio(self) -> Floats:
        """Served over entitled GPU-time of each tenant; infinite without a quota."""
        out = np.full(self.quota.size, np.inf)
        some = self.entitled_gpu_s > 0
        return np.divide(self.served_gpu_s, self.entitled_gpu_s, out=out, where=some)

    def line(self) -> Line:
        """Line the pending jobs up by tenant."""
        jobs = self.round_.jobs
        rows = np.flatnonzero(self.pending)
        late = ~self.starved[rows]
        # among the starved the first submitted goes first
        keys = [np.where(late, column[rows], 0.0) for column in self.key]
        columns = (jobs.code[rows], jobs.arrival_s[rows], *keys[::-1], late, jobs.tenant[rows])
        order = rows[np.lexsort(columns)]
        tenants = np.arange(self.quota.size + 1, dtype=np.int64)
        return Line(
            order,
            np.searchsorted(jobs.tenant[order], tenants).tolist(),
            jobs.gang[order].tolist(),
            fastest(self.round_, order),
        )


@dataclass(frozen=True, eq=False)
class Line:
    """Pending jobs one behind the other, tenant by tenant.

    Parameters
    ----------
    order
        Rows of the jobs.
    spans
        Where the jobs of each tenant begin, and the end.
    gang
        GPUs of each.
    score
        Preference of each on each type.
    """

    order: Ints
    spans: list[int]
    gang: list[int]
    score: Floats


@dataclass
class Selected:
    """Who starts, and who is stopped for it."""

    kinds: dict[int, int] = field(default_factory=dict[int, int])
    stopped: list[int] = field(default_factory=list[int])


NEGLECTED = 0.2
"""A tenant that holds less than this part of its quota comes before all that hold more (read)."""


def budgets(standing: Standing, line: Line) -> list[int]:
    """First phase: hand free GPUs to tenants, job by job.

    A tenant that holds less than a fifth of its quota comes first, the least part first; else the
    one with the least served over entitled time, each GPU handed out counting for a whole lease.
    The tenant's next job that fits takes its GPUs; what does not fit is passed over.

    Returns
    -------
    GPUs for each tenant.
    """
    room, at, ends = Room(line.score, standing.free), line.spans[:-1], line.spans[1:]
    at = list(at)
    quota: list[float] = standing.quota.tolist()
    entitled: list[float] = standing.entitled_gpu_s.tolist()
    has: list[float] = standing.used.tolist()
    served: list[float] = standing.served_gpu_s.tolist()
    held = [h / q if q > 0 else np.inf for h, q in zip(has, quota, strict=True)]
    ratio: list[float] = standing.ratio.tolist()
    out, gang = [0] * len(quota), line.gang
    waiting = [who for who in range(len(quota)) if at[who] < ends[who]]
    while waiting and room.most > 0:
        who = min(waiting, key=held.__getitem__)
        if not held[who] < NEGLECTED:
            who = min(waiting, key=ratio.__getitem__)
        place, end, kind = at[who], ends[who], NOWHERE
        while place < end and (kind := room.find(place, gang[place])) == NOWHERE:
            place += 1
        at[who] = place + 1
        if at[who] >= end:
            waiting.remove(who)
        if kind == NOWHERE:
            continue
        need = gang[place]
        room.take(kind, need)
        out[who] += need
        has[who] += need
        served[who] += need * standing.lease_s
        if quota[who] > 0:
            held[who] = has[who] / quota[who]
        if entitled[who] > 0:
            ratio[who] = served[who] / entitled[who]
    return out


def select(standing: Standing, *, block: bool) -> Selected:
    """Both phases.

    Parameters
    ----------
    standing
        Where everybody stands.
    block
        True: the first job of a tenant that does not fit ends the tenant's turn. False: the next
        one is tried, unless the one that does not fit is starved.

    Returns
    -------
    The jobs that start with their types, and the delay jobs stopped for them.
    """
    out = Selected()
    if not standing.pending.any() or not (standing.free.any() or standing.delay.any()):
        return out
    line = standing.line()
    budget = budgets(standing, line)
    turn = _Turn(standing, line, Room(line.score, standing.free), out)
    order: list[int] = np.argsort(standing.ratio, kind="stable").tolist()
    for who in order:
        turn.serve(who, budget[who], block)
    return out


@dataclass
class _Turn:
    """Second phase: the tenants' jobs within their budgets."""

    standing: Standing
    line: Line
    room: Room
    out: Selected

    def serve(self, who: int, budget: int, block: bool) -> None:
        """Start the jobs of one tenant."""
        line, starved = self.line, self.standing.starved
        delayed = self._delayed(who)
        for at in range(line.spans[who], line.spans[who + 1]):
            if budget <= 0 and not delayed:
                break
            need = line.gang[at]
            if need > budget and delayed and self._never_ran(at):
                budget += self._make_room(at, need - budget, delayed)
            kind = self.room.find(at, need) if need <= budget else NOWHERE
            if kind != NOWHERE:
                self.out.kinds[int(line.order[at])] = kind
                self.room.take(kind, need)
                budget -= need
            elif block or starved[line.order[at]]:
                break

    def _delayed(self, who: int) -> list[int]:
        """Delay jobs of a tenant, the best served first."""
        standing, jobs = self.standing, self.standing.round_.jobs
        if not standing.delay.any():
            return []
        rows = np.flatnonzero(standing.delay & (jobs.tenant == who))
        return rows[np.lexsort((jobs.code[rows], -standing.ltgf[rows]))].tolist()

    def _never_ran(self, at: int) -> bool:
        jobs, row = self.standing.round_.jobs, self.line.order[at]
        return bool(jobs.first_start_s[row] < 0 and jobs.attained_gpu_s[row] == 0)

    def _make_room(self, at: int, short: int, delayed: list[int]) -> int:
        """Stop delay jobs until a gang fits, or none; returns the GPUs given back."""
        jobs, kinds = self.standing.round_.jobs, self.standing.kinds
        freed = 0
        for count, row in enumerate(delayed, start=1):
            self.room.take(int(kinds[row]), -int(jobs.held_gpus[row]))
            freed += int(jobs.held_gpus[row])
            if freed >= short and self.room.find(at, self.line.gang[at]) != NOWHERE:
                self.out.stopped += delayed[:count]
                del delayed[:count]
                return freed
        for row in delayed:
            self.room.take(int(kinds[row]), int(jobs.held_gpus[row]))
        return 0
