"""Who is audited: users, what they hold, and what any bundle of GPUs is worth to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances import InstanceError
from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.training import Allocation, Shares, TrainingRound
from apportion.instances.training.jobs import NEVER
from apportion.results.speeds import usable_throughput_per_s
from apportion.results.utilisation import sum_by

TOLERANCE = 1e-6
"""Relative to the larger of 1 and the amounts compared: shares come from solvers, which obey
their rows to as much."""

SAME_SPEED = 1e-6
"""Relative difference of two jobs' relative speeds that is no more than rounding of reports."""

_BLOCK = 500_000
"""Pairs of a user and a bundle worked on at once: a few megabytes a table, which caches hold."""


@dataclass(frozen=True, eq=False)
class AuditedUsers:
    """Users side by side: n of them, k GPU types.

    Parameters
    ----------
    name
        Shape (n,).
    weight
        What each is entitled to relative to the others, shape (n,).
    speed
        Throughput of one GPU, in parts of that on the slowest type the user can use; 0 where it
        can use none. Shape (n, k).
    most
        GPUs that a user can use at a time: the gang of a job that runs whole or not at all,
        infinite where any number helps. Shape (n,).
    gpus
        What each holds, GPUs averaged over time, shape (n, k).
    capacity
        GPUs there are for them, averaged over time, shape (k,).
    types
        Names of the GPU types.
    of
        What ``gpus`` are: ``"planned shares"``, ``"this round's leases"``, ``"executed leases"``.
    whole_gang
        True: every user is one job, and ``most`` is its gang.
    of_job
        User of each job of the round or scenario, -1 for those left out, shape (jobs,).
    notes
        What a reader should know of them.
    """

    name: Names
    weight: Floats
    speed: Floats
    most: Floats
    gpus: Floats
    capacity: Floats
    types: Names
    of: str
    whole_gang: bool
    of_job: Ints
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.name.size

    @property
    def utility(self) -> Floats:
        """Normalised throughput of each user with what it holds, shape (n,)."""
        return utility(self.speed, self.most, self.gpus)

    def with_gpus(self, gpus: Floats) -> AuditedUsers:
        """Give the same users with other bundles."""
        return replace(self, gpus=gpus)


def utility(speed: Floats, most: Floats, gpus: Floats) -> Floats:
    """Value bundles at their best use: the fastest types first, up to the GPUs a user can use.

    A job that needs its whole gang and spends a part y[i] of its time on each type, sum y <= 1,
    uses ``gang * y[i]`` GPUs of it on average: the best y is a fractional knapsack, and taking the
    fastest types first solves it.

    Parameters
    ----------
    speed, gpus
        Broadcast against one another, last axis GPU types.
    most
        Without the last axis.

    Returns
    -------
    Floats
        GPUs of the user's slowest type that would do as much, without the last axis.
    """
    if np.isinf(most).all():
        return cast(Floats, (speed * gpus).sum(axis=-1))
    speed, gpus = np.broadcast_arrays(speed, gpus)
    order = np.argsort(-speed, axis=-1, kind="stable")
    best = np.take_along_axis(speed, order, axis=-1)
    held = np.take_along_axis(gpus, order, axis=-1)
    before = np.cumsum(held, axis=-1) - held
    used = np.clip(np.expand_dims(np.asarray(most), -1) - before, 0.0, held)
    return cast(Floats, (best * used).sum(axis=-1))


