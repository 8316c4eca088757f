"""Rules that split a latency target over the calls: inspired by GrandSLAm and by Rhythm."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.microservices.forest import Forest
from apportion.formulations.microservices.plain import (
    PlainProgram,
    containers_at_load,
    decided,
    load_at_rate,
    require_between,
)
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Floats
from apportion.instances.microservices import MicroserviceRound


@dataclass(frozen=True, eq=False)
class Reference:
    """How the calls behave at a reference load.

    Parameters
    ----------
    forest
        The calls.
    shift_ms, spread_ms
        Least latency of each call and mean of what comes on top, repeats included, shape (C,).
    """

    forest: Forest
    shift_ms: Floats
    spread_ms: Floats

    @classmethod
    def of(cls, round_: MicroserviceRound, utilisation: float) -> Reference:
        """Compute it at a share of the heaviest load that each law allows."""
        forest, kinds = Forest.of(round_), round_.microservices
        load = np.maximum(utilisation * kinds.most_load_per_s, kinds.least_load_per_s)
        # utilisation 1 may mean no rate at all
        rate = kinds.rate_at_rest_per_ms + kinds.rate_slope_per_ms * load
        rate = np.maximum(rate, kinds.least_rate_per_ms)
        called, repeats = forest.microservice, forest.repeats
        return cls(forest, repeats * kinds.shift_ms[called], repeats / rate[called])


def _decided(round_: MicroserviceRound, forest: Forest, share_ms: Floats, start: float) -> Decision:
    """Decide by shares, and show the smallest of each microservice for a single call."""
    smallest = np.full(len(round_.microservices), np.inf)
    np.minimum.at(smallest, forest.microservice, share_ms / forest.repeats)
    counts = counts_for_shares(round_, forest, share_ms)
    return decided(round_, counts, start=start, per_job={"target_ms": smallest})


def counts_for_shares(round_: MicroserviceRound, forest: Forest, share_ms: Floats) -> Floats:
    """Fewest containers with which every call keeps its share at the tail, shape (M,).

    Parameters
    ----------
    round_
        The round.
    forest
        Its calls.
    share_ms
        Share of the target for each call, repeats included, shape (C,).

    Notes
    -----
    A call keeps its share where ``exp(-rate (share - shift))`` is within the service's budget.
    """
    kinds = round_.microservices
    called, repeats = forest.microservice, forest.repeats
    tail = -np.log(round_.services.violation_budget[forest.service])
    left = share_ms - repeats * kinds.shift_ms[called]
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(left > 0, repeats * tail / left, np.inf)
    rate = np.zeros(len(kinds))
    np.maximum.at(rate, called, need)
    return containers_at_load(round_, load_at_rate(round_, rate))


@dataclass(frozen=True)
class GrandSlam:
    """Split each target in proportion to mean latencies; fewest containers that keep each share.

    Parameters
    ----------
    reference_utilisation
        Load at which mean latencies are compared, as a share of the heaviest.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by GrandSLAm (EuroSys 2019); see docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "grandslam"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

    reference_utilisation: float = 0.6

    def __post_init__(self) -> None:
        value = self.reference_utilisation
        require_between(self.name, "reference_utilisation", value, 0.0, 0.99)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Split the targets."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: MicroserviceRound) -> Decision:
        start = time.perf_counter()
        seen = Reference.of(round_, self.reference_utilisation)
        mean = seen.shift_ms + seen.spread_ms
        target = round_.services.target_ms[seen.forest.root_service]
        share = seen.forest.split(np.zeros_like(mean), mean, target)
        return _decided(round_, seen.forest, share, start)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


@dataclass(frozen=True)
class Rhythm:
    """Split what targets leave above the shifts in proportion to contribution scores.

    The score of a call is the geometric mean of its mean latency, its standard deviation and its
    correlation with the latency of the whole request.

    Parameters
    ----------
    reference_utilisation
        Load at which calls are scored, as a share of the heaviest.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by Rhythm (EuroSys 2020), from memory; see docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "rhythm"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

    reference_utilisation: float = 0.6

    def __post_init__(self) -> None:
        value = self.reference_utilisation
        require_between(self.name, "reference_utilisation", value, 0.0, 0.99)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Score the calls."""
        return PlainProgram(lambda: self._decide(round_))

    def _decide(self, round_: MicroserviceRound) -> Decision:
        start = time.perf_counter()
        seen = Reference.of(round_, self.reference_utilisation)
        forest = seen.forest
        target = round_.services.target_ms[forest.root_service]
        share = forest.split(seen.shift_ms, contribution(seen), target)
        return _decided(round_, forest, share, start)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


def contribution(seen: Reference) -> Floats:
    """Contribution score of each call, shape (C,).

    Calls are independent, so that a call's correlation with its request is the ratio of their
    standard deviations; of calls side by side the one that varies most counts.
    """
    forest, deviation = seen.forest, seen.spread_ms
    whole = np.sqrt(forest.latency(deviation**2)[0][forest.calls :])[forest.root]
    correlation = deviation / whole
    return np.cbrt((seen.shift_ms + seen.spread_ms) * deviation * correlation)
