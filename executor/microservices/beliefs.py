"""What a scheduler expects of the next round, from the rounds it has seen."""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import ExecutorOptions, MicroserviceRound
from apportion.instances.microservices.forecast import predict_shares, share_radius

_LOOK_BACK = 4
"""Windows of rounds that are kept: errors of one window look back on another, and rounds without
requests do not count."""

_NOISE = 1e-12
"""Distances up to this are rounding: a service of one class has none."""


class Beliefs:
    """Forecasts of request rates and of the shares of the classes.

    Rates: the larger of the last value and its exponential smoothing, plus a margin. Shares: as
    the options say, from the counts of the classes in past rounds.
    """

    def __init__(self, start: MicroserviceRound, options: ExecutorOptions) -> None:
        self._options, self._start = options, start
        self._last: Floats | None = None
        self._smooth = np.zeros(len(start.services))
        self._counts: list[Ints] = []

    def rates_per_s(self) -> Floats:
        """Forecast the request rate of each service, shape (S,)."""
        if self._last is None:
            return self._start.services.rate_per_s
        highest = np.maximum(self._last, self._smooth)
        return highest * (1.0 + self._options.rate_margin)

    def shares(self, truth: Floats) -> Floats:
        """Forecast the share of each class, shape (K,); ``truth`` is for the oracle alone."""
        options, classes = self._options, self._start.classes
        if options.forecast == "true":
            return truth
        out = predict_shares(
            self._seen(), classes.share, options.forecast, service=classes.service,
            window=options.window, smoothing=options.smoothing,
        )  # fmt: skip
        return cast(Floats, np.minimum(out, 1.0))  # shares may sum to an ulp more

    def radius(self) -> Floats:
        """L1 distance within which the true shares are expected, shape (S,); 0 if not asked for."""
        options, classes, size = self._options, self._start.classes, len(self._start.services)
        if not options.robust or options.forecast == "true":
            return np.zeros(size)
        out = share_radius(
            self._seen(), classes.share, options.forecast, service=classes.service,
            window=options.window, smoothing=options.smoothing, services=size,
        )  # fmt: skip
        return np.where(out > _NOISE, out, 0.0)

    def observe(self, counts: Ints, arrivals: Ints, length_s: float) -> None:
        """Take in what came: requests by class, shape (K,), and by service, shape (S,)."""
        rate, weight = arrivals / length_s, self._options.smoothing
        first = self._last is None
        self._smooth = rate if first else weight * rate + (1.0 - weight) * self._smooth
        self._last = rate
        self._counts.append(counts)
        del self._counts[: -_LOOK_BACK * self._options.window]

    def _seen(self) -> Ints:
        return np.array(self._counts, dtype=np.int64).reshape(-1, len(self._start.classes))
