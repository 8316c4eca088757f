"""Plain heuristics that every scheduler is measured against."""

from apportion.formulations.training.baselines.orders import FIFO, SRTF

__all__ = ["FIFO", "SRTF"]
