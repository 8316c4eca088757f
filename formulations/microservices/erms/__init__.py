"""Erms: latency targets for each microservice."""

from apportion.formulations.microservices.erms.policy import Erms
from apportion.formulations.microservices.erms.program import ErmsProgram

__all__ = ["Erms", "ErmsProgram"]
