"""Training jobs on a cluster of GPUs: the vocabulary of the family."""

from apportion.instances.training.allocation import Allocation, Commitments, Outcome, Placement
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.generate import Generator, generate_jobs
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.round import TrainingRound, never_fits
from apportion.instances.training.round_json import (
    read_round,
    round_from_dict,
    round_to_dict,
    write_round,
)
from apportion.instances.training.scenario import ExecutorOptions, Failure, Scenario
from apportion.instances.training.scenario_toml import (
    bundled_names,
    read_scenario,
    variant_names,
)
from apportion.instances.training.tenants import Tenants

__all__ = [
    "Allocation",
    "Cluster",
    "Commitments",
    "ExecutorOptions",
    "Failure",
    "Generator",
    "Jobs",
    "Outcome",
    "Placement",
    "Scenario",
    "Tenants",
    "TrainingRound",
    "bundled_names",
    "generate_jobs",
    "never_fits",
    "read_round",
    "read_scenario",
    "round_from_dict",
    "round_to_dict",
    "variant_names",
    "write_round",
]
