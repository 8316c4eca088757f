"""A round whose policy shares time: fractions by the policy, leases by the rounds' mechanism."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.formulations.training.modelled import ModelledDecision
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.formulations.training.shared_proof import LARGEST_PROOF, Merged, spread_proof
from apportion.formulations.training.time_shares import (
    NEVER_SERVED,
    Received,
    Sharers,
    carried,
    leased,
    recall,
    within,
)
from apportion.instances import Budget, Decision, Stage
from apportion.instances.columns import Floats
from apportion.solver import (
    Block,
    Model,
    ModelError,
    NoSolutionError,
    Solution,
    Solver,
    Status,
    UncertifiedError,
    gap_of,
)
from apportion.solver import Budget as Deadline

FRACTIONS = "fractions"
"""The stage in which a policy computes its fractions."""

TIME = "x"
"""Name of the block of columns that hold fractions of time, by the axes ``job`` and ``type``."""


@dataclass(frozen=True, eq=False)
class Fractions:
    """What a policy answers: the part of the time each sharing job holds its gang on each type.

    Parameters
    ----------
    x
        Shape (m, k), rows as in ``Sharers.rows``; row sums at most 1, types within capacity.
    status
        ``"OPTIMAL"`` where the objective was proved, as in a decision.
    objective, bound, gap
        Of the policy's objective.
    stages
        Steps beside the one that the program writes down.
    notes
        What a reader should know.
    time_limited
        Whether the clock stopped a step.
    proof
        The solve of ``model_of``, merged over identical jobs, that the objective came from; None
        where it came from elsewhere.
    """

    x: Floats
    status: str = "OPTIMAL"
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    time_limited: bool = False
    proof: Merged | None = None


class TimeSharing(Protocol):
    """What a policy that shares time brings."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...

    @property
    def recompute_s(self) -> float:
        """Least time between two computations of the fractions."""
        ...

    @property
    def work_conserving(self) -> bool:
        """Whether jobs may run where they were meant to have nothing, rather than leave it idle."""
        ...

    def fractions(self, sharers: Sharers, solver: Solver, budget: Deadline) -> Fractions:
        """Share the free GPUs. Not asked where nobody shares.

        Raises
        ------
        NoSolutionError, UncertifiedError
            Where nothing that can be vouched for was found in time.
        """
        ...

    def value(self, sharers: Sharers, x: Floats) -> float | None:
        """Objective of fractions, None where it has none. Not asked where nobody shares."""
        ...

    def model_of(self, sharers: Sharers) -> Model | None:
        """The policy's model, or None where no single model says it.

        It has columns ``TIME`` by job (rows of ``Sharers.rows``) and type, see ``fractions_of``.
        """
        ...


@runtime_checkable
class Bounding(Protocol):
    """A policy that reads its own bound off a solution of its model, in units of its objective."""

    def bound_of(self, sharers: Sharers, solution: Solution) -> float | None:
        """Bound of the objective that a solution of ``model_of``, or of more rules, proves."""
        ...


def fractions_of(model: Model, solution: Solution, jobs: int, types: int) -> Floats:
    """Read fractions of time off a solution, shape (jobs, types).

    Parameters
    ----------
    model
        A model with a block of columns ``TIME`` whose axes ``job`` and ``type`` have codes: the
        rows of the result and the types.
    solution
        A solution of it with a point.
    jobs, types
        How many there are.

    Raises
    ------
    ModelError
        Where the model has no such block.
    """
    block = next((one for one in model.column_blocks if one.name == TIME), None)
    if block is None:
        raise ModelError(f"{model.name}: has no columns {TIME!r} by job and type")
    out = np.zeros((jobs, types))
    out[_codes(block, "job"), _codes(block, "type")] = solution.x[block.start : block.stop]
    return out


def priorities(x: Floats, received_s: Floats, elapsed_s: float) -> Floats:
    """Fractions of time meant over fractions received, those never served first, shape (n, k)."""
    out: Floats = np.asarray(x, dtype=np.float64) * NEVER_SERVED
    got = np.asarray(received_s, dtype=np.float64)
    return np.divide(x * elapsed_s, got, out=out, where=got > 0.0)


def _codes(block: Block, name: str) -> Any:
    codes = next((axis.codes for axis in block.axes if axis.name == name), None)
    if codes is None:
        raise ModelError(f"columns {block.name!r}: have no codes for {name!r}")
    return codes


