"""Call trees in columns: which call waits for which, and which run side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from apportion.instances.columns import (
    Floats,
    Ints,
    equal_columns,
    freeze,
    ints,
    ragged,
    require,
    sized,
)
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import spelt


@dataclass(frozen=True, eq=False)
class CallTrees:
    """The call trees of K classes of requests, C calls in all.

    A request runs the stages of its class one after the other; the calls of a stage run side by
    side. A call takes its own time and then that of its own stages. The latency of a request is
    the sum over stages of the largest member.

    Parameters
    ----------
    offsets
        Calls of class k are rows ``offsets[k]:offsets[k + 1]``, shape (K + 1,).
    microservice
        Who is called, shape (C,).
    parent
        Who calls, as a place inside the class and before the call itself; -1: the request.
    stage
        Number of the stage below the parent: equal numbers run side by side, others in rising
        order.
    calls
        How often the call is made for each call of its parent, positive.

    Raises
    ------
    InstanceError
        Where a parent does not come before its calls (a cycle), or a value is out of range.
    """

    offsets: Ints
    microservice: Ints
    parent: Ints
    stage: Ints
    calls: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        starts = ints(self.offsets, "calls_offsets")
        if starts.ndim != 1 or not starts.size:
            raise InstanceError("calls_offsets: needs one number more than there are classes")
        offsets, calls = ragged(starts, self.calls, "calls", starts.size - 1)
        put("offsets", offsets)
        put("calls", calls)
        shape = (calls.size,)
        for name in ("microservice", "parent", "stage"):
            put(name, ints(getattr(self, name), f"calls.{name}", shape))
        sized(calls, "calls.calls", ratio=True)
        require(calls, calls > 0, "calls.calls", "must be positive")
        require(self.microservice, self.microservice >= 0, "calls.microservice", "does not exist")
        require(self.stage, self.stage >= 0, "calls.stage", "must not be negative")
        place = np.arange(calls.size) - offsets[self.class_of]
        require(
            self.parent, (self.parent >= -1) & (self.parent < place), "calls.parent",
            "must come before the call it makes: calls must not form a cycle",
        )  # fmt: skip

    @classmethod
    def nested(cls, trees: Sequence[Sequence[Any]], microservices: Sequence[str]) -> CallTrees:
        """Build from nested lists, as files hold them.

        Parameters
        ----------
        trees
            For each class its stages: lists of calls, each a table with ``microservice`` (a
            name), ``calls`` (default 1) and ``stages`` (default none).
        microservices
            Names of the microservices, in order.

        Raises
        ------
        InstanceError
            On unknown names and keys, with the nearest known ones.
        """
        code = {str(name): at for at, name in enumerate(microservices)}
        columns: dict[str, list[Any]] = {
            name: [] for name in ("microservice", "parent", "stage", "calls")
        }
        offsets = [0]
        for at, stages in enumerate(trees):
            _flatten(stages, code, columns, offsets[-1], f"classes.stages[{at}]")
            offsets.append(len(columns["calls"]))
        return cls(cast(Ints, offsets), **cast(Any, columns))

    @classmethod
    def serial(cls, calls: object) -> CallTrees:
        """Build classes that call their microservices one after the other.

        Parameters
        ----------
        calls
            Calls of microservice m in one request of class k, shape (M, K); 0: not called.
        """
        table = np.atleast_2d(np.asarray(calls, dtype=np.float64))
        if not (np.isfinite(table) & (table >= 0)).all():
            raise InstanceError("calls: must be finite and not negative")
        of_class, called = np.nonzero(table.T)
        counts = np.bincount(of_class, minlength=table.shape[1])
        offsets = np.concatenate(([0], np.cumsum(counts)))
        stage = np.arange(called.size) - offsets[of_class]
        return cls(offsets, called, np.full(called.size, -1), stage, table[called, of_class])

    def __len__(self) -> int:
        return self.offsets.size - 1

    @cached_property
    def class_of(self) -> Ints:
        """Class of each call, shape (C,)."""
        out = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        freeze(out)
        return cast(Ints, out)

    @cached_property
    def parent_row(self) -> Ints:
        """Row of each call's parent among all calls, -1 for the request, shape (C,)."""
        out = np.where(self.parent < 0, -1, self.parent + self.offsets[self.class_of])
        freeze(out)
        return cast(Ints, out)

    @cached_property
    def per_request(self) -> Floats:
        """How often each call is made in one request, shape (C,): a repeated call repeats all
        that is below it."""
        out = self.calls.copy()
        for row in np.flatnonzero(self.parent >= 0):  # parents come first
            out[row] *= out[self.parent_row[row]]
        freeze(out)
        return out

    def demand(self, microservices: int) -> Floats:
        """Calls of each microservice in one request of each class, shape (M, K)."""
        out = np.zeros((microservices, len(self)))
        np.add.at(out, (self.microservice, self.class_of), self.per_request)
        freeze(out)
        return out

    def nested_lists(self, microservices: Sequence[str]) -> list[list[Any]]:
        """Give the trees as nested lists; the inverse of ``nested`` up to numbers of stages."""
        return [self._stages(k, -1, microservices) for k in range(len(self))]

    def _stages(self, k: int, parent: int, microservices: Sequence[str]) -> list[Any]:
        low, high = int(self.offsets[k]), int(self.offsets[k + 1])
        rows = low + np.flatnonzero(self.parent[low:high] == parent)
        stages: list[Any] = []
        for number in np.unique(self.stage[rows]):
            members: list[Any] = []
            for row in rows[self.stage[rows] == number]:
                call: dict[str, Any] = {
                    "microservice": str(microservices[int(self.microservice[row])])
                }
                if self.calls[row] != 1:
                    call["calls"] = float(self.calls[row])
                if below := self._stages(k, int(row) - low, microservices):
                    call["stages"] = below
                members.append(call)
            stages.append(members)
        return stages

    def __eq__(self, other: object) -> bool:
        own = ("offsets", "microservice", "parent", "stage", "calls")
        return isinstance(other, CallTrees) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


