"""Containers onto nodes, the last step: large ones first, each on the node used least.

Source: after Erms' artifact, which spreads use evenly over the nodes; the rule is the plain one of
bin packing, and `placement_model` is its MILP.
"""

from __future__ import annotations

import heapq
from typing import cast

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound

ROUNDING = 1e-9
"""Relative slack of sums of sizes on a node: decimal sizes do not add up exactly."""


def placed(round_: MicroserviceRound, counts: Ints) -> tuple[Ints | None, tuple[str, ...]]:
    """Put the containers of a plan on nodes.

    Returns
    -------
    placement
        Shape (M, J); None without nodes, or where some container found no room.
    notes
        Who found no room.
    """
    nodes = round_.nodes
    if nodes is None:
        return None, ()
    own = round_.microservices
    sizes = np.stack((own.cpu_cores, own.memory_mib), axis=1)
    whole = np.stack((nodes.cpu_cores, nodes.memory_mib), axis=1)
    free = whole - np.stack((nodes.cpu_used, nodes.memory_used_mib), axis=1)
    share = (sizes / np.maximum(whole.max(axis=0, initial=0.0), 1.0)).max(axis=1)
    out = np.zeros((len(own), len(nodes)), dtype=np.int64)
    for m in np.argsort(-share, kind="stable").tolist():
        left = _spread(int(counts[m]), sizes[m], free, whole, out[m])
        if left:
            return None, (
                f"not placed: {left} of {int(counts[m])} containers of {str(own.id[m])!r} find no"
                " node with room",
            )
    return cast(Ints, out), ()


def _spread(count: int, size: Floats, free: Floats, whole: Floats, out: Ints) -> int:
    """Put containers of one kind where most is left, one by one; return how many found no room."""
    slack = ROUNDING * np.maximum(whole, 1.0)
    heap = [
        (-_left(free[j], whole[j]), j) for j in np.flatnonzero((free + slack >= size).all(axis=1))
    ]
    heapq.heapify(heap)
    while count and heap:
        _, j = heapq.heappop(heap)
        free[j] -= size
        out[j] += 1
        count -= 1
        if (free[j] + slack[j] >= size).all():
            heapq.heappush(heap, (-_left(free[j], whole[j]), j))
    return count


def _left(free: Floats, whole: Floats) -> float:
    """Share of a node that is left, of what is scarcest on it."""
    return float((free / np.maximum(whole, 1e-12)).min())
