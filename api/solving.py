"""One round, decided within a time limit: what other schedulers call every few minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from apportion.answer import Answer
from apportion.deciding import decide_safely
from apportion.instances import InstanceError, Policy
from apportion.instances.training import Outcome, TrainingRound
from apportion.instances.training.planned import planned_outcome
from apportion.instances.training.round_json import read_round
from apportion.promises import given_up, without_broken_promises
from apportion.registry import make_policy, told_parameters
from apportion.side_rules import SideRules
from apportion.solver import Budget, ModelError, noting_skipped
from apportion.watching import WatchedSolver


def solve(
    round_: TrainingRound | str | Path,
    policy: str | Policy = "fft",
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    previous: Answer | None = None,
    outcome: Outcome | None = None,
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
        A round, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults.
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
        On an unknown policy, an unusable parameter or memory, a time limit that is not positive,
        a file that is not a round, or side rules for a policy without a model.
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
    asked = round_ if isinstance(round_, TrainingRound) else read_round(round_)
    asked, broken = without_broken_promises(asked)
    chosen = make_policy(policy, parameters)
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
    policy: Policy, memory: Any, previous: Answer | None, outcome: Outcome | None,
    now: TrainingRound,
) -> tuple[Any, str]:  # fmt: skip
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
    note = ""
    if outcome is None:
        outcome = planned_outcome(previous.round_, previous.allocation, now.now_s)
        note = "no outcome was given: the previous plan is taken as carried out"
    else:
        _require_fits(outcome, len(previous.round_.jobs))
        _require_between(outcome, previous.round_, now)
    return policy.remember(base, previous.round_, previous.decision, outcome), note


def _require_fits(outcome: Outcome, jobs: int) -> None:
    """Refuse an outcome that cannot be one of a round with so many jobs."""
    for name in ("work", "gpu_s", "finished"):
        column = np.asarray(getattr(outcome, name))
        if column.shape != (jobs,):
            raise InstanceError(
                f"outcome.{name} has shape {column.shape}, the previous answer's round has"
                f" {jobs} jobs"
            )
        if not np.isfinite(column).all():
            raise InstanceError(f"outcome.{name}: must be finite")
    if not -math.inf < outcome.start_s < outcome.end_s < math.inf:
        raise InstanceError(
            f"outcome.end_s = {outcome.end_s}: must lie after start_s = {outcome.start_s}"
        )


def _require_between(outcome: Outcome, before: TrainingRound, now: TrainingRound) -> None:
    """Refuse an outcome of another interval than the one since the previous answer."""
    if outcome.start_s != before.now_s:
        raise InstanceError(
            f"outcome.start_s = {outcome.start_s}: the previous answer was decided at"
            f" {before.now_s}"
        )
    if outcome.end_s > now.now_s:
        raise InstanceError(
            f"outcome.end_s = {outcome.end_s}: lies after this round's now_s = {now.now_s}"
        )
