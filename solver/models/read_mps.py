"""Reading MPS files, in free or in fixed format.

A parser of our own: the readers of back ends drop rows without sides, do not keep the objective's
name, cannot know that :func:`~apportion.solver.write_mps` turned a maximised objective, and drop
in silence what they do not know. Where readers differ, HiGHS is followed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.sparse import coo_matrix

from apportion.solver.arrays import read_only
from apportion.solver.errors import ModelError
from apportion.solver.models.model import Model, Objective
from apportion.solver.models.mps import TURNED
from apportion.solver.models.mps_lines import Layout, Line, lines_of
from apportion.solver.models.named import blocks_of_names

_MARKERS = {"'INTORG'": True, "'INTEND'": False}


def read_mps(
    path: str | os.PathLike[str], *, layout: Literal["auto", "free", "fixed"] = "auto"
) -> Model:
    """Read a model from a file.

    Files of :func:`~apportion.solver.write_mps` come back as they were: the same numbers (of a row
    with two different sides the lower one to the last digit), order, sense and legal names.
    Neighbours with names such as ``x[job17,A100]`` become one block.

    The first row of kind N is the objective, further ones are rows without sides. A whole-number
    column without bounds is 0 or 1.

    Parameters
    ----------
    path
        File to read.
    layout
        ``"free"``: fields are parted by blanks. ``"fixed"``: fields stand in the columns of the
        old standard, so that names may hold blanks. ``"auto"``: the first of these that reads.

    Raises
    ------
    ModelError
        If the file is not MPS, or holds what a linear model has no place for (special ordered
        sets, quadratic terms, semi-continuous columns), or a column has a negative upper bound and
        no lower one, of which every reader makes something else. The message names the place.
    """
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    if layout != "auto":
        return _read(text, layout)
    try:
        return _read(text, "free")
    except ModelError as fault:
        try:
            return _read(text, "fixed")
        except ModelError:
            raise fault from None


@dataclass(slots=True)
class _Column:
    lower: float | None = None
    upper: float | None = None
    integer: bool = False


@dataclass(slots=True)
class _Draft:
    """What was read so far."""

    name: str = ""
    maximise: bool = False
    in_integers: bool = False
    objective: str | None = None
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    columns: dict[str, _Column] = field(default_factory=dict[str, _Column])
    places: dict[str, int] = field(default_factory=dict[str, int])
    cost: dict[str, float] = field(default_factory=dict[str, float])
    entries: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    sides: dict[str, float] = field(default_factory=dict[str, float])
    ranges: dict[str, float] = field(default_factory=dict[str, float])

    def take(self, line: Line) -> None:
        """Take in one line."""
        readers = {
            "NAME": self._name,
            "OBJSENSE": self._sense,
            "ROWS": self._row,
            "COLUMNS": self._column,
            "RHS": self._side,
            "RANGES": self._range,
            "BOUNDS": self._bound,
            "ENDATA": self._end,
        }
        if line.section not in readers:
            raise line.error("the section is not supported")
        if not line.is_head or line.section in ("NAME", "OBJSENSE"):
            readers[line.section](line)

    def _name(self, line: Line) -> None:
        words = line.fields[:-1] if line.fields[-1:] == ("FREE",) else line.fields
        self.name = " ".join(words)

    def _sense(self, line: Line) -> None:
        word = "".join(line.fields).upper()
        if word.startswith(("MAX", "MIN")):
            self.maximise = word.startswith("MAX")
        elif word or not line.is_head:
            raise line.error(f"the sense {word!r} is neither MAX nor MIN")

    def _row(self, line: Line) -> None:
        kind = line.kind.upper()
        if kind not in ("N", "L", "G", "E") or len(line.fields) != 1:
            raise line.error(f"{' '.join((line.kind, *line.fields))!r} is no row")
        name = line.fields[0]
        if name in self.kinds:
            raise line.error(f"the row {name} is given twice")
        self.kinds[name] = kind
        if kind == "N" and self.objective is None:
            self.objective = name
        else:
            self.rows[name] = len(self.rows)

    def _column(self, line: Line) -> None:
        if len(line.fields) >= 3 and line.fields[1] == "'MARKER'":
            if line.fields[-1] not in _MARKERS:
                raise line.error(f"the marker {line.fields[-1]} is not supported")
            self.in_integers = _MARKERS[line.fields[-1]]
            return
        name = line.fields[0] if line.fields else ""
        if name not in self.columns:
            self.places[name] = len(self.places)
            self.columns[name] = _Column(integer=self.in_integers)
        elif self.places[name] != len(self.places) - 1:
            raise line.error(f"the column {name} is given in two places")
        for row, value in line.pairs(1):
            self._entry(line, row, name, value)

    def _entry(self, line: Line, row: str, name: str, value: float) -> None:
        if row == self.objective:
            if name in self.cost:
                raise line.error(f"the cost of {name} is given twice")
            self.cost[name] = value
            return
        place = (self.rows[self._known_row(line, row)], self.places[name])
        if place in self.entries:
            raise line.error(f"the entry of {name} in {row} is given twice")
        self.entries[place] = value

    def _side(self, line: Line) -> None:
        for row, value in line.pairs(0):
            self.sides[self._known_row(line, row)] = value

    def _range(self, line: Line) -> None:
        for row, value in line.pairs(0):
            if self.kinds[self._known_row(line, row)] == "N":
                raise line.error(f"the row {row} has no side to reach from")
            self.ranges[row] = value

    def _bound(self, line: Line) -> None:
        kind = line.kind.upper()
        name = line.fields[0] if line.fields else ""
        if name not in self.columns:
            raise line.error(f"there is no column {name}")
        column = self.columns[name]
        if kind in ("UP", "LO", "FX", "UI", "LI"):
            self._value(line, kind, name, column)
        elif kind == "FR":
            column.lower, column.upper = -np.inf, np.inf
        elif kind == "MI":
            column.lower = -np.inf
            column.upper = np.inf if column.upper is None else column.upper
        elif kind == "PL":
            column.upper = np.inf
        elif kind == "BV":
            column.lower, column.upper, column.integer = 0.0, 1.0, True
        else:
            raise line.error(f"bounds of kind {kind} are not supported")

    def _value(self, line: Line, kind: str, name: str, column: _Column) -> None:
        if len(line.fields) < 2:
            raise line.error(f"the bound of {name} has no value")
        value = line.number_of(line.fields[1])
        column.integer |= kind in ("UI", "LI")
        if kind in ("FX", "LO", "LI"):
            column.lower = value
        if kind in ("LO", "LI") and column.upper is None:
            column.upper = np.inf
        if kind in ("FX", "UP", "UI"):
            column.upper = value

    def _end(self, line: Line) -> None:
        del line

    def _known_row(self, line: Line, row: str) -> str:
        if row not in self.kinds:
            raise line.error(f"there is no row {row}")
        return row


def _read(text: str, layout: Layout) -> Model:
    draft = _Draft()
    for line in lines_of(text, layout):
        draft.take(line)
    if draft.objective is None:
        raise ModelError("MPS: there is no row of kind N, so no objective")
    return _model(draft, draft.objective, turned=text.startswith(TURNED))


def _model(draft: _Draft, title: str, *, turned: bool) -> Model:
    names, columns = list(draft.columns), list(draft.columns.values())
    bounds = [_bounds(name, column) for name, column in draft.columns.items()]
    sign = -1.0 if turned else 1.0
    # adding zero makes a negative zero positive
    cost = np.array([sign * draft.cost.get(name, 0.0) + 0.0 for name in names], dtype=np.float64)
    places = np.array(list(draft.entries), dtype=np.int64).reshape(-1, 2)
    values = np.array(list(draft.entries.values()), dtype=np.float64)
    shape = (len(draft.rows), len(names))
    matrix = coo_matrix((values, (places[:, 0], places[:, 1])), shape=shape).tocsr()
    matrix.eliminate_zeros()
    sides = [_interval(draft, row) for row in draft.rows]
    # by custom the right-hand side of the objective's row is subtracted
    offset = sign * (0.0 - draft.sides.get(title, 0.0)) + 0.0
    return Model(
        name=draft.name,
        lower=np.array([low for low, _ in bounds], dtype=np.float64),
        upper=np.array([high for _, high in bounds], dtype=np.float64),
        integer=np.array([column.integer for column in columns], dtype=np.bool_),
        indptr=matrix.indptr.astype(np.int32),
        indices=matrix.indices.astype(np.int32),
        values=matrix.data,
        row_lower=np.array([low for low, _ in sides], dtype=np.float64),
        row_upper=np.array([high for _, high in sides], dtype=np.float64),
        objectives=(Objective(title, read_only(cost), turned != draft.maximise, offset),),
        column_blocks=blocks_of_names(names),
        row_blocks=blocks_of_names(list(draft.rows)),
    )


def _bounds(name: str, column: _Column) -> tuple[float, float]:
    lower = 0.0 if column.lower is None else column.lower
    if column.upper is None:
        return lower, 1.0 if column.integer else np.inf
    if column.lower is None and column.upper < 0.0:
        raise ModelError(
            f"MPS: column {name} is at most {column.upper}, and at least nothing stated"
        )
    return lower, column.upper


def _interval(draft: _Draft, row: str) -> tuple[float, float]:
    kind, side, width = draft.kinds[row], draft.sides.get(row, 0.0), draft.ranges.get(row)
    if kind == "N":
        return -np.inf, np.inf
    if kind == "E":
        reach = width or 0.0
        return side + min(reach, 0.0), side + max(reach, 0.0)
    if kind == "L":
        return -np.inf if width is None else side - abs(width), side
    return side, np.inf if width is None else side + abs(width)
