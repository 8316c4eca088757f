"""The rule of the Kubernetes HorizontalPodAutoscaler."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.microservices.baselines.recalled import (
    current,
    field,
    history,
    with_round,
)
from apportion.formulations.microservices.plain import (
    SLACK,
    PlainProgram,
    containers_at_load,
    decided,
    require_between,
)
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import loads


@dataclass(frozen=True)
class HPA:
    """Scale each microservice by the ratio of its utilisation to a target.

    ``desired = ceil(current * utilisation / target)``, nothing where the ratio is near 1. Scaling
    down waits: the highest recommendation of the last minutes counts. Utilisation is the load on
    a container by the heaviest load that its law allows.

    Parameters
    ----------
    target_utilisation
        Utilisation aimed at.
    tolerance
        Distance of the ratio from 1 up to which nothing is done.
    stabilisation_s
        How long a recommendation holds back scaling down.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "documentation of the Kubernetes HorizontalPodAutoscaler; see"
        " docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "hpa"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

    target_utilisation: float = 0.6
    tolerance: float = 0.1
    stabilisation_s: float = 300.0

    def __post_init__(self) -> None:
        require_between(
            "hpa", "target_utilisation", self.target_utilisation, 0.0, 1.0, closed=False
        )
        require_between("hpa", "tolerance", self.tolerance, 0.0, LARGEST)
        if not self.stabilisation_s >= 0:
            raise InstanceError(
                f"hpa.stabilisation_s = {self.stabilisation_s}: must not be negative"
            )

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Recommend counts, and hold them against what was recommended before."""
        now = self._current(round_, memory)
        desired = self._desired(round_, now)
        _, past = self._past(round_, memory)
        return PlainProgram(lambda: self._decide(round_, now, desired, past))

    def _current(self, round_: MicroserviceRound, memory: Any) -> Ints:
        return current(round_, memory, self.name, self.target_utilisation)

    def _past(self, round_: MicroserviceRound, memory: Any) -> tuple[Floats, Floats]:
        since = round_.now_s - self.stabilisation_s
        return history(memory, self.name, "recommended", round_.microservices.id, since)

    def _desired(self, round_: MicroserviceRound, now: Ints) -> Ints:
        """Recommended counts, shape (M,)."""
        kinds, seen = round_.microservices, round_.observed
        load = loads(round_, now)[:, 0] if seen is None else seen.load_per_s
        ratio = load / kinds.most_load_per_s / self.target_utilisation
        with np.errstate(invalid="ignore"):
            wanted = np.ceil(now * ratio * (1.0 - SLACK))
        wanted = np.where(np.abs(ratio - 1.0) <= self.tolerance * (1.0 + SLACK), now, wanted)
        # from nothing, or from no finite measurement, the rule has no answer
        first = containers_at_load(round_, self.target_utilisation * kinds.most_load_per_s)
        wanted = np.where((now == 0) | ~np.isfinite(wanted), first, wanted)
        wanted = np.maximum(wanted, round_.calls_per_s > 0)
        return np.clip(wanted, kinds.least_containers, kinds.most_containers).astype(np.int64)

    def _decide(
        self, round_: MicroserviceRound, now: Ints, desired: Ints, past: Floats
    ) -> Decision:
        start = time.perf_counter()
        # rising at once; falling not below what was recommended lately
        lately = np.maximum(past.max(axis=0, initial=0.0), desired)
        plan = np.maximum(desired, np.minimum(lately, now))
        carry = {"recommended": desired.astype(np.float64)}
        return decided(round_, plan, start=start, carry=carry)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the recommendations that still hold, and the plan."""
        time_s, past = self._past(round_, memory)
        row = cast(Floats, field(decision.carry, self.name, "recommended"))
        kept = with_round(time_s, past, round_, row, "recommended")
        return {**kept, "containers": decision.allocation.containers.astype(np.float64)}
