"""Sums over stretches of a sequence, of the entries that rank low enough."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats, Ints


def sums_below(rank: Ints, values: Floats, first: Ints, stop: Ints, cut: Ints) -> Floats:
    """Sum ``values[:, first:stop]`` where ``rank < cut``, for many stretches at once.

    The sequence is split by the bits of the ranks, highest first, zeros before ones in their
    order; a stretch stays one stretch in either half, so that each bit costs one look-up for each
    question: O((m + q) log m) for m entries and q questions (a wavelet matrix: Claude, Navarro
    and Ordonez, Information Systems 2015).

    Parameters
    ----------
    rank
        Shape (m,), from 0 to m.
    values
        Shape (v, m).
    first, stop, cut
        Shape (q,); ``0 <= first <= stop <= m``, ``0 <= cut <= m``.

    Returns
    -------
    Floats
        Shape (v, q).
    """
    m = rank.size
    out = np.zeros((values.shape[0], first.size))
    for bit in reversed(range(max(1, m.bit_length()))):
        one = (rank >> bit) & 1
        zeros = np.concatenate(([0], np.cumsum(1 - one)))
        order = np.argsort(one, kind="stable")
        rank, values = rank[order], values[:, order]
        total = np.concatenate((np.zeros((values.shape[0], 1)), np.cumsum(values, axis=1)), axis=1)
        left, right = zeros[first], zeros[stop]
        # where the cut has this bit, all entries without it rank lower
        take = ((cut >> bit) & 1).astype(np.bool_)
        out += np.where(take, total[:, right] - total[:, left], 0.0)
        first = np.where(take, zeros[-1] + first - left, left)
        stop = np.where(take, zeros[-1] + stop - right, right)
    return out
