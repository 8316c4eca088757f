"""What rows of a program's own model are worth: duals, and the model solved again beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats
from apportion.questions.model_questions import SAME, ModelQuestions
from apportion.results import Column, Table
from apportion.results.table import Cell
from apportion.solver import NoSolutionError, Prices
from apportion.solver import prices as price_rows

DEADLINES = frozenset({"in_time", "deadline"})
"""Families of rows by job that say how fast it must be, in parts of its best speed."""

HUNDREDTH = 0.01
"""By how much those are moved: the whole of a job's best speed more is never possible."""

MOST = 20
"""Rows of users, tenants and deadlines that are priced: each takes two solves."""

SIGNS = (
    "one more: optimum with the limit one higher minus the optimum as it is; the last one: optimum"
    " as it is minus that with the limit one lower; all are changes of the policy's objective"
)


@dataclass(frozen=True, eq=False)
class Priced:
    """Prices of some rows, in the policy's objective.

    Parameters
    ----------
    one_more, last_one, dual
        Changes of each objective per unit, shape (rows, objectives), NaN where no optimum was
        proved; duals have shape (rows,) and are NaN where the model has none.
    """

    one_more: Floats
    last_one: Floats
    dual: Floats


def model_prices(model: ModelQuestions, name: str, objective: float | None) -> Table:
    """Price the GPUs of each type, and the quotas and deadlines that bind.

    Parameters
    ----------
    model
        The model.
    name
        Name of the policy.
    objective
        Objective of its decision, None where it has none.
    """
    capacity = [row for row, (family, _) in model.rows_by("type").items() if family == "capacity"]
    # limits of programs that take more GPUs themselves need not be in GPUs
    demand = [] if model.resizable and not model.in_gpus else _quotas(model)
    deadline = _deadlines(model)
    left_out = len(demand) + len(deadline) - MOST
    demand, deadline = demand[:MOST], deadline[: max(0, MOST - len(demand))]
    titles = [one.name for one in model.model.objectives]
    several = len(titles) > 1
    columns = [Column("gpu_type", "GPU type or rule"), Column("free", "limit", "ratio")]
    for at, title in enumerate(titles):
        key, what = ("", title if several else "objective") if not at else (f"_{at + 1}", title)
        columns += [
            Column(f"one_more{key}", f"{what}, one more", "ratio"),
            Column(f"last_one{key}", f"{what}, the last one", "ratio"),
        ]
    columns.append(Column("relaxation", "price by duals", "ratio"))
    rows: list[list[Cell]] = []
    blank = False
    for chosen, unit in ((capacity, 1.0), (demand, 1.0), (deadline, HUNDREDTH)):
        if not chosen:
            continue
        found = priced(model, chosen, unit) if chosen is not capacity else gpus(model, chosen)
        blank = blank or bool(np.isnan(found.one_more).any() or np.isnan(found.last_one).any())
        for at, row in enumerate(chosen):
            cells: list[Cell] = [_name(model, row, deadline), _limit(model, row)]
            for of in range(len(titles)):
                cells += [_plain(found.one_more[at, of]), _plain(found.last_one[at, of])]
            rows.append([*cells, _plain(found.dual[at])])
    notes = [SIGNS, *_notes(model, objective)]
    if left_out > 0:
        notes.append(f"{left_out} more quotas and deadlines bind: they were not priced")
    if blank:
        notes.append("blank: no optimum was proved, or no plan obeys the model")
    return Table(f"{name}: what one more GPU is worth", columns, rows, notes)


def gpus(model: ModelQuestions, rows: list[int]) -> Priced:
    """Price the GPUs of each type: by programs with more, where there are, else by their rows."""
    if not model.resizable:
        return priced(model, rows, 1.0)
    kinds = [model.rows_by("type")[row][1] for row in rows]
    more = np.array([[model.with_gpus(kind, 1)] for kind in kinds])
    less = -np.array([[model.with_gpus(kind, -1)] for kind in kinds])
    duals = model.duals
    dual = np.full(len(rows), np.nan)
    if duals is not None and model.in_gpus:  # else one GPU more changes the unit of all rows
        dual = duals[rows]
    return Priced(more, less, _between(dual, more[:, 0], less[:, 0]))


def priced(model: ModelQuestions, rows: list[int], unit: float) -> Priced:
    """Price rows of one unit: duals, and differences of optima with each limit moved.

    Differences are per unit, that is for ``1 / unit`` times what was moved. A dual is left out
    where it does not lie between them: other rules depend on the limit as well.
    """
    count = len(model.model.objectives)
    nothing = np.full((len(rows), count), np.nan)
    try:
        found: Prices = price_rows(model.model, rows, model.solver, budget=model.budget, unit=unit)
    except NoSolutionError:
        return Priced(nothing, nothing, nothing[:, 0])
    if count > 1:  # without duals, and in the units of the model
        return Priced(found.more, found.less, found.dual)
    more = model.changes(found.more * unit) / unit
    less = -model.changes(-found.less * unit) / unit
    return Priced(more, less, _between(found.dual * model.slope, more[:, 0], less[:, 0]))


def _between(dual: Floats, one: Floats, other: Floats) -> Floats:
    """Keep duals that lie between two differences, or beside one where the other is not known."""
    low, high = np.fmin(one, other), np.fmax(one, other)
    slack = SAME * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
    known = np.isfinite(one) & np.isfinite(other)
    return np.where(known & ((dual < low - slack) | (dual > high + slack)), np.nan, dual)


def _quotas(model: ModelQuestions) -> list[int]:
    """Rows of users or tenants with a largest number of GPUs, those that bind."""
    rows = {**model.rows_by("user"), **model.rows_by("tenant")}
    high = model.model.row_upper
    return [row for row in rows if np.isfinite(high[row]) and high[row] > 0.0 and model.binds(row)]


def _deadlines(model: ModelQuestions) -> list[int]:
    return [
        row
        for row, (family, _) in model.rows_by("job").items()
        if family in DEADLINES and model.binds(row)
    ]


def _name(model: ModelQuestions, row: int, deadlines: list[int]) -> str:
    kinds = model.rows_by("type")
    if row in kinds:
        return kinds[row][1]
    per = ", per best speed" if row in deadlines else ""
    return f"{model.words.of_row(row)}{per}"


def _limit(model: ModelQuestions, row: int) -> float:
    low, high = float(model.model.row_lower[row]), float(model.model.row_upper[row])
    if model.resizable and row in model.rows_by("type"):
        types = model.program.round_.cluster.types.tolist()
        return float(model.program.held.free[types.index(model.rows_by("type")[row][1])])
    return high if np.isfinite(high) else low


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value) + 0.0


def _notes(model: ModelQuestions, objective: float | None) -> list[str]:
    if not model.solved:
        return [f"no optimum of the model was proved ({model.base.status.value})"]
    value = model.value(model.base)
    out = [
        "price by duals: change per unit at the margin; left out where it does not lie between the"
        " other two, since other rules depend on the limit as well"
    ]
    if not model.model.is_lp:
        out = ["no price by duals: whole gangs rule, and dual prices mislead there"]
    if not model.agrees(objective):
        told = "not known" if objective is None else f"{objective:.6g}"
        out.append(
            f"figures are changes of the model's optimum, {value or 0.0:.6g}; the decision's"
            f" objective is {told}"
        )
    return out
