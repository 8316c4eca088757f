"""What Chronus knows of the jobs of a round: its memory, read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.formulations.training.astraea.service import places
from apportion.instances.columns import Bools, Floats, Ints, floats, ints, names, require
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound

LOWEST, ACCEPTED, UNACCEPTED, BEST_EFFORT, NEW = -1, 0, 1, 2, -2
"""States of jobs; a new one has not been asked about."""

STATE_NAMES = {
    LOWEST: "LOWEST",
    ACCEPTED: "ACCEPTED_SLO",
    UNACCEPTED: "UNACCEPTED_SLO",
    BEST_EFFORT: "BEST_EFFORT",
    NEW: "NEW",
}
"""How states are told; whoever is remembered as new is being profiled, or time ran out."""

NOTHING = -1
"""Type, due or counter-offer of a job that has none."""

_COLUMNS = ("state", "kind", "due")
_KEYS = ("id", "code", *_COLUMNS, "counter_offer_s", "offsets", "lease", "lease_s", "rejected")


@dataclass(eq=False)
class Standing:
    """States, promises and reservations of the jobs of a round; changed while it is decided.

    Attributes
    ----------
    state
        State of each job, shape (n,).
    kind
        GPU type on which it has its reservations, ``NOTHING`` for none, shape (n,).
    due
        First lease that is too late for what was promised, ``NOTHING`` for none, shape (n,).
    counter_offer_s
        Earliest deadline that would have been promised to a rejected job, ``NOTHING`` for none.
    leases
        Reserved leases by row, rising; jobs without any have no entry.
    rejected
        Whether a rejected job was there at the last boundary.
    """

    state: Ints
    kind: Ints
    due: Ints
    counter_offer_s: Floats
    leases: dict[int, Ints]
    rejected: bool

    def accepted(self) -> Ints:
        """Rows of the accepted jobs."""
        return np.flatnonzero(self.state == ACCEPTED)

    def demote(self, row: int, state: int = UNACCEPTED) -> None:
        """Take promise and reservations from a job."""
        self.state[row], self.kind[row], self.due[row] = state, NOTHING, NOTHING
        self.leases.pop(row, None)

    def copy(self) -> Standing:
        """Copy, so that the answer without a solver and the one with it begin alike."""
        return Standing(
            self.state.copy(), self.kind.copy(), self.due.copy(), self.counter_offer_s.copy(),
            dict(self.leases), self.rejected,
        )  # fmt: skip


def recall(round_: TrainingRound, memory: Any, lease_s: float) -> Standing:
    """Read what is known of a round's jobs.

    Raises
    ------
    InstanceError
        On a memory that is not Chronus', or one with leases of another length.
    """
    n = len(round_.jobs)
    out = Standing(
        np.full(n, NEW), np.full(n, NOTHING), np.full(n, NOTHING), np.full(n, float(NOTHING)), {},
        False,
    )  # fmt: skip
    if memory is None:
        return out
    told = _read(memory, round_, lease_s)
    at = places(told["id"], told["code"], round_.jobs.id, round_.jobs.code)
    found = np.flatnonzero(at >= 0)
    for name in (*_COLUMNS, "counter_offer_s"):
        getattr(out, name)[found] = told[name][at[found]]
    offsets, lease = told["offsets"], told["lease"]
    reserved = found[np.diff(offsets)[at[found]] > 0]
    for row, place in zip(reserved.tolist(), at[reserved].tolist(), strict=True):
        out.leases[row] = lease[offsets[place] : offsets[place + 1]]
    out.rejected = bool(told["rejected"])
    return out


def written(round_: TrainingRound, standing: Standing, lease_s: float) -> dict[str, Any]:
    """Write memory: plain columns by job."""
    jobs = round_.jobs
    count = np.zeros(len(jobs), dtype=np.int64)
    rows = sorted(standing.leases)
    count[rows] = [standing.leases[row].size for row in rows]
    lease = [standing.leases[row] for row in rows]
    return {
        "id": np.array(jobs.id),
        "code": np.array(jobs.code),
        "state": standing.state.copy(),
        "kind": standing.kind.copy(),
        "due": standing.due.copy(),
        "counter_offer_s": standing.counter_offer_s.copy(),
        "offsets": np.concatenate(([0], np.cumsum(count))).astype(np.int64),
        "lease": np.concatenate(lease) if lease else np.zeros(0, dtype=np.int64),
        "lease_s": float(lease_s),
        "rejected": bool(standing.rejected),
    }


def without(memory: dict[str, Any], gone: Bools) -> dict[str, Any]:
    """Drop jobs from a memory."""
    if not gone.any():
        return memory
    stay = ~gone
    out = dict(memory)
    for name in ("id", "code", *_COLUMNS, "counter_offer_s"):
        out[name] = memory[name][stay]
    count = np.diff(memory["offsets"])
    out["offsets"] = np.concatenate(([0], np.cumsum(count[stay]))).astype(np.int64)
    out["lease"] = memory["lease"][np.repeat(stay, count)]
    return out


def _read(memory: Any, round_: TrainingRound, lease_s: float) -> dict[str, Any]:
    if not isinstance(memory, dict) or not set(_KEYS) <= set(cast("dict[str, Any]", memory)):
        raise InstanceError("memory: not one of chronus: it lacks a column")
    told = dict(cast("dict[str, Any]", memory))
    given = np.asarray(told["id"])
    told["id"] = given if given.dtype.kind == "U" else names(told["id"], "memory.id")
    shape = (told["id"].size,)
    for name in ("code", *_COLUMNS):
        told[name] = ints(told[name], f"memory.{name}", shape)
    told["counter_offer_s"] = floats(told["counter_offer_s"], "memory.counter_offer_s", shape)
    told["lease"] = ints(told["lease"], "memory.lease")
    offsets = told["offsets"] = ints(told["offsets"], "memory.offsets", (shape[0] + 1,))
    if int(offsets[0]) or int(offsets[-1]) != told["lease"].size:
        raise InstanceError("memory.offsets: must run from 0 to the number of leases")
    require(offsets, np.diff(offsets, prepend=0) >= 0, "memory.offsets", "must not fall")
    state, kind, k = told["state"], told["kind"], round_.cluster.types.size
    require(state, np.isin(state, list(STATE_NAMES)), "memory.state", "is no state of a job")
    require(kind, (kind >= NOTHING) & (kind < k), "memory.kind", f"there are {k} GPU types")
    require(state, (state != ACCEPTED) | (kind >= 0), "memory.state", "needs a GPU type")
    inner = np.ones(told["lease"].size, dtype=np.bool_)
    first = offsets[:-1][np.diff(offsets) > 0]
    inner[first] = False
    rise = np.diff(told["lease"], prepend=0) > 0
    require(told["lease"], rise | ~inner, "memory.lease", "must rise within a job")
    if told["lease_s"] != lease_s:
        raise InstanceError(
            f"memory: its leases last {told['lease_s']} s, those of chronus {lease_s:g} s"
        )
    return told
