"""An answer for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.text import Text

from apportion.answer import Answer
from apportion.results import Column, Table


def answer_tables(answer: Answer) -> Iterator[Table | Text]:
    """Show what was decided, how good it is, and how it was found."""
    yield _jobs(answer)
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


def _jobs(answer: Answer) -> Table:
    """One row for each job: where it runs, or that it waits, and what the policy says of it."""
    round_, plan = answer.round_, answer.allocation
    jobs, cluster = round_.jobs, round_.cluster
    entry = {row: at for at, row in enumerate(plan.job.tolist())}
    hosts: dict[int, list[str]] = {}
    if plan.placement is not None:
        for row, node, gpus in zip(
            plan.placement.job.tolist(), plan.placement.node.tolist(),
            plan.placement.gpus.tolist(), strict=True,
        ):  # fmt: skip
            hosts.setdefault(row, []).append(f"{cluster.nodes[node]} x{gpus}")
    shown = {name: np.asarray(column) for name, column in answer.decision.per_job.items()}
    columns = [
        Column("job", "job"), Column("gang", "gang", "count"), Column("type", "GPU type"),
        Column("nodes", "nodes"),
        *(Column(f"own_{name}", name, "ratio" if column.dtype.kind in "iuf" else "")
          for name, column in shown.items()),
    ]  # fmt: skip
    rows: list[list[str | int | float | None]] = []
    for row, name in enumerate(jobs.id.tolist()):
        at = entry.get(row)
        kind = "waits" if at is None else str(cluster.types[plan.gpu_type[at]])
        own = [_cell(column[row]) for column in shown.values()]
        rows.append([name, int(jobs.gang[row]), kind, ", ".join(hosts.get(row, [])), *own])
    total = int(round_.capacity.sum())
    title = f"{answer.policy}: {plan.job.size} of {len(jobs)} jobs on {int(plan.gpus.sum())} of {total} GPUs"
    return Table(title, columns, rows, list(answer.notes))


def _cell(value: Any) -> str | int | float | None:
    """Show one value of a policy's own columns; what is infinite is left blank."""
    plain = value.item()
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


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
