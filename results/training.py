"""Metrics of a training run, each a function of the executor's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Floats
from apportion.results.auditing.evenness import jain
from apportion.results.deadlines import deadline_outcomes, tenant_misses
from apportion.results.definitions import (
    Definition,
    definitions,
    metric,
    plain,
    read_plain,
)
from apportion.results.ltgf import FAIR, recorded_until, tenant_fairness
from apportion.results.per_job import JobOutcomes, job_outcomes
from apportion.results.tenant_throughput import tenant_throughput
from apportion.results.utilisation import CAUSES, IDLE, utilisation

_ASTRAEA = "Astraea (TPDS 2022); averages our own"
_CHRONUS = "artifact of Chronus (SoCC 2021)"
_CHRONUS_USERS = "Chronus' rate by user; Jain, Chiu and Hawe (1984)"
_FFT = "FFT (ICS 2025)"
_OEF = "OEF (Middleware 2024); Jain, Chiu and Hawe (1984)"
_RECORDS = "records of the executor"
_SOLVER = "status contract of the solver"
_THEMIS = "Themis (NSDI 2020), Gavel (OSDI 2020), Shockwave (NSDI 2023)"
_TIRESIAS = "as in Tiresias (NSDI 2019)"


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics:
    """What a run amounts to. `DEFINITIONS` says how each number is computed, with unit and source.

    None stands where there is nothing to measure: no mean without a finished job, no gap without
    a proof. Statistics of completion times cover finished jobs only: read them beside
    ``unfinished``, for what did not finish is missing from them. Percentiles interpolate linearly
    (``numpy.percentile(..., method="linear")``).
    """

    jobs: int = metric("jobs", "count", "jobs of the scenario", _RECORDS)
    finished: int = metric("finished", "count", "jobs that ended", _RECORDS, "high")
    unfinished: int = metric(
        "unfinished", "count",
        "jobs that had not ended when the run did; completion statistics leave them out",
        _RECORDS, "low",
    )  # fmt: skip
    never_started: int = metric(
        "never started", "count", "jobs that never ran; starvation statistics leave them out",
        _RECORDS, "low",
    )  # fmt: skip

    jct_mean_s: float | None = metric(
        "mean JCT", "s", "mean of finish - arrival over finished jobs", _FFT, "low"
    )
    jct_p50_s: float | None = metric(
        "p50 JCT", "s", "median of finish - arrival over finished jobs", _FFT, "low"
    )
    jct_p95_s: float | None = metric(
        "p95 JCT", "s", "95th percentile of finish - arrival over finished jobs", _FFT, "low"
    )
    jct_p99_s: float | None = metric(
        "p99 JCT", "s", "99th percentile of finish - arrival over finished jobs", _FFT, "low"
    )
    makespan_s: float | None = metric(
        "makespan", "s", "last finish - first arrival of any job", _FFT, "low"
    )
    queueing_mean_s: float | None = metric(
        "mean queueing", "s",
        "mean over finished jobs of the time between arrival and finish without a GPU: JCT minus"
        " the lengths of its leases (switching counts as held)", _TIRESIAS, "low",
    )  # fmt: skip
    queueing_p95_s: float | None = metric(
        "p95 queueing", "s", "95th percentile of the same", _TIRESIAS, "low"
    )
    starvation_mean_s: float | None = metric(
        "mean first wait", "s", "mean of first start - arrival over jobs that started", _FFT, "low"
    )
    starvation_p95_s: float | None = metric(
        "p95 first wait", "s", "95th percentile of first start - arrival over jobs that started",
        _FFT, "low",
    )  # fmt: skip
    starvation_max_s: float | None = metric(
        "max first wait", "s", "largest first start - arrival over jobs that started", _FFT, "low"
    )

    ftf_share_mean: float | None = metric(
        "mean FTF", "ratio",
        "mean over finished jobs of JCT / (work / isolated throughput with N sharers), N = number"
        " of active jobs averaged over the job's own lifetime", _THEMIS, "low",
    )  # fmt: skip
    ftf_share_p95: float | None = metric(
        "p95 FTF", "ratio", "95th percentile of the same", _THEMIS, "low"
    )
    ftf_share_max: float | None = metric("max FTF", "ratio", "largest of the same", _THEMIS, "low")
    ftf_exclusive_mean: float | None = metric(
        "mean FTF alone", "ratio",
        "mean over finished jobs of JCT / (work / best throughput over types its gang fits on)",
        _FFT, "low",
    )  # fmt: skip
    ftf_exclusive_p95: float | None = metric(
        "p95 FTF alone", "ratio", "95th percentile of the same", _FFT, "low"
    )
    ftf_exclusive_max: float | None = metric(
        "max FTF alone", "ratio", "largest of the same", _FFT, "low"
    )

    ltgf_fair_fraction: float | None = metric(
        "LTGF fair", "fraction",
        "jobs with LTGF in [0.95, 1/0.95] / jobs; LTGF = GPU time held / integral of min(gang, the"
        " job's part by weight of its tenant's quota among the tenant's active jobs), at the job's"
        " end or that of the run; quota = the tenant's own, else floor(GPUs x weight / sum of"
        " weights); tenants with a quota of 0 are left out", _ASTRAEA, "high",
    )  # fmt: skip
    ltgf_loss_fraction: float | None = metric(
        "LTGF loss", "fraction", "jobs with LTGF below 0.95 / jobs", _ASTRAEA, "low"
    )
    ltgf_benefit_fraction: float | None = metric(
        "LTGF benefit", "fraction", "jobs with LTGF above 1/0.95 / jobs", _ASTRAEA
    )
    ltgf_tenant_loss: float | None = metric(
        "tenant unfairness", "ratio",
        "mean over tenants of the mean over time of max(0, 1 - LTGF of the last 24 h); a tenant's"
        " LTGF = GPU time held / integral of min(GPUs wanted, quota), time without any due is left"
        " out", _ASTRAEA, "low",
    )  # fmt: skip
    ltgf_tenant_spread: float | None = metric(
        "tenant spread", "ratio", "largest - least of the tenants' mean LTGF over time", _ASTRAEA,
        "low",
    )  # fmt: skip
    ltgf_tenant_jain: float | None = metric(
        "Jain of tenant LTGF", "ratio", "Jain's index of the tenants' mean LTGF over time", _ASTRAEA,
        "high",
    )  # fmt: skip

    normalised_gpu_s: float = metric(
        "normalised GPU time", "GPU s",
        "sum over leases of work x gang / least throughput of the gang: GPU time on each job's"
        " slowest type that would have done as much; less what was lost", _OEF, "high",
    )  # fmt: skip
    normalised_throughput: float | None = metric(
        "normalised throughput", "ratio",
        "normalised GPU time / time from the first arrival to the end of the records", _OEF, "high",
    )  # fmt: skip
    normalised_jain: float | None = metric(
        "Jain of throughput", "ratio",
        "Jain's index over tenants of normalised GPU time / (weight x time with an active job)",
        _OEF, "high",
    )  # fmt: skip

    slo_jobs: int = metric(
        "SLO jobs", "count", "jobs flagged SLO that have a deadline; all others are best effort",
        _CHRONUS,
    )  # fmt: skip
    deadline_miss_fraction: float | None = metric(
        "deadline miss rate", "fraction",
        "mean over SLO jobs of 1 - value of the first deadline with finish <= deadline / value of"
        " the first deadline, and of 1 where there is none or the job is unfinished", _CHRONUS,
        "low",
    )  # fmt: skip
    deadline_late_fraction: float | None = metric(
        "late", "fraction", "SLO jobs with finish > first deadline, or unfinished / SLO jobs",
        _CHRONUS, "low",
    )  # fmt: skip
    # An amount in the scenario's own units of value; there is no unit for it.
    deadline_value: float = metric(
        "value earned", "count",
        "sum over SLO jobs of the value of the first deadline with finish <= deadline", _CHRONUS,
        "high",
    )  # fmt: skip
    deadline_value_fraction: float | None = metric(
        "value kept", "fraction",
        "value earned / sum over SLO jobs of the value of the first deadline", _CHRONUS, "high",
    )  # fmt: skip
    deadline_tenant_worst_fraction: float | None = metric(
        "worst user's miss rate", "fraction",
        "largest over tenants of the miss rate of their SLO jobs", _CHRONUS_USERS, "low",
    )  # fmt: skip
    # No end is good by itself: all may miss alike.
    deadline_tenant_jain: float | None = metric(
        "Jain of miss rates", "ratio",
        "Jain's index over tenants with SLO jobs of their miss rates; 1 where nobody misses",
        _CHRONUS_USERS,
    )  # fmt: skip
    slo_jct_mean_s: float | None = metric(
        "SLO mean JCT", "s", "mean of finish - arrival over finished SLO jobs", _CHRONUS, "low"
    )
    best_effort_jct_mean_s: float | None = metric(
        "best-effort mean JCT", "s", "mean of finish - arrival over finished best-effort jobs",
        _CHRONUS, "low",
    )  # fmt: skip

    held_gpu_s: float = metric(
        "GPU time held", "GPU s", "GPUs x time over all leases, switching included", _RECORDS
    )
    # No end is good: slow GPUs kept busy raise it as much as good packing does.
    busy_fraction: float | None = metric(
        "busy", "fraction", "GPU-seconds in which work was done / GPUs x recorded time",
        _RECORDS,
    )  # fmt: skip
    stalled_fraction: float | None = metric(
        "stalled", "fraction", "GPU-seconds that went into switches / GPUs x recorded time",
        _RECORDS, "low",
    )  # fmt: skip
    idle_fraction: float | None = metric(
        "idle", "fraction", "sum of the four idle causes / GPUs x recorded time", _RECORDS
    )
    idle_no_demand_fraction: float | None = metric(
        "idle: no demand", "fraction", "free while no waiting job could run on the type", _RECORDS
    )
    idle_no_pack_fraction: float | None = metric(
        "idle: does not pack", "fraction",
        "free while every gang waiting for the type was larger than what was free", _RECORDS,
    )  # fmt: skip
    idle_policy_fraction: float | None = metric(
        "idle: policy", "fraction", "free although a waiting gang would have fitted", _RECORDS
    )
    idle_finished_fraction: float | None = metric(
        "idle: finished early", "fraction", "held by a job that ended before the next decision",
        _RECORDS,
    )  # fmt: skip
    down_fraction: float | None = metric("down", "fraction", "on nodes out of service", _RECORDS)

    preemptions: int = metric(
        "preempted",
        "count",
        "times a decision or the end of its lease took a job's GPUs before it was done",
        _RECORDS,
        "low",
    )
    migrations: int = metric(
        "migrated", "count", "restarts on another type or other nodes than before", _RECORDS,
        "low",
    )  # fmt: skip
    decisions: int = metric(
        "decisions", "count", "decisions taken; rounds in which nothing changed have none", _RECORDS
    )
    worst_gap: float | None = metric(
        "worst gap", "fraction", "largest relative gap over decisions that proved one", _SOLVER,
        "low",
    )  # fmt: skip
    optimal_fraction: float | None = metric(
        "proved optimal", "fraction",
        "decisions with status OPTIMAL / all decisions; none for policies without a model",
        _SOLVER, "high",
    )  # fmt: skip
    decide_p50_s: float | None = metric(
        "p50 decide", "s", "median wall time of a decision", _FFT, "low", timing=True
    )
    decide_p95_s: float | None = metric(
        "p95 decide", "s", "95th percentile of the same", _FFT, "low", timing=True
    )
    decide_max_s: float | None = metric(
        "max decide", "s", "largest of the same", _FFT, "low", timing=True
    )

    types: Mapping[str, Mapping[str, float | None]] = field(
        default_factory=dict[str, Mapping[str, float | None]]
    )
    """Fraction of each GPU type's recorded GPU-seconds by cause (``busy``, ``stalled``, ...)."""
    time_limited: bool = False
    """True: a wall limit stopped a decision, so no byte identity is claimed."""

    def as_dict(self, *, timings: bool = False) -> dict[str, Any]:
        """Turn into plain data for JSON, in a fixed order.

        Parameters
        ----------
        timings
            True adds the wall times under ``"timings"``; without them the same run gives the same
            bytes.
        """
        return plain(self, ("types",), timings=timings)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainingMetrics:
        """Read back what `as_dict` wrote; wall times that were left out are None.

        Raises
        ------
        ValueError
            On a key that is missing or unknown.
        """
        return read_plain(cls, data)


