"""How fast jobs would be on an equal share of the cluster, and the time their work takes there."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.instances.columns import Floats, floats, names, require, sized
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound


def isolated_speed(round_: TrainingRound, *, aware: bool = True) -> Floats:
    """Speed of every job of a round on an equal share of the cluster in service, shape (n,).

    With M jobs that can start, a job of d GPUs has ``capacity / (M d)`` of its time on each type,
    scaled down to all its time where that is more. 0 for jobs that can run nowhere.
    """
    jobs = round_.jobs
    count = max(1, int(round_.startable.sum()))
    share = round_.capacity[None, :] / (count * jobs.gang[:, None])
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    speed = np.where(round_.eligible, jobs.throughput_per_s, 0.0)
    if not aware and speed.size:
        first = speed[np.arange(len(speed)), np.argmax(speed > 0.0, axis=1)]
        speed = np.where(speed > 0.0, first[:, None], 0.0)
    return np.einsum("ij,ij->i", speed, share)


def recall_isolated(round_: TrainingRound, memory: Any, policy: str) -> Floats:
    """Time that the work done by each job takes on an equal share, shape (n,).

    Summed up round by round for jobs in memory; for others their work at today's speed.

    Raises
    ------
    InstanceError
        On a memory that has no such time.
    """
    jobs, speed = round_.jobs, isolated_speed(round_)
    out = np.divide(jobs.work_done, speed, out=np.zeros(len(jobs)), where=speed > 0.0)
    if memory is None:
        return out
    try:
        known = names(memory["id"], "memory.id").tolist()
        isolated_s = floats(memory["isolated_s"], "memory.isolated_s", (len(known),))
    except (KeyError, TypeError, IndexError):
        raise InstanceError(f"memory: not one of {policy}: it lacks id or isolated_s") from None
    sized(isolated_s, "memory.isolated_s")
    require(isolated_s, isolated_s >= 0.0, "memory.isolated_s", "must not be negative")
    place = {name: at for at, name in enumerate(known)}
    at = np.array([place.get(name, -1) for name in jobs.id.tolist()], dtype=np.int64)
    out[at >= 0] = isolated_s[at[at >= 0]]
    return out
