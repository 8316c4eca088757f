"""Partial overrides of a scenario's tables: variants and the caller's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

Content = dict[str, Any]

Kinds: TypeAlias = tuple[tuple[str, str, frozenset[str]], ...]
"""Tables with a key that says what kind they are of, and the keys that all kinds share."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any], kinds: Kinds) -> Content:
    """Override tables deeply.

    Parameters
    ----------
    base
        The file's tables.
    patch
        The values that differ. A list of tables with names merges by name, new names are
        appended; every other list is replaced.
    kinds
        Tables that do not inherit the parameters of another kind: where the patch changes the
        key, only what all kinds share stays.

    Returns
    -------
    dict
        A new object; neither argument is changed.
    """
    return _deep(_dropped(base, patch, kinds), patch)


def _dropped(base: Mapping[str, Any], patch: Mapping[str, Any], kinds: Kinds) -> Content:
    """Leave out what an override of the kind makes meaningless."""
    out = dict(base)
    for section, key, kept in kinds:
        old, new = base.get(section), patch.get(section)
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        before, after = cast(Mapping[str, Any], old), cast(Mapping[str, Any], new)
        if key in after and after[key] != before.get(key):
            out[section] = {name: value for name, value in before.items() if name in kept}
    return out


def _deep(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Content:
    out = dict(base)
    for key, new in patch.items():
        old = out.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            out[key] = _deep(cast(Mapping[str, Any], old), cast(Mapping[str, Any], new))
        elif _named(old) and _named(new) and new:
            out[key] = _rows(cast(list[Content], old), cast(list[Content], new))
        else:
            out[key] = new
    return out


def _named(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, Mapping) and "name" in row for row in cast(list[Any], rows)
    )


def _rows(base: list[Content], patch: list[Content]) -> list[Content]:
    out = list(base)
    for row in patch:
        at = [index for index, own in enumerate(base) if own["name"] == row["name"]]
        if at:
            out[at[0]] = _deep(base[at[0]], row)
        else:
            out.append(row)
    return out
