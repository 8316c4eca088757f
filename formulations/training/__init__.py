"""Policies for training clusters, and what a new one can stand on."""

from apportion.formulations.training.baselines import FIFO, SRTF
from apportion.formulations.training.fft import FFT, FFTProgram
from apportion.formulations.training.greedy import fill
from apportion.formulations.training.pinned import Pinned, broken_promises, pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless

__all__ = [
    "FFT",
    "FIFO",
    "SRTF",
    "FFTProgram",
    "Pinned",
    "PlainProgram",
    "broken_promises",
    "fill",
    "joined",
    "notes_on_hopeless",
    "pinned",
]
