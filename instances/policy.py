"""The contract between rounds, policies, programs and whoever carries decisions out.

Types of a family (its round, allocation and outcome) stay open here: a policy of the training
family takes a ``TrainingRound`` and answers with an ``Allocation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from apportion.instances.columns import Bools, Floats, Ints, Names

Reason = Literal["boundary", "slot", "arrival", "completion", "lease_end", "failure", "repair"]
"""Why a decision is asked for, or which event an executor reports."""

REASONS: tuple[Reason, ...] = get_args(Reason)

EVENTS: frozenset[Reason] = frozenset(REASONS) - {"boundary", "slot"}
"""The reasons that are events of the world."""

Column = Floats | Ints | Bools | Names


class Budget(Protocol):
    """Time left for an answer."""

    def left_s(self) -> float:
        """Seconds left, 0 when there is none, infinity when there is no limit."""
        ...


@dataclass(frozen=True)
class Stage:
    """One step of the way to an answer.

    Parameters
    ----------
    name
        ``"incumbent"``, ``"lp"``, ``"repair"``, ``"milp"``, ...
    elapsed_s
        Seconds spent in it.
    objective, bound, gap
        Value of its plan, what it proved, and the relative gap; None where there is none.
    answered
        True for the stage whose plan is the answer.
    backend
        Solver that ran, if one did.
    note
        What a reader should know: a limit that struck, a back end that was skipped.
    """

    name: str
    elapsed_s: float = 0.0
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    answered: bool = False
    backend: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """A policy's answer to a round.

    Parameters
    ----------
    allocation
        Who runs; must pass the family's checker.
    status
        What the policy's model says of it: ``"OPTIMAL"`` (proved within the stated gap),
        ``"FEASIBLE"``, ``"INFEASIBLE"`` (a rule was given up; the allocation is the fallback),
        ``"NO_SOLUTION"``, or ``"HEURISTIC"`` for policies without a model.
    objective, bound, gap
        Value of the policy's objective, proved bound and relative gap; None where nothing was
        proved.
    shares
        What each user is meant to have of each type, for fairness audits; the family's own type.
    carry
        Plain data for ``remember`` and ``react``.
    next_decision_s
        When the next decision should fall. None: at the next boundary. Infinite: at the first
        boundary at which something has changed.
    commitments
        Reservations from now on; None leaves those in force.
    per_job
        Columns worth showing beside each job of the round, by name.
    stages
        Which stage ran, how long, and which one answered.
    notes
        What the caller should read: a rule given up, a job that can never fit.
    time_limited
        True: the clock stopped a stage, so that a second run may decide otherwise.
    """

    allocation: Any
    status: str = "HEURISTIC"
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    shares: Any = None
    carry: Any = None
    next_decision_s: float | None = None
    commitments: Any = None
    per_job: Mapping[str, Column] = field(default_factory=dict[str, Column])
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    time_limited: bool = False


class Program(Protocol):
    """A round compiled by a policy."""

    @property
    def model(self) -> Any:
        """The optimisation model, or None for plain heuristics."""
        ...

    def incumbent(self) -> Decision:
        """Decide greedily, in milliseconds; the checker always passes it."""
        ...

    def solve(self, solver: Any, budget: Budget) -> Decision:
        """Decide within the budget, by one model or by a driver."""
        ...


class Policy(Protocol):
    """A frozen dataclass of parameters that compiles rounds into programs."""

    @property
    def name(self) -> str:
        """The name it is registered under."""
        ...

    @property
    def subscribes(self) -> frozenset[Reason]:
        """Events at which it wants to decide at once, before the next boundary."""
        ...

    @property
    def traits(self) -> frozenset[str]:
        """Metamorphic properties it declares; see ``apportion.testing``."""
        ...

    def compile(self, round_: Any, memory: Any, budget: Budget) -> Program:
        """Turn a round into a program. Pure: same round and memory, same program."""
        ...

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> Any:
        """Return the memory for the next round. Memory is plain data owned by the caller."""
        ...


@runtime_checkable
class Reactive(Protocol):
    """A policy that acts between its decisions."""

    @property
    def reacts_to(self) -> frozenset[Reason]:
        """The events it reacts to."""
        ...

    def react(self, plan: Any, event: Reason, view: Any) -> tuple[Any | None, Any]:
        """Answer an event with a whole new allocation or None, and the plan to carry on.

        Parameters
        ----------
        plan
            ``carry`` of the last decision, or what the last reaction returned.
        event
            What happened.
        view
            The round at this moment.
        """
        ...


class Decider(Protocol):
    """What an executor asks: a policy bound to a solver, made by the face."""

    @property
    def subscribes(self) -> frozenset[Reason]:
        """Events that need a decision at once."""
        ...

    @property
    def reacts_to(self) -> frozenset[Reason]:
        """Events that are answered by ``react``; empty for most."""
        ...

    def decide(self, round_: Any, memory: Any) -> Decision:
        """Decide a round."""
        ...

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> Any:
        """Return the memory for the next round."""
        ...

    def react(self, plan: Any, event: Reason, view: Any) -> tuple[Any | None, Any]:
        """Answer an event between decisions."""
        ...


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    rule
        Short name: ``"type_capacity"``.
    message
        One line that names what, where and by how much.
    """

    rule: str
    message: str


class Checker(Protocol):
    """Recomputes every rule of a family from the round alone."""

    def __call__(self, round_: Any, allocation: Any) -> list[Violation]:
        """Return the broken rules; none means the allocation may be carried out."""
        ...
