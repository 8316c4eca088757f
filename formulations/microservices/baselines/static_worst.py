"""A static plan for the worst call graph at the highest rate seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.microservices.baselines.recalled import column
from apportion.formulations.microservices.baselines.sizing import cost_of, even_plan, trimmed
from apportion.formulations.microservices.plain import PlainProgram, decided, require_between
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound


@dataclass(frozen=True)
class StaticWorst:
    """Containers for the case that all requests of a service follow its most demanding graph.

    The plan is made once, for the highest rates seen so far. It changes only where a higher rate
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
    traits: ClassVar[frozenset[str]] = frozenset()

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
    """Plan for the worst class of each service, shape (M,).

    Of several classes the one counts whose own plan costs most, all requests following it.
    """
    classes = round_.classes
    share = np.zeros(len(classes))
    for service in np.flatnonzero(rate_per_s > 0).tolist():
        rows = np.flatnonzero((classes.service == service) & (classes.share > 0))
        if not rows.size:
            continue
        costs = [0.0]
        if rows.size > 1:
            alone = [_all_follow(round_, rate_per_s, row) for row in rows.tolist()]
            costs = [cost_of(one, even_plan(one)) for one in alone]
        share[rows[int(np.argmax(costs))]] = 1.0
    worst = _with(round_, np.where(_used(round_, share), rate_per_s, 0.0), share)
    return trimmed(worst, even_plan(worst))


def _all_follow(round_: MicroserviceRound, rate_per_s: Floats, row: int) -> MicroserviceRound:
    """The round in which all requests follow one class, and nobody calls other services."""
    share = np.zeros(len(round_.classes))
    share[row] = 1.0
    rate = np.zeros(len(round_.services))
    rate[round_.classes.service[row]] = rate_per_s[round_.classes.service[row]]
    return _with(round_, rate, share)


def _used(round_: MicroserviceRound, share: Floats) -> Bools:
    count = len(round_.services)
    return np.bincount(round_.classes.service, weights=share, minlength=count) > 0


def _with(round_: MicroserviceRound, rate_per_s: Floats, share: Floats) -> MicroserviceRound:
    """The round with other rates and shares; requests that follow no class are left out."""
    unmodelled = np.where(_used(round_, share), 0.0, 1.0)
    services = replace(round_.services, rate_per_s=rate_per_s, unmodelled_share=unmodelled)
    return replace(round_, services=services, classes=round_.classes.with_share(share))
