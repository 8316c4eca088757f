"""Where the GPU-seconds of a run went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Floats, Ints, Names

CAUSES = (
    "busy",
    "stalled",
    "idle_no_demand",
    "idle_no_pack",
    "idle_policy",
    "idle_finished",
    "down",
)
"""What a GPU-second can go into; the definitions stand with the records of the executor."""

IDLE = tuple(cause for cause in CAUSES if cause.startswith("idle"))

LEDGER_TOLERANCE = 1e-9
"""Relative to the amounts summed: what another order of summing may change."""


@dataclass(frozen=True, eq=False)
class Utilisation:
    """GPU-seconds by cause and type.

    Parameters
    ----------
    types
        Names of the k GPU types.
    gpu_s
        Shape (causes, k), in the order of ``CAUSES``.
    """

    types: Names
    gpu_s: Floats

    def fraction(self, *causes: str) -> float | None:
        """Share of all recorded GPU-seconds that went into some causes; None without any."""
        return self._of(self.gpu_s.sum(axis=1), causes)

    def fraction_by_type(self, *causes: str) -> dict[str, float | None]:
        """Share of each type's GPU-seconds that went into some causes; None without any."""
        return {
            str(kind): self._of(self.gpu_s[:, column], causes)
            for column, kind in enumerate(self.types)
        }

    @staticmethod
    def _of(gpu_s: Floats, causes: tuple[str, ...]) -> float | None:
        total = float(gpu_s.sum())
        rows = [CAUSES.index(cause) for cause in causes]
        return float(gpu_s[rows].sum()) / total if total > 0 else None


def ledger(run: Run) -> Floats:
    """Stack the GPU-seconds of every interval, shape (causes, intervals, types)."""
    shape = (run.rounds.index.size, run.scenario.cluster.types.size)
    columns = [cast(Floats, getattr(run.rounds, f"{cause}_gpu_s")) for cause in CAUSES]
    return np.stack([column.reshape(shape) for column in columns])


def sum_by(group: Ints, values: Floats, count: int) -> Floats:
    """Sum values by group number, shape (count,)."""
    # Without any entry NumPy answers in integers, weights or not.
    return np.bincount(group, weights=values, minlength=count).astype(np.float64)


def utilisation(run: Run) -> Utilisation:
    """Add up where the GPU-seconds went, over all recorded intervals."""
    return Utilisation(run.scenario.cluster.types, ledger(run).sum(axis=1))


def conservation_errors(run: Run) -> list[str]:
    """Find what does not add up between the ledgers of a run.

    In every interval and type the causes add to GPUs x length; busy and stalled GPU-seconds of
    each type equal those of its leases; each lease's work is speed x time less what was lost; each
    job's GPU-seconds and work equal those of its leases.

    Returns
    -------
    list of str
        One message for each law that fails, with its worst entry; empty when all hold.
    """
    checks = (*_interval_checks(run), *_lease_checks(run))
    return [message for check in checks if (message := _disagreement(*check))]


_Check = tuple[str, Floats, Floats, Floats]
"""What is compared, recorded and expected values, and the scale their rounding is judged by."""


def _interval_checks(run: Run) -> Iterator[_Check]:
    leases, cluster, gpu_s = run.leases, run.scenario.cluster, ledger(run)
    k = cluster.types.size
    capacity = (run.rounds.end_s - run.rounds.now_s)[:, None] * cluster.gpus[None, :]
    yield "GPU-seconds of interval, type", gpu_s.sum(axis=0), capacity, capacity
    working_s = leases.end_s - leases.start_s - leases.stall_s
    for cause, seconds in (("busy", working_s), ("stalled", leases.stall_s)):
        recorded = gpu_s[CAUSES.index(cause)].sum(axis=0)
        expected = sum_by(leases.gpu_type, leases.gpus * seconds, k)
        yield f"{cause} GPU-seconds of type", recorded, expected, capacity.sum(axis=0)


def _lease_checks(run: Run) -> Iterator[_Check]:
    leases, n = run.leases, len(run.scenario.jobs)
    length = leases.end_s - leases.start_s
    gross = leases.rate_per_s * (length - leases.stall_s)
    # Time stamps far from the epoch carry a rounding of their own, which short leases feel.
    clock = np.maximum(length, 1e-6 * np.abs(leases.end_s))
    yield "work of lease", leases.work, gross - leases.lost_work, leases.rate_per_s * clock
    held = sum_by(leases.job, leases.gpus * length, n)
    yield "GPU-seconds of job", run.jobs.gpu_s, held, held
    done = sum_by(leases.job, leases.work, n)
    yield "work of job", run.jobs.work, done, sum_by(leases.job, gross, n)


def _disagreement(what: str, recorded: Floats, expected: Floats, scale: Floats) -> str | None:
    excess = np.abs(recorded - expected) - LEDGER_TOLERANCE * scale
    if not (excess > 0).any():
        return None
    worst = np.unravel_index(int(excess.argmax()), excess.shape)
    place = ", ".join(str(int(part)) for part in worst)
    return f"{what} [{place}]: recorded {recorded[worst]:.9g}, expected {expected[worst]:.9g}"
