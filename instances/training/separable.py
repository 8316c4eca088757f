"""Fit the three families of learning curves to many histories at once.

With the nonlinear parameter theta of a family fixed, the loss is ``A phi(x; theta) + c``, linear
in the other two (variable projection: Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973). So a
fit is a search along one line: a grid over theta, the same for all resampled copies of a
history, then a parabola through the best point and its neighbours, or Gauss-Newton steps where
every digit counts. Nothing is iterated to an open end, and no start value has to be guessed.

==================== =================== ==========================
family               phi (x = k / k_max) parameters
==================== =================== ==========================
inverse              1 / (x + theta)     a = 1 / (A k_max), b = theta / A
power                x ** -theta         a = A k_max ** theta, b = theta
exponential          exp(-theta x)       a = A, b = theta / k_max
==================== =================== ==========================
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from apportion.instances.columns import Bools, Floats
from apportion.instances.training.curves import EXPONENTIAL, INVERSE, POWER

GRID = 96
"""Values of theta tried: neighbours differ by 10 to 15 %, which a parabola then divides."""

RANGES = {INVERSE: (1e-4, 1e2), POWER: (1e-2, 1e1), EXPONENTIAL: (1e-2, 2e2)}
"""Least and largest theta: from a curve that is over at once to one that looks straight."""

STEPS = 30
"""Gauss-Newton steps at most; exact data are reproduced to the last digits after about 10."""

_TINY = 1e-300


class Lines(NamedTuple):
    """Fitted lines: level, slope on phi and weighted squared residual, all of one shape."""

    slope: Floats
    level: Floats
    residual: Floats


class Fitted(NamedTuple):
    """Parameters of fitted curves, the weighted squared residual, and how many are free."""

    a: Floats
    b: Floats
    c: Floats
    residual: Floats
    free: Floats


def basis(family: int, theta: Any, x: Any) -> Floats:
    """Values of phi, where ``theta`` and ``x`` broadcast together."""
    with np.errstate(all="ignore"):
        match family:
            case 0:
                out = 1.0 / (x + theta)
            case 1:
                out = x**-theta
            case _:
                out = np.exp(-theta * x)
    return cast(Floats, out)


def _derivative(family: int, theta: Any, x: Any, phi: Any) -> Floats:
    with np.errstate(all="ignore"):
        match family:
            case 0:
                out = -phi * phi
            case 1:
                out = -np.log(x) * phi
            case _:
                out = -x * phi
    return cast(Floats, out)


def line(phi: Floats, loss: Floats, weight: Floats) -> Lines:
    """Fit ``slope phi + level`` with neither negative; arrays broadcast, points come last."""
    total = weight.sum(axis=-1)
    mean_phi = (weight * phi).sum(axis=-1) / total
    mean = (weight * loss).sum(axis=-1) / total
    inner = phi - mean_phi[..., None]
    outer = loss - mean[..., None]
    spread = (weight * inner * inner).sum(axis=-1)
    with np.errstate(all="ignore"):
        slope = np.where(spread > _TINY, (weight * inner * outer).sum(axis=-1) / spread, 0.0)
        alone = (weight * phi * loss).sum(axis=-1) / (weight * phi * phi).sum(axis=-1)
    level = mean - slope * mean_phi
    slope = np.where(level < 0, alone, slope)
    level = np.where(level < 0, 0.0, level)
    level = np.where(slope > 0, level, mean)
    slope = np.maximum(slope, 0.0)
    left = loss - slope[..., None] * phi - level[..., None]
    return Lines(slope, level, (weight * left * left).sum(axis=-1))


def on_grid(
    family: int, x: Floats, loss: Floats, weight: Floats, known: Floats | None = None
) -> tuple[Floats, Lines]:
    """Fit copies of histories with theta from the grid.

    Parameters
    ----------
    family
        Code of the family.
    x, weight
        Iterations over the largest of each history, and weights (0: no point), shape (J, P).
    loss
        Copies of each history, shape (J, R, P).
    known
        theta that fits the first copy of each history to the last digit, shape (J,): by as much as
        the parabola is off there all copies are put right. So copies without noise lose nothing.

    Returns
    -------
    tuple
        theta of shape (J, R), between grid points by a parabola in its logarithm, and the lines.
    """
    low, high = RANGES[family]
    logs = cast(Floats, np.linspace(np.log(low), np.log(high), GRID))
    phi = np.where(weight[:, None] > 0, basis(family, np.exp(logs)[:, None], x[:, None]), 0.0)
    residual = _residuals(phi, loss, weight)
    at = np.clip(residual.argmin(axis=1), 1, GRID - 2)
    three = [np.take_along_axis(residual, at[:, None] + step, axis=1)[:, 0] for step in (-1, 0, 1)]
    bend = three[0] - 2.0 * three[1] + three[2]
    with np.errstate(all="ignore"):
        shift = np.where(bend > 0, 0.5 * (three[0] - three[2]) / bend, 0.0)
    theta = np.exp(logs[at] + np.clip(shift, -1.0, 1.0) * (logs[1] - logs[0]))
    if known is not None:
        theta = _put_right(theta, known[:, None], logs)
    return theta, line(_phi(family, theta, x, weight), loss, weight[:, None])


def _put_right(theta: Floats, known: Floats, logs: Floats) -> Floats:
    """Move all copies by as much as the first lies off what is known of it.

    Where that is more than a step of the grid it is another minimum, and nothing is known of the
    error. A curve from beyond the range is that of all copies that lie at its end.
    """
    step = logs[1] - logs[0]
    with np.errstate(all="ignore"):
        off = np.log(known / theta[:, :1])
    moved = np.where(np.abs(off) <= step, theta * np.exp(np.clip(off, -step, step)), theta)
    least, most = np.exp(logs[0] + 0.5 * step), np.exp(logs[-1] - 0.5 * step)
    ends = ((theta < least) & (known < least)) | ((theta > most) & (known > most))
    return cast(Floats, np.where(ends, known, moved))


def _phi(family: int, theta: Floats, x: Floats, weight: Floats) -> Floats:
    return np.where(weight[:, None] > 0, basis(family, theta[..., None], x[:, None]), 0.0)


def _residuals(phi: Floats, loss: Floats, weight: Floats) -> Floats:
    """Weighted squared residuals of the best lines, shape (J, GRID, R), by sums alone."""
    total = weight.sum(axis=-1)[:, None, None]
    weighted = phi * weight[:, None]
    mean_phi = weighted.sum(axis=-1)[..., None] / total
    squares = (weighted * phi).sum(axis=-1)[..., None]
    copies = loss.swapaxes(-1, -2)
    products = weighted @ copies
    mean = (weight[:, None] @ copies) / total
    # centred on the mean loss: its square would drown the residual
    around = (weight[:, None] @ (copies - mean) ** 2)[:, :1]
    spread = squares - total * mean_phi**2
    joint = products - total * mean_phi * mean
    with np.errstate(all="ignore"):
        slope = np.where(spread > _TINY, joint / spread, 0.0)
        alone = products / squares
    whole = around + total * mean**2
    sunk = mean - slope * mean_phi < 0
    out = cast(Floats, np.where(sunk, whole - alone * products, around - slope * joint))
    return cast(Floats, np.where(slope > 0, out, around))


def polished(
    family: int, theta: Floats, x: Floats, loss: Floats, weight: Floats
) -> tuple[Floats, Lines]:
    """Improve theta by Gauss-Newton steps on the projected residual (Kaufman, BIT 15, 1975).

    Parameters
    ----------
    theta
        Start values, shape (J,).
    x, loss, weight
        Histories, shape (J, P).
    """
    high = RANGES[family][1]
    best = line(_at(family, theta, x, weight), loss, weight)
    trust = np.ones_like(theta)
    for _ in range(STEPS):
        phi = _at(family, theta, x, weight)
        slope_of = np.where(weight > 0, _derivative(family, theta[:, None], x, phi), 0.0)
        step = _step(phi, slope_of, loss, weight, best)
        wanted = np.clip(theta + trust * step, 0.0, 10.0 * high)
        tried = line(_at(family, wanted, x, weight), loss, weight)
        better = tried.residual < best.residual
        theta = np.where(better, wanted, theta)
        best = Lines(*(np.where(better, new, old) for new, old in zip(tried, best, strict=True)))
        trust = np.where(better, 1.0, 0.25 * trust)
        if not (better | (trust > 1e-6)).any():
            break
    return theta, best


def _at(family: int, theta: Floats, x: Floats, weight: Floats) -> Floats:
    return np.where(weight > 0, basis(family, theta[:, None], x), 0.0)


def _step(phi: Floats, slope_of: Floats, loss: Floats, weight: Floats, best: Lines) -> Floats:
    """Gauss-Newton step in theta: what the line cannot take up of the derivative's direction."""
    left = loss - best.slope[:, None] * phi - best.level[:, None]
    direction = best.slope[:, None] * slope_of
    free = (best.level > 0)[:, None]  # at the bound only phi itself can give way
    total = weight.sum(axis=-1, keepdims=True)
    inner = phi - np.where(free, (weight * phi).sum(axis=-1, keepdims=True) / total, 0.0)
    direction = direction - np.where(
        free, (weight * direction).sum(axis=-1, keepdims=True) / total, 0.0
    )
    with np.errstate(all="ignore"):
        part = (weight * direction * inner).sum(axis=-1) / (weight * inner * inner).sum(axis=-1)
        direction = direction - np.nan_to_num(part)[:, None] * inner
        step = (weight * direction * left).sum(axis=-1) / (weight * direction**2).sum(axis=-1)
    return cast(Floats, np.where(np.isfinite(step), step, 0.0))


