"""Array types of the room, and small helpers on them."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
IndexArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

_Kind = TypeVar("_Kind", bound=np.generic)


def read_only(array: NDArray[_Kind]) -> NDArray[_Kind]:
    """Give a view of ``array`` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def floats(values: ArrayLike) -> FloatArray:
    """Give ``values`` as a contiguous float64 array, copied only when that is needed."""
    return np.ascontiguousarray(values, dtype=np.float64)


def dot(left: FloatArray, right: FloatArray) -> float:
    """Scalar product, the same on every machine.

    The BLAS product splits long vectors over as many threads as there are cores, which changes
    the last digits, and waits for all of them on a busy machine.
    """
    return float(np.add.reduce(left * right))


def weighted_counts(places: NDArray[np.integer], weights: FloatArray, length: int) -> FloatArray:
    """Sum the weights that fall on each of ``length`` places."""
    return np.bincount(places, weights=weights, minlength=length).astype(np.float64, copy=False)
