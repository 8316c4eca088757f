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
        kind, row = int(promised.gpu_type[entry]), int(promised.job[entry])
        kinds = np.flatnonzero(round_.eligible[row]) if kind < 0 else np.array([kind])
        on = (starts < promised.end_s[entry]) & (starts + clock.lease_s > promised.start_s[entry])
        out[np.ix_(kinds, np.flatnonzero(on))] -= promised.gpus[entry]
    return np.maximum(out, 0)


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