def theta_of(family: int, fit: Fitted, most: Floats) -> Floats:
    """Nonlinear parameter of fitted curves, NaN where they do not fall; undoes ``parameters``."""
    with np.errstate(all="ignore"):
        match family:
            case 0:
                out = fit.b / (fit.a * most)
            case 1:
                out = fit.b
            case _:
                out = fit.b * most
    return cast(Floats, np.where(fit.free > 1, out, np.nan))


def parameters(family: int, theta: Floats, lines: Lines, most: Floats) -> Fitted:
    """Turn theta and lines into the parameters of the family.

    Parameters
    ----------
    theta, lines
        Of one shape.
    most
        Largest iteration of each history, of a shape that broadcasts to that of theta.
    """
    with np.errstate(all="ignore"):
        match family:
            case 0:
                a, b = 1.0 / (lines.slope * most), theta / lines.slope
            case 1:
                a, b = lines.slope * most**theta, theta
            case _:
                a, b = lines.slope, theta / most
    falls = lines.slope > 0
    free: Bools = lines.level > 0
    return Fitted(
        np.where(falls, a, 0.0), np.where(falls, b, 0.0 if family != INVERSE else 1.0),
        lines.level, lines.residual, np.where(falls, 2.0 + free, 1.0),
    )  # fmt: skip
