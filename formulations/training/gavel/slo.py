"""Gavel with deadlines: the most throughput for money among fractions that keep them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.gavel.cost import RELAXED, GavelCost
from apportion.formulations.training.gavel.deadlines import deadlines_of
from apportion.formulations.training.time_share_program import TimeShareProgram
from apportion.formulations.training.time_shares import Sharers, recall
from apportion.instances import Budget, Decision
from apportion.instances.columns import Floats, Names
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound
from apportion.solver import Solver


@dataclass(frozen=True)
class GavelSLO(GavelCost):
    """Gavel's SLO policy: throughput over price, every job with a deadline fast enough to keep it.

    Where the deadlines cannot all be kept as few as can be are given up, and every answer says
    for each job whether its own is kept: column ``deadline`` with ``kept``, ``dropped`` or nothing.

    Parameters
    ----------
    recompute_s, prices, form, units
        As in ``GavelCost``.
    work_conserving
        True by default: GPUs that the fractions leave idle in a round go to jobs that fit.
    deadlines
        ``fewest`` or, as in Gavel's code, ``all`` are given up where they cannot all be kept.
    """

    name: ClassVar[str] = "gavel-slo"

    work_conserving: bool = True

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except InstanceError as error:
            raise _own(error) from None

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Values of the parameters with a list of them."""
        return {**super().choices(), "deadlines": ("fewest", "all")}

    def price(self, sharers: Sharers) -> Floats:
        """Price of each type, shape (k,).

        Raises
        ------
        InstanceError
            On a type without a price, where there are prices.
        """
        try:
            return super().price(sharers)
        except InstanceError as error:
            raise _own(error) from None

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> SLOProgram:
        """Read what everybody received, and set the round up.

        Raises
        ------
        InstanceError
            On a memory that is not this policy's.
        """
        sharers = Sharers.of(round_)
        return SLOProgram(
            self._sharing(round_, memory), sharers, recall(sharers, memory, self.name)
        )


def _own(error: InstanceError) -> InstanceError:
    return InstanceError(str(error).replace(f"{GavelCost.name}.", f"{GavelSLO.name}.", 1))


@dataclass(frozen=True, eq=False)
class SLOProgram(TimeShareProgram):
    """A compiled round whose answers say which deadlines they keep."""

    def incumbent(self) -> Decision:
        """Go on with the fractions decided last, see ``TimeShareProgram``."""
        return self._told(super().incumbent())

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide, see ``TimeShareProgram``."""
        return self._told(super().solve(solver, budget))

    def _told(self, decision: Decision) -> Decision:
        return replace(decision, per_job={"deadline": self._kept(decision)})

    def _kept(self, decision: Decision) -> Names:
        """Say of each job's deadline whether the fractions keep it, shape (n,)."""
        sharers = self.sharers
        out = np.full(len(sharers.round_.jobs), "", dtype="<U7")
        if sharers.rows.size:
            asked = deadlines_of(sharers)
            x = decision.carry["x"][sharers.rows]
            got = np.einsum("ij,ij->i", sharers.speed, x)
            kept = asked.kept & (got >= asked.speed * (1.0 - 2.0 * RELAXED))
            out[sharers.rows[asked.kept | asked.dropped]] = "dropped"
            out[sharers.rows[kept]] = "kept"
        return out
