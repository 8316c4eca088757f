"""Array types of the room, and the two ways arrays enter it: copied and closed to writing."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
IndexArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Give a view of ``array`` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def floats(values: ArrayLike) -> FloatArray:
    """Give ``values`` as a contiguous float64 array, copied only when that is needed."""
    return np.ascontiguousarray(values, dtype=np.float64)