@dataclass(frozen=True, eq=False)
class TimeShareProgram:
    """A compiled round.

    Parameters
    ----------
    policy
        Who shares.
    sharers
        Who takes part.
    received
        What they had so far.
    custom
        A model with a user's side rules, solved instead of asking the policy. They bind the
        fractions; leases follow these in the long run and not round by round.
    settings
        The policy's parameters as text; fractions of before that were decided under others go.
    """

    policy: TimeSharing
    sharers: Sharers
    received: Received
    custom: Model | None = None
    settings: str = ""

    @classmethod
    def of(
        cls, policy: TimeSharing, round_: Any, memory: Any, settings: str = ""
    ) -> TimeShareProgram:
        """Compile a round.

        Raises
        ------
        InstanceError
            On a memory that is not the policy's.
        """
        sharers = Sharers.of(round_)
        received = recall(sharers, memory, policy.name, settings)
        return cls(policy, sharers, received, settings=settings)

    @cached_property
    def model(self) -> Model | None:
        """The policy's model."""
        return self.policy.model_of(self.sharers) if self.sharers.rows.size else None

    def with_model(self, model: Model) -> TimeShareProgram:
        """Solve this model instead: the policy's own with a user's side rules."""
        return replace(self, custom=model)

    def value_of(self, solution: Solution) -> float | None:
        """Objective of the policy where that of its model is the one of a solution."""
        if not isinstance(self.policy, Bounding) or not solution.objectives:
            return None
        # what is read off a bound is read off a value in the same way
        at = replace(solution, bounds=solution.objectives)
        return self.policy.bound_of(self.sharers, at)

    def priority(self, decision: Decision) -> Floats:
        """Priority of each job on each type by which leases were given, shape (n, k).

        Parameters
        ----------
        decision
            A decision of this program.
        """
        carry = decision.carry
        elapsed_s = max(self.sharers.round_.now_s - carry["since_s"], 0.0) or 1.0
        return priorities(carry["x"], carry["received_s"], elapsed_s)

    def incumbent(self) -> Decision:
        """Go on with the fractions decided last; newcomers have an equal share."""
        start = time.perf_counter()
        return self._decision(self._guess(), start, "incumbent")

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide: fractions where they are due, else those decided last; then leases."""
        start = time.perf_counter()
        if not self.sharers.rows.size:
            return replace(self.incumbent(), status="OPTIMAL")
        if self.custom is None and self._still_good():
            return self._decision(self._guess(), start, "remembered")
        if budget.left_s() <= 0.0:
            return self._decision(replace(self._guess(), time_limited=True), start, "incumbent")
        left_s = budget.left_s()
        deadline = Deadline.of(None if np.isinf(left_s) else left_s)
        try:
            if self.custom is None:
                answer = self.policy.fractions(self.sharers, solver, deadline)
            else:
                answer = self._by_model(self.custom, solver, deadline)
        except (NoSolutionError, UncertifiedError) as error:
            note = f"{self.policy.name}: {error}; every job gets its last or an equal share"
            guess = replace(
                self._guess(), status=Status.NO_SOLUTION.name, bound=None, gap=None,
                notes=(note,), time_limited=budget.left_s() <= 0.0,
            )  # fmt: skip
            return self._decision(guess, start, "incumbent")
        return self._decision(answer, start, FRACTIONS)

    def _by_model(self, model: Model, solver: Solver, deadline: Deadline) -> Fractions:
        """Solve a model with side rules; the objective shown is the policy's own."""
        found = solver.solve(model, budget=deadline)
        if found.status is Status.INFEASIBLE:
            note = f"{self.policy.name}: no fractions keep the side rules; shares are equal or the last"
            return replace(self._guess(), status=found.status.name, notes=(note,))
        if found.point is None:
            raise NoSolutionError(found.message)
        sharers = self.sharers
        x = fractions_of(model, found, sharers.rows.size, sharers.capacity.size)
        x = within(x, sharers.gang, sharers.capacity)
        value = self.policy.value(sharers, x)
        policy = self.policy
        bound = policy.bound_of(sharers, found) if isinstance(policy, Bounding) else None
        status = found.status if bound is not None else Status.FEASIBLE
        return Fractions(
            x, status.name, value, bound, gap_of(value, bound), time_limited=found.time_limited
        )

    def _still_good(self) -> bool:
        since_s = self.received.since_s
        if since_s is None or self.received.due:
            return False
        young = self.sharers.round_.now_s - since_s < self.policy.recompute_s
        return self.received.unchanged or young

    def _guess(self) -> Fractions:
        """The last fractions where there are any, equal shares elsewhere, within all rules."""
        sharers = self.sharers
        x = self.received.x[sharers.rows]
        x = np.where(sharers.speed > 0.0, x, 0.0)
        x = np.where(np.isnan(x), sharers.isolated, x)
        x = within(x, sharers.gang, sharers.capacity)
        value = self.policy.value(sharers, x) if sharers.rows.size else None
        return Fractions(x, Status.FEASIBLE.name, value)

    def _decision(self, answer: Fractions, start: float, stage: str) -> Decision:
        sharers, round_ = self.sharers, self.sharers.round_
        x = np.zeros((len(round_.jobs), sharers.capacity.size))
        x[sharers.rows] = answer.x
        now_s = round_.now_s
        if stage == FRACTIONS or self.received.since_s is None:
            received = self.received.fresh(x, now_s)
        else:
            received = replace(self.received, x=x)
        guessed = stage == "incumbent" or (stage != FRACTIONS and self.received.due)
        received = replace(received, due=guessed)
        kinds = leased(sharers, received, now_s, work_conserving=self.policy.work_conserving)
        own = Stage(
            stage, time.perf_counter() - start, answer.objective, answer.bound, answer.gap,
            answered=not any(one.answered for one in answer.stages),
        )  # fmt: skip
        return ModelledDecision(
            joined(sharers.held, kinds, round_.jobs.gang),
            status=answer.status,
            objective=answer.objective,
            bound=answer.bound,
            gap=answer.gap,
            shares=sharers.shares(answer.x),
            carry=carried(sharers, received, self.policy.name, self.settings),
            stages=(*answer.stages, own),
            notes=(*answer.notes, *notes_on_hopeless(round_)),
            time_limited=answer.time_limited,
            solution=self._solution(answer),
        )

    def _solution(self, answer: Fractions) -> Solution | None:
        """The solution of the model that proves an answer, where there is one to keep."""
        if answer.proof is None or answer.x.size > LARGEST_PROOF or self.model is None:
            return None
        found = spread_proof(self.model, answer.proof, answer.x)
        return None if found is None else replace(found, status=Status[answer.status])
