"""UniSched (IEEE TC 2024): deadlines and latency, iterations and metrics, in one selector."""

from apportion.formulations.training.unisched.demand import BestEffort, SloJobs, capacity_table
from apportion.formulations.training.unisched.estimates import (
    Estimates,
    Estimator,
    remaining,
    reported_work,
)
from apportion.formulations.training.unisched.latest_fit import latest_fit
from apportion.formulations.training.unisched.model import Selector, bucket_edges
from apportion.formulations.training.unisched.plan import Plan, plan_faults
from apportion.formulations.training.unisched.policy import UniSched
from apportion.formulations.training.unisched.select import Selection, select

__all__ = [
    "BestEffort",
    "Estimates",
    "Estimator",
    "Plan",
    "Selection",
    "Selector",
    "SloJobs",
    "UniSched",
    "bucket_edges",
    "capacity_table",
    "latest_fit",
    "plan_faults",
    "remaining",
    "reported_work",
    "select",
]
