"""A static plan for the worst call graph at the highest rate seen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.microservices.baselines.recalled import column
from apportion.formulations.microservices.baselines.sizing import Sizing
from apportion.formulations.microservices.plain import PlainProgram, decided, require_between
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Floats, Ints
from apportion.instances.microservices import MicroserviceRound


@dataclass(frozen=True)
class StaticWorst:
    """Containers for the case that all requests of a service follow its most demanding graph.

    Where no graph contains the others, every microservice is given what the graph that calls it
    most needs, and every class keeps the SLA of its service by itself. The plan is made once, for the highest rates seen so far. It changes only where a higher rate
    is seen, or the application itself changes.

    Parameters
    ----------
    headroom
        Factor on the rates that are planned for.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = "textbook; see docs/systems/microservice-baselines.md"
    name: ClassVar[str] = "static-worst"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"idle_class", "unit_homogeneous"})

    headroom: float = 1.0

    def __post_init__(self) -> None:
        require_between(self.name, "headroom", self.headroom, 1.0, LARGEST)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Compare the rates with the highest seen."""
        peak = self._peak(round_, memory)
        last = column(memory, self.name, "id", "containers", round_.microservices.id, -1.0)
        return PlainProgram(lambda: self._decide(round_, memory, peak, last))

    def _peak(self, round_: MicroserviceRound, memory: Any) -> Floats:
        services = round_.services
        seen = column(memory, self.name, "service", "peak_per_s", services.id, 0.0)
        return np.maximum(seen, services.rate_per_s)

    def _decide(
        self, round_: MicroserviceRound, memory: Any, peak: Floats, last: Floats
    ) -> Decision:
        start = time.perf_counter()
        services = round_.services
        before = column(memory, self.name, "service", "peak_per_s", services.id, 0.0)
        stage, plan = "kept", last
        if bool((peak > before).any()) or bool((last < 0).any()):
            stage = "planned"
            plan = np.maximum(worst_plan(round_, self.headroom * peak), last)
        return decided(
            round_, np.maximum(plan, 0.0), start=start, stage=stage, carry={"plan": plan}
        )

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the plan as it was asked for, and the highest rates."""
        return {
            "id": round_.microservices.id,
            "containers": decision.carry["plan"],
            "service": round_.services.id,
            "peak_per_s": self._peak(round_, memory),
        }


def worst_plan(round_: MicroserviceRound, rate_per_s: Floats) -> Ints:
    """Plan for the most calls that requests can make, every class in time, shape (M,)."""
    sizing = Sizing.of_worst(round_, rate_per_s)
    return sizing.trimmed(sizing.even())
