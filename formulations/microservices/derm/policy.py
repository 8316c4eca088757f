"""Derm: fewest containers for which every SLA holds in probability over the call graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from apportion.formulations.microservices.derm.program import DermProgram
from apportion.instances import Budget, Decision, Reason
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices import MicroserviceRound

PRIORITIES = ("budget", "uniform", "worst", "queue")
FORMS = ("search", "levels", "no-good", "chernoff", "greedy")


@dataclass(frozen=True)
class Derm:
    """Fewest containers under tail-latency SLAs over call graphs that vary (Derm, ISCA 2024).

    The latency of a call given the load of a container is a shifted exponential; a request follows
    one of several call graphs; the SLA is one probability over the mixture, so that a cheap and
    frequent graph may be served better than a dear and rare one.

    Parameters
    ----------
    priority
        ``budget``: the mixture keeps the SLA, as published. ``uniform``: every class keeps it.
        ``worst``: all requests of a service follow its dearest class. ``queue``: classes are
        served in an order, each meeting the load of those before it only (reconstructed).
    floor
        Least probability with which every class has to meet its target; 0: none.
    churn_cost
        Cost of each container started or stopped against those that run now.
    robust
        True: the SLA holds for all shares within the round's ``share_error``.
    form
        ``search``: branch and bound on tangents. ``levels``: a MILP over counts with tangents.
        ``no-good``: a MILP of counts that were too small. ``chernoff``: a safe MILP, then
        trimmed. ``greedy``: no proof.
    most_nodes
        Boxes or rounds at which a search stops: deterministic work.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = "Derm (ISCA 2024), abstract and artifact; see docs/systems/derm.md"
    name: ClassVar[str] = "derm"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation"})

    priority: str = "budget"
    floor: float = 0.0
    churn_cost: float = 0.0
    robust: bool = False
    form: str = "search"
    most_nodes: int = 20_000

    def __post_init__(self) -> None:
        for name, known in (("priority", PRIORITIES), ("form", FORMS)):
            value = getattr(self, name)
            if value not in known:
                raise InstanceError(f"derm.{name} = {value!r}{nearest(str(value), known)}")
        if not 0.0 <= self.floor < 1.0:
            raise InstanceError(f"derm.floor = {self.floor}: must be at least 0 and below 1")
        if not 0.0 <= self.churn_cost < math.inf:
            raise InstanceError(
                f"derm.churn_cost = {self.churn_cost}: must be finite, not negative"
            )
        if self.most_nodes < 1:
            raise InstanceError(f"derm.most_nodes = {self.most_nodes}: must be at least 1")

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> DermProgram:
        """Compile the call trees into transforms."""
        return DermProgram.of(round_, self)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing: shares and rates are forecast before the round is made."""
        return None
