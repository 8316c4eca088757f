"""Inspired by Sinan: try small changes of what runs, and take the cheapest that is predicted safe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.microservices.baselines.recalled import current, last_plan
from apportion.formulations.microservices.plain import (
    SLACK,
    PlainProgram,
    decided,
    require_between,
    room,
)
from apportion.formulations.microservices.tails import Tails
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import least_admissible

_START_UTILISATION = 0.6
"""Utilisation of the first plan where it is not known what runs."""


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
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

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
        tails = Tails.of(round_)
        bounds = round_.microservices.least_containers, round_.microservices.most_containers
        step = np.maximum(1, np.ceil(self.step * now * (1.0 - SLACK))).astype(np.int64)
        one = np.ones_like(now)
        best, best_key = now, (np.inf,) * 3
        for change in (np.zeros_like(now), one, -one, step, -step):
            moved = np.clip(now + np.where(round_.calls_per_s > 0, change, 0), *bounds)
            plans = [(moved, tails.met(tails.rates(moved)))]
            if (moved != now).any():
                row, met = _best_single(round_, tails, now, moved)
                alone = now.copy()
                alone[row] = moved[row]
                plans.append((alone, met))
            for plan, met in plans:
                key = tuple(float(part[0]) for part in _keys(round_, tails, plan[None], met[None]))
                if key < best_key:
                    best, best_key = plan, key
        return decided(round_, best, start=start)

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> dict[str, Any]:
        """Keep the plan."""
        return last_plan(round_, decision.allocation.containers)


def _best_single(
    round_: MicroserviceRound, tails: Tails, now: Ints, moved: Ints
) -> tuple[int, Floats]:
    """Microservice whose change alone is best, and how often each class is then in time."""
    met = tails.neighbours(tails.rates(now), tails.rates(moved))
    plans = np.repeat(now[None, :], now.size, axis=0)
    np.fill_diagonal(plans, moved)
    keys = _keys(round_, tails, plans, met)
    differs = np.flatnonzero(moved != now)
    order = np.lexsort(tuple(key[differs] for key in reversed(keys)))
    row = int(differs[order[0]])
    return row, met[row]


def _keys(
    round_: MicroserviceRound, tails: Tails, plans: Ints, met: Floats
) -> tuple[Floats, Floats, Floats]:
    """Compare plans: does it not fit, by how much are SLAs missed, what does it cost; by plan.

    Parameters
    ----------
    round_, tails
        The round.
    plans
        Counts, shape (n, M).
    met
        Probability that each active class is in time, shape (n, A).
    """
    kinds, services, classes = round_.microservices, round_.services, round_.classes
    cpu, memory = room(round_)
    over = (plans @ kinds.cpu_cores > cpu * (1.0 + SLACK)) | (
        plans @ kinds.memory_mib > memory * (1.0 + SLACK)
    )
    of_service = classes.service[tails.classes][:, None] == np.arange(len(services))
    late = (1.0 - met) @ (classes.share[tails.classes][:, None] * of_service)
    excess = np.maximum(late + services.unmodelled_share - services.violation_budget, 0.0)
    missed = excess[:, services.rate_per_s > 0].sum(axis=1)
    return over.astype(np.float64), missed, plans @ kinds.cost
