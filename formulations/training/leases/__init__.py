"""Leases of equal length with deadlines: plans, their bounds, and admission."""

from apportion.formulations.training.leases.admission import Admission, Answer
from apportion.formulations.training.leases.check import plan_faults
from apportion.formulations.training.leases.feasibility import Feasibility, all_fit
from apportion.formulations.training.leases.forced_work import (
    ForcedWork,
    forced_work,
    refuted,
    tightest_set,
)
from apportion.formulations.training.leases.lease_classes import (
    LeaseClasses,
    lease_classes,
    spread,
)
from apportion.formulations.training.leases.lease_jobs import LeaseJobs, lease_capacity
from apportion.formulations.training.leases.models import class_model, job_model
from apportion.formulations.training.leases.plan import LeasePlan, plan_leases
from apportion.formulations.training.leases.realise import LeaseColumns, Realised, realise

__all__ = [
    "Admission",
    "Answer",
    "Feasibility",
    "ForcedWork",
    "LeaseClasses",
    "LeaseColumns",
    "LeaseJobs",
    "LeasePlan",
    "Realised",
    "all_fit",
    "class_model",
    "forced_work",
    "job_model",
    "lease_capacity",
    "lease_classes",
    "plan_faults",
    "plan_leases",
    "realise",
    "refuted",
    "spread",
    "tightest_set",
]
