"""Measures without a threshold: how even the users' throughput is, and what fairness costs."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats
from apportion.results.auditing.audited import AuditedUsers
from apportion.results.auditing.findings import Finding

JAIN, PRICE = "jain-index", "price-of-fairness"


def jain(values: Floats) -> float | None:
    """Jain's index ``(sum x)^2 / (n sum x^2)``: 1 for equal values, 1/n where one has everything.

    Source: Jain, Chiu and Hawe (DEC-TR-301, 1984). None for no values, or zeros only.
    """
    top = float(values.max(initial=0.0))
    if top <= 0.0:
        return None
    parts = values / top  # squares of large numbers would lose themselves
    return float(parts.sum() ** 2 / (parts.size * (parts**2).sum()))


def evenness(users: AuditedUsers) -> Finding:
    """Measure Jain's index of the normalised throughput per weight."""
    per_weight = users.utility / users.weight
    index = jain(per_weight)
    if index is None:
        return Finding(JAIN, None, words="nobody has any throughput")
    at = int(per_weight.argmin())
    words = f"1 = all equal; {users.name[at]!s} has least per weight: {per_weight[at]:.4g}"
    return Finding(JAIN, None, (str(users.name[at]),), index, words)


def most_efficient(users: AuditedUsers) -> float:
    """Give the largest total utility there could be: each type to whoever it speeds up most.

    ``sum_i capacity[i] * max_l speed[l, i]``; a bound only, where gangs or demands limit users.
    """
    return float((users.capacity * users.speed.max(axis=0, initial=0.0)).sum())


def price_of_fairness(users: AuditedUsers) -> Finding:
    """Measure the part of the largest total utility that is given up.

    Source: Bertsimas, Farias and Trichakis (Operations Research 2011).
    """
    best, total = most_efficient(users), float(users.utility.sum())
    if best <= 0.0:
        return Finding(PRICE, None, words="nobody could have any throughput")
    price = max(0.0, 1.0 - total / best)
    limited = bool(np.isfinite(users.most).any())
    words = f"total utility {total:.4g} of {best:.4g} with each type to whoever it speeds up most"
    return Finding(PRICE, None, (), price, words + (", gangs aside" if limited else ""))