DEFINITIONS: Mapping[str, Definition] = definitions(TrainingMetrics)
"""Definition, unit and source of every metric, in the order of tables and files."""


def training_metrics(run: Run) -> TrainingMetrics:
    """Measure a run, from its records alone."""
    outcome = job_outcomes(run)
    values: dict[str, Any] = {
        **_jobs(run, outcome),
        **_long_term(run, outcome.ltgf),
        **_normalised(run, outcome.normalised_gpu_s),
        **_deadlines(run, outcome.jct_s),
        **_utilisation(run),
        **_decisions(run),
        "time_limited": bool(run.time_limited),
    }
    return TrainingMetrics(**values)


def _jobs(run: Run, outcome: JobOutcomes) -> dict[str, Any]:
    finished = int(outcome.finished.sum())
    jobs, records = run.scenario.jobs, run.jobs
    makespan = None
    if finished:
        last = records.finish_s[outcome.finished].max()
        makespan = float(last - jobs.arrival_s.min())
    return {
        "jobs": len(jobs),
        "finished": finished,
        "unfinished": len(jobs) - finished,
        "never_started": int((~outcome.started).sum()),
        **_statistics(outcome.jct_s, "jct_{}_s", "mean", "p50", "p95", "p99"),
        "makespan_s": makespan,
        **_statistics(outcome.queueing_s, "queueing_{}_s", "mean", "p95"),
        **_statistics(outcome.starvation_s, "starvation_{}_s", "mean", "p95", "max"),
        **_statistics(outcome.ftf_share, "ftf_share_{}", "mean", "p95", "max"),
        **_statistics(outcome.ftf_exclusive, "ftf_exclusive_{}", "mean", "p95", "max"),
        "held_gpu_s": float(records.gpu_s.sum()),
        "preemptions": int(records.preemptions.sum()),
        "migrations": int(records.migrations.sum()),
    }


