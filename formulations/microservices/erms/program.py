"""A round compiled by Erms: targets, plans, and what the laws say of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from apportion.formulations.microservices.erms import kkt
from apportion.formulations.microservices.erms.exact import Found, cheapest
from apportion.formulations.microservices.erms.model import LevelModel
from apportion.formulations.microservices.erms.narrowing import narrowed
from apportion.formulations.microservices.erms.orders import (
    all_orders,
    by_targets,
    rank_of_classes,
    sharing,
)
from apportion.formulations.microservices.erms.problem import Problem, Workload
from apportion.formulations.microservices.erms.targets import Targets
from apportion.formulations.microservices.plain import SLACK, decided
from apportion.instances import Decision, Stage
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.solver import Budget, Model, Solver

Scheme = Literal["fcfs", "partition", "priority"]
Form = Literal["kkt", "exact"]
Order = Literal["targets", "enumerate"]


@dataclass(frozen=True, eq=False)
class ErmsProgram:
    """A compiled round.

    Parameters
    ----------
    work
        The round as Erms sees it.
    scheme, form, order
        As in the policy.
    """

    work: Workload
    scheme: Scheme
    form: Form
    order: Order

    @property
    def round_(self) -> MicroserviceRound:
        """The round."""
        return self.work.round_

    @cached_property
    def first(self) -> Targets:
        """Targets of each service as if it were alone."""
        return kkt.first_pass(self.work)

    @cached_property
    def plan(self) -> kkt.Plan:
        """The published plan: rounded targets."""
        if self.scheme == "fcfs":
            return kkt.in_order_of_arrival(self.work, self.first)
        if self.scheme == "partition":
            return kkt.apart(self.work, self.first)
        return kkt.best_order(self.work, self.first, enumerate_all=self.order == "enumerate")

    @cached_property
    def targets_ms(self) -> Floats:
        """Smallest target of a call of each microservice for each service, infinite: none, (M, S)."""
        out = np.full(self.work.calls_per_s.shape, np.inf)
        forest = self.work.forest
        place = (forest.microservice, forest.service)
        np.minimum.at(out, place, self.plan.targets.per_call_ms)
        return out

    @cached_property
    def model(self) -> Model | None:
        """Model of the exact form under the order of the targets, None where it has no end."""
        if self.form == "kkt":
            return None
        problem, guess = self._problem(by_targets(self.work, self.first))
        grown = problem.grown(np.clip(guess, problem.least, problem.most).astype(np.int64))
        best = np.inf if grown is None else float(problem.cost @ grown)
        near = narrowed(problem, self.round_, best)
        return None if near is None else LevelModel(near, self.round_).model

    def incumbent(self) -> Decision:
        """Decide as published."""
        return self._decision(self.plan.counts, self.plan.position, "kkt", time.perf_counter())

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide by targets, or by the exact form within the budget."""
        if self.form == "kkt":
            return self.incumbent()
        if budget.left_s() <= 0:
            return replace(self.incumbent(), time_limited=True)
        start = time.perf_counter()
        apart = self.scheme == "partition"
        found = cheapest(self._problems(), self.round_, solver, budget)
        if found.counts is None:
            plain = self.incumbent()
            notes = () if found.status != "INFEASIBLE" else (_NO_PLAN,)
            return replace(
                self._said(plain, found), status=found.status, notes=(*notes, *plain.notes),
                bound=None, gap=None,
            )  # fmt: skip
        total = self.work.apart().totals(found.counts) if apart else found.counts
        return self._said(self._decision(total, found.position, "levels", start), found)

    def _problem(self, position: Ints) -> tuple[Problem, Floats]:
        work = self.work
        if self.scheme == "partition":
            problem = work.apart()
            return problem, problem.counts_for(self.first.own_ms)
        met = work.of_all if self.scheme == "fcfs" else work.of_order(position)
        problem = work.together(met, work.request_target_ms)
        if self.scheme == "fcfs":
            return problem, kkt.in_order_of_arrival(work, self.first).counts
        return problem, kkt.with_priority(work, self.first, position).counts

    def _problems(self) -> Iterator[tuple[Ints | None, Problem, Floats]]:
        first = by_targets(self.work, self.first)
        if self.scheme != "priority":
            yield None, *self._problem(first)
            return
        yield first, *self._problem(first)
        if self.order == "enumerate" and sharing(self.work).size:
            for position in all_orders(self.work):
                if not np.array_equal(position, first):
                    yield position, *self._problem(position)

    def _decision(
        self, counts: Ints | Floats, position: Ints | None, stage: str, start: float
    ) -> Decision:
        rank = None if position is None else rank_of_classes(self.work, position)
        # the exact form has no targets, only latencies
        target = {"target_ms": self.targets_ms.min(axis=1, initial=np.inf)}
        return decided(
            self.round_, counts, start=start, rank=rank, stage=stage, notes=self._hopeless_notes,
            per_job=target if stage == "kkt" else None,
        )  # fmt: skip

    def _said(self, decision: Decision, found: Found) -> Decision:
        """Add what the solver proved."""
        hopeless = bool(self.work.hopeless.any() or self.work.overloaded.any())
        value, bound = decision.objective, None if hopeless else found.bound
        gap = None
        if bound is not None and value is not None:
            gap = max(0.0, value - bound) / max(abs(value), SLACK)
        ran = tuple(
            Stage(
                "model", answer.elapsed_s, backend=answer.backend, bound=answer.bound
                if answer.bounds else None, note=answer.message,
            )
            for answer in found.solutions[-1:]
        )  # fmt: skip
        notes = (*decision.notes, found.note) if found.note else decision.notes
        return replace(
            decision, status="INFEASIBLE" if hopeless else found.status, bound=bound, gap=gap,
            stages=(*ran, *decision.stages), notes=notes, time_limited=found.time_limited,
        )  # fmt: skip

    @cached_property
    def _hopeless_notes(self) -> tuple[str, ...]:
        services, work, kinds = self.round_.services, self.work, self.round_.microservices
        overloaded = tuple(
            f"microservice {str(kinds.id[row])!r}: {kinds.most_containers[row]} containers, all it may"
            " have, do not carry its load"
            for row in np.flatnonzero(work.overloaded).tolist()
        )
        return overloaded + tuple(
            f"service {str(services.id[row])!r}: its target of {services.target_ms[row]:g} ms is"
            f" below {work.reach_ms[row]:g} ms, the least that any plan reaches by the lines;"
            f" {work.target_ms[row]:g} ms are planned for"
            for row in np.flatnonzero(work.hopeless).tolist()
        )


_NO_PLAN = (
    "no plan within the bounds and the cluster meets all targets by the lines; the plan of the"
    " published form is given, as far as it fits"
)
