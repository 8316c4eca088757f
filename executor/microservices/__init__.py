"""Microservice applications: the independent checker and its bounds on SLA violations."""

from apportion.executor.microservices.check import check
from apportion.executor.microservices.violation_bounds import ViolationBounds, violation_bounds

__all__ = ["ViolationBounds", "check", "violation_bounds"]
