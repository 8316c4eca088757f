"""What tenants and jobs have had and should have had: Astraea's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.formulations.training.astraea.ended import Ended
from apportion.formulations.training.astraea.ltgf import desired_rates
from apportion.formulations.training.astraea.window import Window
from apportion.formulations.training.scalars import number
from apportion.instances.columns import (
    LARGEST,
    Bools,
    Floats,
    Ints,
    Names,
    floats,
    ints,
    names,
    require,
)
from apportion.instances.errors import InstanceError
from apportion.instances.training import Allocation, Outcome, TrainingRound

_OF_JOBS = ("executed_gpu_s", "desired_gpu_s", "last_run_s")
_OF_TENANTS = ("served_gpu_s", "tenant_desired_gpu_s", "entitled_gpu_s")
_OF_ENDED = ("ended_gang", "ended_bin", "ended_count")


@dataclass(frozen=True, eq=False)
class Service:
    """Service of the jobs and tenants of a round up to its decision.

    Parameters
    ----------
    quota
        GPUs each tenant is entitled to, shape (tenants,).
    active
        Jobs that count as demand, shape (n,).
    rate
        GPUs each job should have from now on, shape (n,).
    executed_gpu_s, desired_gpu_s
        GPU-time each job has had, less what it lost, and should have had, shape (n,).
    last_run_s
        When each last ran; its arrival where it never did, shape (n,).
    window
        The tenants' recent past.
    ended
        Lengths of the jobs that have ended.
    """

    quota: Floats
    active: Bools
    rate: Floats
    executed_gpu_s: Floats
    desired_gpu_s: Floats
    last_run_s: Floats
    window: Window
    ended: Ended


def recall(
    round_: TrainingRound,
    memory: Any,
    quota: Floats,
    weight: Floats,
    active: Bools,
    window: tuple[int, float],
) -> Service:
    """Read the service of a round's jobs and tenants from memory.

    Of a job that is new to it, what it holds of GPU-time counts as executed, and its present share
    since its arrival as desired.

    Parameters
    ----------
    round_, memory
        The round, and what ``remembered`` returned for the one before, or None.
    quota
        GPUs each tenant is entitled to, shape (tenants,).
    weight
        Weight of each job within its tenant, shape (n,).
    active
        Jobs that count as demand, shape (n,).
    window
        Number of buckets and seconds in each.

    Raises
    ------
    InstanceError
        On a memory that is not Astraea's, or that has another window.
    """
    jobs = round_.jobs
    rate, _ = desired_rates(jobs.gang, jobs.tenant, weight, active, quota)
    executed, desired = jobs.attained_gpu_s.copy(), rate * (round_.now_s - jobs.arrival_s)
    fresh = (jobs.first_start_s < 0) & ~jobs.running
    last = np.where(fresh, jobs.arrival_s, round_.now_s)
    none: Ints = np.zeros(0, dtype=np.int64)
    past, ended = Window.empty(quota.size, *window, round_.now_s), Ended(none, none, none)
    if memory is not None:
        known = _read(memory, *window)
        at = places(known.id, known.code, jobs.id, jobs.code)
        found = np.flatnonzero(at >= 0)
        for column, had in zip((executed, desired, last), known.of_jobs, strict=True):
            column[found] = had[at[found]]
        here = places(known.tenant, None, round_.tenants.id, None)
        past, ended = known.window.for_tenants(here), known.ended
    return Service(
        quota, active, rate, executed, desired, last, past.until(round_.now_s), ended
    )  # fmt: skip


def remembered(
    round_: TrainingRound, had: Service, allocation: Allocation, outcome: Outcome, lease_s: float
) -> dict[str, Any]:
    """Update the service with what was really executed.

    Demand counts to the end of each job; a job that lost the work of its lease has not executed
    it. Tenants have used that time all the same.

    Returns
    -------
    dict
        Plain columns: ``id``, ``code`` and three amounts for each job that goes on; ``tenant`` and
        three tables (tenants, buckets); counts of ended jobs; ``newest`` and ``bucket_s``.
    """
    jobs, length = round_.jobs, outcome.end_s - outcome.start_s
    wanted_s = np.where(outcome.finished, np.minimum(outcome.gpu_s / jobs.gang, length), length)
    executed = had.executed_gpu_s + outcome.gpu_s
    lost = allocation.lost_job
    in_lease_s = round_.now_s - jobs.lease_start_s[lost]
    executed[lost] = np.maximum(executed[lost] - jobs.held_gpus[lost] * in_lease_s, 0.0)
    asked = np.bincount(
        jobs.tenant, weights=jobs.gang * wanted_s * had.active, minlength=had.quota.size
    )
    entitled = had.quota * length
    served = np.bincount(jobs.tenant, weights=outcome.gpu_s, minlength=had.quota.size).astype(
        np.float64
    )
    past = had.window.with_interval(
        outcome.start_s, outcome.end_s, served, np.minimum(asked, entitled), entitled
    )
    over = outcome.finished
    ended = had.ended.plus(
        jobs.gang[over], np.floor(executed[over] / jobs.gang[over] / lease_s).astype(np.int64)
    )
    on = ~over
    return {
        "id": jobs.id[on],
        "code": jobs.code[on],
        "executed_gpu_s": executed[on],
        "desired_gpu_s": (had.desired_gpu_s + had.rate * wanted_s)[on],
        "last_run_s": np.where(outcome.gpu_s > 0, outcome.end_s, had.last_run_s)[on],
        "tenant": round_.tenants.id,
        "served_gpu_s": past.served_gpu_s,
        "tenant_desired_gpu_s": past.desired_gpu_s,
        "entitled_gpu_s": past.entitled_gpu_s,
        "newest": past.newest,
        "bucket_s": past.bucket_s,
        "ended_gang": ended.gang,
        "ended_bin": ended.bin,
        "ended_count": ended.count,
    }


@dataclass(frozen=True, eq=False)
class _Known:
    """A memory that has been looked over."""

    id: Names
    code: Ints
    of_jobs: list[Floats]
    tenant: Names
    window: Window
    ended: Ended


def _read(memory: Any, buckets: int, bucket_s: float) -> _Known:
    try:
        known = cast(Names, memory["id"])
        n, tenant = np.size(known), cast(Names, memory["tenant"])
        code = ints(memory["code"], "memory.code", (n,))
        of_jobs = [_amounts(memory[field], f"memory.{field}", (n,)) for field in _OF_JOBS]
        shape = (np.size(tenant), buckets)
        tables = [_amounts(memory[field], f"memory.{field}", shape) for field in _OF_TENANTS]
        entries = (np.size(memory["ended_gang"]),)
        ended = [ints(memory[field], f"memory.{field}", entries) for field in _OF_ENDED]
        newest = number(memory["newest"], "memory.newest")
        length = number(memory["bucket_s"], "memory.bucket_s")
    except (KeyError, TypeError, IndexError):
        raise InstanceError("memory: not one of astraea: it lacks a column") from None
    if newest != np.floor(newest) or not abs(newest) <= LARGEST:
        raise InstanceError(f"memory.newest = {newest}: must be the number of a bucket")
    if length != bucket_s:
        raise InstanceError(
            f"memory: its window has buckets of {length} s, that of astraea of {bucket_s:g} s"
        )
    if np.asarray(known).dtype.kind != "U" or np.asarray(tenant).dtype.kind != "U":
        known, tenant = names(known, "memory.id"), names(tenant, "memory.tenant")
    return _Known(
        known, code, of_jobs, tenant, Window(int(newest), bucket_s, *tables), Ended(*ended)
    )


def _amounts(given: object, where: str, shape: tuple[int, ...]) -> Floats:
    column = floats(given, where, shape)
    require(column, np.isfinite(column), where, "must be finite")
    if not where.endswith("last_run_s"):
        require(column, column >= 0, where, "must not be negative")
    return column


def places(known: Names, known_code: Ints | None, ids: Names, code: Ints | None) -> Ints:
    """Place of each id among those known, -1 for newcomers, shape (n,).

    Codes are a hint only: names decide. From round to round most jobs stay, and their codes find
    them without looking at every name in Python.
    """
    if np.array_equal(known, ids):
        return np.arange(ids.size, dtype=np.int64)
    out = np.full(ids.size, -1, dtype=np.int64)
    gone = np.ones(known.size, dtype=np.bool_)
    if known_code is not None and code is not None and known.size:
        order = np.argsort(known_code, kind="stable")
        at = order[np.searchsorted(known_code, code, sorter=order).clip(max=known.size - 1)]
        same = np.flatnonzero((known_code[at] == code) & (known[at] == ids))
        out[same] = at[same]
        gone[at[same]] = False
    new, left = np.flatnonzero(out < 0), np.flatnonzero(gone)
    place = dict(zip(known[left].tolist(), left.tolist(), strict=True))
    out[new] = [place.get(name, -1) for name in ids[new].tolist()]
    return out
