"""Records of a run while it grows: typed arrays, turned into columns at the end."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from apportion.executor.training.records import JobRecords, LeaseRecords, RoundRecords
from apportion.instances.columns import Floats, Ints, Names, freeze
from apportion.instances.policy import Decision

_LEASE_FLOATS = ("start_s", "end_s", "stall_s", "rate_per_s", "work", "lost_work")
_LEASE_INTS = ("job", "gpu_type", "gpus", "hosts")
_TABLES = (
    "busy_gpu_s", "stalled_gpu_s", "idle_no_demand_gpu_s", "idle_no_pack_gpu_s",
    "idle_policy_gpu_s", "idle_finished_gpu_s", "down_gpu_s",
)  # fmt: skip


class LeaseLog:
    """Stretches that have ended."""

    def __init__(self) -> None:
        self._floats = array("d")
        self._ints = array("q")
        self._ended: list[str] = []

    def add(self, ints: tuple[int, ...], floats: tuple[float, ...], ended: str) -> None:
        """Enter one stretch: job, type, GPUs, hosts; start, end, stall, rate, work, lost."""
        self._ints.extend(ints)
        self._floats.extend(floats)
        self._ended.append(ended)

    def records(self) -> LeaseRecords:
        """Turn into columns, in the order in which the stretches ended."""
        ints = np.array(self._ints, dtype=np.int64).reshape(-1, len(_LEASE_INTS))
        floats = np.array(self._floats).reshape(-1, len(_LEASE_FLOATS))
        columns: dict[str, Any] = dict(zip(_LEASE_INTS, ints.T.copy(), strict=True))
        columns |= dict(zip(_LEASE_FLOATS, floats.T.copy(), strict=True))
        for column in columns.values():
            freeze(column)
        return LeaseRecords(**columns, ended=_names(self._ended))


class RoundLog:
    """Intervals that have ended."""

    def __init__(self, types: int) -> None:
        self._types = types
        self._index, self._active, self._running = array("q"), array("q"), array("q")
        self._unplaced = array("q")
        self._now, self._end = array("d"), array("d")
        self._objective, self._gap = array("d"), array("d")
        self._reasons: list[str] = []
        self._status: list[str] = []
        self._tables = array("d")

    def __len__(self) -> int:
        return len(self._index)

    def add(
        self,
        index: int,
        span: tuple[float, float],
        reasons: tuple[str, ...],
        counts: tuple[int, int, int],
        decision: Decision,
        gpu_s: list[float],
    ) -> None:
        """Enter one interval; ``counts`` are active, running and unplaced jobs."""
        self._index.append(index)
        self._now.append(span[0])
        self._end.append(span[1])
        self._reasons.append("+".join(reasons))
        self._active.append(counts[0])
        self._running.append(counts[1])
        self._unplaced.append(counts[2])
        self._status.append(decision.status)
        self._objective.append(np.nan if decision.objective is None else decision.objective)
        self._gap.append(np.nan if decision.gap is None else decision.gap)
        self._tables.extend(gpu_s)

    def records(self) -> RoundRecords:
        """Turn into columns."""
        rounds = len(self._index)
        tables = _floats(self._tables).reshape(rounds, len(_TABLES), self._types)
        columns: dict[str, Any] = {}
        for at, name in enumerate(_TABLES):
            columns[name] = np.ascontiguousarray(tables[:, at])
            freeze(columns[name])
        return RoundRecords(
            index=_ints(self._index), now_s=_floats(self._now), end_s=_floats(self._end),
            reasons=_names(self._reasons), active=_ints(self._active),
            running=_ints(self._running), unplaced=_ints(self._unplaced),
            status=_names(self._status), objective=_floats(self._objective),
            gap=_floats(self._gap), **columns,
        )  # fmt: skip


class JobLog:
    """What has happened to each job."""

    def __init__(self, jobs: int) -> None:
        self.first_start_s = array("d", [-1.0]) * jobs
        self.finish_s = array("d", [-1.0]) * jobs
        self.work = array("d", [0.0]) * jobs
        self.gpu_s = array("d", [0.0]) * jobs
        self.preemptions = array("q", [0]) * jobs
        self.migrations = array("q", [0]) * jobs

    def records(self) -> JobRecords:
        """Turn into columns."""
        return JobRecords(
            _floats(self.first_start_s), _floats(self.finish_s), _floats(self.work),
            _floats(self.gpu_s), _ints(self.preemptions), _ints(self.migrations),
        )  # fmt: skip


def _floats(values: array[float]) -> Floats:
    out = np.array(values, dtype=np.float64)
    freeze(out)
    return out


def _ints(values: array[int]) -> Ints:
    out = np.array(values, dtype=np.int64)
    freeze(out)
    return out


def _names(values: list[str]) -> Names:
    out: Names = np.array(values, dtype=np.str_)
    freeze(out)
    return out
