"""Neighbourhoods of a point of a MILP: which integer columns to free together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import numpy as np

from apportion.solver.arrays import FloatArray, IntArray
from apportion.solver.errors import ModelError
from apportion.solver.models.blocks import Axis, Block
from apportion.solver.models.model import Model
from apportion.solver.tolerances import INTEGRALITY


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """Columns to free together.

    Parameters
    ----------
    name
        Name for the record of steps.
    columns
        Indices of the columns; those that are not integer are free in any case.
    """

    name: str
    columns: IntArray


class SearchView(Protocol):
    """What a choice of neighbourhoods may look at. Live: it changes from step to step."""

    @property
    def model(self) -> Model:
        """The whole model."""
        ...

    @property
    def incumbent(self) -> FloatArray:
        """Best point so far, shape (columns,)."""
        ...

    @property
    def relaxed(self) -> FloatArray | None:
        """Optimum of the LP relaxation, shape (columns,); ``None`` if there was no time for it."""
        ...

    @property
    def most(self) -> int:
        """Number of integer columns that a neighbourhood should free at most now."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers, seeded by the solver's seed."""
        ...


class Neighbourhoods(Protocol):
    """A choice of neighbourhoods."""

    def cycle(self, view: SearchView) -> Iterator[Neighbourhood]:
        """Give the neighbourhoods of one cycle, each chosen when it is asked for."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Named groups of columns, as many at a time as the size allows, each once in a cycle.

    Parameters
    ----------
    groups
        The groups; they may overlap and need not cover the model.
    in_order
        Whether groups that follow each other are freed together, from a random place on, as suits
        groups along time; else they are shuffled.
    """

    groups: tuple[Neighbourhood, ...]
    in_order: bool = False

    @classmethod
    def of_axis(cls, model: Model, axis: str, *, in_order: bool = False) -> Groups:
        """Give a group for each label of an axis, such as each job, from all blocks that have it.

        Raises
        ------
        ModelError
            If no block of columns has such an axis.
        """
        members: dict[str, list[IntArray]] = {}
        for block in model.column_blocks:
            for at, own in enumerate(block.axes):
                if own.name == axis:
                    _collect(members, block, at, own)
        if not members:
            raise ModelError(f"{model.name}: no block of columns has an axis {axis}")
        groups = tuple(Neighbourhood(name, np.concatenate(of)) for name, of in members.items())
        return cls(groups, in_order)

    @classmethod
    def of_blocks(cls, model: Model) -> Groups:
        """Give a group for each named block of columns."""
        return cls(
            tuple(
                Neighbourhood(block.name, np.arange(block.start, block.stop))
                for block in model.column_blocks
                if block.size
            )
        )

    def cycle(self, view: SearchView) -> Iterator[Neighbourhood]:
        """Give all groups, joined up to the size of the moment."""
        count = len(self.groups)
        order = np.arange(count)
        if count and self.in_order:
            order = np.roll(order, -int(view.rng.integers(count)))
        elif count:
            order = view.rng.permutation(count)
        waiting = [self.groups[place] for place in order.tolist()]
        while waiting:
            taken = [waiting.pop(0)]
            size = taken[0].columns.size
            while waiting and size + waiting[0].columns.size <= view.most:
                taken.append(waiting.pop(0))
                size += taken[-1].columns.size
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            yield Neighbourhood(
                taken[0].name + more, np.concatenate([group.columns for group in taken])
            )


@dataclass(frozen=True, slots=True)
class Rins:
    """The integer columns in which the incumbent and the relaxation differ (Danna et al. 2005).

    Where they are more than the size allows, those that differ most.
    """

    def cycle(self, view: SearchView) -> Iterator[Neighbourhood]:
        """Give one neighbourhood, or none where nothing differs or there is no relaxation."""
        if view.relaxed is None:
            return
        apart = np.where(view.model.integer, np.abs(view.incumbent - view.relaxed), 0.0)
        columns = np.argsort(-apart, kind="stable")[: view.most]
        columns = columns[apart[columns] > INTEGRALITY]
        if columns.size:
            yield Neighbourhood("rins", np.sort(columns))


@dataclass(frozen=True, slots=True)
class InTurn:
    """Several choices of neighbourhoods, a neighbourhood of each in turn.

    Parameters
    ----------
    members
        The choices.
    """

    members: tuple[Neighbourhoods, ...]

    def cycle(self, view: SearchView) -> Iterator[Neighbourhood]:
        """Give the neighbourhoods of all members until none has any left."""
        for found in zip_longest(*(member.cycle(view) for member in self.members)):
            yield from (one for one in found if one is not None)


def _collect(members: dict[str, list[IntArray]], block: Block, at: int, axis: Axis) -> None:
    """Sort a block's columns by their labels on one of its axes."""
    if axis.codes is None:
        codes = np.unravel_index(np.arange(block.size), block.shape)[at]
    else:
        codes = np.asarray(axis.codes)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(axis.labels) + 1))
    for label, first, last in zip(axis.labels, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        if last > first:
            members.setdefault(str(label), []).append(block.start + order[first:last])
