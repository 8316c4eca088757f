"""The vocabulary: what a round is, what a decision is, and who promises what to whom."""

from apportion.instances.errors import InstanceError
from apportion.instances.policy import (
    EVENTS,
    REASONS,
    Budget,
    Checker,
    Decider,
    Decision,
    Policy,
    Program,
    Reactive,
    Reason,
    Stage,
    Violation,
)

__all__ = [
    "EVENTS",
    "REASONS",
    "Budget",
    "Checker",
    "Decider",
    "Decision",
    "InstanceError",
    "Policy",
    "Program",
    "Reactive",
    "Reason",
    "Stage",
    "Violation",
]
