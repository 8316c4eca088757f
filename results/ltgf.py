"""Long-term GPU-time fairness: GPU time a tenant or a job had, in parts of what it was due.

Unlike finish-time fairness it counts GPUs as well as waiting. Source: Astraea (TPDS 2022) and its
released simulator; the summaries over time and tenants are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Bools, Floats, Ints, Names
from apportion.instances.training import Tenants
from apportion.instances.training.jobs import NEVER
from apportion.results.range_sums import sums_below
from apportion.results.speeds import admitted

WINDOW_S = 86_400.0
"""Length of the tenants' sliding window: 24 buckets of one hour in Astraea's simulator."""

FAIR = 0.95
"""A job with LTGF in [0.95, 1/0.95] got what it was due: Astraea's own classes. Its third class
begins at 1.05, below 1/0.95; ours begins where "fair" ends, so that the three add up to one."""

_ROUNDING = 1e-12
"""In parts of all GPU time due to a tenant: what its running sum may be off by."""

_NEAR = 0.1
"""Relative change of a denominator up to which a quotient is integrated by quadrature: there the
logarithm of the closed form cancels, and eight nodes err by less than 1e-16."""

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)


def quotas(tenants: Tenants, gpus: int) -> Floats:
    """Give the GPUs each tenant is entitled to, shape (tenants,).

    Its own quota where one is set, else ``floor(gpus * weight / sum of weights)``.
    """
    # a weight of a third of three must not round down to one GPU less
    part = gpus * (tenants.weight / tenants.weight.sum())
    return np.where(np.isinf(tenants.quota_gpus), np.floor(part + 1e-9), tenants.quota_gpus)


def job_ltgf(run: Run) -> Floats:
    """Work out each job's GPU time in parts of what it was due, at its end or that of the run.

    ``LTGF_j = held GPU time / integral of min(gang, quota * weight_j / sum of weights)``, the sum
    over the jobs of its tenant that are active, the integral from its arrival on.

    Returns
    -------
    Floats
        Shape (n,); NaN for jobs that never could run, those that come after the records end, and
        those of tenants entitled to no GPU.
    """
    jobs, able = run.scenario.jobs, admitted(run)
    quota = quotas(run.scenario.tenants, int(run.scenario.cluster.gpus.sum()))[jobs.tenant]
    due = _due_to_jobs(
        jobs.tenant, jobs.arrival_s, demanded_until(run), able, jobs.weight, jobs.gang, quota
    )
    out = np.full(len(jobs), np.nan)
    # one that ended as it came was due nothing, and nothing was withheld
    out[able & (quota > 0) & (run.jobs.finish_s != NEVER)] = 1.0
    return np.divide(run.jobs.gpu_s, due, out=out, where=able & (due > 0))


def demanded_until(run: Run) -> Floats:
    """End of each job's demand: its finish, or the end of the records."""
    finish = run.jobs.finish_s
    return np.maximum(
        np.where(finish == NEVER, recorded_until(run), finish), run.scenario.jobs.arrival_s
    )


def recorded_until(run: Run) -> float:
    """End of the records, seconds since the epoch."""
    ends = (run.rounds.end_s, run.leases.end_s, run.jobs.finish_s)
    return float(max(column.max(initial=0.0) for column in ends))


def _due_to_jobs(
    tenant: Ints, start_s: Floats, end_s: Floats, able: Bools, weight: Floats, gang: Ints,
    quota: Floats,
) -> Floats:  # fmt: skip
    """Integrate what each job is due: between two events of a tenant nothing changes.

    While the active weights W of the tenant are at most ``quota * weight / gang`` a job is due
    its gang, else ``quota * weight / W``; so that two sums over its lifetime, of lengths and of
    lengths / W, each of the stretches with W below that threshold, give the integral.
    """
    length, load, first, stop = _stretches(tenant, start_s, end_s, able, weight)
    rows = np.flatnonzero(able)
    own, most = quota[rows] * weight[rows], gang[rows].astype(np.float64)
    ascending = np.argsort(load, kind="stable")
    rank = np.empty(load.size, dtype=np.int64)
    rank[ascending] = np.arange(load.size)
    cut = np.searchsorted(load[ascending], own / most, side="right").astype(np.int64)
    per_weight = length / load
    table = np.stack((length, per_weight))
    low = sums_below(rank, table, first, stop, cut)
    whole = np.concatenate(([0.0], np.cumsum(per_weight)))
    rest = np.maximum(whole[stop] - whole[first] - low[1], 0.0)
    out = np.zeros(tenant.size)
    out[rows] = most * low[0] + own * rest
    return out


