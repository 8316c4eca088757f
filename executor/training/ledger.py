"""Where the GPU-seconds of an interval went, counted by what changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.training import Scenario

HELD, ENDED, DOWN, NO_DEMAND, NO_PACK, POLICY = range(6)
"""What a GPU can be counted under: held by a running job, held by one that has ended, out of
service, or free with one of three causes."""

KINDS = 6


class Ledger:
    """Counts of GPUs by state and type, integrated over the interval between two decisions.

    A count that changes by d at time t adds ``d * (end - t)`` to its integral, so the counts are
    touched only when something happens. Stalls are the part of HELD in which a job only starts.
    """

    def __init__(self, capacity: Ints) -> None:
        self._types = capacity.size
        self._capacity: list[int] = capacity.tolist()
        self._count = [[0] * self._types for _ in range(KINDS)]
        self._late = [[0.0] * self._types for _ in range(KINDS)]
        self._cause = [NO_DEMAND] * self._types
        self._count[NO_DEMAND] = list(self._capacity)
        self._start = 0.0
        self._stalled = [0.0] * self._types
        self._stalls: dict[int, tuple[int, int, float, float]] = {}

    def open(self, now_s: float) -> None:
        """Begin an interval."""
        self._start = now_s
        self._late = [[0.0] * self._types for _ in range(KINDS)]
        self._stalled = [0.0] * self._types

    def shift(self, kind: int, gpu_type: int, gpus: int, now_s: float) -> None:
        """Change a count; what is free changes by the opposite."""
        late = gpus * (now_s - self._start)
        self._count[kind][gpu_type] += gpus
        self._late[kind][gpu_type] += late
        cause = self._cause[gpu_type]
        self._count[cause][gpu_type] -= gpus
        self._late[cause][gpu_type] -= late

    def keep(self, gpu_type: int, gpus: int, now_s: float) -> None:
        """Count GPUs of a running job under ENDED from now on."""
        late = gpus * (now_s - self._start)
        self._count[HELD][gpu_type] -= gpus
        self._late[HELD][gpu_type] -= late
        self._count[ENDED][gpu_type] += gpus
        self._late[ENDED][gpu_type] += late

    def free_ended(self, now_s: float) -> None:
        """Free whatever is counted under ENDED."""
        for kind, gpus in enumerate(self._count[ENDED]):
            if gpus:
                self.shift(ENDED, kind, -gpus, now_s)

    def free(self, gpu_type: int) -> int:
        """GPUs in service that nobody holds."""
        return self._count[self._cause[gpu_type]][gpu_type]

    def blame(self, least: Sequence[float], now_s: float) -> None:
        """Say why what is free is free.

        Parameters
        ----------
        least
            For each type the fewest GPUs any waiting job could use there; infinite where none
            could run.
        now_s
            From when on.
        """
        for kind, need in enumerate(least):
            free = self.free(kind)
            cause = NO_DEMAND if need == math.inf else NO_PACK if need > free else POLICY
            if cause != self._cause[kind]:
                before, late = self._cause[kind], free * (now_s - self._start)
                self._count[before][kind] -= free
                self._late[before][kind] -= late
                self._count[cause][kind] += free
                self._late[cause][kind] += late
                self._cause[kind] = cause

    def stall(self, row: int, gpu_type: int, gpus: int, start_s: float, end_s: float) -> None:
        """Enter the stall at the start of a job."""
        self._stalls[row] = (gpu_type, gpus, start_s, end_s)

    def end_stall(self, row: int, now_s: float) -> None:
        """Account for the stall of a job that stops."""
        if row in self._stalls:
            kind, gpus, start, end = self._stalls.pop(row)
            self._stalled[kind] += gpus * max(0.0, min(end, now_s) - max(start, self._start))

    def close(self, now_s: float) -> list[float]:
        """End the interval.

        Returns
        -------
        list of float
            GPU-seconds of each type, one after the other: busy, stalled, no demand, no pack,
            policy, ended, down; 7 k numbers.
        """
        for row, (kind, gpus, start, end) in list(self._stalls.items()):
            if end <= now_s:
                self.end_stall(row, now_s)
            else:
                self._stalled[kind] += gpus * max(0.0, now_s - max(start, self._start))
        length = now_s - self._start
        total = [
            [count * length - late for count, late in zip(counts, lates, strict=True)]
            for counts, lates in zip(self._count, self._late, strict=True)
        ]
        out = [held - stalled for held, stalled in zip(total[HELD], self._stalled, strict=True)]
        out += self._stalled
        for state in (NO_DEMAND, NO_PACK, POLICY, ENDED, DOWN):
            out += total[state]
        return out


class Demand:
    """How many GPUs the waiting jobs need at least, by type.

    Jobs with the same needs form a class; only the number waiting in each class is kept.
    """

    def __init__(self, scenario: Scenario) -> None:
        needs = _least_gpus(scenario)
        classes, members = np.unique(needs, axis=0, return_inverse=True)
        self._needs: list[list[float]] = classes.tolist()
        self._class: list[int] = members.ravel().tolist()
        self._waiting = [0] * len(self._needs)
        self._types = needs.shape[1]

    def add(self, row: int, jobs: int) -> None:
        """Count a job that starts to wait (1) or stops waiting (-1)."""
        self._waiting[self._class[row]] += jobs

    def least(self) -> list[float]:
        """Fewest GPUs of each type that some waiting job could use; infinite without one."""
        out = [math.inf] * self._types
        for need, waiting in zip(self._needs, self._waiting, strict=True):
            if waiting:
                out = [min(pair) for pair in zip(out, need, strict=True)]
        return out


def _least_gpus(scenario: Scenario) -> Floats:
    jobs, cluster = scenario.jobs, scenario.cluster
    n, k = len(jobs), cluster.types.size
    table = jobs.throughput_per_s.reshape(n, k)
    least = np.where(table > 0, jobs.gang[:, None].astype(np.float64), np.inf)
    owner = np.repeat(np.arange(n), np.diff(jobs.config_offsets))
    gpus, kind = jobs.config_gpus, jobs.config_type.astype(np.int64)
    usable = (gpus >= jobs.min_gpus[owner]) & (gpus <= jobs.max_gpus[owner])
    usable |= gpus == jobs.gang[owner]
    usable &= jobs.config_throughput_per_s > 0
    np.minimum.at(least, (owner[usable], kind[usable]), gpus[usable])
    fits = jobs.gpu_memory_gib[:, None] <= cluster.type_memory_gib[None, :]
    # a gang larger than all there is of a type is no demand for it
    fits &= least <= cluster.gpus[None, :]
    return np.where(fits, least, np.inf)
