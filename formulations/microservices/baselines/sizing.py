"""A plan that keeps every limit by the laws: one utilisation for all, then what is not needed goes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.formulations.microservices.plain import SLACK
from apportion.formulations.microservices.tails import Tails
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import rates

LEAST_UTILISATION = 2.0**-10
"""Limits that are missed even at this utilisation are given up: no plan keeps them."""

MOST_TRIMMED = 200
"""Microservices up to which plans are trimmed one by one: each takes a dozen evaluations."""

_HALVINGS = 12
"""Steps of the bisection on the utilisation: finer ones change no counts worth having."""


@dataclass(frozen=True, eq=False)
class Sizing:
    """What a plan has to carry, and what it must not exceed.

    Parameters
    ----------
    round_
        The round: laws and bounds.
    calls_per_s
        Calls of each microservice to plan for, shape (M,).
    late
        Share of late requests under a plan, of each service or class that counts.
    limit
        Largest share allowed, same shape.
    """

    round_: MicroserviceRound
    calls_per_s: Floats
    late: Callable[[Ints], Floats]
    limit: Floats

    @classmethod
    def of_services(cls, round_: MicroserviceRound) -> Sizing:
        """Carry the calls of the round, and keep the SLA of every service that is called."""
        tails, called = Tails.of(round_), np.flatnonzero(round_.services.rate_per_s > 0)
        limit = round_.services.violation_budget[called]
        return cls(round_, round_.calls_per_s, lambda x: tails.violations(x)[called], limit)

    @classmethod
    def of_worst(cls, round_: MicroserviceRound, rate_per_s: Floats) -> Sizing:
        """Carry the most calls that each service can make, and keep the SLA of every class.

        Whatever graphs requests follow, a microservice gets at most as many calls as if all
        followed the class that calls it most.
        """
        services, classes = round_.services, round_.classes
        # nobody calls services without classes, whose requests count as violated anyway
        busy = replace(round_, services=replace(services, rate_per_s=rate_per_s))
        tails = Tails.of(busy)
        calls = np.zeros(len(round_.microservices))
        for service in np.unique(classes.service[tails.classes]).tolist():
            rows = tails.classes[classes.service[tails.classes] == service]
            calls += rate_per_s[service] * round_.demand[:, rows].max(axis=1, initial=0.0)
        limit = services.violation_budget[classes.service[tails.classes]]

        def late(counts: Ints) -> Floats:
            with np.errstate(divide="ignore", invalid="ignore"):
                load = np.where(calls > 0, calls / counts, 0.0)
            return 1.0 - tails.met(rates(round_.microservices, load[:, None]))

        return cls(round_, calls, late, limit)

    def at(self, utilisation: float) -> Ints:
        """Containers at a share of the heaviest load, within bounds, shape (M,)."""
        kinds = self.round_.microservices
        with np.errstate(over="ignore"):
            need = self.calls_per_s / (utilisation * kinds.most_load_per_s)
        counts = np.maximum(np.ceil(need * (1.0 - SLACK)), self.calls_per_s > 0)
        return np.clip(counts, kinds.least_containers, kinds.most_containers).astype(np.int64)

    @cached_property
    def able(self) -> Bools:
        """Limits that some plan keeps."""
        return self.late(self.at(LEAST_UTILISATION)) <= self.limit

    def kept(self, counts: Ints) -> bool:
        """Whether a plan keeps all limits that can be kept."""
        return bool((self.late(counts) <= self.limit)[self.able].all())

    def even(self) -> Ints:
        """Containers at the highest utilisation that keeps the limits, shape (M,).

        Where no limit can be kept the plan is that of half the heaviest load.
        """
        if not self.able.any():
            return self.at(0.5)
        if self.kept(tight := self.at(1.0)):
            return tight
        low, high, best = math.log(LEAST_UTILISATION), 0.0, self.at(LEAST_UTILISATION)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            counts = self.at(math.exp(middle))
            if self.kept(counts):
                low, best = middle, counts
            else:
                high = middle
        return best

    def trimmed(self, counts: Ints) -> Ints:
        """Take away what a plan does not need, the dearest first; large applications stay."""
        kinds = self.round_.microservices
        if len(kinds) > MOST_TRIMMED or not self.able.any():
            return counts
        out, least = counts.copy(), self.at(1.0)
        for row in np.argsort(-kinds.cost * counts, kind="stable").tolist():
            low, high = int(min(least[row], out[row])), int(out[row])
            while low < high:
                middle = (low + high) // 2
                out[row] = middle
                if self.kept(out):
                    high = middle
                else:
                    low = middle + 1
            out[row] = high
        return out
