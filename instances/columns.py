"""Read-only NumPy columns and the checks that every public constructor shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from apportion.instances.errors import InstanceError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Names: TypeAlias = NDArray[np.str_]

Scalar = TypeVar("Scalar", bound=np.generic)

_TOO_LARGE = 2.0**63  # whole numbers from here on do not fit 64 bits


def freeze(array: NDArray[Any]) -> None:
    """Make an array read-only in place."""
    array.flags.writeable = False


def _copied(values: object, dtype: type[Any], where: str) -> NDArray[Any]:
    try:
        raw = np.asarray(values)
        if raw.size == 0:
            raw = raw.astype(dtype)
        if dtype is np.int64 and raw.dtype.kind in "uf":
            _whole(raw.ravel(), where)
        if dtype in (np.int64, np.float64) and raw.dtype.kind not in "iuf":
            raise InstanceError(f"{where}: expected numbers, got {_shown(values)}")
        if dtype is np.bool_ and raw.dtype.kind != "b":
            raise InstanceError(f"{where}: expected true or false, got {_shown(values)}")
        out = np.array(raw, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(
            f"{where}: {_shown(values)} is not a column of {dtype.__name__}"
        ) from None
    freeze(out)
    return out


def _whole(flat: NDArray[Any], where: str) -> None:
    is_whole = np.isfinite(flat) & (flat == np.round(flat))
    for good, rule in ((is_whole, "must be whole"), (abs(flat) < _TOO_LARGE, "is too large")):
        bad = np.flatnonzero(~good)
        if bad.size:
            raise InstanceError(f"{where}[{int(bad[0])}] = {flat[bad[0]]}: {rule}")


def _shown(values: object) -> str:
    text = repr(values).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def floats(values: object, where: str, shape: tuple[int, ...] | None = None) -> Floats:
    """Copy values into a read-only float column of the given shape.

    Raises
    ------
    InstanceError
        On anything that is not a number, a wrong shape, or NaN. Infinity passes: the caller says
        with ``finite`` where it is not meant.
    """
    out = _shaped(cast(Floats, _copied(values, np.float64, where)), shape, where)
    nan = np.flatnonzero(np.isnan(out.ravel()))
    if nan.size:
        raise InstanceError(f"{where}{_place(out, int(nan[0]))} = NaN: not a number")
    return out


def ints(values: object, where: str, shape: tuple[int, ...] | None = None) -> Ints:
    """Copy values into a read-only integer column; whole floats pass."""
    return _shaped(cast(Ints, _copied(values, np.int64, where)), shape, where)


def bools(values: object, where: str, shape: tuple[int, ...] | None = None) -> Bools:
    """Copy values into a read-only column of truth values."""
    return _shaped(cast(Bools, _copied(values, np.bool_, where)), shape, where)


def names(values: object, where: str, *, count: int | None = None, unique: bool = True) -> Names:
    """Copy strings into a read-only column; by default empty and repeated ones are refused."""
    array = cast("NDArray[Any] | None", values if isinstance(values, np.ndarray) else None)
    if array is not None and array.dtype.kind == "U":
        out: Names = np.array(array, dtype=np.str_)
    else:
        if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
            raise InstanceError(f"{where}: expected a list of strings, got {_shown(values)}")
        items = list(cast("Sequence[object]", values))
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise InstanceError(f"{where}[{index}] = {item!r}: must be a string")
            if "\0" in item:  # NumPy would drop one at the end
                raise InstanceError(f"{where}[{index}] = {item!r}: must not hold a NUL character")
        out = np.array(items, dtype=np.str_)
    out = _shaped(out, None if count is None else (count,), where)
    if unique:
        empty = np.flatnonzero(out == "")
        if empty.size:
            raise InstanceError(f"{where}[{int(empty[0])}] is empty")
        if len(set(out.tolist())) != out.size:
            seen: dict[str, int] = {}
            for index, item in enumerate(out.tolist()):
                if item in seen:
                    raise InstanceError(
                        f"{where}[{index}] = {item!r}: already used at index {seen[item]}"
                    )
                seen[item] = index
    freeze(out)
    return out


def _shaped(array: NDArray[Scalar], shape: tuple[int, ...] | None, where: str) -> NDArray[Scalar]:
    if shape is None or array.shape == shape:
        return array
    if array.size == 0 and 0 in shape:
        return array.reshape(shape)
    raise InstanceError(f"{where} has shape {array.shape}, expected {shape}")


def _place(array: NDArray[Any], flat: int) -> str:
    where = np.unravel_index(flat, array.shape)
    return "[" + ", ".join(str(int(part)) for part in where) + "]"


def require(
    array: NDArray[Any], good: NDArray[np.bool_], where: str, rule: str, ids: Names | None = None,
    kind: str = "job",
) -> None:  # fmt: skip
    """Raise on the first entry that breaks a rule.

    Parameters
    ----------
    array
        The column.
    good
        Same shape; False where the rule is broken.
    where
        Object and field, ``"jobs.gang"``.
    rule
        Why it is broken, ``"a gang needs at least 1 GPU"``.
    ids
        Names of the rows, to be told beside the index.
    kind
        What a row is.
    """
    if good.all():
        return
    flat = int(np.flatnonzero(~good.ravel())[0])
    row = int(np.unravel_index(flat, array.shape)[0])
    who = f" ({kind} {str(ids[row])!r})" if ids is not None else ""
    value = array.ravel()[flat].item()
    raise InstanceError(f"{where}{_place(array, flat)} = {value}{who}: {rule}")


def finite(array: Floats, where: str, ids: Names | None = None) -> None:
    """Refuse infinities."""
    require(array, np.isfinite(array), where, "must be finite", ids)


LARGEST = 1e15
"""Numbers beyond it cannot be told from one another in sums, and solvers refuse them."""

SMALLEST = 1e-15
"""Amounts of work and speeds below it make ratios beyond ``LARGEST``."""


def sized(array: Floats, where: str, ids: Names | None = None, *, ratio: bool = False) -> None:
    """Refuse infinities and numbers beyond ``LARGEST``.

    Parameters
    ----------
    array, where, ids
        As in ``require``.
    ratio
        True: the numbers divide or are divided, so that those below ``SMALLEST`` other than zero
        are refused too.
    """
    finite(array, where, ids)
    require(array, np.abs(array) <= LARGEST, where, f"must not be beyond {LARGEST:g}", ids)
    if ratio:
        good = (array == 0) | (np.abs(array) >= SMALLEST)
        require(array, good, where, f"is closer to zero than {SMALLEST:g}", ids)


def ragged(offsets: object, values: object, where: str, count: int) -> tuple[Ints, Floats]:
    """Check a ragged column: ``count + 1`` offsets that rise from 0 to the number of values."""
    starts = ints(offsets, f"{where}_offsets", (count + 1,))
    flat = floats(values, where)
    if flat.ndim != 1:
        raise InstanceError(f"{where} has {flat.ndim} dimensions, expected 1")
    if starts[0] != 0 or starts[-1] != flat.size or (np.diff(starts) < 0).any():
        raise InstanceError(
            f"{where}_offsets must rise from 0 to the number of values, {flat.size};"
            f" got {_shown(starts.tolist())}"
        )
    return starts, flat


def equal_columns(left: object, right: object, fields: Sequence[str]) -> bool:
    """Compare two columnar objects field by field (NaN-free by construction)."""
    for name in fields:
        one: Any = getattr(left, name)
        two: Any = getattr(right, name)
        if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
            if not np.array_equal(cast(Floats, one), cast(Floats, two)):
                return False
        elif one != two:
            return False
    return True
