"""A policy bound to a solver: what executors ask and what ``solve`` calls."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from apportion.families.family import Rules
from apportion.families.lookup import family_of
from apportion.instances import Decision, Policy, Reactive, Reason
from apportion.side_rules import SideRules, extended, without_proof
from apportion.solver import Budget, Solver, Status

log = logging.getLogger("apportion.deciding")

WORK_LIMIT = 100_000
"""Iterations or nodes at which experiments stop a search: reached by no round we have measured,
and the same on every machine, which seconds are not."""


class EngineError(RuntimeError):
    """Our own fault: even the incumbent of a policy does not pass the checker."""


@dataclass(frozen=True)
class BoundPolicy:
    """A policy and a solver as one ``Decider``.

    Parameters
    ----------
    policy
        Who decides.
    solver
        How its models are solved.
    time_limit_s
        Wall time for each decision; None leaves stopping to the solver's work limit.
    """

    policy: Policy
    solver: Solver
    time_limit_s: float | None = None

    @property
    def subscribes(self) -> frozenset[Reason]:
        """Events that need a decision at once."""
        return self.policy.subscribes

    @property
    def reacts_to(self) -> frozenset[Reason]:
        """Events answered between decisions."""
        return self.policy.reacts_to if isinstance(self.policy, Reactive) else frozenset()

    def decide(self, round_: Any, memory: Any) -> Decision:
        """Decide a round."""
        return decide(self.policy, round_, memory, self.solver, Budget.of(self.time_limit_s))

    def remember(self, memory: Any, round_: Any, decision: Decision, outcome: Any) -> Any:
        """Return the memory for the next round."""
        return self.policy.remember(memory, round_, decision, outcome)

    def react(self, plan: Any, event: Reason, view: Any) -> tuple[Any | None, Any]:
        """Answer an event between decisions."""
        if isinstance(self.policy, Reactive):
            return self.policy.react(plan, event, view)
        return None, plan


def decide(policy: Policy, round_: Any, memory: Any, solver: Solver, budget: Budget) -> Decision:
    """Compile and solve one round within a budget.

    Raises
    ------
    InstanceError
        On a memory that is not the policy's.
    """
    return policy.compile(round_, memory, budget).solve(solver, budget)


@dataclass(frozen=True, eq=False)
class Decided:
    """A decision on nodes, and what proves it where the policy's model allows a proof."""

    decision: Decision
    certificate: dict[str, Any] | None = None


def decide_safely(
    policy: Policy,
    round_: Any,
    memory: Any,
    solver: Solver,
    budget: Budget,
    side_rules: SideRules | None = None,
) -> Decided:
    """Decide a round so that what leaves has passed the checker and lies on nodes.

    A search that fails, or whose answer breaks a rule, is replaced by the program's incumbent,
    and a note says so. It does not know of side rules, so that its status is then ``NO_SOLUTION``.

    Raises
    ------
    EngineError
        If the incumbent fails or breaks a rule too.
    InstanceError
        On a memory that is not the policy's, or side rules that cannot be added.
    """
    rules = family_of(round_).rules
    program: Any = policy.compile(round_, memory, budget)
    same_objectives = True
    if side_rules is not None:
        program, same_objectives = extended(program, side_rules, policy.name)
    try:
        decision = program.solve(solver, budget)
        if not same_objectives:
            decision = without_proof(decision)
        placed = _finished(rules, round_, decision)
        proof = None
        if side_rules is None:  # they are not in the round, so that nobody else could check
            proof = rules.certificate(program, round_, decision, placed.allocation, solver.gap)
        return Decided(placed, proof)
    except _BrokenRule as error:
        fault = f"broke a rule ({error})"
    except Exception as error:  # whatever a back end does, the caller needs an allocation
        log.exception("%s: the search failed", policy.name)
        fault = f"failed ({type(error).__name__}: {error})"
    try:
        decision = _finished(rules, round_, program.incumbent())
    except _BrokenRule as error:
        raise EngineError(f"{policy.name}: the incumbent breaks a rule: {error}") from None
    except Exception as error:
        raise EngineError(
            f"{policy.name}: the incumbent failed: {type(error).__name__}: {error}"
        ) from error
    note = f"the search {' '.join(fault.split())}; this is the greedy incumbent"
    if side_rules is not None:
        note += ", which does not look at the side rules"
        decision = replace(decision, status=Status.NO_SOLUTION.name, bound=None, gap=None)
    return Decided(replace(decision, notes=(note, *decision.notes)))


class _BrokenRule(Exception):  # noqa: N818  # a finding on its way to who acts on it
    """What the checker found first."""


def _finished(rules: Rules, round_: Any, decision: Decision) -> Decision:
    """Complete a decision as its family does, and stop at the first rule it breaks."""
    out, broken = rules.finished(round_, decision)
    if broken:
        raise _BrokenRule(broken[0].message)
    return out
