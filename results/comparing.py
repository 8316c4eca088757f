"""Policies side by side, whatever their family: one row for each policy and variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from apportion.results.definitions import Definition
from apportion.results.table import Cell, Column, Spread, Table

TIE = 1e-9
"""Relative difference below which two values share the mark."""


class Labels(NamedTuple):
    """What a run of a comparison is: its policy, the what-if variant, and the seed."""

    policy: str
    variant: str = ""
    seed: int = 0


class Metrics(Protocol):
    """Metrics of a run: a dataclass whose fields are named in definitions."""

    @property
    def time_limited(self) -> bool:
        """Whether a wall limit stopped a decision."""
        ...


M = TypeVar("M", bound=Metrics)
Groups = Mapping[tuple[str, str], list[M]]
"""Metrics of all seeds by policy and variant."""

Values = Mapping[int, float | None]
"""Value of a metric by row."""


class Fairness(NamedTuple):
    """Which rows may be best.

    Parameters
    ----------
    metric
        What is looked at.
    able
        The rows that may be best, by their values of it, within a variant.
    """

    metric: str
    able: Callable[[Values], set[int]]


def grouped(runs: Iterable[tuple[Labels, M]]) -> dict[tuple[str, str], list[M]]:
    """Group runs by policy and variant, in order of first appearance.

    Raises
    ------
    ValueError
        On a run given twice.
    """
    groups: dict[tuple[str, str], list[M]] = {}
    seen: set[Labels] = set()
    for labels, metrics in runs:
        if labels in seen:
            raise ValueError(f"comparison: {labels} is given twice")
        seen.add(labels)
        groups.setdefault((labels.policy, labels.variant), []).append(metrics)
    return groups


def side_by_side(
    groups: Groups[Any],
    definitions: Mapping[str, Definition],
    *,
    title: str,
    shown: Sequence[str],
    hidden: Sequence[str],
    fairness: Fairness,
    notes: Callable[[bool], Sequence[str]],
) -> Table:
    """Lay groups out as a table.

    Parameters
    ----------
    groups
        As ``grouped`` makes them.
    definitions
        Of the metrics; CSV and JSON carry all of them.
    title
        One line.
    shown, hidden
        Metrics for people, in their order, and those of them that are left out after all.
    fairness
        Which rows may be best of a column.
    notes
        Lines between those on seeds and those on variants, given whether anything is marked.
    """
    visible = [name for name in shown if name not in hidden]
    order = [*shown, *(name for name in definitions if name not in shown)]
    rows: list[list[Cell]] = []
    for (policy, variant), found in groups.items():
        row: list[Cell] = [policy, variant, len(found)]
        rows.append(row + [over_seeds([getattr(one, name) for one in found]) for name in order])
    columns = [
        Column("policy", "policy"),
        Column("variant", "variant", readers="both" if varies(groups, 1) else "machines"),
        Column("seeds", "seeds", "count", readers="machines"),
        *(metric_column(definitions[name], people=name in visible) for name in order),
    ]
    best = _best(rows, columns, definitions, visible, fairness)
    said = [*_on_seeds(groups), *notes(bool(best)), *_on_variants(groups, bool(best))]
    return Table(title, columns, rows, said, best)


def require_known(shown: Sequence[str], definitions: Mapping[str, Definition]) -> None:
    """Refuse metrics that do not exist."""
    unknown = [name for name in shown if name not in definitions]
    if unknown:
        raise ValueError(f"comparison: no metric {unknown[0]!r}")


def varies(groups: Groups[Any], part: int) -> bool:
    """Whether groups differ in their policy (0) or variant (1)."""
    return len({key[part] for key in groups}) > 1


def metric_column(what: Definition, *, people: bool) -> Column:
    """Make the column of a metric."""
    return Column(
        what.name, what.label, what.unit, "both" if people else "machines", timing=what.timing
    )


def over_seeds(values: Sequence[float | None]) -> Cell:
    """Average over seeds, with the least and the largest."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(values) == 1:
        return known[0]
    low, high = min(known), max(known)
    # Rounding must not carry the mean of equal values past them.
    mean = min(max(math.fsum(known) / len(known), low), high)
    return Spread(mean, low, high)


def _on_seeds(groups: Groups[Any]) -> list[str]:
    notes: list[str] = [] if groups else ["no runs"]
    counts = {key: len(found) for key, found in groups.items()}
    if counts and max(counts.values()) > 1:
        if len(set(counts.values())) == 1:
            notes.append(f"mean over {max(counts.values())} seeds (least..largest)")
        else:
            each = ", ".join(f"{_name(key)}: {count}" for key, count in counts.items())
            notes.append(f"mean over seeds (least..largest); seeds differ: {each}")
    return notes


def _on_variants(groups: Groups[Any], marked: bool) -> list[str]:
    notes: list[str] = []
    if marked and varies(groups, 1):
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
    rows: Sequence[Sequence[Cell]],
    columns: Sequence[Column],
    definitions: Mapping[str, Definition],
    shown: Sequence[str],
    fairness: Fairness,
) -> frozenset[tuple[int, str]]:
    at = {column.key: position for position, column in enumerate(columns)}
    marks: set[tuple[int, str]] = set()
    for variant in {row[at["variant"]] for row in rows}:
        peers = [index for index, row in enumerate(rows) if row[at["variant"]] == variant]
        judged = {index: _value(rows[index][at[fairness.metric]]) for index in peers}
        able = fairness.able(judged)
        for name in shown:
            values = {index: _value(rows[index][at[name]]) for index in peers}
            marks |= {(index, name) for index in _winners(values, able, definitions[name].better)}
    return frozenset(marks)


def _winners(values: Values, fair: set[int], better: str | None) -> Iterable[int]:
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
