"""What a run leaves behind, as columns."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.instances.columns import Bools, Floats, Ints, Names
from apportion.instances.microservices import Scenario


@dataclass(frozen=True, eq=False)
class RoundRecords:
    """One row for each round, shape (T,)."""

    index: Ints
    now_s: Floats
    end_s: Floats
    status: Names
    objective: Floats
    """NaN where the decision has none."""
    gap: Floats
    """NaN where nothing was proved."""
    notes: Ints
    """Notes that came with the decision."""


@dataclass(frozen=True, eq=False)
class ServiceRecords:
    """One row for each round, one column for each service, shape (T, S)."""

    rate_per_s: Floats
    """True request rate."""
    forecast_per_s: Floats
    """Request rate the decision was made for."""
    arrivals: Ints
    """Requests that came."""
    unmodelled: Ints
    """Requests that came and followed no class."""
    measured: Ints
    """Requests whose latency was measured."""
    violations: Ints
    """Measured requests above the target."""
    missed: Bools
    """Whether the SLA was missed, by a binomial test on the measured requests."""
    p50_ms: Floats
    p95_ms: Floats
    p99_ms: Floats
    tail_ms: Floats
    """Latency at the percentile of the SLA; infinite where too many requests did not end."""
    claimed: Bools
    """Whether the plan claimed to keep the SLA."""
    planned_violation: Floats
    """Violation of the plan by the laws and forecasts of its round, middle of the bracket."""
    expected_violation: Floats
    """Violation of what served by the true laws, middle of the bracket; NaN with events."""
    expected_width: Floats
    """Width of that bracket."""
    forecast_l1: Floats
    """L1 distance between forecast and true shares of the classes."""
    share_error: Floats
    """L1 distance the decision was told to expect."""


@dataclass(frozen=True, eq=False)
class MicroserviceRecords:
    """One row for each round, one column for each microservice, shape (T, M)."""

    asked: Ints
    """Containers the plan asked for."""
    held: Ints
    """Containers that serve or start after delays, steps and stabilisation: what is paid for."""
    serving: Floats
    """Containers that served, averaged over the round."""
    fewest_serving: Ints
    """Fewest that served at any time of the round."""
    started: Ints
    """Containers started."""
    stopped: Ints
    """Containers let go."""
    load_per_s: Floats
    """Calls per second on a container, averaged over the round; infinite where there was none."""


@dataclass(frozen=True, eq=False)
class ClassRecords:
    """One row for each round, one column for each class, shape (T, K)."""

    share: Floats
    """True share."""
    forecast: Floats
    """Share the decision was made for."""
    requests: Ints
    """Requests that came."""
    measured: Ints
    """Requests whose latency was measured."""
    kept: Ints
    """Measured requests that were not above the target."""


@dataclass(frozen=True, eq=False)
class Run:
    """A scenario carried out under one policy.

    ``decide_s`` holds the wall time of each decision: it is outside byte identity, and NaN where
    a decision was taken from a journal without times.
    """

    scenario: Scenario
    policy: str
    rounds: RoundRecords
    services: ServiceRecords
    microservices: MicroserviceRecords
    classes: ClassRecords
    decide_s: Floats
    time_limited: bool = False
