"""What each tenant's jobs did, per weight and per time in which it had any."""

from __future__ import annotations

import numpy as np

from apportion.executor.training.records import Run
from apportion.instances.columns import Floats
from apportion.results.ltgf import demanded_until
from apportion.results.speeds import admitted
from apportion.results.utilisation import sum_by


def tenant_throughput(run: Run, normalised_gpu_s: Floats) -> Floats:
    """Divide each tenant's normalised GPU time by its weight and the time it had an active job.

    Parameters
    ----------
    run
        Records of the executor.
    normalised_gpu_s
        Of each job, shape (n,).

    Returns
    -------
    Floats
        One entry for each tenant that had an active job, in their order.
    """
    jobs, tenants = run.scenario.jobs, run.scenario.tenants
    rows, u = np.flatnonzero(admitted(run)), tenants.id.size
    owner = np.concatenate((jobs.tenant[rows], jobs.tenant[rows]))
    times = np.concatenate((jobs.arrival_s[rows], demanded_until(run)[rows]))
    order = np.lexsort((times, owner))
    owner, times = owner[order], times[order]
    active = np.cumsum(np.repeat((1, -1), rows.size)[order])
    # a tenant's last event leaves nobody active, so that no stretch reaches over to the next one
    length_s = np.where(active[:-1] > 0, np.diff(times), 0.0)
    active_s = sum_by(owner[:-1], length_s, u)
    done = sum_by(jobs.tenant[rows], normalised_gpu_s[rows], u)
    had = active_s > 0
    return done[had] / (tenants.weight[had] * active_s[had])
