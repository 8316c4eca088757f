"""Microservice applications carried out: the independent checker, and the simulators."""

from apportion.executor.microservices.calibration import calibrated
from apportion.executor.microservices.check import check
from apportion.executor.microservices.digest import scenario_digest
from apportion.executor.microservices.events import EventSimulation
from apportion.executor.microservices.records import (
    ClassRecords,
    MicroserviceRecords,
    RoundRecords,
    Run,
    ServiceRecords,
)
from apportion.executor.microservices.simulate import Progress, run
from apportion.executor.microservices.statistics import accepted, missed_sla, wilson_interval
from apportion.executor.microservices.violation_bounds import ViolationBounds, violation_bounds
from apportion.executor.refusal import InvalidAllocation

__all__ = [
    "ClassRecords",
    "EventSimulation",
    "InvalidAllocation",
    "MicroserviceRecords",
    "Progress",
    "RoundRecords",
    "Run",
    "ServiceRecords",
    "ViolationBounds",
    "accepted",
    "calibrated",
    "check",
    "missed_sla",
    "run",
    "scenario_digest",
    "violation_bounds",
    "wilson_interval",
]
