"""From call trees with branches that are taken at random to classes with probabilities.

Branches are expanded bottom up: what a call may make is a list of trees with probabilities, and
equal trees are merged at once, so that many branches that lead to few trees stay few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import shown, spelt
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.class_merge import (
    LEAST_SHARE,
    MOST_CLASSES,
    MergedClasses,
    Rest,
    merge_classes,
)

PROBABILITY_TOLERANCE = 1e-9
"""How far probabilities written by hand may sum from 1."""

MOST_TREES = 20_000
"""Trees followed while branches are combined. Beyond it the rarest are dropped, or the expansion
is refused where nothing may be dropped."""

BELOW_LEAST = 0.1
"""Trees rarer than this part of ``least_share`` are dropped while branches are combined: they
could only be kept together with equal ones met later."""

_CALL_KEYS = ("microservice", "calls", "stages", "p", "branch")
_CHOICE_KEYS = ("one_of",)
_JOINT_KEYS = ("present", "p")

Tree: TypeAlias = tuple[Any, ...]
"""Members, a stage or stages, nested and hashable: (microservice, calls, stages)."""

Trees: TypeAlias = dict[Tree, float]
"""What may happen, and how likely each is; less than 1 in all where some was dropped."""


def expand(
    services: Mapping[str, Sequence[Any]],
    microservices: Sequence[str],
    *,
    joint: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    most_classes: int = MOST_CLASSES,
    least_share: float = LEAST_SHARE,
    rest: Rest = "unmodelled",
) -> MergedClasses:
    """Expand optional and exclusive branches into classes.

    Parameters
    ----------
    services
        For each service its stages: lists of members that run side by side. A member is a call,
        a table with ``microservice``, ``calls`` (default 1), ``stages`` (default none) and ``p``,
        the probability that it is made at all (default 1); or a choice, a table with ``one_of``,
        a list of calls of which at most one is made, each with its ``p``. Branches are taken
        independently of one another, once for all repeats of the calls above them.
    microservices
        Names of the microservices, in order.
    joint
        Where branches depend on one another: for a service, rows ``{"present": [...], "p": ...}``
        whose probabilities sum to 1. They decide the calls that bear ``branch`` (a name) in place
        of ``p``.
    most_classes, least_share, rest
        As in ``merge_classes``.

    Returns
    -------
    MergedClasses
        Shares and ``unmodelled_share`` sum to 1 for each service; ``class_of`` is empty.

    Raises
    ------
    InstanceError
        On unknown keys and names, and on probabilities out of range.
    """
    code = {str(name): at for at, name in enumerate(microservices)}
    names = [str(name) for name in services]
    tables = joint or {}
    for name in tables:
        if name not in services:
            raise InstanceError(f"joint.{spelt(name)}: unknown service{nearest(name, names)}")
    parts: list[list[Any]] = []
    weight: list[float] = []
    owner: list[int] = []
    for at, (name, stages) in enumerate(services.items()):
        trees = _Branches(code, tables.get(name), least_share * BELOW_LEAST, name).expanded(stages)
        parts += [_nested(tree, list(code)) for tree in trees]
        weight += trees.values()
        owner += [at] * len(trees)
    return merge_classes(
        CallTrees.nested(parts, list(code)), weight, names,
        service=np.array(owner, dtype=np.int64), requests=np.ones(len(names)),
        microservices=len(code), most_classes=most_classes, least_share=least_share, rest=rest,
    )  # fmt: skip


class _Branches:
    """The branches of one service."""

    def __init__(
        self, code: Mapping[str, int], joint: Sequence[Mapping[str, Any]] | None, cut: float,
        service: str,
    ) -> None:  # fmt: skip
        self.code, self.joint, self.cut, self.service = code, joint, cut, service
        self.present: frozenset[str] = frozenset()
        self.named: set[str] = set()

    def expanded(self, stages: Any) -> Trees:
        try:
            return self._jointly(stages)
        except RecursionError:
            raise InstanceError(f"{self.service}: the calls are nested too deeply") from None

    def _jointly(self, stages: Any) -> Trees:
        if self.joint is None:
            return self._stages(stages, self.service)
        out: Trees = {}
        table = _listed(self.joint, f"joint.{self.service}")
        rows = [_joint_row(row, f"joint.{self.service}[{at}]") for at, row in enumerate(table)]
        total = math.fsum(p for _, p in rows)
        if abs(total - 1.0) > PROBABILITY_TOLERANCE:
            raise InstanceError(f"joint.{self.service}: probabilities sum to {total:g}, not to 1")
        for present, p in rows:
            self.present = present
            for tree, part in self._stages(stages, self.service).items():
                out[tree] = out.get(tree, 0.0) + p * part
        for at, (present, _) in enumerate(rows):
            for name in sorted(present - self.named):
                where = f"joint.{self.service}[{at}].present"
                raise InstanceError(
                    f"{where} = {name!r}: unknown branch{nearest(name, self.named)}"
                )
        return out

    def _stages(self, data: Any, where: str) -> Trees:
        stages = [
            self._stage(members, f"{where}[{at}]")
            for at, members in enumerate(_listed(data, where))
        ]
        return self._product(stages, where)

    def _stage(self, data: Any, where: str) -> Trees:
        members = [
            self._member(one, f"{where}[{at}]") for at, one in enumerate(_listed(data, where))
        ]
        return self._product(members, where)

    def _product(self, parts: list[Trees], where: str) -> Trees:
        """Combine what happens independently; what is absent leaves no trace."""
        out: Trees = {(): 1.0}
        for part in parts:
            longer: Trees = {}
            for (one, p), (two, q) in itertools.product(out.items(), part.items()):
                if p * q < self.cut:
                    continue
                tree = tuple(sorted((*one, two))) if two else one
                longer[tree] = longer.get(tree, 0.0) + p * q
            out = self._most_likely(longer, where)
        return out

    def _most_likely(self, trees: Trees, where: str) -> Trees:
        if len(trees) <= MOST_TREES:
            return trees
        if not self.cut:
            raise InstanceError(
                f"{where}: more than {MOST_TREES} trees; a least_share above 0 drops rare ones"
            )
        kept = sorted(trees.items(), key=lambda item: -item[1])[:MOST_TREES]
        return dict(kept)

    def _member(self, data: Any, where: str) -> Trees:
        if isinstance(data, Mapping) and "one_of" in data:
            return self._choice(cast("Mapping[str, Any]", data), where)
        table, calls = self._call(data, where)
        if "branch" in table:
            chance = self._decided(table, where)
        else:
            chance = _probability(table.get("p", 1.0), f"{where}.p")
        return _with_absence(self._made(table, calls, where), chance)

    def _decided(self, table: Mapping[str, Any], where: str) -> float:
        name = table["branch"]
        if not isinstance(name, str) or not name or "p" in table:
            raise InstanceError(f"{where}.branch = {shown(name)}: must be a name, without p")
        if self.joint is None:
            raise InstanceError(f"{where}.branch = {name!r}: {self.service} has no joint table")
        self.named.add(name)
        return float(name in self.present)

    def _choice(self, data: Mapping[str, Any], where: str) -> Trees:
        for key in data:
            if key not in _CHOICE_KEYS:
                raise InstanceError(
                    f"{where}.{spelt(key)}: unknown key{nearest(str(key), _CHOICE_KEYS)}"
                )
        out: Trees = {}
        total: list[float] = []
        for at, one in enumerate(_listed(data["one_of"], f"{where}.one_of")):
            place = f"{where}.one_of[{at}]"
            table, calls = self._call(one, place)
            if "p" not in table or "branch" in table:
                raise InstanceError(f"{place}.p is missing: a choice needs the probability of each")
            total.append(_probability(table["p"], f"{place}.p"))
            for tree, part in self._made(table, calls, place).items():
                out[tree] = out.get(tree, 0.0) + total[-1] * part
        chance = math.fsum(total)
        if chance > 1.0 + PROBABILITY_TOLERANCE:
            raise InstanceError(f"{where}.one_of: probabilities sum to {chance:g}, more than 1")
        if chance < 1.0 - PROBABILITY_TOLERANCE:
            out[()] = 1.0 - chance
        return out

    def _call(self, data: Any, where: str) -> tuple[Mapping[str, Any], float]:
        if not isinstance(data, Mapping):
            raise InstanceError(f"{where}: expected a table with a microservice, got {shown(data)}")
        table = cast("Mapping[str, Any]", data)
        for key in table:
            if key not in _CALL_KEYS:
                raise InstanceError(
                    f"{where}.{spelt(key)}: unknown key{nearest(str(key), _CALL_KEYS)}"
                )
        name, calls = table.get("microservice"), table.get("calls", 1.0)
        if not isinstance(name, str) or name not in self.code:
            hint = nearest(name, self.code) if isinstance(name, str) else ""
            raise InstanceError(
                f"{where}.microservice = {shown(name)}: is not a microservice{hint}"
            )
        if isinstance(calls, bool) or not isinstance(calls, int | float) or not calls > 0:
            raise InstanceError(f"{where}.calls = {shown(calls)}: must be a positive number")
        return table, float(calls)

    def _made(self, table: Mapping[str, Any], calls: float, where: str) -> Trees:
        """Give what a call that is made may lead to."""
        below = self._stages(table.get("stages", []), f"{where}.stages")
        called = self.code[table["microservice"]]
        return {(called, calls, tree): p for tree, p in below.items()}


def _with_absence(trees: Trees, chance: float) -> Trees:
    if chance == 1.0:
        return trees
    out = {tree: chance * p for tree, p in trees.items() if chance > 0}
    return {**out, (): 1.0 - chance}


def _joint_row(row: Any, where: str) -> tuple[frozenset[str], float]:
    if not isinstance(row, Mapping):
        raise InstanceError(f"{where}: expected a table, got {shown(row)}")
    table = cast("Mapping[str, Any]", row)
    for key in table:
        if key not in _JOINT_KEYS:
            raise InstanceError(
                f"{where}.{spelt(key)}: unknown key{nearest(str(key), _JOINT_KEYS)}"
            )
    for key in _JOINT_KEYS:
        if key not in table:
            raise InstanceError(f"{where}.{key} is missing")
    present = _listed(table["present"], f"{where}.present")
    for at, name in enumerate(present):
        if not isinstance(name, str):
            raise InstanceError(f"{where}.present[{at}] = {shown(name)}: must be a string")
    return frozenset(present), _probability(table["p"], f"{where}.p")


def _probability(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InstanceError(f"{where} = {shown(value)}: must lie between 0 and 1")
    return float(value)


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise InstanceError(f"{where}: expected a list, got {shown(cast(object, value))}")
    return list(cast("Sequence[Any]", value))


def _nested(tree: Tree, microservices: Sequence[str]) -> list[Any]:
    """Write stages as ``CallTrees.nested`` reads them."""
    return [
        [
            {
                "microservice": microservices[called],
                "calls": calls,
                "stages": _nested(below, microservices),
            }
            for called, calls, below in stage
        ]
        for stage in tree
    ]
