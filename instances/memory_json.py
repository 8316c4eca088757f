"""A policy's memory as JSON text: plain data and columns, exact to the last bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from apportion.instances.columns import freeze
from apportion.instances.errors import InstanceError
from apportion.instances.files import json_text, parse_json, shown

COLUMN, TUPLE, PAIRS, INFINITE = "$column", "$tuple", "$pairs", "$infinite"
_KINDS = "biufU"  # truth values, whole numbers, floats, strings


def dump_memory(memory: Any) -> str:
    """Write memory as JSON text.

    Parameters
    ----------
    memory
        Nested dicts (keys are strings or whole numbers), lists, tuples, strings, numbers, truth
        values, None, and NumPy columns of these.

    Returns
    -------
    str
        Text from which ``load_memory`` makes an equal object, floats to the last bit.

    Raises
    ------
    InstanceError
        On NaN and on anything else, naming its place.
    """
    return json_text(_plain(memory, "memory"))


def load_memory(text: str) -> Any:
    """Read memory from text that ``dump_memory`` wrote; columns come back read-only.

    Raises
    ------
    InstanceError
        On text that is no such memory.
    """
    return _read(parse_json(text), "memory")


def _plain(given: Any, where: str) -> Any:
    value: Any = cast(Any, given).item() if isinstance(given, np.generic) else given
    match value:
        case None | bool() | str():
            return value
        case int():
            return value
        case float():
            return _number(value, where)
        case list():
            items = cast(list[Any], value)
            return [_plain(item, f"{where}[{at}]") for at, item in enumerate(items)]
        case tuple():
            entries = cast(tuple[Any, ...], value)
            return {TUPLE: [_plain(item, f"{where}[{at}]") for at, item in enumerate(entries)]}
        case dict():
            return _mapping(cast(dict[Any, Any], value), where)
        case np.ndarray():
            return {COLUMN: _column(cast(NDArray[Any], value), where)}
        case _:
            kind = type(cast(object, value)).__name__
            raise InstanceError(f"{where}: {kind} is not plain data that memory may hold")


def _number(value: float, where: str) -> Any:
    if math.isnan(value):
        raise InstanceError(f"{where} = NaN: not a number")
    return {INFINITE: value > 0} if math.isinf(value) else value


def _mapping(value: dict[Any, Any], where: str) -> dict[str, Any]:
    for key in value:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InstanceError(f"{where}: the key {shown(key)} is no string or whole number")
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    return {PAIRS: [[key, _plain(item, f"{where}.{key}")] for key, item in value.items()]}


def _column(array: NDArray[Any], where: str) -> dict[str, Any]:
    if array.dtype.kind not in _KINDS:
        raise InstanceError(f"{where}: a column of {array.dtype} is not plain data")
    values = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = [_number(value, f"{where}[{at}]") for at, value in enumerate(values)]
    dtype = array.dtype.newbyteorder("<").str
    return {"dtype": dtype, "shape": list(array.shape), "values": values}


def _read(value: Any, where: str) -> Any:
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [_read(item, f"{where}[{at}]") for at, item in enumerate(items)]
    if not isinstance(value, dict):
        return value
    entry = cast(dict[str, Any], value)
    tag = next((key for key in entry if key.startswith("$")), None)
    if tag is None:
        return {key: _read(item, f"{where}.{key}") for key, item in entry.items()}
    if len(entry) > 1:
        raise InstanceError(f"{where}: {tag!r} stands beside other keys")
    return _tagged(tag, entry[tag], where)


def _tagged(tag: str, body: Any, where: str) -> Any:
    match tag, body:
        case "$tuple", list():
            items = cast(list[Any], body)
            return tuple(_read(item, f"{where}[{at}]") for at, item in enumerate(items))
        case "$pairs", list():
            return _pairs(cast(list[Any], body), where)
        case "$infinite", bool():
            return math.inf if body else -math.inf
        case "$column", dict():
            return _array(cast(dict[str, Any], body), where)
        case _:
            raise InstanceError(f"{where}: {tag!r} is not a mark of this format")


def _pairs(body: list[Any], where: str) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for pair in body:
        match pair:
            case [str() | int() as key, item] if not isinstance(key, bool) and key not in out:
                out[key] = _read(item, f"{where}.{key}")
            case _:
                raise InstanceError(f"{where}: {shown(pair)} is not a pair of key and value")
    return out


_JSON_KINDS: Mapping[str, tuple[type, ...]] = {
    "b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "U": (str,),
}  # fmt: skip


def _array(body: dict[str, Any], where: str) -> NDArray[Any]:
    try:
        dtype = np.dtype(cast(str, body["dtype"]))
        values = [_read(value, where) for value in body["values"]]
        taken = _JSON_KINDS[dtype.kind]
        if any(
            not isinstance(v, taken) or (isinstance(v, bool) != (dtype.kind == "b")) for v in values
        ):
            raise ValueError("values of another kind")
        out = np.array(values, dtype=dtype).reshape(tuple(body["shape"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InstanceError(f"{where}: {shown(body)} is not a column") from None
    freeze(out)
    return out
