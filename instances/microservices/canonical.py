"""One form for call trees that mean the same, so that equal ones can be told.

The latency of a request neither depends on the order of the stages below a call nor on the order
of the calls in a stage; and a call that is repeated stage after stage is one call made several
times. Ranks are given height by height (Aho, Hopcroft and Ullman's test of tree isomorphism), so
that no recursion limits the depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from apportion.instances.columns import Ints
from apportion.instances.microservices.call_trees import CallTrees

Stage: TypeAlias = tuple[tuple[int, float], ...]
"""Calls side by side: rank of what is called, and how often; sorted."""

Stages: TypeAlias = tuple[Stage, ...]
"""What a call or a request makes: its stages, sorted."""

_Below: TypeAlias = dict[int, list[tuple[int, float]]]


@dataclass
class _Ranks:
    """What is called and all below it, numbered: less high first, then by content."""

    of: dict[tuple[int, Stages], int] = field(default_factory=dict[tuple[int, Stages], int])
    content: list[tuple[int, Stages]] = field(default_factory=list[tuple[int, Stages]])

    def add(self, found: list[tuple[int, Stages]]) -> None:
        for one in sorted(set(found)):
            self.of[one] = len(self.content)
            self.content.append(one)


def canonical(trees: CallTrees) -> CallTrees:
    """Bring trees into their canonical form.

    Parameters
    ----------
    trees
        K classes.

    Returns
    -------
    CallTrees
        The same classes in the same order. Two of them have equal columns if and only if they
        differ by the order of stages and calls and by how repeated calls are written at most:
        stages of one call each that call the same are one stage, their numbers of calls added.
        Calls side by side are not added: their latency is that of the slowest.
    """
    stages, ranks = _ranked(trees)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("microservice", "parent", "stage", "calls")
    }
    offsets = [0]
    for own in stages:
        _write(own, ranks, columns, offsets[-1])
        offsets.append(len(columns["calls"]))
    return CallTrees(cast(Ints, offsets), **cast(Any, columns))


def equal_trees(trees: CallTrees) -> Ints:
    """Number the classes so that those of equal canonical form have one number.

    Returns
    -------
    ndarray
        Shape (K,); numbers count from 0 in the order in which forms are first met.
    """
    numbers: dict[Stages, int] = {}
    stages, _ = _ranked(trees)
    out = [numbers.setdefault(own, len(numbers)) for own in stages]
    return np.array(out, dtype=np.int64)


def _ranked(trees: CallTrees) -> tuple[list[Stages], _Ranks]:
    """Rank every call from the leaves up; gives the stages of each class."""
    parents: list[int] = trees.parent_row.tolist()
    called: list[int] = trees.microservice.tolist()
    stage: list[int] = trees.stage.tolist()
    calls: list[float] = trees.calls.tolist()
    below: list[_Below] = [{} for _ in parents]
    roots: list[_Below] = [{} for _ in range(len(trees))]
    owner: list[int] = trees.class_of.tolist()
    ranks = _Ranks()
    for rows in _by_height(parents):
        content = [(called[row], _stages(below[row])) for row in rows]
        ranks.add(content)
        for row, one in zip(rows, content, strict=True):
            above = roots[owner[row]] if parents[row] < 0 else below[parents[row]]
            above.setdefault(stage[row], []).append((ranks.of[one], calls[row]))
    return [_stages(root) for root in roots], ranks


def _by_height(parents: list[int]) -> list[list[int]]:
    """Group rows by the length of the longest way down from them."""
    height = [0] * len(parents)
    for row in range(len(parents) - 1, -1, -1):  # calls come after their parents
        above = parents[row]
        if above >= 0:
            height[above] = max(height[above], height[row] + 1)
    out: list[list[int]] = [[] for _ in range(max(height, default=-1) + 1)]
    for row, high in enumerate(height):
        out[high].append(row)
    return out


def _stages(below: _Below) -> Stages:
    """Sort stages and their calls; add up repeated calls."""
    repeated: dict[int, float] = {}
    side_by_side: list[Stage] = []
    for members in below.values():
        if len(members) == 1:
            rank, calls = members[0]
            repeated[rank] = repeated.get(rank, 0.0) + calls
        else:
            side_by_side.append(tuple(sorted(members)))
    return tuple(sorted([*side_by_side, *(((rank, n),) for rank, n in repeated.items())]))


def _write(stages: Stages, ranks: _Ranks, columns: dict[str, list[Any]], first: int) -> None:
    """Append the calls of a class in the order in which nested lists are read."""
    waiting: list[tuple[Stages, int]] = [(stages, -1)]
    while waiting:
        below, parent = waiting.pop()
        for number, members in enumerate(below):
            for rank, calls in members:
                microservice, own = ranks.content[rank]
                columns["microservice"].append(microservice)
                columns["parent"].append(parent)
                columns["stage"].append(number)
                columns["calls"].append(calls)
                if own:
                    waiting.append((own, len(columns["calls"]) - 1 - first))
