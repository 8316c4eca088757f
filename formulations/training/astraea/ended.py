"""How long ended jobs ran: what the order by classes expects of those that run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats, Ints

FEWEST_BINS = 5
"""Below so many distinct lengths those of all gangs are used (read)."""


@dataclass(frozen=True, eq=False)
class Ended:
    """How long the jobs that have ended ran, in leases: entry e counts ``count[e]`` of them.

    Parameters
    ----------
    gang
        GPUs.
    bin
        Whole leases executed.
    count
        Jobs.
    """

    gang: Ints
    bin: Ints
    count: Ints

    def plus(self, gang: Ints, bin_: Ints) -> Ended:
        """Count some more jobs."""
        if not gang.size:
            return self
        pairs = np.stack(
            (np.concatenate((self.gang, gang)), np.concatenate((self.bin, bin_))), axis=1
        )
        ones = np.ones(gang.size, dtype=np.int64)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        total = np.bincount(which.ravel(), weights=np.concatenate((self.count, ones)))
        return Ended(distinct[:, 0], distinct[:, 1], total.astype(np.int64))


def ends_in_next_lease(ended: Ended, gang: Ints, bin_: Ints) -> Floats:
    """Probability that jobs end within their next lease, by those of the same gang that ended.

    Of the jobs that ran at least as many whole leases, the part that ran no more; 0 where none
    did.

    Parameters
    ----------
    ended
        Jobs that have ended.
    gang, bin_
        GPUs of each job, and whole leases it has executed, shape (n,).
    """
    out = np.zeros(gang.size)
    for size in np.unique(gang).tolist():
        mine = ended.gang == size
        if np.unique(ended.bin[mine]).size < FEWEST_BINS:
            mine = np.ones(ended.gang.size, dtype=np.bool_)
        rows = np.flatnonzero(gang == size)
        out[rows] = _hazard(ended.bin[mine], ended.count[mine], bin_[rows])
    return out


def _hazard(bins: Ints, count: Ints, at: Ints) -> Floats:
    if not bins.size:
        return np.zeros(at.size)
    order = np.argsort(bins, kind="stable")
    sums = np.concatenate((np.cumsum(count[order][::-1])[::-1], [0]))
    reach = sums[np.searchsorted(bins[order], at, side="left")]
    beyond = sums[np.searchsorted(bins[order], at, side="right")]
    return np.divide(reach - beyond, reach, out=np.zeros(at.size), where=reach > 0)
