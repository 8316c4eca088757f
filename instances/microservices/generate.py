"""Applications drawn from a seed: call graphs, optional branches, laws and targets.

Sources: how many calls the front end makes and how the chance of a leaf rises with depth are
those of Erms' generator (ASPLOS 2023, artifact); the parts of entries, leaves and those between
are those of a study of Alibaba's traces (arXiv 2504.13141). What else shapes a graph is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError
from apportion.instances.microservices.allocation import Allocation
from apportion.instances.microservices.builtin import drawn_laws
from apportion.instances.microservices.class_merge import MergedClasses, Rest
from apportion.instances.microservices.expand import expand
from apportion.instances.microservices.laws import least_admissible
from apportion.instances.microservices.microservices import MOST_CONTAINERS
from apportion.instances.microservices.planned import class_moments
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.services import Services
from apportion.instances.streams import stream
from apportion.instances.tables import Value, check_values

ENTRY_SHARE, LEAF_SHARE = 0.13, 0.39
"""Microservices that users reach, and those that call nobody; 48 % lie between."""

CHILDREN = (0.22, 0.48, 0.18, 0.025)
"""Chance of 1, 2, 3, 4 calls; what is left is a long tail from 5 on."""

TAIL_MEAN, MOST_CHILDREN = 6.0, 30
"""Further calls of the long tail: geometric, some beyond twenty."""

LEAF_BY_DEPTH = (0.03, 0.03, 0.10, 0.16, 0.23, 0.29, 0.36)
"""Chance that a call makes none, by depth; published at both ends, a line between them."""

STORE_BY_DEPTH = (0.0, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8)
"""Chance that a call goes to a store, a cache or a queue, by depth: they call nobody."""

BETA = 0.5
"""Both parameters of the Beta distribution of a branch's probability: mostly near 0 or 1."""

LEAST_SHARE = 1e-5
"""Graphs below it are dropped: far below any violation budget, even many of them together."""

TRIES = 10
"""Calls drawn for each that is wanted: one may be refused, for it would call who waits for it."""

GENERATOR_KEYS: Mapping[str, Value] = {
    "microservices": Value("whole", "number of microservices, default 30", 3, 100_000),
    "services": Value("whole", "number of services, default 1", 1, 10_000),
    "classes": Value("whole", "call graphs of a service at most, default 8", 1, 10_000),
    "least_calls": Value("whole", "calls of a graph at least, default 5", 1, 10_000),
    "calls": Value("whole", "calls of a graph at most, default 40", 1, 10_000),
    "depth": Value("whole", "longest chain of calls, default 6", 1, 100),
    "optional_share": Value("number", "share of the calls that may be left out", 0, 1),
    "most_optional": Value("whole", "such calls of a graph at most, default 10", 0, 1000),
    "parallel_share": Value("number", "chance to run beside the call before", 0, 1),
    "repeat_share": Value("number", "share of the calls that are made several times", 0, 1),
    "most_repeats": Value("whole", "how often at most", 1, 1000),
    "popularity": Value("number", "exponent of Zipf's law over microservices", 0, 10),
    "rate_per_s": Value("number", "requests per second of each service", 0, above=True),
    "tightness": Value("number", "where the target lies between the least and the most", 0, 1),
    "most_cost": Value("number", "container costs are drawn from 1 to this", 1, 1e6),
}
"""Keys of a generated graph in a scenario, and the ranges the constructor checks."""


