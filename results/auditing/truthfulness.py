"""Truthfulness, probed: does a user gain by reporting other speeds than its own?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from apportion.instances import InstanceError
from apportion.instances.columns import Bools, Ints
from apportion.instances.training import TrainingRound
from apportion.results.auditing.audited import TOLERANCE, AuditedUsers, utility
from apportion.results.auditing.findings import Finding
from apportion.solver import Budget

NAME = "truthfulness"

Ask = Callable[[TrainingRound], AuditedUsers]
"""Has the policy decide a round, and gives the users of its decision."""


def truthfulness(
    users: AuditedUsers,
    round_: TrainingRound,
    ask: Ask,
    factors: Sequence[float],
    *,
    budget: Budget | None = None,
) -> Finding:
    """Let one user at a time lie, decide again, and value at its true speeds what it gets.

    A liar scales its speed-ups over its slowest types, or all of its speeds. A probe finds lies that pay; that none was found proves nothing about others. The margin is
    minus the largest gain in normalised throughput.

    Source: strategy-proofness as tested for OEF (Middleware 2024).

    Parameters
    ----------
    users
        Of the decision on the true reports.
    round_
        The true round.
    ask
        Decides a round.
    factors
        By what reports are scaled, positive.
    budget
        When to stop asking.

    Raises
    ------
    InstanceError
        On a factor that is not a finite number above zero.
    """
    for factor in factors:
        if not (np.isfinite(factor) and factor > 0):
            raise InstanceError(f"probe factor = {factor}: must be a finite number above zero")
    budget, truth = budget or Budget.of(None), users.utility
    asked, pays, unsaid = 0, False, 0
    best: tuple[float, _Lie] | None = None
    for lie in _lies(users, factors):
        if budget.left_s() <= 0:
            unsaid += 1
            continue
        asked += 1
        got = _got(users, ask(lie.told(round_)), lie)
        if got is None:
            continue
        gain = got - float(truth[lie.user])
        pays = pays or gain > TOLERANCE * max(1.0, float(truth[lie.user]))
        if best is None or gain > best[0]:
            best = gain, lie
    rest = f", no time for {unsaid} more" if unsaid else ""
    if best is None:
        return Finding(NAME, None, words=f"{asked} lies tried{rest}: nothing to tell")
    gain, lie = best
    name = str(users.name[lie.user])
    words = f"{name} gets {gain:+.4g} by reporting its {lie.part} as {lie.factor:g} times the truth"
    words += f"; {asked} lies tried{rest}"
    # a lie that pays settles it; that none did is worth saying only if all were tried
    holds = False if pays else (None if unsaid else True)
    return Finding(NAME, holds, (name,), 0.0 - gain, words)


@dataclass(frozen=True, eq=False)
class _Lie:
    """One user's report with some speeds scaled; ``scaled`` marks the types, shape (k,)."""

    user: int
    rows: Ints
    part: str
    scaled: Bools
    factor: float

    def told(self, round_: TrainingRound) -> TrainingRound:
        """Give the round as it looks with this report."""
        speed = round_.jobs.throughput_per_s.copy()
        speed[self.rows] *= np.where(self.scaled, self.factor, 1.0)
        return replace(round_, jobs=replace(round_.jobs, throughput_per_s=speed))


def _lies(users: AuditedUsers, factors: Sequence[float]) -> Iterator[_Lie]:
    """Go through all reports that differ from the truth."""
    every = np.ones(users.speed.shape[1], dtype=np.bool_)
    for user in range(len(users)):
        rows = np.flatnonzero(users.of_job == user)
        if not rows.size or not users.speed[user].any():
            continue
        faster = users.speed[user] > 1.0
        for factor in factors:
            if factor != 1.0:
                if faster.any():
                    yield _Lie(user, rows, "speed-ups", faster, factor)
                yield _Lie(user, rows, "speeds", every, factor)


def _got(users: AuditedUsers, after: AuditedUsers, lie: _Lie) -> float | None:
    """Value at the liar's true speeds what it holds now; None if that cannot be told."""
    if after.of != users.of:
        return None  # the policy gave shares once and none the other time
    own = np.unique(after.of_job[lie.rows])
    own = own[own >= 0]
    # a lie may have a policy sort its jobs otherwise: into several users, or in with others
    if (np.isin(after.of_job, own) & (users.of_job != lie.user)).any():
        return None
    held = after.gpus[own].sum(axis=0)
    return float(utility(users.speed[lie.user], users.most[lie.user], held))
