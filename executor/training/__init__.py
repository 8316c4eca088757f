"""Training jobs carried out: the independent checker, placement on nodes, and the simulator."""

from apportion.executor.refusal import InvalidAllocation
from apportion.executor.training.check import check
from apportion.executor.training.check_nodes import check_placement
from apportion.executor.training.check_promises import check_commitments
from apportion.executor.training.digest import scenario_digest
from apportion.executor.training.placement import place
from apportion.executor.training.records import JobRecords, LeaseRecords, RoundRecords, Run
from apportion.executor.training.simulate import Progress, run

__all__ = [
    "InvalidAllocation",
    "JobRecords",
    "LeaseRecords",
    "Progress",
    "RoundRecords",
    "Run",
    "check",
    "check_commitments",
    "check_placement",
    "place",
    "run",
    "scenario_digest",
]
