"""A whole experiment: the application, the requests that will come, and how it really behaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np

from apportion.instances.columns import Floats, finite, floats, require
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.round import SHARE_TOLERANCE, MicroserviceRound

SIMULATORS = ("monte-carlo", "events")
FORECASTS = ("true", "last", "mean", "ewma", "dirichlet", "static")
"""How shares are forecast: the truth (an oracle), the last value, a moving average, exponential
smoothing, the mean of a Dirichlet posterior, or the shares the scenario starts with."""


@dataclass(frozen=True)
class ExecutorOptions:
    """How rounds are carried out.

    Parameters
    ----------
    simulator
        ``"monte-carlo"`` draws latencies from the laws; ``"events"`` lets requests queue at
        containers, which is another law by design.
    requests
        Requests drawn for each service and round by Monte Carlo; None: the larger of 100,000 and
        100 / violation budget.
    start_delay_s
        Time until a new container serves.
    stabilisation_s
        Containers are only removed down to the largest count asked for within this time.
    largest_step
        Largest change of a microservice's containers in a round, as a share of those it has
        (at least one); infinite: no limit.
    forecast
        How shares are forecast, one of ``FORECASTS``.
    rate_margin
        Added to the forecast of request rates, as a share.
    smoothing
        Weight of the newest value in exponential smoothing, above 0 and at most 1.
    window
        Rounds that moving averages, posteriors and recent errors look back.
    robust
        True: rounds carry the 95th percentile of the recent L1 error of the shares.
    """

    simulator: str = "monte-carlo"
    requests: int | None = None
    start_delay_s: float = 10.0
    stabilisation_s: float = 300.0
    largest_step: float = 0.5
    forecast: str = "ewma"
    rate_margin: float = 0.1
    smoothing: float = 0.5
    window: int = 20
    robust: bool = False

    def __post_init__(self) -> None:
        for name, known in (("simulator", SIMULATORS), ("forecast", FORECASTS)):
            value = getattr(self, name)
            if value not in known:
                raise InstanceError(f"executor.{name} = {value!r}{nearest(str(value), known)}")
        for name in ("start_delay_s", "stabilisation_s", "rate_margin"):
            if not 0 <= getattr(self, name) < np.inf:
                value = getattr(self, name)
                raise InstanceError(f"executor.{name} = {value}: must be finite, not negative")
        if not self.largest_step > 0:
            raise InstanceError(f"executor.largest_step = {self.largest_step}: must be positive")
        if not 0 < self.smoothing <= 1:
            raise InstanceError(
                f"executor.smoothing = {self.smoothing}: must be above 0 and at most 1"
            )
        if self.window < 1 or (self.requests is not None and self.requests < 1):
            raise InstanceError("executor.window and executor.requests must be at least 1")


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything an executor needs to run a policy over T rounds.

    Parameters
    ----------
    name
        For tables and folders.
    start
        The first round: what a scheduler believes, and the containers that run.
    rate_per_s
        True request rates, shape (T, S).
    share
        True shares of the classes, shape (T, K); with the services' ``unmodelled_share`` those
        of a service sum to 1.
    true_microservices
        Laws by which containers really answer; default: as believed.
    epoch, seed
        ISO-8601 instant of time 0, and the root of every random stream.
    options
        How rounds are carried out.
    policy, parameters
        Name of the policy the file asks for, and its parameters.
    """

    family: ClassVar[Literal["microservices"]] = "microservices"

    name: str
    start: MicroserviceRound
    rate_per_s: Floats
    share: Floats
    true_microservices: Microservices | None = None
    epoch: str = "1970-01-01T00:00:00+00:00"
    seed: int = 0
    options: ExecutorOptions = field(default_factory=ExecutorOptions)
    policy: str = "derm"
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        services, classes = self.start.services, self.start.classes
        rate = floats(self.rate_per_s, "scenario.rate_per_s")
        if rate.ndim != 2 or rate.shape[1] != len(services):  # rounds x services
            raise InstanceError(
                f"scenario.rate_per_s has shape {rate.shape}, expected (rounds, {len(services)})"
            )
        finite(rate, "scenario.rate_per_s")
        require(rate, rate >= 0, "scenario.rate_per_s", "must not be negative")
        share = floats(self.share, "scenario.share", (rate.shape[0], len(classes)))
        require(share, (share >= 0) & (share <= 1), "scenario.share", "must lie between 0 and 1")
        of_service = classes.service[:, None] == np.arange(len(services))
        total = cast(Floats, share @ of_service + services.unmodelled_share)
        require(
            total, np.abs(total - 1.0) <= SHARE_TOLERANCE, "scenario.share of service",
            "shares of a service, with its unmodelled_share, must sum to 1",
        )  # fmt: skip
        true = self.true_microservices
        if true is not None and not np.array_equal(true.id, self.start.microservices.id):
            raise InstanceError("scenario.true_microservices: not those of the first round")
        put("rate_per_s", rate)
        put("share", share)

    @property
    def rounds(self) -> int:
        """Rounds of the scenario, T."""
        return self.rate_per_s.shape[0]

    @property
    def truth(self) -> Microservices:
        """The laws by which containers really answer."""
        return (
            self.start.microservices if self.true_microservices is None else self.true_microservices
        )
