"""Where every job stands, and the rounds a policy is shown of it.

The columns that change are two tables with one row a job, so that a round is one gather of its
rows. Work and GPU-seconds of a running job are kept as (amount at the last change, rate, time of
the last change) and worked out when a round is shown: running on costs nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from apportion.executor.training.lazy import lazy_outcome, lazy_placement
from apportion.executor.training.nodes import Hosts
from apportion.executor.training.observations import Observations
from apportion.instances.columns import Bools, Floats, Ints, freeze
from apportion.instances.policy import Reason
from apportion.instances.training import (
    Commitments,
    Outcome,
    Placement,
    Scenario,
    TrainingRound,
)

BASE, RATE, SINCE, FIRST, LEASE_START, LEASE_END, ATTAINED, LEASE_BASE = range(8)
"""Columns of floats: work at the last change, work a second, from when on; first start; present
lease; GPU-seconds and work when the present lease began."""

KIND, GPUS, SURE, NODE = range(4)
"""Columns of integers: type it last ran on, GPUs held now, lease guaranteed, node it lies on."""

NOWHERE, SEVERAL = -1, -2
"""Instead of a node: the job does not run; it lies on several nodes."""


class State:
    """The two tables, the active jobs and the nodes in service."""

    def __init__(self, scenario: Scenario) -> None:
        jobs, n = scenario.jobs, len(scenario.jobs)
        self._scenario = scenario
        self.observations = Observations(scenario)
        self.floats: Floats = np.zeros((n, 8))
        self.floats[:, BASE] = self.floats[:, LEASE_BASE] = jobs.work_done
        self.floats[:, FIRST] = jobs.first_start_s
        self.floats[:, LEASE_START] = self.floats[:, LEASE_END] = -1.0
        self.floats[:, ATTAINED] = jobs.attained_gpu_s
        self.ints: Ints = np.zeros((n, 4), dtype=np.int64)
        self.ints[:, KIND] = jobs.previous_type
        self.ints[:, NODE] = NOWHERE
        self.split: Ints = np.zeros((3, 0), dtype=np.int64)
        self.up: Bools = np.ones(scenario.cluster.nodes.size, dtype=np.bool_)
        freeze(self.up)
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._new: list[int] = []
        self._gone: list[int] = []

    def admit(self, rows: list[int]) -> None:
        """Add jobs to the rounds to come."""
        self._new += rows

    def finish(self, row: int) -> None:
        """Take a job out of the rounds to come."""
        self._gone.append(row)

    @property
    def active(self) -> int:
        """Jobs that are admitted and unfinished."""
        return self._rows.size + len(self._new) - len(self._gone)

    def rows(self) -> Ints:
        """Rows of the active jobs, rising."""
        if self._new:
            added = np.sort(np.array(self._new, dtype=np.int64))
            rising = not self._rows.size or added[0] > self._rows[-1]
            self._rows = np.concatenate([self._rows, added])
            if not rising:
                self._rows.sort()
            self._new = []
        if self._gone:
            # the rows are sorted: each one gone is found by bisection
            keep = np.ones(self._rows.size, dtype=np.bool_)
            keep[self._rows.searchsorted(self._gone)] = False
            self._rows = self._rows[keep]
            self._gone = []
        freeze(self._rows)
        return self._rows

    def lie_on(self, row: int, hosts: Hosts) -> int:
        """Note where a job lies; returns what its column ``NODE`` is to hold."""
        if len(hosts) == 1:
            return hosts[0][0]
        self.split = np.concatenate([self.split, spread_out(row, hosts)], axis=1)
        return SEVERAL

    def leave(self, row: int, hosts: Hosts) -> None:
        """Note that a job lies nowhere any more."""
        if len(hosts) > 1:
            self.split = self.split[:, self.split[0] != row]

    def set_up(self, node: int, up: bool) -> None:
        """Put a node into service or out of it; rounds shown before keep what they showed."""
        column = np.array(self.up)
        column[node] = up
        freeze(column)
        self.up = column

    def amounts(self, rows: Ints, now_s: float) -> tuple[Floats, Floats]:
        """Work and GPU-seconds of some jobs, up to now."""
        return _amounts(self.floats.take(rows, axis=0), self.ints[:, GPUS][rows], now_s)

    def observe(self, now_s: float) -> None:
        """Measure the metrics of the unfinished jobs; the rounds to come show them."""
        if self.observations.any:
            rows = self.rows()
            self.observations.record(rows, self.amounts(rows, now_s)[0])

    def outcome(self, view: TrainingRound, now_s: float, finished: Bools) -> Outcome:
        """Tell what happened to the jobs of a round since it was shown."""
        jobs, rows = view.jobs, view.jobs.code
        floats, held = self.floats.take(rows, axis=0), self.ints[:, GPUS][rows]

        def columns() -> dict[str, NDArray[Any]]:
            done, attained = _amounts(floats, held, now_s)
            out: dict[str, NDArray[Any]] = {
                "work": done - jobs.work_done,
                "gpu_s": attained - jobs.attained_gpu_s,
                "finished": finished,
            }
            for column in out.values():
                freeze(column)
            return out

        return lazy_outcome(view.now_s, now_s, columns)

    def show(
        self,
        now_s: float,
        reasons: tuple[Reason, ...],
        commitments: Commitments,
        index: int,
    ) -> TrainingRound:
        """Build the round a policy is shown: a view whose changing columns are of this moment."""
        scenario, rows = self._scenario, self.rows()
        floats, ints = self.floats.take(rows, axis=0), self.ints.take(rows, axis=0)
        freeze(floats)
        freeze(ints)
        held = ints[:, GPUS]
        done, attained = _amounts(floats, held, now_s)
        known: dict[str, NDArray[Any]] = {
            "work_done": done,
            "work_in_lease": done - floats[:, LEASE_BASE],
            "attained_gpu_s": attained,
            "running": held > 0,
            "guaranteed": ints[:, SURE] != 0,
        }
        for column in known.values():
            freeze(column)
        # columns of a frozen table are frozen
        known |= {
            "code": rows,
            "previous_type": ints[:, KIND],
            "held_gpus": held,
            "first_start_s": floats[:, FIRST],
            "lease_start_s": floats[:, LEASE_START],
            "lease_end_s": floats[:, LEASE_END],
        }
        return TrainingRound.trusted(
            cluster=scenario.cluster,
            jobs=self.observations.on(scenario.jobs.take(rows, known), rows),
            now_s=now_s,
            duration_s=scenario.options.round_s,
            tenants=scenario.tenants,
            reasons=reasons,
            commitments=commitments,
            placement=lazy_placement(partial(_held, held, ints[:, NODE], rows, self.split)),
            node_up=self.up,
            index=index,
        )


def _amounts(floats: Floats, held: Ints, now_s: float) -> tuple[Floats, Floats]:
    done = floats[:, BASE] + floats[:, RATE] * np.maximum(now_s - floats[:, SINCE], 0.0)
    attained = floats[:, ATTAINED] + held * (now_s - floats[:, LEASE_START])
    return done, attained


def spread_out(row: int, hosts: Hosts) -> Ints:
    """Entries of a job that lies on several nodes, shape (3, hosts)."""
    return np.array([(row, node, gpus) for node, gpus in hosts], dtype=np.int64).T


def lay_out(job: Ints, node: Ints, gpus: Ints, split: Ints) -> Placement:
    """Lay gangs out as a placement; those on one node come first.

    Parameters
    ----------
    job, node, gpus
        Rows, the one node of each or ``SEVERAL``, and GPUs, shape (m,).
    split
        Row, node and GPUs for the jobs that lie on several nodes, shape (3, entries).
    """
    if not split.size:
        return Placement(job, node, gpus)
    one = (node != SEVERAL).nonzero()[0]
    columns = zip((job, node, gpus), split, strict=True)
    return Placement(*(np.concatenate((column[one], more)) for column, more in columns))


def _held(held: Ints, node: Ints, rows: Ints, split: Ints) -> dict[str, Ints]:
    """Lay out the GPUs held in a round, with its own rows instead of the scenario's."""
    runs = cast(Ints, held.nonzero()[0])
    own = np.array(split)
    own[0] = rows.searchsorted(split[0])
    laid = lay_out(runs, node[runs], held[runs], own)
    columns = {"job": laid.job, "node": laid.node, "gpus": laid.gpus}
    for column in columns.values():
        freeze(column)
    return columns