def _stretches(
    tenant: Ints, start_s: Floats, end_s: Floats, able: Bools, weight: Floats
) -> tuple[Floats, Floats, Ints, Ints]:
    """Cut each tenant's time at its events, tenants one after another.

    Returns
    -------
    tuple
        Length and active weights of each stretch, and where the lifetime of each able job begins
        and ends among them.
    """
    rows = np.flatnonzero(able)
    m = rows.size
    times = np.concatenate((start_s[rows], end_s[rows]))
    owner = np.concatenate((tenant[rows], tenant[rows]))
    steps = np.concatenate((weight[rows], -weight[rows]))
    order = np.lexsort((times, owner))
    place = np.empty(2 * m, dtype=np.int64)
    place[order] = np.arange(2 * m)
    # in pauses, which no lifetime covers, the sum is 0 or what rounding leaves of it
    load = np.maximum(np.cumsum(steps[order]), weight[rows].min(initial=np.inf))
    length = np.zeros(2 * m)
    length[:-1] = np.where(np.diff(owner[order]) == 0, np.diff(times[order]), 0.0)
    return length, load, place[:m], place[m:]


@dataclass(frozen=True, eq=False)
class TenantFairness:
    """Long-term GPU-time fairness of tenants, averaged over time.

    Parameters
    ----------
    tenant
        Names of those entitled to a GPU that had a job which could run, shape (u,).
    mean
        LTGF, averaged over the time in which something was due within the window, shape (u,).
    loss
        ``max(0, 1 - LTGF)``, averaged over the same time, shape (u,).
    """

    tenant: Names
    mean: Floats
    loss: Floats


def tenant_fairness(run: Run, window_s: float = WINDOW_S) -> TenantFairness:
    """Average each tenant's LTGF over the records, exactly.

    Both GPU times are linear between events and their echoes one window later, so that LTGF is a
    quotient of linear functions there.

    Parameters
    ----------
    run
        Records of the executor.
    window_s
        Length of the window.
    """
    end = recorded_until(run)
    names: list[str] = []
    mean: list[float] = []
    loss: list[float] = []
    for name, had, due in _histories(run):
        times = np.concatenate((had.times, due.times))
        times = np.unique(np.concatenate((times, times + window_s, (end,))))
        times = times[times <= end]
        u, d = had.within(times, window_s), due.within(times, window_s)
        least = _ROUNDING * due.total[-1]
        kept = (np.maximum(d[:-1], d[1:]) > least) & (np.diff(times) > 0)
        watched_s = float(np.diff(times)[kept].sum())
        if watched_s <= 0.0:
            continue
        pieces = _pieces(times, u, d, least, kept)
        names.append(name)
        mean.append(float(_quotient(*pieces).sum()) / watched_s)
        loss.append(float(_shortfall(*pieces).sum()) / watched_s)
    return TenantFairness(np.array(names, dtype=np.str_), np.array(mean), np.array(loss))


def tenant_ltgf(run: Run, at_s: Floats, window_s: float = WINDOW_S) -> dict[str, Floats]:
    """Give each tenant's LTGF at some moments, 1 where nothing was due within the window.

    ``LTGF_u = integral of GPUs held / integral of min(GPUs wanted, quota)`` over the last
    ``window_s``; GPUs wanted are the gangs of running and waiting jobs.

    Parameters
    ----------
    run
        Records of the executor.
    at_s
        Moments, seconds since the epoch.
    window_s
        Length of the window.
    """
    out: dict[str, Floats] = {}
    for name, had, due in _histories(run):
        d = due.within(at_s, window_s)
        some = d > _ROUNDING * due.total[-1]
        u = had.within(at_s, window_s)
        out[name] = np.divide(u, d, out=np.ones(at_s.size), where=some)
    return out


