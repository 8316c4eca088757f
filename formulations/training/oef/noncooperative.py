"""The non-cooperative form: everybody gets the same normalised throughput, as much as there is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.solver import (
    Axis,
    Budget,
    Model,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Sharing,
    Solver,
    UncertifiedError,
    water_filling,
)

SAME_LEVEL = 1e-7
"""Relative distance below which a level counts as its bound, where a plain LP gave it."""


@dataclass(frozen=True, eq=False)
class Found:
    """Shares, and what was proved of them.

    Parameters
    ----------
    gpus
        GPUs of each user and type, shape (u, k).
    value
        The objective.
    bound
        What it cannot pass.
    proved
        True: the solver came to its end. False: the shares are the best ones at hand.
    time_limited
        True: the clock ended the search.
    rounds, rows
        Relaxations solved, and rows of the last one, where rows were generated.
    note
        What a reader should know.
    """

    gpus: Floats
    value: float
    bound: float
    proved: bool
    time_limited: bool = False
    rounds: int = 0
    rows: int = 0
    note: str = ""


def levels(speed: Floats, weight: Floats, gpus: Floats) -> Floats:
    """Normalised throughput of each user per weight, shape (u,)."""
    return np.einsum("ij,ij->i", speed, gpus) / weight


def equal_split(speed: Floats, weight: Floats, cap: Floats, capacity: Floats) -> Floats:
    """Split every type by weight, and let each user keep its fastest GPUs up to its cap.

    Returns
    -------
    Floats
        GPUs of each user and type, shape (u, k).
    """
    if not weight.size:
        return np.zeros_like(speed)
    offer = np.multiply.outer(weight / weight.sum(), capacity)
    return fastest_part(speed, offer, cap)


def fastest_part(speed: Floats, offer: Floats, cap: Floats) -> Floats:
    """Cut each user's offer to its cap, fastest GPUs first; lower types first where equal.

    Parameters
    ----------
    speed, offer
        Shape (u, k).
    cap
        Shape (u,).
    """
    order = np.argsort(-speed, axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(speed > 0.0, offer, 0.0), order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    kept = np.clip(cap[:, None] - before, 0.0, ranked)
    out = np.zeros_like(kept)
    np.put_along_axis(out, order, kept, axis=1)
    return out


def largest_sum(speed: Floats, capacity: Floats) -> float:
    """Normalised throughput if every GPU went to who values it most, shape (u, k) and (k,)."""
    return float((speed.max(axis=0, initial=0.0) * capacity).sum())


def noncooperative(
    speed: Floats, weight: Floats, cap: Floats, capacity: Floats, *, budget: Budget
) -> Found:
    """Make the least normalised throughput per weight as large as possible, then the next one.

    Users that have reached their cap, or whose types are used up, stay where they are while the
    others rise: without caps and with speeds on all types everybody ends at the same level.

    Parameters
    ----------
    speed
        Relative speeds, each user can run somewhere, shape (u, k).
    weight, cap
        Shape (u,); caps in GPUs, infinite where there is none.
    capacity
        GPUs of each type, shape (k,).
    budget
        Deadline; past it the equal split is the answer.

    Returns
    -------
    Found
        With the least level as objective.
    """
    if not weight.size:
        return Found(np.zeros_like(speed), 0.0, 0.0, proved=True)
    split = equal_split(speed, weight, cap, capacity)
    least = float(levels(speed, weight, split).min())
    # the throughput of all is no larger than this, and each has at least its part of it
    most = largest_sum(speed, capacity) / float(weight.sum())
    if not capacity.any():
        return Found(split, 0.0, 0.0, proved=True)
    # in units in which the mean share is 1, so that tolerances mean the same everywhere
    share, unit = weight / weight.mean(), float(capacity.sum()) / weight.size
    gang = np.minimum(cap, capacity.sum()) / unit
    sharing = Sharing(speed * gang[:, None], gang, capacity / unit, 1.0 / share)
    try:
        found = water_filling(sharing, budget=budget)
    except NoSolutionError:
        return Found(split, least, most, proved=False, time_limited=True)
    except (UncertifiedError, ModelError) as error:
        if budget.expired():
            return Found(split, least, most, proved=False, time_limited=True)
        return _least_level(speed, weight, cap, capacity, budget, str(error))
    gpus = np.maximum(found.x, 0.0) * (gang * unit)[:, None]
    level = float(levels(speed, weight, gpus).min())
    # proved by the water-filling, but for the last digits of this sum
    bound = max(level, float(found.levels.min()) * unit / float(weight.mean()))
    return Found(gpus, level, bound, proved=True)


def _least_level(
    speed: Floats, weight: Floats, cap: Floats, capacity: Floats, budget: Budget, why: str
) -> Found:
    """Raise the least level alone, by the plain model: it stands in for water-filling."""
    split = equal_split(speed, weight, cap, capacity)
    fair = float(levels(speed, weight, split).min())
    names = [""] * weight.size, [""] * capacity.size
    try:
        answer = Solver(gap=0.0).solve(
            noncooperative_model(speed, weight, cap, capacity, *names), budget=budget
        )
    except ModelError:
        answer = None
    if answer is None or answer.point is None:
        most = largest_sum(speed, capacity) / float(weight.sum())
        return Found(split, fair, most, proved=False, note=f"the equal split stands in: {why}")
    gpus = np.maximum(answer.point[:-1].reshape(speed.shape), 0.0)
    # a point of the solver may go beyond a side by its tolerance
    used = gpus.sum(axis=0)
    gpus *= np.divide(capacity, used, out=np.ones_like(used), where=used > capacity)
    value = float(levels(speed, weight, gpus).min())
    bound = answer.bounds[-1] if answer.bounds else None
    top = largest_sum(speed, capacity) / float(weight.sum()) if bound is None else float(bound)
    if value < fair:  # what a solver's tolerances are worth where weights lie far apart
        return Found(
            split, fair, max(top, fair), proved=False, note=f"the equal split stands in: {why}"
        )
    note = f"only the least level was raised: {why}"
    near = top - value <= SAME_LEVEL * top
    return Found(gpus, value, max(top, value), proved=bool(near), note=note)


def noncooperative_model(
    speed: Floats, weight: Floats, cap: Floats, capacity: Floats, names: list[str], types: list[str]
) -> Model:
    """Write the model of the largest common level down, one row for each user and type.

    Columns ``gpus[user, type]`` and ``level``; rows ``share[user]``, ``capacity[type]`` and
    ``demand[user]``.
    """
    users, kinds = speed.shape
    builder = ModelBuilder("oef-noncooperative")
    by_user, by_type = Axis("user", names), Axis("type", types)
    user: Ints = np.arange(users, dtype=np.int64)[:, None]
    kind: Ints = np.arange(kinds, dtype=np.int64)[None, :]
    upper = np.where(speed > 0.0, np.broadcast_to(capacity, speed.shape), 0.0)
    gpus = builder.columns("gpus", (users, kinds), upper=upper, axes=(by_user, by_type))
    top = largest_sum(speed, capacity) / float(weight.sum()) if users else 0.0
    level = builder.columns("level", 1, upper=top)
    row = np.hstack((np.broadcast_to(user, gpus.shape), user))
    column = np.hstack((gpus, np.broadcast_to(level, (users, 1))))
    builder.rows(
        "share", users, row=row, column=column, value=np.hstack((speed, -weight[:, None])),
        lower=0.0, axes=(by_user,),
    )  # fmt: skip
    builder.rows(
        "capacity", kinds, row=kind, column=gpus, value=1.0, upper=capacity, axes=(by_type,)
    )
    builder.rows("demand", users, row=user, column=gpus, value=1.0, upper=cap, axes=(by_user,))
    builder.objective("level", column=level, value=1.0, maximise=True)
    return builder.build()
