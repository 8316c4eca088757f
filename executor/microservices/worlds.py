"""The two worlds a plan can be carried out in: latencies drawn from laws, or requests that queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from apportion.executor.microservices.chains import Chain
from apportion.executor.microservices.containers import mean_serving
from apportion.executor.microservices.events import Ended, EventSimulation
from apportion.executor.microservices.monte_carlo import Phase, draw_round, requests_to_draw
from apportion.executor.microservices.seen import Measured, Seen, call_percentiles, quantiles
from apportion.executor.microservices.violation_bounds import violation_bounds
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound, Scenario
from apportion.instances.microservices.laws import loads, rates
from apportion.instances.streams import stream


class World(Protocol):
    """Where rounds are carried out."""

    def carry_out(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None, *, last: bool
    ) -> Seen:
        """Let one round pass; ``truth`` has the rates, shares and laws that really hold."""
        ...

    def expected(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None
    ) -> tuple[Floats, Floats]:
        """Bracket of each service's violation by the true laws, shape (S,) each; NaN: no law."""
        ...


class Arrivals:
    """Requests that come: their numbers, and the classes they follow.

    Every round draws from streams of its own, so that what a policy does to one round does not
    move the chance of the next.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._requests = stream(scenario.seed, "requests").spawn(scenario.rounds)
        self._classes = stream(scenario.seed, "class_draws").spawn(scenario.rounds)
        self._times = stream(scenario.seed, "service_times").spawn(scenario.rounds)
        self._first = scenario.start.index

    def streams(self, index: int) -> tuple[np.random.Generator, ...]:
        """Streams of a round: requests, classes, times."""
        at = index - self._first
        return self._requests[at], self._classes[at], self._times[at]

    def counts(self, truth: MicroserviceRound) -> tuple[Ints, Ints]:
        """Draw how many requests come of each class, shape (K,), and of none, shape (S,)."""
        rng = self.streams(truth.index)[0]
        classes, services = truth.classes, truth.services
        of_class = rng.poisson(truth.class_rate_per_s * truth.duration_s)
        lost = rng.poisson(services.rate_per_s * services.unmodelled_share * truth.duration_s)
        return of_class.astype(np.int64).reshape(len(classes)), lost.astype(np.int64)


class MonteCarloWorld:
    """Latencies drawn from the true laws."""

    def __init__(self, scenario: Scenario, forms: Sequence[Chain]) -> None:
        self._arrivals, self._forms = Arrivals(scenario), forms
        self._asked = scenario.options.requests

    def carry_out(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None, *, last: bool
    ) -> Seen:
        """Draw requests in every phase of the round."""
        _, classes, times = self._arrivals.streams(truth.index)
        of_class, lost = self._arrivals.counts(truth)
        count = requests_to_draw(truth, self._asked)
        measured = draw_round(truth, phases, rank, count, (classes, times), forms=self._forms)
        load = mean_load(truth, phases)
        rate = rates(truth.microservices, load[:, None])[:, 0]
        p50, p95 = call_percentiles(rate, truth.microservices.shift_ms, truth.calls_per_s > 0)
        return _seen(measured, (of_class, lost), (p50, p95), load)

    def expected(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None
    ) -> tuple[Floats, Floats]:
        """Average the brackets of the phases."""
        low, high = np.zeros(len(truth.services)), np.zeros(len(truth.services))
        for share, containers in phases:
            found = violation_bounds(truth, containers, rank, forms=self._forms)
            low, high = low + share * found.low, high + share * found.high
        return low, high


class EventWorld:
    """Requests that queue at containers, from round to round.

    A container serves at the rate that its law has at rest; its shift holds no container. Loads
    slow calls down only as far as they queue. The measured latencies are of the requests that
    ended in the round; those that never end are violations of the last.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._arrivals = Arrivals(scenario)
        self._times = stream(scenario.seed, "service_times")
        self._simulation: EventSimulation | None = None
        self._came: list[int] = [0] * len(scenario.start.classes)  # requests under way, by class

    def carry_out(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None, *, last: bool
    ) -> Seen:
        """Let requests come and queue, phase by phase."""
        start_ms, length_ms = 1e3 * truth.now_s, 1e3 * truth.duration_s
        of_class, lost = self._arrivals.counts(truth)
        when, which = self._requests(truth, of_class)
        simulation = self._opened(truth, phases[0][1], rank)
        parts: list[Ended] = []
        since, done = 0.0, 0
        for at, (share, containers) in enumerate(phases):
            since = since + share if at + 1 < len(phases) else 1.0
            simulation.set_containers(containers)
            upto = int(np.searchsorted(when, since)) if since < 1.0 else when.size
            end_ms = start_ms + since * length_ms
            came = start_ms + when[done:upto] * length_ms
            parts.append(simulation.advance(end_ms, came, which[done:upto]))
            done = upto
        if last:
            parts.append(simulation.advance(math.inf, np.zeros(0), np.zeros(0, dtype=np.int64)))
        measured = self._measured(truth, parts, of_class, lost, last=last)
        return _seen(measured, (of_class, lost), _own(simulation), mean_load(truth, phases))

    def expected(
        self, truth: MicroserviceRound, phases: Sequence[Phase], rank: Ints | None
    ) -> tuple[Floats, Floats]:
        """No law says it."""
        unknown = np.full(len(truth.services), np.nan)
        return unknown, unknown

    def _requests(self, truth: MicroserviceRound, of_class: Ints) -> tuple[Floats, Ints]:
        """Spread requests over the round: when, as a share of it, and of which class."""
        rng = self._arrivals.streams(truth.index)[1]
        which = rng.permutation(np.repeat(np.arange(of_class.size), of_class))
        return np.sort(rng.random(which.size)), which

    def _opened(
        self, truth: MicroserviceRound, containers: Ints, rank: Ints | None
    ) -> EventSimulation:
        simulation, table = self._simulation, truth.microservices
        if simulation is None:
            order = np.zeros(len(truth.classes), dtype=np.int64) if rank is None else rank
            simulation = self._simulation = EventSimulation(
                truth.classes.trees, table.rate_at_rest_per_ms, table.shift_ms, containers,
                self._times, rank=order, start_ms=1e3 * truth.now_s,
            )  # fmt: skip
        elif rank is not None:
            simulation.set_rank(rank)
        else:
            simulation.set_rank(np.zeros(len(truth.classes), dtype=np.int64))
        return simulation

    def _measured(
        self,
        truth: MicroserviceRound,
        parts: Sequence[Ended],
        of_class: Ints,
        lost: Ints,
        *,
        last: bool,
    ) -> Measured:
        measured = Measured(truth)
        which = np.concatenate([part.of_class for part in parts])
        took = np.concatenate([part.ended_ms - part.came_ms for part in parts])
        for k, count in enumerate(of_class.tolist()):
            latency = took[which == k]
            self._came[k] += count - latency.size
            never = self._came[k] if last else 0
            measured.add(k, np.append(latency, np.full(never, np.inf)))
        for service, count in enumerate(lost.tolist()):
            measured.add_unmodelled(service, count)
        return measured


