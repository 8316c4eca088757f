"""TetriSched's model: every job runs through consecutive leases, from one start on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.solver import Classes, Model, ModelBuilder, identical_rows

REWARD = 25.0
"""What a best-effort job earns in the lease that begins, over the leases it still needs."""

NEVER = -1
"""Latest start of a run that comes too late for its deadline, and start of a job without one."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Jobs to be started, over m jobs, k GPU types and d deadlines.

    Parameters
    ----------
    gang
        GPUs of each, shape (m,).
    need
        Leases in a row that each takes on each type, 0 where it cannot run, shape (m, k).
    last
        Latest lease in which it may start to meet each deadline, ``NEVER`` where there is none,
        rising along deadlines, shape (m, k, d).
    worth
        Part of its value that each deadline earns, not rising, shape (m, d).
    """

    gang: Ints
    need: Ints
    last: Ints
    worth: Floats

    def __len__(self) -> int:
        return self.gang.size


class Starts(NamedTuple):
    """Where and when each job starts: type and lease, ``NEVER`` for those left out, shape (m,)."""

    kind: Ints
    lease: Ints


def earned(runs: Runs, starts: Starts) -> Floats:
    """What each job earns from where it starts, shape (m,)."""
    rows = np.flatnonzero(starts.lease >= 0)
    out = np.zeros(len(runs))
    met = runs.last[rows, starts.kind[rows]] >= starts.lease[rows, None]
    # the first deadline met earns most
    out[rows] = np.max(np.where(met, runs.worth[rows], 0.0), axis=1, initial=0.0)
    return out


def earliest(free: Ints, gang: int, need: int, last: int) -> int:
    """First lease from which a gang fits for so many leases in a row, ``NEVER`` without one.

    Parameters
    ----------
    free
        Free GPUs in each lease, shape (T,). Leases beyond are taken to be free.
    gang, need
        GPUs, and leases in a row.
    last
        Latest start.
    """
    starts = min(last + 1, free.size)
    if starts <= 0:
        return NEVER
    full = (free[: starts + need - 1] < gang).nonzero()[0]
    if not full.size or full[0] >= need:
        return 0
    after_last = int(full[-1]) + 1
    if full.size < after_last - int(full[0]):  # there are gaps
        long = (full[1:] - full[:-1] > need).nonzero()[0]
        if long.size:
            return int(full[long[0]]) + 1
    return after_last if after_last < starts else NEVER


def fit_earliest(runs: Runs, free: Ints, order: Ints) -> tuple[Starts, Ints]:
    """Start each job in turn where it ends first; what does not fit is left out.

    Returns
    -------
    (Starts, free)
        The starts, and the GPUs that are left, shape (k, T).
    """
    left = free.copy()
    by_kind = list(left)
    kinds = np.full(len(runs), NEVER, dtype=np.int64)
    leases = kinds.copy()
    gang, latest = runs.gang.tolist(), runs.last.max(axis=2, initial=NEVER).tolist()
    need = runs.need.tolist()
    for row in order.tolist():
        best = (0, NEVER, NEVER)
        for kind, takes in enumerate(need[row]):
            if takes > 0 and latest[row][kind] >= 0:
                start = earliest(by_kind[kind], gang[row], takes, latest[row][kind])
                if start >= 0 and (best[2] < 0 or start + takes < best[0]):
                    best = (start + takes, kind, start)
        if best[2] >= 0:
            end, kinds[row], leases[row] = best
            by_kind[best[1]][best[2] : end] -= gang[row]
    return Starts(kinds, leases), left


def shifted(runs: Runs, starts: Starts, left: Ints) -> Starts:
    """Move starts forward one after the other, the first first, where room was left over.

    Parameters
    ----------
    runs, starts
        The jobs and a plan.
    left
        GPUs that the plan leaves over, shape (k, T).
    """
    left, lease = left.copy(), starts.lease.copy()
    rows = np.flatnonzero(lease > 0)
    for row in rows[np.argsort(lease[rows], kind="stable")].tolist():
        kind, gang = int(starts.kind[row]), int(runs.gang[row])
        need, now = int(runs.need[row, kind]), int(lease[row])
        left[kind, now : now + need] += gang
        first = earliest(left[kind], gang, need, now)
        left[kind, first : first + need] -= gang
        lease[row] = first
    return Starts(starts.kind, lease)


@dataclass(frozen=True, eq=False)
class Fillers:
    """Best-effort jobs: each asks for the lease that begins.

    Parameters
    ----------
    gang
        GPUs of each, shape (b,).
    need
        Leases that each still needs on each type, 0 where it cannot run, shape (b, k).
    """

    gang: Ints
    need: Ints

    @property
    def reward(self) -> Floats:
        """What each earns on each type, 0 where it cannot run, shape (b, k)."""
        out = np.zeros(self.need.shape)
        return np.divide(REWARD, self.need, out=out, where=self.need > 0)


@dataclass(frozen=True, eq=False)
class LeaseModel:
    """The integer program of a round: who starts when, and who fills the lease that begins.

    Identical jobs are one class, whose columns count them.

    Parameters
    ----------
    runs, fillers
        Jobs with deadlines, and those without.
    free
        Free GPUs of each type in each lease, shape (k, T).
    """

    runs: Runs
    fillers: Fillers
    free: Ints

    @cached_property
    def classes(self) -> Classes:
        """Identical jobs with deadlines."""
        runs = self.runs
        last = runs.last.reshape(len(runs), runs.last.shape[1] * runs.last.shape[2])
        return identical_rows(runs.gang, runs.need, last, runs.worth)

    @cached_property
    def filler_classes(self) -> Classes:
        """Identical best-effort jobs."""
        return identical_rows(self.fillers.gang, self.fillers.need)

    @cached_property
    def starts(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Class, type, lease and worth of every possible start."""
        some, horizon = self.classes.first, self.free.shape[1]
        last = np.minimum(self.runs.last[some], horizon - 1)
        before = np.concatenate((np.full((*last.shape[:2], 1), NEVER), last[..., :-1]), axis=2)
        count = np.maximum(last - np.maximum(before, NEVER), 0)
        group, kind, deadline = np.nonzero(count)
        count = count[group, kind, deadline]
        first = before[group, kind, deadline] + 1
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        worth = self.runs.worth[some][group, deadline]
        return (
            np.repeat(group, count), np.repeat(kind, count),
            np.repeat(first, count) + within, np.repeat(worth, count),
        )  # fmt: skip

    @cached_property
    def fills(self) -> tuple[Ints, Ints]:
        """Class and type of every way to fill the lease that begins."""
        group, kind = np.nonzero(self.fillers.need[self.filler_classes.first])
        return group, kind

    @property
    def entries(self) -> int:
        """Places of the capacity rows that are not 0: what the model's size is measured by."""
        group, kind, lease, _ = self.starts
        need = self.runs.need[self.classes.first][group, kind]
        return int(np.minimum(need, self.free.shape[1] - lease).sum()) + self.fills[0].size

    @cached_property
    def model(self) -> Model:
        """Columns ``start`` and ``fill``; rows ``one``, ``one_fill``, ``capacity[type, lease]``.

        Objectives: what deadlines earn, then what best-effort jobs do.
        """
        group, kind, lease, worth = self.starts
        filler, filler_kind = self.fills
        gang = self.runs.gang[self.classes.first][group]
        filler_gang = self.fillers.gang[self.filler_classes.first][filler]
        builder = ModelBuilder("consecutive leases")
        most = np.minimum(self.classes.count[group], self.free[kind, lease] // gang)
        x = builder.columns("start", group.size, upper=most, integer=True)
        most = np.minimum(
            self.filler_classes.count[filler], self.free[filler_kind, 0] // filler_gang
        )
        y = builder.columns("fill", filler.size, upper=most, integer=True)
        for name, classes, row, column in (
            ("one", self.classes, group, x),
            ("one_fill", self.filler_classes, filler, y),
        ):
            builder.rows(
                name, classes.count.size, row=row, column=column, value=1.0, upper=classes.count
            )
        place, column = self._occupied()
        builder.rows(
            "capacity", self.free.size,
            row=np.concatenate((place, filler_kind * self.free.shape[1])),
            column=np.concatenate((x[column], y)),
            value=np.concatenate((gang[column], filler_gang)), upper=self.free.ravel(),
        )  # fmt: skip
        builder.objective("deadlines", column=x, value=worth, maximise=True)
        reward = self.fillers.reward[self.filler_classes.first][filler, filler_kind]
        builder.objective("best effort", column=y, value=reward, maximise=True)
        return builder.build()

    def _occupied(self) -> tuple[Ints, Ints]:
        """Places (type and lease) that each start occupies, and its column, one entry each."""
        group, kind, lease, _ = self.starts
        horizon = self.free.shape[1]
        need = self.runs.need[self.classes.first][group, kind]
        count = np.minimum(need, horizon - lease)
        column = np.repeat(np.arange(group.size), count)
        step = np.arange(column.size) - np.repeat(np.cumsum(count) - count, count)
        return kind[column] * horizon + lease[column] + step, column

    def point(self, starts: Starts, filled: Ints) -> Floats:
        """Point of the model at which jobs start so, and fillers run on such types."""
        group, kind, lease, _ = self.starts
        k, horizon = self.free.shape
        rows = np.flatnonzero(starts.lease >= 0)
        own = (self.classes.of_row[rows] * k + starts.kind[rows]) * horizon + starts.lease[rows]
        size = self.classes.count.size * k * horizon
        first = np.bincount(own, minlength=size)[(group * k + kind) * horizon + lease]
        rows = np.flatnonzero(filled >= 0)
        own = self.filler_classes.of_row[rows] * k + filled[rows]
        filler, filler_kind = self.fills
        size = self.filler_classes.count.size * k
        return np.concatenate(
            (first, np.bincount(own, minlength=size)[filler * k + filler_kind])
        ).astype(np.float64)

    def read(self, point: Floats) -> tuple[Starts, Ints]:
        """Read starts of the jobs and types of the fillers from a point, in order of rows."""
        group, kind, lease, _ = self.starts
        whole = np.rint(point).astype(np.int64)
        times = np.repeat(np.arange(group.size), whole[: group.size])
        at = _members(self.classes, group[times])
        starts = Starts(np.full(len(self.runs), NEVER), np.full(len(self.runs), NEVER))
        starts.kind[at], starts.lease[at] = kind[times], lease[times]
        filler, filler_kind = self.fills
        times = np.repeat(np.arange(filler.size), whole[group.size :])
        filled = np.full(self.fillers.gang.size, NEVER)
        filled[_members(self.filler_classes, filler[times])] = filler_kind[times]
        return starts, filled

    def left(self, starts: Starts, filled: Ints) -> Ints:
        """GPUs that a plan leaves over, shape (k, T)."""
        out = self.free.copy()
        for row in np.flatnonzero(starts.lease >= 0).tolist():
            kind, lease = int(starts.kind[row]), int(starts.lease[row])
            out[kind, lease : lease + int(self.runs.need[row, kind])] -= self.runs.gang[row]
        rows = np.flatnonzero(filled >= 0)
        np.subtract.at(out[:, 0], filled[rows], self.fillers.gang[rows])
        return out


def _members(classes: Classes, group: Ints) -> Ints:
    """Members for entries of each class, rising rows within a class; classes are in order."""
    order = np.argsort(classes.of_row, kind="stable")
    begin = np.cumsum(classes.count) - classes.count
    by_group = np.argsort(group, kind="stable")
    ranked = group[by_group]
    place = np.arange(group.size) - np.searchsorted(ranked, ranked)
    out = np.empty(group.size, dtype=np.int64)
    out[by_group] = order[begin[ranked] + place]
    return out
