"""Learning curves: three families of falling losses, their values and when they reach a target.

========== ========================= ==============================
family     loss after k iterations   loss reaches m after
========== ========================= ==============================
inverse    1 / (a k + b) + c         (1 / (m - c) - b) / a
power      a k ** -b + c             (a / (m - c)) ** (1 / b)
exponential a exp(-b k) + c          ln(a / (m - c)) / b
========== ========================= ==============================

All parameters are not negative and c is the asymptote, which is never reached. A metric that
rises, such as accuracy, is read as the loss 1 - metric.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from apportion.instances.columns import Bools, Floats

INVERSE, POWER, EXPONENTIAL = range(3)
FAMILIES = ("inverse", "power", "exponential")
"""Names of the families; the place is the code. The first suits stochastic gradient descent."""

NO_CURVE = -1
"""Instead of a family: there is none."""

WHOLE = 1e-9
"""Relative slack in which an iteration count is the whole number below it: the closed forms
lose a few units in the last place, and an iteration more would be counted for nothing."""


def loss_at(family: Any, a: Any, b: Any, c: Any, iteration: Any) -> Floats:
    """Loss after some iterations.

    Parameters
    ----------
    family
        Codes into ``FAMILIES``.
    a, b, c
        Parameters, not negative.
    iteration
        Iterations done; the power family is infinite at 0.

    Returns
    -------
    Floats
        The shape all arguments broadcast to; NaN where there is no curve.
    """
    family, a, b, c, k = _spread(family, a, b, c, iteration)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        value = np.select(
            [family == INVERSE, family == POWER, family == EXPONENTIAL],
            [1.0 / (a * k + b), a * k**-b, a * np.exp(-b * k)],
            np.nan,
        )
    return cast(Floats, value + c)


def iterations_to(family: Any, a: Any, b: Any, c: Any, target: Any) -> Floats:
    """Iterations until the loss is down to a target, as a real number.

    Parameters
    ----------
    family, a, b, c
        As in ``loss_at``.
    target
        Loss to be reached.

    Returns
    -------
    Floats
        0 where the curve starts at or below the target; infinite where it never gets there:
        the target is not above the asymptote, or the curve does not fall.
    """
    family, a, b, c, m = _spread(family, a, b, c, target)
    above = m - c
    with np.errstate(all="ignore"):
        value = np.select(
            [family == INVERSE, family == POWER, family == EXPONENTIAL],
            [(1.0 / above - b) / a, (a / above) ** (1.0 / b), np.log(a / above) / b],
            np.nan,
        )
        starts = np.where(family == POWER, np.inf, loss_at(family, a, b, c, 0.0))
    flat = cast(Bools, np.where(family == INVERSE, a == 0, (a == 0) | (b == 0)))
    # a power law that does not fall is a + c from the first iteration on
    starts = np.where(flat & (family == POWER), a + c, starts)
    value = np.where(flat | ~(above > 0), np.inf, value)
    value = np.where(starts <= m, 0.0, value)
    return cast(Floats, np.where(family == NO_CURVE, np.nan, np.maximum(value, 0.0)))


def first_iteration_to(family: Any, a: Any, b: Any, c: Any, target: Any) -> Floats:
    """First whole iteration, 1 at least, after which the loss is not above the target."""
    real = iterations_to(family, a, b, c, target)
    return cast(Floats, np.maximum(np.ceil(real * (1.0 - WHOLE)), 1.0))


def as_loss(metric: Any, rises: Any) -> Floats:
    """Read a metric as a loss: 1 - metric where it rises. The way back is the same."""
    metric = np.asarray(metric, dtype=np.float64)
    return cast(Floats, np.where(rises, 1.0 - metric, metric))


def _spread(family: Any, *values: Any) -> Any:
    given = (np.asarray(value, dtype=np.float64) for value in values)
    return np.broadcast_arrays(np.asarray(family), *given)
