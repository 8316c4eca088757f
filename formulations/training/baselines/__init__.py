"""Plain heuristics that every scheduler is measured against."""

from apportion.formulations.training.baselines.edf import EDF
from apportion.formulations.training.baselines.genie import Genie
from apportion.formulations.training.baselines.orders import FIFO, SRTF
from apportion.formulations.training.baselines.quota import DynamicQuota, StaticQuota
from apportion.formulations.training.baselines.tiresias import Tiresias

__all__ = ["EDF", "FIFO", "SRTF", "DynamicQuota", "Genie", "StaticQuota", "Tiresias"]
