"""What happened to each job and in each interval between decisions, as columns and as frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from apportion.executor.training.records import Run
from apportion.instances.columns import Bools, Floats
from apportion.instances.training.jobs import NEVER
from apportion.instances.training.laws import isolated_throughput_per_s
from apportion.results.contention import mean_active
from apportion.results.deadlines import DeadlineOutcomes, deadline_outcomes
from apportion.results.ltgf import job_ltgf
from apportion.results.speeds import admitted, normalised_gpu_s, usable_throughput_per_s
from apportion.results.utilisation import CAUSES, ledger, sum_by


@dataclass(frozen=True, eq=False)
class JobOutcomes:
    """Outcome of each job of a run, one row a job in the order of the scenario.

    NaN marks what does not exist: a completion time of a job that did not finish, a waiting time
    of one that never started.

    Parameters
    ----------
    finished, started
        Whether it ended, and whether it ran at all.
    jct_s
        Job completion time, finish - arrival (FFT, ICS 2025; Gavel, OSDI 2020).
    held_s
        Time on GPUs, switching included: the sum of its leases' lengths.
    queueing_s
        Time between arrival and finish in which it held no GPU, jct_s - held_s: the wait for the
        first start and the time after each preemption. Finished jobs only (as in Tiresias,
        NSDI 2019, where preempted jobs go back to the queue).
    starvation_s
        First start - arrival (FFT, ICS 2025). Jobs that started.
    active_mean
        Number of active jobs averaged over its lifetime, itself included; see `mean_active`.
    ideal_exclusive_s
        work / largest throughput over the types its gang fits on: the completion time alone on
        the whole cluster.
    ideal_share_s
        work / throughput on an equal share with ``active_mean`` jobs; the share is Gavel's
        isolated allocation (OSDI 2020) over the types its gang fits on.
    ftf_exclusive
        jct_s / ideal_exclusive_s: finish-time fairness against the whole cluster, a pure number.
        Below 1 only where a job ran faster than its gang's listed speed, as elastic jobs may.
    ftf_share
        jct_s / ideal_share_s: finish-time fairness against an equal share (Themis, NSDI 2020;
        Gavel's isolated allocation; contention averaged as in Shockwave, NSDI 2023). Above 1:
        the job would have done better with its share of the cluster to itself.
    ltgf
        Long-term GPU-time fairness at its end, or that of the run; see `job_ltgf`.
    normalised_gpu_s
        What it did, in GPU-seconds of its slowest type; work x gang / least throughput of the gang.

    Notes
    -----
    Speeds are those that really held; work is what the job really executed, net of what
    failures and preemptions destroyed. A gang fits on a type with a positive throughput for it,
    at least as many GPUs, and the memory its model needs.
    Jobs that never started and fit on no type are never admitted: they do not count as active.
    """

    finished: Bools
    started: Bools
    jct_s: Floats
    held_s: Floats
    queueing_s: Floats
    starvation_s: Floats
    active_mean: Floats
    ideal_exclusive_s: Floats
    ideal_share_s: Floats
    ftf_exclusive: Floats
    ftf_share: Floats
    ltgf: Floats
    normalised_gpu_s: Floats


def job_outcomes(run: Run) -> JobOutcomes:
    """Work out what happened to each job, from the records alone."""
    jobs, records, leases = run.scenario.jobs, run.jobs, run.leases
    n = len(jobs)
    finished = records.finish_s != NEVER
    started = records.first_start_s != NEVER
    jct = np.where(finished, records.finish_s - jobs.arrival_s, np.nan)
    held = sum_by(leases.job, leases.end_s - leases.start_s, n)
    speed = usable_throughput_per_s(run)
    best = speed.max(axis=1, initial=0.0)
    active = _active_mean(jobs.arrival_s, records.finish_s, finished, admitted(run))
    share = np.zeros(n)
    share[finished] = isolated_throughput_per_s(
        speed[finished], jobs.gang[finished], run.scenario.cluster.gpus, active[finished]
    )
    exclusive_s = _ratio(records.work, best, finished)
    share_s = _ratio(records.work, share, finished)
    return JobOutcomes(
        finished=finished,
        started=started,
        jct_s=jct,
        held_s=held,
        # Summing leases may end a rounding error above the completion time.
        queueing_s=np.where(finished, np.maximum(jct - held, 0.0), np.nan),
        starvation_s=np.where(started, records.first_start_s - jobs.arrival_s, np.nan),
        active_mean=active,
        ideal_exclusive_s=exclusive_s,
        ideal_share_s=share_s,
        ftf_exclusive=_ratio(jct, exclusive_s, finished),
        ftf_share=_ratio(jct, share_s, finished),
        ltgf=job_ltgf(run),
        normalised_gpu_s=normalised_gpu_s(run),
    )


def _active_mean(arrival_s: Floats, finish_s: Floats, finished: Bools, admitted: Bools) -> Floats:
    out = np.full(arrival_s.size, np.nan)
    until = np.where(finished, finish_s, np.inf)
    out[admitted] = mean_active(arrival_s[admitted], until[admitted])
    return out


def _ratio(above: Floats, below: Floats, where: Bools) -> Floats:
    out = np.full(above.size, np.nan)
    return np.divide(above, below, out=out, where=where & (below > 0))


def per_job_frame(run: Run) -> pd.DataFrame:
    """Tabulate the jobs of a run, one row a job, in the order of the scenario.

    Returns
    -------
    pandas.DataFrame
        Identity (id, tenant, gang), ``arrival_s``, ``first_start_s``, ``finish_s``, the columns of
        `JobOutcomes`, ``work`` (executed, own unit), ``gpu_s`` (GPU-seconds held),
        ``preemptions``, ``migrations``; of SLO jobs ``deadline_met`` (number of the first deadline
        kept, from 0; -1: none) and ``value_earned``. Missing values are NaN.
    """
    scenario, records = run.scenario, run.jobs
    jobs, outcome = scenario.jobs, job_outcomes(run)
    columns: dict[str, Any] = {
        "id": jobs.id,
        "tenant": scenario.tenants.id[jobs.tenant],
        "gang": jobs.gang,
        "arrival_s": jobs.arrival_s,
        "first_start_s": np.where(outcome.started, records.first_start_s, np.nan),
        "finish_s": np.where(outcome.finished, records.finish_s, np.nan),
        **vars(outcome),
        "work": records.work,
        "gpu_s": records.gpu_s,
        "preemptions": records.preemptions,
        "migrations": records.migrations,
        **_of_deadlines(deadline_outcomes(run)),
    }
    return pd.DataFrame(columns)


def _of_deadlines(outcomes: DeadlineOutcomes) -> dict[str, Any]:
    best_effort = ~outcomes.slo
    return {
        "deadline_met": pd.arrays.IntegerArray(outcomes.met.astype(np.int64), best_effort.copy()),
        "value_earned": np.where(best_effort, np.nan, outcomes.earned),
    }


def per_round_frame(run: Run) -> pd.DataFrame:
    """Tabulate utilisation, one row for each interval between decisions and each GPU type.

    Returns
    -------
    pandas.DataFrame
        ``index``, ``now_s``, ``end_s``, ``reasons``, ``active``, ``running``, ``status``,
        ``objective``, ``gap`` of the interval, ``type``, ``gpus``, the GPU-seconds of the type by
        cause (``busy_gpu_s``, ...), and ``busy_fraction`` = busy / (GPUs x length).
    """
    rounds, cluster = run.rounds, run.scenario.cluster
    m, k = rounds.index.size, cluster.types.size
    columns: dict[str, Any] = {
        name: np.repeat(getattr(rounds, name), k)
        for name in (
            "index", "now_s", "end_s", "reasons", "active", "running", "status", "objective",
            "gap",
        )
    }  # fmt: skip
    columns["type"] = np.tile(cluster.types, m)
    columns["gpus"] = np.tile(cluster.gpus, m)
    for cause, gpu_s in zip(CAUSES, ledger(run), strict=True):
        columns[f"{cause}_gpu_s"] = gpu_s.ravel()
    total = columns["gpus"] * (columns["end_s"] - columns["now_s"])
    columns["busy_fraction"] = _ratio(columns["busy_gpu_s"], total, total > 0)
    return pd.DataFrame(columns)
