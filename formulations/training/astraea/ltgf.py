"""Long-term GPU-time fairness: served GPU-time over the GPU-time a fair share would have given.

Everything here is arithmetic on columns; nothing knows a round.
"""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints


def tenant_ltgf(served_gpu_s: Floats, desired_gpu_s: Floats) -> Floats:
    """Served over desired GPU-time of each tenant; 1 where nothing was desired."""
    return _ratio(served_gpu_s, desired_gpu_s, 1.0)


def job_ltgf(executed_gpu_s: Floats, desired_gpu_s: Floats) -> Floats:
    """Executed over desired GPU-time of each job; 0 at its arrival, where nothing was desired."""
    return _ratio(executed_gpu_s, desired_gpu_s, 0.0)


def _ratio(above: Floats, below: Floats, otherwise: float) -> Floats:
    return np.divide(above, below, out=np.full(np.shape(below), otherwise), where=below > 0)


def desired_rates(
    gang: Ints, tenant: Ints, weight: Floats, active: Bools, quota: Floats
) -> tuple[Floats, Floats]:
    """GPUs that jobs and tenants should have at a moment, by quota and demand.

    Parameters
    ----------
    gang, tenant, weight
        GPUs asked for, owner, and weight within the owner of each job, shape (n,).
    active
        Jobs that run or wait, shape (n,); the others want nothing.
    quota
        GPUs each tenant is entitled to, shape (tenants,).

    Returns
    -------
    Rate of each job, ``min(gang, quota w / sum w)`` with the sum over the active jobs of its
    tenant, shape (n,); and of each tenant, ``min(sum of gangs, quota)``, shape (tenants,).
    """
    sums = np.bincount(tenant, weights=weight * active, minlength=quota.size)
    share = np.zeros(gang.size)
    np.divide(quota[tenant] * weight, sums[tenant], out=share, where=active)
    asked = np.bincount(tenant, weights=gang * active, minlength=quota.size)
    return np.minimum(gang, share) * active, np.minimum(asked, quota)


def fairness_class(ltgf: Floats, classes: int) -> Ints:
    """Class of each job by its LTGF, 0..classes; the lower is served first.

    ``K - floor(K (f + 1) / 2)`` with ``f = -ln x / sqrt(1 + ln^2 x)``, and class 0 at x = 0.
    """
    at = np.log(np.where(ltgf > 0, ltgf, 1.0))
    f = -at / np.sqrt(1.0 + at**2)
    out = classes - np.floor(classes * (f + 1.0) / 2.0)
    return np.where(ltgf > 0, out, 0.0).astype(np.int64)
