"""The vocabulary: what a round is, what a decision is, and who promises what to whom."""

from apportion.instances.errors import InstanceError
from apportion.instances.memory_json import dump_memory, load_memory
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
from apportion.instances.schemas import jobs_schema, round_schema, scenario_schema
from apportion.instances.training import (
    bundled_names,
    from_frame,
    read_gavel,
    read_philly,
    read_round,
    read_scenario,
    to_frame,
    variant_names,
    write_round,
    write_scenario,
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
    "bundled_names",
    "dump_memory",
    "from_frame",
    "jobs_schema",
    "load_memory",
    "read_gavel",
    "read_philly",
    "read_round",
    "read_scenario",
    "round_schema",
    "scenario_schema",
    "to_frame",
    "variant_names",
    "write_round",
    "write_scenario",
]
