"""Tables over runs: one run, where its GPU time went, many runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from apportion.results.comparing import (
    Fairness,
    Labels,
    Values,
    grouped,
    metric_column,
    require_known,
    side_by_side,
)
from apportion.results.definitions import Definition
from apportion.results.numbers import readable
from apportion.results.table import Cell, Column, Table
from apportion.results.training import DEFINITIONS, TrainingMetrics
from apportion.results.utilisation import CAUSES

HEADLINE = (
    "unfinished",
    "jct_mean_s",
    "jct_p99_s",
    "makespan_s",
    "deadline_miss_fraction",
    "best_effort_jct_mean_s",
    "ftf_share_mean",
    "ftf_share_max",
    "starvation_max_s",
    "busy_fraction",
    "preemptions",
    "decide_p95_s",
)
"""What a comparison shows people unless asked otherwise; CSV and JSON carry every metric."""

OF_DEADLINES = ("deadline_miss_fraction", "best_effort_jct_mean_s")
"""Shown only where some job has a deadline."""


def comparison_table(
    runs: Iterable[tuple[Labels, TrainingMetrics]],
    *,
    title: str = "Comparison",
    shown: Sequence[str] = HEADLINE,
) -> Table:
    """Set policies side by side, one row for each policy and variant.

    Parameters
    ----------
    runs
        Each run once; rows stand in order of first appearance.
    title
        One line.
    shown
        Metrics for people, by name, in their order. CSV and JSON carry every metric.

    Returns
    -------
    Table
        Means over seeds, with least and largest value where there are several seeds. The best
        value of a column is marked within each variant, among the rows that left the fewest jobs
        unfinished: a policy that drops its long jobs must not win on completion time.

    Raises
    ------
    ValueError
        On a metric that does not exist, or a run given twice.
    """
    require_known(shown, DEFINITIONS)
    groups = grouped(runs)
    left_over = any(one.unfinished for found in groups.values() for one in found)

    def notes(marked: bool) -> list[str]:
        if not left_over:
            return []
        said = ["where jobs are unfinished, completion statistics leave them out"]
        if marked:
            said.append("best values are sought among the rows with the fewest unfinished jobs")
        return said

    # A column of zeros tells nobody anything; it returns as soon as one job is left over.
    hidden = () if left_over else ("unfinished",)
    if not any(one.slo_jobs for found in groups.values() for one in found):
        hidden = (*hidden, *OF_DEADLINES)
    return side_by_side(
        groups, DEFINITIONS, title=title, shown=shown, hidden=hidden,
        fairness=Fairness("unfinished", _fewest), notes=notes,
    )  # fmt: skip


def _fewest(unfinished: Values) -> set[int]:
    left = {index: value or 0.0 for index, value in unfinished.items()}
    return {index for index, value in left.items() if value == min(left.values())}


def metrics_table(
    metrics: TrainingMetrics, *, title: str = "Metrics", timings: bool = False
) -> Table:
    """List the metrics of one run, one row each; CSV and JSON carry raw values and units.

    Parameters
    ----------
    metrics
        Of the run.
    title
        One line.
    timings
        True adds the rows of wall times; without them the same run gives the same bytes.
    """
    names = [name for name, what in DEFINITIONS.items() if timings or not what.timing]
    rows = [_metric_row(DEFINITIONS[name], getattr(metrics, name)) for name in names]
    columns = [
        Column("metric", "metric", readers="machines"),
        Column("label", "metric", readers="people"),
        Column("shown", "value", readers="people"),
        Column("value", "value", readers="machines"),
        Column("unit", "unit", readers="machines"),
    ]
    notes: list[str] = []
    if metrics.unfinished:
        notes.append(
            f"{metrics.unfinished:,} of {metrics.jobs:,} jobs are unfinished:"
            " completion statistics leave them out"
        )
    if metrics.time_limited:
        notes.append("stopped by a wall limit: may not repeat exactly")
    return Table(title, columns, rows, notes)


def _metric_row(what: Definition, value: Any) -> list[Cell]:
    return [what.name, what.label, readable(value, what.unit), value, what.unit]


def utilisation_table(metrics: TrainingMetrics, *, title: str = "Utilisation") -> Table:
    """Show for each GPU type, and for all together, which fraction of its time went where."""
    columns = [
        Column("type", "type"),
        *(metric_column(DEFINITIONS[f"{cause}_fraction"], people=True) for cause in CAUSES),
    ]
    rows: list[list[Cell]] = [
        [kind, *(causes[cause] for cause in CAUSES)] for kind, causes in metrics.types.items()
    ]
    rows.append(["all", *(getattr(metrics, f"{cause}_fraction") for cause in CAUSES)])
    return Table(title, columns, rows, ["of GPUs x recorded time"])


def definitions_table() -> Table:
    """List every metric with unit, definition and source."""
    columns = [
        Column("metric", "metric"),
        Column("unit", "unit"),
        Column("definition", "definition"),
        Column("source", "source"),
    ]
    rows = [[what.name, what.unit, what.text, what.source] for what in DEFINITIONS.values()]
    return Table("Metrics of a training run", columns, rows)
