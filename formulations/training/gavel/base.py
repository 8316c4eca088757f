"""What Gavel's policies share: parameters of the rounds, equal shares, speeds of the unaware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.shared_proof import Merged
from apportion.formulations.training.time_share_program import Fractions, TimeShareProgram
from apportion.formulations.training.time_shares import Sharers, remembered, within
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Floats
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound
from apportion.solver import Solution, Status, gap_of

ROUNDING = 1e-6
"""Gap that counts as none: simplex codes work to 1e-7, and points are moved back into their rules
by about that much before their objective is read off."""

SHOWN = 5
"""Jobs that a note names before it only counts them."""


@dataclass(frozen=True)
class Gavel:
    """A Gavel policy: fractions of time by an optimisation, leases by the rounds' mechanism.

    Parameters
    ----------
    recompute_s
        Least time between two computations of the fractions; in between newcomers have an equal
        share. 0: at every change of the jobs or the free GPUs. Gavel's simulator has 1920.
    work_conserving
        True: GPUs that the fractions leave idle in a round go to jobs that fit.
    """

    source: ClassVar[str] = "Gavel (Narayanan et al., OSDI 2020); see docs/systems/gavel.md"
    name: ClassVar[str] = "gavel"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()

    recompute_s: float = 0.0
    work_conserving: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.recompute_s <= LARGEST:
            rule = f"must be a number from 0 to {LARGEST:g}"
            raise InstanceError(f"{self.name}.recompute_s = {self.recompute_s}: {rule}")
        for field, known in self.choices().items():
            value = getattr(self, field)
            if value not in known:
                rule = f"must be one of {', '.join(known)}"
                raise InstanceError(f"{self.name}.{field} = {value!r}: {rule}")

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Values that each parameter with a list of them may have."""
        return {}

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> TimeShareProgram:
        """Read what everybody received, and set the round up.

        Raises
        ------
        InstanceError
            On a memory that is not this policy's.
        """
        return TimeShareProgram.of(self._sharing(round_, memory), round_, memory, repr(self))

    def _sharing(self, round_: TrainingRound, memory: Any) -> Any:
        """Who computes the fractions: the policy itself unless it remembers more."""
        return self

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Add what was really served."""
        return remembered(decision, outcome)


def equal_share(sharers: Sharers, speed: Floats) -> Floats:
    """Speed of each job if its time were spread over the types by their free GPUs, shape (m,)."""
    return speed @ (sharers.capacity / max(1.0, float(sharers.capacity.sum())))


def first_speed(sharers: Sharers) -> Floats:
    """Speeds of a policy that believes all types to be like the first one a job can use."""
    speed = sharers.speed
    first = speed[np.arange(len(speed)), np.argmax(speed > 0.0, axis=1)]
    return np.where(speed > 0.0, first[:, None], 0.0)


def raised(x: Floats, speed: Floats, need: Floats) -> Floats:
    """Give jobs that miss a speed by a solver's tolerance the rest of it, on their fastest type."""
    got = np.einsum("ij,ij->i", speed, x)
    fastest = np.argmax(speed, axis=1)
    rows = np.arange(len(speed))
    short = np.maximum(need - got, 0.0)
    out = np.array(x)
    best = speed[rows, fastest]
    out[rows, fastest] += np.divide(short, best, out=np.zeros_like(short), where=best > 0.0)
    return out


def inside(sharers: Sharers, x: Floats) -> Floats:
    """Move fractions back into the rules."""
    return within(x, sharers.gang, sharers.capacity)


def proved(
    x: Floats,
    value: float | None,
    bound: float | None,
    gap: float,
    *,
    notes: tuple[str, ...] = (),
    time_limited: bool = False,
    proof: Merged | None = None,
) -> Fractions:
    """Say of fractions what their bound proves within a gap, and hand on what proves it."""
    apart = gap_of(value, bound)
    closed = apart is not None and apart <= max(gap, ROUNDING)
    status = Status.OPTIMAL if closed else Status.FEASIBLE
    return Fractions(
        x, status.name, value, bound, apart, notes=notes, time_limited=time_limited, proof=proof
    )


def bound_in(solution: Solution, unit: float) -> float | None:
    """Bound of the last objective of a solution, in other units."""
    return None if solution.bound is None else float(solution.bound) * unit


def notes_on_left_out(sharers: Sharers) -> tuple[str, ...]:
    """Tell who could start but has no part in the round: its types are taken by others' leases.

    Such a job has no speed on an equal share of what is free, so that its level is not defined.
    """
    out = sharers.held.open & sharers.round_.startable
    out[sharers.rows] = False
    left = sharers.round_.jobs.id[out].tolist()
    if not left:
        return ()
    named = ", ".join(repr(str(one)) for one in left[:SHOWN])
    more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    return (f"left out, since leases that go on hold the GPUs they could use: {named}{more}",)
