"""Scheduling rounds as optimisation models: compiled, solved in time, checked, carried out."""

import logging
from importlib.metadata import version as _version

from apportion.admitting import Admission, admit
from apportion.answer import Answer
from apportion.answer_reading import read_answer
from apportion.auditing import audit
from apportion.comparing import compare
from apportion.deciding import EngineError
from apportion.executor.training import check
from apportion.explaining import Explanation, explain
from apportion.formulations.training import (
    DRF,
    FFT,
    FIFO,
    SRTF,
    AlloX,
    Astraea,
    DynamicQuota,
    GandivaFair,
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelThroughput,
    OEFCooperative,
    OEFNoncooperative,
    Shockwave,
    StaticQuota,
    Themis,
    Tiresias,
)
from apportion.instances import Decision, InstanceError
from apportion.instances.training import (
    Allocation,
    Cluster,
    Jobs,
    Outcome,
    Scenario,
    Tenants,
    TrainingRound,
    from_frame,
    read_round,
    read_scenario,
    to_frame,
    write_round,
)
from apportion.pricing import prices
from apportion.registry import make_policy, policy_classes
from apportion.results import audit_run, training_metrics
from apportion.simulating import simulate
from apportion.solving import solve
from apportion.verifying import verify

__version__ = _version("apportion")

logging.getLogger("apportion").addHandler(logging.NullHandler())

__all__ = [
    "DRF",
    "FFT",
    "FIFO",
    "SRTF",
    "Admission",
    "AlloX",
    "Allocation",
    "Answer",
    "Astraea",
    "Cluster",
    "Decision",
    "DynamicQuota",
    "EngineError",
    "Explanation",
    "GandivaFair",
    "GavelCost",
    "GavelFTF",
    "GavelLAS",
    "GavelMakespan",
    "GavelThroughput",
    "InstanceError",
    "Jobs",
    "OEFCooperative",
    "OEFNoncooperative",
    "Outcome",
    "Scenario",
    "Shockwave",
    "StaticQuota",
    "Tenants",
    "Themis",
    "Tiresias",
    "TrainingRound",
    "admit",
    "audit",
    "audit_run",
    "check",
    "compare",
    "explain",
    "from_frame",
    "make_policy",
    "policy_classes",
    "prices",
    "read_answer",
    "read_round",
    "read_scenario",
    "simulate",
    "solve",
    "to_frame",
    "training_metrics",
    "verify",
    "write_round",
]
