"""Feeding named values into a hash, so that equal data give equal digests on every machine."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def feed(out: Any, name: str, value: object) -> None:
    """Feed one named value: a column, or anything whose ``repr`` tells all of it."""
    out.update(f"{name}:".encode())
    if not isinstance(value, np.ndarray):
        out.update(repr(value).encode())
        return
    array = cast("NDArray[Any]", value)
    out.update(f"{array.dtype.kind}{array.shape}".encode())
    if array.dtype.kind == "U":
        # the width of the column depends on the longest name anywhere; the names do not
        out.update("\0".join(array.ravel().tolist()).encode())
    else:
        out.update(np.ascontiguousarray(array).tobytes())


def feed_table(out: Any, name: str, table: Any) -> None:
    """Feed every field of a dataclass of columns."""
    for field in fields(table):
        feed(out, f"{name}.{field.name}", getattr(table, field.name))
