"""An answer for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from apportion.answer import Answer
from apportion.results import Column, Table


def answer_tables(answer: Answer) -> Iterator[Table | Text]:
    """Show what was decided, how good it is, and how it was found."""
    yield from answer.family.tables.decision(answer.policy, answer.round_, answer.decision)
    if answer.stages:
        yield _stages(answer)
    for one in answer.skipped:
        yield Text(f"skipped: {one}")
    yield Text(_verdict(answer))


def _verdict(answer: Answer) -> str:
    parts = [answer.status]
    if answer.objective is not None:
        parts.append(f"objective {answer.objective:.6g}")
    if answer.bound is not None and answer.gap is not None:
        parts.append(f"bound {answer.bound:.6g}, gap {answer.gap:.2%}")
    parts.append(f"{answer.elapsed_s * 1e3:.1f} ms")
    parts.append("passes the checker")
    return ", ".join(parts)


def _stages(answer: Answer) -> Table:
    columns = [
        Column("stage", "stage"), Column("objective", "objective", "ratio"),
        Column("bound", "bound", "ratio"), Column("elapsed_s", "time", "s", timing=True),
        Column("answered", ""), Column("note", ""),
    ]  # fmt: skip
    rows = [
        [
            stage.name, stage.objective, stage.bound, stage.elapsed_s,
            "the answer" if stage.answered else "", stage.note,
        ]
        for stage in answer.stages
    ]  # fmt: skip
    return Table("How it was found", columns, rows)
