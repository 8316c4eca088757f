"""Fairness of a plan: one round decided, and audited by code that knows no policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apportion.answer import Answer
from apportion.families.lookup import training_round
from apportion.instances import InstanceError, Policy
from apportion.instances.training import Shares, TrainingRound
from apportion.registry import make_policy
from apportion.results import Audit, AuditedUsers, audit_users, users_of_leases, users_of_shares
from apportion.results.auditing.audited import TOLERANCE
from apportion.solving import budget_of, solve, solver_of


def audit(
    round_: TrainingRound | str | Path,
    policy: str | Policy = "fft",
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    properties: Iterable[str] | None = None,
    probe: Sequence[float] = (),
    leases: bool = False,
    capped: bool = True,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    backend: str = "auto",
    seed: int = 0,
) -> Audit:
    """Decide a round and tell which fairness properties the plan has.

    Everything is worked out again from the round and from what each user is meant to have; the
    policy's own word is not asked for.

    Parameters
    ----------
    round_
        A round, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults.
    memory
        The policy's memory.
    properties
        What is asked, see ``apportion.results.PROPERTIES``; default: everything.
    probe
        Factors by which users lie about their speeds, one user at a time; the policy decides again
        for each. None: truthfulness is not probed.
    leases
        True: audit the allocation of this round, also where the policy gives shares. Policies
        without shares are always audited so.
    capped
        True: a user that may use any number of GPUs uses no more than the gangs of its jobs add up
        to. False: more GPUs always help, as where OEF is first stated.
    time_limit_s
        Wall time for everything; what it cuts off is told as not settled.
    gap
        Relative gap of each decision; a lie may seem to pay by as much.
    backend, seed
        Back end by name, and the seed of its random choices.

    Returns
    -------
    Audit
        Its ``of`` says what was audited, ``holds`` whether nothing failed.

    Raises
    ------
    InstanceError
        On an unknown policy or property, an unusable parameter, memory or factor, or a file that
        is not a round.

    Examples
    --------
    >>> import apportion as ap
    >>> rnd = ap.TrainingRound(
    ...     cluster=ap.Cluster.uniform({"V100": 2}),
    ...     jobs=ap.Jobs.of(id=["a", "b"], gang=[1, 1], work=[600.0, 300.0],
    ...                  throughput_per_s=[[1.0], [1.0]]),
    ... )
    >>> found = ap.audit(rnd, "srtf")
    >>> found.of, found["envy-freeness"].holds
    ("this round's leases", True)
    """
    budget = budget_of(time_limit_s)
    asked = training_round(round_, "audit")
    chosen = make_policy(policy, parameters)

    def decided(one: TrainingRound) -> Answer:
        left = None if time_limit_s is None else max(budget.left_s(), _LEAST_S)
        return solve(
            one, chosen, memory=memory, time_limit_s=left, gap=gap, backend=backend, seed=seed
        )

    def users(one: TrainingRound) -> AuditedUsers:
        return _users(decided(one), leases, capped)

    answer = decided(asked)
    return audit_users(
        _users(answer, leases, capped), chosen.name, asked=properties, round_=answer.round_,
        probe=(users, probe), solver=solver_of(TOLERANCE, backend, seed), budget=budget,
        notes=_notes(answer),
    )  # fmt: skip


_LEAST_S = 1e-3
"""A limit must be above zero: a decision asked for as time ends is a greedy one."""


def _users(answer: Answer, leases: bool, capped: bool) -> AuditedUsers:
    shares = answer.decision.shares
    if shares is None or leases:
        return users_of_leases(answer.round_, answer.allocation)
    if not isinstance(shares, Shares):
        raise InstanceError(
            f"{answer.policy}: its shares are a {type(shares).__name__}, not the family's Shares"
        )
    return users_of_shares(answer.round_, shares, answer.allocation, capped=capped)


def _notes(answer: Answer) -> tuple[str, ...]:
    limited = "the time limit stopped the decision: another run may find otherwise"
    return (*answer.notes, limited) if answer.decision.time_limited else tuple(answer.notes)
