"""Scheduling rounds as optimisation models: compiled, solved in time, checked, carried out."""

import logging
from importlib.metadata import version as _version

from apportion.admitting import Admission, admit
from apportion.answer import Answer
from apportion.answer_reading import read_answer
from apportion.auditing import audit
from apportion.checking import check
from apportion.comparing import compare
from apportion.deciding import EngineError
from apportion.families.lookup import read_round, read_scenario, write_round
from apportion.fitting import fit
from apportion.formulations.training import (
    DRF,
    EDF,
    FFT,
    FIFO,
    SRTF,
    AlloX,
    Astraea,
    Chronus,
    DynamicQuota,
    ElasticFlow,
    GandivaFair,
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelSLO,
    GavelThroughput,
    Genie,
    OEFCooperative,
    OEFNoncooperative,
    Shockwave,
    StaticQuota,
    TetriSched,
    Themis,
    Tiresias,
    UniSched,
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
    to_frame,
)
from apportion.questions.explaining import Explanation, explain
from apportion.questions.pricing import prices
from apportion.registry import make_policy, policy_classes
from apportion.results import audit_run, training_metrics
from apportion.simulating import simulate
from apportion.solving import solve
from apportion.verifying import verify

__version__ = _version("apportion")

logging.getLogger("apportion").addHandler(logging.NullHandler())

__all__ = [
    "DRF",
    "EDF",
    "FFT",
    "FIFO",
    "SRTF",
    "Admission",
    "AlloX",
    "Allocation",
    "Answer",
    "Astraea",
    "Chronus",
    "Cluster",
    "Decision",
    "DynamicQuota",
    "ElasticFlow",
    "EngineError",
    "Explanation",
    "GandivaFair",
    "GavelCost",
    "GavelFTF",
    "GavelLAS",
    "GavelMakespan",
    "GavelSLO",
    "GavelThroughput",
    "Genie",
    "InstanceError",
    "Jobs",
    "OEFCooperative",
    "OEFNoncooperative",
    "Outcome",
    "Scenario",
    "Shockwave",
    "StaticQuota",
    "Tenants",
    "TetriSched",
    "Themis",
    "Tiresias",
    "TrainingRound",
    "UniSched",
    "admit",
    "audit",
    "audit_run",
    "check",
    "compare",
    "explain",
    "fit",
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
