"""Microservice applications under latency SLAs: the vocabulary of the family."""

from apportion.instances.microservices.allocation import Allocation, Outcome
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.nodes import Nodes
from apportion.instances.microservices.observed import Observed
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.scenario import ExecutorOptions, Scenario
from apportion.instances.microservices.services import Services

__all__ = [
    "Allocation",
    "CallClasses",
    "CallTrees",
    "ExecutorOptions",
    "LinearLatency",
    "MicroserviceRound",
    "Microservices",
    "Nodes",
    "Observed",
    "Outcome",
    "Scenario",
    "Services",
]
