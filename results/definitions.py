"""What a metric is: definition, unit and source, written once beside the field that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, cast

Metrics = TypeVar("Metrics")

Unit = Literal["", "count", "s", "GPU s", "ratio", "fraction"]
"""Unit of a raw value; empty for text. Raw values are what CSV and JSON carry."""


@dataclass(frozen=True)
class Definition:
    """One metric.

    Parameters
    ----------
    name
        Key in CSV and JSON; ends in its unit where it has one.
    label
        What a table calls it.
    unit
        Unit of the raw value.
    text
        How it is computed.
    source
        Where the definition comes from.
    better
        Which end is good, for the marks of a comparison; None where neither is.
    timing
        True for wall times: they are no part of what repeats byte for byte.
    """

    name: str
    label: str
    unit: Unit
    text: str
    source: str
    better: Literal["low", "high"] | None = None
    timing: bool = False


def metric(
    label: str,
    unit: Unit,
    text: str,
    source: str,
    better: Literal["low", "high"] | None = None,
    *,
    timing: bool = False,
) -> Any:
    """Declare a dataclass field that holds a metric; see `Definition` for the parameters."""
    return field(metadata={"metric": (label, unit, text, source, better, timing)})


def definitions(metrics: type[Any]) -> dict[str, Definition]:
    """Collect the definitions of a dataclass of metrics, in the order of its fields."""
    return {
        entry.name: Definition(entry.name, *entry.metadata["metric"])
        for entry in fields(metrics)
        if "metric" in entry.metadata
    }


def plain(metrics: Any, nested: Sequence[str], *, timings: bool) -> dict[str, Any]:
    """Turn a dataclass of metrics into plain data, in the order of its definitions.

    Parameters
    ----------
    metrics
        What was measured.
    nested
        Names of its fields that are mappings, which come after the metrics.
    timings
        True adds the wall times under ``"timings"``; without them the same run gives the same
        bytes.
    """
    known = definitions(cast("type[Any]", type(metrics)))
    out: dict[str, Any] = {
        name: getattr(metrics, name) for name, what in known.items() if not what.timing
    }
    for name in nested:
        inner: Mapping[str, Any] = getattr(metrics, name)
        out[name] = {key: _copied(value) for key, value in inner.items()}
    out["time_limited"] = metrics.time_limited
    if timings:
        out["timings"] = {
            name: getattr(metrics, name) for name, what in known.items() if what.timing
        }
    return out


def _copied(value: Any) -> Any:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


def read_plain(cls: type[Metrics], data: Mapping[str, Any]) -> Metrics:
    """Read back what `plain` wrote; wall times that were left out are None.

    Raises
    ------
    ValueError
        On a key that is missing or unknown.
    """
    flat: dict[str, Any] = {name: None for name, what in definitions(cls).items() if what.timing}
    flat |= {**data.get("timings", {})}
    flat |= {name: value for name, value in data.items() if name != "timings"}
    known = {entry.name for entry in fields(cls)}  # pyright: ignore[reportArgumentType]
    if flat.keys() != known:
        odd = ", ".join(sorted(flat.keys() ^ known))
        raise ValueError(f"metrics: missing or unknown: {odd}")
    return cls(**flat)
