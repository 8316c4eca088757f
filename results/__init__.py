"""What came out: metrics of runs, and tables and small figures to read them by."""

from apportion.results.contention import mean_active
from apportion.results.definitions import Definition
from apportion.results.figure import sparkline, utilisation_figure
from apportion.results.per_job import JobOutcomes, job_outcomes, per_job_frame, per_round_frame
from apportion.results.report import (
    HEADLINE,
    Labels,
    comparison_table,
    definitions_table,
    metrics_table,
    utilisation_table,
)
from apportion.results.table import Column, Spread, Table
from apportion.results.training import DEFINITIONS, TrainingMetrics, training_metrics
from apportion.results.utilisation import CAUSES, Utilisation, conservation_errors, utilisation

__all__ = [
    "CAUSES",
    "DEFINITIONS",
    "HEADLINE",
    "Column",
    "Definition",
    "JobOutcomes",
    "Labels",
    "Spread",
    "Table",
    "TrainingMetrics",
    "Utilisation",
    "comparison_table",
    "conservation_errors",
    "definitions_table",
    "job_outcomes",
    "mean_active",
    "metrics_table",
    "per_job_frame",
    "per_round_frame",
    "sparkline",
    "training_metrics",
    "utilisation",
    "utilisation_figure",
    "utilisation_table",
]
