"""Shares of the classes in the next round, from the requests that were counted before.

Source: Derm (ISCA 2024) forecasts shares by a recurrent network; these four rules stand in for it
and need no training. The radius is our own: the errors that the rule would have made of late.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, floats, freeze, ints, require
from apportion.instances.errors import InstanceError, nearest

METHODS = ("last", "mean", "ewma", "dirichlet", "static")
"""Last value, moving average, exponential smoothing, mean of a Dirichlet posterior, no change."""

WINDOW = 20
SMOOTHING = 0.5
PRIOR = 1.0
"""Requests of each class that the Dirichlet prior counts as seen: a uniform prior."""

COVERAGE = 0.95
"""Share of the rounds in which the true shares should lie within the radius."""


def predict_shares(
    requests: object,
    start: object,
    method: str = "ewma",
    *,
    service: object = None,
    window: int = WINDOW,
    smoothing: float = SMOOTHING,
    prior: float = PRIOR,
) -> Floats:
    """Forecast the shares of the next round.

    Parameters
    ----------
    requests
        Requests of each class in each round so far, shape (T, K), the newest last. Rounds in
        which a service saw none do not count for it.
    start
        Shares to begin with, shape (K,). They are the forecast of a service of which nothing was
        seen; and the forecast of a service sums to what they sum to.
    method
        One of ``METHODS``.
    service
        Service of each class, shape (K,); default: one.
    window
        Rounds with requests that are looked back upon, so that as many are enough to be kept.
    smoothing
        Weight of the newest round in ``"ewma"``; the oldest one bears what the others leave.
    prior
        Requests of each class counted as seen in ``"dirichlet"``.

    Returns
    -------
    ndarray
        Shape (K,).
    """
    rule = _Rule(method, window, smoothing, prior)
    counts, first, owner = _checked(requests, start, service)
    out = first.copy()
    for own in _services(owner):
        out[own] = rule.forecast(counts[:, own], first[own])
    freeze(out)
    return out


def share_errors(
    requests: object,
    start: object,
    method: str = "ewma",
    *,
    service: object = None,
    window: int = WINDOW,
    smoothing: float = SMOOTHING,
    prior: float = PRIOR,
    rounds: int | None = None,
) -> Floats:
    """Compute the errors that a rule would have made in the last rounds.

    Parameters
    ----------
    requests, start, method, service, window, smoothing, prior
        As in ``predict_shares``.
    rounds
        How many rounds to look back; default: all.

    Returns
    -------
    ndarray
        L1 distance between forecast and counted shares of each service, shape (rounds, S); -1
        where a service saw no requests. S is the largest number of a service and one.
    """
    rule = _Rule(method, window, smoothing, prior)
    counts, first, owner = _checked(requests, start, service)
    number = counts.shape[0] if rounds is None else min(rounds, counts.shape[0])
    out = np.full((number, int(owner.max(initial=-1)) + 1), -1.0)
    for own in _services(owner):
        for at in range(number):
            t = counts.shape[0] - number + at
            seen = counts[t, own].sum()
            if seen > 0:
                wanted = first[own].sum() * counts[t, own] / seen
                guess = rule.forecast(counts[:t, own], first[own])
                out[at, owner[own[0]]] = np.abs(guess - wanted).sum()
    freeze(out)
    return out


def share_radius(
    requests: object,
    start: object,
    method: str = "ewma",
    *,
    service: object = None,
    window: int = WINDOW,
    smoothing: float = SMOOTHING,
    prior: float = PRIOR,
    coverage: float = COVERAGE,
    services: int | None = None,
) -> Floats:
    """Compute the L1 distance within which the next shares are expected.

    It is the quantile of the errors of the last ``window`` rounds that would cover a further
    round with probability ``coverage``, were the rounds exchangeable: of n errors the one of rank
    ``ceil((n + 1) * coverage)``, or the largest.

    Parameters
    ----------
    requests, start, method, service, window, smoothing, prior
        As in ``predict_shares``.
    coverage
        Between 0 and 1.
    services
        Number of services; default: the largest number of one and one.

    Returns
    -------
    ndarray
        Shape (S,), as ``MicroserviceRound.share_error`` wants it; 0 for a service of which
        nothing was seen.
    """
    if not 0 < coverage < 1:
        raise InstanceError(f"coverage = {coverage}: must lie between 0 and 1")
    errors = share_errors(
        requests, start, method, service=service, window=window, smoothing=smoothing,
        prior=prior, rounds=window,
    )  # fmt: skip
    out = np.zeros(errors.shape[1] if services is None else services)
    for s in range(min(out.size, errors.shape[1])):
        known = np.sort(errors[errors[:, s] >= 0, s])
        if known.size:
            rank = min(math.ceil((known.size + 1) * coverage), known.size)
            out[s] = min(known[rank - 1], 2.0)  # two shares differ by no more
    freeze(out)
    return out


class _Rule:
    """A method and its parameters."""

    def __init__(self, method: str, window: int, smoothing: float, prior: float) -> None:
        if method not in METHODS:
            raise InstanceError(f"method = {method!r}{nearest(str(method), METHODS)}")
        if window < 1:
            raise InstanceError(f"window = {window}: must be at least 1")
        if not 0 < smoothing <= 1:
            raise InstanceError(f"smoothing = {smoothing}: must be above 0 and at most 1")
        if not 0 <= prior < math.inf:
            raise InstanceError(f"prior = {prior}: must be finite, not negative")
        self.method, self.window, self.smoothing, self.prior = method, window, smoothing, prior

    def forecast(self, counts: Floats, start: Floats) -> Floats:
        """Forecast the shares of one service from its rounds, shape (T, k)."""
        total = start.sum()
        seen = counts[counts.sum(axis=1) > 0]
        if self.method == "static" or not seen.size or not total > 0:
            return start
        recent = seen[-self.window :]
        match self.method:
            case "last":
                out = recent[-1]
            case "mean":
                out = (recent / recent.sum(axis=1, keepdims=True)).mean(axis=0)
            case "ewma":
                share = recent / recent.sum(axis=1, keepdims=True)
                out = self._weights(len(recent)) @ share
            case _:
                out = recent.sum(axis=0) + self.prior
        return cast(Floats, total * out / out.sum())

    def _weights(self, rounds: int) -> Floats:
        """Weights of exponential smoothing; the first round bears what is left."""
        age = np.arange(rounds - 1, -1, -1)
        out = self.smoothing * (1.0 - self.smoothing) ** age
        out[0] = (1.0 - self.smoothing) ** (rounds - 1)
        return cast(Floats, out)


def _checked(requests: object, start: object, service: object) -> tuple[Floats, Floats, Ints]:
    first = floats(start, "start")
    if first.ndim != 1:
        raise InstanceError(f"start has {first.ndim} dimensions, expected 1")
    require(first, (first >= 0) & (first <= 1), "start", "must lie between 0 and 1")
    counts: Any = floats(requests, "requests")
    if counts.ndim != 2 or counts.shape[1] != first.size:  # rounds x classes
        raise InstanceError(f"requests has shape {counts.shape}, expected (rounds, {first.size})")
    require(counts, (counts >= 0) & np.isfinite(counts), "requests", "must be finite, not negative")
    owner = np.zeros(first.size, dtype=np.int64) if service is None else service
    of = ints(owner, "service", (first.size,))
    require(of, of >= 0, "service", "does not exist")
    return counts, first, of


def _services(owner: Ints) -> list[Ints]:
    return [np.flatnonzero(owner == s) for s in np.unique(owner)]
