"""What is seen of the metrics of jobs while they run.

After each interval between two decisions every job that has finished an iteration since it was
last seen shows its metric once, with noise. The points are kept as tables that are never changed,
so a round that was shown before still shows what it showed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from apportion.instances.columns import Floats, Ints, freeze
from apportion.instances.counters import keys_of
from apportion.instances.training import Jobs, Scenario
from apportion.instances.training.curves import NO_CURVE, WHOLE
from apportion.instances.training.jobs import RAGGED

POINTS_MOST = 256
"""Points kept of one job: of a history that outgrows them every second old point goes."""

BATCHES_MOST = 32
"""Batches of new points before they are sorted in among the others."""

_COLUMNS = ("observed_offsets", *RAGGED["observed"])


class _Table(NamedTuple):
    """Points: scenario row, iteration, metric; each of shape (points,)."""

    row: Ints
    iteration: Floats
    metric: Floats


class ObservedJobs(Jobs):
    """A view of jobs whose observations are gathered when they are first read."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _COLUMNS and "_observe" in self.__dict__:
                self.__dict__.update(self.__dict__["_observe"]())
                return self.__dict__[name]
            return super().__getattr__(name)


class Observations:
    """The points of all jobs, as the run goes on."""

    def __init__(self, scenario: Scenario) -> None:
        jobs, curves = scenario.jobs, scenario.true_curves
        self._jobs, self._curves, self._seed = jobs, curves, scenario.seed
        self.any = curves is not None and bool((curves.family != NO_CURVE).any())
        if not self.any or curves is None:
            return
        self._shows = curves.family != NO_CURVE
        self._keys = keys_of(jobs.id)
        self._newest = np.zeros(len(jobs))
        self._measured = np.zeros(len(jobs), dtype=np.bool_)
        owner = np.repeat(np.arange(len(jobs)), np.diff(jobs.observed_offsets))
        np.maximum.at(self._newest, owner, jobs.observed_iteration)
        self._base = _Table(owner, jobs.observed_iteration, jobs.observed_metric)
        self._batches: tuple[_Table, ...] = ()

    def record(self, rows: Ints, done: Floats) -> None:
        """Measure the jobs that have finished a whole iteration since they were last seen.

        Parameters
        ----------
        rows
            Scenario rows of the unfinished jobs, rising.
        done
            Iterations they have done, shape (m,).
        """
        if not self.any or self._curves is None:
            return
        whole = np.floor(done * (1.0 + WHOLE))
        new = np.flatnonzero(self._shows[rows] & (whole > self._newest[rows]))
        if not new.size:
            return
        row, iteration = rows[new], whole[new]
        self._newest[row], self._measured[row] = iteration, True
        metric = self._curves.measured(self._jobs, row, iteration, self._keys[row], self._seed)
        self._batches = (*self._batches, _Table(row, iteration, metric))
        # by the count of batches alone: what anybody has read must make no difference
        if len(self._batches) == BATCHES_MOST:
            self._base = _thinned(self._kept(_joined(self._base, self._batches), rows))
            self._batches = ()

    def on(self, jobs: Jobs, rows: Ints) -> Jobs:
        """Let a view of jobs show what was seen up to now.

        Parameters
        ----------
        jobs
            The view.
        rows
            Its scenario rows, rising.
        """
        if not self.any:
            return jobs
        out = object.__new__(ObservedJobs)
        out.__dict__.update(jobs.__dict__)
        build: Callable[[], dict[str, Any]] = partial(_shown, self._base, self._batches, rows)
        out.__dict__["_observe"] = build
        return out

    def _kept(self, table: _Table, rows: Ints) -> _Table:
        """Leave out jobs that have ended; those still to come may have brought points along."""
        keep = ~self._measured[table.row]
        keep |= np.isin(table.row, rows)
        return _picked(table, keep)


def _joined(base: _Table, batches: tuple[_Table, ...]) -> _Table:
    """Sort points by job; those of a job stay in the order in which they came."""
    parts = (base, *batches)
    row = np.concatenate([part.row for part in parts])
    iteration = np.concatenate([part.iteration for part in parts])
    metric = np.concatenate([part.metric for part in parts])
    return _picked(_Table(row, iteration, metric), np.argsort(row, kind="stable"))


def _picked(table: _Table, points: Any) -> _Table:
    return _Table(table.row[points], table.iteration[points], table.metric[points])


def _thinned(table: _Table) -> _Table:
    """Drop every second of the older points of jobs that have too many."""
    if not table.row.size:
        return table
    first = np.flatnonzero(np.diff(table.row, prepend=table.row[0] - 1))
    count = np.diff(first, append=table.row.size)
    place = np.arange(table.row.size) - np.repeat(first, count)
    many = np.repeat(count, count)
    old = (many > POINTS_MOST) & (place < many - POINTS_MOST // 2)
    return _picked(table, ~(old & (place % 2 == 1)))


def _shown(base: _Table, batches: tuple[_Table, ...], rows: Ints) -> dict[str, Any]:
    """Gather the points of the jobs of a round as ragged columns."""
    table = _joined(base, batches)
    starts = table.row.searchsorted(rows)
    length = table.row.searchsorted(rows, side="right") - starts
    offsets = np.concatenate(([0], np.cumsum(length)))
    pick: Ints = np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], length)
    columns = (offsets, table.iteration[pick], table.metric[pick])
    for column in columns:
        freeze(column)
    return dict(zip(_COLUMNS, columns, strict=True))
