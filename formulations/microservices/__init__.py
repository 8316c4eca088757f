"""Microservice applications: one module per published system."""

from typing import Any

from apportion.formulations.microservices.baselines import (
    HPA,
    Autopilot,
    Firm,
    GrandSlam,
    Rhythm,
    Sinan,
    StaticWorst,
    Ursa,
)
from apportion.formulations.microservices.derm import Derm
from apportion.formulations.microservices.erms import Erms

POLICIES: tuple[type[Any], ...] = (
    Derm, Erms, HPA, GrandSlam, Rhythm, Firm, StaticWorst, Sinan, Autopilot, Ursa,
)  # fmt: skip
"""The policies of the family, in the order they are listed."""

__all__ = [
    "HPA",
    "POLICIES",
    "Autopilot",
    "Derm",
    "Erms",
    "Firm",
    "GrandSlam",
    "Rhythm",
    "Sinan",
    "StaticWorst",
    "Ursa",
]
