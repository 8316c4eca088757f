"""Classes of requests: call graphs that occur, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.instances.columns import (
    Floats,
    Ints,
    Names,
    equal_columns,
    floats,
    ints,
    names,
    require,
)
from apportion.instances.microservices.call_trees import CallTrees


@dataclass(frozen=True, eq=False)
class CallClasses:
    """Call graphs with their shares of the requests of a service.

    Parameters
    ----------
    id
        Names, unique, shape (K,).
    service
        Row of the service each belongs to, shape (K,).
    share
        Probability that a request of the service follows it, shape (K,).
    trees
        Call tree of each.
    """

    id: Names
    service: Ints
    share: Floats
    trees: CallTrees

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "classes.id", count=len(self.trees)))
        put("service", ints(self.service, "classes.service", (self.id.size,)))
        put("share", floats(self.share, "classes.share", (self.id.size,)))
        require(
            self.share, (self.share >= 0) & (self.share <= 1), "classes.share",
            "must lie between 0 and 1", self.id, "class",
        )  # fmt: skip
        require(self.service, self.service >= 0, "classes.service", "does not exist")

    @classmethod
    def of(
        cls,
        id: object,  # the column's name
        trees: CallTrees,
        *,
        share: object = None,
        service: object = None,
    ) -> CallClasses:
        """Build from any sequences; by default one service whose classes are equally likely."""
        count = len(trees)
        shares = np.full(count, 1.0 / max(count, 1)) if share is None else share
        owner = np.zeros(count, dtype=np.int64) if service is None else service
        return cls(
            names(id, "classes.id", count=count), ints(owner, "classes.service", (count,)),
            floats(shares, "classes.share", (count,)), trees,
        )  # fmt: skip

    def with_share(self, share: object) -> CallClasses:
        """Give the same classes with other shares."""
        return replace(self, share=share)

    def __len__(self) -> int:
        return self.id.size

    def __eq__(self, other: object) -> bool:
        own = ("id", "service", "share", "trees")
        return isinstance(other, CallClasses) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
