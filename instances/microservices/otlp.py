"""Traces as OpenTelemetry writes them: OTLP in JSON, as collectors and Tempo put it in files."""

from __future__ import annotations

from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown
from apportion.instances.microservices.jaeger import PEER_TAGS, peer
from apportion.instances.microservices.json_fields import Fields, missing, rows, table, text, whole
from apportion.instances.microservices.raw_spans import RawSpan
from apportion.instances.microservices.spans import Kind

NANOSECONDS = 1_000_000
"""In a millisecond."""

_KINDS = {
    "SPAN_KIND_UNSPECIFIED": Kind.INTERNAL, "SPAN_KIND_INTERNAL": Kind.INTERNAL,
    "SPAN_KIND_SERVER": Kind.SERVER, "SPAN_KIND_CLIENT": Kind.CLIENT,
    "SPAN_KIND_PRODUCER": Kind.PRODUCER, "SPAN_KIND_CONSUMER": Kind.CONSUMER,
}  # fmt: skip
"""By the number of their place too."""

NO_SPAN = "0" * 16
"""The identifier that is not valid, as some write it for no parent."""

_ERRORS = (2, "2", "STATUS_CODE_ERROR")
_SCOPES = ("scopeSpans", "instrumentationLibrarySpans", "ilSpans")
"""Names of one list in the versions of the protocol, the newest first."""


def otlp_spans(document: Fields, where: str = "") -> list[RawSpan]:
    """List the spans of a document: ``{"resourceSpans": [...]}``, or ``batches`` of the same.

    Parameters
    ----------
    document
        What the file holds.
    where
        Put before the place in messages.

    Raises
    ------
    InstanceError
        On fields that are missing or of the wrong kind, and resources without ``service.name``.
    """
    key = "resourceSpans" if "resourceSpans" in document else "batches"
    out: list[RawSpan] = []
    for at, one in enumerate(rows(document, key, where, required=True)):
        place = f"{where}{key}[{at}]"
        group = table(one, place)
        owner = _owner(group, f"{place}.")
        name = next((name for name in _SCOPES if name in group), _SCOPES[0])
        if name not in group:
            missing(group, name, f"{place}.")
        for number, scope in enumerate(rows(group, name, f"{place}.")):
            here = f"{place}.{name}[{number}]"
            spans = rows(table(scope, here), "spans", f"{here}.")
            out.extend(
                _span(table(span, f"{here}.spans[{row}]"), owner, f"{here}.spans[{row}].")
                for row, span in enumerate(spans)
            )
    return out


def _owner(group: Fields, where: str) -> str:
    resource = table(group.get("resource", {}), f"{where}resource")
    attributes = _attributes(rows(resource, "attributes", f"{where}resource."))
    name = attributes.get("service.name")
    if not isinstance(name, str) or not name:
        raise InstanceError(f"{where}resource.attributes: service.name is missing")
    return name


def _attributes(listed: list[Any]) -> dict[str, Any]:
    """Turn attributes into a table; what is no attribute says nothing."""
    out: dict[str, Any] = {}
    for one in listed:
        if isinstance(one, dict):
            pair = cast("Fields", one)
            value = pair.get("value")
            if isinstance(pair.get("key"), str) and isinstance(value, dict):
                out[pair["key"]] = next(iter(cast("Fields", value).values()), None)
    return out


def _span(span: Fields, owner: str, where: str) -> RawSpan:
    start = whole(span, "startTimeUnixNano", where)
    attributes = _attributes(rows(span, "attributes", where))
    trace, kind = text(span, "traceId", where), _kind(span.get("kind", 0), where)
    parent, waited = _parent(span, trace, where)
    status = span.get("status")
    code: Any = cast("Fields", status).get("code") if isinstance(status, dict) else None
    return RawSpan(
        trace=trace,
        span=text(span, "spanId", where),
        parent=parent,
        microservice=owner,
        operation=str(span.get("name") or ""),
        start_ms=start / NANOSECONDS,
        duration_ms=(whole(span, "endTimeUnixNano", where) - start) / NANOSECONDS,
        kind=kind,
        waited=waited and kind != Kind.CONSUMER,
        failed=code in _ERRORS,
        peer=peer({key: attributes.get(key) for key in PEER_TAGS}),
    )


def _parent(span: Fields, trace: str, where: str) -> tuple[str, bool]:
    """Find the parent; a link to the same trace stands for one that does not wait."""
    parent = span.get("parentSpanId")
    if parent is not None and not isinstance(parent, str):
        raise InstanceError(f"{where}parentSpanId = {shown(parent)}: must be a string")
    if parent and parent != NO_SPAN:
        return parent, True
    for at, one in enumerate(rows(span, "links", where)):
        link = table(one, f"{where}links[{at}]")
        if link.get("traceId") == trace and isinstance(link.get("spanId"), str):
            return link["spanId"], False
    return "", False


def _kind(value: Any, where: str) -> Kind:
    names = list(_KINDS)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return _KINDS[names[value]]
    if isinstance(value, str) and value in _KINDS:
        return _KINDS[value]
    hint = nearest(value, names) if isinstance(value, str) else ""
    raise InstanceError(f"{where}kind = {shown(value)}: is no kind of span{hint}")
