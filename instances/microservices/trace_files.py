"""JSON of tracing systems: Jaeger's export, OpenTelemetry's, recognised by their content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, parse_json, read_text, shown
from apportion.instances.microservices.jaeger import jaeger_spans
from apportion.instances.microservices.otlp import otlp_spans
from apportion.instances.microservices.raw_spans import Faults, RawSpan, linked
from apportion.instances.microservices.spans import Spans

CLOCK_MS = 0.001
"""Jaeger counts microseconds, OpenTelemetry nanoseconds by clocks that are seldom better."""

_MARKS = {
    "resourceSpans": "OpenTelemetry", "batches": "OpenTelemetry", "data": "Jaeger",
    "spans": "Jaeger",
}  # fmt: skip
"""Keys of a document by which its format is known; Tempo writes ``batches``."""


def read_spans(
    paths: Iterable[PathLike], *, strict: bool = False, faults: Faults | None = None
) -> Spans:
    """Read traces as Jaeger or OpenTelemetry write them, in one file or many.

    Parameters
    ----------
    paths
        JSON files or files of one JSON document a line, packed where the name ends in ``.gz``:
        what Jaeger's user interface and its query service give, and OTLP as collectors write it.
        The spans of one trace may lie in several files.
    strict
        True: a trace that cannot be understood is an error. False: it is left out and counted.
    faults
        Takes what was wrong; default: nobody asks.

    Returns
    -------
    Spans
        Linked, traces in alphabetical order.

    Raises
    ------
    InstanceError
        Naming the file and the place in it: where it is truncated or empty, no trace at all, or
        a field is missing (with the nearest there is) or of the wrong kind; where no trace is
        left.
    """
    faults = Faults(strict) if faults is None else faults
    rows: list[RawSpan] = []
    names: list[str] = []
    for path in paths:
        names.append(str(Path(path)))
        with naming(path):
            for where, document in documents(read_text(path)):
                rows.extend(_spans_of(document, where))
    if not rows:
        raise InstanceError(f"{', '.join(names) or 'no file'}: there are no spans")
    spans = linked(rows, faults, clock_ms=CLOCK_MS)
    if not len(spans):
        raise InstanceError(f"{names[0]}: no trace is usable: {'; '.join(faults.warnings)}")
    return spans


def documents(text: str) -> list[tuple[str, Any]]:
    """Split a text into JSON documents: one, or one a line; each with the place it begins."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) > 1 and _whole(lines[0][1]):
        out: list[tuple[str, Any]] = []
        for number, line in lines:
            with naming(f"line {number}"):
                out.append((f"line {number}: ", parse_json(line)))
        return out
    return [("", parse_json(text))]


def _whole(line: str) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except InstanceError:
        return False


def _spans_of(document: Any, where: str) -> list[RawSpan]:
    if isinstance(document, list):  # a list of traces or of requests to a collector
        parts = cast("Sequence[Any]", document)
        return [
            span for at, part in enumerate(parts) for span in _spans_of(part, f"{where}[{at}].")
        ]
    if not isinstance(document, dict):
        raise InstanceError(f"{where}expected traces, got {shown(document)}")
    table = cast("dict[str, Any]", document)
    kind = next((kind for key, kind in _MARKS.items() if key in table), None)
    if kind is None:
        keys = sorted(table)
        hint = nearest(keys[0], _MARKS) if keys else ""
        raise InstanceError(
            f"{where}neither Jaeger's export (data) nor OpenTelemetry's (resourceSpans); its keys"
            f" are {', '.join(keys[:5]) or 'none'}{hint}"
        )
    return jaeger_spans(table, where) if kind == "Jaeger" else otlp_spans(table, where)
