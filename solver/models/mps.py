"""Writing a model as free-format MPS that HiGHS, SCIP and CBC read alike.

Readers disagree on ``OBJSENSE``, so the file always minimises: a maximised objective is written
with its signs turned, and a comment on the first line says so.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.models.model import Model

TURNED = "* maximised objective, written as the minimisation of its negative"
"""First line of files whose objective is a maximisation."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.,\[\]-]")
_LONGEST_NAME = 100
# some readers take these for section heads wherever they open a line
_SECTIONS = frozenset(
    ("NAME", "ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS", "ENDATA", "OBJSENSE", "MAX", "MIN")
)


def write_mps(model: Model, path: str | os.PathLike[str], *, objective: int = 0) -> None:
    """Write a model to a file, under a temporary name until it is complete.

    Parameters
    ----------
    model
        The model.
    path
        File to write; replaced if it exists.
    objective
        Position of the one objective to write, an MPS file having no more.
    """
    target = Path(path)
    title, *rows = legal_names([model.objectives[objective].name, *model.row_names()])
    columns = legal_names(model.column_names())
    text = mps_text(model, columns, rows, title=title, objective=objective)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="ascii", newline="\n") as file:
            file.write(text)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def mps_text(
    model: Model,
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    title: str = "cost",
    objective: int = 0,
) -> str:
    """Text of the MPS file, with the names given for columns, rows and the objective's row."""
    chosen = model.objectives[objective]
    lines = [
        *_row_section(model, rows, title),
        *_column_section(model, columns, rows, title, chosen.sign * chosen.cost),
        *_side_sections(model, rows, title, chosen.sign * chosen.offset),
        *_bound_section(model, columns),
        "ENDATA\n",
    ]
    head = f"NAME {legal_names([model.name])[0]} FREE\n"
    return (f"{TURNED}\n" if chosen.maximise else "") + head + "\n".join(lines)


def legal_names(names: Sequence[str]) -> list[str]:
    """Make names that every reader takes, unique and as close to the given ones as possible."""
    legal: list[str] = []
    taken: set[str] = set()
    for position, name in enumerate(names):
        word = _ILLEGAL.sub("_", name)[:_LONGEST_NAME]
        if not word or not (word[0].isalpha() or word[0] == "_") or word.upper() in _SECTIONS:
            word = f"_{word}"
        while word in taken:
            word = f"{word}_{position}"
        taken.add(word)
        legal.append(word)
    return legal


def _row_section(model: Model, rows: Sequence[str], title: str) -> list[str]:
    lower, upper = model.row_lower, model.row_upper
    kinds = np.select(
        [lower == upper, np.isfinite(upper), np.isfinite(lower)], ["E", "L", "G"], default="N"
    )
    lines = ["ROWS", f" N {title}"]
    lines.extend(f" {kind} {row}" for kind, row in zip(kinds.tolist(), rows, strict=True))
    return lines


def _column_section(
    model: Model, columns: Sequence[str], rows: Sequence[str], title: str, cost: FloatArray
) -> list[str]:
    """Entries column by column, the cost first: it is written even if zero, to name the column."""
    count = model.column_count
    column = np.concatenate((np.arange(count), model.indices))
    order = np.argsort(column, kind="stable")
    row = np.concatenate((np.zeros(count, dtype=np.int64), model.row_of_entry + 1))[order]
    column = column[order]
    values = _texts(np.concatenate((cost, model.values))[order])
    names = [title, *rows]
    entries = [
        f" {columns[j]} {names[i]} {value}"
        for j, i, value in zip(column.tolist(), row.tolist(), values, strict=True)
    ]
    lines = ["COLUMNS"]
    begin = 0
    for stop, integer in _runs(model.integer):
        end = int(np.searchsorted(column, stop))
        if integer:
            lines.append(" MARKER 'MARKER' 'INTORG'")
        lines.extend(entries[begin:end])
        if integer:
            lines.append(" MARKER 'MARKER' 'INTEND'")
        begin = end
    return lines


def _runs(mask: BoolArray) -> list[tuple[int, bool]]:
    """Ends and values of the stretches over which a mask is constant."""
    if not mask.size:
        return []
    ends = [*(np.flatnonzero(mask[1:] != mask[:-1]) + 1).tolist(), mask.size]
    return [(end, bool(mask[end - 1])) for end in ends]


def _side_sections(model: Model, rows: Sequence[str], title: str, offset: float) -> list[str]:
    lower, upper = model.row_lower, model.row_upper
    side = np.where(np.isfinite(upper), upper, lower)
    lines = ["RHS"]
    if offset != 0.0:
        # by custom the right-hand side of the objective's row is subtracted
        lines.append(f" RHS {title} {-offset!r}")
    lines.extend(_pairs("RHS", rows, side, np.flatnonzero(np.isfinite(side) & (side != 0.0))))
    ranged = np.flatnonzero(np.isfinite(lower) & np.isfinite(upper) & (lower != upper))
    if ranged.size:
        lines.append("RANGES")
        width = np.zeros(model.row_count)
        width[ranged] = upper[ranged] - lower[ranged]
        lines.extend(_pairs("RNG", rows, width, ranged))
    return lines


def _bound_section(model: Model, columns: Sequence[str]) -> list[str]:
    """Bounds, each stated: readers differ in the defaults of integers and of negative upper ones.

    Only a lower bound of zero is left to the default.
    """
    lower, upper = model.lower, model.upper
    fixed = lower == upper
    from_below, from_above = np.isfinite(lower) & ~fixed, np.isfinite(upper) & ~fixed
    lines = ["BOUNDS"]
    lines.extend(_pairs("FX BND", columns, lower, np.flatnonzero(fixed)))
    lines.extend(_pairs("LO BND", columns, lower, np.flatnonzero(from_below & (lower != 0.0))))
    for kind, chosen in (
        ("FR", (lower == -np.inf) & (upper == np.inf)),
        ("MI", (lower == -np.inf) & np.isfinite(upper)),
        ("PL", np.isfinite(lower) & (upper == np.inf)),
    ):
        lines.extend(f" {kind} BND {columns[j]}" for j in np.flatnonzero(chosen).tolist())
    lines.extend(_pairs("UP BND", columns, upper, np.flatnonzero(from_above)))
    return lines


def _pairs(head: str, names: Sequence[str], values: FloatArray, chosen: IntArray) -> list[str]:
    texts = _texts(values[chosen])
    return [f" {head} {names[i]} {text}" for i, text in zip(chosen.tolist(), texts, strict=True)]


def _texts(values: FloatArray) -> list[str]:
    """Shortest texts that read back as the same numbers; each distinct number is made once."""
    distinct, place = np.unique(values, return_inverse=True)
    words = [repr(value) for value in distinct.tolist()]
    return [words[i] for i in place.tolist()]
