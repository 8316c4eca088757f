"""Shockwave: a market over the rounds to come, replanned when jobs or GPUs change."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.peers.shockwave_memory import Ahead, recall, remembered
from apportion.formulations.training.peers.shockwave_window import (
    Plan,
    Window,
    fluid,
    fluid_model,
    whole,
)
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.formulations.training.time_shares import Sharers
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import LARGEST, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound
from apportion.solver import Budget as Deadline
from apportion.solver import Model, NoSolutionError, Solver, UncertifiedError
from apportion.solver.tolerances import PROOF

Form = Literal["auto", "fluid", "whole"]

WHOLE_COLUMNS = 120
"""Binaries up to which ``auto`` plans whole rounds; more take seconds, and rounds come often."""

PLANNED = 1e-6
"""Rounds below which a job is not planned on a type: tolerances of codes leave as much."""


@dataclass(frozen=True)
class Shockwave:
    """Welfare of progress over a window of rounds (Zheng et al., NSDI 2023).

    Most ``sum_j log(progress_j by the end of the window)`` less the makespan of what is left,
    subject to every job ending in time if it has an equal share after the window. Where that
    cannot be, jobs that will end late weigh ``rho ** power`` instead.

    Parameters
    ----------
    window_rounds
        Rounds planned at once.
    makespan_weight
        Loss for each window's length that the longest job must still run after this one.
    most_rho
        Finish-time fairness every job is promised where it can be; infinite: no promise.
    priority_power
        Exponent of the priority of late jobs.
    form
        ``whole``: binaries for every job, type and round. ``fluid``: parts of rounds, a
        relaxation. ``auto``: whole where that is small.
    planning_s
        Most seconds for a plan where the caller sets a time limit; without one no clock stops the
        search, so that runs repeat.
    """

    source: ClassVar[str] = (
        "Shockwave (NSDI 2023), as in its released code; see docs/systems/shockwave.md"
    )
    name: ClassVar[str] = "shockwave"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    window_rounds: int = 20
    makespan_weight: float = 10.0
    most_rho: float = 1.0
    priority_power: float = 5.0
    form: Form = "auto"
    planning_s: float = 15.0

    def __post_init__(self) -> None:
        if self.window_rounds < 1 or self.window_rounds != int(self.window_rounds):
            raise InstanceError(
                f"shockwave.window_rounds = {self.window_rounds}: must be a whole number from 1 on"
            )
        for field in ("makespan_weight", "priority_power"):
            value = getattr(self, field)
            if not 0.0 <= value <= LARGEST:
                raise InstanceError(
                    f"shockwave.{field} = {value}: must be a number from 0 to {LARGEST:g}"
                )
        for field in ("most_rho", "planning_s"):
            value = getattr(self, field)
            if not value > 0.0:
                raise InstanceError(f"shockwave.{field} = {value}: must be positive")
        if self.form not in ("auto", "fluid", "whole"):
            raise InstanceError(
                f"shockwave.form = {self.form!r}: must be one of auto, fluid, whole"
            )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> ShockwaveProgram:
        """Set the window up, or go on with the plan of an earlier one.

        Raises
        ------
        InstanceError
            On a memory that is not Shockwave's.
        """
        sharers = Sharers.of(round_)
        return ShockwaveProgram(self, sharers, recall(sharers, memory))

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Keep what is left of the plan."""
        return remembered(round_, decision, outcome)


