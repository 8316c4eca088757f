"""From spans as a file lists them to linked ones: names resolved, faults found and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from apportion.instances.columns import Ints, Names
from apportion.instances.errors import InstanceError
from apportion.instances.microservices.spans import NO_PARENT, Kind, Spans, levels


class RawSpan(NamedTuple):
    """One span of a file.

    ``peer`` is the name of what a client span called, where it tells one; ``waited`` is False
    where the file says that nobody waits for it.
    """

    trace: str
    span: str
    parent: str
    microservice: str
    operation: str
    start_ms: float
    duration_ms: float
    kind: Kind = Kind.INTERNAL
    waited: bool = True
    failed: bool = False
    peer: str = ""


@dataclass
class Faults:
    """What was wrong with traces, and what was done about it.

    Parameters
    ----------
    strict
        True: the first fault for which a trace would be left out raises.
    """

    strict: bool = False
    counts: dict[str, int] = field(default_factory=dict[str, int])
    first: dict[str, str] = field(default_factory=dict[str, str])

    def count(self, what: str, number: int, example: str = "") -> None:
        """Note a fault that was mended."""
        if number:
            self.counts[what] = self.counts.get(what, 0) + int(number)
            self.first.setdefault(what, example)

    def leave_out(self, what: str, example: str) -> None:
        """Note a trace that is left out, or raise where that is not wanted."""
        if self.strict:
            raise InstanceError(f"{example}: {what}")
        self.count(f"traces left out: {what}", 1, example)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each kind of fault, in the order in which they were met."""
        return tuple(
            f"{number} {what}" + (f" (first: {self.first[what]})" if self.first[what] else "")
            for what, number in self.counts.items()
        )


def linked(rows: Sequence[RawSpan], faults: Faults, *, clock_ms: float = 0.001) -> Spans:
    """Resolve the names of spans and their parents.

    Parameters
    ----------
    rows
        The spans, in any order.
    faults
        Takes what is wrong. Traces with a span twice, a cycle of parents or a negative duration
        are left out; a parent that was not recorded is replaced by the root of the trace.
    clock_ms
        Resolution of the times.

    Returns
    -------
    Spans
        Traces in alphabetical order, spans as in the file. A client span that nobody below it
        answers, but that names a peer, gets a server span of that peer of the same times.

    Notes
    -----
    Where client and server share one name (as Zipkin writes them), the server is the client's
    child and the caller of what names that span as its parent.
    """
    kept = _Linker(list(rows), faults)
    return kept.spans(clock_ms)


class _Linker:
    def __init__(self, rows: list[RawSpan], faults: Faults) -> None:
        self.rows, self.faults = rows, faults
        self.bad: set[str] = set()
        self.parent = [NO_PARENT] * len(rows)
        self.gone = [False] * len(rows)
        self._index()
        self._link()
        self._answer()
        self._refuse_cycles()

    def _spoil(self, row: RawSpan, what: str) -> None:
        if row.trace not in self.bad:
            self.bad.add(row.trace)
            self.faults.leave_out(what, f"trace {row.trace!r}, span {row.span!r}")

    def _index(self) -> None:
        """Find each span's row; two rows of one name are repeats, a pair, or a fault."""
        self.at: dict[tuple[str, str], int] = {}
        self.shared: dict[int, int] = {}
        for row, one in enumerate(self.rows):
            if one.duration_ms < 0:
                self._spoil(one, f"the duration is negative ({one.duration_ms:g} ms)")
            key = (one.trace, one.span)
            other = self.at.setdefault(key, row)
            if other == row:
                continue
            two = self.rows[other]
            if two == one:
                self.gone[row] = True
                self.faults.count("spans listed twice", 1, f"trace {one.trace!r}")
            elif {one.kind, two.kind} == {Kind.CLIENT, Kind.SERVER} and other not in self.shared:
                server, client = (row, other) if one.kind == Kind.SERVER else (other, row)
                self.at[key] = server
                self.shared[server] = client
            else:
                self._spoil(one, "two different spans have this name")

    def _link(self) -> None:
        roots: dict[str, list[int]] = {}
        for row, one in enumerate(self.rows):
            if not self.gone[row] and not one.parent and row not in self.shared:
                roots.setdefault(one.trace, []).append(row)
        for row, one in enumerate(self.rows):
            if row in self.shared:
                self.parent[row] = self.shared[row]
            elif one.parent:
                found = self.at.get((one.trace, one.parent))
                if found is None:
                    top = roots.get(one.trace, [])
                    found = top[0] if len(top) == 1 else NO_PARENT
                    self.faults.count("spans without their parent", 1, f"trace {one.trace!r}")
                self.parent[row] = found

    def _answer(self) -> None:
        """Let the peers that client spans name, but that record nothing, answer."""
        with_child = set(self.parent)
        for row in range(len(self.rows)):
            one = self.rows[row]
            silent = one.kind == Kind.CLIENT and row not in with_child and not self.gone[row]
            if silent and one.peer and one.peer != one.microservice:
                answer = one._replace(
                    span=f"{one.span}/peer", parent=one.span, microservice=one.peer,
                    kind=Kind.SERVER, peer="",
                )  # fmt: skip
                self.rows.append(answer)
                self.parent.append(row)
                self.gone.append(False)

    def _refuse_cycles(self) -> None:
        for row in np.flatnonzero(levels(np.array(self.parent, dtype=np.int64)) < 0):
            if not self.gone[row]:
                self._spoil(self.rows[row], "its parents form a cycle")

    def spans(self, clock_ms: float) -> Spans:
        """Give the traces that are left."""
        keep = [
            row for row, one in enumerate(self.rows)
            if not self.gone[row] and one.trace not in self.bad
        ]  # fmt: skip
        place = np.full(len(self.rows) + 1, NO_PARENT, dtype=np.int64)  # the last is for no parent
        place[keep] = np.arange(len(keep))
        rows = [self.rows[row] for row in keep]
        parent = place[[self.parent[row] for row in keep]] if keep else np.zeros(0, np.int64)
        traces, trace = _codes([one.trace for one in rows])
        owners, microservice = _codes([one.microservice for one in rows])
        spans, span = _codes([one.span for one in rows])
        return Spans(
            trace_id=traces,
            service=_services(rows, parent, trace, traces.size),
            microservice_id=owners,
            span_id=spans,
            trace=trace,
            span=span,
            parent=parent,
            microservice=microservice,
            start_ms=np.array([one.start_ms for one in rows], dtype=np.float64),
            duration_ms=np.array([one.duration_ms for one in rows], dtype=np.float64),
            kind=np.array([one.kind for one in rows], dtype=np.int64),
            waited=np.array([one.waited for one in rows], dtype=np.bool_),
            failed=np.array([one.failed for one in rows], dtype=np.bool_),
            clock_ms=clock_ms,
        )


def _codes(values: list[str]) -> tuple[Names, Ints]:
    known, code = np.unique(np.array(values, dtype=np.str_), return_inverse=True)
    return known, code.astype(np.int64)


def _services(rows: list[RawSpan], parent: Ints, trace: Ints, count: int) -> Names:
    """Name what each trace asked for after its first root: microservice and operation."""
    out = [""] * count
    roots = sorted(np.flatnonzero(parent < 0).tolist(), key=lambda row: rows[row].start_ms)
    for row in reversed(roots):
        out[trace[row]] = f"{rows[row].microservice} {rows[row].operation}".strip()
    return np.array(out, dtype=np.str_)
