"""Call trees as sums and maxima: what runs one after the other, and what runs side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Ints
from apportion.instances.microservices import CallTrees


@dataclass(frozen=True)
class Chain:
    """A latency: the sum of calls, and of forks.

    The order of what is added does not change the sum, so that a call below another, and a stage
    of a single call, need no place of their own.

    Parameters
    ----------
    calls
        Rows of the calls that run one after the other.
    forks
        Stages of several calls, which end with their last member.
    """

    calls: Ints
    forks: tuple[tuple[Chain, ...], ...]


def chains(trees: CallTrees) -> list[Chain]:
    """Bring the tree of each class into that form, K chains."""
    return [
        _chain(trees, int(low), int(high))
        for low, high in zip(trees.offsets[:-1], trees.offsets[1:], strict=True)
    ]


def _chain(trees: CallTrees, low: int, high: int) -> Chain:
    stages: list[dict[int, list[Chain]]] = [{} for _ in range(high - low + 1)]  # last: request
    parent: list[int] = trees.parent[low:high].tolist()
    stage: list[int] = trees.stage[low:high].tolist()
    for place in range(high - low - 1, -1, -1):  # calls come after their parents
        below = _joined([low + place], stages[place])
        stages[place] = {}
        stages[parent[place]].setdefault(stage[place], []).append(below)
    return _joined([], stages[-1])


def _joined(own: list[int], stages: dict[int, list[Chain]]) -> Chain:
    rows, forks = [np.array(own, dtype=np.int64)], list[tuple[Chain, ...]]()
    for members in (stages[number] for number in sorted(stages)):
        if len(members) == 1:
            rows.append(members[0].calls)
            forks += members[0].forks
        else:
            forks.append(tuple(reversed(members)))  # back in the order of the tree
    return Chain(np.concatenate(rows), tuple(forks))
