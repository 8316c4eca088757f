"""What a table of a file may hold: its keys, their kinds and ranges, said once.

The reader of a scenario and its published schema are both made from these descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown, spelt

Kind: TypeAlias = Literal[
    "number", "whole", "flag", "text", "texts", "numbers", "wholes", "by_name", "number_or_by_name",
    "plain",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One key of a table.

    Parameters
    ----------
    kind
        ``by_name`` is a table of numbers under free names; ``texts`` also takes one string;
        ``plain`` is a table that is passed on unread.
    about
        What it means, for the published schema.
    least, most, above
        Range of its numbers; ``above`` excludes the least one.
    choices
        The strings it may be; empty: any.
    required
        Whether it must be given.
    """

    kind: Kind
    about: str
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its keys and what it is about."""

    about: str
    keys: Mapping[str, Value | Table | Rows]


@dataclass(frozen=True)
class Rows:
    """A list of tables of one kind."""

    row: Table


Content: TypeAlias = dict[str, Any]


def read_table(table: Table, data: object, where: str) -> Content:
    """Check a table and all below it.

    Parameters
    ----------
    table
        What it may hold.
    data
        What the file holds.
    where
        Dotted path of the table, empty for the file itself.

    Returns
    -------
    dict
        What was given: keys that were left out stay out.

    Raises
    ------
    InstanceError
        Naming the dotted path, the value, and for an unknown key the nearest known one.
    """
    if not isinstance(data, dict):
        raise InstanceError(f"{where}: expected a table, got {shown(data)}")
    section = cast(Content, data)
    out: Content = {}
    for key, value in section.items():
        entry = table.keys.get(key)
        if entry is None:
            raise InstanceError(f"{_under(where, key)}: unknown key{nearest(key, table.keys)}")
        out[key] = _entry(entry, value, _under(where, key))
    for key, entry in table.keys.items():
        if isinstance(entry, Value) and entry.required and key not in out:
            raise InstanceError(f"{_under(where, key)} is missing")
    return out


def _under(where: str, key: str) -> str:
    return f"{where}.{spelt(key)}" if where else spelt(key)


def _entry(entry: Value | Table | Rows, value: Any, where: str) -> Any:
    if isinstance(entry, Table):
        return read_table(entry, value, where)
    if isinstance(entry, Value):
        return check_value(entry, value, where)
    if not isinstance(value, list):
        raise InstanceError(f"{where}: expected a list of tables [[{where}]], got {shown(value)}")
    rows = cast(list[Any], value)
    return [read_table(entry.row, row, f"{where}[{index}]") for index, row in enumerate(rows)]


def check_value(value: Value, given: Any, where: str) -> Any:
    """Check one value against its kind and range and pass it on."""
    match value.kind:
        case "number" | "whole":
            _number(value, given, where)
        case "numbers" | "wholes":
            for index, item in enumerate(_listed(given, where, "numbers")):
                _number(value, item, f"{where}[{index}]")
        case "by_name":
            _by_name(value, given, where)
        case "number_or_by_name":
            (_by_name if isinstance(given, Mapping) else _number)(value, given, where)
        case "flag":
            if not isinstance(given, bool):
                raise InstanceError(f"{where} = {shown(given)}: must be true or false")
        case "text":
            _text(value, given, where)
        case "texts":
            items = [given] if isinstance(given, str) else _listed(given, where, "strings")
            for index, item in enumerate(items):
                _text(value, item, f"{where}[{index}]")
            return items
        case "plain":
            if not isinstance(given, Mapping):
                raise InstanceError(f"{where}: expected a table, got {shown(given)}")
    return cast(Any, given)


def check_values(keys: Mapping[str, Value], given: Mapping[str, Any], where: str) -> None:
    """Check those values of an object that are set (None is not) against the same ranges."""
    for key, value in keys.items():
        item = given.get(key)
        if item is not None:
            plain = list(cast(tuple[Any, ...], item)) if isinstance(item, tuple) else item
            check_value(value, plain, f"{where}.{key}")


def _listed(given: Any, where: str, of: str) -> list[Any]:
    items = cast(list[Any], given) if isinstance(given, list) else []
    if not items:
        raise InstanceError(f"{where}: expected a list of {of}, got {shown(cast(Any, given))}")
    return items


def _by_name(value: Value, given: Any, where: str) -> None:
    if not isinstance(given, Mapping):
        raise InstanceError(f"{where}: expected a table of numbers by name, got {shown(given)}")
    for name, item in cast(Mapping[str, Any], given).items():
        _number(value, item, f"{where}.{spelt(name)}")


def _text(value: Value, given: Any, where: str) -> None:
    if not isinstance(given, str) or not given:
        raise InstanceError(f"{where} = {shown(given)}: must be a string that is not empty")
    if value.choices and given not in value.choices:
        raise InstanceError(f"{where} = {shown(given)}{nearest(given, value.choices)}")


def _number(value: Value, given: Any, where: str) -> None:
    whole = value.kind in ("whole", "wholes")
    if isinstance(given, bool) or not isinstance(given, int if whole else (int, float)):
        rule = "must be a whole number" if whole else "must be a number"
        raise InstanceError(f"{where} = {shown(given)}: {rule}")
    if not math.isfinite(given):
        raise InstanceError(f"{where} = {given}: must be finite")
    low = given > value.least if value.above else given >= value.least
    if not (low and given <= value.most):
        raise InstanceError(f"{where} = {given}: {range_rule(value)}")


def range_rule(value: Value) -> str:
    """Say a range in words: ``"must be positive"``."""
    least, most = value.least, value.most
    if most == math.inf:
        if least == 0:
            return "must be positive" if value.above else "must not be negative"
        return f"must be {'above' if value.above else 'at least'} {least:g}"
    if least == -math.inf:
        return f"must be at most {most:g}"
    return f"must lie in {'(' if value.above else '['}{least:g}, {most:g}]"


def schema_of(table: Table, *, partial: bool = False) -> Content:
    """Describe a table as JSON Schema; ``partial``: an override, in which nothing is required."""
    out: Content = {"type": "object", "description": table.about, "additionalProperties": False}
    out["properties"] = {key: _schema(entry, partial) for key, entry in table.keys.items()}
    required = [k for k, e in table.keys.items() if isinstance(e, Value) and e.required]
    if required and not partial:
        out["required"] = required
    return out


def _schema(entry: Value | Table | Rows, partial: bool) -> Content:
    if isinstance(entry, Table):
        return schema_of(entry, partial=partial)
    if isinstance(entry, Rows):
        return {"type": "array", "items": schema_of(entry.row, partial=partial)}
    return {**_SCHEMAS[entry.kind](entry), "description": entry.about}


def _number_schema(value: Value) -> Content:
    out: Content = {"type": "integer" if value.kind in ("whole", "wholes") else "number"}
    if value.least > -math.inf:
        out["exclusiveMinimum" if value.above else "minimum"] = value.least
    if value.most < math.inf:
        out["maximum"] = value.most
    return out


def _list_schema(value: Value) -> Content:
    return {"type": "array", "items": _number_schema(value), "minItems": 1}


def _by_name_schema(value: Value) -> Content:
    return {"type": "object", "additionalProperties": _number_schema(value)}


def _text_schema(value: Value) -> Content:
    if value.choices:
        return {"type": "string", "enum": list(value.choices)}
    return {"type": "string", "minLength": 1}


def _texts_schema(value: Value) -> Content:
    one = _text_schema(value)
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


_SCHEMAS: Mapping[Kind, Callable[[Value], Content]] = {
    "number": _number_schema,
    "whole": _number_schema,
    "numbers": _list_schema,
    "wholes": _list_schema,
    "by_name": _by_name_schema,
    "number_or_by_name": lambda value: {"anyOf": [_number_schema(value), _by_name_schema(value)]},
    "flag": lambda value: {"type": "boolean"},
    "text": _text_schema,
    "texts": _texts_schema,
    "plain": lambda value: {"type": "object"},
}
