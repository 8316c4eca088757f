"""Single values of a memory, which a caller may have written or changed by hand."""

from __future__ import annotations

from numbers import Real
from typing import Any, cast

import numpy as np

from apportion.instances.errors import InstanceError


def number(given: object, where: str) -> float:
    """Read a number.

    Raises
    ------
    InstanceError
        On text, a truth value, a column, or nothing.
    """
    if isinstance(given, bool) or not isinstance(given, Real):
        raise InstanceError(f"{where} = {given!r}: must be a number")
    return float(given)


def flag(given: object, where: str) -> bool:
    """Read a truth value.

    Raises
    ------
    InstanceError
        On anything else.
    """
    plain: object = cast(Any, given).item() if isinstance(given, np.generic) else given
    if not isinstance(plain, bool):
        raise InstanceError(f"{where} = {given!r}: must be true or false")
    return plain


def text(given: object, where: str) -> str:
    """Read a text.

    Raises
    ------
    InstanceError
        On anything else.
    """
    if not isinstance(given, str):
        raise InstanceError(f"{where} = {given!r}: must be text")
    return given
