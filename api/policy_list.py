"""Tables of policies and their parameters."""

from __future__ import annotations

import inspect
from dataclasses import MISSING

from apportion.registry import family_name, make_policy, parameters_of, policy_class, policy_classes
from apportion.results import Column, Table


def policies_table() -> Table:
    """List all policies with what they do and where they come from."""
    columns = [
        Column("name", "policy"),
        Column("family", "family"),
        Column("about", "what it does"),
        Column("source", "source"),
    ]
    rows = [
        [name, family_name(cls), _first_line(cls), str(getattr(cls, "source", ""))]
        for name, cls in policy_classes().items()
    ]
    return Table("Policies", columns, rows, ["apportion policies NAME shows parameters"])


def policy_table(name: str) -> Table:
    """List one policy's parameters with defaults and meaning."""
    cls = policy_class(name)
    meaning = _described(cls)
    columns = [
        Column("parameter", "parameter"), Column("default", "default"), Column("about", "meaning"),
    ]  # fmt: skip
    known = parameters_of(cls)
    rows = [
        [key, "(required)" if value is MISSING else str(value), meaning.get(key, "")]
        for key, value in known.items()
    ]
    source = getattr(cls, "source", "not stated")
    notes = [_first_line(cls), f"family: {family_name(cls)}", f"source: {source}"]
    if MISSING not in known.values():
        notes.append(f"traits: {', '.join(sorted(make_policy(name).traits)) or 'none'}")
    return Table(name, columns, rows, notes)


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _described(cls: type) -> dict[str, str]:
    """Read the meaning of each parameter from the class's docstring."""
    text = inspect.getdoc(cls) or ""
    _, found, section = text.partition("Parameters\n----------\n")
    out: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines() if found else []:
        if line and not line.startswith(" "):
            names = [part.strip() for part in line.split(",")]
            out.update(dict.fromkeys(names, ""))
        elif line.strip():
            for name in names:
                out[name] = f"{out[name]} {line.strip().replace('``', '')}".strip()
    return out
