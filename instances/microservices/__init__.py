"""Microservice applications under latency SLAs: the vocabulary of the family."""

from apportion.instances.microservices.allocation import Allocation, Outcome
from apportion.instances.microservices.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    outcome_to_dict,
)
from apportion.instances.microservices.builtin import BUILTIN_NAMES, builtin_round
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.expand import expand
from apportion.instances.microservices.following import round_after
from apportion.instances.microservices.forecast import predict_shares, share_radius
from apportion.instances.microservices.generate import GraphGenerator
from apportion.instances.microservices.graph_json import read_graph
from apportion.instances.microservices.learn import GraphCounter, learn_classes
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.nodes import Nodes
from apportion.instances.microservices.observed import Observed
from apportion.instances.microservices.planned import planned_outcome
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.round_json import (
    read_round,
    round_from_dict,
    round_to_dict,
    write_round,
)
from apportion.instances.microservices.scenario import ExecutorOptions, Scenario
from apportion.instances.microservices.scenario_toml import read_scenario
from apportion.instances.microservices.services import Services

__all__ = [
    "BUILTIN_NAMES",
    "Allocation",
    "CallClasses",
    "CallTrees",
    "ExecutorOptions",
    "GraphCounter",
    "GraphGenerator",
    "LinearLatency",
    "MicroserviceRound",
    "Microservices",
    "Nodes",
    "Observed",
    "Outcome",
    "Scenario",
    "Services",
    "allocation_from_dict",
    "allocation_to_dict",
    "builtin_round",
    "expand",
    "learn_classes",
    "outcome_from_dict",
    "outcome_to_dict",
    "planned_outcome",
    "predict_shares",
    "read_graph",
    "read_round",
    "read_scenario",
    "round_after",
    "round_from_dict",
    "round_to_dict",
    "share_radius",
    "write_round",
]
