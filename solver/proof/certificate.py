"""What was answered, as plain data that an outsider can check without a solver."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apportion.solver.arrays import FloatArray, floats
from apportion.solver.errors import ModelError
from apportion.solver.models.model import Model
from apportion.solver.proof.evidence import (
    Residuals,
    bound_by_duals,
    no_point_by_duals,
    residuals,
    value_at,
)
from apportion.solver.proof.proof import noise, relative_gap
from apportion.solver.proof.recheck import check_point
from apportion.solver.solution import Solution
from apportion.solver.status import Status
from apportion.solver.tolerances import COMPARISON

SCHEMA = "apportion/certificate/1"

_FINISHED = (Status.OPTIMAL.value, Status.FEASIBLE.value)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Claims about a model, with what is needed to check them.

    Attributes
    ----------
    model
        Name of the model.
    parts
        A fingerprint of each part of the model.
    status
        Status that is claimed, such as ``"optimal"``.
    gap
        Relative gap within which ``"optimal"`` is claimed.
    arithmetic
        ``"exact"`` where all numbers of the model are short decimals, else ``"double"``.
    point
        Value of every column.
    residuals
        Largest excess over a row and over a bound, and largest distance from a whole number, each
        with the name of the place.
    objectives
        Value of each objective at the point, as text: a fraction, or a number in double precision.
    bounds
        Bound of each objective, in the same form.
    evidence
        What each bound rests on: ``"duals"``, or the word of a back end.
    duals
        Row duals that prove the bound of the first objective, in its own sense; where the status is
        ``"infeasible"``, row duals that prove it.
    """

    model: str
    parts: Mapping[str, str]
    status: str
    gap: float
    arithmetic: str
    point: list[float] | None = field(repr=False, default=None)
    residuals: Mapping[str, Any] | None = None
    objectives: list[str] = field(default_factory=list[str])
    bounds: list[str | None] = field(default_factory=list[str | None])
    evidence: list[str | None] = field(default_factory=list[str | None])
    duals: list[float] | None = field(repr=False, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Give the certificate as what JSON can hold."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """Read what :meth:`to_dict` gave.

        Raises
        ------
        ModelError
            If the schema or a key is not known, or a key is missing.
        """
        if data.get("schema") != SCHEMA:
            raise ModelError(f"certificate: schema {data.get('schema')!r} instead of {SCHEMA!r}")
        known = {one.name for one in fields(cls)}
        odd = (set(data) - {"schema"}) ^ known
        if odd:
            raise ModelError(f"certificate: key {min(odd)!r} is missing or not known")
        return cls(**{name: data[name] for name in known})


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of a certificate found.

    Attributes
    ----------
    faults
        Each claim that does not hold, by name; empty if all hold.
    words
        Claims that nothing here can check, such as a back end's bound of a MILP.
    arithmetic
        Arithmetic that was used: ``"exact"`` or ``"double"``.
    """

    faults: tuple[str, ...]
    words: tuple[str, ...]
    arithmetic: str

    @property
    def holds(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not self.faults

    @property
    def proved(self) -> bool:
        """Whether everything that is claimed was also checked."""
        return not self.faults and not self.words


def certify(
    model: Model, solution: Solution, *, gap: float = 1e-4, duals: ArrayLike | None = None
) -> Certificate:
    """Write down a solution of a model so that it can be checked without a solver.

    Parameters
    ----------
    model
        The model.
    solution
        Its solution.
    gap
        Relative gap that was asked for.
    duals
        Row duals that prove the bound of the first objective, in its own sense; else those of the
        solution are used, which LPs of one objective have. For a MILP those of its relaxation
        may do; for an infeasible model those of
        :func:`~apportion.solver.proof.elastic.infeasibility_duals`.
    """
    chosen = None if duals is None else floats(duals)
    if chosen is None and len(model.objectives) == 1:
        chosen = solution.duals
    bounds, evidence = _stated_bounds(solution)
    if chosen is not None and solution.point is not None:
        bound = bound_by_duals(model, chosen)
        if bound is not None and _is_enough(model, solution, float(bound), gap):
            bounds[0], evidence[0] = str(bound), "duals"
    found = None if solution.point is None else residuals(model, solution.point)
    infeasible = solution.status is Status.INFEASIBLE
    used = evidence[:1] == ["duals"] or (infeasible and chosen is not None)
    return Certificate(
        model=model.name,
        parts=fingerprints(model),
        status=solution.status.value,
        gap=gap,
        arithmetic=_arithmetic(model, found),
        point=None if solution.point is None else solution.point.tolist(),
        residuals=None if found is None else asdict(found),
        objectives=_values(model, solution.point),
        bounds=bounds,
        evidence=evidence,
        duals=chosen.tolist() if used and chosen is not None else None,
    )


def verify(model: Model, certificate: Certificate | Mapping[str, Any]) -> Verification:
    """Check every claim of a certificate by our own arithmetic; no solver takes part.

    Parameters
    ----------
    model
        The model that the certificate is about.
    certificate
        The certificate, or its plain form.

    Returns
    -------
    The claims that do not hold, and those that cannot be checked.
    """
    if not isinstance(certificate, Certificate):
        certificate = Certificate.from_dict(certificate)
    now = fingerprints(model)
    faults = [
        f"model: {part} is not what was certified"
        for part in sorted({*now, *certificate.parts})
        if now.get(part) != certificate.parts.get(part)
    ]
    words: list[str] = []
    if certificate.point is None:
        _check_without_point(model, certificate, faults, words)
    else:
        x = np.array(certificate.point, dtype=np.float64)
        _check_point(model, certificate, x, faults)
        if x.shape == (model.column_count,) and np.isfinite(x).all():
            _check_bounds(model, certificate, faults, words)
    return Verification(tuple(faults), tuple(words), certificate.arithmetic)


def fingerprints(model: Model) -> dict[str, str]:
    """Give a fingerprint of each part of a model, names left out."""
    parts: dict[str, tuple[Any, ...]] = {
        "lower bounds": (model.lower,),
        "upper bounds": (model.upper,),
        "whole-number columns": (model.integer,),
        "matrix": (model.indptr, model.indices, model.values),
        "lower sides": (model.row_lower,),
        "upper sides": (model.row_upper,),
    }
    for position, one in enumerate(model.objectives):
        sense = np.array([one.sign, one.offset])
        parts[f"objective {position} ({one.name})"] = (one.cost, sense)
    return {name: _fingerprint(arrays) for name, arrays in parts.items()}


def _fingerprint(arrays: tuple[Any, ...]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        # adding zero makes a negative zero positive
        digest.update(np.ascontiguousarray(array + 0, dtype="<f8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def _stated_bounds(solution: Solution) -> tuple[list[str | None], list[str | None]]:
    bounds: list[str | None] = [None if b is None else repr(float(b)) for b in solution.bounds]
    return bounds, [None if bound is None else solution.backend for bound in bounds]


def _is_enough(model: Model, solution: Solution, bound: float, gap: float) -> bool:
    """Whether a bound by duals may stand for the stated one: it proves as much."""
    if model.is_lp or solution.bounds[0] is None or solution.status is not Status.OPTIMAL:
        return True
    return relative_gap(solution.objectives[0], bound) <= gap


def _arithmetic(model: Model, found: Residuals | None) -> str:
    return (residuals(model, np.zeros(model.column_count)) if found is None else found).arithmetic


def _values(model: Model, point: FloatArray | None) -> list[str]:
    return [] if point is None else [str(value_at(one, point)) for one in model.objectives]


def _check_without_point(
    model: Model, certificate: Certificate, faults: list[str], words: list[str]
) -> None:
    if certificate.status in _FINISHED:
        faults.append(f"status: {certificate.status} without a point")
    if certificate.objectives:
        faults.append("objectives: stated without a point")
    if certificate.status != Status.INFEASIBLE.value or certificate.duals is None:
        words.append(f"status: {certificate.status}")
    elif not no_point_by_duals(model, np.array(certificate.duals, dtype=np.float64)):
        faults.append("duals: they do not prove that no point exists")


def _check_point(model: Model, certificate: Certificate, x: FloatArray, faults: list[str]) -> None:
    _, fault = check_point(model, x)
    if fault:
        faults.append(f"point: {fault}")
    if x.shape != (model.column_count,) or not np.isfinite(x).all():
        return
    if certificate.status not in _FINISHED:
        faults.append(f"status: {certificate.status} with a point")
    found = asdict(residuals(model, x))
    stated = certificate.residuals or {}
    for name, value in found.items():
        if stated.get(name) != value:
            faults.append(f"residuals: {name} is {value}, not {stated.get(name)}")
    values = _values(model, x)
    if len(certificate.objectives) != len(values):
        faults.append(f"objectives: {len(certificate.objectives)} instead of {len(values)}")
        return
    for one, value, told in zip(model.objectives, values, certificate.objectives, strict=True):
        if value != told:
            faults.append(f"objective {one.name}: {value} at the point, not {told}")


def _check_bounds(
    model: Model, certificate: Certificate, faults: list[str], words: list[str]
) -> None:
    x = np.array(certificate.point, dtype=np.float64)
    count = len(model.objectives)
    if len(certificate.bounds) != count or len(certificate.evidence) != count:
        faults.append(f"bounds: not one for each of {count} objectives")
        return
    closed = True
    for position, (one, text) in enumerate(zip(model.objectives, certificate.bounds, strict=True)):
        if text is None:
            closed = False
            continue
        bound, value = _number(text, faults), float(value_at(one, x))
        cost = one.sign * one.cost
        slack = noise(cost, x, value)
        if one.sign * (bound - value) > slack:
            faults.append(f"bound of {one.name}: {bound} contradicts the value {value}")
        closed &= abs(value - bound) <= slack or relative_gap(value, bound) <= certificate.gap
        if position == 0 and certificate.evidence[0] == "duals":
            _check_duals(model, certificate, text, faults)
        else:
            words.append(f"bound of {one.name}: the word of {certificate.evidence[position]}")
    if certificate.status == Status.OPTIMAL.value and not closed:
        faults.append(f"status: optimal within {certificate.gap} is not what the bounds say")


def _check_duals(model: Model, certificate: Certificate, text: str, faults: list[str]) -> None:
    duals = np.array(certificate.duals or [], dtype=np.float64)
    if duals.shape != (model.row_count,) or not np.isfinite(duals).all():
        faults.append(f"duals: not one for each of {model.row_count} rows")
        return
    proved = bound_by_duals(model, duals)
    if str(proved) != text:
        place = _largest_loss(model, np.array(certificate.point, dtype=np.float64), duals)
        where = f"; the largest loss is at {place}" if place else ""
        told = "nothing" if proved is None else f"{float(proved):g}"
        faults.append(f"duals: they prove {told} for {model.objectives[0].name}, not {text}{where}")


def _largest_loss(model: Model, x: FloatArray, duals: FloatArray) -> str:
    """Row or column that adds most to the distance between the point's value and the bound."""
    objective = model.objectives[0]
    y = objective.sign * duals
    z = objective.sign * objective.cost - np.asarray(model.matrix.T.dot(y), dtype=np.float64)
    rows = _losses(y, model.activity(x), model.row_lower, model.row_upper)
    columns = _losses(z, x, model.lower, model.upper)
    if max(rows.max(initial=0.0), columns.max(initial=0.0)) <= COMPARISON:
        return ""
    if rows.max(initial=0.0) >= columns.max(initial=0.0):
        return f"row {model.row_name(int(np.argmax(rows)))}"
    return f"column {model.column_name(int(np.argmax(columns)))}"


def _losses(
    multiplier: FloatArray, value: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Give what each multiplier loses where its side is not reached."""
    side = np.where(multiplier > 0.0, lower, upper)
    usable = np.isfinite(side)
    return np.where(usable, multiplier * (value - np.where(usable, side, 0.0)), 0.0)


def _number(text: str, faults: list[str]) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        faults.append(f"bounds: {text!r} is not a number")
        return float("nan")
