"""Plain data with NumPy columns as JSON and back, to the same bytes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

_MARK = "$"


def encode(value: Any) -> Any:
    """Turn plain data into what JSON can hold.

    Understood are None, truth values, numbers with infinities and NaN, strings, lists, tuples,
    dictionaries, sets of plain keys, NumPy arrays and scalars.

    Raises
    ------
    TypeError
        On anything else, naming its type.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        if array.dtype.kind not in "biufU":
            raise TypeError(f"a journal cannot hold an array of {array.dtype}")
        flat = [encode(item) for item in array.ravel().tolist()]
        return {_MARK: "array", "dtype": array.dtype.str, "shape": list(array.shape), "data": flat}
    if isinstance(value, np.generic):
        scalar = cast("np.generic[Any]", value)
        return {_MARK: "scalar", "dtype": scalar.dtype.str, "value": encode(scalar.item())}
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {_MARK: "float", "value": repr(value)}
    return _encode_many(value)


def _encode_many(value: Any) -> Any:
    if isinstance(value, list):
        return [encode(item) for item in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return {_MARK: "tuple", "items": [encode(i) for i in cast("tuple[Any, ...]", value)]}
    if isinstance(value, frozenset | set):
        kind = "frozenset" if isinstance(value, frozenset) else "set"
        items = sorted(cast("set[Any]", value), key=repr)
        return {_MARK: kind, "items": [encode(item) for item in items]}
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        if all(isinstance(key, str) for key in table) and _MARK not in table:
            return {key: encode(item) for key, item in table.items()}
        return {_MARK: "map", "items": [[encode(k), encode(v)] for k, v in table.items()]}
    raise TypeError(f"a journal cannot hold a {type(value).__name__}; use columns and plain data")


def decode(value: Any) -> Any:
    """Turn back what ``encode`` made; arrays come back read-only."""
    if isinstance(value, list):
        return [decode(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    match table.get(_MARK):
        case None:
            return {key: decode(item) for key, item in table.items()}
        case "array":
            data = [decode(item) for item in table["data"]]
            array = np.array(data, dtype=table["dtype"]).reshape(table["shape"])
            array.flags.writeable = False
            return array
        case "scalar":
            return np.dtype(table["dtype"]).type(decode(table["value"]))
        case "float":
            return float(table["value"])
        case "map":
            return {decode(key): decode(item) for key, item in table["items"]}
        case kind:
            items = [decode(item) for item in table["items"]]
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)
