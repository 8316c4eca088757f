"""Laws of latency as they come out of queues, so that plans and queues can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from apportion.executor.microservices.events import EventSimulation
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound, Microservices
from apportion.instances.microservices.fit import LawFit, fit_law
from apportion.instances.streams import stream

LOADS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Request rates, in parts of those of the round, at which latencies are watched."""

WARM_UP = 0.1
"""Part of the calls of each run that is left out: the queues were empty at its start."""


def calibrated(
    round_: MicroserviceRound,
    containers: Ints,
    *,
    requests: int = 20_000,
    loads: Sequence[float] = LOADS,
    seed: int = 0,
) -> tuple[Microservices, list[LawFit | None]]:
    """Fit the law of every microservice to what its containers do when requests queue.

    Containers serve at the rate that their law has at rest, as in the event simulator.

    Parameters
    ----------
    round_
        The application, and the heaviest request rates to be watched.
    containers
        Shape (M,); they must be able to carry these rates.
    requests
        Requests at each load.
    loads
        In parts of the rates of the round.
    seed
        Root of the random streams.

    Returns
    -------
    microservices
        With fitted rates, slopes, shifts and limits of trust; as they were where nobody calls.
    fits
        What was fitted, None where nobody calls.
    """
    load_rows: list[Floats] = []
    samples: list[list[Floats]] = []
    came = stream(seed, "requests")
    which, times = stream(seed, "class_draws"), stream(seed, "service_times")
    rate = round_.class_rate_per_s
    for part in loads:
        total = part * float(rate.sum())
        when = np.cumsum(came.exponential(1e3 / total, requests))
        kinds = which.choice(rate.size, requests, p=rate / rate.sum())
        table = round_.microservices
        simulation = EventSimulation(
            round_.classes.trees, table.rate_at_rest_per_ms, table.shift_ms, containers, times
        )
        simulation.advance(math.inf, when, kinds)
        load_rows.append(part * round_.calls_per_s / containers)
        samples.append([own[int(WARM_UP * own.size) :] for own in simulation.take_own_ms()])
    fits = [_fit(m, load_rows, samples) for m in range(len(round_.microservices))]
    return _with(round_.microservices, fits), fits


def _fit(m: int, loads: Sequence[Floats], samples: Sequence[Sequence[Floats]]) -> LawFit | None:
    own = [of_load[m] for of_load in samples]
    if not any(values.size for values in own):
        return None
    load = np.concatenate(
        [np.full(values.size, at[m]) for at, values in zip(loads, own, strict=True)]
    )
    return fit_law(load, np.concatenate(own))


def _with(table: Microservices, fits: Sequence[LawFit | None]) -> Microservices:
    columns: dict[str, Any] = {}
    for name in (
        "rate_at_rest_per_ms", "rate_slope_per_ms", "shift_ms", "least_rate_per_ms",
        "least_load_per_s",
    ):  # fmt: skip
        old = getattr(table, name).tolist()
        columns[name] = [
            value if fit is None else getattr(fit, name)
            for value, fit in zip(old, fits, strict=True)
        ]
    return replace(table, **columns)