@dataclass(frozen=True, eq=False)
class ShockwaveProgram:
    """A compiled round.

    Parameters
    ----------
    policy
        Parameters.
    sharers
        The jobs that share, and the free GPUs.
    ahead
        The plan in force, or None.
    """

    policy: Shockwave
    sharers: Sharers
    ahead: Ahead | None

    model_is_part: ClassVar[bool] = True
    """The model lacks the logarithms: its prices are not those of the welfare."""

    @cached_property
    def window(self) -> Window:
        """The window without rules of finish times."""
        return Window.of(self.sharers, self.policy.window_rounds, self.policy.makespan_weight)

    @property
    def model(self) -> Model | None:
        """The linear part of the fluid form, without rules of finish times."""
        return fluid_model(self.window) if self.sharers.rows.size else None

    def incumbent(self) -> Decision:
        """Go on with the plan in force, or serve those whose logarithms rise most per GPU."""
        start = time.perf_counter()
        if self.ahead is not None:
            return self._decision(self.ahead, Stage("remembered", answered=True), start)
        window = self.window
        if not self.sharers.rows.size:
            return self._decision(self._spread(window.step, 0.0), Stage("incumbent"), start)
        rise = window.slope(window.done)[:, None] * window.step / self.sharers.gang[:, None]
        top = float(rise.max())
        # only the order counts: one round for the best, less for the others
        counts = np.round(rise / top, 12) if top > 0.0 else rise
        ahead = self._spread(counts, 0.0)
        return self._decision(ahead, Stage("incumbent", answered=True), start, spread=False)

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Plan the window where that is due; then start this round's jobs."""
        start = time.perf_counter()
        if self.ahead is not None or not self.sharers.rows.size:
            return self.incumbent()
        left_s = budget.left_s()
        if np.isfinite(left_s):
            left_s = min(left_s, self.policy.planning_s)
        if left_s <= 0.0:
            return replace(self.incumbent(), time_limited=True)
        deadline = Deadline.of(None if np.isinf(left_s) else left_s)
        window, notes = self.window, tuple[str, ...]()
        try:
            plan, window, notes = self._planned(solver, deadline)
        except (NoSolutionError, UncertifiedError) as error:
            note = f"shockwave: {error}; those whose logarithms rise most come first"
            guess = self.incumbent()
            return replace(
                guess, status="NO_SOLUTION", notes=(note, *guess.notes),
                time_limited=deadline.expired(),
            )  # fmt: skip
        ahead = self._spread(plan.counts, float(self.policy.window_rounds), window)
        gap = None
        if plan.bound is not None:
            size = abs(plan.value + window.shift)
            gap = (plan.bound - plan.value) / max(size, PROOF)
        stage = Stage(
            "plan", time.perf_counter() - start, plan.value, plan.bound, gap, answered=True,
            note=f"{plan.steps} programs",
        )  # fmt: skip
        decision = self._decision(ahead, stage, start)
        return replace(
            decision, status="OPTIMAL" if plan.proved else "FEASIBLE", objective=plan.value,
            bound=plan.bound, gap=gap, notes=(*notes, *decision.notes),
            time_limited=not plan.proved and deadline.expired(),
        )  # fmt: skip

    def _planned(
        self, solver: Solver, budget: Deadline
    ) -> tuple[Plan, Window, tuple[str, ...]]:  # fmt: skip
        """Plan with the rules of finish times, or where they contradict, with priorities."""
        policy = self.policy
        strict = self.window if np.isinf(policy.most_rho) else self.window.with_finish_times(
            policy.most_rho
        )  # fmt: skip
        if strict.reachable:
            try:
                return self._solved(strict, solver, budget), strict, ()
            except NoSolutionError:
                if budget.expired() or np.isinf(policy.most_rho):
                    raise
        note = (
            f"finish-time fairness of {policy.most_rho:g} was given up: not all jobs can reach it;"
            " those that will be late come first"
        )
        weighed = self.window.with_priorities(policy.most_rho, policy.priority_power)
        return self._solved(weighed, solver, budget), weighed, (note,)

    def _solved(self, window: Window, solver: Solver, budget: Deadline) -> Plan:
        binaries = window.rounds * int((self.sharers.speed > 0.0).sum())
        small = self.policy.form == "auto" and binaries <= WHOLE_COLUMNS
        if self.policy.form == "whole" or small:
            return whole(window, solver, budget)
        return fluid(window, max(solver.gap, PROOF), budget)

    def _spread(self, counts: Floats, rounds: float, window: Window | None = None) -> Ahead:
        """Give a plan by rows of the round."""
        n, k = len(self.sharers.round_.jobs), self.sharers.capacity.size
        out, priority = np.zeros((n, k)), np.zeros(n)
        out[self.sharers.rows] = counts
        priority[self.sharers.rows] = (window or self.window).weight
        return Ahead(out, priority, rounds)

    def _decision(
        self, ahead: Ahead, stage: Stage, start: float, *, spread: bool = True
    ) -> Decision:
        sharers, round_ = self.sharers, self.sharers.round_
        kinds = self._leased(ahead)
        x = np.zeros((sharers.rows.size, sharers.capacity.size))
        if spread and ahead.rounds > 0.0:
            x = ahead.counts[sharers.rows] / ahead.rounds
            x = x / np.maximum(1.0, x.sum(axis=1, keepdims=True))
        if stage.elapsed_s == 0.0:
            stage = replace(stage, elapsed_s=time.perf_counter() - start)
        return Decision(
            joined(sharers.held, kinds, round_.jobs.gang),
            status="FEASIBLE" if sharers.rows.size else "OPTIMAL",
            shares=sharers.shares(x) if spread else None,
            carry={
                "counts": ahead.counts if spread else np.zeros_like(ahead.counts),
                "priority": ahead.priority, "capacity": sharers.capacity,
                "rounds": ahead.rounds,
            },
            per_job={"planned_rounds": ahead.counts.sum(axis=1) * (1.0 if spread else 0.0)},
            stages=(replace(stage, answered=True),),
            notes=notes_on_hopeless(round_),
        )  # fmt: skip

    def _leased(self, ahead: Ahead) -> Ints:
        """Start the jobs with most rounds to come, late ones first; then the longest that fit."""
        sharers, round_ = self.sharers, self.sharers.round_
        jobs, rows = round_.jobs, sharers.rows
        gang, free = jobs.gang, sharers.held.free
        out = np.full(len(jobs), NOWHERE, dtype=np.int64)
        if not rows.size:
            return out
        # the last digits are a code's, and must not decide between equals
        counts = np.round(ahead.counts[rows], 6)
        total, code = counts.sum(axis=1), jobs.code[rows]
        planned = total > PLANNED
        score = np.full((len(jobs), free.size), np.inf)
        score[rows] = np.where((counts > PLANNED) & (sharers.speed > 0.0), -counts, np.inf)
        longest_s = sharers.left / sharers.speed.max(axis=1)
        priority = np.round(ahead.priority[rows], 6)
        order = np.lexsort((code, -longest_s, -total, -priority))
        out = fill(rows[order[planned[order]]], score, gang, free)
        on = np.flatnonzero(out >= 0)
        used = np.bincount(out[on], weights=gang[on], minlength=free.size).astype(np.int64)
        fast = np.full((len(jobs), free.size), np.inf)
        fast[rows] = np.where(sharers.speed > 0.0, -sharers.speed, np.inf)
        rest = np.lexsort((code, -longest_s))
        rest = rest[out[rows[rest]] < 0]
        return np.maximum(out, fill(rows[rest], fast, gang, free - used))
