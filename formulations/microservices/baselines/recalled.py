"""Memory of rules that look back: plain columns, matched by name where the application changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from apportion.formulations.microservices.plain import running
from apportion.instances.columns import Floats, Ints, Names, floats, ints, names
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import MicroserviceRound

MOST_SAMPLES = 1000
"""Rounds that are remembered at most: older ones have lost their weight long before."""


def field(memory: Any, policy: str, name: str) -> Any:
    """Read a field of a memory.

    Raises
    ------
    InstanceError
        Where the memory is not one of the policy.
    """
    if not isinstance(memory, Mapping) or name not in memory:
        raise InstanceError(f"memory: not one of {policy}: it lacks {name}")
    return cast("Mapping[str, Any]", memory)[name]


def places(known: Names, wanted: Names) -> Ints:
    """Row of each wanted name among the known ones, -1 for newcomers."""
    row = {name: at for at, name in enumerate(known.tolist())}
    return np.array([row.get(name, -1) for name in wanted.tolist()], dtype=np.int64)


def column(memory: Any, policy: str, key: str, name: str, wanted: Names, default: float) -> Floats:
    """Read a column of a memory in the order of this round's names.

    Parameters
    ----------
    memory
        The memory, or None.
    policy
        Whose it should be.
    key, name
        Fields with the names, and with the numbers.
    wanted
        Names of this round.
    default
        Number for newcomers.
    """
    out = np.full(wanted.size, default)
    if memory is None:
        return out
    known = names(field(memory, policy, key), f"memory.{key}")
    values = floats(field(memory, policy, name), f"memory.{name}", (known.size,))
    at = places(known, wanted)
    out[at >= 0] = values[at[at >= 0]]
    return out


def history(
    memory: Any, policy: str, name: str, wanted: Names, since_s: float
) -> tuple[Floats, Floats]:
    """Read a table of past rounds in the order of this round's microservices.

    Parameters
    ----------
    memory
        The memory, or None.
    policy
        Whose it should be.
    name
        Field with the table.
    wanted
        Names of this round's microservices.
    since_s
        Earlier rounds are left out.

    Returns
    -------
    Times, shape (H,), and the table, shape (H, M), zero for newcomers.
    """
    if memory is None:
        return np.zeros(0), np.zeros((0, wanted.size))
    known = names(field(memory, policy, "id"), "memory.id")
    time_s = floats(field(memory, policy, "time_s"), "memory.time_s")
    if time_s.ndim != 1:  # one time a round
        raise InstanceError(f"memory.time_s has {time_s.ndim} dimensions, expected 1")
    table = floats(field(memory, policy, name), f"memory.{name}", (time_s.size, known.size))
    at, kept = places(known, wanted), time_s >= since_s
    out = np.zeros((int(kept.sum()), wanted.size))
    out[:, at >= 0] = table[kept][:, at[at >= 0]]
    return time_s[kept], out


def with_round(
    time_s: Floats, table: Floats, round_: MicroserviceRound, row: Floats | Ints, name: str
) -> dict[str, Any]:
    """Append this round to what is remembered."""
    earlier = time_s < round_.now_s  # a round decided twice counts once
    times = np.append(time_s[earlier], round_.now_s)
    rows = np.vstack((table[earlier], np.asarray(row, dtype=np.float64)[None, :]))
    return {
        "id": round_.microservices.id,
        "time_s": times[-MOST_SAMPLES:],
        name: rows[-MOST_SAMPLES:],
    }


def current(round_: MicroserviceRound, memory: Any, policy: str, utilisation: float) -> Ints:
    """Containers that run now: measured, else the last plan, else those of a utilisation."""
    start = running(round_, utilisation)
    if round_.containers is not None or memory is None:
        return start
    ids = round_.microservices.id
    last = column(memory, policy, "id", "containers", ids, -1.0)
    known = last >= 0
    return ints(np.where(known, np.floor(last), start), "memory.containers")


def last_plan(round_: MicroserviceRound, containers: Ints) -> dict[str, Any]:
    """Remember a plan."""
    return {"id": round_.microservices.id, "containers": containers.astype(np.float64)}