_KEYS = ("microservice", "calls", "stages")


def _flatten(
    stages: Any, code: Mapping[str, int], columns: dict[str, list[Any]], first: int, where: str
) -> None:
    """Append the calls of a class, parents before what they call."""
    waiting: list[tuple[Any, int, str]] = [(stages, -1, where)]
    while waiting:
        below, parent, path = waiting.pop()
        for number, members in enumerate(_listed(below, path)):
            for at, call in enumerate(_listed(members, f"{path}[{number}]")):
                place = f"{path}[{number}][{at}]"
                _append(call, code, columns, (parent, number), place)
                if "stages" in call:
                    own = len(columns["calls"]) - 1 - first
                    waiting.append((call["stages"], own, f"{place}.stages"))


def _append(
    call: Any,
    code: Mapping[str, int],
    columns: dict[str, list[Any]],
    at: tuple[int, int],
    where: str,
) -> None:
    if not isinstance(call, Mapping):
        raise InstanceError(f"{where}: expected a table with a microservice, got {call!r}")
    table = cast("Mapping[str, Any]", call)
    for key in table:
        if key not in _KEYS:
            raise InstanceError(f"{where}.{spelt(key)}: unknown key{nearest(str(key), _KEYS)}")
    name = table.get("microservice")
    if not isinstance(name, str) or name not in code:
        hint = nearest(name, code) if isinstance(name, str) else ""
        raise InstanceError(f"{where}.microservice = {name!r}: is not a microservice{hint}")
    often = table.get("calls", 1.0)
    if isinstance(often, bool) or not isinstance(often, int | float) or not often > 0:
        raise InstanceError(f"{where}.calls = {often!r}: must be a positive number")
    columns["microservice"].append(code[name])
    columns["parent"].append(at[0])
    columns["stage"].append(at[1])
    columns["calls"].append(often)


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise InstanceError(f"{where}: expected a list, got {value!r}")
    return list(cast("Sequence[Any]", value))
