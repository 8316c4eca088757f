"""What has to be decided once it is known who waits for whom: counts under latency limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.formulations.microservices.erms.latency import latency_ms, least_count, load_for
from apportion.formulations.microservices.forest import Forest
from apportion.formulations.microservices.plain import SLACK
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import LinearLatency, MicroserviceRound
from apportion.instances.microservices.laws import least_admissible

RELAXED = 1.25
"""A target that no number of containers meets is replaced by this multiple of the latency at rest:
the last percents above rest cost more than all before them."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Units of containers, and the calls that each must answer in time.

    A unit is a microservice, or its part for one service where services do not share.

    Parameters
    ----------
    forest, linear
        Calls and latency laws.
    microservice
        Row of each unit, shape (U,).
    unit
        Unit that answers each call, shape (C,).
    work
        Calls per second on the unit that are served before or with each call, shape (C,).
    least, most
        Bounds of the units, shape (U,).
    cost
        Of a container of each unit, shape (U,).
    target_ms
        Target of each request, shape (K',).
    total_least
        Fewest containers of all units of a microservice together, shape (M,); the last of them is
        then a unit that nobody calls. None: a microservice has one unit.
    """

    forest: Forest
    linear: LinearLatency
    microservice: Ints
    unit: Ints
    work: Floats
    least: Ints
    most: Ints
    cost: Floats
    target_ms: Floats
    total_least: Ints | None = None

    def padded(self, counts: Ints) -> Ints:
        """Fill the units that nobody calls up to the fewest containers of their microservices."""
        if self.total_least is None:
            return counts
        out, idle = counts.copy(), slice(counts.size - self.total_least.size, counts.size)
        out[idle] = 0
        out[idle] = np.maximum(self.total_least - self.totals(out), 0)
        return out

    def totals(self, counts: Ints | Floats) -> Floats:
        """Containers of each microservice, shape (M,)."""
        if self.total_least is None:
            return np.asarray(counts, dtype=np.float64)
        count = self.total_least.size
        total = np.bincount(self.microservice, weights=counts, minlength=count)
        return total.astype(np.float64)

    def own_ms(self, counts: Ints | Floats) -> Floats:
        """Own latency of each call, repeats included, shape (C,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            load = self.work / np.asarray(counts, dtype=np.float64)[self.unit]
        load = np.where(self.work > 0, load, 0.0)
        called = self.forest.microservice
        return self.forest.repeats * latency_ms(self.linear, called, load)

    def request_ms(self, counts: Ints | Floats) -> Floats:
        """Latency of each request, shape (K',)."""
        return self.forest.latency(self.own_ms(counts))[0][self.forest.calls :]

    def kept(self, counts: Ints | Floats) -> Bools:
        """Which requests are in time, shape (K',)."""
        return self.request_ms(counts) <= self.target_ms * (1.0 + SLACK)

    def counts_for(self, own_ms: Floats) -> Floats:
        """Fewest containers of each unit for latencies of its calls, shape (U,)."""
        called = self.forest.microservice
        load = load_for(self.linear, called, own_ms / self.forest.repeats)
        out = self.least.astype(np.float64)
        np.maximum.at(out, self.unit, least_count(self.work, load))
        return out

    def tightened(self, most: Ints) -> Problem:
        """Raise lower bounds to what is needed even if all others have as many as given."""
        own = self.own_ms(most)
        need = self.counts_for(self.forest.allowance(own, self.target_ms * (1.0 + SLACK)))
        least = np.minimum(np.maximum(need, self.least), most).astype(np.int64)
        return replace(self, least=least, most=most)

    def trimmed(self, counts: Ints) -> Ints:
        """Take away what a plan does not need, unit by unit, the dearest first."""
        out = counts.copy()
        for unit in np.argsort(-self.cost * out, kind="stable").tolist():
            low, high = int(self.least[unit]), int(out[unit])
            while low < high:
                middle = (low + high) // 2
                out[unit] = middle
                if self.kept(out).all():
                    high = middle
                else:
                    low = middle + 1
            out[unit] = high
        return out

    def grown(self, counts: Ints) -> Ints | None:
        """Double a plan until all requests are in time; None where bounds forbid it."""
        while not self.kept(counts).all():
            if (counts >= self.most).all():
                return None
            counts = np.minimum(2 * np.maximum(counts, 1), self.most)
        return counts


@dataclass(frozen=True, eq=False)
class Workload:
    """The round as Erms sees it: one set of lines, calls by service, targets that can be met.

    Parameters
    ----------
    round_
        The round.
    linear
        Lines of the microservices.
    """

    round_: MicroserviceRound
    linear: LinearLatency

    @cached_property
    def forest(self) -> Forest:
        """Calls of the classes that occur."""
        return Forest.of(self.round_)

    @cached_property
    def calls_per_s(self) -> Floats:
        """Calls of each microservice for each service, shape (M, S)."""
        round_ = self.round_
        of_class = round_.demand * np.where(round_.active, round_.class_rate_per_s, 0.0)
        of_service = round_.classes.service[:, None] == np.arange(len(round_.services))
        return of_class @ of_service.astype(np.float64)

    @cached_property
    def floor(self) -> Ints:
        """Fewest containers by the bounds, and by the laws as far as the bounds allow."""
        kinds = self.round_.microservices
        return np.clip(least_admissible(self.round_), kinds.least_containers, kinds.most_containers)

    @cached_property
    def overloaded(self) -> Bools:
        """Microservices that cannot carry their load by the laws with all they may have, shape (M,)."""
        return least_admissible(self.round_) > self.round_.microservices.most_containers

    @cached_property
    def reach_ms(self) -> Floats:
        """Shortest latency of each service that the bounds allow if it meets nobody, shape (S,)."""
        kinds, services = self.round_.microservices, len(self.round_.services)
        out = np.zeros(services)
        everything = self.together(self.of_own, np.zeros(self.forest.root_service.size))
        np.maximum.at(out, self.forest.root_service, everything.request_ms(kinds.most_containers))
        return out

    @cached_property
    def hopeless(self) -> Bools:
        """Services whose target no plan meets, by the lines, shape (S,)."""
        return self.reach_ms * (1.0 - SLACK) > self.round_.services.target_ms

    @cached_property
    def target_ms(self) -> Floats:
        """Targets planned for, shape (S,): those of the services, or what can be had."""
        services = self.round_.services
        rest = np.zeros(len(services))
        called = self.forest.microservice
        own = self.forest.repeats * latency_ms(self.linear, called, np.zeros(self.forest.calls))
        at_rest = self.forest.latency(own)[0][self.forest.calls :]
        np.maximum.at(rest, self.forest.root_service, at_rest)
        instead = np.maximum(self.reach_ms, RELAXED * rest)
        return np.where(self.hopeless, instead, services.target_ms)

    @cached_property
    def request_target_ms(self) -> Floats:
        """Target of each request of the forest, shape (K',)."""
        return self.target_ms[self.forest.root_service]

    @cached_property
    def of_own(self) -> Floats:
        """Work of each call where services do not meet: that of its service, shape (C,)."""
        return self.calls_per_s[self.forest.microservice, self.forest.service]

    @cached_property
    def of_all(self) -> Floats:
        """Work of each call in order of arrival: that of all services, shape (C,)."""
        return self.calls_per_s.sum(axis=1)[self.forest.microservice]

    def of_order(self, position: Ints) -> Floats:
        """Work of each call under priorities: that of services not behind its own, shape (C,).

        Parameters
        ----------
        position
            Place of each service, 0 first, shape (S,).
        """
        before = position[:, None] <= position[None, :]
        work = self.calls_per_s @ before.astype(np.float64)
        return work[self.forest.microservice, self.forest.service]

    def together(self, work: Floats, target_ms: Floats) -> Problem:
        """State the problem of shared containers."""
        kinds = self.round_.microservices
        return Problem(
            self.forest, self.linear, np.arange(len(kinds)), self.forest.microservice, work,
            self.floor, kinds.most_containers, kinds.cost, target_ms,
        )  # fmt: skip

    def apart(self) -> Problem:
        """State the problem of containers that each serve one service only."""
        kinds, idle = self.round_.microservices, np.arange(len(self.round_.microservices))
        row, service = np.nonzero(self.calls_per_s > 0)
        unit = np.full(self.calls_per_s.shape, -1, dtype=np.int64)
        unit[row, service] = np.arange(row.size)
        calls = self.calls_per_s[row, service]
        least = np.minimum(
            least_count(calls, kinds.most_load_per_s[row]), kinds.most_containers[row]
        )
        every = np.concatenate((row, idle))
        return Problem(
            self.forest, self.linear, every,
            unit[self.forest.microservice, self.forest.service], self.of_own,
            np.concatenate((least.astype(np.int64), np.zeros_like(idle))),
            np.concatenate((kinds.most_containers[row], self.floor)), kinds.cost[every],
            self.request_target_ms, self.floor,
        )  # fmt: skip
