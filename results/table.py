"""One small table, shown on a terminal, as Markdown, as CSV or as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from apportion.results.definitions import Unit
from apportion.results.numbers import MISSING, decimals, readable_unit
from apportion.results.rendering import TextColumn, markdown, terminal


class Spread(NamedTuple):
    """A mean with the least and the largest of the values behind it."""

    mean: float
    low: float
    high: float


Cell: TypeAlias = str | int | float | bool | Spread | None


@dataclass(frozen=True)
class Column:
    """One column.

    Parameters
    ----------
    key
        Name in CSV and JSON.
    header
        Name for people; the unit is added where it is shown.
    unit
        Unit of the raw values; empty for text.
    readers
        Who sees it: people only, machines only (CSV, JSON), or both.
    timing
        True for wall times: left out of text that must repeat byte for byte.
    """

    key: str
    header: str
    unit: Unit = ""
    readers: Literal["both", "people", "machines"] = "both"
    timing: bool = False


@dataclass(frozen=True)
class Table:
    """Columns, rows of raw values, and what a reader should know beside them.

    Parameters
    ----------
    title
        One line.
    columns
        Keys must differ.
    rows
        One cell for each column. NaN becomes None.
    notes
        Lines under the table.
    best
        (row, key) of the cells to be marked as best of their column.

    Raises
    ------
    ValueError
        On rows of another length, repeated keys, or an infinite value.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, str]] = field(default_factory=frozenset[tuple[int, str]])

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        if len(set(keys)) != len(keys):
            raise ValueError(f"table {self.title!r}: column keys repeat: {keys}")
        for index, row in enumerate(self.rows):
            if len(row) != len(keys):
                raise ValueError(
                    f"table {self.title!r}: row {index} has {len(row)} cells for {len(keys)} columns"
                )
        put = self.__dict__.__setitem__
        put("columns", tuple(self.columns))
        put("rows", tuple(tuple(_plain(cell) for cell in row) for row in self.rows))
        put("notes", tuple(self.notes))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show on a terminal, wall times included: ``console.print(table)``."""
        yield from self._terminal(options.max_width, timings=True)

    def to_text(self, *, width: int = 120, timings: bool = False) -> str:
        """Render the terminal table as plain text of at most ``width`` columns."""
        stream = io.StringIO()
        console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
        for part in self._terminal(width, timings=timings):
            console.print(part)
        return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())

    def _terminal(self, width: int, *, timings: bool) -> Iterator[RenderableType]:
        columns = self._texts(timings)
        return terminal(self.title, columns, self.notes, len(self.rows), width)

    def to_markdown(self, *, timings: bool = False) -> str:
        """Render as a Markdown table with its title and notes; the best cells are bold."""
        return markdown(self.title, self._texts(timings), self.notes, len(self.rows))

    def to_csv(self, *, timings: bool = False) -> str:
        """Write raw values; a column with spreads is followed by its ``_min`` and ``_max``."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        shown = self._shown("machines", timings)
        spread = {at for at in shown if any(isinstance(row[at], Spread) for row in self.rows)}
        header: list[str] = []
        for at in shown:
            key = self.columns[at].key
            header += [key, f"{key}_min", f"{key}_max"] if at in spread else [key]
        writer.writerow(header)
        for row in self.rows:
            fields: list[Any] = []
            for at in shown:
                cell = row[at]
                wide = cell if isinstance(cell, Spread) else (cell, cell, cell)
                fields += wide if at in spread else [cell]
            writer.writerow([_csv_field(value) for value in fields])
        return stream.getvalue()

    def to_json(self, *, timings: bool = False) -> str:
        """Write raw values as one JSON object; a spread becomes mean, min and max."""
        return json.dumps(self.as_dict(timings=timings), indent=2, allow_nan=False) + "\n"

    def as_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """Turn into plain data: title, columns with units, rows by key, notes."""
        shown = self._shown("machines", timings)
        return {
            "schema": "apportion/table/1",
            "title": self.title,
            "columns": [
                {"key": self.columns[at].key, "unit": self.columns[at].unit} for at in shown
            ],
            "rows": [
                {self.columns[at].key: _json_value(row[at]) for at in shown} for row in self.rows
            ],
            "notes": list(self.notes),
        }

    def _shown(self, reader: Literal["people", "machines"], timings: bool) -> list[int]:
        return [
            position
            for position, column in enumerate(self.columns)
            if column.readers in ("both", reader) and (timings or not column.timing)
        ]

    def _texts(self, timings: bool) -> list[TextColumn]:
        return [self._text_column(position) for position in self._shown("people", timings)]

    def _text_column(self, position: int) -> TextColumn:
        column = self.columns[position]
        cells = [row[position] for row in self.rows]
        numbers = [number for cell in cells if (number := _number(cell)) is not None]
        unit, size = readable_unit(numbers, column.unit)
        digits = decimals([number / size for number in numbers], column.unit)
        return TextColumn(
            header=f"{column.header} ({unit})" if unit else column.header,
            cells=[_text(cell, size, digits) for cell in cells],
            numeric=bool(column.unit),
            best=frozenset(row for row, key in self.best if key == column.key),
        )


def _plain(cell: Any) -> Cell:
    """Take NumPy scalars to Python's own, NaN to None; refuse infinities."""
    if isinstance(cell, Spread):
        cell = Spread(*(float(part) for part in cell))
        if not all(map(math.isfinite, cell)):
            raise ValueError(f"table cell {cell}: must be finite")
        return cell
    value: Cell = cast("np.generic[Any]", cell).item() if isinstance(cell, np.generic) else cell
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"table cell {value}: must be finite")
    return value


def _number(cell: Cell) -> float | None:
    if isinstance(cell, Spread):
        return cell.mean
    return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def _text(cell: Cell, size: float, digits: int) -> str:
    match cell:
        case None:
            return MISSING
        case bool():
            return "yes" if cell else "no"
        case str():
            return cell
        case Spread(mean, low, high):
            parts = [f"{part / size:,.{digits}f}" for part in (mean, low, high)]
            return f"{parts[0]} ({parts[1]}..{parts[2]})" if low < high else parts[0]
        case _:
            return f"{cell / size:,.{digits}f}"


def _csv_field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # repr of a float is the shortest text that reads back as the same number.
    return repr(value) if isinstance(value, float) else value


def _json_value(cell: Cell) -> Cell | Mapping[str, float]:
    if isinstance(cell, Spread):
        return {"mean": cell.mean, "min": cell.low, "max": cell.high}
    return cell
