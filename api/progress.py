"""Progress of long work, on standard error."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from apportion.cell import Cell
from apportion.comparing import CellDone
from apportion.families.family import Metrics
from apportion.families.family import Progress as RunProgress

_EVERY_S = 0.2
"""Time between two redraws: often enough to look alive, rare enough to cost nothing."""


@contextmanager
def run_progress(title: str, counted: str) -> Generator[RunProgress]:
    """Show how many of the things ``counted`` a run has done, and the time it has reached."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn(counted + ", day {task.fields[day]:.1f}"), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(title, total=None, day=0.0)
        last = 0.0

        def tick(now_s: float, finished: int, total: int) -> None:
            nonlocal last
            if (clock := time.monotonic()) - last >= _EVERY_S:
                last = clock
                bar.update(task, completed=finished, total=total, day=now_s / 86_400.0)

        yield tick


def cell_progress(title: str) -> CellDone:
    """Tell each finished run of a comparison, one line each."""
    console = Console(stderr=True)

    def told(cell: Cell, metrics: Metrics, count: int, total: int) -> None:
        parts = [cell.label, cell.variant or "base"]
        parts += [] if cell.seed is None else [f"seed {cell.seed}"]
        console.print(Text(f"{title}: {count}/{total} {', '.join(parts)}"), soft_wrap=True)

    return told
