"""What came out: metrics of runs, and tables and small figures to read them by."""

from apportion.results.auditing.audited import (
    AuditedUsers,
    users_of_leases,
    users_of_run,
    users_of_shares,
    utility,
)
from apportion.results.auditing.audits import PROPERTIES, audit_run, audit_users
from apportion.results.auditing.findings import Audit, Finding
from apportion.results.comparing import Labels
from apportion.results.contention import mean_active
from apportion.results.deadlines import (
    Admission,
    DeadlineOutcomes,
    TenantMisses,
    admission,
    deadline_outcomes,
    slo_jobs,
    tenant_misses,
)
from apportion.results.definitions import Definition
from apportion.results.figure import sparkline, utilisation_figure
from apportion.results.ltgf import TenantFairness, job_ltgf, tenant_fairness, tenant_ltgf
from apportion.results.per_job import JobOutcomes, job_outcomes, per_job_frame, per_round_frame
from apportion.results.report import (
    HEADLINE,
    OF_DEADLINES,
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
    "OF_DEADLINES",
    "PROPERTIES",
    "Admission",
    "Audit",
    "AuditedUsers",
    "Column",
    "DeadlineOutcomes",
    "Definition",
    "Finding",
    "JobOutcomes",
    "Labels",
    "Spread",
    "Table",
    "TenantFairness",
    "TenantMisses",
    "TrainingMetrics",
    "Utilisation",
    "admission",
    "audit_run",
    "audit_users",
    "comparison_table",
    "conservation_errors",
    "deadline_outcomes",
    "definitions_table",
    "job_ltgf",
    "job_outcomes",
    "mean_active",
    "metrics_table",
    "per_job_frame",
    "per_round_frame",
    "slo_jobs",
    "sparkline",
    "tenant_fairness",
    "tenant_ltgf",
    "tenant_misses",
    "training_metrics",
    "users_of_leases",
    "users_of_run",
    "users_of_shares",
    "utilisation",
    "utilisation_figure",
    "utilisation_table",
    "utility",
]
