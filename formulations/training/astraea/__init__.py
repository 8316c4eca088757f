"""Astraea (TPDS 2022): long-term GPU-time fairness of tenants and jobs, with quotas."""

from apportion.formulations.training.astraea.ltgf import (
    desired_rates,
    fairness_class,
    job_ltgf,
    tenant_ltgf,
)
from apportion.formulations.training.astraea.policy import Astraea
from apportion.formulations.training.astraea.program import AstraeaProgram

__all__ = [
    "Astraea",
    "AstraeaProgram",
    "desired_rates",
    "fairness_class",
    "job_ltgf",
    "tenant_ltgf",
]
