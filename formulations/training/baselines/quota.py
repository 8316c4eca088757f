"""Quotas of tenants: what a cluster manager does without a fairness policy, and what others reuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest, going_on
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound

Oversized = Literal["borrow", "reject"]
"""What becomes of a job that asks for more GPUs than its tenant's whole quota."""

_WHOLE = 1e-9
"""Relative shortfall at which a share still counts as whole: weights are sums of decimals."""

_NAMED = 5
"""Jobs that a note on many names: more would hide the other notes."""


def quotas(round_: TrainingRound) -> Floats:
    """GPUs each tenant is entitled to, shape (tenants,).

    ``floor(G w_u / sum w)`` of the G GPUs in service, or ``tenants.quota_gpus`` where that is set.
    """
    tenants = round_.tenants
    share = float(round_.capacity.sum()) * (tenants.weight / tenants.weight.sum())
    return np.where(
        np.isfinite(tenants.quota_gpus), tenants.quota_gpus, np.floor(share * (1.0 + _WHOLE))
    )


def beyond_quota(round_: TrainingRound, quota: Floats) -> Bools:
    """Jobs whose gang alone exceeds the quota of their tenant, shape (n,)."""
    return round_.jobs.gang > quota[round_.jobs.tenant]


def note_on_oversized(round_: TrainingRound, over: Bools, rule: Oversized) -> tuple[str, ...]:
    """Tell in one line which jobs ask for more than their tenant's quota, and what is done."""
    rows = np.flatnonzero(over)
    if not rows.size:
        return ()
    some = ", ".join(repr(str(name)) for name in round_.jobs.id[rows[:_NAMED]])
    more = f" and {rows.size - _NAMED} more" if rows.size > _NAMED else ""
    done = "they are rejected" if rule == "reject" else "they may borrow"
    return (f"gangs larger than the quota of their tenant: {some}{more}; {done}",)


def check_oversized(policy: str, rule: str) -> None:
    """Refuse a rule for oversized jobs that does not exist."""
    if rule not in ("borrow", "reject"):
        raise InstanceError(f"{policy}.oversized = {rule!r}: must be one of borrow, reject")


def gpus_of_tenants(round_: TrainingRound, rows: Ints, gpus: Ints) -> Floats:
    """Add GPUs of some jobs up by tenant, shape (tenants,)."""
    count = round_.tenants.id.size
    # of nobody NumPy counts in whole numbers, whatever the weights
    return np.bincount(round_.jobs.tenant[rows], weights=gpus, minlength=count).astype(np.float64)


class Room:
    """GPUs left of each type while jobs are placed one by one.

    Parameters
    ----------
    score
        Preference of each row on each type, lower first, infinite = cannot run, shape (rows, k).
    free
        GPUs left of each type, shape (k,).
    """

    def __init__(self, score: Floats, free: Ints) -> None:
        self.left: list[int] = free.tolist()
        self.most = max(self.left, default=0)
        self._one = len(self.left) == 1
        if not self._one:
            self._ranked: list[list[int]] = np.argsort(score, axis=1, kind="stable").tolist()
            self._usable: list[int] = np.isfinite(score).sum(axis=1).tolist()

    def find(self, at: int, need: int) -> int:
        """Best type with room for the gang of a row, ``NOWHERE`` without one."""
        if need > self.most:
            return NOWHERE
        if self._one:
            return 0
        for kind in self._ranked[at][: self._usable[at]]:
            if self.left[kind] >= need:
                return kind
        return NOWHERE

    def take(self, kind: int, gpus: int) -> None:
        """Use GPUs of a type; a negative number gives them back."""
        self.left[kind] -= gpus
        self.most = max(self.left)


def _used_on_types(kinds: Ints, gpus: Ints, k: int) -> Ints:
    on = kinds >= 0
    return np.bincount(kinds[on], weights=gpus[on], minlength=k).astype(np.int64)


def _by_arrival(round_: TrainingRound, rows: Ints) -> Ints:
    jobs = round_.jobs
    return rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows]))]