def _own(simulation: EventSimulation) -> tuple[Floats, Floats]:
    """Percentiles of the calls of the round, by microservice; 0 without any."""
    rows = [
        quantiles(values, (0.5, 0.95)) if values.size else [0.0, 0.0]
        for values in simulation.take_own_ms()
    ]
    table = np.array(rows).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def mean_load(truth: MicroserviceRound, phases: Sequence[Phase]) -> Floats:
    """Calls per second on a container of each microservice, shape (M,)."""
    return loads(truth, mean_serving(list(phases)))[:, 0]


def _seen(
    measured: Measured, came: tuple[Ints, Ints], own: tuple[Floats, Floats], load: Floats
) -> Seen:
    total, violations = measured.totals()
    return Seen(
        came[0], came[1], total, violations, measured.class_measured, measured.class_kept,
        measured.percentiles(), own[0], own[1], load,
    )  # fmt: skip


def world_of(scenario: Scenario, forms: Sequence[Chain]) -> World:
    """Make the world a scenario asks for."""
    if scenario.options.simulator == "events":
        return EventWorld(scenario)
    return MonteCarloWorld(scenario, forms)


def true_round(scenario: Scenario, at: int) -> MicroserviceRound:
    """Give a round as it really is: rates, shares and laws."""
    start = scenario.start
    services = replace(start.services, rate_per_s=scenario.rate_per_s[at])
    return replace(
        start, microservices=scenario.truth, services=services,
        classes=start.classes.with_share(scenario.share[at]), containers=None, observed=None,
        linear=None, now_s=start.now_s + at * start.duration_s, index=start.index + at,
    )  # fmt: skip