def _long_term(run: Run, ltgf: Floats) -> dict[str, Any]:
    jobs, tenants = ltgf[~np.isnan(ltgf)], tenant_fairness(run)
    some = bool(tenants.mean.size)
    below, above = jobs < FAIR, jobs > 1.0 / FAIR
    return {
        "ltgf_fair_fraction": float((~below & ~above).mean()) if jobs.size else None,
        "ltgf_loss_fraction": float(below.mean()) if jobs.size else None,
        "ltgf_benefit_fraction": float(above.mean()) if jobs.size else None,
        "ltgf_tenant_loss": float(tenants.loss.mean()) if some else None,
        "ltgf_tenant_spread": float(np.ptp(tenants.mean)) if some else None,
        "ltgf_tenant_jain": jain(tenants.mean),
    }


def _normalised(run: Run, of_job: Floats) -> dict[str, Any]:
    total, arrival_s = float(of_job.sum()), run.scenario.jobs.arrival_s
    length_s = recorded_until(run) - arrival_s.min(initial=np.inf)
    return {
        "normalised_gpu_s": total,
        "normalised_throughput": total / float(length_s) if length_s > 0 else None,
        "normalised_jain": jain(tenant_throughput(run, of_job)),
    }


def _deadlines(run: Run, jct_s: Floats) -> dict[str, Any]:
    found = deadline_outcomes(run)
    slo, users = found.slo, tenant_misses(run, found)
    some, earned, most = bool(slo.any()), float(found.earned.sum()), float(found.most.sum())
    return {
        "slo_jobs": int(slo.sum()),
        "deadline_miss_fraction": float(found.miss[slo].mean()) if some else None,
        "deadline_late_fraction": float(found.late[slo].mean()) if some else None,
        "deadline_value": earned,
        "deadline_value_fraction": earned / most if most > 0 else None,
        "deadline_tenant_worst_fraction": users.worst,
        "deadline_tenant_jain": users.jain,
        **_statistics(jct_s[slo], "slo_jct_{}_s", "mean"),
        **_statistics(jct_s[~slo], "best_effort_jct_{}_s", "mean"),
    }