def _start(
    round_: TrainingRound,
    order: Ints,
    room: Room,
    limit: Floats,
    used: Floats,
    *,
    strict: bool,
    alone: Bools | None = None,
) -> tuple[Ints, Floats]:
    """Start jobs in an order while their tenants stay within limits.

    Parameters
    ----------
    order
        Rows to start; ``room`` knows them by their place in it.
    limit, used
        GPUs each tenant may have and has, shape (tenants,).
    strict
        True: the first job of a tenant that does not fit holds its later ones back.
    alone
        Jobs beyond the limit that may start while their tenant has nothing.

    Returns
    -------
    Type of each job, ``NOWHERE`` for those that wait, shape (n,), and the GPUs used by tenants.
    """
    jobs, out = round_.jobs, np.full(len(round_.jobs), NOWHERE, dtype=np.int64)
    has, most = used.tolist(), limit.tolist()
    large = np.zeros(order.size, dtype=np.bool_) if alone is None else alone[order]
    places = _worth_trying(
        round_, order, room, limit - used, large & (used == 0)[jobs.tenant[order]], strict
    )
    columns = (
        places,
        order[places],
        jobs.tenant[order[places]],
        jobs.gang[order[places]],
        large[places],
    )
    closed: set[int] = set()
    for at, row, who, need, big in zip(*(c.tolist() for c in columns), strict=True):
        if room.most == 0:
            break
        if who in closed:
            continue
        allowed = has[who] + need <= most[who] or (big and has[who] == 0)
        kind = room.find(at, need) if allowed else NOWHERE
        if kind != NOWHERE:
            out[row] = kind
            room.take(kind, need)
            has[who] += need
        elif strict:
            closed.add(who)
    return out, np.array(has)


def _worth_trying(
    round_: TrainingRound, order: Ints, room: Room, left: Floats, alone: Bools, strict: bool
) -> Ints:
    """Places of the jobs that could start if they were the first: what is left only shrinks."""
    who, need = round_.jobs.tenant[order], round_.jobs.gang[order]
    able = (need <= room.most) & ((need <= left[who]) | alone)
    if not strict:
        return np.flatnonzero(able)
    bad, first = np.flatnonzero(~able), np.full(left.size, order.size)
    np.minimum.at(first, who[bad], bad)
    return np.flatnonzero(np.arange(order.size, dtype=np.int64) < first[who])


