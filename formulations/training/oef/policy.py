"""OEF: fair shares of heterogeneous GPUs, by equality or without envy, then whole gangs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.training.oef.memory import Remembered, recall
from apportion.formulations.training.oef.program import OEFProgram
from apportion.formulations.training.oef.users import Grouping, users_of
from apportion.formulations.training.pinned import pinned
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, Shares, TrainingRound

SOURCE = "OEF (Middleware 2024), formulas reconstructed; see docs/systems/oef.md"

GROUPINGS: tuple[Grouping, ...] = ("profile", "model", "job")

SPARE = 2.0
"""GPU-rounds owed beyond two of a user's largest gangs are forgotten: where gangs do not pack,
what is meant cannot be granted at all, and the debt would grow without end."""


@dataclass(frozen=True)
class _OEF:
    """What both forms share."""

    source: ClassVar[str] = SOURCE
    name: ClassVar[str] = ""
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    users: Grouping = "profile"
    work_conserving: bool = True

    def __post_init__(self) -> None:
        if self.users not in GROUPINGS:
            rule = f"must be one of {', '.join(GROUPINGS)}"
            raise InstanceError(f"{self.name}.users = {self.users!r}: {rule}")
        given: Any = self.work_conserving
        if given is not True and given is not False:
            raise InstanceError(f"{self.name}.work_conserving = {given!r}: must be true or false")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> OEFProgram:
        """Find the users and what they are owed.

        Raises
        ------
        InstanceError
            On a memory that is not this policy's.
        """
        held = pinned(round_)
        return OEFProgram(
            form=self.name,
            round_=round_,
            held=held,
            users=users_of(round_, held, self.users),
            recalled=recall(memory, self.name),
            work_conserving=self.work_conserving,
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> Any:
        """Keep the shares, and carry what was meant and not granted."""
        carry: Any = decision.carry
        if not isinstance(carry, dict) or not isinstance(decision.shares, Shares):
            return memory
        data = cast(dict[str, Any], carry)
        before = recall(data, self.name)
        if before is None:
            return memory
        return replace(before, owed=_owed(round_, decision, before, data)).to_memory()


def _owed(
    round_: TrainingRound, decision: Decision, before: Remembered, carry: dict[str, Any]
) -> Floats:
    """Claims less what was granted, GPUs that nobody had a claim to left aside."""
    plan, of_job = decision.allocation, decision.shares.of_job
    charged = (of_job[plan.job] >= 0) & ~np.isin(plan.job, carry.get("extra", ()))
    granted = np.zeros(before.owed.shape)
    user = of_job[plan.job[charged]]
    np.add.at(granted, (user, plan.gpu_type[charged]), plan.gpus[charged])
    largest = np.zeros(before.user.size)
    jobs = np.flatnonzero(of_job >= 0)
    np.maximum.at(largest, of_job[jobs], round_.jobs.gang[jobs])
    most = (SPARE + 2.0 * largest)[:, None]
    return np.clip(before.owed - granted, -most, most)


@dataclass(frozen=True)
class OEFNoncooperative(_OEF):
    """Equal normalised throughput for all users, as much as there is of it.

    Parameters
    ----------
    users
        Who is treated equally. ``profile``: a tenant's jobs of the same relative speeds are one
        user, and the tenant's weight is divided among its users. ``model``: jobs of different
        models are apart as well. ``job``: every job is a user.
    work_conserving
        Whether GPUs that nobody has a claim to go to whoever can use them.
    """

    name: ClassVar[str] = "oef-noncooperative"


@dataclass(frozen=True)
class OEFCooperative(_OEF):
    """The most normalised throughput of all such that no user would rather have another's share.

    Parameters
    ----------
    users
        Who may not envy. ``profile``: a tenant's jobs of the same relative speeds are one user,
        and the tenant's weight is divided among its users. ``model``: jobs of different models
        are apart as well. ``job``: every job is a user.
    work_conserving
        Whether GPUs that nobody has a claim to go to whoever can use them.
    """

    name: ClassVar[str] = "oef-cooperative"
