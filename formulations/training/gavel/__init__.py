"""Gavel (OSDI 2020): fractions of time by least share, finish time, makespan or cost."""

from apportion.formulations.training.gavel.cost import GavelCost, GavelThroughput
from apportion.formulations.training.gavel.finish_time import GavelFTF
from apportion.formulations.training.gavel.las import GavelLAS
from apportion.formulations.training.gavel.makespan import GavelMakespan
from apportion.formulations.training.gavel.slo import GavelSLO

__all__ = ["GavelCost", "GavelFTF", "GavelLAS", "GavelMakespan", "GavelSLO", "GavelThroughput"]
