"""Carry a scenario out under one policy, round by round.

In every round the policy is shown what a scheduler could know: the rates and shares it may
expect, the containers there are, and what was measured before. Its plan is checked, brought about
with the delays of containers that start and the caution of those that are let go, and met by the
requests that really come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.executor.microservices.beliefs import Beliefs
from apportion.executor.microservices.chains import chains
from apportion.executor.microservices.check import check
from apportion.executor.microservices.containers import Containers, mean_serving
from apportion.executor.microservices.journal import Journal
from apportion.executor.microservices.monte_carlo import Phase
from apportion.executor.microservices.recorder import Recorder
from apportion.executor.microservices.records import (
    ClassRecords,
    MicroserviceRecords,
    RoundRecords,
    Run,
    ServiceRecords,
)
from apportion.executor.microservices.seen import Seen
from apportion.executor.microservices.statistics import missed_sla
from apportion.executor.microservices.violation_bounds import violation_bounds
from apportion.executor.microservices.worlds import true_round, world_of
from apportion.executor.refusal import InvalidAllocation
from apportion.instances.columns import Floats, Ints, freeze
from apportion.instances.microservices import (
    Allocation,
    MicroserviceRound,
    Observed,
    Outcome,
    Scenario,
)
from apportion.instances.policy import Decider, Decision

Progress = Callable[[float, int, int], None]
"""Called after each round with the time reached, the rounds done and the rounds in all."""


def run(
    scenario: Scenario,
    decider: Decider,
    *,
    policy: str = "",
    journal: str | Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Carry a scenario out under one policy.

    Parameters
    ----------
    scenario
        The application, the requests that will come, how containers really answer, and how
        rounds are carried out.
    decider
        The policy bound to a solver. It decides at every round; events and decisions in between
        do not occur in this family.
    policy
        Name and parameters of the policy, for the records and the journal's header.
    journal
        Folder that is given one line for each finished round. If it holds the beginning of this
        very run, that beginning is replayed without asking for decisions, and the run goes on.
    progress
        Called after each round.

    Returns
    -------
    Run
        Records of rounds, services, microservices and classes.

    Raises
    ------
    InvalidAllocation
        If a decision breaks a rule of the checker; it is not carried out.
    InstanceError
        If the journal belongs to another scenario or policy.
    """
    log = None if journal is None else Journal.open(Path(journal), scenario, policy)
    simulation = _Simulation(scenario, decider, log)
    try:
        for at in range(scenario.rounds):
            end_s = simulation.round(at)
            if progress is not None:
                progress(end_s, at + 1, scenario.rounds)
    finally:
        if log is not None:
            log.close()
    return simulation.result(policy)


