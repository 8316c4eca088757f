"""The GPUs there are: types, nodes, racks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import cast

import numpy as np

from apportion.instances.columns import (
    Floats,
    Ints,
    Names,
    equal_columns,
    floats,
    freeze,
    ints,
    names,
    require,
)
from apportion.instances.errors import InstanceError, nearest


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes of GPUs, one GPU type a node.

    Parameters
    ----------
    types
        Names of the k GPU types.
    type_memory_gib
        Memory of one GPU of each type, shape (k,); infinity where it is not tracked.
    nodes
        Names of the m nodes.
    node_type
        Index into ``types``, shape (m,).
    node_gpus
        GPUs of each node, shape (m,), at least 1.
    node_cpus
        CPU cores of each node; infinity where they are not tracked.
    node_memory_gib
        Host memory of each node; infinity where it is not tracked.
    node_rack
        Index into ``racks`` (the rack or the switch), shape (m,).
    racks
        Names of the racks.

    Raises
    ------
    InstanceError
        On unknown types, repeated names, negative or non-finite sizes.
    """

    types: Names
    type_memory_gib: Floats
    nodes: Names
    node_type: Ints
    node_gpus: Ints
    node_cpus: Floats
    node_memory_gib: Floats
    node_rack: Ints
    racks: Names

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("types", names(self.types, "cluster.types"))
        k = self.types.size
        if k == 0:
            raise InstanceError("cluster.types is empty: a cluster needs at least one GPU type")
        put("type_memory_gib", floats(self.type_memory_gib, "cluster.type_memory_gib", (k,)))
        put("nodes", names(self.nodes, "cluster.nodes"))
        m = self.nodes.size
        put("racks", names(self.racks, "cluster.racks"))
        for field in ("node_type", "node_gpus", "node_rack"):
            put(field, ints(getattr(self, field), f"cluster.{field}", (m,)))
        for field in ("node_cpus", "node_memory_gib"):
            put(field, floats(getattr(self, field), f"cluster.{field}", (m,)))
        self._check()

    def _check(self) -> None:
        k, racks = self.types.size, self.racks.size
        require(
            self.type_memory_gib, self.type_memory_gib > 0, "cluster.type_memory_gib",
            "memory must be positive",
        )  # fmt: skip
        known = (self.node_type >= 0) & (self.node_type < k)
        require(self.node_type, known, "cluster.node_type", f"there are {k} GPU types")
        require(
            self.node_gpus, self.node_gpus >= 1, "cluster.node_gpus",
            "a node needs at least 1 GPU; leave out nodes that are gone",
        )  # fmt: skip
        known = (self.node_rack >= 0) & (self.node_rack < racks)
        require(self.node_rack, known, "cluster.node_rack", f"there are {racks} racks")
        for field in ("node_cpus", "node_memory_gib"):
            column = cast(Floats, getattr(self, field))
            require(column, column >= 0, f"cluster.{field}", "must not be negative")

    @classmethod
    def uniform(
        cls,
        gpus: Mapping[str, int],
        *,
        gpus_per_node: int | Mapping[str, int] = 8,
        memory_gib: Mapping[str, float] | None = None,
        cpus_per_node: float = np.inf,
        node_memory_gib: float = np.inf,
    ) -> Cluster:
        """Build a cluster from GPU counts; the last node of a type takes the remainder.

        Parameters
        ----------
        gpus
            GPUs of each type; zero is allowed and keeps the type without nodes.
        gpus_per_node
            One number, or one for each type.
        memory_gib
            Memory of one GPU, for the types where it is to be tracked.
        cpus_per_node, node_memory_gib
            Sizes of every node; infinity leaves them untracked.
        """
        kinds = list(gpus)
        for named in [
            memory_gib or {},
            gpus_per_node if isinstance(gpus_per_node, Mapping) else {},
        ]:
            for name in named:
                if name not in gpus:
                    raise InstanceError(f"cluster: unknown GPU type {name!r}{nearest(name, kinds)}")
        node_type: list[int] = []
        node_gpus: list[int] = []
        for index, kind in enumerate(kinds):
            each = gpus_per_node[kind] if isinstance(gpus_per_node, Mapping) else gpus_per_node
            left = gpus[kind]
            if left < 0:
                raise InstanceError(f"cluster.gpus[{kind!r}] = {left}: must not be negative")
            if each < 1:
                raise InstanceError(f"cluster.gpus_per_node = {each}: must be at least 1")
            while left > 0:
                node_type.append(index)
                node_gpus.append(min(each, left))
                left -= each
        m = len(node_type)
        return cls(
            types=cast(Names, kinds),
            type_memory_gib=np.array([(memory_gib or {}).get(kind, np.inf) for kind in kinds]),
            nodes=cast(Names, [f"node-{index}" for index in range(m)]),
            node_type=np.array(node_type, dtype=np.int64),
            node_gpus=np.array(node_gpus, dtype=np.int64),
            node_cpus=np.full(m, cpus_per_node),
            node_memory_gib=np.full(m, node_memory_gib),
            node_rack=np.zeros(m, dtype=np.int64),
            racks=cast(Names, ["rack-0"]),
        )

    @cached_property
    def gpus(self) -> Ints:
        """GPUs of each type, shape (k,)."""
        counted = np.bincount(self.node_type, weights=self.node_gpus, minlength=self.types.size)
        out = counted.astype(np.int64)
        freeze(out)
        return out

    @cached_property
    def tracks_gpu_memory(self) -> bool:
        """Whether the memory of any GPU type is known."""
        return bool(np.isfinite(self.type_memory_gib).any())

    def type_index(self, name: str) -> int:
        """Find a GPU type by name; an unknown one raises with the nearest right spelling."""
        found = np.flatnonzero(self.types == name)
        if not found.size:
            known = [str(kind) for kind in self.types]
            raise InstanceError(f"cluster: unknown GPU type {name!r}{nearest(name, known)}")
        return int(found[0])

    def __eq__(self, other: object) -> bool:
        own = [field.name for field in fields(self)]
        return isinstance(other, Cluster) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
