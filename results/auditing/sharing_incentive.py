"""Sharing incentive: nobody is worse off than with its own part of every type."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats
from apportion.results.auditing.audited import TOLERANCE, AuditedUsers, utility
from apportion.results.auditing.findings import Finding

NAME = "sharing-incentive"


def fair_utility(users: AuditedUsers) -> Floats:
    """Value each user's part of every type, in proportion to the weights.

    Users that can use any number of GPUs get ``capacity * weight / sum of weights``. A job that
    runs whole or not at all spends ``capacity * weight / (sum of weights * gang)`` of its time on
    each type, scaled down so that these add up to 1 at most: Gavel's isolated allocation (OSDI
    2020), with weights.

    Returns
    -------
    Floats
        Normalised throughput, shape (n,).
    """
    part = users.weight / users.weight.sum()
    bundle = part[:, None] * users.capacity[None, :]
    if not users.whole_gang:
        return utility(users.speed, users.most, bundle)
    total: Floats = bundle.sum(axis=1)
    held = np.minimum(1.0, np.divide(users.most, total, out=np.ones(total.size), where=total > 0))
    return (users.speed * bundle * held[:, None]).sum(axis=1)


def sharing_incentive(users: AuditedUsers) -> Finding:
    """Compare every user's utility with that of its own part of the cluster.

    The margin is the difference, in normalised throughput.

    Source: DRF (NSDI 2011), Gavel (OSDI 2020), OEF (Middleware 2024).
    """
    if not len(users):
        return Finding(NAME, None, words="needs a user")
    own, fair = users.utility, fair_utility(users)
    margin = own - fair
    at = int(margin.argmin())
    holds = bool((margin >= -TOLERANCE * np.maximum(1.0, fair)).all())
    name = str(users.name[at])
    words = f"{name} has {own[at]:.4g}, its own part of every type would give {fair[at]:.4g}"
    return Finding(NAME, holds, (name,), float(margin[at]), words)
