"""The machines that containers are placed on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Names, equal_columns, floats, names, require, sized

_COLUMNS = ("cpu_cores", "memory_mib", "cpu_used", "memory_used_mib")


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes and what others use of them.

    Parameters
    ----------
    id
        Names, unique, shape (J,).
    cpu_cores, memory_mib
        Size of each node.
    cpu_used, memory_used_mib
        What does not belong to this application, in cores and MiB.
    """

    id: Names
    cpu_cores: Floats
    memory_mib: Floats
    cpu_used: Floats
    memory_used_mib: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "nodes.id"))
        for name in _COLUMNS:
            column = floats(getattr(self, name), f"nodes.{name}", (self.id.size,))
            sized(column, f"nodes.{name}")
            require(column, column >= 0, f"nodes.{name}", "must not be negative", self.id, "node")
            put(name, column)

    @classmethod
    def of(
        cls,
        id: object,  # the column's name
        cpu_cores: object,
        memory_mib: object,
        cpu_used: object = 0.0,
        memory_used_mib: object = 0.0,
    ) -> Nodes:
        """Build from any sequences; one number may serve all nodes."""
        ids = names(id, "nodes.id")
        columns = [
            np.full(ids.size, value) if isinstance(value, int | float) else value
            for value in (cpu_cores, memory_mib, cpu_used, memory_used_mib)
        ]
        return cls(ids, *columns)  # pyright: ignore[reportArgumentType]  # checked inside

    def __len__(self) -> int:
        return self.id.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and equal_columns(self, other, ("id", *_COLUMNS))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
