"""Writing TOML: the standard library reads it only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

from apportion.instances.errors import InstanceError


def toml_text(data: Mapping[str, Any]) -> str:
    """Write nested tables as TOML.

    Parameters
    ----------
    data
        Strings, numbers, truth values, lists of these, tables, and lists of tables. Keys whose
        value is None are left out.

    Raises
    ------
    InstanceError
        On what TOML cannot hold, naming its key.
    """
    return "\n".join(_table(data, ())).strip("\n") + "\n"


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    below: list[str] = []
    for key, value in data.items():
        name = ".".join(_key(part) for part in (*path, key))
        if value is None:
            continue
        if isinstance(value, Mapping):
            inner = _table(cast(Mapping[str, Any], value), (*path, key))
            head = ["", f"[{name}]"] if not inner or inner[0] else []  # keys of its own, or empty
            below += [*head, *inner]
        elif _is_rows(value):
            for row in cast(list[Mapping[str, Any]], value):
                below += ["", f"[[{name}]]", *_table(row, (*path, key))]
        else:
            lines.append(f"{_key(key)} = {_value(value, name)}")
    return lines + below


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        isinstance(row, Mapping) for row in cast(list[Any], value)
    )


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, where: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(float(value))
        case list() | tuple():
            items = cast(list[Any], value)
            return "[" + ", ".join(_value(item, where) for item in items) + "]"
        case _:
            raise InstanceError(f"{where} = {value!r}: cannot be written as TOML")