@dataclass(frozen=True)
class StaticQuota:
    """First come, first served within the quota of each tenant, without preemption.

    Parameters
    ----------
    strict
        True: a job that does not fit holds back the later ones of its tenant. False: those that
        fit go ahead.
    oversized
        What becomes of jobs larger than their tenant's quota. ``borrow``: one may start while its
        tenant holds nothing, so that it ends some day. ``reject``: they never start.
    """

    source: ClassVar[str] = "textbook; what cluster managers call quotas or capacity queues"
    name: ClassVar[str] = "static-quota"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    strict: bool = True
    oversized: Oversized = "borrow"

    def __post_init__(self) -> None:
        check_oversized(self.name, self.oversized)

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Order the waiting jobs by arrival."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs, held, quota = round_.jobs, pinned(round_), quotas(round_)
        over = beyond_quota(round_, quota)
        kinds = going_on(round_, held)
        free = held.free - _used_on_types(kinds, jobs.held_gpus, held.free.size)
        keeps = np.flatnonzero(kinds >= 0)
        waits = (kinds < 0) & held.open & round_.startable
        if self.oversized == "reject":
            waits &= ~over
        if free.any() and waits.any():
            order = _by_arrival(round_, np.flatnonzero(waits))
            used = gpus_of_tenants(round_, keeps, jobs.gang[keeps])
            used += gpus_of_tenants(round_, held.job, held.gpus)
            room = Room(fastest(round_, order), free)
            started, _ = _start(round_, order, room, quota, used, strict=self.strict, alone=over)
            kinds = np.maximum(kinds, started)
        return Decision(
            joined(held, kinds, jobs.gang),
            next_decision_s=np.inf,
            notes=notes_on_hopeless(round_) + note_on_oversized(round_, over, self.oversized),
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


@dataclass(frozen=True)
class DynamicQuota:
    """Quotas that may be exceeded while GPUs are idle, at the risk of preemption.

    Jobs within the quota of their tenant start first come, first served. GPUs that are left go to
    further jobs, up to ``overcommit`` times the quota; these are preempted, the last started
    first, as soon as a job within its tenant's quota needs their GPUs.

    Parameters
    ----------
    overcommit
        How far a tenant may go, in parts of its quota, at least 1; infinite: as far as GPUs are
        idle.
    strict
        True: a job that does not fit holds back the later ones of its tenant within the quota.
    oversized
        ``borrow``: a job larger than its tenant's quota may start beyond the quota while the
        tenant holds nothing. ``reject``: it never starts.
    """

    source: ClassVar[str] = "released simulator of Astraea (TPDS 2022), second-hand"
    name: ClassVar[str] = "dynamic-quota"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    overcommit: float = 1.5
    strict: bool = False
    oversized: Oversized = "borrow"

    def __post_init__(self) -> None:
        check_oversized(self.name, self.oversized)
        if not (1.0 <= self.overcommit <= LARGEST or self.overcommit == np.inf):
            raise InstanceError(
                f"dynamic-quota.overcommit = {self.overcommit}: must be at least 1, at most"
                f" {LARGEST:g} or infinite"
            )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> PlainProgram:
        """Order the waiting jobs by arrival."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: TrainingRound) -> Decision:
        jobs, held, quota = round_.jobs, pinned(round_), quotas(round_)
        over = beyond_quota(round_, quota)
        keeps = going_on(round_, held)
        waits = (keeps < 0) & held.open & round_.startable
        if self.oversized == "reject":
            waits &= ~over
        kinds = keeps
        if waits.any():
            kinds = self._share(round_, held, quota, keeps, np.flatnonzero(waits), over)
        return Decision(
            joined(held, kinds, jobs.gang),
            # with nobody waiting, all who run go on until something happens
            next_decision_s=None if waits.any() else np.inf,
            notes=notes_on_hopeless(round_) + note_on_oversized(round_, over, self.oversized),
        )

    def _share(
        self,
        round_: TrainingRound,
        held: Pinned,
        quota: Floats,
        keeps: Ints,
        waits: Ints,
        over: Bools,
    ) -> Ints:
        """Serve quotas, then keep who runs beyond them where there is room, then fill up."""
        jobs, k = round_.jobs, held.free.size
        used = gpus_of_tenants(round_, held.job, held.gpus)
        on = np.flatnonzero(keeps >= 0)
        within = _within(round_, quota, used, on)
        # a tenant above its quota stops nobody, not even its own jobs
        used += gpus_of_tenants(round_, on, jobs.held_gpus[on])
        kinds = np.where(within, keeps, NOWHERE)
        free = held.free - _used_on_types(kinds, jobs.held_gpus, k)
        order = _by_arrival(round_, waits)
        # idle GPUs first: whoever runs beyond its quota stops only where there is no other room
        idle = free - _used_on_types(np.where(within, NOWHERE, keeps), jobs.held_gpus, k)
        room = _Reclaiming(fastest(round_, order), free, idle)
        started, used = _start(round_, order, room, quota, used, strict=self.strict)
        kinds = np.maximum(kinds, started)
        beyond = np.flatnonzero((keeps >= 0) & ~within)
        beyond = beyond[np.lexsort((jobs.code[beyond], jobs.arrival_s[beyond],
                                    jobs.lease_start_s[beyond]))]  # fmt: skip
        score = np.full((len(jobs), k), np.inf)
        score[beyond, keeps[beyond]] = 0.0
        stays = fill(beyond, score, jobs.held_gpus, np.array(room.left, dtype=np.int64))
        kinds = np.maximum(kinds, stays)
        gone = beyond[stays[beyond] < 0]
        used -= gpus_of_tenants(round_, gone, jobs.held_gpus[gone])
        left = np.array(room.left, dtype=np.int64) - _used_on_types(stays, jobs.held_gpus, k)
        more = order[kinds[order] < 0]
        if left.any() and more.size:
            # without a limit a tenant without a quota has none either
            unlimited = np.isinf(self.overcommit)
            limit = np.full(quota.size, np.inf) if unlimited else self.overcommit * quota
            rest = Room(fastest(round_, more), left)
            extra, _ = _start(round_, more, rest, limit, used, strict=False, alone=over)
            kinds = np.maximum(kinds, extra)
        return kinds

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


class _Reclaiming(Room):
    """Room in which some GPUs are held by jobs that may be stopped: idle GPUs go first."""

    def __init__(self, score: Floats, free: Ints, idle: Ints) -> None:
        super().__init__(score, free)
        self._idle = Room(score, np.maximum(idle, 0))

    def find(self, at: int, need: int) -> int:
        kind = self._idle.find(at, need)
        return super().find(at, need) if kind == NOWHERE else kind

    def take(self, kind: int, gpus: int) -> None:
        super().take(kind, gpus)
        self._idle.take(kind, min(gpus, self._idle.left[kind]))


def _within(round_: TrainingRound, quota: Floats, used: Floats, rows: Ints) -> Bools:
    """Mark the running jobs that lie within their tenant's quota, the first started first."""
    jobs, out = round_.jobs, np.zeros(len(round_.jobs), dtype=np.bool_)
    order = rows[np.lexsort((jobs.code[rows], jobs.arrival_s[rows], jobs.lease_start_s[rows]))]
    has, most = used.tolist(), quota.tolist()
    columns = (order, jobs.tenant[order], jobs.held_gpus[order])
    for row, who, gpus in zip(*(c.tolist() for c in columns), strict=True):
        if has[who] + gpus <= most[who]:
            has[who] += gpus
            out[row] = True
    return out
