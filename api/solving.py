"""One round, decided within a time limit: what other schedulers call every few minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from apportion.answer import Answer
from apportion.deciding import decide_safely
from apportion.families.lookup import family_of, the_round
from apportion.instances import InstanceError, Policy
from apportion.promises import given_up
from apportion.registry import made_for, told_parameters
from apportion.side_rules import SideRules
from apportion.solver import Budget, ModelError, noting_skipped
from apportion.watching import WatchedSolver


def solve(
    round_: Any,
    policy: str | Policy | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    previous: Answer | None = None,
    outcome: Any = None,
    time_limit_s: float | None = None,
    gap: float = 1e-4,
    backend: str = "auto",
    seed: int = 0,
    side_rules: SideRules | None = None,
) -> Answer:
    """Decide one round; the allocation that comes back has passed the checker.

    Parameters
    ----------
    round_
        A round of any family, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults. Default: the
        family's own, ``fft`` for training jobs.
    memory
        The policy's memory; default: that of ``previous``.
    previous
        The last answer. The policy remembers first what came of it.
    outcome
        What really happened since; None with a ``previous``: its plan is taken as carried out up
        to this round, and a note says so.
    time_limit_s
        Wall time for everything; None for no limit.
    gap
        Relative gap at which an answer counts as optimal.
    backend, seed
        Back end by name, and the seed of its random choices.
    side_rules
        Rules of your own: called with the compiled model as a ``pulp.LpProblem`` and its
        variables by job and type, ``x["job"]["A100"]``; gives the problem back, changed. Or gives
        an :class:`apportion.solver.Model`.

    Returns
    -------
    Answer
        Where a reservation that has begun cannot be kept any more, the answer is of the round
        without it, its status is ``INFEASIBLE``, and a note names what was given up.

    Raises
    ------
    InstanceError
        On an unknown policy or one of another family, an unusable parameter or memory, a time limit
        that is not positive, a file that is not a round, or side rules for a policy without a model.
    EngineError
        If even the greedy answer does not pass the checker: our fault.

    Examples
    --------
    >>> import apportion as ap
    >>> rnd = ap.TrainingRound(
    ...     cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}),
    ...     jobs=ap.Jobs.of(id=["a", "b"], gang=[2, 1], work=[600.0, 300.0],
    ...                  throughput_per_s=[[1.0, 2.0], [1.0, 1.2]]),
    ... )
    >>> ap.solve(rnd, "fft").status
    'OPTIMAL'
    """
    start = time.perf_counter()
    budget = budget_of(time_limit_s)
    asked = the_round(round_)
    family = family_of(asked)
    asked, broken = family.rules.keepable(asked)
    chosen = made_for(family, policy, parameters)
    solver = solver_of(gap, backend, seed)
    known, note = remembered(chosen, memory, previous, outcome, asked)
    with noting_skipped() as passed_over:
        decided = decide_safely(chosen, asked, known, solver, budget, side_rules)
    solver.missing.extend(one for one in passed_over if one not in solver.missing)
    decision = given_up(decided.decision, broken)
    if note:
        decision = replace(decision, notes=(*decision.notes, note))
    return Answer(
        policy=chosen.name,
        parameters=told_parameters(chosen),
        round_=asked,
        decision=decision,
        memory=known,
        elapsed_s=time.perf_counter() - start,
        skipped=solver.skipped,
        certificate=None if broken else decided.certificate,
    )


def budget_of(time_limit_s: float | None) -> Budget:
    """Start a budget now.

    Raises
    ------
    InstanceError
        On a limit that is not a finite number of seconds above zero.
    """
    given: Any = time_limit_s
    if given is None:
        return Budget.of(None)
    if isinstance(given, bool) or not isinstance(given, Real):
        raise InstanceError(f"time limit = {given!r} s: must be a number")
    seconds = float(given)
    if not 0.0 < seconds < math.inf:
        raise InstanceError(
            f"time limit = {seconds} s: must be greater than zero and finite; none for no limit"
        )
    return Budget.of(seconds)


def solver_of(gap: float, backend: str, seed: int, work_limit: int | None = None) -> WatchedSolver:
    """Set a solver up.

    Raises
    ------
    InstanceError
        On an unknown back end, or a gap or seed out of range.
    """
    try:
        return WatchedSolver(gap=gap, backend=backend, seed=seed, work_limit=work_limit)
    except ModelError as error:
        raise InstanceError(str(error)) from None


def remembered(
    policy: Policy, memory: Any, previous: Answer | None, outcome: Any, now: Any
) -> tuple[Any, str]:
    """Bring the memory up to date, and tell if that rests on an assumption."""
    if previous is None:
        if outcome is not None:
            raise InstanceError("outcome: given without the answer it belongs to (previous)")
        return memory, ""
    if previous.policy != policy.name:
        raise InstanceError(
            f"previous: an answer of {previous.policy!r}, the policy is {policy.name!r}"
        )
    if now.now_s < previous.round_.now_s:
        raise InstanceError(
            f"round.now_s = {now.now_s}: lies before {previous.round_.now_s}, when the previous"
            " answer was decided"
        )
    base = previous.memory if memory is None else memory
    rules = family_of(previous.round_).rules
    note = ""
    if outcome is None:
        outcome = rules.planned_outcome(previous.round_, previous.allocation, now.now_s)
        note = "no outcome was given: the previous plan is taken as carried out"
    else:
        rules.require_outcome(outcome, previous.round_, now)
    return policy.remember(base, previous.round_, previous.decision, outcome), note
