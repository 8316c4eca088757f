"""Messages between this process and its workers: a small header and arrays, never code.

A frame is the length of its header (8 bytes), the header in JSON, and the bytes of the arrays that
the header lists. Nothing is unpickled, on either side.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct("<Q")
_ARRAYS = "arrays"


class Sink(Protocol):
    """What frames are written to."""

    def write(self, data: bytes, /) -> object:
        """Take all bytes."""
        ...

    def flush(self) -> object:
        """Hand them on."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One message.

    Attributes
    ----------
    kind
        What it is about.
    values
        Plain values: strings, numbers, booleans and ``None``.
    arrays
        Arrays of numbers.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])


def write_frame(sink: Sink, frame: Frame) -> None:
    """Write one message and hand it on."""
    arrays = {name: np.ascontiguousarray(array) for name, array in frame.arrays.items()}
    listed = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    header = json.dumps([frame.kind, dict(frame.values), listed]).encode()
    sink.write(_LENGTH.pack(len(header)) + header)
    for array in arrays.values():
        sink.write(array.tobytes())
    sink.flush()


def read_frame(source: BinaryIO) -> Frame | None:
    """Read one message; ``None`` where the other side has gone, be it in the middle of one."""
    start = source.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        return None
    header = source.read(_LENGTH.unpack(start)[0])
    if len(header) < _LENGTH.unpack(start)[0]:
        return None
    kind, values, listed = json.loads(header)
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype, shape in listed:
        empty = np.empty(shape, dtype=np.dtype(dtype))
        data = source.read(empty.nbytes)
        if len(data) < empty.nbytes:
            return None
        arrays[name] = np.frombuffer(data, dtype=empty.dtype).reshape(shape)
    return Frame(kind, values, arrays)
