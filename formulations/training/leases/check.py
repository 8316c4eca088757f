"""A plan judged job by job, by code that knows nothing of classes, rows or solvers."""

from __future__ import annotations

import numpy as np

from apportion.formulations.training.leases.lease_jobs import LeaseJobs
from apportion.instances.columns import Bools, Ints


def plan_faults(
    jobs: LeaseJobs,
    capacity: Ints,
    option: Ints,
    offsets: Ints,
    lease: Ints,
    keep: Bools | None = None,
) -> tuple[str, ...]:
    """List what is wrong with a plan; empty where it is valid.

    Parameters
    ----------
    jobs, capacity
        The instance.
    option
        Option of each job, -1 for none, shape (n,).
    offsets, lease
        Leases of job j are ``lease[offsets[j]:offsets[j + 1]]``.
    keep
        Jobs that must be in the plan, shape (n,).
    """
    n, faults = len(jobs), list[str]()
    if option.shape != (n,) or offsets.shape != (n + 1,) or int(offsets[-1]) != lease.size:
        return ("the plan's columns do not fit the jobs",)
    count, options = np.diff(offsets), np.diff(jobs.option_offsets)
    job = np.repeat(np.arange(n), count)
    outside = (lease < 0) | (lease >= capacity.size)
    if (count < 0).any() or (option < -1).any() or (option >= options).any() or outside.any():
        return ("an option or a lease does not exist",)
    admitted = option >= 0
    for rows, text in (
        (count != np.where(admitted, jobs.need, 0), "has not as many leases as it needs"),
        (~admitted if keep is None else ~admitted & keep, "must be in the plan and is not"),
    ):
        if keep is None and text.startswith("must"):
            continue
        faults += [f"job {row} {text}" for row in np.flatnonzero(rows)[:1].tolist()]
    due = jobs.due[jobs.option_offsets[:-1] + np.maximum(option, 0)]
    late = np.flatnonzero(lease >= due[job])
    faults += [f"job {int(job[at])} runs in lease {int(lease[at])}, too late" for at in late[:1]]
    pairs = job * capacity.size + lease
    if np.unique(pairs).size != pairs.size:
        faults.append("a job has a lease twice")
    use = np.bincount(lease, weights=jobs.gang[job], minlength=capacity.size)
    full = np.flatnonzero(use > capacity)
    faults += [f"lease {int(at)} is overbooked" for at in full[:1]]
    return tuple(faults)
