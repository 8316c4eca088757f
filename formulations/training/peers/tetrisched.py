"""TetriSched: deadlines by consecutive leases, planned together or as early as each fits."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.baselines.deadlines import (
    ROUNDING,
    choices_of,
    due_times,
    keep_on,
    least_time,
    on_types,
    work_left,
)
from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.modelled import ModelledDecision
from apportion.formulations.training.peers.tetrisched_plan import (
    Fillers,
    LeaseModel,
    Runs,
    Starts,
    earned,
    fit_earliest,
    shifted,
)
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import Bools, Floats, Ints, names
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound
from apportion.solver import Budget as Deadline
from apportion.solver import Model, Solution, Solver, Status, gap_of

_MOST_LEASES = 10_000
"""Leases of a plan: beyond this its capacity rows alone outgrow a decision."""

_MOST_ENTRIES = 100_000_000
"""Entries of a model: beyond this it does not fit the memory of a small machine."""

_CHOICES = {"method": ("milp", "greedy"), "ends": ("lease", "work")}


@dataclass(frozen=True)
class TetriSched:
    """Plan jobs with deadlines over consecutive leases, and fill the one that begins.

    An SLO job starts once and then runs through; the starts earn most together, then best-effort
    jobs fill the lease that begins by 25 over the leases they still need. Runs that have started
    by plan go on to their end. Jobs that have missed are best effort. A lease is a round.

    Parameters
    ----------
    method
        ``milp``: the plan that earns most. ``greedy``: by deadline, each where it ends first.
    horizon
        Leases that are planned. Runs may reach beyond, where all GPUs are taken to be free.
    ends
        ``lease``: a run ends with a lease, so that it needs whole ones before the deadline.
        ``work``: it ends when its work is done.
    most_entries
        Size of model beyond which the greedy plan is the answer: entries of its capacity rows.
    """

    source: ClassVar[str] = "TetriSched and 3Sigma, as the Chronus group has them; see docs/systems"
    name: ClassVar[str] = "tetrisched"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    method: Literal["milp", "greedy"] = "milp"
    horizon: int = 288
    ends: Literal["lease", "work"] = "lease"
    most_entries: int = 300_000

    def __post_init__(self) -> None:
        for field, known in _CHOICES.items():
            value = getattr(self, field)
            if value not in known:
                rule = f"must be one of {', '.join(known)}"
                raise InstanceError(f"tetrisched.{field} = {value!r}: {rule}")
        for field, least, most in (
            ("horizon", 1, _MOST_LEASES), ("most_entries", 0, _MOST_ENTRIES),
        ):  # fmt: skip
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                rule = f"must be a whole number from {least} to {most}"
                raise InstanceError(f"tetrisched.{field} = {value!r}: {rule}")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> TetriSchedProgram:
        """Count everybody's leases.

        Raises
        ------
        InstanceError
            On a memory that is not one of TetriSched.
        """
        return TetriSchedProgram(self, _lay_out(self, round_, _recall(round_, memory)))

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> dict[str, Any] | None:
        """Keep whose runs have started by plan."""
        return decision.carry


@dataclass(frozen=True, eq=False)
class Layout:
    """A round in leases.

    Parameters
    ----------
    round_, held
        The round, and its pinned leases.
    stays
        Type of the jobs whose runs go on, ``NOWHERE`` for others, shape (n,).
    run_rows, fill_rows
        Rows of the jobs to start, in order of arrival, and of the best-effort jobs, by arrival.
    lease_model
        What is asked.
    due_s
        Next deadline that each job can meet, infinite without one, shape (n,).
    """

    round_: TrainingRound
    held: Pinned
    stays: Ints
    run_rows: Ints
    fill_rows: Ints
    lease_model: LeaseModel
    due_s: Floats


def _lay_out(policy: TetriSched, round_: TrainingRound, began: Bools) -> Layout:
    jobs, held = round_.jobs, pinned(round_)
    choices = choices_of(round_)
    due_s = due_times(round_, least_time(round_, choices))
    counts = np.isfinite(due_s)
    takes_s = _seconds(round_)
    order = np.lexsort((jobs.code, jobs.arrival_s, ~(began & counts)))
    stays = keep_on(round_, held, choices, order)
    stays[~(began & counts)] = NOWHERE
    asks = (stays < 0) & held.open & round_.startable
    by_arrival = np.lexsort((jobs.code, jobs.arrival_s))
    need = _whole(takes_s / round_.duration_s)
    runs, on_time = _runs(policy, round_, by_arrival[(asks & counts)[by_arrival]], takes_s, need)
    others = asks.copy()
    others[on_time] = False
    fillers = by_arrival[others[by_arrival]]
    free = np.repeat(held.free[:, None], max(1, _reach(policy, runs)), axis=1)
    for row in np.flatnonzero(stays >= 0).tolist():
        free[stays[row], : max(1, int(need[row, stays[row]]))] -= jobs.held_gpus[row]
    model = LeaseModel(
        runs,
        Fillers(jobs.gang[fillers], np.where(round_.eligible[fillers], need[fillers], 0)),
        free,
    )
    return Layout(round_, held, stays, on_time, fillers, model, due_s)


def _seconds(round_: TrainingRound) -> Floats:
    """Time the work left takes on each type, infinite where a gang cannot run, shape (n, k)."""
    rate = round_.jobs.throughput_per_s.reshape(round_.eligible.shape)
    out = np.full(rate.shape, np.inf)
    left = np.broadcast_to(work_left(round_)[:, None], rate.shape)
    return np.divide(left, rate, out=out, where=round_.eligible)


def _whole(leases: Floats) -> Ints:
    """Whole leases, one at least, 0 where the time is infinite."""
    finite = np.isfinite(leases)
    safe = np.where(finite, leases, 0.0)
    return np.where(finite, np.maximum(np.ceil(safe * (1.0 - ROUNDING)), 1.0), 0.0).astype(np.int64)


def _runs(
    policy: TetriSched, round_: TrainingRound, rows: Ints, takes_s: Floats, need: Ints
) -> tuple[Runs, Ints]:
    """Jobs that can start in time for a deadline, and their rows."""
    jobs = round_.jobs
    counts = np.diff(jobs.deadline_offsets)[rows]
    deadlines = int(counts.max(initial=0))
    entry = jobs.deadline_offsets[rows][:, None] + np.arange(deadlines)
    there = np.arange(deadlines) < counts[:, None]
    entry = np.where(there, entry, 0)
    ahead_s = np.where(there, jobs.deadline_s[entry] - round_.now_s, -np.inf)
    value = np.where(there, jobs.deadline_value[entry], 0.0)
    if policy.ends == "lease":
        last = (
            np.floor(ahead_s / round_.duration_s * (1.0 + ROUNDING))[:, None, :]
            - np.where(need[rows] > 0, need[rows], np.inf)[:, :, None]
        )
    else:
        slack_s = ahead_s[:, None, :] - takes_s[rows][:, :, None] * (1.0 - ROUNDING)
        last = np.floor(slack_s / round_.duration_s)
    usable = (last >= 0) & (value > 0)[:, None, :]
    last = np.where(usable, np.minimum(np.where(usable, last, 0.0), _MOST_LEASES), -1.0)
    # a deadline that earns nothing is passed over by the later ones, which earn nothing either
    last = np.maximum.accumulate(last.astype(np.int64), axis=2)
    on_time = (last >= 0).any(axis=(1, 2))
    best = value.max(axis=1, initial=0.0, keepdims=True)
    worth = np.divide(value, best, out=np.zeros_like(value), where=best > 0)
    own = rows[on_time]
    return Runs(jobs.gang[own], need[own], last[on_time], worth[on_time]), own


def _reach(policy: TetriSched, runs: Runs) -> int:
    """Leases of the plan: up to the last end, within the horizon."""
    ends = np.where(runs.last >= 0, runs.last + runs.need[:, :, None], 0)
    return int(min(policy.horizon, ends.max(initial=1)))


@dataclass(frozen=True, eq=False)
class TetriSchedProgram:
    """A compiled round: leases counted, model at hand.

    Parameters
    ----------
    policy
        Its parameters.
    layout
        The round in leases.
    """

    policy: TetriSched
    layout: Layout

    @cached_property
    def model(self) -> Model | None:
        """The integer program; None where there is nothing to choose, or it is too large."""
        asked = self.layout.lease_model
        nobody = not len(asked.runs) and not asked.fillers.gang.size
        if self.policy.method == "greedy" or nobody or asked.entries > self.policy.most_entries:
            return None
        return asked.model

    @cached_property
    def _greedy(self) -> tuple[Starts, Ints]:
        layout, asked = self.layout, self.layout.lease_model
        order = np.argsort(layout.due_s[layout.run_rows], kind="stable")
        starts, left = fit_earliest(asked.runs, asked.free, order)
        return starts, self._filled(left[:, 0], np.full(asked.fillers.gang.size, NOWHERE))

    def _filled(self, free: Ints, filled: Ints) -> Ints:
        """Let best-effort jobs fill what is free, the largest reward first."""
        fillers = self.layout.lease_model.fillers
        waits = np.flatnonzero(filled < 0)
        reward = fillers.reward.max(axis=1, initial=0.0)[waits]
        order = waits[np.argsort(-reward, kind="stable")]
        score = np.where(fillers.need > 0, fillers.need.astype(np.float64), np.inf)
        return np.maximum(filled, fill(order, score, fillers.gang, free))

    def incumbent(self) -> Decision:
        """Start each job where it ends first, by deadline."""
        return self._decision(*self._greedy, "greedy", time.perf_counter())

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide: the plan that earns most, or the greedy one where it is asked for."""
        start = time.perf_counter()
        if self.policy.method == "greedy":
            return replace(self.incumbent(), status="HEURISTIC")
        asked = self.layout.lease_model
        if not len(asked.runs) and not asked.fillers.gang.size:
            return replace(self.incumbent(), status="OPTIMAL", bound=0.0, gap=0.0)
        if budget.left_s() <= 0.0:
            return replace(self.incumbent(), time_limited=True)
        if self.model is None:
            note = f"tetrisched: {asked.entries} entries, the model is too large; greedy plan"
            return self._decision(*self._greedy, "greedy", start, note)
        left_s = budget.left_s()
        found = solver.solve(
            self.model, budget=Deadline.of(None if np.isinf(left_s) else left_s),
            warm_start=asked.point(*self._greedy),
        )  # fmt: skip
        return self._answer(found, start)

    def _answer(self, found: Solution, start: float) -> Decision:
        """Take the solver's plan, or the greedy one where that earns more or there is no other."""
        asked = self.layout.lease_model
        value = float(earned(asked.runs, self._greedy[0]).sum())
        if found.point is None:
            decision = self._decision(*self._greedy, "greedy", start, found.message)
            return replace(
                decision, status=Status.NO_SOLUTION.name, time_limited=found.time_limited
            )
        starts, filled = asked.read(found.point)
        if float(earned(asked.runs, starts).sum()) < value * (1.0 - ROUNDING):
            starts, filled = self._greedy
        decision = self._decision(starts, filled, "milp", start)
        bound = found.bounds[0] if found.bounds else None
        answer = {
            "status": found.status.name, "bound": bound, "gap": gap_of(decision.objective, bound),
            "time_limited": found.time_limited,
        }  # fmt: skip
        return replace(decision, **answer, stages=tuple(
            replace(stage, bound=bound, gap=answer["gap"], backend=found.backend)
            for stage in decision.stages
        ))  # fmt: skip

    def _decision(
        self, starts: Starts, filled: Ints, stage: str, began: float, note: str = ""
    ) -> Decision:
        layout, asked = self.layout, self.layout.lease_model
        round_, jobs = layout.round_, layout.round_.jobs
        if starts is not self._greedy[0]:
            starts = shifted(asked.runs, starts, asked.left(starts, filled))
            filled = self._filled(asked.left(starts, filled)[:, 0], filled)
        kinds = layout.stays.copy()
        now = starts.lease == 0
        kinds[layout.run_rows[now]] = starts.kind[now]
        kinds[layout.fill_rows] = np.maximum(kinds[layout.fill_rows], filled)
        by_plan = kinds >= 0
        by_plan[layout.fill_rows] = False
        kinds = np.maximum(kinds, self._unplanned(starts, kinds))
        start = np.full(len(jobs), NOWHERE, dtype=np.int64)
        start[layout.run_rows] = starts.lease
        start[layout.stays >= 0] = 0
        value = float(earned(asked.runs, starts).sum())
        own = Stage(stage, time.perf_counter() - began, value, answered=True, note=note)
        return ModelledDecision(
            joined(layout.held, kinds, np.where(layout.stays >= 0, jobs.held_gpus, jobs.gang)),
            status="FEASIBLE", objective=value, carry={"id": jobs.id[by_plan]},
            per_job={"due_s": layout.due_s, "start_lease": start}, stages=(own,),
            notes=notes_on_hopeless(round_),
        )  # fmt: skip

    def _unplanned(self, starts: Starts, kinds: Ints) -> Ints:
        """Let jobs that the plan leaves out have what is idle in the lease that begins."""
        layout, jobs = self.layout, self.layout.round_.jobs
        gpus = np.where(layout.stays >= 0, jobs.held_gpus, jobs.gang)
        free = layout.held.free - on_types(kinds, gpus, layout.held.free.size)
        rows = layout.run_rows[starts.lease < 0]
        order = rows[np.argsort(layout.due_s[rows], kind="stable")]
        score = np.full((len(jobs), free.size), np.inf)
        need = layout.lease_model.runs.need[starts.lease < 0]
        score[rows] = np.where(need > 0, need.astype(np.float64), np.inf)
        return fill(order, score, jobs.gang, free)


def _recall(round_: TrainingRound, memory: Any) -> Bools:
    """Jobs whose runs have started by plan, shape (n,)."""
    if memory is None:
        return np.zeros(len(round_.jobs), dtype=np.bool_)
    try:
        ids = names(memory["id"], "memory.id")
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of tetrisched: it lacks a column") from None
    return np.isin(round_.jobs.id, ids)
