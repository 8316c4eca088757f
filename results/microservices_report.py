"""Tables over microservice runs: one run, and many side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apportion.results.comparing import (
    Fairness,
    Labels,
    Values,
    grouped,
    require_known,
    side_by_side,
)
from apportion.results.microservices import DEFINITIONS, MicroserviceMetrics
from apportion.results.numbers import readable
from apportion.results.table import Cell, Column, Table

HEADLINE = (
    "containers_mean",
    "core_hours",
    "violation_fraction",
    "violation_worst_ratio",
    "missed_fraction",
    "tail_ratio_p50",
    "class_kept_least_fraction",
    "churn_fraction",
    "forecast_l1_mean",
    "decide_p95_s",
)
"""What a comparison shows people unless asked otherwise; CSV and JSON carry every metric."""


def comparison_table(
    runs: Iterable[tuple[Labels, MicroserviceMetrics]],
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
        value of a column is marked within each variant, among the rows that kept every SLA over
        the run as a whole: a policy that lets requests wait must not win on containers. Where no
        row did, the ones that were nearest are left.

    Raises
    ------
    ValueError
        On a metric that does not exist, or a run given twice.
    """
    require_known(shown, DEFINITIONS)
    groups = grouped(runs)
    broken = any(
        (one.violation_worst_ratio or 0.0) > 1.0 for found in groups.values() for one in found
    )

    def notes(marked: bool) -> list[str]:
        if not (broken and marked):
            return []
        return ["best values are sought among the rows that kept every SLA over the whole run"]

    return side_by_side(
        groups, DEFINITIONS, title=title, shown=shown, hidden=(),
        fairness=Fairness("violation_worst_ratio", _keeping), notes=notes,
    )  # fmt: skip


def _keeping(worst: Values) -> set[int]:
    over = {index: value or 0.0 for index, value in worst.items()}
    bar = max(1.0, min(over.values(), default=0.0))
    return {index for index, value in over.items() if value <= bar}


def metrics_table(
    metrics: MicroserviceMetrics, *, title: str = "Metrics", timings: bool = False
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
    rows: list[list[Cell]] = []
    for name, what in DEFINITIONS.items():
        if timings or not what.timing:
            value = getattr(metrics, name)
            rows.append([name, what.label, readable(value, what.unit), value, what.unit])
    columns = [
        Column("metric", "metric", readers="machines"),
        Column("label", "metric", readers="people"),
        Column("shown", "value", readers="people"),
        Column("value", "value", readers="machines"),
        Column("unit", "unit", readers="machines"),
    ]
    notes: list[str] = []
    if metrics.endless_fraction:
        notes.append(
            f"in {metrics.endless_fraction:.1%} of rounds and services the tail is infinite:"
            " microservices were overloaded or had no container"
        )
    if metrics.time_limited:
        notes.append("stopped by a wall limit: may not repeat exactly")
    return Table(title, columns, rows, notes)


def definitions_table() -> Table:
    """List every metric with unit, definition and source."""
    columns = [
        Column("metric", "metric"),
        Column("unit", "unit"),
        Column("definition", "definition"),
        Column("source", "source"),
    ]
    rows = [[what.name, what.unit, what.text, what.source] for what in DEFINITIONS.values()]
    return Table("Metrics of a microservice run", columns, rows)
