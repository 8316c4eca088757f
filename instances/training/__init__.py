"""Training jobs on a cluster of GPUs: the vocabulary of the family."""

from apportion.instances.training.allocation import Allocation, Commitments, Outcome, Placement
from apportion.instances.training.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    outcome_to_dict,
)
from apportion.instances.training.chronus_trace import read_chronus
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.elasticflow_trace import read_elasticflow
from apportion.instances.training.following import round_after
from apportion.instances.training.frames import from_frame, to_frame
from apportion.instances.training.gavel import read_gavel
from apportion.instances.training.generate import Generator, generate_jobs
from apportion.instances.training.jobs import Jobs
from apportion.instances.training.metric_stops import MetricStops
from apportion.instances.training.philly import read_philly
from apportion.instances.training.round import TrainingRound, never_fits
from apportion.instances.training.round_json import (
    read_round,
    round_from_dict,
    round_to_dict,
    write_round,
)
from apportion.instances.training.scenario import ExecutorOptions, Failure, Scenario
from apportion.instances.training.scenario_files import write_scenario
from apportion.instances.training.scenario_toml import (
    bundled_names,
    read_scenario,
    variant_names,
)
from apportion.instances.training.shares import Shares
from apportion.instances.training.tenants import Tenants
from apportion.instances.training.true_curves import TrueCurves

__all__ = [
    "Allocation",
    "Cluster",
    "Commitments",
    "ExecutorOptions",
    "Failure",
    "Generator",
    "Jobs",
    "MetricStops",
    "Outcome",
    "Placement",
    "Scenario",
    "Shares",
    "Tenants",
    "TrainingRound",
    "TrueCurves",
    "allocation_from_dict",
    "allocation_to_dict",
    "bundled_names",
    "from_frame",
    "generate_jobs",
    "never_fits",
    "outcome_from_dict",
    "outcome_to_dict",
    "read_chronus",
    "read_elasticflow",
    "read_gavel",
    "read_philly",
    "read_round",
    "read_scenario",
    "round_after",
    "round_from_dict",
    "round_to_dict",
    "to_frame",
    "variant_names",
    "write_round",
    "write_scenario",
]