@dataclass(frozen=True)
class GraphGenerator:
    """Parameters of a generated application.

    Parameters
    ----------
    microservices, services
        How many there are. Microservices that no graph calls stay in the list.
    classes
        Call graphs of a service at most; the rare ones beyond are lumped into one that dominates
        them.
    least_calls, calls, depth
        Fewest and most calls of a graph, repeats apart, and the longest chain of calls. Where a
        draw ends early the front end makes further calls.
    optional_share, most_optional
        Share of the calls below the front end that are made with a probability only, drawn from
        Beta(0.5, 0.5), and how many at most: n of them make up to 2 to the n graphs, and those
        that no class stands for count as violated.
    parallel_share
        Chance of a call to run beside the one before it rather than after it.
    repeat_share, most_repeats
        Share of the calls that are made more than once, and how often at most, all numbers from 2
        on being equally likely.
    popularity
        Exponent of the Zipf law by which callees are drawn: the larger, the more is shared.
    rate_per_s
        Requests per second of each service.
    tightness
        The target of a service lies between its P95 at unlimited containers (0) and that at the
        fewest that carry the load (1), both estimated.
    most_cost
        Costs of containers are uniform between 1 and this.

    Raises
    ------
    InstanceError
        Naming the parameter and its value.
    """

    microservices: int = 30
    services: int = 1
    classes: int = 8
    least_calls: int = 5
    calls: int = 40
    depth: int = 6
    optional_share: float = 0.2
    most_optional: int = 10
    parallel_share: float = 0.3
    repeat_share: float = 0.1
    most_repeats: int = 5
    popularity: float = 1.0
    rate_per_s: float = 100.0
    tightness: float = 0.4
    most_cost: float = 1.0

    def __post_init__(self) -> None:
        check_values(GENERATOR_KEYS, vars(self), "graph")
        if self.services > self._entries:
            raise InstanceError(
                f"graph.services = {self.services}: {self.microservices} microservices have"
                f" {self._entries} entries"
            )

        if self.least_calls > self.calls:
            raise InstanceError(
                f"graph.least_calls = {self.least_calls}: is more than calls = {self.calls}"
            )

    @property
    def _entries(self) -> int:
        return max(1, round(ENTRY_SHARE * self.microservices))

    def names(self) -> list[str]:
        """Names of the microservices: entries, those between, stores."""
        entries, stores = self._entries, max(1, round(LEAF_SHARE * self.microservices))
        between = self.microservices - entries - stores
        kinds = (("front", entries), ("middle", between), ("store", stores))
        return [f"{kind}-{at + 1}" for kind, count in kinds for at in range(count)]

    def generate(self, seed: int) -> MicroserviceRound:
        """Draw an application; the same seed gives the same."""
        names = self.names()
        # a stream for each service: more services do not change the first ones
        streams = stream(seed, "call_graphs").spawn(self.services)
        trees = {
            f"service-{at + 1}": _Drawn(self, names, random, at).stages()
            for at, random in enumerate(streams)
        }
        rest: Rest = "largest" if self.classes > 1 else "unmodelled"
        merged = expand(trees, names, most_classes=self.classes, least_share=LEAST_SHARE, rest=rest)
        return self._round(
            names, list(trees), _whole(merged) if self.classes == 1 else merged, seed
        )

    def _round(
        self, names: list[str], services: list[str], merged: MergedClasses, seed: int
    ) -> MicroserviceRound:
        classes, lost = merged.classes, merged.unmodelled_share
        often = classes.trees.demand(len(names)) @ classes.share
        laws = drawn_laws(names, often, seed)
        if self.most_cost > 1:
            costs = stream(seed, "call_graphs").uniform(1.0, self.most_cost, len(names))
            laws = replace(laws, cost=costs)
        laws = replace(laws, least_containers=(often > 0).astype(np.int64))
        round_ = MicroserviceRound(
            laws, Services.of(services, self.rate_per_s, 1.0, unmodelled_share=lost), classes
        )
        return replace(round_, services=replace(round_.services, target_ms=self._targets(round_)))

    def _targets(self, round_: MicroserviceRound) -> Floats:
        services, classes = round_.services, round_.classes
        nobody = np.zeros(len(services), dtype=np.bool_)
        most = np.full(len(round_.microservices), MOST_CONTAINERS)
        ends: list[list[float]] = []
        for count in (most, np.maximum(least_admissible(round_), 1)):
            moments = class_moments(round_, Allocation.of(count, nobody))
            tails: list[float] = []
            for s in range(len(services)):
                own = np.flatnonzero(classes.service == s)
                beyond = float(services.violation_budget[s] - services.unmodelled_share[s])
                tails.append(moments.take(own).percentile(classes.share[own], beyond))
            ends.append(tails)
        low, high = np.array(ends)
        return low + self.tightness * (high - low)


def _whole(merged: MergedClasses) -> MergedClasses:
    """Let the one class that was kept of each service stand for all its requests."""
    share = np.ones(len(merged.classes))
    return MergedClasses(
        merged.classes.with_share(share), np.zeros(merged.unmodelled_share.size), merged.class_of
    )


class _Drawn:
    """One call tree as it is drawn."""

    def __init__(
        self, of: GraphGenerator, names: list[str], random: np.random.Generator, service: int
    ) -> None:
        self.of, self.random, self.service = of, random, service
        self.left, self.optional = of.calls, of.most_optional
        middle = [name for name in names if name.startswith("middle")]
        stores = [name for name in names if name.startswith("store")]
        self.pools = {False: self._pool(middle), True: self._pool(stores)}

    def _pool(self, names: list[str]) -> tuple[list[str], Floats]:
        weight = np.arange(1, len(names) + 1, dtype=np.float64) ** -self.of.popularity
        return names, weight / weight.sum() if names else weight

    def stages(self) -> list[Any]:
        """Draw the tree of a service: its front end, and what that calls."""
        name = f"front-{self.service + 1}"
        self.left -= 1
        below = self._below(1, (name,))
        for _ in range(TRIES * self.of.least_calls):
            if self.of.calls - self.left >= self.of.least_calls:
                break
            below += [[one] for one in [self._call(1, (name,))] if one is not None]
        return [[{"microservice": name, "stages": below}]]

    def _below(self, depth: int, path: tuple[str, ...]) -> list[Any]:
        last = min(depth - 1, len(LEAF_BY_DEPTH) - 1)
        if depth >= self.of.depth or (depth > 1 and self.random.random() < LEAF_BY_DEPTH[last]):
            return []
        calls = [self._call(depth, path) for _ in range(min(self._children(), self.left))]
        stages: list[Any] = []
        for one in calls:
            if one is None:
                continue
            beside = stages and self.random.random() < self.of.parallel_share
            stages[-1].append(one) if beside else stages.append([one])
        return stages

    def _children(self) -> int:
        chance = self.random.random()
        for count, part in enumerate(CHILDREN, start=1):
            if chance < part:
                return count
            chance -= part
        more = int(self.random.geometric(1.0 / TAIL_MEAN))
        return min(len(CHILDREN) + more, MOST_CHILDREN)

    def _call(self, depth: int, path: tuple[str, ...]) -> dict[str, Any] | None:
        if self.left <= 0:
            return None
        store = self.random.random() < STORE_BY_DEPTH[min(depth, len(STORE_BY_DEPTH) - 1)]
        names, weight = self.pools[store or not self.pools[False][0]]
        name = str(self.random.choice(names, p=weight))
        if name in path:  # nobody calls those who wait for it
            return None
        self.left -= 1
        out: dict[str, Any] = {"microservice": name}
        if self.random.random() < self.of.repeat_share and self.of.most_repeats > 1:
            out["calls"] = int(self.random.integers(2, self.of.most_repeats + 1))
        if self.random.random() < self.of.optional_share and self.optional > 0:
            self.optional -= 1
            out["p"] = float(self.random.beta(BETA, BETA))
        if name.startswith("middle"):
            out["stages"] = self._below(depth + 1, (*path, name))
        return out