def _utilisation(run: Run) -> dict[str, Any]:
    used = utilisation(run)
    by_cause = {cause: used.fraction_by_type(cause) for cause in CAUSES}
    return {
        **{f"{cause}_fraction": used.fraction(cause) for cause in CAUSES},
        "idle_fraction": used.fraction(*IDLE),
        "types": {
            str(kind): {cause: by_cause[cause][str(kind)] for cause in CAUSES}
            for kind in used.types
        },
    }


def _decisions(run: Run) -> dict[str, Any]:
    rounds = run.rounds
    proved = rounds.gap[~np.isnan(rounds.gap)]
    modelled = bool((rounds.status != "HEURISTIC").any())
    return {
        "decisions": int(rounds.index.size),
        "worst_gap": float(proved.max()) if proved.size else None,
        "optimal_fraction": float((rounds.status == "OPTIMAL").mean()) if modelled else None,
        **_statistics(run.decide_s, "decide_{}_s", "p50", "p95", "max"),
    }


def _statistics(values: Floats, name: str, *which: str) -> dict[str, float | None]:
    """Compute statistics of the values that exist, None where none does."""
    known = values[~np.isnan(values)]
    return {name.format(what): _statistic(known, what) for what in which}


def _statistic(values: Floats, what: str) -> float | None:
    if not values.size:
        return None
    if what == "mean":
        return float(values.mean())
    if what == "max":
        return float(values.max())
    return float(np.percentile(values, float(what[1:]), method="linear"))
