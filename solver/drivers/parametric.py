"""The least or greatest level at which an LP whose sides move with the level is feasible.

Row duals found at one level prove a bound at every other one, because only right-hand sides move:
``minimum(t) >= y @ side(t) + a constant``. The root of that bound is the next level (a Newton step
on the dual function), and everything short of it is proved infeasible. Each LP starts from the last
basis, which stays dual feasible, and no dual vertex comes twice.

Sources: finish-time fairness and makespan of Gavel (Narayanan et al., OSDI 2020), there by
bisection; Newton's method for parametric problems after Dinkelbach (1967).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from apportion.solver.arrays import FloatArray, dot
from apportion.solver.backends.held_lp import HeldLP, LPPoint, UncertifiedError
from apportion.solver.budget import Budget
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.model import Model, Objective
from apportion.solver.proof.duality import dual_bound
from apportion.solver.tolerances import COMPARISON

MOST_STEPS = 200
"""Steps after which something is wrong: three to twenty are usual, each at another dual vertex."""

MOST_HALVINGS = 200
"""Halvings down to neighbouring numbers: 64 where the interval spans no more than 2^12 times."""

Sides = Callable[[float], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The best level.

    Attributes
    ----------
    level
        The level, at which ``x`` is feasible.
    proved
        No level better than this one is feasible; the end of the interval if the LP is feasible
        there, else a number next to ``level`` but for rounding.
    x
        Value of every column at the level, shape (columns,).
    duals
        Row duals that prove it, of the minimisation, shape (rows,); zeros if nothing binds.
    excess
        By how much the minimum at the level is above the target.
    runs
        LPs solved.
    """

    level: float
    proved: float
    x: FloatArray
    duals: FloatArray
    excess: float
    runs: int


def best_level(
    model: Model,
    sides: Sides,
    interval: tuple[float, float],
    *,
    budget: Budget,
    target: float = 0.0,
    greatest: bool = False,
) -> Level:
    """Find the least (or greatest) level at which the minimum of an LP is at most ``target``.

    Parameters
    ----------
    model
        An LP with one objective, to minimise: an overload, a cost, or a violation as added by
        :func:`with_violation`.
    sides
        Row sides at a level, both of shape (rows,). Rising levels may only widen the rows (or only
        narrow them, with ``greatest``), and infinite sides stay infinite.
    interval
        Levels to look at, finite.
    budget
        Deadline for everything.
    target
        Minimum up to which a level counts as feasible.
    greatest
        Whether the greatest level is wanted.

    Raises
    ------
    ModelError
        If the model is no LP, or the interval is empty or infinite.
    NoSolutionError
        If no level of the interval is feasible, or the budget ends.
    UncertifiedError
        If the steps stop at a level that is not feasible to ``COMPARISON``.
    """
    low, high = interval
    if not model.is_lp or not -np.inf < low <= high < np.inf:
        raise ModelError(f"{model.name}: needs an LP and a finite interval, not {interval}")
    level, far = (high, low) if greatest else (low, high)
    lp, proved, duals = HeldLP(model), level, np.zeros(model.row_count)
    slack = COMPARISON * max(1.0, abs(target))
    excess = np.inf
    for _ in range(MOST_STEPS):
        point = _solved(lp, sides(level), budget, model.name)
        excess = point.value - target
        bound = _bound(model, sides, level, point.duals)
        if excess <= slack:
            return Level(level, proved, point.x, duals, excess, lp.runs)
        if bound(far) > target:
            raise NoSolutionError(f"{model.name}: no level in {interval} is feasible")
        proved, step = _root(bound, target, level, far)
        duals = point.duals
        if step == level:
            break
        level = step
    raise UncertifiedError(f"{model.name}: stuck at level {level}, {excess} above the target")


def with_violation(model: Model, scale: FloatArray) -> Model:
    """Give a model whose minimum is the largest violation of rows, 0 or less where none is.

    Parameters
    ----------
    model
        The LP whose feasibility is asked for; its objectives are left aside.
    scale
        Violation of each row that counts as 1; 0 for rows that must hold. Shape (rows,).

    Returns
    -------
    The model with one more column, at the end.
    """
    falls_short = np.isfinite(model.row_lower) & (scale > 0.0)
    goes_over = np.isfinite(model.row_upper) & (scale > 0.0)
    if (falls_short & goes_over).any():
        raise ModelError(f"{model.name}: rows with two sides cannot give way by one column")
    give = np.where(falls_short, scale, 0.0) - np.where(goes_over, scale, 0.0)
    rows = np.flatnonzero(give)
    columns = model.column_count
    places = model.indptr[1:][rows]
    moved = np.cumsum(np.bincount(rows + 1, minlength=model.row_count + 1))
    return replace(
        model,
        lower=np.append(model.lower, 0.0),
        upper=np.append(model.upper, np.inf),
        integer=np.append(model.integer, False),
        indptr=(model.indptr + moved).astype(np.int32),
        indices=np.insert(model.indices, places, columns),
        values=np.insert(model.values, places, give[rows]),
        objectives=(Objective("violation", np.append(np.zeros(columns), 1.0)),),
    )


def _solved(lp: HeldLP, sides: tuple[FloatArray, FloatArray], budget: Budget, name: str) -> LPPoint:
    lp.set_sides(np.arange(lp.model.row_count), *sides)
    point = lp.solve(budget)
    if point is None:
        raise NoSolutionError(
            f"{name}: infeasible whatever the level; let the moving rows give way"
        )
    return point


def _bound(model: Model, sides: Sides, level: float, duals: FloatArray) -> Callable[[float], float]:
    """Lower bound on the minimum at every level, by our own product."""
    whole = dual_bound(model.with_row_sides(*sides(level)), duals)
    if whole is None:
        raise UncertifiedError(f"{model.name}: the duals at level {level} prove nothing")

    def of_rows(at: float) -> float:
        lower, upper = sides(at)
        side = np.where(duals > 0.0, lower, upper)
        usable = np.isfinite(side)
        return dot(duals[usable], side[usable])

    constant = whole - of_rows(level)
    return lambda at: of_rows(at) + constant


def _root(
    bound: Callable[[float], float], target: float, level: float, far: float
) -> tuple[float, float]:
    """Neighbouring numbers on either side of where the bound falls to the target."""
    above, below = level, far
    for _ in range(MOST_HALVINGS):
        middle = 0.5 * (above + below)
        if middle in (above, below):
            break
        if bound(middle) > target:
            above = middle
        else:
            below = middle
    return above, below
