"""What a fair-share policy means each user to have, before whole gangs and leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.instances.columns import (
    Floats,
    Ints,
    Names,
    equal_columns,
    finite,
    floats,
    ints,
    names,
    require,
)
from apportion.instances.errors import InstanceError
from apportion.instances.files import shown

_KEYS = ("user", "weight", "gpus", "of_job", "whole_gang")


@dataclass(frozen=True, eq=False)
class Shares:
    """GPUs of each type that each user is meant to have, averaged over time.

    A user is whoever the policy is fair to: a tenant, a tenant's jobs of one model, or a job.

    Parameters
    ----------
    user
        Name of each user, unique, shape (u,).
    weight
        What each is entitled to relative to the others, positive, shape (u,).
    gpus
        GPUs of each type, averaged over time, shape (u, k).
    of_job
        User of each job of the round, -1 for jobs that have no part in it, shape (n,). Every job
        of a user runs at the same relative speeds.
    whole_gang
        True: each user is one job, which uses its own gang or nothing at any moment, so that its
        part of the time on type i is ``gpus[u, i] / gang`` and these parts add up to 1 at most.
        False: a user can use any number of GPUs at a time.

    Raises
    ------
    InstanceError
        On columns that do not fit together, or numbers that are negative or not finite.
    """

    user: Names
    weight: Floats
    gpus: Floats
    of_job: Ints
    whole_gang: bool = False

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("user", names(self.user, "shares.user"))
        users = self.user.size
        put("weight", floats(self.weight, "shares.weight", (users,)))
        finite(self.weight, "shares.weight")
        require(self.weight, self.weight > 0, "shares.weight", "must be positive")
        kinds = np.shape(self.gpus)[1] if np.ndim(self.gpus) == 2 else 0
        put("gpus", floats(self.gpus, "shares.gpus", (users, kinds)))
        finite(self.gpus, "shares.gpus")
        require(self.gpus, self.gpus >= 0, "shares.gpus", "must not be negative")
        jobs = np.size(self.of_job)
        put("of_job", ints(self.of_job, "shares.of_job", (jobs,)))
        known = (self.of_job >= -1) & (self.of_job < users)
        require(self.of_job, known, "shares.of_job", f"there are {users} users")

    def to_dict(self) -> dict[str, Any]:
        """Give the shares as plain data for JSON."""
        return {
            "user": self.user.tolist(),
            "weight": self.weight.tolist(),
            "gpus": self.gpus.tolist(),
            "of_job": self.of_job.tolist(),
            "whole_gang": self.whole_gang,
        }

    @classmethod
    def from_dict(cls, data: object) -> Shares:
        """Read what ``to_dict`` gave.

        Raises
        ------
        InstanceError
            On missing or unknown keys, and on columns that do not fit together.
        """
        told = shown(data)
        known = cast("Mapping[str, Any]", data if isinstance(data, Mapping) else {})
        if set(known) != set(_KEYS):
            raise InstanceError(f"shares: expected keys {', '.join(_KEYS)}, got {told}")
        if not isinstance(known["whole_gang"], bool):
            raise InstanceError(
                f"shares.whole_gang = {shown(known['whole_gang'])}: must be true or false"
            )
        return cls(**{key: known[key] for key in _KEYS})

    def __eq__(self, other: object) -> bool:
        own = ("user", "weight", "gpus", "of_job", "whole_gang")
        return isinstance(other, Shares) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed
