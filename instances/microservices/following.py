"""The round that follows a decision, once it is known what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError
from apportion.instances.microservices.allocation import Allocation, Outcome
from apportion.instances.microservices.laws import rates
from apportion.instances.microservices.observed import Observed
from apportion.instances.microservices.round import MicroserviceRound

P50, P95 = np.log(2.0), np.log(20.0)
"""Percentiles of an exponential variable of rate 1."""


def round_after(
    round_: MicroserviceRound, allocation: Allocation, outcome: Outcome
) -> MicroserviceRound:
    """Build the next round from the last one, its plan and its outcome.

    Request rates and shares are those that were counted; where a service saw no requests its
    shares stay. Callers that forecast replace both.

    Parameters
    ----------
    round_, allocation
        What was asked and what was decided.
    outcome
        What came of it; the next round falls on its end.

    Returns
    -------
    MicroserviceRound
        With the containers of the plan, and what was measured.

    Raises
    ------
    InstanceError
        Where the parts do not fit together.
    """
    shares, lost, total = _counted(round_, outcome)
    length = outcome.end_s - outcome.start_s
    if not length > 0:
        raise InstanceError(f"outcome.end_s = {outcome.end_s}: must lie after its start")
    if allocation.containers.shape != (len(round_.microservices),):
        raise InstanceError(
            f"allocation.containers has shape {allocation.containers.shape}, not"
            f" ({len(round_.microservices)},)"
        )
    services = replace(round_.services, rate_per_s=total / length, unmodelled_share=lost)
    after = replace(
        round_,
        services=services,
        classes=round_.classes.with_share(shares),
        containers=allocation.containers,
        now_s=outcome.end_s,
        index=round_.index + 1,
        reasons=("boundary",),
    )
    return replace(after, observed=observed_of(after, outcome))


def _counted(round_: MicroserviceRound, outcome: Outcome) -> tuple[Floats, Floats, Floats]:
    """Shares of classes, shares of none, and requests of each service."""
    services, classes = round_.services, round_.classes
    wanted: dict[str, Any] = {
        "class_requests": len(classes), "unmodelled_requests": len(services),
        "violations": len(services), "serving": len(round_.microservices),
    }  # fmt: skip
    for name, count in wanted.items():
        if getattr(outcome, name).shape != (count,):
            raise InstanceError(f"outcome.{name} has shape {getattr(outcome, name).shape}")
    seen = np.bincount(classes.service, outcome.class_requests, minlength=len(services))
    total = seen + outcome.unmodelled_requests
    some = total > 0
    per_service = np.where(some, total, 1.0)
    lost = np.where(some, outcome.unmodelled_requests / per_service, services.unmodelled_share)
    of = classes.service
    shares = np.where(some[of], outcome.class_requests / per_service[of], classes.share)
    return cast(Floats, shares), cast(Floats, lost), total


def observed_of(round_: MicroserviceRound, outcome: Outcome) -> Observed:
    """Say what was measured, as far as an outcome tells it.

    Latencies of calls are not part of an outcome: they are those of the laws under the load that
    was met.

    Parameters
    ----------
    round_
        The round, with the rates and shares that were counted.
    outcome
        What came of it.
    """
    laws = round_.microservices
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(round_.calls_per_s > 0, round_.calls_per_s / outcome.serving, 0.0)
        mean = 1.0 / rates(laws, load)
    allowed = round_.services.violation_budget * round_.services.rate_per_s
    return Observed(
        load_per_s=load,
        latency_p50_ms=laws.shift_ms + P50 * mean,
        latency_p95_ms=laws.shift_ms + P95 * mean,
        rate_per_s=round_.services.rate_per_s,
        latency_tail_ms=outcome.latency_tail_ms,
        violated=outcome.violations > allowed * (outcome.end_s - outcome.start_s) * (1 + 1e-9),
    )
