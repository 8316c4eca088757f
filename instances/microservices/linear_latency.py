"""Erms' law of latency: two lines over the load, steeper after the inflection."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.instances.columns import Floats, equal_columns, floats, require, sized

_COLUMNS = (
    "slope_before_ms", "intercept_before_ms", "slope_after_ms", "intercept_after_ms",
    "inflection_per_s",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearLatency:
    """Tail latency of a call over the load of a container, one row a microservice.

    ``slope_before_ms * load + intercept_before_ms`` up to the inflection, and the line after it
    beyond; load in calls per second on one container.

    Parameters
    ----------
    slope_before_ms, intercept_before_ms
        The line of light load, shape (M,); slopes in ms per call per second, not negative.
    slope_after_ms, intercept_after_ms
        The line of heavy load, not flatter. An intercept may be negative.
    inflection_per_s
        Load at which the second line takes over; infinite: never.

    Notes
    -----
    Source: Erms (ASPLOS 2023), as its artifact fits it.
    """

    slope_before_ms: Floats
    intercept_before_ms: Floats
    slope_after_ms: Floats
    intercept_after_ms: Floats
    inflection_per_s: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        count = floats(self.slope_before_ms, "linear.slope_before_ms").size
        for name in _COLUMNS:
            column = floats(getattr(self, name), f"linear.{name}", (count,))
            if name != "inflection_per_s":
                sized(column, f"linear.{name}")
            put(name, column)
        before, after = self.slope_before_ms, self.slope_after_ms
        require(before, before >= 0, "linear.slope_before_ms", "must not be negative")
        require(
            after, after >= before, "linear.slope_after_ms", "must not be below slope_before_ms"
        )
        turn = self.inflection_per_s
        require(turn, turn >= 0, "linear.inflection_per_s", "must not be negative")

    def __len__(self) -> int:
        return self.slope_before_ms.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearLatency) and equal_columns(self, other, _COLUMNS)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
