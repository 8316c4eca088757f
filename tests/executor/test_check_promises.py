"""Reservations ahead, counted at all instants at once: equal to counting them one by one."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from apportion.executor.training import check_commitments
from apportion.executor.training.check_promises import kept_ahead
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Cluster, Commitments, Jobs, TrainingRound

NOW = 2.0


def one_by_one(round_, a):
    """Count anew for every reservation ahead what is held and promised when it begins."""
    c, jobs = round_.commitments, round_.jobs
    bound = ~jobs.preemptible[a.job] | a.guaranteed
    sure = jobs.guaranteed[a.job] & (jobs.lease_end_s[a.job] > round_.now_s)
    before = jobs.running[a.job] & (~jobs.preemptible[a.job] | sure)
    before |= np.isin(a.job, c.job[(c.start_s <= round_.now_s) & (round_.now_s < c.end_s)])
    new = bound & ~before
    if not new.any():
        return []
    end = np.where(jobs.preemptible[a.job], a.lease_end_s, np.inf)
    found = []
    for i in np.flatnonzero(c.start_s > round_.now_s).tolist():
        start = float(c.start_s[i])
        on = bound & (end > start) & (a.job != c.job[i])
        others = (c.start_s <= start) & (start < c.end_s) & ~np.isin(c.job, a.job[on])
        left = [
            int(has) - int(a.gpus[on & (a.gpu_type == kind)].sum())
            - int(c.gpus[others & (c.gpu_type == kind)].sum())
            for kind, has in enumerate(round_.capacity.tolist())
        ]  # fmt: skip
        short = any(left[kind] < 0 for kind in set(a.gpu_type[new].tolist()))
        if short or sum(left) < int(c.gpus[others & (c.gpu_type < 0)].sum()):
            text = (
                f"job {str(jobs.id[c.job[i]])!r}: {c.gpus[i]} GPUs are reserved from {start:g}, when"
                " jobs that start now and may not be stopped still hold them"
            )
            found.append(Violation("reservation_ahead", text))
    return found


def instant_by_instant(round_, c, a):
    """Count at every start of a reservation what is promised and what is guaranteed."""
    now, types, found = round_.now_s, round_.cluster.types, []
    spans = list(zip(c.start_s, c.end_s, c.gpus, c.gpu_type, strict=True))
    held = np.flatnonzero(a.guaranteed & ~np.isin(a.job, c.job)).tolist()
    spans += [(now, a.lease_end_s[row], a.gpus[row], a.gpu_type[row]) for row in held]
    for instant in sorted({max(start, now) for start, *_ in spans}):
        on = [(gpus, kind) for start, end, gpus, kind in spans if start <= instant < end]
        for index, has in enumerate(round_.capacity.tolist()):
            total = sum(int(gpus) for gpus, kind in on if kind == index)
            if total > has:
                found.append(
                    f"{types[index]}: {total} GPUs promised at {instant:g}, {has} in service"
                )
        total, most = sum(int(gpus) for gpus, _ in on), int(round_.capacity.sum())
        if total > most:
            found.append(f"{total} GPUs promised at {instant:g}, {most} in service")
    return found


def drawn(rng):
    """A round whose times tie often, with promises of all kinds, and an allocation of its jobs."""
    n, k = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    most = rng.integers(2, 9, k)
    on = rng.random(n) < 0.4
    sure = on & (rng.random(n) < 0.5)
    kind = np.where(on, rng.integers(0, k, n), -1)
    gang = rng.integers(1, 4, n)
    m = int(rng.integers(1, 2 * n + 6))
    owner, start = rng.integers(0, n, m), rng.integers(0, 8, m).astype(float)
    # one type for each job: two at a time are refused with the round
    usual = np.where(rng.random(n) < 0.4, -1, rng.integers(0, k, n))
    round_ = TrainingRound(
        cluster=Cluster.uniform({f"t{i}": int(g) for i, g in enumerate(most)}, gpus_per_node=1),
        jobs=Jobs.of(
            id=[f"j{i}" for i in range(n)], gang=gang, work=np.full(n, 100.0),
            throughput_per_s=np.ones((n, k)), preemptible=rng.random(n) < 0.6,
        ),
        commitments=Commitments.of(
            owner, start, start + rng.integers(1, 5, m), rng.integers(1, gang[owner] + 1),
            np.where(rng.random(m) < 0.2, -1, usual[owner]),
        ),
        now_s=NOW,
    )  # fmt: skip
    # what is asked reads these columns only: leases that no round would hold are drawn as well
    for name, column in (
        ("running", on), ("guaranteed", sure), ("previous_type", kind),
        ("lease_end_s", rng.integers(0, 8, n).astype(float)),
    ):  # fmt: skip
        round_.jobs.__dict__[name] = column
    rows = np.flatnonzero(rng.random(n) < 0.7)
    ends = rng.choice([2.5, 3.0, 4.0, 5.0, 6.0, np.inf, np.nan], rows.size)
    allocation = Allocation.of(
        rows, rng.integers(0, k, rows.size), gang[rows], guaranteed=rng.random(rows.size) < 0.5
    )
    # the checker says of a lease without an end that it is none, and goes on
    return round_, replace(allocation, lease_end_s=ends)


def compared(seeds):
    some = over = 0
    for seed in seeds:
        round_, allocation = drawn(np.random.default_rng(seed))
        expected = one_by_one(round_, allocation)
        assert kept_ahead(round_, allocation) == expected, seed
        some += bool(expected)
        told = [
            one.message
            for one in check_commitments(round_, round_.commitments, allocation)
            if " promised at " in one.message
        ]
        if (round_.commitments.end_s > NOW).all():
            assert told == instant_by_instant(round_, round_.commitments, allocation), seed
            over += bool(told)
    return some, over


@pytest.mark.quick
def test_random_promises():
    some, over = compared(range(400))
    # both verdicts are frequent, or little is compared
    assert 80 < some < 320
    assert over > 20


@pytest.mark.slow
def test_many_random_promises():
    assert min(compared(range(1000, 6000))) > 250


def many(rng, n, leases):
    """A day of reservations of a large cluster, all of which fit, and a lease that may not stop."""
    start = rng.integers(1, leases, n).astype(float)
    round_ = TrainingRound(
        cluster=Cluster.uniform({"only": n + 1}, gpus_per_node=1),
        jobs=Jobs.of(
            id=[f"j{i}" for i in range(n + 1)], gang=np.ones(n + 1), work=np.ones(n + 1),
            throughput_per_s=np.ones((n + 1, 1)), preemptible=np.arange(n + 1) < n,
        ),
        commitments=Commitments.of(np.arange(n), start, start + 2.0, np.ones(n), np.zeros(n)),
    )  # fmt: skip
    return round_, Allocation.of([n], [0], [1])


@pytest.mark.quick
def test_ten_thousand_reservations_take_milliseconds():
    round_, allocation = many(np.random.default_rng(0), 10_000, 1000)
    began = time.process_time()
    assert kept_ahead(round_, allocation) == []
    assert check_commitments(round_, round_.commitments, allocation) == []
    # counted one by one they took half a minute
    assert time.process_time() - began < 0.5
