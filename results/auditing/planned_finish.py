"""Finish-time fairness of a plan: would each job end as early as on its own part of the cluster."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.training import TrainingRound
from apportion.results.auditing.audited import TOLERANCE, AuditedUsers, relative, utility
from apportion.results.auditing.findings import Finding

NAME = "finish-time-fairness"


def planned_finish(users: AuditedUsers, round_: TrainingRound) -> Finding:
    """Find the job whose planned completion time is longest in parts of the isolated one.

    ``rho_j = (now - arrival + left / rate) / (work / isolated rate)`` with the rate that the
    shares give, kept up to the end, and the isolated rate of as many sharers as there are now,
    from arrival on. A user's jobs split what it has in proportion to their gangs. The margin is
    ``1 - rho``.

    Source: finish-time fairness as in Themis (NSDI 2020) and Gavel (OSDI 2020). Gavel adds up the
    isolated time of work already done as sharers come and go; a round does not tell that past.
    """
    rows = np.flatnonzero(users.of_job >= 0)
    if not rows.size:
        return Finding(NAME, None, words="needs a job")
    rho = finish_time_ratio(users, round_, rows)
    known = ~np.isnan(rho)
    if not known.any():
        return Finding(NAME, None, words="no job can run on its own part of the cluster")
    rows, rho = rows[known], rho[known]
    at = int(rho.argmax())
    name = str(round_.jobs.id[rows[at]])
    holds = bool(rho[at] <= 1.0 + TOLERANCE)
    if np.isinf(rho[at]):
        words = f"{name} would never end: it is given no GPUs it can use"
        return Finding(NAME, False, (name,), None, words)
    words = f"{name} would end after {rho[at]:.4g} times its time on an equal part"
    return Finding(NAME, holds, (name,), float(1.0 - rho[at]), words)


def finish_time_ratio(users: AuditedUsers, round_: TrainingRound, rows: Ints) -> Floats:
    """Work out rho for some jobs.

    Returns
    -------
    Floats
        Shape of ``rows``; infinite where the plan gives no throughput, NaN where an equal part of
        the cluster gives none either.
    """
    jobs, user = round_.jobs, users.of_job[rows]
    gang = jobs.gang[rows].astype(np.float64)
    # speeds in parts of the job's own slowest type: the unit falls out of the ratio
    rate = jobs.throughput_per_s[rows]
    speed = relative(np.where(round_.eligible[rows], rate, 0.0))
    slowest = np.divide(
        rate.max(axis=1), speed.max(axis=1) * gang, out=np.zeros(rows.size),
        where=speed.max(axis=1) > 0,
    )  # fmt: skip
    all_gangs = np.bincount(user, weights=gang, minlength=len(users))
    own = users.gpus[user] * (gang / all_gangs[user])[:, None]
    planned = utility(speed, gang, own) * slowest
    part = np.maximum(users.capacity, 0.0)[None, :] / (rows.size * gang[:, None])
    part = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    isolated = (speed * part).sum(axis=1) * gang * slowest
    out = np.full(rows.size, np.nan)
    left = np.maximum(jobs.work[rows] - jobs.work_done[rows], 0.0)
    with np.errstate(divide="ignore"):
        remaining_s = np.where(left > 0, left / planned, 0.0)
    fair = isolated > 0
    spent_s = round_.now_s - jobs.arrival_s[rows]
    out[fair] = (spent_s + remaining_s)[fair] * isolated[fair] / jobs.work[rows][fair]
    return out
