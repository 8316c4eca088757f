"""A solve put into messages: the model and the request there, what was found back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import Claim, RawResult, Request, Stop
from apportion.solver.budget import Budget
from apportion.solver.models.model import Model, Objective
from apportion.solver.workers.wire import Frame

SOLVE, INCUMBENT, RESULT, REFUSED = "solve", "incumbent", "result", "refused"
"""Kinds of messages: a model to solve; a better point; the end; a class that is not solved."""

_COLUMNS_AND_ROWS = (
    "lower", "upper", "integer", "indptr", "indices", "values", "row_lower", "row_upper",
)  # fmt: skip
_FOUND = ("x", "duals", "reduced_costs")


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """What a worker is asked to do."""

    backend: str
    model: Model
    request: Request


def packed(errand: Errand) -> Frame:
    """Put an errand into a message.

    Only the first objective goes along, and no names. The deadline goes as it is: the monotonic
    clock is one for all processes of a machine.
    """
    model, request = errand.model, errand.request
    objective = model.objectives[0]
    arrays: dict[str, Any] = {name: getattr(model, name) for name in _COLUMNS_AND_ROWS}
    arrays["cost"] = objective.cost
    if request.start is not None:
        arrays["start"] = request.start
    values = {
        "backend": errand.backend,
        "name": model.name,
        "maximise": objective.maximise,
        "offset": objective.offset,
        "deadline_s": _number(request.budget.deadline_s),
        "gap": float(request.gap),
        "seed": int(request.seed),
        "threads": int(request.threads),
        "work_limit": None if request.work_limit is None else float(request.work_limit),
    }
    return Frame(SOLVE, values, arrays)


def unpacked(frame: Frame) -> Errand:
    """Read an errand from a message."""
    values, arrays = frame.values, dict[str, Any](frame.arrays)
    start, cost = arrays.pop("start", None), arrays.pop("cost")
    objective = Objective("objective", cost, values["maximise"], values["offset"])
    deadline_s = values["deadline_s"]
    request = Request(
        budget=Budget(math.inf if deadline_s is None else deadline_s),
        gap=values["gap"],
        seed=values["seed"],
        threads=values["threads"],
        work_limit=values["work_limit"],
        start=start,
    )
    model = Model(name=values["name"], objectives=(objective,), **arrays)
    return Errand(values["backend"], model, request)


def packed_point(x: FloatArray, bound: float | None) -> Frame:
    """Put a better point, and the bound at that moment, into a message."""
    return Frame(INCUMBENT, {"bound": bound}, {"x": x})


def packed_result(raw: RawResult) -> Frame:
    """Put what a back end returned into a message."""
    values = {
        "claim": raw.claim.value,
        "stop": raw.stop.value,
        "bound": None if raw.bound is None else _number(raw.bound),
        "work": raw.work,
        "message": raw.message,
    }
    found = {name: getattr(raw, name) for name in _FOUND}
    return Frame(RESULT, values, {name: a for name, a in found.items() if a is not None})


def unpacked_result(frame: Frame) -> RawResult:
    """Read what a back end returned from a message."""
    values = dict(frame.values)
    claim, stop = Claim(values.pop("claim")), Stop(values.pop("stop"))
    arrays: dict[str, Any] = dict(frame.arrays)
    return RawResult(claim, stop, **values, **arrays)


def _number(value: float) -> float | None:
    """Give a number that JSON has."""
    return float(value) if math.isfinite(value) else None
