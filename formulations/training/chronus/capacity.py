"""GPUs of every future lease: what is in service, less what is bound whatever is decided."""

from __future__ import annotations

import numpy as np

from apportion.formulations.training.chronus.clock import Clock
from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools, Ints
from apportion.instances.training import TrainingRound

KIND = "chronus"
"""What Chronus' own reservations are called among the commitments of a round."""


def lease_gpus(round_: TrainingRound, held: Pinned, clock: Clock, horizon: int) -> Ints:
    """Count the GPUs that leases may be planned on, shape (k, horizon).

    Jobs that may not be stopped hold theirs for good, guaranteed leases until they end, and
    reservations that others made for as long as they were promised; one for any type is taken off
    every type on which the job could run.
    """
    out = np.repeat(round_.capacity[:, None], horizon, axis=1)
    if not horizon:
        return out
    starts = (clock.first + np.arange(horizon)) * clock.lease_s
    ends = _ends(round_, held)
    for kind, gpus, end in zip(held.gpu_type.tolist(), held.gpus.tolist(), ends, strict=True):
        out[kind, starts < end] -= gpus
    promised, ahead = round_.commitments, np.flatnonzero(foreign(round_))
    for entry in ahead.tolist():
        if promised.job[entry] in held.job:
            continue
        on = (starts < promised.end_s[entry]) & (starts + clock.lease_s > promised.start_s[entry])
        out[np.ix_(_kinds(round_, entry), np.flatnonzero(on))] -= promised.gpus[entry]
    return np.maximum(out, 0)


def reserved_before(round_: TrainingRound, held: Pinned, end_s: float) -> Ints:
    """Most GPUs at once that others' reservations take between now and an instant, shape (k,)."""
    out = np.zeros(round_.capacity.size, dtype=np.int64)
    promised = round_.commitments
    soon = foreign(round_) & (promised.start_s > round_.now_s) & (promised.start_s < end_s)
    entries = np.flatnonzero(soon & ~np.isin(promised.job, held.job))
    for begins_s in np.unique(promised.start_s[entries]).tolist():
        used = np.zeros_like(out)
        for entry in entries.tolist():
            if promised.start_s[entry] <= begins_s < promised.end_s[entry]:
                used[_kinds(round_, entry)] += promised.gpus[entry]
        out = np.maximum(out, used)
    return out


def blocked_leases(round_: TrainingRound, held: Pinned, clock: Clock) -> int:
    """Leases from the first one on of which some may be bound to others, for as long as is known."""
    ends = np.concatenate((
        round_.commitments.end_s[foreign(round_)], held.lease_end_s[held.guaranteed]
    ))  # fmt: skip
    last_s = float(ends.max(initial=-np.inf))
    return max(0, int(np.ceil(last_s / clock.lease_s)) - clock.first) if ends.size else 0


def _kinds(round_: TrainingRound, entry: int) -> Ints:
    """Types that an entry of the commitments may be for."""
    kind = int(round_.commitments.gpu_type[entry])
    if kind >= 0:
        return np.array([kind], dtype=np.int64)
    return np.flatnonzero(round_.eligible[round_.commitments.job[entry]])


def foreign(round_: TrainingRound) -> Bools:
    """Reservations of a round that Chronus has not made, by entry."""
    return round_.commitments.kind != KIND


def _ends(round_: TrainingRound, held: Pinned) -> list[float]:
    """When the GPUs of the jobs that go on are free again."""
    promised = round_.commitments
    ends = np.where(held.guaranteed, held.lease_end_s, np.inf)
    reserved = ~held.guaranteed & round_.jobs.preemptible[held.job]
    for at in np.flatnonzero(reserved).tolist():
        own = promised.end_s[promised.job == held.job[at]]
        ends[at] = own.max(initial=round_.now_s)
    return ends.tolist()
