"""A figure small enough for a terminal: utilisation over time as one line for each GPU type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from rich.text import Text

from apportion.executor.training.records import Run
from apportion.instances.columns import Floats
from apportion.results.numbers import readable
from apportion.results.utilisation import CAUSES, ledger

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float] | Floats) -> str:
    """Draw fractions in [0, 1] as bars, one character each.

    Zero is the lowest bar and one the full block, so that a line of zeros is still seen; NaN (no
    data) is a blank.
    """
    column = np.asarray(values, dtype=np.float64)
    level = np.clip(np.nan_to_num(column) * (len(BARS) - 1), 0, len(BARS) - 1)
    # Only a full cluster gets the full block and only an idle one the lowest bar.
    inner = np.clip(np.rint(level), 1, len(BARS) - 2)
    whole = np.isclose(level, 0, atol=1e-9) | np.isclose(level, len(BARS) - 1, atol=1e-9)
    index = np.where(whole, np.rint(level), inner).astype(np.int64)
    return "".join(
        " " if missing else BARS[at]
        for at, missing in zip(index.tolist(), np.isnan(column).tolist(), strict=True)
    )


def utilisation_figure(run: Run, *, width: int = 60) -> Text:
    """Draw the busy fraction of each GPU type over the recorded time.

    Parameters
    ----------
    run
        The run.
    width
        Bars on each line; each averages an equal part of the time exactly.

    Returns
    -------
    rich.text.Text
        One line for each type (name, bars, mean in percent) and a time axis.
    """
    types = [str(kind) for kind in run.scenario.cluster.types]
    if not run.rounds.index.size:
        return Text("no rounds recorded")
    indent = max(len(kind) for kind in types)
    lines: list[str] = []
    busy, total = _busy_over_time(run, width)
    for column, kind in enumerate(types):
        there = total[:, column]
        none = np.full(width, np.nan)
        fraction = np.divide(busy[:, column], there, out=none, where=there > 0)
        mean = f"{busy[:, column].sum() / there.sum():4.0%}" if there.sum() > 0 else "   -"
        lines.append(f"{kind:<{indent}}  {sparkline(cast(Floats, fraction))}  {mean}")
    start, end = float(run.rounds.now_s[0]), float(run.rounds.end_s[-1])
    left, right = readable(0.0, "s"), readable(end - start, "s")
    axis = left + right.rjust(max(width - len(left), len(right) + 1))
    lines.append(f"{'':<{indent}}  {axis}  busy")
    return Text("\n".join(lines))


def _busy_over_time(run: Run, width: int) -> tuple[Floats, Floats]:
    """Split busy and recorded GPU-seconds over equal parts of the time, shape (width, types)."""
    rounds = run.rounds
    gpus = run.scenario.cluster.gpus
    busy = ledger(run)[CAUSES.index("busy")]
    recorded = (rounds.end_s - rounds.now_s)[:, None] * gpus[None, :]
    start, end = float(rounds.now_s[0]), float(rounds.end_s[-1])
    edges = start + (end - start) * np.arange(width + 1) / width
    return _split(run, busy, edges), _split(run, recorded, edges)


def _split(run: Run, amounts: Floats, edges: Floats) -> Floats:
    """Spread each interval's amount evenly over it and add up between edges."""
    starts, ends = run.rounds.now_s, run.rounds.end_s
    borders = np.column_stack((starts, ends)).ravel()
    out = np.empty((edges.size - 1, amounts.shape[1]))
    for column in range(amounts.shape[1]):
        total = np.concatenate(([0.0], np.cumsum(amounts[:, column])))
        reached = np.column_stack((total[:-1], total[1:])).ravel()
        out[:, column] = np.diff(np.interp(edges, borders, reached))
    return out
