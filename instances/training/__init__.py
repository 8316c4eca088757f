"""Training jobs on a cluster of GPUs: the vocabulary of the family."""

from apportion.instances.training.allocation import Allocation, Commitments, Outcome, Placement
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.round import TrainingRound, never_fits
from apportion.instances.training.scenario import ExecutorOptions, Failure, Scenario
from apportion.instances.training.tenants import Tenants

__all__ = [
    "Allocation",
    "Cluster",
    "Commitments",
    "ExecutorOptions",
    "Failure",
    "Jobs",
    "Outcome",
    "Placement",
    "Scenario",
    "Tenants",
    "TrainingRound",
    "never_fits",
]
