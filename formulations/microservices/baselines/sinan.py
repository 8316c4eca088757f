"""Inspired by Sinan: try small changes of what runs, and take the cheapest that is predicted safe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.microservices.baselines.recalled import current, last_plan
from apportion.formulations.microservices.baselines.sizing import cost_of
from apportion.formulations.microservices.plain import (
    SLACK,
    PlainProgram,
    decided,
    fits,
    require_between,
)
from apportion.formulations.microservices.tails import Tails
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import least_admissible

_START_UTILISATION = 0.6
"""Utilisation of the first plan where it is not known what runs."""

_MOST_MOVED = 200
"""Microservices that are changed one at a time; in larger applications those with most containers,
as each takes four predictions."""


@dataclass(frozen=True)
class Sinan:
    """Choose among small changes with the exact law as the predictor.

    Changes: none, one container or one step more or less at each microservice or at all.

    Parameters
    ----------
    step
        The larger change, as a share of the containers.
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by Sinan (ASPLOS 2021), with the laws in place of its learned predictors; see"
        " docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "sinan"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation"})

    step: float = 0.1

    def __post_init__(self) -> None:
        require_between(self.name, "step", self.step, 0.0, 1.0)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> PlainProgram:
        """Look at the containers that run, at least those that carry the load."""
        now = current(round_, memory, self.name, _START_UTILISATION)
        now = np.maximum(now, least_admissible(round_))
        return PlainProgram(lambda: self._decide(round_, now))

    def _decide(self, round_: MicroserviceRound, now: Ints) -> Decision:
        start = time.perf_counter()
        tails, services = Tails.of(round_), round_.services
        best, best_key = now, (2, np.inf, np.inf)
        for plan in self._changes(round_, now):
            violation = tails.violations(plan)
            excess = np.maximum(violation - services.violation_budget, 0.0)
            missing = float(excess[services.rate_per_s > 0].sum())
            key = (0 if fits(round_, plan) else 1, missing, cost_of(round_, plan))
            if key < best_key:
                best, best_key = plan, key
        return decided(round_, best, start=start)

    def _changes(self, round_: MicroserviceRound, now: Ints) -> list[Ints]:
        """Plans to choose from, within the bounds."""
        kinds = round_.microservices
        step = np.maximum(1, np.ceil(self.step * now * (1.0 - SLACK))).astype(np.int64)
        called = round_.calls_per_s > 0
        out = [now]
        for change in (np.ones_like(step), step):
            change = np.where(called, change, 0)
            out += [now + change, now - change]
            for row in np.argsort(-now * called, kind="stable")[:_MOST_MOVED].tolist():
                one = np.zeros_like(now)
                one[row] = change[row]
                out += [now + one, now - one] if called[row] else []
        least, most = kinds.least_containers, kinds.most_containers
        return [np.clip(plan, least, most) for plan in out]

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the plan."""
        return last_plan(round_, decision.allocation.containers)
