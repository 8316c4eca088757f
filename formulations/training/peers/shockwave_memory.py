"""The plan that Shockwave remembers: rounds of the window that are still to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.formulations.training.scalars import number
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import LARGEST, Floats, floats, names, require, sized
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound


@dataclass(frozen=True, eq=False)
class Ahead:
    """A plan that goes on.

    Parameters
    ----------
    counts
        Rounds that each job has still to run on each type, rows of the round, shape (n, k).
    priority
        Who comes first of those with as many rounds, higher first, shape (n,).
    rounds
        Rounds of the window that are left.
    """

    counts: Floats
    priority: Floats
    rounds: float


def recall(sharers: Sharers, memory: Any) -> Ahead | None:
    """Read the plan; None where there is none, its window is over, or jobs or GPUs have changed.

    Raises
    ------
    InstanceError
        On a memory that is not Shockwave's.
    """
    if memory is None:
        return None
    ids, k = sharers.round_.jobs.id, sharers.capacity.size
    try:
        known = names(memory["id"], "memory.id")
        counts = floats(memory["counts"], "memory.counts", (known.size, k))
        priority = floats(memory["priority"], "memory.priority", (known.size,))
        capacity = floats(memory["capacity"], "memory.capacity", (k,))
        rounds = number(memory["rounds"], "memory.rounds")
    except (KeyError, TypeError, IndexError):
        raise InstanceError(
            "memory: not one of shockwave: it lacks id, counts, priority, capacity or rounds"
        ) from None
    sized(counts, "memory.counts")
    sized(priority, "memory.priority")
    require(counts, counts >= 0.0, "memory.counts", "must not be negative")
    if not abs(rounds) <= LARGEST:
        raise InstanceError(f"memory.rounds = {rounds}: must not be beyond {LARGEST:g}")
    same = known.size == ids.size and np.array_equal(np.sort(known), np.sort(ids))
    # less than a round left is no plan for a round
    if not same or not np.array_equal(capacity, sharers.capacity) or rounds < 0.5:
        return None
    place = {name: at for at, name in enumerate(known.tolist())}
    at = np.array([place[name] for name in ids.tolist()], dtype=np.int64)
    return Ahead(counts[at], priority[at], rounds)


def remembered(round_: TrainingRound, decision: Any, outcome: Outcome) -> dict[str, Any]:
    """Take what was served off the plan."""
    plan, carry = decision.allocation, decision.carry
    counts = np.array(carry["counts"], dtype=np.float64)
    length = round_.duration_s
    ran = outcome.gpu_s[plan.job] / np.maximum(plan.gpus, 1) / length
    np.subtract.at(counts, (plan.job, plan.gpu_type), ran)
    passed = (outcome.end_s - outcome.start_s) / length
    return {
        "id": round_.jobs.id,
        "counts": np.maximum(counts, 0.0),
        "priority": carry["priority"],
        "capacity": carry["capacity"],
        "rounds": float(carry["rounds"]) - passed,
    }
