"""What one more GPU of each type would be worth to a policy, found by deciding again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from apportion.families.lookup import training_round
from apportion.instances import InstanceError, Policy
from apportion.instances.training import TrainingRound
from apportion.promises import without_broken_promises
from apportion.questions.model_prices import model_prices
from apportion.questions.model_questions import ModelQuestions
from apportion.questions.what_if import Change, Questions, WhatIf
from apportion.registry import make_policy
from apportion.results import Column, Table
from apportion.results.table import Cell
from apportion.solving import budget_of, solver_of

SIGNS = (
    "one more: optimum with one GPU more minus the optimum as it is; the last one: optimum as it is"
    " minus that with one GPU less; below zero = a GPU lowers the policy's cost"
)


def prices(
    round_: TrainingRound | str | Path,
    policy: str | Policy = "fft",
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    backend: str = "auto",
    seed: int = 0,
) -> Table:
    """Tell what one GPU more, and the last one there is, of each type are worth.

    Every figure but the price by duals is the difference of two optima, because dual prices mislead
    where whole gangs rule. The sign is that of the change per GPU added: where costs are minimised,
    a GPU that helps has a negative one. Where as many GPUs as possible are to be used, their number
    changes first. Policies whose model is one of shares have the rows of that model priced: the
    GPUs of each type, and the quotas and deadlines that bind.

    Parameters
    ----------
    round_
        A round, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults.
    memory
        The policy's memory.
    time_limit_s
        Wall time for everything; what it cuts off is left blank.
    gap
        Relative gap of each optimum; differences are only as good as it.
    backend, seed
        Back end by name, and the seed of its random choices.

    Raises
    ------
    InstanceError
        If the policy is a heuristic, or no single model of it says what a GPU is worth.
    """
    budget = budget_of(time_limit_s)
    asked = training_round(round_, "prices")
    asked, given_up = without_broken_promises(asked)
    chosen = make_policy(policy, parameters)
    ask = Questions(chosen, asked, memory, solver_of(gap, backend, seed), budget)
    table = _by_costs(ask) if isinstance(ask.program, WhatIf) else _by_model(ask)
    return replace(table, notes=[*given_up, *table.notes])


def _by_model(ask: Questions) -> Table:
    """Price the rows of the model, or say why there is none."""
    name, base = ask.policy.name, ask.base
    model = ModelQuestions.of(ask.program, ask.model, ask.solver, ask.budget)
    if model is not None and model.rows_by("type"):
        return model_prices(model, name, base.objective)
    if base.status == "HEURISTIC":
        raise InstanceError(f"prices: policy {name!r} has no model with GPUs to price")
    if base.objective is None and base.status == "OPTIMAL":
        note = "nobody could use the free GPUs, so that there is nothing to price"
        return Table(f"{name}: what one more GPU is worth", [], [], [note])
    raise InstanceError(f"prices: no single model of policy {name!r} says what a GPU is worth")


def _by_costs(ask: Questions) -> Table:
    """Decide again with one GPU more and one less of each type."""
    relaxed = getattr(ask.base, "prices", None)
    credit = float(getattr(ask.base, "credit", 0.0))
    columns = [
        Column("gpu_type", "GPU type"), Column("free", "GPUs to give", "count"),
        Column("one_more", "objective, one more", "ratio"),
        Column("one_more_gpus", "GPUs in use, one more", "count"),
        Column("last_one", "objective, the last one", "ratio"),
        Column("last_one_gpus", "GPUs in use, the last one", "count"),
        Column("relaxation", "price in the relaxation", "ratio"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    blank = False
    for kind, name in enumerate(ask.round_.cluster.types.tolist()):
        free = int(ask.program.held.free[kind])
        more = ask.change(ask.program.with_gpus(kind, 1))
        less = ask.change(ask.program.with_gpus(kind, -1)) if free else None
        blank = blank or more.objective is None or (less is not None and less.objective is None)
        rows.append([
            name, free, more.objective, more.gpus, _negated(less),
            None if less is None or less.gpus is None else -less.gpus,
            None if relaxed is None else float(relaxed[kind]) - credit,
        ])  # fmt: skip
    notes = [
        SIGNS,
        "price in the relaxation: what a GPU costs whoever takes it; below zero where rules have it"
        " filled at a loss",
    ]
    if blank:
        notes.append("blank: no optimum was proved, or no plan obeys the policy's model")
    return Table(f"{ask.policy.name}: what one more GPU is worth", columns, rows, notes)


def _negated(change: Change | None) -> float | None:
    return None if change is None or change.objective is None else 0.0 - change.objective
