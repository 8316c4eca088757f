"""What one unit more of a row's side is worth, found by solving again and told beside the dual."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.solver.arrays import FloatArray, IntArray
from apportion.solver.budget import Budget
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.model import Model
from apportion.solver.solution import Solution
from apportion.solver.solve import Solver
from apportion.solver.status import Status
from apportion.solver.tolerances import PRIMAL


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of rows, as columns of a table; everything is a change of an objective as stated.

    One sign convention: the change per unit by which a side is *raised*. More capacity in a row
    with ``<=`` has a negative price in a minimisation and a positive one in a maximisation, or
    zero.

    Attributes
    ----------
    rows
        Names of the rows.
    sides
        Which side was moved: ``"upper"``, ``"lower"``, or ``"both"`` of an equality.
    objectives
        Names of the objectives, in order of priority.
    dual
        Dual of each row, for LPs of one objective; else NaN. Where prices on the two sides differ
        a dual is any number between them.
    more
        Change of each objective with one unit more, shape (rows, objectives); NaN where an optimum
        was not proved.
    less
        What the unit that is there already was worth: the optimum minus the one with one unit less,
        per unit, in the same shape.
    more_status, less_status
        Status of the models solved for them, such as ``"infeasible"``.
    unit
        By how much sides were moved.
    """

    rows: list[str]
    sides: list[str]
    objectives: list[str]
    dual: FloatArray
    more: FloatArray
    less: FloatArray
    more_status: list[str]
    less_status: list[str]
    unit: float

    @property
    def one_more(self) -> FloatArray:
        """Change of the last objective per unit with one unit more, shape (rows,)."""
        return self.more[:, -1]

    @property
    def one_less(self) -> FloatArray:
        """Value, in the last objective, of the unit that is there already, shape (rows,)."""
        return self.less[:, -1]

    def to_dict(self) -> dict[str, list[Any]]:
        """Give the table by columns as plain data, NaN as ``None``."""
        table: dict[str, list[Any]] = {"row": list(self.rows), "side": list(self.sides)}
        table["dual"] = _plain(self.dual)
        for position, name in enumerate(self.objectives):
            suffix = "" if len(self.objectives) == 1 else f" ({name})"
            table[f"one_more{suffix}"] = _plain(self.more[:, position])
            table[f"one_less{suffix}"] = _plain(self.less[:, position])
        table["one_more_status"] = list(self.more_status)
        table["one_less_status"] = list(self.less_status)
        return table


def prices(
    model: Model,
    rows: str | int | Sequence[str | int],
    solver: Solver,
    *,
    budget: Budget,
    unit: float = 1.0,
) -> Prices:
    """Price rows: solve once as it is, and twice for each row with its side moved.

    The side that binds is moved, of a row with two sides where neither binds the upper one. Models
    are solved to gap zero, so that differences are those of optima. For several objectives each
    one's change is given; later ones may get worse while earlier ones improve.

    Parameters
    ----------
    model
        The model.
    rows
        Names of rows or of families of rows, or indices.
    solver
        How to solve; its gap is not used.
    budget
        Deadline for everything. Prices that it cuts off are NaN.
    unit
        By how much to move a side.

    Raises
    ------
    ModelError
        If there is no such row, it has no side, or the unit is not a positive number.
    NoSolutionError
        If no optimum of the model itself was proved.
    """
    if not 0.0 < unit < np.inf:
        raise ModelError(f"unit = {unit!r}: must be a number above zero")
    chosen = _chosen_rows(model, rows)
    solver = replace(solver, gap=0.0)
    base = solver.solve(model, budget=budget)
    if base.status is not Status.OPTIMAL:
        raise NoSolutionError(f"no prices: {base.status.value} ({base.message})")
    sides = [_binding_side(model, row, base.x) for row in chosen.tolist()]
    known = base.duals is not None and len(model.objectives) == 1
    moved = [
        [solver.solve(_moved(model, row, side, step), budget=budget) for step in (unit, -unit)]
        for row, side in zip(chosen.tolist(), sides, strict=True)
    ]
    return Prices(
        rows=[model.row_name(row) for row in chosen.tolist()],
        sides=sides,
        objectives=[objective.name for objective in model.objectives],
        dual=base.duals[chosen]
        if known and base.duals is not None
        else np.full(chosen.size, np.nan),
        more=_changes(base, [pair[0] for pair in moved], unit),
        less=_changes(base, [pair[1] for pair in moved], -unit),
        more_status=[pair[0].status.value for pair in moved],
        less_status=[pair[1].status.value for pair in moved],
        unit=unit,
    )


def _chosen_rows(model: Model, rows: str | int | Sequence[str | int]) -> IntArray:
    families = {block.name: range(block.start, block.stop) for block in model.row_blocks}
    names = {name: i for i, name in enumerate(model.row_names())}
    chosen: list[int] = []
    for row in [rows] if isinstance(rows, str | int) else rows:
        if isinstance(row, int):
            if not 0 <= row < model.row_count:
                raise ModelError(f"row {row}: there are {model.row_count}")
            chosen.append(row)
        elif row in names:
            chosen.append(names[row])
        elif row in families:
            chosen.extend(families[row])
        else:
            near = difflib.get_close_matches(row, [*families, *names], 1)
            raise ModelError(f"there is no row {row}" + (f"; is it {near[0]}?" if near else ""))
    return np.array(chosen, dtype=np.int64)


def _binding_side(model: Model, row: int, x: FloatArray) -> str:
    low, high = float(model.row_lower[row]), float(model.row_upper[row])
    if low == high:
        return "both"
    if not (np.isfinite(low) or np.isfinite(high)):
        raise ModelError(f"row {model.row_name(row)} has no side to price")
    if not np.isfinite(low):
        return "upper"
    slack = PRIMAL * max(1.0, abs(low))
    at_lower = float(model.activity(x)[row]) - low <= slack
    return "lower" if at_lower or not np.isfinite(high) else "upper"


def _moved(model: Model, row: int, side: str, step: float) -> Model:
    """Move a side; the other one gives way where it is in the way."""
    lower, upper = model.row_lower.copy(), model.row_upper.copy()
    if side in ("lower", "both"):
        lower[row] += step
    if side in ("upper", "both"):
        upper[row] += step
    if side == "lower":
        upper[row] = max(upper[row], lower[row])
    if side == "upper":
        lower[row] = min(lower[row], upper[row])
    return model.with_row_sides(lower, upper)


def _changes(base: Solution, moved: list[Solution], step: float) -> FloatArray:
    start = np.array(base.objectives)
    changes = np.full((len(moved), start.size), np.nan)
    for at, found in enumerate(moved):
        if found.status is Status.OPTIMAL:
            changes[at] = (np.array(found.objectives) - start) / step
    return changes


def _plain(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]
