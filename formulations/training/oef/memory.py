"""What OEF remembers: shares that stay as long as nothing changes, and what users are owed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.formulations.training.oef.noncooperative import Found
from apportion.formulations.training.oef.users import Users
from apportion.formulations.training.scalars import text
from apportion.instances.columns import LARGEST, Floats, Names, floats, names, require, sized
from apportion.instances.errors import InstanceError

_COLUMNS = ("user", "weight", "speed", "cap", "free", "gpus", "owed")
_NUMBERS = ("value", "bound")
_FLAGS = ("proved", "caps_bind")

NOT_BINDING = 1e-9
"""A share this near to a cap, relative, counts as held by it."""


@dataclass(frozen=True, eq=False)
class Remembered:
    """Shares of an earlier round, u users and k types.

    Parameters
    ----------
    form
        Name of the policy.
    user, weight, speed, cap, free
        What the shares were made for.
    gpus
        The shares, shape (u, k).
    owed
        GPU-rounds meant and not granted, shape (u, k).
    value, bound, proved
        Objective, and what was proved of it.
    caps_bind
        Whether the shares would be others without the caps.
    """

    form: str
    user: Names
    weight: Floats
    speed: Floats
    cap: Floats
    free: Floats
    gpus: Floats
    owed: Floats
    value: float
    bound: float
    proved: bool
    caps_bind: bool

    def found(self, users: Users, free: Floats, caps_bind: bool) -> Found | None:
        """The shares, if nothing that they depend on has changed; else None."""
        same = (
            self.proved
            and np.array_equal(self.user, users.name)
            and np.array_equal(self.weight, users.weight)
            and np.array_equal(self.speed, users.speed)
            and np.array_equal(self.free, free)
        )
        if not same:
            return None
        if not np.array_equal(self.cap, users.cap):
            # a cap that did not hold anybody back may go, and one that would not may come
            total = self.gpus.sum(axis=1)
            if self.caps_bind or caps_bind or bool((total > users.cap).any()):
                return None
        return Found(self.gpus, self.value, self.bound, proved=True)

    def owed_to(self, users: Users, kinds: int) -> Floats:
        """What each user of a round is owed, shape (u, k); newcomers nothing."""
        out = np.zeros((len(users), kinds))
        if self.owed.shape[1] != kinds:
            return out
        place = {name: at for at, name in enumerate(self.user.tolist())}
        at = np.array([place.get(name, -1) for name in users.name.tolist()], dtype=np.int64)
        out[at >= 0] = self.owed[at[at >= 0]]
        return out

    def to_memory(self) -> dict[str, Any]:
        """Give it as plain data."""
        keys = ("form", *_COLUMNS, *_NUMBERS, *_FLAGS)
        return {key: getattr(self, key) for key in keys}


def recall(memory: Any, form: str) -> Remembered | None:
    """Read a memory.

    Parameters
    ----------
    memory
        What ``remember`` returned, or None.
    form
        Name of the policy.

    Raises
    ------
    InstanceError
        On a memory that is not this policy's.
    """
    if memory is None:
        return None
    try:
        data = {key: memory[key] for key in ("form", *_COLUMNS, *_NUMBERS, *_FLAGS)}
    except (KeyError, TypeError, IndexError):
        raise InstanceError(f"memory: not one of {form}: it lacks a column") from None
    if text(data["form"], "memory.form") != form:
        raise InstanceError(f"memory.form = {data['form']!r}: this is {form}")
    user = names(data["user"], "memory.user")
    kinds = np.size(data["free"])
    table = (user.size, kinds)
    shapes = {"weight": table[:1], "speed": table, "cap": table[:1], "free": table[1:]}
    column: dict[str, Floats] = {}
    for key in _COLUMNS[1:]:
        value = floats(data[key], f"memory.{key}", shapes.get(key, table))
        sized(value, f"memory.{key}")
        if key != "owed":
            require(value, value >= 0.0, f"memory.{key}", "must not be negative")
        column[key] = value
    require(column["weight"], column["weight"] > 0.0, "memory.weight", "must be positive")
    return Remembered(
        form=form,
        user=user,
        value=_number(data["value"], "value"),
        bound=_number(data["bound"], "bound"),
        proved=_flag(data["proved"], "proved"),
        caps_bind=_flag(data["caps_bind"], "caps_bind"),
        **column,
    )


def _number(value: Any, key: str) -> float:
    try:
        out = float(value)
    except (TypeError, ValueError):
        out = np.nan
    if not 0.0 <= out <= LARGEST:
        raise InstanceError(f"memory.{key} = {value!r}: must be a number from 0 to {LARGEST:g}")
    return out


def _flag(value: Any, key: str) -> bool:
    if value is not True and value is not False:
        raise InstanceError(f"memory.{key} = {value!r}: must be true or false")
    return value
