"""Rules of a model, one by one and in words: its rows, and the bounds that are more than a domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.blocks import Block
from apportion.solver.models.model import Model


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes
    ----------
    kind
        A row, or a column's lower or upper bound.
    index
        Index of the row or column in the model.
    block
        Name of the family that it belongs to.
    name
        Name of the row or column, such as ``capacity[A100]``.
    text
        What it demands, such as ``capacity[A100] <= 8``.
    """

    kind: Literal["row", "lower", "upper"]
    index: int
    block: str
    name: str
    text: str


def rules_of(model: Model, *, domains: bool) -> list[Rule]:
    """Give all rules of a model: rows with a side, then bounds.

    Parameters
    ----------
    model
        The model.
    domains
        Whether bounds that only say what a column is are left out: not negative, and 0 or 1 for
        whole numbers.
    """
    rules = [
        Rule("row", i, _family(model.row_blocks, i), model.row_name(i), row_text(model, i))
        for i in np.flatnonzero(_has_side(model)).tolist()
    ]
    lower, upper = _domain(model, domains)
    for kind, mask, sign, bound in (
        ("lower", model.lower > lower, ">=", model.lower),
        ("upper", model.upper < upper, "<=", model.upper),
    ):
        for j in np.flatnonzero(mask).tolist():
            name = model.column_name(j)
            text = f"{name} {sign} {bound[j]:g}"
            family = _family(model.column_blocks, j)
            rules.append(Rule("lower" if kind == "lower" else "upper", j, family, name, text))
    return rules


def only(model: Model, rules: Iterable[Rule], *, domains: bool) -> Model:
    """Give the model with these rules and no others, asking for any point at all."""
    lower, upper = (side.copy() for side in _domain(model, domains))
    kept = np.zeros(model.row_count, dtype=np.bool_)
    for rule in rules:
        if rule.kind == "row":
            kept[rule.index] = True
        elif rule.kind == "lower":
            lower[rule.index] = model.lower[rule.index]
        else:
            upper[rule.index] = model.upper[rule.index]
    matrix = model.matrix[np.flatnonzero(kept)]
    return replace(
        model.with_cost(np.zeros(model.column_count)),
        lower=lower,
        upper=upper,
        indptr=matrix.indptr.astype(np.int32),
        indices=matrix.indices.astype(np.int32),
        values=matrix.data,
        row_lower=model.row_lower[kept],
        row_upper=model.row_upper[kept],
        row_blocks=(),
    )


def row_text(model: Model, row: int) -> str:
    """What a row demands, in words."""
    name, low, high = model.row_name(row), model.row_lower[row], model.row_upper[row]
    if low == high:
        return f"{name} = {low:g}"
    if np.isinf(low):
        return f"{name} <= {high:g}" if np.isfinite(high) else f"{name} is free"
    return f"{name} >= {low:g}" if np.isinf(high) else f"{low:g} <= {name} <= {high:g}"


def grouped(rules: Sequence[Rule]) -> dict[tuple[str, str], list[Rule]]:
    """Group rules by kind and family, in order of appearance."""
    groups: dict[tuple[str, str], list[Rule]] = {}
    for rule in rules:
        groups.setdefault((rule.kind, rule.block), []).append(rule)
    return groups


def _has_side(model: Model) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isfinite(model.row_lower) | np.isfinite(model.row_upper)


def _family(blocks: tuple[Block, ...], index: int) -> str:
    return next((one.name for one in blocks if one.start <= index < one.stop), "")


def _domain(model: Model, domains: bool) -> tuple[FloatArray, FloatArray]:
    """Widest bounds of each column that are taken for granted."""
    if not domains:
        return np.full(model.column_count, -np.inf), np.full(model.column_count, np.inf)
    lower = np.where(model.lower >= 0.0, 0.0, -np.inf)
    yes_no = model.integer & (model.lower >= 0.0) & (model.upper <= 1.0)
    return lower, np.where(yes_no, 1.0, np.inf)