def valued_bundles(users: AuditedUsers) -> Iterator[tuple[Ints, Floats]]:
    """Value everybody's bundle, scaled to one's own weight, to some users at a time.

    Yields
    ------
    tuple of Ints and Floats
        Rows of users l, and ``utility_l(gpus_i * weight_l / weight_i)``, shape (those users, n).
    """
    n = len(users)
    step = max(1, _BLOCK // max(1, n))
    per_weight = users.gpus / users.weight[:, None]
    # users that like the types in the same order fill their gangs in step, one type after another
    orders, group = np.unique(
        np.argsort(-users.speed, axis=1, kind="stable"), axis=0, return_inverse=True
    )
    for number, order in enumerate(orders.tolist()):
        alike = np.flatnonzero(group.reshape(-1) == number)
        for first in range(0, alike.size, step):
            rows = alike[first : first + step]
            yield rows, _filled(users, rows, order, per_weight)


def _filled(users: AuditedUsers, rows: Ints, order: list[int], per_weight: Floats) -> Floats:
    """Fill the gangs of some users with the types of everybody's bundles, in one order."""
    weight = users.weight[rows, None]
    left = np.repeat(users.most[rows, None], len(users), axis=1)
    out = np.zeros_like(left)
    for kind in order:
        used = np.minimum(weight * per_weight[:, kind], left)
        left -= used
        out += users.speed[rows, kind, None] * used
    return out


def users_of_shares(
    round_: TrainingRound, shares: Shares, allocation: Allocation, *, capped: bool = True
) -> AuditedUsers:
    """Take the users of a decision's shares; speeds and capacity come from the round alone.

    GPUs that the decision leaves to jobs without a part in the shares are not there to be shared.

    Parameters
    ----------
    round_
        What was asked.
    shares
        What the policy says each user is meant to have.
    allocation
        Of the same decision.
    capped
        True: a user that may use any number of GPUs uses no more than the gangs of its jobs add up
        to. False: more GPUs always help, as where OEF is first stated.

    Raises
    ------
    InstanceError
        If the shares have another number of jobs or GPU types than the round, or a user that is
        one job by its own word has several.
    """
    n, k = len(round_.jobs), round_.cluster.types.size
    if shares.of_job.size != n or (shares.user.size and shares.gpus.shape[1] != k):
        raise InstanceError(
            f"shares: of {shares.of_job.size} jobs and {shares.gpus.shape[1]} GPU types, the round"
            f" has {n} jobs and {k} GPU types"
        )
    part = shares.of_job >= 0
    count = np.bincount(shares.of_job[part], minlength=shares.user.size)
    if shares.whole_gang and (count > 1).any():
        raise InstanceError(
            f"shares.of_job: user {str(shares.user[int(count.argmax())])!r} runs whole gangs and"
            f" has {int(count.max())} jobs: each needs a user of its own"
        )
    gang = round_.jobs.gang.astype(np.float64)
    speed, notes = _speeds(round_, shares)
    most = np.full(shares.user.size, np.inf)
    if capped or shares.whole_gang:
        most = np.bincount(shares.of_job[part], weights=gang[part], minlength=most.size)
    jobs = round_.jobs
    kept = jobs.running & (
        ~jobs.preemptible | (jobs.guaranteed & (jobs.lease_end_s > round_.now_s))
    )
    if (kept & part).any():
        notes += ("leases that may not be stopped are judged as if they could",)
    others = ~part[allocation.job]
    taken = sum_by(allocation.gpu_type[others], allocation.gpus[others].astype(np.float64), k)
    return AuditedUsers(
        name=shares.user, weight=shares.weight, speed=speed, most=most.astype(np.float64),
        gpus=shares.gpus.reshape(shares.user.size, k), capacity=round_.capacity - taken,
        types=round_.cluster.types, of="planned shares", whole_gang=shares.whole_gang,
        of_job=shares.of_job, notes=notes,
    )  # fmt: skip


def users_of_leases(round_: TrainingRound, allocation: Allocation) -> AuditedUsers:
    """Take each job that could run as a user, and the GPUs of one round as what it holds."""
    rows = np.flatnonzero(round_.startable)
    place = np.full(len(round_.jobs), -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    gpus = np.zeros((len(round_.jobs), round_.cluster.types.size))
    gpus[allocation.job, allocation.gpu_type] = allocation.gpus
    shares = Shares(
        user=round_.jobs.id[rows], weight=round_.jobs.weight[rows], gpus=gpus[rows],
        of_job=place, whole_gang=True,
    )  # fmt: skip
    users = users_of_shares(round_, shares, allocation)
    note = "each job is a user; a plan for one round cannot be fair to jobs that take turns"
    return replace(users, of="this round's leases", notes=(*users.notes, note))


def users_of_run(run: Run, start_s: float, end_s: float) -> AuditedUsers:
    """Take the jobs that were there all through an interval, and the GPUs they held on average.

    What other jobs held then, and what was on nodes out of service, is not there to be shared; of
    an interval between decisions that lies across an end of this one, the part within it counts.

    Raises
    ------
    InstanceError
        If the interval has no length.
    """
    if not start_s < end_s:
        raise InstanceError(f"audit: the interval [{start_s}, {end_s}) s has no length")
    jobs, cluster, leases = run.scenario.jobs, run.scenario.cluster, run.leases
    n, k, length = len(jobs), cluster.types.size, end_s - start_s
    speed = usable_throughput_per_s(run)
    there = (jobs.arrival_s <= start_s) & (speed.max(axis=1, initial=0.0) > 0)
    there &= (run.jobs.finish_s == NEVER) | (run.jobs.finish_s >= end_s)
    rows = np.flatnonzero(there)
    place = np.full(n, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    held_s = np.minimum(leases.end_s, end_s) - np.maximum(leases.start_s, start_s)
    gpu_s = leases.gpus.astype(np.float64) * np.maximum(held_s, 0.0)
    held = sum_by(leases.job * k + leases.gpu_type, gpu_s, n * k).reshape(n, k) / length
    rounds = run.rounds
    within_s = np.minimum(rounds.end_s, end_s) - np.maximum(rounds.now_s, start_s)
    whole_s = rounds.end_s - rounds.now_s
    part = np.divide(
        np.maximum(within_s, 0.0), whole_s, out=np.zeros(whole_s.size), where=whole_s > 0
    )
    down = (rounds.down_gpu_s.reshape(-1, k) * part[:, None]).sum(axis=0) / length
    return AuditedUsers(
        name=jobs.id[rows], weight=jobs.weight[rows], speed=relative(speed[rows]),
        most=jobs.gang[rows].astype(np.float64), gpus=held[rows],
        capacity=np.maximum(cluster.gpus - down - held[~there].sum(axis=0), 0.0),
        types=cluster.types, of="executed leases", whole_gang=True, of_job=place,
        notes=(f"jobs present all through [{start_s:g}, {end_s:g}) s, real speeds",),
    )  # fmt: skip


def relative(throughput_per_s: Floats) -> Floats:
    """Divide throughputs by that on the slowest type that can be used, shape (n, k)."""
    usable = throughput_per_s > 0
    slowest = np.where(usable, throughput_per_s, np.inf).min(axis=1, initial=np.inf)
    return np.where(usable, throughput_per_s / slowest[:, None], 0.0)


def _speeds(round_: TrainingRound, shares: Shares) -> tuple[Floats, tuple[str, ...]]:
    """Speeds of each user: those of its first job, on types that fit one of its gangs."""
    k = round_.cluster.types.size
    rows = np.flatnonzero(shares.of_job >= 0)
    user = shares.of_job[rows]
    fits = np.zeros((shares.user.size, k), dtype=np.bool_)
    np.logical_or.at(fits, user, round_.eligible[rows])
    first = np.full(shares.user.size, -1, dtype=np.int64)
    first[user[::-1]] = rows[::-1]
    known = first >= 0
    rate = np.zeros((shares.user.size, k))
    rate[known] = round_.jobs.throughput_per_s[first[known]]
    usable = fits & (rate > 0)
    notes = _unlike(round_, shares, rows, user, rate)
    if not known.all():
        notes += (f"users without a job: {', '.join(shares.user[~known].tolist())}",)
    return relative(np.where(usable, rate, 0.0)), notes


def _unlike(
    round_: TrainingRound, shares: Shares, rows: Ints, user: Ints, rate: Floats
) -> tuple[str, ...]:
    """Name the users whose jobs do not run at the same relative speeds."""
    own = round_.jobs.throughput_per_s[rows]
    scale = own.max(axis=1, initial=0.0), rate[user].max(axis=1, initial=0.0)
    apart = np.abs(own * scale[1][:, None] - rate[user] * scale[0][:, None])
    odd = (apart > SAME_SPEED * (scale[0] * scale[1])[:, None]).any(axis=1)
    if not odd.any():
        return ()
    named = ", ".join(shares.user[np.unique(user[odd])].tolist())
    return (f"jobs of one user run at different relative speeds, the first one's count: {named}",)
