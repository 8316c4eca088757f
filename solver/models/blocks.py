"""Named families of columns or rows, and the names of their members, made when asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.solver.errors import ModelError


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One index of a block.

    Parameters
    ----------
    name
        What the index runs over, such as ``"job"``.
    labels
        A string per value of the index.
    codes
        For a block that lists options one after another: the position in ``labels`` of each
        entry's label. Left out where the index is a dimension of the block's shape.
    """

    name: str
    labels: Sequence[str]
    codes: NDArray[np.integer] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A family of columns (or of rows) that were added together.

    Attributes
    ----------
    name
        Name of the family, unique among the model's columns (or rows).
    start
        Index in the model of the first member.
    shape
        Shape of the family; members are numbered in C order.
    axes
        Labels of the indices; empty where members are named by number.
    """

    name: str
    start: int
    shape: tuple[int, ...]
    axes: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        if not self.axes:
            return
        coded = [axis for axis in self.axes if axis.codes is not None]
        if not coded:
            lengths = tuple(len(axis.labels) for axis in self.axes)
            if lengths != self.shape:
                raise ModelError(f"{self.name}: axes have {lengths} labels, shape {self.shape}")
            return
        if len(coded) != len(self.axes):
            raise ModelError(f"{self.name}: either every axis has codes or none has")
        for axis in coded:
            self._check_codes(axis)

    def _check_codes(self, axis: Axis) -> None:
        codes = np.asarray(axis.codes)
        if codes.shape != (self.size,):
            raise ModelError(
                f"{self.name}: axis {axis.name} has {codes.size} codes for {self.size} entries"
            )
        if codes.size and not 0 <= codes.min() <= codes.max() < len(axis.labels):
            bad = int(np.argmax((codes < 0) | (codes >= len(axis.labels))))
            raise ModelError(
                f"{self.name}: axis {axis.name} codes[{bad}] = {codes[bad]}: "
                f"there are {len(axis.labels)} labels"
            )

    @property
    def size(self) -> int:
        """Number of members."""
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        """Index in the model after the last member."""
        return self.start + self.size

    def member_name(self, member: int) -> str:
        """Name of the member with this number inside the block, such as ``x[job17,A100]``."""
        labels = self._labels(member)
        return f"{self.name}[{','.join(labels)}]" if labels else self.name

    def member_names(self) -> list[str]:
        """Names of all members, in order."""
        return [self.member_name(member) for member in range(self.size)]

    def _labels(self, member: int) -> list[str]:
        if self.axes and self.axes[0].codes is not None:
            return [str(axis.labels[_code(axis, member)]) for axis in self.axes]
        if not self.axes and self.size == 1:
            return []
        place: list[int] = []
        for length in reversed(self.shape):
            member, position = divmod(member, length)
            place.append(position)
        place.reverse()
        if not self.axes:
            return [str(position) for position in place]
        return [str(axis.labels[position]) for axis, position in zip(self.axes, place, strict=True)]


def _code(axis: Axis, member: int) -> int:
    return 0 if axis.codes is None else int(axis.codes[member])
