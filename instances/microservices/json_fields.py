"""Fields of JSON that others write: there, of the right kind, or told with the nearest spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown

Fields = Mapping[str, Any]


def table(value: Any, where: str) -> Fields:
    """Take a JSON object."""
    if not isinstance(value, dict):
        raise InstanceError(f"{where}: expected an object, got {shown(value)}")
    return cast("Fields", value)


def rows(fields: Fields, key: str, where: str, *, required: bool = False) -> list[Any]:
    """Take a list; a missing one and null are empty unless required."""
    value = fields.get(key)
    if value is None and not required:
        return []
    if value is None:
        missing(fields, key, where)
    if not isinstance(value, list):
        raise InstanceError(f"{where}{key}: expected a list, got {shown(value)}")
    return cast("list[Any]", value)


def text(fields: Fields, key: str, where: str) -> str:
    """Take a string that is not empty."""
    value = fields.get(key)
    if value is None:
        missing(fields, key, where)
    if not isinstance(value, str) or not value or "\0" in value:
        raise InstanceError(f"{where}{key} = {shown(value)}: must be a string that is not empty")
    return value


def whole(fields: Fields, key: str, where: str) -> int:
    """Take a whole number, also one in quotes: 64 bits do not fit JavaScript's numbers."""
    value = fields.get(key)
    if value is None:
        missing(fields, key, where)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 30:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InstanceError(f"{where}{key} = {shown(value)}: must be a whole number")
    return value


def missing(fields: Fields, key: str, where: str) -> None:
    """Raise for a key that is not there."""
    hint = nearest(key, fields)
    raise InstanceError(f"{where}{key} is missing{hint if 'mean' in hint else ''}")
