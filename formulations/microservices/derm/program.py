"""A round compiled by Derm: the plan, what is proved of it, and what cannot be kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from apportion.formulations.microservices.derm.chernoff import by_chernoff
from apportion.formulations.microservices.derm.greedy import climb, kept_running, trim
from apportion.formulations.microservices.derm.orders import cheapest_order
from apportion.formulations.microservices.derm.outer_approximation import (
    by_levels,
    first_level_model,
)
from apportion.formulations.microservices.derm.placement import placed
from apportion.formulations.microservices.derm.requirements import (
    Requirements,
    bounds,
    requirements,
    sizes,
)
from apportion.formulations.microservices.derm.robust import MOST_ROWS, missed_rows
from apportion.formulations.microservices.derm.search import Found, cheapest, reachable
from apportion.formulations.microservices.derm.worst import worst_round
from apportion.formulations.microservices.plain import fitted, judged
from apportion.instances import Budget, Decision, Stage
from apportion.instances.columns import Ints
from apportion.instances.microservices import Allocation, MicroserviceRound
from apportion.solver import Model

if TYPE_CHECKING:
    from apportion.formulations.microservices.derm.policy import Derm

MOST_NAMED = 5
"""Names in a note: more would hide the other notes."""

NEAR_LEAST = 0.05
"""A service whose SLA no plan keeps is brought within this share of the least violation there is:
the last percents cost without end."""

HOPELESS_NODES = 500
"""Boxes searched where an SLA is given up: nothing is proved then, and rows near the least violation
make boxes without end."""


@dataclass(frozen=True, eq=False)
class DermProgram:
    """A round and what a plan of it must keep.

    ``planned`` is the round planned for: the round itself, but for ``worst``.
    """

    round_: MicroserviceRound
    policy: Derm
    planned: MicroserviceRound
    need: Requirements
    notes: tuple[str, ...]

    @classmethod
    def of(cls, round_: MicroserviceRound, policy: Derm) -> DermProgram:
        """Compile a round."""
        planned, notes = round_, ()
        if policy.priority == "worst":
            planned, notes = worst_round(round_, _NoLimit())
        need = requirements(
            planned, cast(Any, policy.priority), floor=policy.floor, churn_cost=policy.churn_cost
        )
        if planned is not round_:  # what the dearest class leaves out is called all the same
            least = bounds(round_)[0]
            need = replace(
                need, low=np.maximum(need.low, least), high=np.maximum(need.high, least),
                least=np.maximum(need.least, least),
            )  # fmt: skip
        return cls(round_, policy, planned, need, notes)

    @property
    def model(self) -> Model | None:
        """The first model of the forms that have one; the search needs none.

        That of ``levels`` is a relaxation: solving adds tangents until a plan keeps every row.
        """
        if self.policy.form != "levels" or self.policy.priority == "queue":
            return None
        return first_level_model(self.need, _NoLimit())

    # ------------------------------------------------------------------ decisions

    def incumbent(self) -> Decision:
        """Climb from the least admissible counts, without exchanges."""
        start = time.perf_counter()
        need, given_up = self._achievable()
        plan = climb(need, _NoLimit())
        if need.raised and not (plan.kept and need.within_capacity(plan.containers)):
            need = need.lean
            plan = climb(need, _NoLimit())
        kept = plan.kept and need.within_capacity(plan.containers)
        counts = plan.containers if kept else self._least_missed(need, _NoLimit())
        found = Found(counts if kept else None, None)
        stage = Stage("climb", time.perf_counter() - start, answered=True)
        return self._decision(counts, found, given_up, (stage,), self._status(found, given_up))

    def solve(self, solver: Any, budget: Budget) -> Decision:
        """Search the cheapest plan within the budget."""
        start = time.perf_counter()
        need, given_up = self._achievable()
        if given_up and self.policy.most_nodes > HOPELESS_NODES:
            short = replace(self.policy, most_nodes=HOPELESS_NODES)
            return replace(self, policy=short).solve(solver, budget)
        found, rank = self._searched(need, solver, budget)
        if found.containers is None and found.time_limited:
            return replace(self.incumbent(), time_limited=True)  # it is there in milliseconds
        fallback = found.containers
        status = self._status(found, given_up)
        if fallback is None:
            fallback, found, status = self._small_cluster(need, found, solver, budget)
            if given_up:  # what no count keeps is not kept in a cluster either
                status = self._status(found, given_up)
        stage = Stage(
            self.policy.form, time.perf_counter() - start, answered=True,
            note=f"{found.nodes} nodes" if found.nodes else "",
        )  # fmt: skip
        return self._decision(fallback, found, given_up, (stage,), status, rank)

    def _searched(
        self, need: Requirements, solver: Any, budget: Budget
    ) -> tuple[Found, Ints | None]:
        """Search a plan, and under ``queue`` an order of the classes."""
        if self.policy.priority == "queue":
            gap = float(getattr(solver, "gap", 0.0))
            found, rank = cheapest_order(need, budget, gap=gap, most_nodes=self.policy.most_nodes)
            if found.containers is not None and replace(need, rank=None).kept(found.containers):
                rank = None  # an order that a plan does not need only harms who goes last
            return found, rank
        if self.policy.form == "greedy":
            return self._greedy(need, budget), None
        return self._robust(need, solver, budget), None

    def _greedy(self, need: Requirements, budget: Budget) -> Found:
        plan = climb(need, budget)
        if not plan.kept:
            return Found(None, None, time_limited=plan.time_limited)
        better = trim(need, plan.containers, budget)
        return Found(better.containers, None, time_limited=better.time_limited)

    def _robust(self, need: Requirements, solver: Any, budget: Budget) -> Found:
        """Search, and add the worst shares that the plan misses, until it misses none."""
        for _ in range(MOST_ROWS):
            found = self._form(need, solver, budget)
            if not self.policy.robust or found.containers is None:
                return found
            more = missed_rows(need, found.containers)
            if more is None:
                return found
            need = more
        return Found(None, None)

    def _form(self, need: Requirements, solver: Any, budget: Budget) -> Found:
        match self.policy.form:
            case "levels":
                return _unproved(need, by_levels(need, solver, budget)[0])
            case "no-good":
                return _unproved(need, by_levels(need, solver, budget, tangents=False)[0])
            case "chernoff":
                return by_chernoff(need, solver, budget)[0]
            case _:
                gap = float(getattr(solver, "gap", 0.0))
                return cheapest(need, budget, gap=gap, most_nodes=self.policy.most_nodes)

    @property
    def exact(self) -> bool:
        """Whether all tails are known, and not only from above."""
        return bool(self.need.tails.exact.all())

    def _status(self, found: Found, given_up: tuple[int, ...]) -> str:
        if given_up or found.impossible:
            return "INFEASIBLE" if self.exact else "NO_SOLUTION"
        if found.containers is None:
            return "NO_SOLUTION"
        if found.bound is None:
            return "HEURISTIC"
        return "OPTIMAL" if found.proved and self.exact else "FEASIBLE"

    # ------------------------------------------------------------------ where not all can be kept

    def _achievable(self) -> tuple[Requirements, tuple[int, ...]]:
        """Loosen the rows that no count keeps to near the least violation there is."""
        need = self.need
        if not need.budget.size or reachable(need):
            return need, ()
        least = (1.0 - need.met(need.high)) @ need.weight.T
        hopeless = (least > need.budget) | (need.budget < 0.0)
        budget = np.where(hopeless, least + NEAR_LEAST * np.maximum(1.0 - least, 0.0), need.budget)
        given_up = tuple(np.unique(need.service[hopeless]).tolist())
        return replace(need, budget=np.minimum(budget, 1.0)), given_up

    def _small_cluster(
        self, need: Requirements, found: Found, solver: Any, budget: Budget
    ) -> tuple[Ints, Found, str]:
        """Where no plan fitted the cluster: search the smallest one, or show that there is none."""
        lean = need.lean
        free = replace(lean, capacity=np.full(2, np.inf))
        for of_one, limit in zip(sizes(self.round_), need.capacity, strict=True):
            if not np.isfinite(limit) or not (of_one > 0).all():
                continue
            small = cheapest(replace(free, cost=of_one), budget, most_nodes=self.policy.most_nodes)
            if small.containers is not None and need.within_capacity(small.containers):
                cheap = kept_running(need, trim(lean, small.containers, budget).containers)
                better = trim(replace(need, low=lean.low), cheap, budget).containers
                return better, Found(better, found.bound), "FEASIBLE"
            if small.bound is not None and small.bound > limit * (1.0 + 1e-9):
                return self._least_missed(lean, budget), found, "INFEASIBLE"
        return self._least_missed(lean, budget), found, "NO_SOLUTION"

    def _least_missed(self, need: Requirements, budget: Budget) -> Ints:
        """Climb as far as the cluster goes, from the bounds up."""
        start = need.low
        if not need.within_capacity(start):
            start = np.minimum(fitted(self.round_, start).containers, need.high)
            need = replace(need, low=start)
        return climb(need, budget, start).containers

    # ------------------------------------------------------------------ answers

    def _decision(
        self, counts: Ints, found: Found, given_up: tuple[int, ...], stages: tuple[Stage, ...],
        status: str, rank: Ints | None = None,
    ) -> Decision:  # fmt: skip
        kept, missed = judged(self.round_, counts, rank)
        ids = self.round_.services.id
        tails = self.need.tails
        blurred = self.round_.classes.service[tails.classes[~tails.exact]]
        near = f"; it is served to within {NEAR_LEAST:.0%} of the least violation"
        notes = tuple(
            f"service {str(ids[s])!r}: no number of containers "
            + ("is known to keep" if s in blurred else "keeps")
            + " its SLA"
            + (near if found.containers is not None else "")
            + (" by the bound" if s in blurred else "")
            for s in given_up
        )
        if not self.exact:
            notes = (*notes, self._from_above())
        value = self.need.value(counts)
        known = found.containers is not None and not given_up and self.exact
        bound = found.bound if known else None
        gap = None
        if bound is not None:
            gap = max(value - bound, 0.0) / max(abs(value), 1e-12) if value else 0.0
        where, unplaced = placed(self.round_, counts)
        return Decision(
            Allocation(counts, kept, rank, where),
            status=status,
            objective=value,
            bound=bound,
            gap=gap,
            stages=tuple(replace(one, objective=value, bound=bound, gap=gap) for one in stages),
            notes=(*self.notes, *notes, *missed, *unplaced),
            time_limited=found.time_limited,
        )

    def _from_above(self) -> str:
        tails = self.need.tails
        ids = self.round_.classes.id[tails.classes[~tails.exact]].tolist()
        some = ", ".join(map(repr, ids[:MOST_NAMED])) + (
            " and more" if len(ids) > MOST_NAMED else ""
        )
        return (
            f"classes {some}: forks whose latency is only known from above; the plan is safe, and"
            " nothing is proved of cheaper ones"
        )


def _unproved(need: Requirements, found: Found) -> Found:
    """Claim nothing of models that knew the cluster, but not the plans that stop what runs."""
    return replace(found, bound=None, proved=False) if need.raised else found


class _NoLimit:
    """A budget without end, for work that is always short."""

    def left_s(self) -> float:
        """Infinitely long."""
        return np.inf
