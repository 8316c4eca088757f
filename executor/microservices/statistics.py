"""How far counts of violations can be trusted."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from apportion.executor.tolerances import ACCEPTED_DEVIATIONS, SLA_TEST_LEVEL
from apportion.instances.columns import Bools, Floats

_special: Any = special


def wilson_interval(
    violations: ArrayLike, requests: ArrayLike, *, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Bound the probability of a violation from a count (Wilson 1927).

    Parameters
    ----------
    violations, requests
        Counts that broadcast; without requests the interval is all of [0, 1].
    level
        Probability with which the interval holds the true value.

    Returns
    -------
    low, high
        Ends of the interval.
    """
    hit, count = _counts(violations, requests)
    z = float(_special.ndtri(0.5 + level / 2.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = hit / count
        weight = 1.0 / (1.0 + z * z / count)
        middle = weight * (share + z * z / (2.0 * count))
        half = weight * z * np.sqrt(share * (1.0 - share) / count + (z / (2.0 * count)) ** 2)
    empty = count == 0
    low = np.where(empty | (hit == 0), 0.0, np.maximum(middle - half, 0.0))
    high = np.where(empty | (hit == count), 1.0, np.minimum(middle + half, 1.0))
    return cast(Floats, low), cast(Floats, high)


def missed_sla(violations: ArrayLike, requests: ArrayLike, budget: ArrayLike) -> Bools:
    """Tell where an SLA was missed and not by chance: a one-sided binomial test.

    Parameters
    ----------
    violations, requests, budget
        Counts, and the share of requests that may be violated; they broadcast.

    Returns
    -------
    ndarray
        True where so many violations would come with probability below ``SLA_TEST_LEVEL`` if
        each request were violated with the probability of the budget.
    """
    hit, count = _counts(violations, requests)
    # P(at least h of n) is the regularised incomplete beta function I_p(h, n - h + 1)
    first = np.where(hit > 0, hit, 1.0)
    chance = _special.betainc(first, count - first + 1.0, np.asarray(budget, dtype=np.float64))
    return cast(Bools, (hit > 0) & (chance < SLA_TEST_LEVEL))


def accepted(simulated: float, expected: float, requests: int) -> bool:
    """Tell whether a simulated share of violations is no surprise.

    Parameters
    ----------
    simulated, expected
        Share that was counted, and its probability.
    requests
        How many were drawn, independently.

    Returns
    -------
    bool
        True within ``ACCEPTED_DEVIATIONS`` standard deviations and one request.
    """
    deviation = math.sqrt(max(expected * (1.0 - expected), 0.0) / requests)
    return abs(simulated - expected) <= ACCEPTED_DEVIATIONS * deviation + 1.0 / requests


def _counts(violations: ArrayLike, requests: ArrayLike) -> tuple[Floats, Floats]:
    return np.asarray(violations, dtype=np.float64), np.asarray(requests, dtype=np.float64)
