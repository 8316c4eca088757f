"""Chronus: deadlines by leases that are reserved, best effort in what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.training.chronus.clock import Clock, bare_s
from apportion.formulations.training.chronus.desk import CounterOffers, Desk, Rules
from apportion.formulations.training.chronus.placement import PlacementMode
from apportion.formulations.training.chronus.planning import Mode
from apportion.formulations.training.chronus.profiling import (
    Profiling,
    Source,
    after,
    profiled,
    without_profiles,
)
from apportion.formulations.training.chronus.program import ChronusProgram
from apportion.formulations.training.chronus.standing import NEW, NOTHING, recall, without
from apportion.formulations.training.pinned import pinned
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST
from apportion.instances.errors import InstanceError
from apportion.instances.training import Allocation, Outcome, TrainingRound

_CHOICES: dict[str, tuple[str, ...]] = {
    "sigma": ("adaptive", "minimise", "maximise", "none"),
    "counter_offer": ("auto", "exact", "quick", "none"),
    "placement": ("none", "batch", "exact"),
    "estimates": ("reported", "profiled"),
}

_MOST_LEASES = 100_000
"""Leases of a horizon: four years of 20 minutes; more is a slip of units."""


@dataclass(frozen=True)
class Chronus:
    """Deadlines kept by reserved leases, best effort in what is left (Gao et al., SoCC 2021).

    Jobs with deadlines are admitted when they arrive, if they and all that were admitted before
    can be done in whole leases; what is promised is kept. At the start of a lease the reservations
    are planned anew; in shorter slots the GPUs that they leave are handed out to the rest.

    Parameters
    ----------
    lease_s
        Length of a lease; they start at multiples of it.
    slot_s
        Time between decisions about the GPUs that reservations leave; arrivals are answered then.
    horizon
        Most leases that are planned ahead; later deadlines are taken as lying there.
    sigma
        GPUs reserved in the lease that begins: ``maximise`` (done early), ``minimise`` (left to
        others), ``none``, or ``adaptive``: few where a rejected job was there at the last boundary,
        many otherwise.
    round_up
        Whether reservations within a node are charged for a number of GPUs that divides the
        node's.
    overhead_s
        Time that a start of one GPU is taken to cost; it grows with the logarithm of the gang.
    safety
        Factor on estimates.
    counter_offer
        Earliest deadline that a rejected job would have been promised: ``exact``, ``quick`` (could
        surely be kept, perhaps not the earliest), ``auto`` (exact in small rounds) or ``none``.
    most_asked
        How often the exact model may be asked in one decision, beyond quick tests that decide
        nearly all; a job that is left open is rejected.
    publish
        Whether reservations beyond the next boundary are given as commitments of the decision.
    placement
        ``none``: the executor places gangs. ``batch``, ``exact``: by speed of spread gangs.
    estimates
        ``reported``: durations are what was reported. ``profiled``: newcomers are profiled first,
        and what was measured of a job takes the place of its profile in proportion to progress.
    noise, noise_seed
        Relative spread of a profiled duration around the reported one, and the root of its draws.
    pool_gpus
        GPUs beside the cluster on which newcomers are profiled; 0: profiles take no time.
    reuse_profiles
        Whether a job is not profiled whose model and gang were profiled before.
    hold_users
        Whether users that have nearly the whole pool wait a minute for the next profile.
    """

    source: ClassVar[str] = (
        "Chronus (SoCC 2021), by its released simulator; see docs/systems/chronus.md"
    )
    name: ClassVar[str] = "chronus"
    subscribes: ClassVar[frozenset[Reason]] = frozenset({"failure"})
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    lease_s: float = 1200.0
    slot_s: float = 300.0
    horizon: int = 1000
    sigma: Mode = "adaptive"
    round_up: bool = True
    overhead_s: float = 30.0
    safety: float = 1.1
    counter_offer: CounterOffers = "auto"
    most_asked: int = 20
    publish: bool = True
    placement: PlacementMode = "none"
    estimates: Source = "reported"
    noise: float = 0.0
    noise_seed: int = 0
    pool_gpus: int = 32
    reuse_profiles: bool = False
    hold_users: bool = False

    def __post_init__(self) -> None:
        for field, known in _CHOICES.items():
            if getattr(self, field) not in known:
                raise InstanceError(
                    f"chronus.{field} = {getattr(self, field)!r}: must be one of {', '.join(known)}"
                )
        for field in ("lease_s", "slot_s"):
            if not 0 < getattr(self, field) <= LARGEST:
                raise InstanceError(
                    f"chronus.{field} = {getattr(self, field)}: must be positive, at most"
                    f" {LARGEST:g}"
                )
        if self.slot_s > self.lease_s:
            raise InstanceError(
                f"chronus.slot_s = {self.slot_s}: must not be longer than a lease, {self.lease_s}"
            )
        for field, least, most in (
            ("horizon", 1, _MOST_LEASES), ("most_asked", 0, _MOST_LEASES),
            ("overhead_s", 0.0, LARGEST), ("safety", 1.0, 100.0), ("noise", 0.0, 1.0),
            ("noise_seed", 0, LARGEST), ("pool_gpus", 0, LARGEST),
        ):  # fmt: skip
            if not least <= getattr(self, field) <= most:
                raise InstanceError(
                    f"chronus.{field} = {getattr(self, field)}: must be {least:g} to {most:g}"
                )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> ChronusProgram:
        """Find the moment's place among leases and slots, and what is known of the jobs.

        Raises
        ------
        InstanceError
            On a memory that is not Chronus'.
        """
        clock = Clock.at(round_.now_s, self.lease_s, self.slot_s)
        rules = Rules(
            self.slot_s, self.horizon, self.sigma, self.round_up, self.overhead_s, self.safety,
            self.counter_offer, self.most_asked,
        )  # fmt: skip
        before = recall(round_, memory, self.lease_s)
        how = Profiling(
            self.estimates, self.noise, self.noise_seed, self.pool_gpus, self.reuse_profiles,
            self.hold_users,
        )  # fmt: skip
        fastest_s = bare_s(round_.jobs, round_.cluster.types.size).min(axis=1, initial=np.inf)
        profile = profiled(round_, memory, how, fastest_s, before.state != NEW)
        return ChronusProgram(
            round_=round_,
            held=pinned(round_),
            clock=clock,
            desk=Desk(round_, clock, rules, profile),
            before=before,
            placement=self.placement,
            publish=self.publish,
        )

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Keep states, promises, reservations and the pace of the jobs that go on."""
        told = cast("dict[str, Any]", decision.carry)
        if not isinstance(decision.carry, dict) or "lease" not in told:
            raise InstanceError("memory: the decision is not one of chronus")
        plan: Allocation = decision.allocation
        kind = np.full(len(round_.jobs), NOTHING, dtype=np.int64)
        kind[plan.job] = plan.gpu_type
        gone = np.asarray(outcome.finished, dtype=np.bool_)
        told = without_profiles(after(told, round_, kind, outcome), ~gone)
        return without(told, gone)
