"""Tables of finished text: Markdown, and terminal tables that never lose a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

_GAP = 2
"""Blanks after a column: one of padding, one from the box."""

_EDGE = 1
"""Blank before the first column."""


@dataclass(frozen=True)
class TextColumn:
    """A column as people see it: header with unit, one text a row, and the rows marked best."""

    header: str
    cells: Sequence[str]
    numeric: bool
    best: frozenset[int]

    def terminal(self, row: int) -> Text:
        """Style one cell; a star beside the colour serves where there is none."""
        if row in self.best:
            return Text(f"{self.cells[row]}*", style="bold green")
        # A blank under the star keeps the digits of the column in line.
        return Text(f"{self.cells[row]} " if self.best else self.cells[row])

    def markdown(self, row: int) -> str:
        """Escape one cell, bold where it is best."""
        text = escaped(self.cells[row])
        return f"**{text}**" if row in self.best else text

    @property
    def full_width(self) -> int:
        """Width in which header and cells each stay on one line."""
        return max(map(len, (self.header, *self.cells))) + bool(self.best)

    @property
    def least_width(self) -> int:
        """Width in which numbers stay whole and the header takes two lines."""
        words = self.header.split()
        two_lines = min(
            max(len(" ".join(words[:at])), len(" ".join(words[at:])))
            for at in range(len(words) + 1)
        )
        numbers = " ".join(self.cells).split()
        return max([two_lines, *map(len, numbers)]) + bool(self.best)


def terminal(
    title: str, columns: Sequence[TextColumn], notes: Sequence[str], rows: int, width: int
) -> Iterator[RenderableType]:
    """Lay columns out for a terminal.

    Where they do not fit side by side, what is left goes into further tables below, each with
    the leading text columns again, so that no value is cut off.
    """
    if title:
        yield Text(title, style="bold")
    for widths, band in _bands(columns, width):
        out = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, fixed in zip(band, widths, strict=True):
            out.add_column(
                Text(column.header),
                justify="right" if column.numeric else "left",
                width=fixed,
                overflow="fold",
            )
        for row in range(rows):
            out.add_row(*(column.terminal(row) for column in band))
        yield out
    marked = any(column.best for column in columns)
    for note in [*notes, "* best of its column"] if marked else notes:
        yield Text(note, style="dim")


def _bands(
    columns: Sequence[TextColumn], width: int
) -> Iterator[tuple[Sequence[int | None], Sequence[TextColumn]]]:
    """Cut the columns into tables that fit, with the width of each column (None: as it comes)."""
    leading = next((at for at, column in enumerate(columns) if column.numeric), len(columns))
    labels, rest = list(columns[:leading]), list(columns[leading:])
    room = width - _EDGE - sum(label.full_width + _GAP for label in labels)
    band: list[TextColumn] = []
    left = room
    for column in rest:
        left -= column.least_width + _GAP
        if left < 0 and band:
            yield _fitted(labels, band, room)
            band, left = [], room - column.least_width - _GAP
        band.append(column)
    yield _fitted(labels, band, room)


def _fitted(
    labels: Sequence[TextColumn], band: Sequence[TextColumn], room: int
) -> tuple[Sequence[int | None], Sequence[TextColumn]]:
    if not band:
        return [None] * len(labels), labels
    widths = [column.full_width for column in band]
    # All on one line or none: a table in which only some numbers break is hard to read across.
    if sum(width + _GAP for width in widths) > room:
        widths = [column.least_width for column in band]
    return [*(label.full_width for label in labels), *widths], [*labels, *band]


def markdown(title: str, columns: Sequence[TextColumn], notes: Sequence[str], rows: int) -> str:
    """Write a Markdown table with its title above and its notes below."""
    lines = [f"**{escaped(title)}**", ""] if title else []
    lines.append(_row([escaped(column.header) for column in columns]))
    lines.append(_row(["--:" if column.numeric else ":--" for column in columns]))
    lines += [_row([column.markdown(row) for column in columns]) for row in range(rows)]
    if any(column.best for column in columns):
        notes = [*notes, "bold: best of its column"]
    if notes:
        lines += ["", *(f"- {escaped(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Keep a text inside its cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
