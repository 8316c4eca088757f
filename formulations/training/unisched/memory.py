"""The plan that UniSched remembers: who was accepted, by which GPUs, and for which leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.instances import InstanceError
from apportion.instances.columns import (
    Bools,
    Ints,
    Names,
    ints,
    names,
    ragged,
    require,
)

_KEYS = ("start_s", "id", "gpu_type", "gpus", "runs_type", "runs_gpus", "offsets", "lease")

SAME_S = 1e-6
"""Seconds up to which two instants are the same: times are sums of lengths of rounds."""


@dataclass(frozen=True, eq=False)
class Reservations:
    """Leases of the accepted jobs, one row a job.

    Parameters
    ----------
    start_s
        When lease 0 begins.
    id
        Names of the jobs.
    gpu_type, gpus
        Configuration of each in the plan.
    runs_type, runs_gpus
        What each holds during lease 0, -1 and 0 where it waits; more than planned where idle GPUs
        were given to it for the whole lease.
    offsets, lease
        Leases of job j, rising, are ``lease[offsets[j]:offsets[j + 1]]``.
    """

    start_s: float
    id: Names
    gpu_type: Ints
    gpus: Ints
    runs_type: Ints
    runs_gpus: Ints
    offsets: Ints
    lease: Ints

    @property
    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {key: getattr(self, key) for key in _KEYS}

    def rows_of(self, ids: Names) -> Ints:
        """Place of each name in the plan, -1 for those not in it."""
        place = {name: at for at, name in enumerate(self.id.tolist())}
        return np.array([place.get(name, -1) for name in ids.tolist()], dtype=np.int64)

    def table(self, shift: int, horizon: int) -> Bools:
        """Leases as a table, counted from ``shift`` leases later, shape (rows, horizon)."""
        out = np.zeros((self.id.size, horizon), dtype=np.bool_)
        row = np.repeat(np.arange(self.id.size), np.diff(self.offsets))
        later = self.lease - shift
        good = (later >= 0) & (later < horizon)
        out[row[good], later[good]] = True
        return out


PREFIX = "estimator_"
"""Columns that belong to the estimator begin so."""


def with_prefix(columns: dict[str, Any]) -> dict[str, Any]:
    """Name the estimator's columns as the policy's memory does."""
    return {PREFIX + name: column for name, column in columns.items()}


def of_estimator(memory: Any) -> dict[str, Any] | None:
    """Give the estimator's columns; None where there are none."""
    if memory is None:
        return None
    found = {key[len(PREFIX) :]: memory[key] for key in memory if str(key).startswith(PREFIX)}
    return found or None


def recall(memory: Any) -> Reservations | None:
    """Read the plan.

    Raises
    ------
    InstanceError
        On a memory that is not UniSched's.
    """
    if memory is None:
        return None
    try:
        start_s = float(memory["start_s"])
        known = names(memory["id"], "memory.id")
        given = {key: memory[key] for key in _KEYS[2:]}
    except (KeyError, TypeError, IndexError, ValueError):
        raise InstanceError(
            f"memory: not one of unisched: it lacks {', '.join(_KEYS[:-1])} or {_KEYS[-1]}"
        ) from None
    if not np.isfinite(start_s):
        raise InstanceError(f"memory.start_s = {start_s}: must be a number")
    shape = (known.size,)
    columns = {
        key: ints(given[key], f"memory.{key}", shape)
        for key in ("gpu_type", "gpus", "runs_type", "runs_gpus")
    }
    for key, least in (("gpu_type", 0), ("gpus", 1), ("runs_type", -1), ("runs_gpus", 0)):
        require(columns[key], columns[key] >= least, f"memory.{key}", f"must be at least {least}")
    offsets, lease = ragged(given["offsets"], given["lease"], "memory.lease", known.size)
    require(lease, lease >= 0, "memory.lease", "must not be negative")
    return Reservations(
        start_s, known, **columns, offsets=offsets, lease=ints(lease, "memory.lease")
    )
