"""Tables over runs: one run, where its GPU time went, many runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from apportion.results.definitions import Definition
from apportion.results.numbers import readable
from apportion.results.table import Cell, Column, Spread, Table
from apportion.results.training import DEFINITIONS, TrainingMetrics
from apportion.results.utilisation import CAUSES

HEADLINE = (
    "unfinished",
    "jct_mean_s",
    "jct_p99_s",
    "makespan_s",
    "ftf_share_mean",
    "ftf_share_max",
    "starvation_max_s",
    "busy_fraction",
    "preemptions",
    "decide_p95_s",
)
"""What a comparison shows people unless asked otherwise; CSV and JSON carry every metric."""

TIE = 1e-9
"""Relative difference below which two values share the mark."""


class Labels(NamedTuple):
    """What a run of a comparison is: its policy, the what-if variant, and the seed."""

    policy: str
    variant: str = ""
    seed: int = 0


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
    unknown = [name for name in shown if name not in DEFINITIONS]
    if unknown:
        raise ValueError(f"comparison: no metric {unknown[0]!r}")
    groups = _grouped(runs)
    # A column of zeros tells nobody anything; it returns as soon as one job is left over.
    complete = not _any_unfinished(groups)
    visible = [name for name in shown if not (complete and name == "unfinished")]
    order = [*shown, *(name for name in DEFINITIONS if name not in shown)]
    rows: list[list[Cell]] = []
    for (policy, variant), found in groups.items():
        row: list[Cell] = [policy, variant, len(found)]
        rows.append(row + [_over_seeds([getattr(one, name) for one in found]) for name in order])
    columns = [
        Column("policy", "policy"),
        Column("variant", "variant", readers="both" if _varies(groups, 1) else "machines"),
        Column("seeds", "seeds", "count", readers="machines"),
        *(_column(DEFINITIONS[name], people=name in visible) for name in order),
    ]
    best = _best(rows, columns, visible)
    return Table(title, columns, rows, _notes(groups, bool(best)), best)


Groups = Mapping[tuple[str, str], list[TrainingMetrics]]


def _grouped(runs: Iterable[tuple[Labels, TrainingMetrics]]) -> Groups:
    groups: dict[tuple[str, str], list[TrainingMetrics]] = {}
    seen: set[Labels] = set()
    for labels, metrics in runs:
        if labels in seen:
            raise ValueError(f"comparison: {labels} is given twice")
        seen.add(labels)
        groups.setdefault((labels.policy, labels.variant), []).append(metrics)
    return groups


def _varies(groups: Groups, part: int) -> bool:
    return len({key[part] for key in groups}) > 1


def _any_unfinished(groups: Groups) -> bool:
    return any(one.unfinished for found in groups.values() for one in found)


def _column(what: Definition, *, people: bool) -> Column:
    return Column(
        what.name, what.label, what.unit, "both" if people else "machines", timing=what.timing
    )


def _over_seeds(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(values) == 1:
        return known[0]
    low, high = min(known), max(known)
    # Rounding must not carry the mean of equal values past them.
    mean = min(max(math.fsum(known) / len(known), low), high)
    return Spread(mean, low, high)


def _notes(groups: Groups, marked: bool) -> list[str]:
    notes: list[str] = [] if groups else ["no runs"]
    counts = {key: len(found) for key, found in groups.items()}
    if counts and max(counts.values()) > 1:
        if len(set(counts.values())) == 1:
            notes.append(f"mean over {max(counts.values())} seeds (least..largest)")
        else:
            each = ", ".join(f"{_name(key)}: {count}" for key, count in counts.items())
            notes.append(f"mean over seeds (least..largest); seeds differ: {each}")
    if _any_unfinished(groups):
        notes.append("where jobs are unfinished, completion statistics leave them out")
    if marked and _any_unfinished(groups):
        notes.append("best values are sought among the rows with the fewest unfinished jobs")
    if marked and _varies(groups, 1):
        notes.append("best values are sought within each variant")
    limited = [
        _name(key) for key, found in groups.items() if any(one.time_limited for one in found)
    ]
    if limited:
        notes.append(f"stopped by a wall limit, may not repeat exactly: {', '.join(limited)}")
    return notes


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} ({key[1]})" if key[1] else key[0]


def _best(
    rows: Sequence[Sequence[Cell]], columns: Sequence[Column], shown: Sequence[str]
) -> frozenset[tuple[int, str]]:
    at = {column.key: position for position, column in enumerate(columns)}
    marks: set[tuple[int, str]] = set()
    for variant in {row[at["variant"]] for row in rows}:
        peers = [index for index, row in enumerate(rows) if row[at["variant"]] == variant]
        left = {index: _value(rows[index][at["unfinished"]]) or 0.0 for index in peers}
        fair = [index for index in peers if left[index] == min(left.values())]
        for name in shown:
            values = {index: _value(rows[index][at[name]]) for index in peers}
            marks |= {(index, name) for index in _winners(values, fair, DEFINITIONS[name].better)}
    return frozenset(marks)


def _winners(
    values: Mapping[int, float | None], fair: Sequence[int], better: str | None
) -> Iterable[int]:
    known = {index: value for index, value in values.items() if value is not None}
    able = {index: value for index, value in known.items() if index in fair}
    if better is None or not able:
        return []
    top = (min if better == "low" else max)(able.values())
    close = {
        index
        for index, value in known.items()
        if abs(value - top) <= TIE * max(abs(value), abs(top))
    }
    # Nothing is best where everything is equal, or where there is nothing to compare with.
    return [] if close == known.keys() else [index for index in able if index in close]


def _value(cell: Cell) -> float | None:
    if isinstance(cell, Spread):
        return cell.mean
    return cast("float | None", cell)


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
        *(_column(DEFINITIONS[f"{cause}_fraction"], people=True) for cause in CAUSES),
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
