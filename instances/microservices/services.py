"""The services that users call, and what was agreed on their latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import (
    Floats,
    Names,
    equal_columns,
    floats,
    names,
    require,
    sized,
)


@dataclass(frozen=True, eq=False)
class Services:
    """Services with an SLA each: P(latency > ``target_ms``) <= ``violation_budget``.

    Parameters
    ----------
    id
        Names, unique, shape (S,).
    rate_per_s
        Requests per second; zero: nobody calls it now, so that its SLA binds nothing.
    target_ms
        Latency that a request should not exceed.
    violation_budget
        Share of the requests that may exceed it, between 0 and 1: 0.05 is a P95.
    unmodelled_share
        Share of the requests whose call graph is not among the classes; they count as violated.

    Raises
    ------
    InstanceError
        On values out of range, naming field, index and service.
    """

    id: Names
    rate_per_s: Floats
    target_ms: Floats
    violation_budget: Floats
    unmodelled_share: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "services.id"))
        for name in ("rate_per_s", "target_ms", "violation_budget", "unmodelled_share"):
            column = floats(getattr(self, name), f"services.{name}", (self.id.size,))
            sized(column, f"services.{name}", ratio=True)
            put(name, column)
        rate, target, budget = self.rate_per_s, self.target_ms, self.violation_budget
        require(rate, rate >= 0, "services.rate_per_s", "must not be negative", self.id, "service")
        require(target, target > 0, "services.target_ms", "must be positive", self.id, "service")
        require(
            budget, (budget > 0) & (budget < 1), "services.violation_budget",
            "must lie between 0 and 1: 0.05 for a P95", self.id, "service",
        )  # fmt: skip
        lost = self.unmodelled_share
        require(
            lost, (lost >= 0) & (lost <= 1), "services.unmodelled_share",
            "must lie between 0 and 1", self.id, "service",
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        id: object,  # the column's name
        rate_per_s: object,
        target_ms: object,
        violation_budget: object = 0.05,
        unmodelled_share: object = 0.0,
    ) -> Services:
        """Build from any sequences; one number may serve all services."""
        ids = names(id, "services.id")
        columns = [
            np.full(ids.size, value) if isinstance(value, int | float) else value
            for value in (rate_per_s, target_ms, violation_budget, unmodelled_share)
        ]
        return cls(ids, *columns)  # pyright: ignore[reportArgumentType]  # checked inside

    def __len__(self) -> int:
        return self.id.size

    def __eq__(self, other: object) -> bool:
        own = ("id", "rate_per_s", "target_ms", "violation_budget", "unmodelled_share")
        return isinstance(other, Services) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
