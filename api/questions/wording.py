"""Rules of a model in words: from a program that words its own, else from blocks and axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.solver import Block, Model, Rule

AXES = {"type": "GPU type", "job": "job", "tenant": "tenant", "user": "user"}
"""What the axes of blocks run over, as readers call it."""

FAMILIES = {"one": "time", "in_time": "speed for the deadline", "x": "use"}
"""Families whose names say less than they could."""


@runtime_checkable
class Worded(Protocol):
    """A program that says in words what rows of its model demand."""

    def in_words(self, block: str, label: str) -> str:
        """Say what a row demands; empty for rows that are not the program's own."""
        ...


@dataclass(frozen=True, eq=False)
class Words:
    """Rows and columns of a model as texts.

    Parameters
    ----------
    program
        The compiled round.
    model
        The model, perhaps with a user's side rules behind its own rows.
    own
        The program's own model, without side rules.
    """

    program: Any
    model: Model
    own: Model

    def of_rule(self, rule: Rule) -> str:
        """Say what a rule demands."""
        if rule.kind != "row":
            lower = rule.kind == "lower"
            now, own = (one.lower if lower else one.upper for one in (self.model, self.own))
            bound = float(now[rule.index])
            if rule.index >= own.size or bound != float(own[rule.index]):
                return f"side rule {rule.text}"
            side = "at least" if lower else "at most"
            return f"{member(self.model.column_blocks, rule.index, rule.name)}: {side} {bound:g}"
        if rule.index >= self.own.row_count:
            return f"side rule {rule.text}"
        text = self.told(rule.index)
        return text or f"{self.of_row(rule.index)}: {self._side(rule.index)}"

    def of_row(self, row: int) -> str:
        """Name a row without what it demands, where the program does not word it."""
        name = self.model.row_name(row)
        if row >= self.own.row_count:
            return f"side rule {name}"
        return self.told(row) or member(self.model.row_blocks, row, name)

    def of_change(self, row: int, before: float, after: float) -> str:
        """Say how far a side has to move."""
        return f"{self.of_row(row)}: {before:g} -> {after:g}"

    def told(self, row: int) -> str:
        """What the program itself says of a row, empty where it says nothing."""
        if not isinstance(self.program, Worded):
            return ""
        block, _, rest = self.model.row_name(row).partition("[")
        return self.program.in_words(block, rest.removesuffix("]"))

    def _side(self, row: int) -> str:
        low, high = float(self.model.row_lower[row]), float(self.model.row_upper[row])
        if low == high:
            return f"exactly {low:g}"
        sides = [
            f"{word} {side:g}"
            for word, side in (("at least", low), ("at most", high))
            if np.isfinite(side)
        ]
        return " and ".join(sides)


def member(blocks: tuple[Block, ...], index: int, name: str) -> str:
    """Say what a row or a column is: its family, and what each of its axes stands at.

    Parameters
    ----------
    blocks
        Families.
    index
        Place in the model.
    name
        Name as it stands in files, given where there is no better word.
    """
    block = block_at(blocks, index)
    if block is None:
        return name
    family = FAMILIES.get(block.name, block.name.replace("_", " "))
    if not block.axes:
        return family if block.size == 1 else f"{family} {index - block.start}"
    at = labels(block, index - block.start)
    if not set(at) <= set(AXES):
        return name
    places = [f"{AXES[axis]} {label!r}" for axis, label in at.items()]
    return f"{family} of {' on '.join(places)}"


def block_at(blocks: tuple[Block, ...], index: int) -> Block | None:
    """Find the family of a row or column."""
    return next((one for one in blocks if one.start <= index < one.stop), None)


def labels(block: Block, place: int) -> dict[str, str]:
    """Label of each axis at a member of a family; empty where it has numbers only."""
    if not block.axes:
        return {}
    if block.axes[0].codes is not None:
        codes = [(axis, int(np.asarray(axis.codes)[place])) for axis in block.axes]
    else:
        spots = np.unravel_index(place, block.shape)
        codes = [(axis, int(spot)) for axis, spot in zip(block.axes, spots, strict=False)]
    return {axis.name: str(axis.labels[code]) for axis, code in codes}
