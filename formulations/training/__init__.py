"""Policies for training clusters, and what a new one can stand on."""

from apportion.formulations.training.astraea import Astraea
from apportion.formulations.training.baselines import (
    FIFO,
    SRTF,
    DynamicQuota,
    StaticQuota,
    Tiresias,
)
from apportion.formulations.training.fft import FFT, FFTProgram
from apportion.formulations.training.gavel import (
    GavelCost,
    GavelFTF,
    GavelLAS,
    GavelMakespan,
    GavelThroughput,
)
from apportion.formulations.training.greedy import fill
from apportion.formulations.training.oef import OEFCooperative, OEFNoncooperative
from apportion.formulations.training.peers import DRF, AlloX, GandivaFair, Shockwave, Themis
from apportion.formulations.training.pinned import Pinned, broken_promises, pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless

POLICIES = (
    FFT,
    OEFCooperative,
    OEFNoncooperative,
    Astraea,
    GavelLAS,
    GavelFTF,
    GavelMakespan,
    GavelCost,
    GavelThroughput,
    Themis,
    AlloX,
    GandivaFair,
    Shockwave,
    DRF,
    Tiresias,
    StaticQuota,
    DynamicQuota,
    SRTF,
    FIFO,
)
"""All policies of the family, published systems first."""

__all__ = [
    "DRF",
    "FFT",
    "FIFO",
    "POLICIES",
    "SRTF",
    "AlloX",
    "Astraea",
    "DynamicQuota",
    "FFTProgram",
    "GandivaFair",
    "GavelCost",
    "GavelFTF",
    "GavelLAS",
    "GavelMakespan",
    "GavelThroughput",
    "OEFCooperative",
    "OEFNoncooperative",
    "Pinned",
    "PlainProgram",
    "Shockwave",
    "StaticQuota",
    "Themis",
    "Tiresias",
    "broken_promises",
    "fill",
    "joined",
    "notes_on_hopeless",
    "pinned",
]
