"""Who shares: the users of a round, their relative speeds, weights and demand caps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from apportion.formulations.training.pinned import Pinned
from apportion.instances.columns import Bools, Floats, Ints, Names
from apportion.instances.training import TrainingRound
from apportion.solver import identical_rows

Grouping = Literal["profile", "model", "job"]

DIGITS = 9
"""Significant digits of relative speeds: jobs that differ by rounding alone are one user's."""


@dataclass(frozen=True, eq=False)
class Users:
    """Users of a round, in order of their names, u rows and k GPU types.

    Parameters
    ----------
    name
        Unique, and the same in every round in which tenant and relative speeds are, shape (u,).
    weight
        Positive, shape (u,).
    speed
        Speed on each type in parts of that on the slowest one the user can use, 0 where it cannot
        run, shape (u, k).
    cap
        GPUs the user can use at most, shape (u,).
    of_job
        User of each job of the round, -1 for jobs without a part in it, shape (n,).
    """

    name: Names
    weight: Floats
    speed: Floats
    cap: Floats
    of_job: Ints

    def __len__(self) -> int:
        return int(self.weight.size)


MOST_RATIO = 1e9
"""A type that is faster than the slowest one by more counts as this much faster: solvers could not
tell the slow one's speed from zero."""


def usable(round_: TrainingRound, held: Pinned) -> Bools:
    """Types on which each open job's gang fits what pinned leases leave, shape (n, k)."""
    fits = round_.jobs.gang[:, None] <= held.free[None, :]
    return round_.eligible & fits & held.open[:, None]


def relative_speeds(throughput_per_s: Floats, able: Bools) -> Floats:
    """Speeds in parts of the slowest usable type's, rounded to ``DIGITS``, 0 where not usable.

    Parameters
    ----------
    throughput_per_s
        Work units a second of each job's gang on each type, shape (n, k).
    able
        Types each can use, shape (n, k).
    """
    slowest = np.where(able, throughput_per_s, np.inf).min(axis=1, initial=np.inf)
    runs = np.isfinite(slowest)[:, None]
    with np.errstate(over="ignore"):
        ratio = np.divide(
            throughput_per_s, slowest[:, None], out=np.zeros_like(throughput_per_s),
            where=able & runs,
        )  # fmt: skip
    ratio = np.minimum(ratio, MOST_RATIO)
    # a ratio is 1 at least, so that this many digits behind the first are significant ones
    size = 10.0 ** np.floor(np.log10(np.maximum(ratio, 1.0)))
    return np.round(ratio / size, DIGITS - 1) * size


def users_of(round_: TrainingRound, held: Pinned, grouping: Grouping) -> Users:
    """Group the jobs that may be placed into users.

    A tenant whose jobs have several profiles of relative speeds counts as that many users, each
    with its part of the tenant's weight.

    Parameters
    ----------
    round_
        The round.
    held
        Leases that go on.
    grouping
        What makes a user beside tenant and relative speeds: nothing (``profile``), the model that
        is trained (``model``), or the job itself (``job``).
    """
    jobs, able = round_.jobs, usable(round_, held)
    rows = np.flatnonzero(able.any(axis=1))
    of_job = np.full(len(jobs), -1, dtype=np.int64)
    kinds = round_.cluster.types.size
    if not rows.size:
        none = np.zeros(0)
        return Users(np.zeros(0, dtype=np.str_), none, np.zeros((0, kinds)), none, of_job)
    speed = relative_speeds(jobs.throughput_per_s[rows], able[rows])
    owner = jobs.tenant[rows]
    apart = np.zeros(rows.size)
    if grouping == "job":
        apart = rows.astype(np.float64)
    elif grouping == "model":
        apart = np.unique(jobs.model[rows], return_inverse=True)[1].astype(np.float64)
    groups = identical_rows(speed, owner, apart)
    first = rows[groups.first]
    name = _names(round_, first, speed[groups.first], grouping)
    order = np.argsort(name, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    of_job[rows] = place[groups.of_row]
    own = owner[groups.first]
    split = np.bincount(own, minlength=round_.tenants.id.size)
    weight = round_.tenants.weight[own] / split[own]
    cap = groups.total(jobs.gang[rows].astype(np.float64))
    return Users(name[order], weight[order], speed[groups.first][order], cap[order], of_job)


def _names(round_: TrainingRound, first: Ints, speed: Floats, grouping: Grouping) -> Names:
    """Name users after tenant, model or job, and relative speeds."""
    tenant = round_.tenants.id[round_.jobs.tenant[first]].tolist()
    if grouping == "job":
        job = round_.jobs.id[first].tolist()
        return np.array([f"{t}/{j}" for t, j in zip(tenant, job, strict=True)], dtype=np.str_)
    model = round_.jobs.model[first].tolist() if grouping == "model" else [""] * len(tenant)
    profile = [":".join(f"{one:.{DIGITS}g}" for one in row) for row in speed.tolist()]
    return np.array(
        [
            "/".join(part for part in (t, m, p) if part)
            for t, m, p in zip(tenant, model, profile, strict=True)
        ],
        dtype=np.str_,
    )
