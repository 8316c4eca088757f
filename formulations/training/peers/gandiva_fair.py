"""Gandiva-fair: every tenant its tickets' share of every type, and trades that leave nobody worse."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.peers.gandiva_fair_trading import Trade, filled, traded
from apportion.formulations.training.time_share_program import Fractions, TimeShareProgram
from apportion.formulations.training.time_shares import Sharers, remembered
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound
from apportion.solver import Solver

DIGITS = 12
"""Digits kept of fractions, so that the order in which sums are added up decides nothing."""


@dataclass(frozen=True, eq=False)
class Users:
    """Tenants with jobs that share, as traders see them.

    Parameters
    ----------
    of_job
        User of each sharing job, shape (m,).
    tickets
        Shape (u,).
    able
        Types each can use, shape (u, k).
    most
        GPUs of all gangs of each, shape (u,).
    speed
        Speed of each on each type, in parts of its jobs' best speeds, the mean over the GPUs they
        ask for, shape (u, k).
    """

    of_job: Ints
    tickets: Floats
    able: Bools
    most: Floats
    speed: Floats

    @classmethod
    def of(cls, sharers: Sharers) -> Users:
        """Add up the jobs of every tenant."""
        round_ = sharers.round_
        tenant, of_job = np.unique(round_.jobs.tenant[sharers.rows], return_inverse=True)
        most = np.zeros(tenant.size)
        np.add.at(most, of_job, sharers.gang)
        relative = sharers.speed / sharers.speed.max(axis=1, keepdims=True)
        speed = np.zeros((tenant.size, sharers.capacity.size))
        np.add.at(speed, of_job, sharers.gang[:, None] * relative)
        speed = np.round(speed / most[:, None], DIGITS)
        return cls(of_job, round_.tenants.weight[tenant], speed > 0.0, most, speed)

    def entitled(self, capacity: Floats) -> Floats:
        """GPUs of each user by tickets, before any trade, shape (u, k)."""
        return filled(capacity[None, :], self.tickets, self.able, self.most)


@dataclass(frozen=True)
class GandivaFair:
    """Proportional shares by tickets, with trading (Chaudhary et al., EuroSys 2020).

    A user is a tenant, its tickets are the tenant's weight. Users get GPUs of every type in
    proportion to tickets, up to what their jobs can use; then those who gain least from fast GPUs
    sell them to those who gain most, at a price at which both are better off. Within a user, jobs
    share GPU time in proportion to their weights. Whole gangs take turns by what they received.

    Parameters
    ----------
    trading
        False: proportional shares only.
    recompute_s
        Least time between two computations of the shares where jobs have come or gone. Each starts
        the count of what was received anew, so that short times favour small gangs.
    work_conserving
        Whether jobs may run where they were meant to have nothing, rather than leave it idle.
    """

    source: ClassVar[str] = (
        "Gandiva-fair (EuroSys 2020), reconstructed; see docs/systems/gandiva-fair.md"
    )
    name: ClassVar[str] = "gandiva-fair"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    trading: bool = True
    recompute_s: float = 1920.0
    work_conserving: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.recompute_s < np.inf:
            raise InstanceError(
                f"gandiva-fair.recompute_s = {self.recompute_s}: must be a number from 0 on"
            )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> TimeShareProgram:
        """Find who shares, and what each received."""
        sharing: Any = self  # type checkers take a ClassVar for no property
        return TimeShareProgram.of(sharing, round_, memory, repr(self))

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Add what was really served."""
        return remembered(decision, outcome)

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share by tickets, trade, and hand each user's GPUs to its jobs."""
        start = time.perf_counter()
        users = Users.of(sharers)
        gpus, trades = users.entitled(sharers.capacity), list[Trade]()
        if self.trading:
            gpus, trades = traded(gpus, users.speed, users.most)
        x = _of_jobs(sharers, users, gpus)
        note = f"{len(trades)} trades of {users.tickets.size} users"
        stage = Stage("trading", time.perf_counter() - start, note=note)
        return Fractions(x, "HEURISTIC", stages=(stage,) if self.trading else ())

    def value(self, sharers: Sharers, x: Floats) -> None:
        """There is no objective."""
        return None

    def model_of(self, sharers: Sharers) -> None:
        """There is no model."""
        return None


def _of_jobs(sharers: Sharers, users: Users, gpus: Floats) -> Floats:
    """Fractions of time of each job from the GPUs of its user; nothing usable is left over."""
    weight, gang, able = sharers.weight, sharers.gang, sharers.speed > 0.0
    out = filled(gpus, weight, able, gang, users.of_job)
    left = np.maximum(sharers.capacity - out.sum(axis=0), 0.0)
    total = np.bincount(users.of_job, weights=weight)
    tickets = users.tickets[users.of_job] * weight / total[users.of_job]
    room = np.maximum(gang - out.sum(axis=1), 0.0)
    out = out + filled(left[None, :], tickets, able, room)
    x = np.round(out / gang[:, None], DIGITS)
    x = x / np.maximum(1.0, x.sum(axis=1, keepdims=True))
    load = gang @ x
    over = np.divide(load, sharers.capacity, out=np.ones_like(load), where=sharers.capacity > 0)
    return x / np.maximum(1.0, over)[None, :]
