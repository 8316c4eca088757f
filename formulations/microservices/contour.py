"""A contour on which distribution functions are read off their Laplace transforms.

The distribution function of a sum of exponentials at u is an integral of its transform along a
line that ends in the left half plane. A hyperbola does for few and for many stages: the parabola-
like contour of Talbot turns left too early for sums of more than about ten equal stages, where its
terms grow and cancel (see the decision page 0072).

Source: the family of contours, Weideman and Trefethen, Math. Comp. 76 (2007); the constants are
our own search against Erlang laws and high-precision partial fractions.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from apportion.instances.columns import freeze

Complexes: TypeAlias = NDArray[np.complex128]

_SETTINGS = (
    # stages up to, nodes, scale, angle, step; worst error found: 3e-14 to 4e-13
    (10, 16, 27.0, 0.90, 0.100),
    (30, 24, 12.0, 0.65, 0.100),
    (60, 32, 12.0, 0.55, 0.080),
    (100, 48, 12.0, 0.55, 0.060),
    (200, 64, 10.0, 0.35, 0.060),
    (400, 128, 6.0, 0.30, 0.035),
)
_LARGEST = (256, 6.0, 0.10, 0.020)  # tested up to 1600 equal stages

MOST_SURE = 128
"""Nodes up to which no terms were seen to cancel, wherever u lies."""

TERM_LIMIT = 1e4
"""Terms beyond it cancel to noise; they occur only where u lies so far from the mean that the
distribution function is 0 or 1 to the last digit."""


@cache
def contour(stages: int) -> tuple[Complexes, Complexes]:
    """Give nodes z and weights w so that ``F(u) = Re sum_j w[j] * transform(z[j] / u) / z[j]``.

    Parameters
    ----------
    stages
        Most exponential stages of any class: the more, the more nodes.

    Returns
    -------
    tuple of ndarray
        Nodes and weights, complex, shape (J,); ``transform`` is that of the density.
    """
    for most, *setting in _SETTINGS:
        if stages <= most:
            return _hyperbola(*cast("tuple[int, float, float, float]", tuple(setting)))
    return _hyperbola(*_LARGEST)


def _hyperbola(count: int, scale: float, angle: float, step: float) -> tuple[Complexes, Complexes]:
    along = 1j * (np.arange(count) + 0.5) * step - angle
    nodes = scale * (1.0 + np.sin(along))
    weights = step / np.pi * np.exp(nodes) * scale * np.cos(along)
    freeze(nodes)
    freeze(weights)
    return cast(Complexes, nodes), cast(Complexes, weights)
