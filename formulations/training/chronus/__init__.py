"""Chronus (SoCC 2021): reserved leases for deadlines, best effort in what is left."""

from apportion.formulations.training.chronus.policy import Chronus

__all__ = ["Chronus"]
