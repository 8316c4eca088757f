"""Maximising concave functions of single columns over an LP, by tangents.

A tangent of a concave function lies above it. So the LP over tangents bounds the optimum from
above, and each of its points from below; tangents are added where the LP overrates its point, until
the two meet within a gap (Kelley 1960).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from apportion.solver.arrays import FloatArray, IntArray
from apportion.solver.backends.held_lp import HeldLP, LPPoint, UncertifiedError
from apportion.solver.budget import Budget
from apportion.solver.drivers.row_generation import Rows, require_inside, with_rows
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.model import Model, Objective
from apportion.solver.proof.duality import dual_bound
from apportion.solver.proof.proof import relative_gap
from apportion.solver.tolerances import PROOF

MOST_ROUNDS = 200
"""Rounds after which something is wrong; three to ten are usual."""

FIRST = np.array([0.0, 0.1, 0.3, 1.0])
"""Where the first tangents touch, as parts of each column's range; gains mostly bend early."""

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Concave:
    """Concave gains of some columns.

    Parameters
    ----------
    columns
        The columns, each at most once; their bounds must be finite.
    gain
        Gain of each at its value, both of shape (columns,); concave, finite between the bounds.
    slope
        A derivative of each there, from either side; finite.
    """

    columns: IntArray
    gain: Function
    slope: Function


@dataclass(frozen=True, slots=True, eq=False)
class TangentSolution:
    """Best point found.

    Attributes
    ----------
    x
        The point, shape (columns,).
    value
        The model's objective plus the gains, at the point.
    bound
        What no point exceeds, from the duals by our own product.
    proved
        Whether the two meet within the gap asked for; else the budget ended.
    rounds
        LPs solved.
    """

    x: FloatArray
    value: float
    bound: float
    proved: bool
    rounds: int


def maximise_concave(
    model: Model, concave: Concave, *, budget: Budget, gap: float = PROOF
) -> TangentSolution:
    """Maximise a model's objective plus concave gains of some of its columns.

    Parameters
    ----------
    model
        An LP with one objective, to maximise.
    concave
        The gains.
    budget
        Deadline; at its end the best point so far is given, with the bound that is proved.
    gap
        Relative gap between value and bound at which to stop.

    Raises
    ------
    ModelError
        If the model is no such LP, a bound or gain is not finite, or a gain is not concave.
    NoSolutionError
        If no point is feasible, or the budget ends before the first one.
    UncertifiedError
        If an LP has no proved optimum, or the rounds do not end.
    """
    inside = _with_gains(model, concave)
    lp = HeldLP(inside)
    for at in _first(model, concave):
        inside = with_rows(lp, inside, _tangents(inside, concave, at))
    best: TangentSolution | None = None
    for _ in range(MOST_ROUNDS):
        try:
            point = lp.solve(budget)
        except NoSolutionError:
            if best is None:
                raise
            return best
        if point is None:
            raise NoSolutionError(f"{model.name}: no point is feasible")
        best = _better(model, inside, concave, point, best, gap)
        if best.proved:
            return best
        at = np.clip(point.x[: model.column_count], model.lower, model.upper)[concave.columns]
        inside = with_rows(lp, inside, _tangents(inside, concave, at))
    raise UncertifiedError(f"{model.name}: no end of tangents")


def _better(
    model: Model,
    inside: Model,
    concave: Concave,
    point: LPPoint,
    best: TangentSolution | None,
    gap: float,
) -> TangentSolution:
    require_inside(inside, point.x)
    count = model.column_count
    x = np.clip(point.x[:count], model.lower, model.upper)
    gain = _finite(concave.gain(x[concave.columns]), "gain")
    _require_below(model, gain, point.x[count:])
    value = model.objectives[0].value(x) + float(np.add.reduce(gain))
    proved = dual_bound(inside, point.duals)
    if proved is None:
        raise UncertifiedError(f"{model.name}: the duals prove nothing")
    bound = model.objectives[0].offset - proved
    rounds = 1
    if best is not None:
        rounds, bound = best.rounds + 1, min(bound, best.bound)
        if best.value >= value:
            x, value = best.x, best.value
    if bound < value - PROOF * max(1.0, abs(value)):
        raise UncertifiedError(f"{model.name}: bound {bound} below the value {value} of a point")
    closed = bound <= value or relative_gap(value, bound) <= gap
    return TangentSolution(x, value, max(bound, value), closed, rounds)


def _with_gains(model: Model, concave: Concave) -> Model:
    """Give the model with a column for each gain, at the end, and the sum of all to maximise."""
    if not model.is_lp or len(model.objectives) != 1 or not model.objectives[0].maximise:
        raise ModelError(f"{model.name}: tangents need an LP with one objective, to maximise")
    low, high = model.lower[concave.columns], model.upper[concave.columns]
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ModelError(f"{model.name}: a column with a gain has an infinite bound")
    at_low, at_high = (_finite(concave.gain(end), "gain") for end in (low, high))
    rise = np.maximum(0.0, _finite(concave.slope(low), "slope")) * (high - low)
    objective, count = model.objectives[0], concave.columns.size
    cost = np.append(objective.cost, np.ones(count))
    return Model(
        name=model.name,
        lower=np.append(model.lower, np.minimum(at_low, at_high)),
        upper=np.append(model.upper, np.maximum(at_low + rise, at_high)),
        integer=np.append(model.integer, np.zeros(count, dtype=np.bool_)),
        indptr=model.indptr,
        indices=model.indices,
        values=model.values,
        row_lower=model.row_lower,
        row_upper=model.row_upper,
        objectives=(Objective(objective.name, cost, True, objective.offset),),
    )


def _first(model: Model, concave: Concave) -> list[FloatArray]:
    """Where the first tangents touch; no gain may be above one of them at another such place."""
    low, high = model.lower[concave.columns], model.upper[concave.columns]
    places = [low + part * (high - low) for part in FIRST.tolist()]
    for touch in places:
        gain, slope = _finite(concave.gain(touch), "gain"), _finite(concave.slope(touch), "slope")
        for at in places:
            _require_below(model, _finite(concave.gain(at), "gain"), gain + slope * (at - touch))
    return places


def _require_below(model: Model, gain: FloatArray, tangent: FloatArray) -> None:
    if (tangent < gain - PROOF * np.maximum(1.0, np.abs(gain))).any():
        raise ModelError(f"{model.name}: a gain is above one of its tangents, so it is not concave")


def _tangents(inside: Model, concave: Concave, at: FloatArray) -> Rows:
    """Rows ``gain column - slope * column <= gain - slope * at``."""
    gain, slope = _finite(concave.gain(at), "gain"), _finite(concave.slope(at), "slope")
    count = at.size
    own = inside.column_count - count + np.arange(count)
    matrix: csr_matrix[np.float64] = csr_matrix(
        (
            np.column_stack((-slope, np.ones(count))).ravel(),
            np.column_stack((concave.columns, own)).ravel(),
            np.arange(0, 2 * count + 1, 2),
        ),
        shape=(count, inside.column_count),
    )
    return Rows(matrix, np.full(count, -np.inf), gain - slope * at)


def _finite(values: FloatArray, what: str) -> FloatArray:
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise ModelError(f"{what}[{bad}] = {values[bad]} between the bounds of its column")
    return values
