"""Astraea: long-term GPU-time fairness of tenants and of their jobs, by leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.formulations.training.astraea.ended import ends_in_next_lease
from apportion.formulations.training.astraea.ltgf import fairness_class, job_ltgf
from apportion.formulations.training.astraea.program import AstraeaProgram, Method
from apportion.formulations.training.astraea.selection import Standing
from apportion.formulations.training.astraea.service import Service, recall, remembered
from apportion.formulations.training.baselines.quota import (
    Oversized,
    beyond_quota,
    gpus_of_tenants,
    note_on_oversized,
    quotas,
)
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.running import going_on
from apportion.instances import Budget, Decision, Reason
from apportion.instances.columns import LARGEST, Bools, Floats
from apportion.instances.errors import InstanceError
from apportion.instances.training import Outcome, TrainingRound

Order = Literal["ltgf", "class"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "order": ("ltgf", "class"),
    "oversized": ("borrow", "reject"),
    "job_weights": ("equal", "jobs"),
    "method": ("two-phase", "milp"),
}

_MOST_BUCKETS = 10_000
"""Columns of the window a tenant: more than a year of hours."""


@dataclass(frozen=True)
class Astraea:
    """Long-term GPU-time fairness (Ye et al., TPDS 2022).

    Tenants are served by what they had in a sliding window over what their quota entitles them to,
    their jobs by what each has had since its arrival over its share of the quota. Jobs run in
    leases; when one ends the job is in line again. A round has two phases: GPUs go to tenants,
    then each tenant's jobs start within its GPUs, in order of need.

    Parameters
    ----------
    lease_s
        Length of a lease; the released run line uses 900.
    order
        Order of a tenant's jobs: ``ltgf``, the least served first; ``class``: by discrete classes
        of it, within a class by the chance to end in the next lease per GPU.
    classes
        Number of classes for ``order="class"``.
    block_scheduling
        True (the run line): a job that does not fit ends its tenant's turn, so that GPUs gather
        for it. False: the next one is tried.
    starvation_s
        A job that has waited so long goes before all others of its tenant.
    delay_s, first_delay_s
        A job that has run for less than ``delay_s`` in its lease (and for ``first_delay_s`` at
        least, if it is its first) may be stopped for one of its tenant that never ran; it loses
        the work of that lease. 0 turns this off.
    exempt_gpus
        Larger jobs than this have no lease and run to their end; 0: none.
    oversized
        What becomes of jobs larger than their tenant's quota: ``borrow`` (they take part) or
        ``reject`` (they never start, as in the released code).
    job_weights
        ``equal``: the jobs of a tenant share alike. ``jobs``: by ``jobs.weight``.
    buckets, bucket_s
        The tenants' window: number and length of its buckets.
    method
        ``two-phase``: the published selection. ``milp``: lexicographic max-min of the tenants'
        ratios, proved.
    """

    source: ClassVar[str] = (
        "Astraea (TPDS 33(11), 2022), by its released simulator; see docs/systems/astraea.md"
    )
    name: ClassVar[str] = "astraea"
    subscribes: ClassVar[frozenset[Reason]] = frozenset({"lease_end"})
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    lease_s: float = 1800.0
    order: Order = "ltgf"
    classes: int = 5
    block_scheduling: bool = True
    starvation_s: float = 21_600.0
    delay_s: float = 300.0
    first_delay_s: float = 120.0
    exempt_gpus: int = 0
    oversized: Oversized = "borrow"
    job_weights: Literal["equal", "jobs"] = "equal"
    buckets: int = 24
    bucket_s: float = 3600.0
    method: Method = "two-phase"

    def __post_init__(self) -> None:
        for field, known in _CHOICES.items():
            value = getattr(self, field)
            if value not in known:
                raise InstanceError(
                    f"astraea.{field} = {value!r}: must be one of {', '.join(known)}"
                )
        for field in ("lease_s", "bucket_s"):
            if not 0 < getattr(self, field) <= LARGEST:
                raise InstanceError(
                    f"astraea.{field} = {getattr(self, field)}: must be positive, at most"
                    f" {LARGEST:g}"
                )
        for field in ("starvation_s", "delay_s", "first_delay_s", "exempt_gpus"):
            if not getattr(self, field) >= 0:
                raise InstanceError(
                    f"astraea.{field} = {getattr(self, field)}: must not be negative"
                )
        for field in ("classes", "buckets"):
            if not 1 <= getattr(self, field) <= _MOST_BUCKETS:
                raise InstanceError(
                    f"astraea.{field} = {getattr(self, field)}: must be 1 to {_MOST_BUCKETS}"
                )

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> AstraeaProgram:
        """Bring everybody's service up to date, and see whose leases are over.

        Raises
        ------
        InstanceError
            On a memory that is not Astraea's.
        """
        held = pinned(round_)
        had = self._service(round_, memory)
        standing, ends = self._standing(round_, held, had)
        return AstraeaProgram(
            round_=round_,
            held=held,
            standing=standing,
            lease_end_s=ends,
            delay_s=self.delay_s,
            block=self.block_scheduling,
            method=self.method,
            notes=note_on_oversized(round_, beyond_quota(round_, had.quota), self.oversized),
        )

    def _service(self, round_: TrainingRound, memory: Any) -> Service:
        jobs, quota = round_.jobs, quotas(round_)
        weight = jobs.weight if self.job_weights == "jobs" else np.ones(len(jobs))
        active = np.ones(len(jobs), dtype=np.bool_)
        if self.oversized == "reject":
            active = ~beyond_quota(round_, quota) | jobs.running
        return recall(round_, memory, quota, weight, active, (self.buckets, self.bucket_s))

    def _standing(
        self, round_: TrainingRound, held: Pinned, had: Service
    ) -> tuple[Standing, Floats]:
        jobs, now = round_.jobs, round_.now_s
        ends = self._lease_ends(round_)
        kinds = going_on(round_, held, ends > now)
        keeps = kinds >= 0
        pending = held.open & round_.startable & ~keeps
        if self.oversized == "reject":
            pending &= ~beyond_quota(round_, had.quota)
        rows = np.flatnonzero(keeps)
        free = held.free - np.bincount(
            kinds[rows], weights=jobs.held_gpus[rows], minlength=held.free.size
        ).astype(np.int64)
        used = gpus_of_tenants(round_, rows, jobs.held_gpus[rows])
        used += gpus_of_tenants(round_, held.job, held.gpus)
        ltgf = job_ltgf(had.executed_gpu_s, had.desired_gpu_s)
        standing = Standing(
            round_=round_,
            kinds=kinds,
            free=free,
            pending=pending,
            starved=pending & ~jobs.running & (now - had.last_run_s >= self.starvation_s),
            delay=self._delay(round_, keeps),
            ltgf=ltgf,
            key=self._key(round_, had, ltgf),
            used=used,
            quota=had.quota,
            served_gpu_s=had.window.served_gpu_s.sum(axis=1),
            entitled_gpu_s=had.window.entitled_gpu_s.sum(axis=1) + had.quota * self.lease_s,
            lease_s=self.lease_s,
        )
        return standing, np.where(keeps, ends, self._new_ends(round_))

    def _new_ends(self, round_: TrainingRound) -> Floats:
        ends = np.full(len(round_.jobs), round_.now_s + self.lease_s)
        ends[self._exempt(round_)] = np.inf
        return ends

    def _exempt(self, round_: TrainingRound) -> Bools:
        """Jobs that have no leases, shape (n,)."""
        return round_.jobs.gang > (self.exempt_gpus or np.inf)

    def _lease_ends(self, round_: TrainingRound) -> Floats:
        """When the present lease of each running job ends; a lease without an end gets one."""
        jobs = round_.jobs
        ends = np.where(
            np.isinf(jobs.lease_end_s), jobs.lease_start_s + self.lease_s, jobs.lease_end_s
        )
        ends = np.minimum(ends, round_.now_s + self.lease_s)
        ends[self._exempt(round_)] = np.inf
        return np.where(jobs.running, ends, -np.inf)

    def _delay(self, round_: TrainingRound, keeps: Bools) -> Bools:
        """Jobs that have only just begun their lease, shape (n,)."""
        jobs = round_.jobs
        ran = round_.now_s - jobs.lease_start_s
        first = jobs.first_start_s == jobs.lease_start_s
        settled = ~first | (ran >= self.first_delay_s)
        leased = keeps & (jobs.lease_start_s >= 0) & ~self._exempt(round_)
        return leased & (ran < self.delay_s) & settled

    def _key(self, round_: TrainingRound, had: Service, ltgf: Floats) -> tuple[Floats, ...]:
        if self.order == "ltgf":
            return (ltgf,)
        gang = round_.jobs.gang
        done = np.floor(had.executed_gpu_s / gang / self.lease_s).astype(np.int64)
        chance = ends_in_next_lease(had.ended, gang, done)
        return fairness_class(ltgf, self.classes).astype(np.float64), -chance / gang

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Add what was really executed to the tenants' window and to the jobs' service."""
        had = self._service(round_, memory)
        return remembered(round_, had, decision.allocation, outcome, self.lease_s)
