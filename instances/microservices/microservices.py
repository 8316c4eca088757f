"""The microservices: how fast their containers answer, what one costs, and how many there may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.instances.columns import (
    Floats,
    Ints,
    Names,
    equal_columns,
    floats,
    freeze,
    ints,
    names,
    require,
    sized,
)

MOST_CONTAINERS = 10**9
"""Upper bound of a microservice's containers where none is set: counts beyond it are no plans."""

_FLOATS = (
    "rate_at_rest_per_ms", "rate_slope_per_ms", "shift_ms", "least_rate_per_ms",
    "least_load_per_s", "cost", "cpu_cores", "memory_mib",
)  # fmt: skip
_INTS = ("least_containers", "most_containers")


@dataclass(frozen=True, eq=False)
class Microservices:
    """Latency laws and container sizes, one row a microservice.

    One call to microservice m takes its shift and an exponential time of rate
    ``rate_at_rest_per_ms + rate_slope_per_ms * load``, where load is calls per second on one
    container.

    Parameters
    ----------
    id
        Names, unique, shape (M,).
    rate_at_rest_per_ms
        Rate at zero load, above ``least_rate_per_ms``.
    rate_slope_per_ms
        Change of the rate by each call per second on a container, below zero.
    shift_ms
        Least latency of a call.
    least_rate_per_ms
        Rate down to which the straight line is trusted: a load that brings the rate below it is
        inadmissible.
    least_load_per_s
        Load up to which the line is not trusted: lighter loads count as this one.
    cost
        What a container costs, in whatever is to be saved; positive.
    cpu_cores, memory_mib
        What a container asks of a node.
    least_containers, most_containers
        Bounds.

    Raises
    ------
    InstanceError
        On values out of range, naming field, index and microservice.
    """

    id: Names
    rate_at_rest_per_ms: Floats
    rate_slope_per_ms: Floats
    shift_ms: Floats
    least_rate_per_ms: Floats
    least_load_per_s: Floats
    cost: Floats
    cpu_cores: Floats
    memory_mib: Floats
    least_containers: Ints
    most_containers: Ints

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "microservices.id"))
        shape = (self.id.size,)
        for name in _FLOATS:
            column = floats(getattr(self, name), f"microservices.{name}", shape)
            sized(column, f"microservices.{name}", ratio=True)
            put(name, column)
        for name in _INTS:
            put(name, ints(getattr(self, name), f"microservices.{name}", shape))
        slope, rest, least = (
            self.rate_slope_per_ms,
            self.rate_at_rest_per_ms,
            self.least_rate_per_ms,
        )
        self._require("rate_slope_per_ms", slope < 0, "must be negative: more load is slower")
        for name in (
            "shift_ms",
            "least_rate_per_ms",
            "least_load_per_s",
            "cpu_cores",
            "memory_mib",
        ):
            self._require(name, getattr(self, name) >= 0, "must not be negative")
        self._require(
            "rate_at_rest_per_ms", (rest > 0) & (rest > least),
            "must be above zero and above least_rate_per_ms",
        )  # fmt: skip
        self._require(
            "least_load_per_s", self.least_load_per_s <= (least - rest) / slope,
            "is more than the load at which the rate falls to least_rate_per_ms",
        )  # fmt: skip
        self._require("cost", self.cost > 0, "must be positive")
        self._require("least_containers", self.least_containers >= 0, "must not be negative")
        self._require(
            "most_containers",
            (self.most_containers >= self.least_containers)
            & (self.most_containers <= MOST_CONTAINERS),
            f"must lie between least_containers and {MOST_CONTAINERS}",
        )

    def _require(self, name: str, good: Any, rule: str) -> None:
        require(getattr(self, name), good, f"microservices.{name}", rule, self.id, "microservice")

    @classmethod
    def of(
        cls,
        id: object,  # the column's name
        rate_at_rest_per_ms: object,
        rate_slope_per_ms: object,
        *,
        shift_ms: object = 0.0,
        least_rate_per_ms: object = 0.0,
        least_load_per_s: object = 0.0,
        cost: object = 1.0,
        cpu_cores: object = 0.2,
        memory_mib: object = 1024.0,
        least_containers: object = 0,
        most_containers: object = MOST_CONTAINERS,
    ) -> Microservices:
        """Build from any sequences; one number may serve all microservices."""
        ids = names(id, "microservices.id")
        given: dict[str, Any] = {
            "rate_at_rest_per_ms": rate_at_rest_per_ms, "rate_slope_per_ms": rate_slope_per_ms,
            "shift_ms": shift_ms, "least_rate_per_ms": least_rate_per_ms,
            "least_load_per_s": least_load_per_s, "cost": cost, "cpu_cores": cpu_cores,
            "memory_mib": memory_mib, "least_containers": least_containers,
            "most_containers": most_containers,
        }  # fmt: skip
        columns = {
            name: np.full(ids.size, value) if isinstance(value, int | float) else value
            for name, value in given.items()
        }
        return cls(ids, **columns)

    def __len__(self) -> int:
        return self.id.size

    @property
    def most_load_per_s(self) -> Floats:
        """Load on a container at which the rate falls to its least, shape (M,)."""
        out = (self.least_rate_per_ms - self.rate_at_rest_per_ms) / self.rate_slope_per_ms
        freeze(out)
        return out

    def __eq__(self, other: object) -> bool:
        own = ("id", *_FLOATS, *_INTS)
        return isinstance(other, Microservices) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
