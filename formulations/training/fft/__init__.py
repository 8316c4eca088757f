"""FFT (ICS 2025): policy, compiled round, compensation, work conservation."""

from apportion.formulations.training.fft.policy import FFT
from apportion.formulations.training.fft.program import FFTProgram

__all__ = ["FFT", "FFTProgram"]
