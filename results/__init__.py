"""What came out: metrics of runs, and tables and small figures to read them by."""

from apportion.results.contention import mean_active
from apportion.results.definitions import Definition
from apportion.results.per_job import JobOutcomes, job_outcomes, per_job_frame, per_round_frame
from apportion.results.table import Column, Spread, Table
from apportion.results.training import DEFINITIONS, TrainingMetrics, training_metrics
from apportion.results.utilisation import CAUSES, Utilisation, conservation_errors, utilisation

__all__ = [
    "CAUSES",
    "DEFINITIONS",
    "Column",
    "Definition",
    "JobOutcomes",
    "Spread",
    "Table",
    "TrainingMetrics",
    "Utilisation",
    "conservation_errors",
    "job_outcomes",
    "mean_active",
    "per_job_frame",
    "per_round_frame",
    "training_metrics",
    "utilisation",
]
