"""Sections of files as plain data: known keys, lists of one kind, names instead of row numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown, spelt

_TOO_LARGE = 2**63  # whole numbers from here on do not fit 64 bits

_TAKEN: Mapping[str, tuple[frozenset[type], str]] = {
    "float": (frozenset({int, float}), "must be a number"),
    "int": (frozenset({int, float}), "must be a whole number"),
    "bool": (frozenset({bool}), "must be true or false"),
    "name": (frozenset({str}), "must be a string"),
}


def known_keys(data: object, known: tuple[str, ...], where: str) -> dict[str, Any]:
    """Pass an object whose keys are all known; the error names the nearest known one."""
    if not isinstance(data, dict):
        raise InstanceError(f"{where}: expected an object, got {shown(data)}")
    section = cast(dict[str, Any], data)
    for key in section:
        if key not in known:
            raise InstanceError(f"{where}.{spelt(key)}: unknown key{nearest(key, known)}")
    return section


def plain_list(
    data: object, kind: str, where: str, *, null: float | str | None = None
) -> list[Any]:
    """Pass a list whose entries are all of one kind.

    Parameters
    ----------
    data
        What the file holds.
    kind
        ``"float"``, ``"int"``, ``"bool"`` or ``"name"``.
    where
        Object and field, for the error.
    null
        What null stands for; None refuses it.
    """
    if not isinstance(data, list):
        raise InstanceError(f"{where}: expected a list, got {shown(data)}")
    values = cast(list[Any], data)
    taken, rule = _TAKEN[kind]
    found = set(map(type, values))
    if null is not None and NoneType in found:
        values = [null if value is None else value for value in values]
        found.discard(NoneType)
        found.add(type(null))
    if not found <= taken:
        at = next(i for i, value in enumerate(values) if type(value) not in taken)
        raise InstanceError(f"{where}[{at}] = {shown(values[at])}: {rule}")
    if int in found and max(map(abs, cast("list[float]", values))) >= _TOO_LARGE:
        for at, value in enumerate(values):
            if type(value) is int and abs(value) >= _TOO_LARGE:
                raise InstanceError(f"{where}[{at}] = {shown(value)}: is too large")
    return values


def plain_value(data: object, kind: str, where: str, *, null: float | str | None = None) -> Any:
    """Pass one value of a kind; see ``plain_list``."""
    if data is None and null is not None:
        return null
    taken, rule = _TAKEN[kind]
    if type(data) not in taken:
        raise InstanceError(f"{where} = {shown(data)}: {rule}")
    if type(data) is int and abs(data) >= _TOO_LARGE:
        raise InstanceError(f"{where} = {shown(data)}: is too large")
    return data


def codes(names: list[str], known: Names, where: str, what: str) -> Ints:
    """Replace names by their row numbers; the error names the nearest known one."""
    row = {name: index for index, name in enumerate(known.tolist())}
    try:
        return np.array([row[name] for name in names], dtype=np.int64)
    except KeyError:
        at = next(i for i, name in enumerate(names) if name not in row)
        hint = nearest(names[at], row)
        raise InstanceError(f"{where}[{at}] = {shown(names[at])}: unknown {what}{hint}") from None


def finite_or_null(values: Floats) -> list[float | None]:
    """List a column with null for infinity."""
    if np.isfinite(values).all():
        return values.tolist()
    return [None if value == np.inf else value for value in values.tolist()]


def columns_of(
    data: object, keys: tuple[str, ...], where: str, defaults: Mapping[str, Any] | None = None
) -> list[list[Any]]:
    """Turn a list of objects into one list a key; keys without a default must be there."""
    if not isinstance(data, list):
        raise InstanceError(f"{where}: expected a list of objects, got {shown(data)}")
    filled = defaults or {}
    columns: list[list[Any]] = [[] for _ in keys]
    for index, entry in enumerate(cast(list[Any], data)):
        row = known_keys(entry, keys, f"{where}[{index}]")
        for key, column in zip(keys, columns, strict=True):
            if key not in row and key not in filled:
                raise InstanceError(f"{where}[{index}].{key} is missing")
            column.append(row[key] if key in row else filled[key])
    return columns


def column_by_name(
    data: object,
    names: Names,
    kind: str,
    where: str,
    *,
    default: float | None = None,
    least: float = -np.inf,
    null: float | None = None,
) -> list[Any]:
    """Read a column that is given by name.

    Parameters
    ----------
    data
        Values by name.
    names
        The rows, in the order of the result.
    kind, null
        As in ``plain_list``.
    where
        Object and field, for errors.
    default
        Value of the names that are not given; None: all must be given.
    least
        Smallest value allowed.

    Raises
    ------
    InstanceError
        On unknown names, with the nearest known one, names left out, and values out of range.
    """
    section = known_keys(data, tuple(names.tolist()), where)
    values: dict[str, Any] = {}
    for name, value in section.items():
        values[name] = plain_value(value, kind, f"{where}.{name}", null=null)
        if not values[name] >= least:
            raise InstanceError(f"{where}.{name} = {shown(value)}: must not be below {least:g}")
    if default is None:
        for name in names.tolist():
            if name not in values:
                raise InstanceError(f"{where}.{name} is missing")
    return [values.get(name, default) for name in names.tolist()]
