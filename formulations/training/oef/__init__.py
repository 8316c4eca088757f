"""OEF (Middleware 2024): users share types, cooperatively or not, and whole leases follow."""

from apportion.formulations.training.oef.policy import OEFCooperative, OEFNoncooperative
from apportion.formulations.training.oef.program import OEFProgram

__all__ = ["OEFCooperative", "OEFNoncooperative", "OEFProgram"]
