"""What was measured in the round before: the input of rules that follow measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.instances.columns import Bools, Floats, bools, equal_columns, floats, require
from apportion.instances.errors import InstanceError

_OF_MICROSERVICE = ("load_per_s", "latency_p50_ms", "latency_p95_ms")
_OF_SERVICE = ("rate_per_s", "latency_tail_ms")


@dataclass(frozen=True, eq=False)
class Observed:
    """Measurements of the last round.

    Parameters
    ----------
    load_per_s
        Calls per second on one container of each microservice, shape (M,).
    latency_p50_ms, latency_p95_ms
        Own latency of a call to each microservice, shape (M,); infinite where it was overloaded.
    rate_per_s
        Requests per second of each service, shape (S,).
    latency_tail_ms
        Latency of each service at the percentile of its SLA, shape (S,).
    violated
        Whether each service missed its SLA, shape (S,).
    """

    load_per_s: Floats
    latency_p50_ms: Floats
    latency_p95_ms: Floats
    rate_per_s: Floats
    latency_tail_ms: Floats
    violated: Bools

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        m, s = np.size(self.load_per_s), np.size(self.rate_per_s)
        for fields, count in ((_OF_MICROSERVICE, m), (_OF_SERVICE, s)):
            for name in fields:
                column = floats(getattr(self, name), f"observed.{name}", (count,))
                require(column, column >= 0, f"observed.{name}", "must not be negative")
                put(name, column)
        put("violated", bools(self.violated, "observed.violated", (s,)))

    def require_shape(self, microservices: int, services: int) -> None:
        """Refuse measurements of another application."""
        found = (self.load_per_s.size, self.rate_per_s.size)
        if found != (microservices, services):
            raise InstanceError(
                f"round.observed is of {found[0]} microservices and {found[1]} services, there are"
                f" {microservices} and {services}"
            )

    def __eq__(self, other: object) -> bool:
        own = cast("tuple[str, ...]", (*_OF_MICROSERVICE, *_OF_SERVICE, "violated"))
        return isinstance(other, Observed) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
