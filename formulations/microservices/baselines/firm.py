"""Inspired by FIRM: find who makes the critical path late, and give it more."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.microservices.baselines.recalled import current, last_plan
from apportion.formulations.microservices.forest import Forest
from apportion.formulations.microservices.plain import (
    SLACK,
    PlainProgram,
    decided,
    require_between,
)
from apportion.formulations.microservices.tails import Tails
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import loads, rates

_START_UTILISATION = 0.6
"""Utilisation of the first plan where it is not known what runs."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a round shows: measured where somebody measured, else by the laws.

    Parameters
    ----------
    round_
        The round.
    now
        Containers that run, shape (M,).
    slack
        Share of a target that must be left over for a service to count as having slack.
    """

    round_: MicroserviceRound
    now: Ints
    slack: float

    @cached_property
    def percentiles(self) -> tuple[Floats, Floats]:
        """P50 and P95 of a call to each microservice, shape (M,) each."""
        seen, kinds = self.round_.observed, self.round_.microservices
        if seen is not None:
            return seen.latency_p50_ms, seen.latency_p95_ms
        rate = rates(kinds, loads(self.round_, self.now))[:, 0]
        with np.errstate(divide="ignore"):
            return kinds.shift_ms + np.log(2.0) / rate, kinds.shift_ms + np.log(20.0) / rate

    @cached_property
    def suspicion(self) -> Floats:
        """P95 by P50 of each microservice, infinite where it is overloaded, shape (M,)."""
        half, high = self.percentiles
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = high / half
        return np.where(np.isinf(high), np.inf, np.where(half > 0, ratio, 0.0))

    @cached_property
    def violated(self) -> Bools:
        """Services that miss their SLA, shape (S,)."""
        services, seen = self.round_.services, self.round_.observed
        if seen is not None:
            missed = seen.violated
        else:
            missed = Tails.of(self.round_).violations(self.now) > services.violation_budget
        return missed & (services.rate_per_s > 0)

    @cached_property
    def easy(self) -> Bools:
        """Services that would keep a target shorter by the slack, shape (S,)."""
        services, seen = self.round_.services, self.round_.observed
        shorter = (1.0 - self.slack) * services.target_ms
        if seen is not None:
            return (seen.latency_tail_ms <= shorter) | (services.rate_per_s <= 0)
        strict = replace(self.round_, services=replace(services, target_ms=shorter))
        kept = Tails.of(strict).violations(self.now) <= services.violation_budget
        return kept | (services.rate_per_s <= 0)

    def critical(self, service: int) -> Floats:
        """P95 time that each microservice adds to the critical path of a service's longest class,
        shape (M,); 0 off that path."""
        forest = Forest.of(self.round_)
        own = forest.repeats * self.percentiles[1][forest.microservice]
        length = forest.latency(own)[0][forest.calls :]
        length = np.where(forest.root_service == service, length, -1.0)
        if not length.size:
            return np.zeros(len(self.round_.microservices))
        on = forest.critical(own) & (forest.root == int(length.argmax()))
        size = len(self.round_.microservices)
        return cast(Floats, np.bincount(forest.microservice[on], own[on], size))


@dataclass(frozen=True)
class Firm:
    """Add containers where a violated service's critical path varies most; give back in slack.

    Parameters
    ----------
    step
        Containers added to the one found guilty, as a share of those it has, at least one.
    slack
        Share of every target that must be left over before a container is given back.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by FIRM (OSDI 2020), without its learning; see"
        " docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "firm"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"idle_class", "unit_homogeneous"})

    step: float = 0.1
    slack: float = 0.3

    def __post_init__(self) -> None:
        require_between(self.name, "step", self.step, 0.0, LARGEST)
        require_between(self.name, "slack", self.slack, 0.0, 1.0)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Look at the containers that run."""
        now = current(round_, memory, self.name, _START_UTILISATION)
        return PlainProgram(lambda: self._decide(round_, now))

    def _decide(self, round_: MicroserviceRound, now: Ints) -> Decision:
        start = time.perf_counter()
        kinds, seen = round_.microservices, _Seen(round_, now, self.slack)
        plan = np.maximum(now, round_.calls_per_s > 0).astype(np.int64)
        guilty = np.zeros(len(kinds), dtype=np.bool_)
        for service in np.flatnonzero(seen.violated).tolist():
            guilty |= self._guilty(seen, service, plan)
        plan[guilty] += np.maximum(1, np.ceil(self.step * plan[guilty])).astype(np.int64)
        if not guilty.any() and seen.easy.all():
            spare = np.flatnonzero(plan > np.maximum(kinds.least_containers, 1))
            if spare.size:
                plan[spare[seen.suspicion[spare].argmin()]] -= 1
        return decided(round_, plan, start=start)

    @staticmethod
    def _guilty(seen: _Seen, service: int, plan: Ints) -> Bools:
        """The one on the critical path that varies most; all that are overloaded.

        Of several that vary alike, as calls without a shift do, the one that takes most time.
        """
        out = np.zeros(plan.size, dtype=np.bool_)
        time_ms = seen.critical(service)
        path = np.flatnonzero((time_ms > 0) & (plan < seen.round_.microservices.most_containers))
        if path.size:
            suspicion = seen.suspicion[path]
            alike = path[suspicion >= suspicion.max() * (1.0 - SLACK)]
            out[alike[time_ms[alike].argmax()]] = True
            out[path[np.isinf(suspicion)]] = True
        return out

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the plan."""
        return last_plan(round_, decision.allocation.containers)
