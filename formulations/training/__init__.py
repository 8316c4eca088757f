"""Policies for training clusters."""

from apportion.formulations.training.baselines import FIFO, SRTF
from apportion.formulations.training.fft import FFT
from apportion.formulations.training.fft_program import FFTProgram

__all__ = ["FFT", "FIFO", "SRTF", "FFTProgram"]
