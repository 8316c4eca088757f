"""Who the jobs belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from apportion.instances.columns import (
    Floats,
    Names,
    equal_columns,
    finite,
    floats,
    names,
    require,
)


@dataclass(frozen=True, eq=False)
class Tenants:
    """Tenants and their shares.

    Parameters
    ----------
    id
        Names of the tenants, unique.
    weight
        Share of each tenant, positive.
    quota_gpus
        GPUs a tenant is entitled to; infinity where no quota is set.
    """

    id: Names
    weight: Floats
    quota_gpus: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "tenants.id"))
        put("weight", floats(self.weight, "tenants.weight", (self.id.size,)))
        put("quota_gpus", floats(self.quota_gpus, "tenants.quota_gpus", (self.id.size,)))
        finite(self.weight, "tenants.weight")
        require(self.weight, self.weight > 0, "tenants.weight", "must be positive")
        require(self.quota_gpus, self.quota_gpus >= 0, "tenants.quota_gpus", "must not be negative")

    @classmethod
    def named(cls, *ids: str) -> Tenants:
        """Tenants of equal weight and without quotas."""
        count = len(ids)
        return cls(cast(Names, list(ids)), np.ones(count), np.full(count, np.inf))

    def __eq__(self, other: object) -> bool:
        own = ("id", "weight", "quota_gpus")
        return isinstance(other, Tenants) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
