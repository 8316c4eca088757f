"""What a simulator saw in a round, whichever simulator it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound

PERCENTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class Seen:
    """Requests of one round.

    Parameters
    ----------
    class_requests, unmodelled_requests
        Requests that came: of each class, shape (K,), and of no class, shape (S,).
    measured, violations
        Requests of each service whose latency was measured, and those above the target,
        shape (S,). Monte Carlo measures more than came, events what ended in the round.
    class_measured, class_kept
        Requests of each class that were measured, and those not above the target, shape (K,).
    latency_ms
        Percentiles of each service: of ``PERCENTILES``, and of its SLA, shape (S, 4); NaN where
        nothing was measured, infinite where too many did not end.
    call_p50_ms, call_p95_ms
        Own latency of a call, shape (M,).
    load_per_s
        Calls per second on a container, shape (M,).
    """

    class_requests: Ints
    unmodelled_requests: Ints
    measured: Ints
    violations: Ints
    class_measured: Ints
    class_kept: Ints
    latency_ms: Floats
    call_p50_ms: Floats
    call_p95_ms: Floats
    load_per_s: Floats


class Measured:
    """Latencies by service while they come in."""

    def __init__(self, round_: MicroserviceRound) -> None:
        services, classes = len(round_.services), len(round_.classes)
        self._round = round_
        self._of_service: list[list[Floats]] = [[] for _ in range(services)]
        self._never = np.zeros(services, dtype=np.int64)
        self.class_measured, self.class_kept = (np.zeros(classes, dtype=np.int64) for _ in "ab")

    def add(self, k: int, latency_ms: Floats) -> None:
        """Enter requests of a class."""
        service = int(self._round.classes.service[k])
        self._of_service[service].append(latency_ms)
        target = self._round.services.target_ms[service]
        self.class_measured[k] += latency_ms.size
        self.class_kept[k] += np.count_nonzero(latency_ms <= target)

    def add_unmodelled(self, service: int, count: int) -> None:
        """Enter requests of no class: they count as violated."""
        self._never[service] += count

    def totals(self) -> tuple[Ints, Ints]:
        """Requests measured and violated, by service, shape (S,) each."""
        service, size = self._round.classes.service, self._never.size
        measured = np.bincount(service, self.class_measured, size) + self._never
        kept = np.bincount(service, self.class_kept, size)
        return measured.astype(np.int64), (measured - kept).astype(np.int64)

    def percentiles(self) -> Floats:
        """Percentiles by service, shape (S, 4)."""
        budget = self._round.services.violation_budget
        rows: list[list[float]] = []
        for service, parts in enumerate(self._of_service):
            values = np.concatenate([*parts, np.full(self._never[service], np.inf)])
            rows.append(quantiles(values, (*PERCENTILES, 1.0 - float(budget[service]))))
        return np.array(rows, dtype=np.float64).reshape(-1, len(PERCENTILES) + 1)


def quantiles(values: Floats, at: tuple[float, ...]) -> list[float]:
    """Give values that a share of all do not exceed; no interpolation, for some may be infinite."""
    count = values.size
    if not count:
        return [math.nan] * len(at)
    places = [min(count - 1, max(0, math.ceil(q * count * (1.0 - 1e-12)) - 1)) for q in at]
    values = np.partition(values, sorted(set(places)))
    return [float(values[place]) for place in places]


def call_percentiles(rates: Floats, shift_ms: Floats, called: Bools) -> tuple[Floats, Floats]:
    """Percentiles 50 and 95 of a shifted exponential; 0 where nobody calls."""
    with np.errstate(divide="ignore"):
        mean = np.where(rates > 0, 1.0 / rates, np.inf)
    return (
        cast(Floats, np.where(called, shift_ms + math.log(2.0) * mean, 0.0)),
        cast(Floats, np.where(called, shift_ms + math.log(20.0) * mean, 0.0)),
    )
