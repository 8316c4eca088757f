"""Inspired by Autopilot: a margin over a decayed high percentile of the load."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.microservices.baselines.recalled import history, with_round
from apportion.formulations.microservices.plain import (
    SLACK,
    PlainProgram,
    decided,
    require_between,
)
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Floats
from apportion.instances.microservices import MicroserviceRound

_FORGOTTEN = 10.0
"""Half-lives after which a sample is dropped: its weight has fallen below a thousandth."""


@dataclass(frozen=True)
class Autopilot:
    """Containers for a margin over a high percentile of the calls seen lately.

    Parameters
    ----------
    margin
        Factor on the percentile.
    percentile
        Which percentile of the calls per second counts, samples weighted by age.
    half_life_s
        Age at which a sample weighs half.
    reference_utilisation
        Load on a container that is planned for, as a share of the heaviest its law allows.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by Autopilot (EuroSys 2020); see docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "autopilot"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

    margin: float = 1.15
    percentile: float = 0.95
    half_life_s: float = 600.0
    reference_utilisation: float = 0.6

    def __post_init__(self) -> None:
        name = self.name
        require_between(name, "margin", self.margin, 0.0, LARGEST, closed=False)
        require_between(name, "percentile", self.percentile, 0.0, 1.0, closed=False)
        require_between(name, "half_life_s", self.half_life_s, 0.0, LARGEST, closed=False)
        require_between(
            name, "reference_utilisation", self.reference_utilisation, 0.0, 1.0, closed=False
        )

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Take the percentile over the rounds remembered and this one."""
        kept = self._kept(round_, memory)
        return PlainProgram(lambda: self._decide(round_, kept["time_s"], kept["calls_per_s"]))

    def _kept(self, round_: MicroserviceRound, memory: Any) -> dict[str, Any]:
        since = round_.now_s - _FORGOTTEN * self.half_life_s
        ids = round_.microservices.id
        time_s, calls = history(memory, self.name, "calls_per_s", ids, since)
        return with_round(time_s, calls, round_, round_.calls_per_s, "calls_per_s")

    def _decide(self, round_: MicroserviceRound, time_s: Floats, calls: Floats) -> Decision:
        start = time.perf_counter()
        age = np.maximum(round_.now_s - time_s, 0.0)
        high = weighted_percentile(calls, 0.5 ** (age / self.half_life_s), self.percentile)
        load = self.reference_utilisation * round_.microservices.most_load_per_s
        counts = np.ceil(self.margin * high / load * (1.0 - SLACK))
        return decided(round_, np.maximum(counts, round_.calls_per_s > 0), start=start)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the calls per second of this round."""
        return self._kept(round_, memory)


def weighted_percentile(samples: Floats, weight: Floats, percentile: float) -> Floats:
    """Smallest sample that carries a share of the weight up to itself, by column.

    Parameters
    ----------
    samples
        Shape (H, M), H at least 1.
    weight
        Positive, shape (H,).
    percentile
        The share.
    """
    order = np.argsort(samples, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0)
    enough = reached >= percentile * weight.sum() * (1.0 - SLACK)
    row = enough.argmax(axis=0)
    ordered = np.take_along_axis(samples, order, axis=0)
    return cast(Floats, np.take_along_axis(ordered, row[None, :], axis=0)[0])
