"""Shares that are only known up to an error: the worst of them, found as they are needed.

Source: the robust shares of the specification (reconstructed): the worst case moves mass from the
classes served best to the one served worst. Instead of a dual with free bounds, each worst case
that a plan misses becomes one more row, whose weights are shares, so that every search keeps its
proof.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.instances.columns import Floats, Ints

MOST_ROWS = 200
"""Worst cases added before the search gives up; a few do in all cases seen."""


def worst_shares(share: Floats, tail: Floats, error: float) -> Floats:
    """Move half of an L1 error from the classes of least tail to the one of largest tail.

    Parameters
    ----------
    share, tail
        Of the classes of one service, shape (k,).
    error
        L1 distance, at most 2.
    """
    out = share.copy()
    worst = int(tail.argmax())
    left = min(error / 2.0, float(share.sum() - share[worst]))
    for k in np.argsort(tail, kind="stable").tolist():
        if k == worst or left <= 0.0:
            continue
        moved = min(left, float(out[k]))
        out[k] -= moved
        out[worst] += moved
        left -= moved
    return out


def missed_rows(need: Requirements, containers: Ints) -> Requirements | None:
    """Add the worst shares of every service that a plan misses; None where it misses none."""
    tails, round_ = need.tails, need.round_
    tail = 1.0 - need.met(containers)
    own, services = tails.classes, round_.services
    rows: list[Floats] = []
    owners: list[int] = []
    for s in np.unique(round_.classes.service[own]).tolist():
        error = float(round_.share_error[s])
        mine = round_.classes.service[own] == s
        if error <= 0.0:
            continue
        row = np.zeros(own.size)
        row[mine] = worst_shares(round_.classes.share[own][mine], tail[mine], error)
        if row @ tail > services.violation_budget[s] - services.unmodelled_share[s]:
            rows.append(row)
            owners.append(s)
    if not rows:
        return None
    budget = services.violation_budget[owners] - services.unmodelled_share[owners]
    return replace(
        need,
        weight=np.vstack((need.weight, *rows)),
        budget=cast(Floats, np.append(need.budget, budget)),
        service=cast(Ints, np.append(need.service, owners)),
    )
