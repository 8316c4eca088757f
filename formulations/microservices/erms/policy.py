"""Erms: a latency target for every microservice, and priorities where services share one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from apportion.formulations.microservices.erms.orders import MOST_ENUMERATED, sharing
from apportion.formulations.microservices.erms.problem import Workload
from apportion.formulations.microservices.erms.program import ErmsProgram, Form, Order, Scheme
from apportion.instances import Budget, Decision, Reason
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws_linear import linear_from_laws

_CHOICES: dict[str, tuple[str, ...]] = {
    "scheme": ("fcfs", "partition", "priority"),
    "form": ("kkt", "exact"),
    "order": ("targets", "enumerate"),
}


@dataclass(frozen=True)
class Erms:
    """Latency targets by merged call graphs (Erms, ASPLOS 2023).

    Every microservice gets the part of a service's target that makes the sum of containers least
    if tail latencies of calls are two lines over the load and add up along a path. All graphs of
    a service have to meet its target, however rare they are: Erms knows one graph a service.

    Parameters
    ----------
    scheme
        Who waits for whom where services share a microservice. ``priority``: a service waits for
        those before it; ``fcfs``: everybody for everybody; ``partition``: each service has
        containers of its own.
    form
        ``kkt``: the published closed form, rounded up. ``exact``: whole counts by a MILP.
    order
        Order of the services under ``priority``. ``targets``: the smallest target at a shared
        microservice goes first, as published. ``enumerate``: the cheapest of all orders, for up
        to six services that share something; with more, the order of the targets.
    percentile
        Tail latency the lines stand for where the round has none and they are derived.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = "Erms (ASPLOS 2023), from its artifact; see docs/systems/erms.md"
    name: ClassVar[str] = "erms"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()

    scheme: Scheme = "priority"
    form: Form = "kkt"
    order: Order = "targets"
    percentile: float = 0.95

    def __post_init__(self) -> None:
        for field, known in _CHOICES.items():
            value = getattr(self, field)
            if value not in known:
                raise InstanceError(f"erms.{field} = {value!r}{nearest(str(value), known)}")
        if not 0.0 < self.percentile < 1.0:
            raise InstanceError(
                f"erms.percentile = {self.percentile}: must lie between 0 and 1: 0.95 for a P95"
            )

    @property
    def traits(self) -> frozenset[str]:
        """What a change of names, units or idle classes leaves as it is.

        A looser target never costs more in the exact form; under priorities only where all orders
        are tried, since it may change the order of the targets.
        """
        held = {"permutation", "idle_class", "unit_homogeneous"}
        settled = self.scheme != "priority" or self.order == "enumerate"
        return frozenset(held | ({"looser_target"} if self.form == "exact" and settled else set()))

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> ErmsProgram:
        """Take the lines of the round, or derive them from the laws."""
        linear = round_.linear
        if linear is None:
            linear = linear_from_laws(round_.microservices, self.percentile)
        work = Workload(round_, linear)
        many = self.order == "enumerate" and sharing(work).size > MOST_ENUMERATED
        return ErmsProgram(work, self.scheme, self.form, "targets" if many else self.order)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None
