"""How many jobs share the cluster over a job's lifetime."""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.instances.columns import Floats


def mean_active(arrival_s: Floats, finish_s: Floats) -> Floats:
    """Average the number of active jobs over each job's own lifetime.

    A job is active in ``[arrival, finish)``. The average is
    ``1 / (finish - arrival) * integral of active(t) dt`` over that interval: pure number, at least
    1 because the job counts itself. The count is piecewise constant, so its running integral at
    the sorted arrivals and finishes gives every average exactly, in O(n log n).

    Source: contention averaged over the lifetime as in Shockwave (NSDI 2023).

    Parameters
    ----------
    arrival_s
        Shape (n,).
    finish_s
        Shape (n,); infinite for jobs that did not finish: they stay active to the end.

    Returns
    -------
    Floats
        Shape (n,); NaN for jobs that did not finish, 1 for a lifetime of length zero.
    """
    done = np.isfinite(finish_s)
    times = np.concatenate((arrival_s, finish_s[done]))
    steps = np.concatenate((np.ones(arrival_s.size), -np.ones(int(done.sum()))))
    order = np.argsort(times, kind="stable")
    times = times[order]
    active = np.cumsum(steps[order])
    integral = np.concatenate(([0.0], np.cumsum(active[:-1] * np.diff(times))))
    out = np.full(arrival_s.size, np.nan)
    start, end = arrival_s[done], finish_s[done]
    # Times repeat, but the integral is continuous: any of the equal ones reads the same value.
    between = integral[np.searchsorted(times, end)] - integral[np.searchsorted(times, start)]
    length = end - start
    out[done] = np.divide(between, length, out=np.ones(length.size), where=length > 0)
    return cast(Floats, out)
