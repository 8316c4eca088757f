"""A tick of Astraea: leases that go on, the selection, and the leases that begin."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from apportion.formulations.training.astraea.max_min import MaxMinTick
from apportion.formulations.training.astraea.selection import Selected, Standing, select
from apportion.formulations.training.greedy import NOWHERE
from apportion.formulations.training.pinned import Pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Decision, Stage
from apportion.instances.columns import Floats
from apportion.instances.training import Allocation, TrainingRound
from apportion.solver import Budget, Model, Solution, Solver, Status, gap_of

Method = Literal["two-phase", "milp"]


@dataclass(frozen=True, eq=False)
class AstraeaProgram:
    """A compiled round.

    Parameters
    ----------
    round_, held
        The round and its pinned leases.
    standing
        Where tenants and jobs stand.
    lease_end_s
        End of the lease of each job if it runs now, shape (n,).
    delay_s
        Time in a lease during which a job may be stopped for another one of its tenant.
    block
        Whether a job that does not fit ends its tenant's turn.
    method
        ``two-phase`` or ``milp``.
    notes
        What the caller should read.
    """

    round_: TrainingRound
    held: Pinned
    standing: Standing
    lease_end_s: Floats
    delay_s: float
    block: bool
    method: Method
    notes: tuple[str, ...] = ()

    @cached_property
    def tick(self) -> MaxMinTick:
        """The optimisation form of this tick."""
        return MaxMinTick(self.standing)

    @cached_property
    def model(self) -> Model | None:
        """The model of the optimisation form, None for the two phases and where none can start."""
        return self.tick.model if self.method == "milp" else None

    def incumbent(self) -> Decision:
        """Select in two phases."""
        began = time.perf_counter()
        chosen = select(self.standing, block=self.block)
        return self._decision(chosen, (Stage("two-phase", time.perf_counter() - began),))

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Select in two phases, or by the model; without a point the two phases answer."""
        first = self.incumbent()
        if self.method == "two-phase":
            return _answered(first)
        if budget.left_s() <= 0:
            return replace(_answered(first), time_limited=True)
        if self.model is None:
            return self._decision(Selected(dict(self.tick.starved)), (), status="OPTIMAL")
        began = time.perf_counter()
        found = solver.solve(self.model, budget=budget)
        stage = Stage("milp", time.perf_counter() - began, backend=found.backend)
        if found.point is None:
            failed = replace(_answered(first), time_limited=found.time_limited)
            note = f"the model gave no plan ({found.message}); the two phases answer"
            return replace(
                failed, status=Status.NO_SOLUTION.name, stages=(*failed.stages, stage),
                notes=(note, *failed.notes),
            )  # fmt: skip
        return self.decode(found, (*first.stages, stage))

    def decode(self, solution: Solution, stages: tuple[Stage, ...] = ()) -> Decision:
        """Turn a solution of the model into a decision; its objective is the least ratio.

        The solution is not handed on as a proof: what it proves last is the number of GPUs, not
        the least ratio that the answer speaks of.
        """
        row, kind = np.nonzero(self.tick.fits)
        took = np.round(solution.x[: row.size]) > 0
        kinds = dict(zip(row[took].tolist(), kind[took].tolist(), strict=True)) | self.tick.starved
        least = self.tick.ratios(kinds).min(initial=np.inf) if self.tick.tenants.size else None
        bound = solution.bounds[0] if solution.bounds and least is not None else None
        if bound is not None:
            base, unit = self.tick.scale
            bound = max(base + bound * unit, float(least or 0.0))
        plain = self._decision(Selected(kinds), stages)
        if plain.stages:
            plain = replace(plain, stages=(*stages[:-1], replace(stages[-1], answered=True)))
        return replace(
            plain, status=solution.status.name, objective=None if least is None else float(least),
            bound=bound, gap=gap_of(least, bound), time_limited=solution.time_limited,
        )  # fmt: skip

    def _decision(
        self, chosen: Selected, stages: tuple[Stage, ...], status: str = "HEURISTIC"
    ) -> Decision:
        jobs, kinds = self.round_.jobs, self.standing.kinds.copy()
        kinds[chosen.stopped] = NOWHERE
        if chosen.kinds:
            kinds[list(chosen.kinds)] = list(chosen.kinds.values())
        return Decision(
            self._with_leases(joined(self.held, kinds, jobs.gang), chosen),
            status=status,
            next_decision_s=self._next(chosen),
            per_job={"ltgf": self.standing.ltgf},
            stages=stages,
            notes=notes_on_hopeless(self.round_) + self.notes,
        )

    def _with_leases(self, plan: Allocation, chosen: Selected) -> Allocation:
        """Put the ends of leases in, and what stopped jobs lose."""
        own = np.ones(len(self.round_.jobs), dtype=np.bool_)
        own[self.held.job] = False
        ends = np.where(own[plan.job], self.lease_end_s[plan.job], plan.lease_end_s)
        if not chosen.stopped:
            return replace(plan, lease_end_s=ends)
        lost = np.array(sorted(chosen.stopped), dtype=np.int64)
        work = self.round_.jobs.work_in_lease[lost]
        return replace(plan, lease_end_s=ends, lost_job=lost, lost_work=work)

    def _next(self, chosen: Selected) -> float | None:
        """Infinite where nothing can be decided before something has happened.

        Time alone changes who is first in line. That matters while a waiting job fits the GPUs
        that are left, or could stop another one that has just begun.
        """
        standing, round_, jobs = self.standing, self.round_, self.round_.jobs
        waits = standing.pending.copy()
        waits[list(chosen.kinds)] = False
        if not waits.any():
            return np.inf
        left = standing.free.copy()
        for row, kind in chosen.kinds.items():
            left[kind] -= jobs.gang[row]
        for row in chosen.stopped:
            left[standing.kinds[row]] += jobs.held_gpus[row]
        if left.any():
            rows = np.flatnonzero(waits & (jobs.gang <= left.max()))
            if (round_.eligible[rows] & (jobs.gang[rows][:, None] <= left)).any():
                return None
        on_time = "boundary" in round_.reasons and round_.duration_s >= self.delay_s
        if not on_time and bool((waits & (jobs.first_start_s < 0)).any()):
            return None
        return np.inf


def _answered(decision: Decision) -> Decision:
    last = replace(decision.stages[-1], answered=True)
    return replace(decision, stages=(*decision.stages[:-1], last))
