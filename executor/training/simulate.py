"""Carry a scenario out under one policy, from the first arrival to the last end.

Time moves from decision to decision. Between two of them only what the world does by itself
happens: jobs end, leases end, nodes fail and are repaired, jobs arrive. At one instant jobs end
first, then nodes are repaired and fail, then leases end, then jobs arrive, then the policy decides.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.executor.refusal import InvalidAllocation
from apportion.executor.tolerances import STUCK_INTERVALS
from apportion.executor.training.agenda import (
    boundary_after,
    boundary_before,
    boundary_from,
    on_boundary,
)
from apportion.executor.training.backfill import backfill
from apportion.executor.training.carry import carry_out, in_order, require_valid
from apportion.executor.training.check_promises import check_commitments
from apportion.executor.training.journal import Entry, Journal, Replay
from apportion.executor.training.promises import Promises
from apportion.executor.training.recorder import RoundLog
from apportion.executor.training.records import Run
from apportion.executor.training.world import World
from apportion.instances.columns import Floats, freeze
from apportion.instances.policy import REASONS, Decider, Decision, Reason, Violation
from apportion.instances.training import Allocation, Outcome, Scenario, TrainingRound

Progress = Callable[[float, int, int], None]
"""Called after each interval with the time reached, the jobs finished and the jobs in all."""


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
        The cluster, every job, what really happens, and how rounds are carried out. Work and
        GPU-seconds the jobs had before are kept; none of them holds GPUs at the start.
    decider
        The policy bound to a solver.
    policy
        Name and parameters of the policy, for the records and the journal's header.
    journal
        Folder that is given one line for each finished interval between two decisions. If it
        holds the beginning of this very run, that beginning is replayed without asking for
        decisions, and the run goes on.
    progress
        Called after each interval.

    Returns
    -------
    Run
        Records of jobs, leases and rounds.

    Raises
    ------
    InvalidAllocation
        If a decision breaks a rule of the checker; it is not carried out.
    InstanceError
        If the journal belongs to another scenario or policy.
    """
    log = None if journal is None else Journal.open(Path(journal), scenario, policy)
    simulation = _Simulation(scenario, decider, log, progress)
    try:
        simulation.advance_to_the_end()
    finally:
        if log is not None:
            log.close()
    return simulation.result(policy)


