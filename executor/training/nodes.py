"""Which GPUs of which node are free, kept so that finding room costs what it changes."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np

from apportion.executor.tolerances import HOST_RELATIVE
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import Cluster, Jobs

Hosts: TypeAlias = tuple[tuple[int, int], ...]
"""Where a gang lies: pairs (node, GPUs there), nodes rising."""


class Room(Protocol):
    """Free GPUs on nodes, with whatever else a gang needs there."""

    def take(self, row: int, kind: int, gpus: int) -> Hosts | None:
        """Find room for a gang and occupy it; None where there is none."""
        ...

    def occupy(self, row: int, hosts: Hosts) -> None:
        """Occupy given GPUs."""
        ...

    def give(self, row: int, hosts: Hosts) -> None:
        """Free given GPUs."""
        ...

    def fail(self, node: int) -> None:
        """Take a node out of service; whatever lay on it must have been given back."""
        ...

    def repair(self, node: int) -> None:
        """Put a node back into service, empty."""
        ...


class FreeGpus:
    """Nodes of each type in buckets by their number of free GPUs, each bucket a set of bits.

    The least node of a bucket is its lowest bit, so the best fit of a gang is found in as many
    steps as a node has GPUs, whatever the number of nodes.
    """

    def __init__(self, cluster: Cluster, up: Bools) -> None:
        self._kind: list[int] = cluster.node_type.tolist()
        self._size: list[int] = cluster.node_gpus.tolist()
        self._free: list[int] = cluster.node_gpus.tolist()
        self._up: list[bool] = up.tolist()
        largest = max(self._size, default=0)
        self._buckets = [[0] * (largest + 1) for _ in range(cluster.types.size)]
        for node, (kind, free) in enumerate(zip(self._kind, self._free, strict=True)):
            if self._up[node]:
                self._buckets[kind][free] |= 1 << node

    def _move(self, node: int, free: int) -> None:
        if self._up[node]:
            buckets, bit = self._buckets[self._kind[node]], 1 << node
            buckets[self._free[node]] ^= bit
            buckets[free] |= bit
        self._free[node] = free

    def take(self, row: int, kind: int, gpus: int) -> Hosts | None:
        """Find room for a gang on the fewest nodes and occupy it.

        On one node where possible: the fullest that has room, the lowest on ties. Else the
        emptiest nodes whole, and the last piece where it fits best.
        """
        buckets, need = self._buckets[kind], gpus
        taken: list[tuple[int, int]] = []
        top = len(buckets) - 1
        while need:
            for free in range(need, top + 1):
                if bits := buckets[free]:
                    node = (bits & -bits).bit_length() - 1
                    self._move(node, free - need)
                    if not taken:
                        return ((node, need),)
                    taken.append((node, need))
                    return tuple(sorted(taken))
            top = min(top, need - 1)
            while top and not buckets[top]:
                top -= 1
            if not top:
                for node, count in taken:
                    self._move(node, self._free[node] + count)
                return None
            bits = buckets[top]
            node = (bits & -bits).bit_length() - 1
            self._move(node, 0)
            taken.append((node, top))
            need -= top
        return tuple(sorted(taken))

    def occupy(self, row: int, hosts: Hosts) -> None:
        """Occupy given GPUs; the caller has checked that they are free."""
        for node, count in hosts:
            self._move(node, self._free[node] - count)

    def give(self, row: int, hosts: Hosts) -> None:
        """Free given GPUs."""
        for node, count in hosts:
            self._move(node, self._free[node] + count)

    def fail(self, node: int) -> None:
        """Take a node out of service; whatever lay on it must have been given back."""
        if self._up[node]:
            self._buckets[self._kind[node]][self._free[node]] ^= 1 << node
            self._up[node] = False

    def repair(self, node: int) -> None:
        """Put a node back into service, empty."""
        if not self._up[node]:
            self._free[node] = self._size[node]
            self._up[node] = True
            self._buckets[self._kind[node]][self._size[node]] |= 1 << node


class FreeHosts:
    """Free GPUs, CPU cores and host memory of nodes, for jobs that ask for all three.

    A gang needs CPU cores and memory on each node in proportion to its GPUs there. This is a
    scan over the nodes of a type: slower than ``FreeGpus``, and used only where a job asks.
    """

    def __init__(self, cluster: Cluster, up: Bools, jobs: Jobs) -> None:
        self._kind = cluster.node_type
        self._size = (cluster.node_gpus, cluster.node_cpus, cluster.node_memory_gib)
        self._up = np.array(up)
        self._nodes = [np.flatnonzero(self._kind == k) for k in range(cluster.types.size)]
        self._gpus: Ints = np.array(cluster.node_gpus)
        self._used_cpus: Floats = np.zeros(self._gpus.size)
        self._used_memory: Floats = np.zeros(self._gpus.size)
        self._cpus_each: Floats = jobs.cpus / jobs.gang
        self._memory_each: Floats = jobs.memory_gib / jobs.gang

    def _usable(self, row: int, kind: int) -> Ints:
        nodes = self._nodes[kind]
        usable = np.where(self._up[nodes], self._gpus[nodes], 0)
        for each, size, used in (
            (float(self._cpus_each[row]), self._size[1], self._used_cpus),
            (float(self._memory_each[row]), self._size[2], self._used_memory),
        ):
            if each > 0:
                left = (size[nodes] - used[nodes]) / each
                whole = np.floor(left * (1 + HOST_RELATIVE) + HOST_RELATIVE)
                usable = np.minimum(usable, np.maximum(whole, 0.0))
        return usable.astype(np.int64)

    def take(self, row: int, kind: int, gpus: int) -> Hosts | None:
        """Find room for a gang on the fewest nodes and occupy it; None where there is none."""
        nodes, usable = self._nodes[kind], self._usable(row, kind)
        free, need = self._gpus[nodes], gpus
        if int(usable.sum()) < gpus:
            return None
        taken: list[tuple[int, int]] = []
        while need:
            fits = np.flatnonzero(usable >= need)
            if fits.size:
                at = int(fits[np.argmin(free[fits])])
                count = need
            else:
                at = int(np.argmax(usable))
                count = int(usable[at])
            taken.append((int(nodes[at]), count))
            usable[at] = 0
            need -= count
        hosts = tuple(sorted(taken))
        self.occupy(row, hosts)
        return hosts

    def occupy(self, row: int, hosts: Hosts) -> None:
        """Occupy given GPUs, with their share of CPU cores and memory."""
        for node, count in hosts:
            self._add(row, node, count)

    def give(self, row: int, hosts: Hosts) -> None:
        """Free given GPUs, with their share of CPU cores and memory."""
        for node, count in hosts:
            self._add(row, node, -count)

    def _add(self, row: int, node: int, count: int) -> None:
        self._gpus[node] -= count
        if self._gpus[node] == self._size[0][node]:
            # an empty node is exactly empty: rounding does not pile up over a long run
            self._used_cpus[node] = self._used_memory[node] = 0.0
            return
        self._used_cpus[node] += count * self._cpus_each[row]
        self._used_memory[node] += count * self._memory_each[row]

    def fail(self, node: int) -> None:
        """Take a node out of service; whatever lay on it must have been given back."""
        self._up[node] = False

    def repair(self, node: int) -> None:
        """Put a node back into service, empty."""
        self._gpus[node] = self._size[0][node]
        self._used_cpus[node] = self._used_memory[node] = 0.0
        self._up[node] = True


def room(cluster: Cluster, up: Bools, jobs: Jobs) -> Room:
    """Pick the cheaper bookkeeping that is enough for these jobs on this cluster."""
    cpus = np.isfinite(cluster.node_cpus).any() and jobs.cpus.any()
    memory = np.isfinite(cluster.node_memory_gib).any() and jobs.memory_gib.any()
    return FreeHosts(cluster, up, jobs) if cpus or memory else FreeGpus(cluster, up)
