"""How load follows from containers, and rates from load; the same for planner, checker and world.

Source: Derm (ISCA 2024), as its artifact has it: the latency of a call given the load on a
container is a shifted exponential whose rate falls along a straight line. Priority by cumulated
load is reconstructed after Erms (ASPLOS 2023).
"""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.round import MicroserviceRound

RATE_TOLERANCE = 1e-9
"""Relative slack on the least rate: counts computed by division must pass their own check."""


def loads(round_: MicroserviceRound, containers: Ints | Floats, rank: Ints | None = None) -> Floats:
    """Compute the load on one container of each microservice, as each class meets it.

    Parameters
    ----------
    round_
        The round.
    containers
        Shape (M,).
    rank
        Order of the classes, shape (K,), or None. A class meets the load of the classes that do
        not come after it.

    Returns
    -------
    ndarray
        Calls per second on a container, shape (M, 1) in order of arrival, else (M, K); infinite
        where there are calls and no containers.
    """
    if rank is None:
        calls = round_.calls_per_s[:, None]
    else:
        before = rank[:, None] <= rank[None, :]
        calls = (round_.demand * round_.class_rate_per_s) @ before
    count = np.asarray(containers, dtype=np.float64)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return cast(Floats, np.where(calls > 0, calls / count, 0.0))


def rates(microservices: Microservices, load_per_s: Floats) -> Floats:
    """Compute the rate of a call from the load of a container.

    Parameters
    ----------
    microservices
        The laws.
    load_per_s
        Shape (M, ...).

    Returns
    -------
    ndarray
        Rates per ms, same shape; 0 where the load is inadmissible: the call does not end.
    """
    extra = (1,) * (load_per_s.ndim - 1)
    rest = microservices.rate_at_rest_per_ms.reshape(-1, *extra)
    slope = microservices.rate_slope_per_ms.reshape(-1, *extra)
    least = microservices.least_rate_per_ms.reshape(-1, *extra)
    light = microservices.least_load_per_s.reshape(-1, *extra)
    with np.errstate(invalid="ignore"):
        rate = rest + slope * np.maximum(load_per_s, light)
    good = (rate >= least * (1.0 - RATE_TOLERANCE)) & (rate > rest * RATE_TOLERANCE)
    return cast(Floats, np.where(good, rate, 0.0))


def admissible(round_: MicroserviceRound, containers: Ints) -> Bools:
    """Tell which microservices carry their whole load at an admissible rate, shape (M,)."""
    return rates(round_.microservices, loads(round_, containers))[:, 0] > 0


def least_admissible(round_: MicroserviceRound) -> Ints:
    """Compute the fewest containers that carry the load of each microservice, shape (M,).

    The bounds of the microservice are not looked at; 0 where it is not called.
    """
    with np.errstate(divide="ignore"):
        need = round_.calls_per_s / round_.microservices.most_load_per_s
    counts = np.maximum(np.ceil(need * (1.0 - RATE_TOLERANCE)), (need > 0).astype(float))
    counts = counts.astype(np.int64)
    short = (counts > 0) & ~admissible(round_, counts)  # a rate of exactly zero is no rate
    return counts + short


def shifts_ms(round_: MicroserviceRound) -> Floats:
    """Compute the shift of each call of the trees, repeats included, shape (C,)."""
    trees = round_.classes.trees
    return round_.microservices.shift_ms[trees.microservice] * trees.per_request