@dataclass(frozen=True, eq=False)
class _History:
    """A running integral of a step function: ``total`` at ``times``, linear in between."""

    times: Floats
    total: Floats

    @classmethod
    def of(cls, start_s: Floats, end_s: Floats, amount: Floats, most: float = np.inf) -> _History:
        """Add up amounts that are there for an interval each, at most ``most`` at a time."""
        times = np.concatenate((start_s, end_s))
        order = np.argsort(times, kind="stable")
        level = np.minimum(np.cumsum(np.concatenate((amount, -amount))[order]), most)
        times = times[order]
        total = np.concatenate((np.zeros(1), np.cumsum(level[:-1] * np.diff(times))))
        return cls(times, total)

    def within(self, at_s: Floats, window_s: float) -> Floats:
        """Give the integral over the last ``window_s`` before each moment."""
        then = np.interp(at_s - window_s, self.times, self.total)
        return np.interp(at_s, self.times, self.total) - then


_NOTHING = _History(np.zeros(1), np.zeros(1))


def _histories(run: Run) -> Iterator[tuple[str, _History, _History]]:
    """Give name, GPUs held and GPUs due over time of each tenant that was due something."""
    jobs, leases, tenants = run.scenario.jobs, run.leases, run.scenario.tenants
    able, until = admitted(run), demanded_until(run)
    quota = quotas(tenants, int(run.scenario.cluster.gpus.sum()))
    u = tenants.id.size
    job_rows = _grouped(np.where(able, jobs.tenant, u), u)
    lease_rows = _grouped(jobs.tenant[leases.job], u)
    for at in range(u):
        rows, held = job_rows[at], lease_rows[at]
        if quota[at] <= 0 or not rows.size:
            continue
        gang = jobs.gang[rows].astype(np.float64)
        due = _History.of(jobs.arrival_s[rows], until[rows], gang, float(quota[at]))
        gpus = leases.gpus[held].astype(np.float64)
        had = _NOTHING
        if held.size:
            had = _History.of(leases.start_s[held], leases.end_s[held], gpus)
        yield str(tenants.id[at]), had, due


def _grouped(group: Ints, count: int) -> list[Ints]:
    """List the rows of each group number below ``count``."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(count + 1))
    return [order[bounds[at] : bounds[at + 1]] for at in range(count)]


def _pieces(
    times: Floats, u: Floats, d: Floats, least: float, kept: Bools
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Give length and both ends of u and d of the pieces that are kept.

    Where nothing was due at one end, nothing was had there either: the quotient is that of the
    other end throughout.
    """
    u0, u1, d0, d1 = u[:-1][kept], u[1:][kept], d[:-1][kept], d[1:][kept]
    begins, ends = d0 <= least, d1 <= least
    return (
        np.diff(times)[kept],
        np.where(begins, u1, u0), np.where(ends, u0, u1),
        np.where(begins, d1, d0), np.where(ends, d0, d1),
    )  # fmt: skip


def _quotient(length: Floats, n0: Floats, n1: Floats, d0: Floats, d1: Floats) -> Floats:
    """Integrate (n0..n1) / (d0..d1), both linear, over pieces of some length; d0, d1 > 0."""
    a, b = n1 - n0, d1 - d0
    near = np.abs(b) <= _NEAR * d0
    out = np.zeros(length.size)
    for node, weight in zip((_NODES + 1.0) / 2.0, _NODE_WEIGHTS / 2.0, strict=True):
        out += weight * (n0 + a * node) / (d0 + b * node)
    far = ~near
    slope = a[far] / b[far]
    out[far] = slope + (n0[far] - slope * d0[far]) / b[far] * np.log(d1[far] / d0[far])
    return out * length


def _shortfall(length: Floats, u0: Floats, u1: Floats, d0: Floats, d1: Floats) -> Floats:
    """Integrate ``max(0, 1 - u / d)``: from or up to where u reaches d, if it does."""
    n0, n1 = d0 - u0, d1 - u1
    cross = (n0 > 0) != (n1 > 0)
    part = np.divide(n0, n0 - n1, out=np.zeros(length.size), where=cross)
    begin = np.where(cross & (n0 <= 0), part, 0.0)
    stop = np.where(cross & (n0 > 0), part, 1.0)
    none = (n0 <= 0) & (n1 <= 0)
    out = _quotient(
        length * (stop - begin),
        n0 + (n1 - n0) * begin, n0 + (n1 - n0) * stop,
        d0 + (d1 - d0) * begin, d0 + (d1 - d0) * stop,
    )  # fmt: skip
    return np.where(none, 0.0, np.maximum(out, 0.0))
