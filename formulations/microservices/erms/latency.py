"""Erms' two lines as one law: latency of a load, heaviest load for a latency, fewest containers."""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.formulations.microservices.plain import SLACK
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import LinearLatency


def latency_ms(linear: LinearLatency, microservice: Ints, load_per_s: Floats) -> Floats:
    """Latency of one call at a load, never falling with it.

    Fitted lines may jump at the inflection; where they jump down, the light line's last value is
    kept until the heavy line has reached it.

    Parameters
    ----------
    linear
        The lines.
    microservice
        Rows of them, shape (n,).
    load_per_s
        Shape (n,) or (n, levels); infinite: infinite latency.
    """
    a1, b1, a2, b2, turn = _lines(linear, microservice, load_per_s.ndim)
    light = a1 * np.minimum(load_per_s, turn) + b1
    with np.errstate(invalid="ignore"):
        heavy = np.where(load_per_s > turn, a2 * load_per_s + b2, -np.inf)
    out = np.maximum(light, heavy)
    return cast(Floats, np.where(np.isinf(load_per_s), np.inf, out))


def load_for(linear: LinearLatency, microservice: Ints, latency: Floats) -> Floats:
    """Heaviest load at which one call keeps a latency; zero where none does, shape (n,)."""
    a1, b1, a2, b2, turn = _lines(linear, microservice, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        light = np.where(a1 > 0, (latency - b1) / a1, np.where(latency >= b1, np.inf, 0.0))
        heavy = np.where(a2 > 0, (latency - b2) / a2, np.where(latency >= b2, np.inf, 0.0))
    return cast(Floats, np.where(light < turn, np.maximum(light, 0.0), np.maximum(turn, heavy)))


def least_count(work_per_s: Floats, load_per_s: Floats) -> Floats:
    """Fewest containers that bring work down to a load; zero without work, infinite at load 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.ceil(work_per_s / load_per_s * (1.0 - SLACK))
    return cast(Floats, np.where(work_per_s > 0, np.maximum(need, 1.0), 0.0))


def lines(linear: LinearLatency, microservice: Ints, after: Bools) -> tuple[Floats, Floats]:
    """Slope and intercept of the line chosen for each call, shape (n,) each."""
    a1, b1, a2, b2, _ = _lines(linear, microservice, 1)
    return np.where(after, a2, a1), np.where(after, b2, b1)


def _lines(
    linear: LinearLatency, microservice: Ints, dimensions: int
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    extra = (1,) * (dimensions - 1)
    columns = (
        linear.slope_before_ms, linear.intercept_before_ms, linear.slope_after_ms,
        linear.intercept_after_ms, linear.inflection_per_s,
    )  # fmt: skip
    a1, b1, a2, b2, turn = (column[microservice].reshape(-1, *extra) for column in columns)
    return a1, b1, a2, b2, turn
