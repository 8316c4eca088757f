"""Traces as Jaeger exports them: the JSON of its user interface and of its query service."""

from __future__ import annotations

from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown
from apportion.instances.microservices.json_fields import Fields, rows, table, text, whole
from apportion.instances.microservices.raw_spans import RawSpan
from apportion.instances.microservices.spans import Kind

KINDS = {
    "internal": Kind.INTERNAL, "server": Kind.SERVER, "client": Kind.CLIENT,
    "producer": Kind.PRODUCER, "consumer": Kind.CONSUMER,
}  # fmt: skip

PEER_TAGS = ("peer.service", "db.system.name", "db.system", "db.type")
"""Tags of a client span that name whom it called, the best first."""

_REFERENCES = ("CHILD_OF", "FOLLOWS_FROM")


def jaeger_spans(document: Fields, where: str = "") -> list[RawSpan]:
    """List the spans of a document: ``{"data": [trace, ...]}`` or one trace.

    Parameters
    ----------
    document
        What the file holds.
    where
        Put before the place in messages.

    Raises
    ------
    InstanceError
        On fields that are missing or of the wrong kind, processes that are not listed, and
        references of an unknown kind.
    """
    if "data" not in document:
        return _trace(document, where)
    traces = rows(document, "data", where, required=True)
    return [
        span
        for at, trace in enumerate(traces)
        for span in _trace(table(trace, f"{where}data[{at}]"), f"{where}data[{at}].")
    ]


def _trace(trace: Fields, where: str) -> list[RawSpan]:
    listed = trace.get("processes")
    processes: Fields = {} if listed is None else table(listed, f"{where}processes")
    return [
        _span(table(span, f"{where}spans[{at}]"), processes, f"{where}spans[{at}].")
        for at, span in enumerate(rows(trace, "spans", where, required=True))
    ]


def _span(span: Fields, processes: Fields, where: str) -> RawSpan:
    trace = text(span, "traceID", where)
    tags = tag_values(rows(span, "tags", where))
    parent, waited = _parent(span, trace, where)
    kind = KINDS.get(str(tags.get("span.kind", "")).lower(), Kind.INTERNAL)
    return RawSpan(
        trace=trace,
        span=text(span, "spanID", where),
        parent=parent,
        microservice=_owner(span, processes, where),
        operation=str(span.get("operationName") or ""),
        start_ms=whole(span, "startTime", where) / 1000,
        duration_ms=whole(span, "duration", where) / 1000,
        kind=kind,
        waited=waited and kind != Kind.CONSUMER,
        failed=failed(tags),
        peer=peer(tags),
    )


def _parent(span: Fields, trace: str, where: str) -> tuple[str, bool]:
    """Find the parent, and whether it waits: one it is the child of comes first."""
    found: dict[str, str] = {}
    for at, one in enumerate(rows(span, "references", where)):
        place = f"{where}references[{at}]"
        reference = table(one, place)
        kind = text(reference, "refType", f"{place}.")
        if kind not in _REFERENCES:
            raise InstanceError(f"{place}.refType = {shown(kind)}{nearest(kind, _REFERENCES)}")
        if text(reference, "traceID", f"{place}.") == trace:
            found.setdefault(kind, text(reference, "spanID", f"{place}."))
    older = span.get("parentSpanID")  # before there were references
    child = found.get("CHILD_OF") or (older if isinstance(older, str) else "")
    return (child, True) if child else (found.get("FOLLOWS_FROM", ""), False)


def _owner(span: Fields, processes: Fields, where: str) -> str:
    inline = span.get("process")
    if inline is not None:
        return text(table(inline, f"{where}process"), "serviceName", f"{where}process.")
    code = text(span, "processID", where)
    if code not in processes:
        raise InstanceError(
            f"{where}processID = {shown(code)}: no process{nearest(code, processes)}"
        )
    return text(table(processes[code], f"{where}process"), "serviceName", f"{where}process.")


def tag_values(tags: list[Any]) -> dict[str, Any]:
    """Turn a list of tags into a table; what is no tag says nothing."""
    listed = [cast("Fields", tag) for tag in tags if isinstance(tag, dict)]
    return {tag["key"]: tag.get("value") for tag in listed if isinstance(tag.get("key"), str)}


def failed(tags: Fields) -> bool:
    """Tell whether a span's tags say that it failed."""
    error, status = tags.get("error"), tags.get("otel.status_code")
    return error is True or str(error).lower() == "true" or status == "ERROR"


def peer(tags: Fields) -> str:
    """Find the name of whom a client span called, empty where nothing tells."""
    for key in PEER_TAGS:
        value = tags.get(key)
        if isinstance(value, str) and value and "\0" not in value:
            return value
    return ""
