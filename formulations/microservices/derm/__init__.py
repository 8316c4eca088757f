"""Derm: fewest containers for which every SLA holds in probability."""

from apportion.formulations.microservices.derm.policy import Derm

__all__ = ["Derm"]
