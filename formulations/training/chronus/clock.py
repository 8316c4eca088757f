"""Where a moment lies among leases and slots, and what deadlines and work are in leases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.training import Cluster, Jobs

SAME_INSTANT = 1e-9
"""Relative difference below which two instants are the same: what sums of floats are off by."""

SAME_LEASES = 1e-6
"""Part of a lease that a job may need beyond whole ones and still be done with them: progress is a
product of floats; a millisecond of 20 minutes is no work."""


@dataclass(frozen=True)
class Clock:
    """A moment on the grid of leases.

    Lease k lasts from ``k * lease_s`` to ``(k + 1) * lease_s``.

    Attributes
    ----------
    now_s, lease_s
        The moment, and the length of a lease.
    current
        The lease that contains the moment.
    first
        The first lease that can be planned: one that begins now, or else the next one.
    next_s
        The next slot or the next lease, whichever comes first.
    """

    now_s: float
    lease_s: float
    current: int
    first: int
    next_s: float

    @classmethod
    def at(cls, now_s: float, lease_s: float, slot_s: float) -> Clock:
        """Find the moment's place."""
        begun, exact = _whole(now_s, lease_s)
        slot, _ = _whole(now_s, slot_s)
        next_s = min((begun + 1) * lease_s, (slot + 1) * slot_s)
        return cls(now_s, lease_s, begun, begun if exact else begun + 1, next_s)

    @property
    def boundary(self) -> bool:
        """Whether a lease begins at this very moment."""
        return self.first == self.current

    @property
    def end_s(self) -> float:
        """End of the lease that contains the moment."""
        return (self.current + 1) * self.lease_s

    def due(self, deadline_s: Floats) -> Ints:
        """First lease that is too late for each deadline: those before it end in time."""
        near = np.rint(deadline_s / self.lease_s)
        off = np.abs(near * self.lease_s - deadline_s)
        exact = off <= SAME_INSTANT * np.maximum(1.0, np.abs(deadline_s))
        whole = np.where(exact, near, np.floor(deadline_s / self.lease_s))
        return whole.astype(np.int64)

    def leases(self, seconds: Floats) -> Ints:
        """Count the leases that some time needs, at least 0."""
        count = np.ceil(seconds / self.lease_s - SAME_LEASES)
        return np.maximum(count, 0.0).astype(np.int64)


def _whole(now_s: float, length_s: float) -> tuple[int, bool]:
    """Count the whole lengths before a moment, and tell whether one ends right then."""
    near = round(now_s / length_s)
    if abs(near * length_s - now_s) <= SAME_INSTANT * max(1.0, abs(now_s)):
        return near, True
    return math.floor(now_s / length_s), False


def bare_s(jobs: Jobs, types: int) -> Floats:
    """Time of each job's whole work at its reported speed, infinite where it is 0, shape (n, k)."""
    # a table without jobs may have been given without types too
    speed = jobs.throughput_per_s.reshape(len(jobs), types)
    out = np.full(speed.shape, np.inf)
    np.divide(jobs.work[:, None], speed, out=out, where=speed > 0)
    return out


def overhead_of(gang: Ints, overhead_s: float) -> Floats:
    """Time that a start or a resume is taken to cost, shape (n,)."""
    return overhead_s * (1.0 + np.log2(gang))


def charged_gpus(gang: Ints, cluster: Cluster) -> Ints:
    """GPUs that a reservation is charged for on each type, shape (n, k).

    Within a node a gang is rounded up to the next number of GPUs that divides the node's, so that
    gangs tile nodes without a rest: on 8 GPUs 3 becomes 4, and 5 to 7 become 8. Larger gangs and
    types without nodes are charged as they are. Where a type has nodes of several sizes, the
    most frequent one counts, the larger one on ties.
    """
    out = np.repeat(gang[:, None], cluster.types.size, axis=1)
    for kind in range(cluster.types.size):
        sizes = cluster.node_gpus[(cluster.node_type == kind) & (cluster.node_gpus > 0)]
        if not sizes.size:
            continue
        known, count = np.unique(sizes, return_counts=True)
        node = int(known[np.flatnonzero(count == count.max())[-1]])
        tiles = np.flatnonzero(node % np.arange(1, node + 1) == 0) + 1
        within = gang <= node
        out[within, kind] = tiles[np.searchsorted(tiles, gang[within])]
    return out
