"""Deadlines: which were kept, what that earned, and how the misses fall on users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training.jobs import NEVER, Jobs
from apportion.results.auditing.evenness import jain
from apportion.results.utilisation import sum_by

MISSED = -1
"""Number of the deadline kept where none was."""


@dataclass(frozen=True, eq=False)
class DeadlineOutcomes:
    """What came of each job's deadlines, one row a job in the order of the scenario.

    Parameters
    ----------
    slo
        Whether it is an SLO job: flagged so and with at least one deadline. All others are best
        effort; whatever deadlines they have do not count.
    met
        Number of the first deadline it kept, from 0; -1 where it kept none or is best effort.
    earned
        Value of that deadline, 0 where there is none.
    most
        Value of its first deadline, the most it could earn; 0 for best effort.
    miss
        Part of that value that is lost, 1 - earned / most. A job whose deadlines are worth nothing
        has lost nothing if it kept any of them, and all if it kept none. NaN for best effort.
    late
        Whether it is an SLO job that did not end by its first deadline.

    Notes
    -----
    A deadline is kept by whoever ends at that very instant. Unfinished jobs have kept none.
    Source: the artifact of Chronus (SoCC 2021).
    """

    slo: Bools
    met: Ints
    earned: Floats
    most: Floats
    miss: Floats
    late: Bools


def slo_jobs(jobs: Jobs) -> Bools:
    """Mark the jobs whose deadlines count, shape (n,)."""
    return jobs.slo & (np.diff(jobs.deadline_offsets) > 0)


def deadline_outcomes(run: Run) -> DeadlineOutcomes:
    """Work out which deadlines were kept, from the records alone."""
    jobs = run.scenario.jobs
    n, slo, starts = len(jobs), slo_jobs(jobs), jobs.deadline_offsets[:-1]
    ended = run.jobs.finish_s != NEVER
    finish_s = np.where(ended, run.jobs.finish_s, np.inf)
    of = np.repeat(np.arange(n), np.diff(jobs.deadline_offsets))
    # deadlines rise within a job, so that those it missed come first
    passed = np.bincount(of[jobs.deadline_s < finish_s[of]], minlength=n)
    kept = slo & (passed < np.diff(jobs.deadline_offsets))
    earned, most, miss = np.zeros(n), np.zeros(n), np.full(n, np.nan)
    earned[kept] = jobs.deadline_value[(starts + passed)[kept]]
    most[slo] = jobs.deadline_value[starts[slo]]
    miss[slo] = 1.0
    miss[kept] = 0.0  # stays where nothing could be earned
    part = kept & (most > 0)
    miss[part] = 1.0 - earned[part] / most[part]
    return DeadlineOutcomes(
        slo=slo,
        met=np.where(kept, passed, MISSED),
        earned=earned,
        most=most,
        miss=miss,
        late=slo & ~(kept & (passed == 0)),
    )


@dataclass(frozen=True, eq=False)
class TenantMisses:
    """Deadline misses by tenant, in the order of the scenario, all of shape (tenants,).

    Parameters
    ----------
    jobs
        SLO jobs of each.
    rate
        Mean part of the value that these lost; NaN for a tenant without SLO jobs.
    """

    jobs: Ints
    rate: Floats

    @property
    def worst(self) -> float | None:
        """Largest rate of a tenant that has SLO jobs."""
        known = self._known
        return float(known.max()) if known.size else None

    @property
    def jain(self) -> float | None:
        """Jain's index of the rates: 1 where all miss alike, also where nobody misses at all."""
        known = self._known
        if not known.size:
            return None
        return 1.0 if not known.any() else jain(known)

    @property
    def _known(self) -> Floats:
        return self.rate[~np.isnan(self.rate)]


def tenant_misses(run: Run, outcomes: DeadlineOutcomes | None = None) -> TenantMisses:
    """Average the misses of each tenant's SLO jobs."""
    outcomes = deadline_outcomes(run) if outcomes is None else outcomes
    tenants = run.scenario.tenants.id.size
    owner, miss = run.scenario.jobs.tenant[outcomes.slo], outcomes.miss[outcomes.slo]
    count = np.bincount(owner, minlength=tenants)
    rate = np.full(tenants, np.nan)
    np.divide(sum_by(owner, miss, tenants), count, out=rate, where=count > 0)
    return TenantMisses(count, rate)


@dataclass(frozen=True)
class Admission:
    """How good a policy's word was.

    Parameters
    ----------
    accepted, rejected
        SLO jobs the policy took on, and those it turned away.
    broken
        Accepted jobs that did not keep the deadline they were promised.
    would_have_fit
        Rejected jobs that could have been accepted beside all others, None where nobody found out.
    precision
        Accepted jobs that kept their promise / accepted jobs, None where none was accepted.
    rejected_in_vain
        ``would_have_fit / rejected``, None where unknown or where none was rejected.
    """

    accepted: int
    rejected: int
    broken: int
    would_have_fit: int | None
    precision: float | None
    rejected_in_vain: float | None


def admission(
    run: Run,
    accepted: Bools,
    *,
    promised: Ints | None = None,
    rejected: Bools | None = None,
    would_fit: Bools | None = None,
) -> Admission:
    """Hold what a policy promised against what happened.

    The records do not tell who was accepted: whoever reads a policy's answers (its commitments, or
    what it says of each job) passes that on. Rows are those of the scenario's jobs.

    Parameters
    ----------
    run
        Records of the executor.
    accepted
        Jobs that were accepted, shape (n,).
    promised
        Number of the deadline each was promised, from 0, shape (n,). Default: its last one.
    rejected
        Jobs that were turned away, shape (n,). Default: the SLO jobs that were not accepted.
    would_fit
        Rejected jobs that would have fitted, shape (n,). Default: nobody found out.

    Raises
    ------
    ValueError
        On columns of another length, jobs that are both accepted and rejected, accepted jobs that
        are best effort, or a promise of a deadline that does not exist.
    """
    jobs, outcomes = run.scenario.jobs, deadline_outcomes(run)
    each = np.diff(jobs.deadline_offsets)
    promised = each - 1 if promised is None else np.asarray(promised)
    rejected = outcomes.slo & ~np.asarray(accepted) if rejected is None else rejected
    given = {"accepted": accepted, "promised": promised, "rejected": rejected}
    fits = given if would_fit is None else {**given, "would_fit": would_fit}
    for name, column in fits.items():
        if np.shape(column) != (len(jobs),):
            raise ValueError(f"admission: {name} has shape {np.shape(column)}, not {(len(jobs),)}")
    _refuse(accepted & rejected, jobs, "is accepted and rejected")
    _refuse(accepted & ~outcomes.slo, jobs, "is accepted and has no deadline that counts")
    _refuse(
        accepted & ((promised < 0) | (promised >= each)), jobs,
        "is promised a deadline that it does not have",
    )  # fmt: skip
    broken = int((accepted & ((outcomes.met == MISSED) | (outcomes.met > promised))).sum())
    taken, away = int(accepted.sum()), int(rejected.sum())
    lost = None if would_fit is None else int((rejected & would_fit).sum())
    return Admission(
        accepted=taken,
        rejected=away,
        broken=broken,
        would_have_fit=lost,
        precision=(taken - broken) / taken if taken else None,
        rejected_in_vain=lost / away if lost is not None and away else None,
    )


def _refuse(bad: Any, jobs: Jobs, why: str) -> None:
    found = np.flatnonzero(bad)
    if found.size:
        raise ValueError(f"admission: job {str(jobs.id[found[0]])!r} {why}")
