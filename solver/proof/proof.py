"""When a bound proves a value, and how far apart the two are. Everything here minimises."""

from __future__ import annotations

import math

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.models.model import Model
from apportion.solver.tolerances import PROOF


def has_integral_values(model: Model, cost: FloatArray) -> bool:
    """Whether ``cost @ x`` is a whole number at every point of ``model``."""
    used = cost != 0.0
    return bool(model.integer[used].all() and (cost[used] == np.rint(cost[used])).all())


def sharpened(model: Model, cost: FloatArray, bound: float) -> float:
    """Round a lower bound on ``cost @ x`` up to a whole number where the value must be one."""
    slack = PROOF * max(1.0, abs(bound))
    if slack >= 0.5 or not has_integral_values(model, cost):
        return bound
    return max(bound, float(math.ceil(bound - slack)))


def noise(cost: FloatArray, x: FloatArray, value: float) -> float:
    """Difference from ``value = cost @ x`` that cannot be told from zero.

    Scales with the value and with the largest term, a column counting as 1 at least, so that
    objectives of small numbers are not proved by an absolute tolerance.
    """
    terms = np.abs(cost) * np.maximum(1.0, np.abs(x))
    return PROOF * max(abs(value), float(terms.max(initial=0.0)))


def relative_gap(value: float, bound: float) -> float:
    """Distance between value and bound relative to the larger of the two; 0 when both are 0."""
    size = max(abs(value), abs(bound))
    return abs(value - bound) / size if size > 0.0 else 0.0


def gap_of(value: float | None, bound: float | None) -> float | None:
    """Relative gap between a value and its bound; None where either is missing."""
    return None if value is None or bound is None else relative_gap(value, bound)
