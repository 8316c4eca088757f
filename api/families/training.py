"""Training jobs on a cluster of GPUs, as the face sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from rich.text import Text

from apportion.certifying import certificate
from apportion.executor.training import check, check_commitments, place, run, scenario_digest
from apportion.executor.training.records import Run
from apportion.families.family import Family, Progress
from apportion.families.training_decision import decision_table
from apportion.formulations.training import POLICIES
from apportion.instances import Decider, Decision, InstanceError, Violation
from apportion.instances.files import PathLike
from apportion.instances.training import (
    Allocation,
    Commitments,
    Jobs,
    Outcome,
    Scenario,
    Shares,
    TrainingRound,
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    round_after,
    round_from_dict,
    round_to_dict,
)
from apportion.instances.training.planned import planned_outcome
from apportion.instances.training.round_json import commitment_rows, commitments_from_rows
from apportion.instances.training.scenario_toml import read_scenario, variant_names
from apportion.promises import without_broken_promises
from apportion.results import (
    Labels,
    Table,
    TrainingMetrics,
    comparison_table,
    metrics_table,
    per_job_frame,
    per_round_frame,
    training_metrics,
    utilisation_figure,
)


@dataclass(frozen=True)
class TrainingFiles:
    """Rounds of jobs as plain data."""

    rows: ClassVar[str] = "jobs"
    told: ClassVar[tuple[str, ...]] = ()

    def row_names(self, round_: TrainingRound) -> list[str]:
        """Name the jobs."""
        return round_.jobs.id.tolist()

    def round_from_dict(self, data: object) -> TrainingRound:
        """Read a round."""
        return round_from_dict(data)

    def round_to_dict(self, round_: TrainingRound) -> dict[str, Any]:
        """Write a round."""
        return round_to_dict(round_)

    def allocation_from_dict(self, round_: TrainingRound, data: object) -> Allocation:
        """Read who runs where."""
        return allocation_from_dict(round_, data)

    def allocation_to_dict(self, round_: TrainingRound, allocation: Allocation) -> dict[str, Any]:
        """Write who runs where."""
        return allocation_to_dict(round_, allocation)

    def outcome_from_dict(self, round_: TrainingRound, data: object) -> Outcome:
        """Read what was done."""
        return outcome_from_dict(round_, data)

    def facts(self, round_: TrainingRound, allocation: Allocation) -> dict[str, Any]:
        """Add nothing: the allocation says it all."""
        return {}

    def commitments_from_rows(self, round_: TrainingRound, data: object) -> Commitments:
        """Read reservations."""
        return commitments_from_rows(data, round_.jobs.id, round_.cluster.types)

    def commitment_rows(
        self, round_: TrainingRound, commitments: Commitments
    ) -> list[dict[str, Any]]:
        """Write reservations."""
        return commitment_rows(commitments, round_.jobs.id, round_.cluster.types)

    def shares_from_dict(self, data: object) -> Shares:
        """Read what each user is meant to have."""
        return Shares.from_dict(data)


@dataclass(frozen=True)
class TrainingRules:
    """Gangs on types and nodes, and what jobs did."""

    def keepable(self, round_: TrainingRound) -> tuple[TrainingRound, tuple[str, ...]]:
        """Leave out reservations that have begun and cannot be kept."""
        return without_broken_promises(round_)

    def check(self, round_: TrainingRound, allocation: Allocation) -> list[Violation]:
        """Check an allocation."""
        return check(round_, allocation)

    def finished(
        self, round_: TrainingRound, decision: Decision
    ) -> tuple[Decision, list[Violation]]:
        """Put a decision's gangs on nodes; those that found no room are noted and left out.

        What the policy decided is checked before, and what is left of it after, with its nodes.
        """
        broken = _broken(round_, decision)
        if broken:
            return decision, broken
        allocation, left_out = place(round_, decision.allocation)
        notes = tuple(one.message for one in left_out)
        out = replace(decision, allocation=allocation, notes=(*decision.notes, *notes))
        return out, _broken(round_, out)

    def certificate(
        self, program: object, round_: TrainingRound, planned: Decision, carried: Allocation,
        gap: float,
    ) -> dict[str, Any] | None:  # fmt: skip
        """Write down what proves an answer."""
        return certificate(program, round_, planned, carried, gap)

    def planned_outcome(
        self, round_: TrainingRound, allocation: Allocation, end_s: float | None = None
    ) -> Outcome:
        """Carry a plan out in thought."""
        return planned_outcome(round_, allocation, end_s)

    def require_outcome(self, outcome: Outcome, before: TrainingRound, now: TrainingRound) -> None:
        """Refuse an outcome of other jobs, or of another interval than the one in between."""
        _require_columns(outcome, len(before.jobs))
        if outcome.start_s != before.now_s:
            raise InstanceError(
                f"outcome.start_s = {outcome.start_s}: the previous answer was decided at"
                f" {before.now_s}"
            )
        if outcome.end_s > now.now_s:
            raise InstanceError(
                f"outcome.end_s = {outcome.end_s}: lies after this round's now_s = {now.now_s}"
            )

    def round_after(
        self, round_: TrainingRound, decision: Decision, outcome: Outcome, arrivals: Jobs | None
    ) -> TrainingRound:
        """Let finished jobs leave, the others carry on, and newcomers join."""
        return round_after(
            round_, decision.allocation, outcome, arrivals=arrivals,
            commitments=decision.commitments,
        )  # fmt: skip


def _broken(round_: TrainingRound, decision: Decision) -> list[Violation]:
    broken = check(round_, decision.allocation)
    if not broken and decision.commitments is not None:
        broken = check_commitments(round_, decision.commitments, decision.allocation)
    return broken


def _require_columns(outcome: Outcome, jobs: int) -> None:
    """Refuse an outcome that cannot be one of a round with so many jobs."""
    for name in ("work", "gpu_s", "finished"):
        column = np.asarray(getattr(outcome, name))
        if column.shape != (jobs,):
            raise InstanceError(
                f"outcome.{name} has shape {column.shape}, the previous answer's round has"
                f" {jobs} jobs"
            )
        if not np.isfinite(column).all():
            raise InstanceError(f"outcome.{name}: must be finite")
    if not -math.inf < outcome.start_s < outcome.end_s < math.inf:
        raise InstanceError(
            f"outcome.end_s = {outcome.end_s}: must lie after start_s = {outcome.start_s}"
        )


@dataclass(frozen=True)
class TrainingRuns:
    """Scenarios from the first arrival to the last end."""

    counted: ClassVar[str] = "jobs"

    def read_scenario(
        self, path: PathLike, *, variant: str | None = None, seed: int | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Scenario:  # fmt: skip
        """Read a scenario."""
        return read_scenario(path, variant=variant, seed=seed, overrides=overrides)

    def variant_names(self, path: PathLike) -> tuple[str, ...]:
        """List its variants."""
        return variant_names(path)

    def digest(self, scenario: Scenario) -> str:
        """Give its fingerprint."""
        return scenario_digest(scenario)

    def run(
        self, scenario: Scenario, decider: Decider, *, policy: str, journal: Path | None,
        progress: Progress | None,
    ) -> Run:  # fmt: skip
        """Carry it out."""
        return run(scenario, decider, policy=policy, journal=journal, progress=progress)

    def metrics(self, run: Run) -> TrainingMetrics:
        """Measure a run."""
        return training_metrics(run)

    def metrics_from_dict(self, data: Mapping[str, Any]) -> TrainingMetrics:
        """Read metrics."""
        return TrainingMetrics.from_dict(data)

    def frames(self, run: Run) -> Mapping[str, pd.DataFrame]:
        """Give jobs and rounds."""
        return {"jobs": per_job_frame(run), "rounds": per_round_frame(run)}


@dataclass(frozen=True)
class TrainingTables:
    """Tables of jobs."""

    def decision(self, policy: str, round_: TrainingRound, decision: Decision) -> tuple[Table]:
        """Show where each job runs."""
        return (decision_table(policy, round_, decision),)

    def plan(self, round_: TrainingRound, allocation: Allocation) -> str:
        """Count jobs and GPUs."""
        return f"{allocation.job.size} jobs on {int(allocation.gpus.sum())} GPUs"

    def metrics(self, metrics: TrainingMetrics, *, title: str) -> Table:
        """List metrics."""
        return metrics_table(metrics, title=title)

    def comparison(self, runs: Iterable[tuple[Labels, TrainingMetrics]], *, title: str) -> Table:
        """Compare metrics."""
        return comparison_table(runs, title=title)

    def figure(self, run: Run) -> Text | None:
        """Draw the use of GPUs over time."""
        return utilisation_figure(run)


TRAINING = Family(
    name=TrainingRound.family,
    round_type=TrainingRound,
    scenario_type=Scenario,
    policies=POLICIES,
    default_policy="fft",
    files=TrainingFiles(),
    rules=TrainingRules(),
    runs=TrainingRuns(),
    tables=TrainingTables(),
)
