"""What a scheduler expects of the next round, from the rounds it has seen."""

from __future__ import annotations

from collections import deque
from typing import cast

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import ExecutorOptions, MicroserviceRound


class Beliefs:
    """Forecasts of request rates and of the shares of the classes.

    Rates: the larger of the last value and its exponential smoothing, plus a margin. Shares: as
    the options say, from the counts of the classes in past rounds.
    """

    def __init__(self, start: MicroserviceRound, options: ExecutorOptions) -> None:
        self._options, self._start = options, start
        self._smooth: Floats | None = None
        self._last: Floats | None = None
        self._ewma = np.array(start.classes.share)
        self._counts: deque[Ints] = deque(maxlen=options.window)
        self._errors: deque[Floats] = deque(maxlen=options.window)

    def rates_per_s(self) -> Floats:
        """Forecast the request rate of each service, shape (S,)."""
        if self._last is None or self._smooth is None:
            return self._start.services.rate_per_s
        return cast(Floats, np.maximum(self._last, self._smooth)) * (
            1.0 + self._options.rate_margin
        )

    def shares(self, truth: Floats) -> Floats:
        """Forecast the share of each class, shape (K,); ``truth`` is for the oracle alone."""
        rule, start = self._options.forecast, self._start.classes.share
        if rule == "true":
            return truth
        if rule == "static" or not self._counts:
            return start
        if rule == "ewma":
            return self._normalised(self._ewma)
        if rule == "last":
            return self._normalised(self._of_counts(self._counts[-1].astype(np.float64)))
        total = np.sum(self._counts, axis=0).astype(np.float64)
        return self._normalised(self._of_counts(total + (1.0 if rule == "dirichlet" else 0.0)))

    def errors(self) -> Floats:
        """95th percentile of the recent L1 errors of the shares, shape (S,)."""
        if not self._options.robust or not self._errors:
            return np.zeros(len(self._start.services))
        worst = np.percentile(np.array(self._errors), 95.0, axis=0)
        return cast(Floats, np.minimum(worst, 2.0))

    def observe(self, counts: Ints, arrivals: Ints, length_s: float, forecast: Floats) -> None:
        """Take in what came: requests by class, shape (K,), and by service, shape (S,)."""
        rate = arrivals / length_s
        weight = self._options.smoothing
        self._last = rate
        self._smooth = (
            rate if self._smooth is None else weight * rate + (1.0 - weight) * self._smooth
        )
        self._counts.append(counts)
        seen = self._of_counts(counts.astype(np.float64))
        self._ewma = weight * seen + (1.0 - weight) * self._ewma
        service, size = self._start.classes.service, len(self._start.services)
        self._errors.append(cast(Floats, np.bincount(service, np.abs(seen - forecast), size)))

    def _of_counts(self, counts: Floats) -> Floats:
        """Shares by counts; those of a service nobody called stay as they were."""
        service, size = self._start.classes.service, len(self._start.services)
        total = np.bincount(service, counts, size)[service]
        modelled = 1.0 - self._start.services.unmodelled_share[service]
        known = total > 0
        share = counts / np.where(known, total, 1.0) * modelled
        return cast(Floats, np.where(known, share, self._ewma))

    def _normalised(self, share: Floats) -> Floats:
        service, size = self._start.classes.service, len(self._start.services)
        total = np.bincount(service, share, size)[service]
        modelled = 1.0 - self._start.services.unmodelled_share[service]
        scaled = np.clip(share / np.where(total > 0, total, 1.0) * modelled, 0.0, 1.0)
        return cast(Floats, np.where(total > 0, scaled, self._start.classes.share))
