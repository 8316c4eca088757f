"""Filling types job by job: the incumbent of every model and the whole of a plain heuristic."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats, Ints

NOWHERE = -1
"""Type of a job that waits."""


def fill(order: Ints, score: Floats, gang: Ints, free: Ints, *, strict: bool = False) -> Ints:
    """Give each job in turn the type of best score that still has room for its gang.

    Parameters
    ----------
    order
        Rows in the order they are served.
    score
        Lower is better, infinite = cannot run there, shape (n, k).
    gang
        GPUs of each job, shape (n,).
    free
        GPUs of each type, shape (k,).
    strict
        True: stop at the first job that does not fit (head of line). False: skip it.

    Returns
    -------
    Ints
        Type of each job, ``NOWHERE`` for those left out, shape (n,).
    """
    out = np.full(gang.size, NOWHERE, dtype=np.int64)
    open_types = np.flatnonzero(free > 0)
    if open_types.size == 1:
        only = int(open_types[0])
        able = np.isfinite(score[order, only])
        rows = order if able.all() else _able(order, able, strict)
        out[_fill_one(rows, gang, int(free[only]), strict=strict)] = only
        return out
    left: list[int] = free.tolist()
    most = max(left, default=0)
    ranked = np.argsort(score[order], axis=1, kind="stable").tolist()
    usable = np.isfinite(score[order]).sum(axis=1).tolist()
    for place, row in enumerate(order.tolist()):
        need = int(gang[row])
        if need <= most:
            for kind in ranked[place][: usable[place]]:
                if left[kind] >= need:
                    left[kind] -= need
                    out[row] = kind
                    most = max(left)
                    break
        if most == 0 or (strict and out[row] == NOWHERE):
            break
    return out


def _able(order: Ints, able: np.ndarray[tuple[int], np.dtype[np.bool_]], strict: bool) -> Ints:
    """Leave out jobs that cannot run; in a strict order the first such job blocks the rest."""
    return order[: int(np.argmin(able))] if strict else order[able]


def _fill_one(order: Ints, gang: Ints, free: int, *, strict: bool) -> Ints:
    """Serve one type: the longest prefix that fits, then skip what does not, and go on."""
    taken: list[Ints] = []
    while order.size and free > 0:
        reach = np.cumsum(gang[order])
        count = int(np.searchsorted(reach, free, side="right"))
        if count:
            taken.append(order[:count])
            free -= int(reach[count - 1])
        if strict:
            break
        order = order[count:]
        order = order[gang[order] <= free]
    return np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64)
