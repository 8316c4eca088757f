"""Make room for a newcomer by moving single leases of accepted jobs to where GPUs are free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Bools, Ints

LOOKED_AT = 2048
"""Accepted jobs that are looked at for moves at least, spread over all. Looking at all of them
finds more, and costs more than laying a plan anew where none is found, after which it is easy."""

AT_ONCE = 32
"""Jobs whose moves are looked at together; mostly one of the first will do."""

MOST_MOVES = 64
"""Moves for one newcomer; laying all jobs anew is quicker from there on."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """Room for a newcomer.

    Attributes
    ----------
    chosen
        Leases of the newcomer, shape (need,).
    moves
        Job, lease that it leaves and lease that it gets instead.
    free
        GPUs free afterwards, the newcomer's taken off, shape (T,).
    """

    chosen: Ints
    moves: list[tuple[int, int, int]]
    free: Ints


def exchanged(
    leases: Bools, gang: Ints, due: Ints, free: Ints, newcomer: tuple[int, int, int]
) -> Exchange | None:
    """Find moves that open enough leases for a newcomer; None if single moves do not do.

    A move takes an accepted job out of one lease and into another one before its own deadline.

    Parameters
    ----------
    leases
        Plan of the accepted jobs, shape (n, T).
    gang, due
        Of the accepted jobs, shape (n,).
    free
        GPUs that the plan leaves free in each lease, shape (T,).
    newcomer
        Its gang, need and due.
    """
    size, need, limit = newcomer
    step = max(1, gang.size // LOOKED_AT)
    plan, gang, due = leases[::step].copy(), gang[::step], due[::step]
    left = free.copy()
    open_ = np.flatnonzero(left[:limit] >= size)
    left[open_] -= size
    chosen, moves = open_.tolist(), list[tuple[int, int, int]]()
    # the fullest leases last, since they need the most moves
    closed = np.flatnonzero(free[:limit] < size)
    for lease in closed[np.argsort(-free[closed], kind="stable")].tolist():
        if len(chosen) == need or not (left > 0).any():
            break
        opened = _opened(plan, gang, due, left, lease, size)
        if opened is None:
            continue
        for row, into in opened:
            plan[row, lease], plan[row, into] = False, True
            moves.append((step * row, lease, into))
        left[lease] -= size
        chosen.append(lease)
        if len(moves) > MOST_MOVES:
            return None
    if len(chosen) < need:
        return None
    return Exchange(np.array(sorted(chosen), dtype=np.int64), moves, left)


def _opened(
    plan: Bools, gang: Ints, due: Ints, left: Ints, lease: int, size: int
) -> list[tuple[int, int]] | None:
    """Moves that free so many GPUs of one lease; ``left`` is changed only if there are such."""
    targets = (left > 0).nonzero()[0]
    targets = targets[targets != lease]
    if not targets.size:
        return None
    rows = plan[:, lease].nonzero()[0]
    rows = rows[due[rows] > targets[0]]
    missing = size - int(left[lease])
    one = _one_move(plan, gang, due, left, rows, targets, missing)
    if one is not None:
        left[one[1]] -= missing
        left[lease] += missing
        return [one]
    # gangs that fill the rest just so come first, then the largest smaller ones
    rows = rows[np.lexsort((-gang[rows], gang[rows] > missing))]
    room, moves = left.copy(), list[tuple[int, int]]()
    for some in (rows[start : start + AT_ONCE] for start in range(0, rows.size, AT_ONCE)):
        may = ~plan[some[:, None], targets] & (due[some, None] > targets)
        may &= room[targets] >= gang[some, None]
        for at in np.flatnonzero(may.any(axis=1)).tolist():
            row, own = int(some[at]), int(gang[some[at]])
            fit = targets[may[at] & (room[targets] >= own)]
            if not fit.size:
                continue
            room[fit[-1]] -= own
            room[lease] += own
            moves.append((row, int(fit[-1])))
            if room[lease] >= size:
                left[:] = room
                return moves
            if len(moves) > MOST_MOVES:
                return None
    return None


def _one_move(
    plan: Bools, gang: Ints, due: Ints, left: Ints, rows: Ints, targets: Ints, missing: int
) -> tuple[int, int] | None:
    """One move of a gang that frees just what is missing, as is usual where most need one GPU."""
    some = rows[gang[rows] == missing][:AT_ONCE]
    targets = targets[left[targets] >= missing]
    if not some.size or not targets.size:
        return None
    may = ~plan[some[:, None], targets] & (due[some, None] > targets)
    row, target = may.nonzero()
    if not row.size:
        return None
    return int(some[row[0]]), int(targets[target[0]])