class _Simulation:
    """One run under way."""

    def __init__(
        self,
        scenario: Scenario,
        decider: Decider,
        journal: Journal | None,
        progress: Progress | None,
    ) -> None:
        self.scenario, self.decider, self.journal = scenario, decider, journal
        self.progress, self.options = progress, scenario.options
        self.world = World(scenario)
        self.promises = Promises()
        self.rounds = RoundLog(scenario.cluster.types.size)
        self.decide_s = array("d")
        self.memory: Any = None
        self.time_limited = False
        self.stopped = ""
        self.idle = 0
        self.replay: Replay | None = None
        self.recorded = Entry()
        self.watched = decider.subscribes | decider.reacts_to
        self.quiet = not self.options.backfill and not self.watched

    # ------------------------------------------------------------------ from interval to interval

    def advance_to_the_end(self) -> None:
        """Run from the first arrival to the last end."""
        first = self.world.agenda.next_arrival_s()
        now_s = self._boundary_from(first) if first < math.inf else 0.0
        # nodes may fail and be repaired before anybody has arrived
        while self.world.agenda.next_s() <= now_s:
            self._happen(self.world.agenda.next_s())
        reasons: set[Reason] = {"boundary"}
        while self.world.unfinished and not self.stopped and now_s < self.options.until_s:
            now_s, reasons = self._interval(now_s, reasons)
        if self.world.unfinished and not self.stopped:
            self.stopped = f"until_s = {self.options.until_s:g} was reached"
        for row in list(self.world.running):
            self.world.stop(row, now_s, "stopped")

    def _interval(self, now_s: float, reasons: set[Reason]) -> tuple[float, set[Reason]]:
        """Decide, carry out, and let the world run until the next decision."""
        world = self.world
        world.ledger.open(now_s)
        if world.admit(now_s):
            reasons.add("arrival")
        world.release(now_s)
        view = self._show(now_s, reasons)
        decision, missing = self._decide(view)
        counts = (len(view.jobs), len(world.running), missing)
        end_s, reasons = self._until_next(now_s, decision)
        world.state.observe(end_s)
        outcome = world.state.outcome(view, end_s, world.finished(view.jobs.code))
        self.memory = self.decider.remember(self.memory, view, decision, outcome)
        gpu_s = world.ledger.close(end_s)
        self.rounds.add(view.index, (now_s, end_s), view.reasons, counts, decision, gpu_s)
        if self.journal is not None:
            self.journal.append(self.recorded, (now_s, end_s), self.decide_s[-1])
        self._watch_for_standstill(view, outcome)
        if self.progress is not None:
            total = len(self.scenario.jobs)
            self.progress(end_s, total - world.unfinished, total)
        return end_s, reasons

    def _show(self, now_s: float, reasons: set[Reason]) -> TrainingRound:
        index = boundary_before(now_s, self.options.round_s)
        promised = self.promises.at(now_s, self.world)
        ordered = cast("tuple[Reason, ...]", tuple(r for r in REASONS if r in reasons))
        return self.world.state.show(now_s, ordered, promised, index)

    def _watch_for_standstill(self, view: TrainingRound, outcome: Outcome) -> None:
        """Stop a run in which nothing is left to happen and no work is done any more."""
        agenda = self.world.agenda
        waits = agenda.next_arrival_s() < math.inf or agenda.outages_left()
        if waits or outcome.finished.any() or (outcome.work > 0).any():
            self.idle = 0
            return
        self.idle += 1
        same_nodes = np.array_equal(view.node_up, self.world.state.up)
        hopeless = not view.startable.any() and not view.jobs.config_gpus.size
        if hopeless and same_nodes and not self.world.running:
            left = self.world.unfinished
            self.stopped = f"{left} jobs can never start: their gangs fit on no type they run on"
        elif self.idle >= STUCK_INTERVALS:
            self.stopped = f"no work was done in {self.idle} intervals and nothing is to come"

    # ------------------------------------------------------------------ decisions

    def _decide(self, view: TrainingRound) -> tuple[Decision, int]:
        """Ask the policy or the journal, check, carry out; return the number left unplaced."""
        self.replay = self.journal.next(view) if self.journal is not None else None
        began = time.perf_counter()
        if self.replay is not None:
            decision, spent = self.replay.decision, self.replay.decide_s
        else:
            decision = self.decider.decide(view, self.memory)
            spent = time.perf_counter() - began
        self.decide_s.append(spent)
        self.time_limited |= decision.time_limited
        allocation: Allocation = decision.allocation
        require_valid(view, allocation, decision.commitments)
        self._require_later(view, decision.next_decision_s)
        if (ordered := in_order(allocation)) is not allocation:
            decision = replace(decision, allocation=ordered)
        self.recorded = Entry(view.jobs.code, decision)
        if decision.commitments is not None:
            self.promises.replace(decision.commitments, view.jobs.code)
        missing = carry_out(self.world, view, decision.allocation)
        self.world.blame(view.now_s)
        return decision, len(missing)

    def _require_later(self, view: TrainingRound, next_s: float | None) -> None:
        if next_s is not None and not next_s > view.now_s:
            text = f"next_decision_s = {next_s:g} is not after now, {view.now_s:g}"
            raise InvalidAllocation(view.now_s, [Violation("next_decision", text)])

    def _react(self, events: set[Reason], now_s: float, plan: Any) -> Any:
        """Let the policy answer the events of an instant, one after the other."""
        for event in REASONS:
            if event not in events or event not in self.decider.reacts_to:
                continue
            view = self._show(now_s, {event})
            if self.replay is not None:
                action = self.replay.reaction(view)
            else:
                action, plan = self.decider.react(plan, event, view)
            if action is not None:
                require_valid(view, action)
                action = in_order(action)
                self.world.release(now_s)
                carry_out(self.world, view, action)
                self.world.blame(now_s)
            self.recorded.react(view.jobs.code, action)
        return plan

    # ------------------------------------------------------------------ between decisions

    def _until_next(self, now_s: float, decision: Decision) -> tuple[float, set[Reason]]:
        """Let the world run until the next decision is due; return when, and why."""
        world, asked, plan = self.world, decision.next_decision_s, decision.carry
        happened: set[Reason] = set()
        limit = self._planned(now_s, asked)
        while world.unfinished:
            instant = self._next_instant(now_s)
            if limit == math.inf:
                first = min(instant, world.agenda.next_arrival_s())
                if first == math.inf:
                    self.stopped = "nothing is left to happen and the policy waits for a change"
                    break
                limit = max(self._boundary_from(first), self._boundary_after(now_s))
            until = min(limit, self.options.until_s)
            if self.quiet and instant <= until:
                now_s = max(now_s, self._complete(until, happened))
                if not world.unfinished:
                    break
                instant = self._next_instant(now_s)
            if instant > until:
                limit = self._skip_empty(until, asked)
                if limit <= until:
                    return until, happened | self._marks(until, asked)
                continue
            events, leases = self._happen(instant)
            happened |= events
            now_s = instant
            if instant < until:
                if events & self.decider.subscribes:
                    break
                plan = self._between(events, leases, instant, plan)
        return now_s, happened | self._marks(now_s, asked)

    def _complete(self, until: float, happened: set[Reason]) -> float:
        """Carry out completions that nobody waits for, as long as nothing else comes first."""
        agenda, world, now_s = self.world.agenda, self.world, -math.inf
        while (end := agenda.next_completion(until)) is not None:
            now_s, row = end
            world.retire(row, now_s, "completed")
            happened.add("completion")
        return now_s

    def _planned(self, now_s: float, asked: float | None) -> float:
        if asked is None:
            return self._boundary_after(now_s)
        return on_boundary(asked, self.options.round_s)

    def _skip_empty(self, until: float, asked: float | None) -> float:
        """Where nobody is there to decide for, wait for the boundary after the next arrival."""
        slot = asked is not None and asked < math.inf
        if slot or self.world.state.active or until >= self.options.until_s:
            return until
        return self._boundary_from(self.world.agenda.next_arrival_s())

    def _marks(self, now_s: float, asked: float | None) -> set[Reason]:
        marks: set[Reason] = set()
        if self._boundary_from(now_s) == now_s:
            marks.add("boundary")
        if asked is not None and on_boundary(asked, self.options.round_s) == now_s:
            marks.add("slot")
        return marks

    def _boundary_from(self, instant: float) -> float:
        return boundary_from(instant, self.options.round_s) * self.options.round_s

    def _boundary_after(self, instant: float) -> float:
        return boundary_after(instant, self.options.round_s) * self.options.round_s

    def _next_instant(self, now_s: float) -> float:
        agenda = self.world.agenda
        instant = agenda.next_s()
        if "arrival" in self.watched:
            instant = min(instant, agenda.next_arrival_s())
        return max(instant, now_s)

    def _happen(self, now_s: float) -> tuple[set[Reason], list[int]]:
        """Carry out what falls on an instant; return the events, and whose leases ended."""
        world, events = self.world, set[Reason]()
        due = world.agenda.due(now_s)
        for row in due.completed:
            world.retire(row, now_s, "completed")
            events.add("completion")
        for node in due.repaired:
            world.repair(node, now_s)
            events.add("repair")
        for node in due.failed:
            world.fail(node, now_s)
            events.add("failure")
        leases = [row for row in due.lease_ended if row in world.running]
        if leases:
            events.add("lease_end")
        if "arrival" in self.watched and world.admit(now_s):
            events.add("arrival")
        if "failure" in events and self.promises.some:
            self._keep_what_can_be_kept(now_s)
        if events - {"completion"}:
            world.blame(now_s)
        return events, leases

    def _keep_what_can_be_kept(self, now_s: float) -> None:
        while self.promises.some:
            view = self._show(now_s, set())
            if not check_commitments(view, view.commitments):
                break
            self.promises.drop_last()

    def _between(self, events: set[Reason], leases: list[int], now_s: float, plan: Any) -> Any:
        """Let the policy react, end the leases nobody renewed, and backfill what was freed."""
        if events & self.decider.reacts_to:
            plan = self._react(events, now_s, plan)
        freed = self.world.expire(leases, now_s) or bool(events & {"completion", "failure"})
        if freed and self.options.backfill:
            self._backfill(now_s)
        return plan

    def _backfill(self, now_s: float) -> None:
        world = self.world
        world.release(now_s)
        free = [world.ledger.free(kind) for kind in range(self.scenario.cluster.types.size)]
        least = world.demand.least()
        if any(need <= room for need, room in zip(least, free, strict=True)):
            view = self._show(now_s, set())
            filled = backfill(view, free)
            if filled is not None:
                filled = in_order(filled)
                require_valid(view, filled)
                carry_out(world, view, filled)
        world.blame(now_s)

    # ------------------------------------------------------------------ the end

    def result(self, policy: str) -> Run:
        """Turn what was recorded into columns."""
        decide_s: Floats = np.array(self.decide_s, dtype=np.float64)
        freeze(decide_s)
        world = self.world
        return Run(
            self.scenario, policy, world.jobs.records(), world.leases.records(),
            self.rounds.records(), decide_s, self.time_limited, self.stopped,
        )  # fmt: skip
