"""Policies for training clusters, and what a new one can stand on."""

from apportion.formulations.training.astraea import Astraea
from apportion.formulations.training.baselines import (
    EDF,
    FIFO,
    SRTF,
    DynamicQuota,
    Genie,
    StaticQuota,
    Tiresias,
)
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.fft import FFT, FFTProgram
from apportion.formulations.training.gavel import (
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelSLO,
    GavelThroughput,
)
from apportion.formulations.training.greedy import fill
from apportion.formulations.training.oef import OEFCooperative, OEFNoncooperative
from apportion.formulations.training.peers import (
    DRF,
    AlloX,
    ElasticFlow,
    GandivaFair,
    Shockwave,
    TetriSched,
    Themis,
)
from apportion.formulations.training.pinned import Pinned, broken_promises, pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.unisched import UniSched

POLICIES = (
    FFT,
    OEFCooperative,
    OEFNoncooperative,
    Astraea,
    Chronus,
    UniSched,
    GavelLAS,
    GavelFTF,
    GavelMakespan,
    GavelCost,
    GavelSLO,
    GavelThroughput,
    Themis,
    AlloX,
    GandivaFair,
    Shockwave,
    ElasticFlow,
    TetriSched,
    DRF,
    Tiresias,
    StaticQuota,
    DynamicQuota,
    Genie,
    EDF,
    SRTF,
    FIFO,
)
"""All policies of the family, published systems first."""

__all__ = [
    "DRF",
    "EDF",
    "FFT",
    "FIFO",
    "POLICIES",
    "SRTF",
    "AlloX",
    "Astraea",
    "Chronus",
    "DynamicQuota",
    "ElasticFlow",
    "FFTProgram",
    "GandivaFair",
    "GavelCost",
    "GavelFTF",
    "GavelLAS",
    "GavelMakespan",
    "GavelSLO",
    "GavelThroughput",
    "Genie",
    "OEFCooperative",
    "OEFNoncooperative",
    "Pinned",
    "PlainProgram",
    "Shockwave",
    "StaticQuota",
    "TetriSched",
    "Themis",
    "Tiresias",
    "UniSched",
    "broken_promises",
    "fill",
    "joined",
    "notes_on_hopeless",
    "pinned",
]
