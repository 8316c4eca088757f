"""FFT's fairness compensation: a virtual queue of progress owed to each job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from apportion.instances.columns import LARGEST, Floats, Names, floats, names, require, sized
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound
from apportion.instances.training.laws import isolated_throughput_per_s

TauModel = Literal["best_type", "isolated"]


@dataclass(frozen=True, eq=False)
class Compensation:
    """What each job of a round is owed, shape (n,) each.

    Parameters
    ----------
    rho
        Compensation, in work units per round (``units="paper"``) or in parts of the job's own
        work per round (``"normalised"``), never negative.
    fair_per_s
        Fair rate of progress: throughput alone on an equal share, ``W / (tau - a)``; 0 where the
        job runs nowhere.
    mu
        Age of the job in parts of the time it would take at that rate.
    """

    rho: Floats
    fair_per_s: Floats
    mu: Floats


def _match(ids: Names, memory: Any) -> tuple[Floats, Floats, bool]:
    """Read rho and fair rate of each job from memory; tell whether the job set is unchanged."""
    n = ids.size
    if memory is None:
        return np.zeros(n), np.zeros(n), False
    try:
        known = cast(Names, memory["id"])
        rho, fair = cast(Floats, memory["rho"]), cast(Floats, memory["fair_per_s"])
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of fft: it lacks id, rho or fair_per_s") from None
    if not (np.shape(known) == np.shape(rho) == np.shape(fair)):
        raise InstanceError("memory: id, rho and fair_per_s of fft differ in length")
    _check_amounts(known, rho, fair)
    if np.array_equal(known, ids):
        return np.asarray(rho), np.asarray(fair), True
    place = {str(name): at for at, name in enumerate(np.asarray(known).tolist())}
    if len(place) < np.size(known):
        names(known, "memory.id")  # tells which one stands twice
    at = np.array([place.get(name, -1) for name in ids.tolist()], dtype=np.int64)
    found = at >= 0
    out = np.zeros(n)
    out[found] = np.asarray(rho)[at[found]]
    fair = np.asarray(fair)[at] if found.all() else np.zeros(n)
    return out, fair, bool(found.all()) and len(place) == n


def _check_amounts(ids: Names, rho: Any, fair: Any) -> None:
    """Refuse what no ``remembered`` can have written; rounds pay for one comparison a column."""
    for field, given in (("rho", rho), ("fair_per_s", fair)):
        plain = getattr(given, "ndim", 0) == 1 and given.dtype.kind == "f"
        if plain and bool(((given >= 0) & (given <= LARGEST)).all()):
            continue
        who = names(ids, "memory.id")
        column = floats(given, f"memory.{field}", (who.size,))
        sized(column, f"memory.{field}", who)
        require(column, column >= 0, f"memory.{field}", "must not be negative", who)


def fair_throughput_per_s(round_: TrainingRound, model: TauModel) -> Floats:
    """Throughput of each job alone on an exclusive equal share of the cluster.

    Parameters
    ----------
    round_
        The round; all its n jobs share.
    model
        ``best_type``: an n-th of the time on its best type, so that it would end ``work * n /
        best throughput`` after its arrival. ``isolated``: an n-th of every type.

    Returns
    -------
    Floats
        Shape (n,), 0 where the job runs nowhere.
    """
    jobs, n = round_.jobs, len(round_.jobs)
    if n == 0:
        return np.zeros(0)
    if model == "best_type":
        return jobs.throughput_per_s.max(axis=1) / n
    return isolated_throughput_per_s(jobs.throughput_per_s, jobs.gang, round_.capacity, n)


def recall(round_: TrainingRound, memory: Any, model: TauModel) -> Compensation:
    """Read the compensation of a round's jobs from memory.

    The fair rate is estimated anew when a job has arrived or left since it was remembered.

    Parameters
    ----------
    round_
        The round.
    memory
        What ``remembered`` returned for the round before, or None.
    model
        How the fair rate is estimated.

    Raises
    ------
    InstanceError
        On a memory that is not FFT's.
    """
    jobs = round_.jobs
    rho, fair, unchanged = _match(jobs.id, memory)
    if not unchanged:
        fair = fair_throughput_per_s(round_, model)
    mu = (round_.now_s - jobs.arrival_s) * fair / jobs.work
    return Compensation(rho, fair, mu)


def remembered(
    round_: TrainingRound, owed: Compensation, outcome: Outcome, *, normalised: bool
) -> dict[str, Any]:
    """Update the compensation with what was really served.

    ``rho + mu * (fair progress - executed progress)``, not below zero, both progresses over the
    whole interval of the outcome in units of work per round of the round's length.

    Parameters
    ----------
    round_
        The round that was decided.
    owed
        Its compensation.
    outcome
        What the executor did.
    normalised
        Count progress in parts of each job's own work.

    Returns
    -------
    dict
        Plain columns ``id``, ``rho``, ``fair_per_s`` of the jobs of this round, those that ended
        too: the next round sees by them that the set has changed.
    """
    jobs = round_.jobs
    rounds = (outcome.end_s - outcome.start_s) / round_.duration_s
    short = owed.fair_per_s * round_.duration_s * rounds - outcome.work
    if normalised:
        short = short / jobs.work
    rho = np.maximum(0.0, owed.rho + owed.mu * short)
    return {"id": jobs.id, "rho": rho, "fair_per_s": owed.fair_per_s}
