"""What a metric is: definition, unit and source, written once beside the field that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

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
