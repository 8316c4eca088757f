"""Envy-freeness: nobody would rather have somebody else's bundle, scaled to its own weight."""

from __future__ import annotations

import numpy as np

from apportion.results.auditing.audited import TOLERANCE, AuditedUsers, valued_bundles
from apportion.results.auditing.findings import Finding

NAME = "envy-freeness"


def envy(users: AuditedUsers) -> Finding:
    """Compare every user's bundle with everybody else's, at its own speeds.

    User l envies i where ``utility_l(gpus_l) < utility_l(gpus_i * weight_l / weight_i)``. The
    margin of a pair is the difference, in normalised throughput of l.

    Source: no envy (Foley 1967), for shares of GPU types as in OEF (Middleware 2024).
    """
    if len(users) < 2:
        return Finding(NAME, None, words="needs two users")
    own = users.utility
    worst, worst_excess, at = np.inf, np.inf, (0, 0)
    for rows, value in valued_bundles(users):
        margin = own[rows, None] - value
        excess = margin + TOLERANCE * np.maximum(1.0, value)
        lines = np.arange(rows.size)
        margin[lines, rows] = np.inf  # nobody envies itself
        excess[lines, rows] = np.inf
        worst_excess = min(worst_excess, float(excess.min()))
        line, other = np.unravel_index(int(margin.argmin()), margin.shape)
        if margin[line, other] < worst:
            worst, at = float(margin[line, other]), (int(rows[line]), int(other))
    holds = worst_excess >= 0.0
    one, two = str(users.name[at[0]]), str(users.name[at[1]])
    verb = "has no reason to envy" if holds else "envies"
    words = f"{one} {verb} {two}: its own bundle is worth {own[at[0]]:.4g} to it, that of {two}"
    words += f" {own[at[0]] - worst:.4g}"
    return Finding(NAME, holds, (one, two), worst, words)
