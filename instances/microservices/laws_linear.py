"""Two lines for a call's tail latency, derived from its exponential law where nobody measured any.

The percentile p of one call is ``shift - ln(1 - p) / rate(load)``, a convex curve. The two lines
are chords of it: above the curve between the lightest and the heaviest load of the chords, equal
to it at both ends and at the inflection, where they meet.

Source: the form is that of Erms (ASPLOS 2023); deriving it from Derm's law is our own choice.
"""

from __future__ import annotations

import math

import numpy as np

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices

LEAST_RATE_SHARE = 0.1
"""The chords end where a tenth of the rate at rest is left, if the law is trusted that far: the
curve has no end where the rate may fall to zero, and a chord to a pole is no line."""


def linear_from_laws(microservices: Microservices, percentile: float = 0.95) -> LinearLatency:
    """Derive piecewise-linear latencies from the exponential laws.

    Parameters
    ----------
    microservices
        The laws.
    percentile
        Which latency the lines stand for, between 0 and 1.

    Returns
    -------
    LinearLatency
        For one call. The chords meet where the rate is the geometric mean of those at the ends,
        so that both exceed the curve by the same largest factor, ``(1 + r)**2 / (4 r)`` where
        ``r**2`` is the ratio of the end rates: 1.37 at the widest, shift left out.

    Raises
    ------
    InstanceError
        On a percentile outside (0, 1).

    Notes
    -----
    Lighter than ``least_load_per_s`` the first line falls below the law, which grants nothing for
    lighter loads; beyond the heaviest load of the chords the second line lies below the curve.
    Whether a plan keeps its SLA is therefore asked of the law, never of the lines.
    """
    if not 0.0 < percentile < 1.0:
        raise InstanceError(f"percentile = {percentile}: must lie between 0 and 1")
    rest, slope = microservices.rate_at_rest_per_ms, microservices.rate_slope_per_ms
    lightest = rest + slope * microservices.least_load_per_s
    # a law of a single load, at which nothing is served any more, still gets finite lines
    lightest = np.maximum(lightest, LEAST_RATE_SHARE**2 * rest)
    heaviest = np.maximum(microservices.least_rate_per_ms, LEAST_RATE_SHARE * rest)
    heaviest = np.minimum(heaviest, lightest)
    between = np.sqrt(lightest * heaviest)
    # c / rate between rates u and v, over loads (u - rest) / slope: the chord's slope is
    # -slope c / (u v), which needs no care where u and v coincide
    tail = -math.log1p(-percentile)
    before = -slope * tail / (lightest * between)
    after = np.maximum(-slope * tail / (between * heaviest), before)
    turn = (between - rest) / slope
    meet = microservices.shift_ms + tail / between
    return LinearLatency(
        slope_before_ms=before,
        intercept_before_ms=meet - before * turn,
        slope_after_ms=after,
        intercept_after_ms=meet - after * turn,
        inflection_per_s=np.maximum(turn, 0.0),
    )
