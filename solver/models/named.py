"""Blocks made from names, for models that come from outside as a flat list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from apportion.solver.errors import ModelError
from apportion.solver.models.blocks import Axis, Block

_INDEXED = re.compile(r"(.+?)\[(.*)\]", re.DOTALL)


def blocks_of_names(names: Sequence[str], *, start: int = 0) -> tuple[Block, ...]:
    """Give blocks whose members bear these names.

    Neighbours such as ``capacity[A100]`` and ``capacity[V100]``, with the same head and as many
    labels, become one block; every other name is a block of its own.

    Parameters
    ----------
    names
        Names of columns, or of rows, in order.
    start
        Index in the model of the first one.

    Raises
    ------
    ModelError
        If two names are equal.
    """
    if len(set(names)) < len(names):
        seen: set[str] = set()
        double = next(name for name in names if name in seen or seen.add(name))
        raise ModelError(f"the name {double} is given twice")
    return tuple(_blocks(names, start))


def _blocks(names: Sequence[str], start: int) -> Iterator[Block]:
    taken: set[str] = set()
    for (head, count), members in groupby(names, key=_head):
        group = list(members)
        if count == 0 or head in taken:
            for name in group:
                taken.add(name)
                yield Block(name, start, (1,))
                start += 1
            continue
        taken.add(head)
        labels = [_labels(name) for name in group]
        yield Block(head, start, (len(group),), tuple(_axis(labels, at) for at in range(count)))
        start += len(group)


def _head(name: str) -> tuple[str, int]:
    """Give what stands before the bracket and the number of labels in it, 0 without a bracket."""
    match = _INDEXED.fullmatch(name)
    return (match[1], match[2].count(",") + 1) if match else (name, 0)


def _labels(name: str) -> list[str]:
    match = _INDEXED.fullmatch(name)
    return match[2].split(",") if match else []


def _axis(labels: list[list[str]], at: int) -> Axis:
    place: dict[str, int] = {}
    codes = [place.setdefault(row[at], len(place)) for row in labels]
    return Axis(f"index{at}", list(place), np.array(codes, dtype=np.int64))
