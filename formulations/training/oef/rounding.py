"""Whole GPUs from shares: what is granted now differs from what is meant, and that is carried."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats, Ints

EVEN = 9
"""Decimals to which claims are compared: sums of shares over many rounds differ in the last bits,
and ties have to stay ties."""


def whole_gpus(ask: Floats, free: Ints) -> Ints:
    """Round claims to whole GPUs, type by type.

    Everybody gets the whole part of its claim; what is left of a type goes one GPU at a time to
    the largest rest, lower users first where equal. Where whole parts are more than there is, the
    smallest rest gives back first, higher users first where equal.

    Parameters
    ----------
    ask
        Share of this round and what is carried from earlier ones, shape (u, k).
    free
        GPUs of each type, shape (k,).

    Returns
    -------
    Ints
        GPUs granted, shape (u, k): of each type ``floor(sum ask + 1/2)``, at least 0 and at most
        what is free.
    """
    granted = np.zeros(ask.shape, dtype=np.int64)
    if not ask.size:
        return granted
    ask = np.round(ask, EVEN)
    column: Floats = ask.sum(axis=0)
    asked = np.floor(np.round(column, EVEN) + 0.5)
    total = np.clip(asked, 0, free).astype(np.int64)
    granted = np.maximum(np.floor(ask), 0.0).astype(np.int64)
    for kind in range(ask.shape[1]):
        _level(ask[:, kind], granted[:, kind], int(total[kind]))
    return granted


def _level(ask: Floats, granted: Ints, total: int) -> None:
    """Hand out or take back GPUs of one type until ``total`` are granted; changes ``granted``."""
    left = total - int(granted.sum())
    rest = np.round(ask - granted, EVEN)
    while left > 0:
        at = int(np.argmax(rest))
        granted[at] += 1
        rest[at] -= 1.0
        left -= 1
    while left < 0:
        # the last of the smallest among those that have something to give
        giving = np.where(granted > 0, rest, np.inf)[::-1]
        at = rest.size - 1 - int(np.argmin(giving))
        granted[at] -= 1
        rest[at] += 1.0
        left += 1
