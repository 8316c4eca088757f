"""Spans in columns: who was called by whom, when, and for how long, as tracing systems record it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import cast

import numpy as np

from apportion.instances.columns import (
    Bools,
    Floats,
    Ints,
    Names,
    bools,
    equal_columns,
    finite,
    floats,
    freeze,
    ints,
    names,
    require,
)
from apportion.instances.errors import InstanceError


class Kind(IntEnum):
    """What a span records, as OpenTelemetry has it."""

    INTERNAL = 0
    """Work inside a microservice, or not said."""
    SERVER = 1
    """A call, as the one called saw it."""
    CLIENT = 2
    """A call, as the caller saw it."""
    PRODUCER = 3
    """Handing a message over."""
    CONSUMER = 4
    """Working on a message; nobody waits for it."""


NO_PARENT = -1


@dataclass(frozen=True, eq=False)
class Spans:
    """N spans of T traces.

    Parameters
    ----------
    trace_id
        Names of the traces, unique, shape (T,).
    service
        What was asked for by each trace, shape (T,): the services of the application.
    microservice_id
        Names of the microservices, unique, shape (M,).
    span_id
        Names that spans have; for messages.
    trace
        Row of the trace each span belongs to, shape (N,).
    span
        Row of its name, unique within a trace.
    parent
        Row of the span that caused it, in the same trace; ``NO_PARENT``: the request.
    microservice
        Where it was recorded.
    start_ms, duration_ms
        When it began and how long it took, by the clock of its microservice.
    kind
        Values of ``Kind``.
    waited
        Whether the one who caused it waits for its end.
    failed
        Whether it ended in an error.
    wait_start_ms, wait_ms
        The same call by the clock of the caller, where both sides are recorded in one row; NaN:
        they are not.
    clock_ms
        Resolution of the times.

    Raises
    ------
    InstanceError
        On values out of range, parents in other traces, and parents that form a cycle.
    """

    trace_id: Names
    service: Names
    microservice_id: Names
    span_id: Names
    trace: Ints
    span: Ints
    parent: Ints
    microservice: Ints
    start_ms: Floats
    duration_ms: Floats
    kind: Ints
    waited: Bools
    failed: Bools
    wait_start_ms: Floats = field(default_factory=lambda: cast(Floats, None))
    wait_ms: Floats = field(default_factory=lambda: cast(Floats, None))
    clock_ms: float = 0.001

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("trace_id", names(self.trace_id, "spans.trace_id"))
        put("service", names(self.service, "spans.service", count=len(self.trace_id), unique=False))
        put("microservice_id", names(self.microservice_id, "spans.microservice_id"))
        shape = (np.size(self.trace),)
        for name in ("trace", "span", "parent", "microservice", "kind"):
            put(name, ints(getattr(self, name), f"spans.{name}", shape))
        put("span_id", names(self.span_id, "spans.span_id"))
        for name in ("waited", "failed"):
            put(name, bools(getattr(self, name), f"spans.{name}", shape))
        for name in ("start_ms", "duration_ms"):
            column = floats(getattr(self, name), f"spans.{name}", shape)
            finite(column, f"spans.{name}")
            put(name, column)
        put("wait_start_ms", _optional(self.wait_start_ms, shape))
        put("wait_ms", _optional(self.wait_ms, shape))
        self._check()

    def _check(self) -> None:
        tables = {
            "trace": self.trace_id, "microservice": self.microservice_id, "span": self.span_id,
        }  # fmt: skip
        for name, table in tables.items():
            column = getattr(self, name)
            good = (column >= 0) & (column < table.size)
            require(column, good, f"spans.{name}", "does not exist")
        require(
            self.duration_ms, self.duration_ms >= 0, "spans.duration_ms", "must not be negative"
        )
        require(self.kind, (self.kind >= 0) & (self.kind <= max(Kind)), "spans.kind", "is no kind")
        inside = (self.parent >= NO_PARENT) & (self.parent < len(self))
        require(self.parent, inside, "spans.parent", "is no row")
        same = (self.parent < 0) | (self.trace[self.parent] == self.trace)
        require(self.parent, same, "spans.parent", "lies in another trace")
        lost = np.flatnonzero(self.level < 0)
        if lost.size:
            row = int(lost[0])
            raise InstanceError(
                f"trace {str(self.trace_id[self.trace[row]])!r}, span {str(self.span_id[self.span[row]])!r}:"
                " its parents form a cycle"
            )

    @cached_property
    def level(self) -> Ints:
        """Number of spans above each, shape (N,); -1 where parents form a cycle."""
        return levels(self.parent)

    @cached_property
    def seen_by_caller(self) -> Bools:
        """Where the row tells the caller's times too, shape (N,)."""
        out = np.isfinite(self.wait_ms) & np.isfinite(self.wait_start_ms)
        freeze(out)
        return out

    def __len__(self) -> int:
        return self.trace.size

    def __eq__(self, other: object) -> bool:
        own = (
            "trace_id", "service", "microservice_id", "span_id", "trace", "span", "parent", "microservice",
            "start_ms", "duration_ms", "kind", "waited", "failed",
        )  # fmt: skip
        return (
            isinstance(other, Spans)
            and equal_columns(self, other, own)
            and np.array_equal(self.wait_start_ms, other.wait_start_ms, equal_nan=True)
            and np.array_equal(self.wait_ms, other.wait_ms, equal_nan=True)
            and self.clock_ms == other.clock_ms
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


def levels(parent: Ints) -> Ints:
    """Count the rows above each row.

    Parameters
    ----------
    parent
        Row of each row's parent, ``NO_PARENT`` at the top, shape (N,).

    Returns
    -------
    ndarray
        Shape (N,); -1 for rows on and below a cycle.
    """
    out = np.full(parent.size, -1, dtype=np.int64)
    order = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[order], np.arange(parent.size + 1))
    front, depth = np.flatnonzero(parent < 0), 0
    while front.size:
        out[front] = depth
        # the children of the front: ranges of the rows sorted by parent
        low = first[front]
        count = cast(Ints, first[front + 1] - low)
        inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        front, depth = order[np.repeat(low, count) + inside], depth + 1
    freeze(out)
    return out


def _optional(values: Floats | None, shape: tuple[int, ...]) -> Floats:
    """Take a column in which NaN means that nothing is known."""
    out = np.full(shape, np.nan) if values is None else np.array(values, dtype=np.float64)
    if out.shape != shape:
        raise InstanceError(f"spans.wait_ms has shape {out.shape}, expected {shape}")
    if not (np.isnan(out) | np.isfinite(out)).all():
        raise InstanceError("spans.wait_ms and spans.wait_start_ms must be finite or NaN")
    freeze(out)
    return out