class _Simulation:
    """One run under way."""

    def __init__(self, scenario: Scenario, decider: Decider, journal: Journal | None) -> None:
        self.scenario, self.decider, self.journal = scenario, decider, journal
        self.forms = chains(scenario.start.classes.trees)
        self.world = world_of(scenario, self.forms)
        self.containers = Containers(scenario.start, scenario.options)
        self.beliefs = Beliefs(scenario.start, scenario.options)
        self.observed: Observed | None = scenario.start.observed
        self.memory: Any = None
        self.recorder = Recorder()
        self.decide_s: list[float] = []
        self.time_limited = False

    def round(self, at: int) -> float:
        """Show, decide, check, bring about, let the requests come, and remember."""
        truth = true_round(self.scenario, at)
        view = self._show(truth)
        decision = self._decide(view)
        plan: Allocation = decision.allocation
        before = self.containers.there()
        held = self.containers.ask(view.now_s, plan.containers)
        phases = self.containers.phases(view.now_s, view.now_s + view.duration_s)
        seen = self.world.carry_out(truth, phases, plan.rank, last=at + 1 == self.scenario.rounds)
        self._record_round(view, decision)
        self._record_services(
            view, truth, plan, seen, self.world.expected(truth, phases, plan.rank)
        )
        self._record_microservices(plan, held if before is None else before, held, phases, seen)
        self.recorder.add(
            ClassRecords, share=truth.classes.share, forecast=view.classes.share,
            requests=seen.class_requests, measured=seen.class_measured, kept=seen.class_kept,
        )  # fmt: skip
        self._learn(view, decision, seen, phases)
        if self.journal is not None:
            self.journal.append(view, decision, seen.violations, self.decide_s[-1])
        return view.now_s + view.duration_s

    def _show(self, truth: MicroserviceRound) -> MicroserviceRound:
        start = self.scenario.start
        return replace(
            start,
            services=replace(start.services, rate_per_s=self.beliefs.rates_per_s()),
            classes=start.classes.with_share(self.beliefs.shares(truth.classes.share)),
            containers=self.containers.there(), share_error=self.beliefs.radius(),
            observed=self.observed, now_s=truth.now_s, index=truth.index, reasons=("boundary",),
        )  # fmt: skip

    def _decide(self, view: MicroserviceRound) -> Decision:
        """Ask the policy or the journal, and check the plan."""
        told = self.journal.next(view) if self.journal is not None else None
        if told is not None:
            decision, spent = told
        else:
            began = time.perf_counter()
            decision = self.decider.decide(view, self.memory)
            spent = time.perf_counter() - began
        self.decide_s.append(spent)
        self.time_limited |= decision.time_limited
        if found := check(view, decision.allocation):
            raise InvalidAllocation(view.now_s, found)
        return decision

    def _learn(
        self, view: MicroserviceRound, decision: Decision, seen: Seen, phases: list[Phase]
    ) -> None:
        """Let the policy remember, and the next round know what was measured."""
        length_s, service = view.duration_s, view.classes.service
        of_class, size = seen.class_requests, len(view.services)
        came = (np.bincount(service, of_class, size) + seen.unmodelled_requests).astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            violated = np.where(seen.measured > 0, seen.violations / seen.measured, 0.0)
        tail = np.where(np.isnan(seen.latency_ms[:, -1]), 0.0, seen.latency_ms[:, -1])
        outcome = Outcome.of(
            view.now_s, view.now_s + length_s, class_requests=of_class.astype(np.float64),
            violations=violated * came, unmodelled_requests=seen.unmodelled_requests,
            latency_tail_ms=tail, serving=mean_serving(phases),
        )  # fmt: skip
        self.memory = self.decider.remember(self.memory, view, decision, outcome)
        self.beliefs.observe(of_class, came, length_s)
        budget = view.services.violation_budget
        self.observed = Observed(
            seen.load_per_s, seen.call_p50_ms, seen.call_p95_ms, came / length_s, tail,
            missed_sla(seen.violations, seen.measured, budget),
        )  # fmt: skip

    # ------------------------------------------------------------------ records

    def _record_round(self, view: MicroserviceRound, decision: Decision) -> None:
        self.recorder.add(
            RoundRecords, index=view.index, now_s=view.now_s, end_s=view.now_s + view.duration_s,
            status=decision.status, notes=len(decision.notes),
            objective=np.nan if decision.objective is None else decision.objective,
            gap=np.nan if decision.gap is None else decision.gap,
        )  # fmt: skip

    def _record_services(
        self,
        view: MicroserviceRound,
        truth: MicroserviceRound,
        plan: Allocation,
        seen: Seen,
        expected: tuple[Floats, Floats],
    ) -> None:
        planned = violation_bounds(view, plan.containers, plan.rank, forms=self.forms)
        service, size = view.classes.service, len(view.services)
        off = np.abs(view.classes.share - truth.classes.share)
        came = np.bincount(service, seen.class_requests, size) + seen.unmodelled_requests
        p50, p95, p99, tail = seen.latency_ms.T
        self.recorder.add(
            ServiceRecords, rate_per_s=truth.services.rate_per_s,
            forecast_per_s=view.services.rate_per_s, arrivals=came.astype(np.int64),
            unmodelled=seen.unmodelled_requests, measured=seen.measured,
            violations=seen.violations,
            missed=missed_sla(seen.violations, seen.measured, view.services.violation_budget),
            p50_ms=p50, p95_ms=p95, p99_ms=p99, tail_ms=tail, claimed=plan.guaranteed,
            planned_violation=planned.middle, expected_violation=(expected[0] + expected[1]) / 2,
            expected_width=expected[1] - expected[0],
            forecast_l1=np.bincount(service, off, size), share_error=view.share_error,
        )  # fmt: skip

    def _record_microservices(
        self, plan: Allocation, before: Ints, held: Ints, phases: list[Phase], seen: Seen
    ) -> None:
        self.recorder.add(
            MicroserviceRecords, asked=plan.containers, held=held, serving=mean_serving(phases),
            fewest_serving=np.min([count for _, count in phases], axis=0),
            started=np.maximum(held - before, 0), stopped=np.maximum(before - held, 0),
            load_per_s=seen.load_per_s,
        )  # fmt: skip

    def result(self, policy: str) -> Run:
        """Turn what was recorded into columns."""
        start, table = self.scenario.start, self.recorder.records
        decide_s: Floats = np.array(self.decide_s, dtype=np.float64)
        freeze(decide_s)
        return Run(
            self.scenario, policy, table(RoundRecords),
            table(ServiceRecords, len(start.services)),
            table(MicroserviceRecords, len(start.microservices)),
            table(ClassRecords, len(start.classes)), decide_s, self.time_limited,
        )  # fmt: skip
