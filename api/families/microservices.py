"""Microservice applications under latency SLAs, as the face sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from rich.text import Text

from apportion.executor.microservices import Run, check, run, scenario_digest
from apportion.families.family import Family, Progress
from apportion.families.microservices_decision import decision_tables, facts, summary
from apportion.formulations.microservices import POLICIES
from apportion.instances import Decider, Decision, InstanceError, Violation
from apportion.instances.files import PathLike
from apportion.instances.microservices import Allocation, MicroserviceRound, Outcome, Scenario
from apportion.instances.microservices.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
)
from apportion.instances.microservices.following import round_after
from apportion.instances.microservices.planned import planned_outcome
from apportion.instances.microservices.round_json import round_from_dict, round_to_dict
from apportion.instances.microservices.scenario_toml import read_scenario
from apportion.instances.scenario_file import variant_names
from apportion.results import Labels, Table
from apportion.results.microservices import MicroserviceMetrics, microservice_metrics
from apportion.results.microservices_frames import (
    class_frame,
    microservice_frame,
    round_frame,
    service_frame,
)
from apportion.results.microservices_report import comparison_table, metrics_table


@dataclass(frozen=True)
class MicroserviceFiles:
    """Rounds of microservices as plain data."""

    rows: ClassVar[str] = "microservices"
    told: ClassVar[tuple[str, ...]] = ("services", "classes")

    def row_names(self, round_: MicroserviceRound) -> list[str]:
        """Name the microservices."""
        return round_.microservices.id.tolist()

    def round_from_dict(self, data: object) -> MicroserviceRound:
        """Read a round."""
        return round_from_dict(data)

    def round_to_dict(self, round_: MicroserviceRound) -> dict[str, Any]:
        """Write a round."""
        return round_to_dict(round_)

    def allocation_from_dict(self, round_: MicroserviceRound, data: object) -> Allocation:
        """Read a plan."""
        return allocation_from_dict(round_, data)

    def allocation_to_dict(
        self, round_: MicroserviceRound, allocation: Allocation
    ) -> dict[str, Any]:
        """Write a plan."""
        return allocation_to_dict(round_, allocation)

    def outcome_from_dict(self, round_: MicroserviceRound, data: object) -> Outcome:
        """Read what happened."""
        return outcome_from_dict(round_, data)

    def facts(self, round_: MicroserviceRound, allocation: Allocation) -> dict[str, Any]:
        """Bound the share of requests of every service and class that are too slow."""
        return facts(round_, allocation)

    def commitments_from_rows(self, round_: MicroserviceRound, data: object) -> None:
        """Refuse: nothing is reserved in this family."""
        raise InstanceError("commitments: rounds of microservices have none")

    def commitment_rows(
        self, round_: MicroserviceRound, commitments: object
    ) -> list[dict[str, Any]]:
        """Refuse: nothing is reserved in this family."""
        raise InstanceError("commitments: rounds of microservices have none")

    def shares_from_dict(self, data: object) -> None:
        """Refuse: there are no users whose shares could be audited."""
        raise InstanceError("shares: answers about microservices have none")


@dataclass(frozen=True)
class MicroserviceRules:
    """Containers within bounds, and SLAs that are not claimed in vain."""

    def keepable(self, round_: MicroserviceRound) -> tuple[MicroserviceRound, tuple[str, ...]]:
        """Take the round as it is: nothing is promised over rounds."""
        return round_, ()

    def check(self, round_: MicroserviceRound, allocation: Allocation) -> list[Violation]:
        """Check a plan."""
        return check(round_, allocation)

    def finished(
        self, round_: MicroserviceRound, decision: Decision
    ) -> tuple[Decision, list[Violation]]:
        """Check a decision; it is complete as the policy made it."""
        if decision.commitments is not None:
            text = "a decision about microservices holds reservations, which the family lacks"
            return decision, [Violation("commitments", text)]
        return decision, check(round_, decision.allocation)

    def certificate(
        self, program: object, round_: MicroserviceRound, planned: Decision, carried: Allocation,
        gap: float,
    ) -> None:  # fmt: skip
        """Prove nothing: models of this family lean on tails that no certificate holds."""
        return None

    def planned_outcome(
        self, round_: MicroserviceRound, allocation: Allocation, end_s: float | None = None
    ) -> Outcome:
        """Take the laws and the forecast as true."""
        return planned_outcome(round_, allocation, end_s)

    def require_outcome(
        self, outcome: Outcome, before: MicroserviceRound, now: MicroserviceRound
    ) -> None:
        """Refuse an outcome of another application, or of another interval."""
        _require_columns(outcome, before)
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
        self, round_: MicroserviceRound, decision: Decision, outcome: Outcome, arrivals: object
    ) -> MicroserviceRound:
        """Let the plan's containers run and the measurements be known."""
        if arrivals is not None:
            raise InstanceError("arrivals: nothing arrives in rounds of microservices")
        return round_after(round_, decision.allocation, outcome)


def _require_columns(outcome: Outcome, before: MicroserviceRound) -> None:
    sizes = {
        "class_requests": len(before.classes), "violations": len(before.services),
        "unmodelled_requests": len(before.services), "latency_tail_ms": len(before.services),
        "serving": len(before.microservices),
    }  # fmt: skip
    for name, size in sizes.items():
        column = np.asarray(getattr(outcome, name))
        if column.shape != (size,):
            raise InstanceError(
                f"outcome.{name} has shape {column.shape}, the previous answer's round has {size}"
                " of them"
            )
        if np.isnan(column).any() or (name != "latency_tail_ms" and np.isinf(column).any()):
            raise InstanceError(f"outcome.{name}: must be finite")
    if not -math.inf < outcome.start_s < outcome.end_s < math.inf:
        raise InstanceError(
            f"outcome.end_s = {outcome.end_s}: must lie after start_s = {outcome.start_s}"
        )


@dataclass(frozen=True)
class MicroserviceRuns:
    """Scenarios over a number of rounds."""

    counted: ClassVar[str] = "rounds"

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

    def metrics(self, run: Run) -> MicroserviceMetrics:
        """Measure a run."""
        return microservice_metrics(run)

    def metrics_from_dict(self, data: Mapping[str, Any]) -> MicroserviceMetrics:
        """Read metrics."""
        return MicroserviceMetrics.from_dict(data)

    def frames(self, run: Run) -> Mapping[str, pd.DataFrame]:
        """Give rounds, and what services, microservices and classes met in each."""
        return {
            "rounds": round_frame(run), "services": service_frame(run),
            "microservices": microservice_frame(run), "classes": class_frame(run),
        }  # fmt: skip


@dataclass(frozen=True)
class MicroserviceTables:
    """Tables of microservices."""

    def decision(
        self, policy: str, round_: MicroserviceRound, decision: Decision
    ) -> tuple[Table, ...]:
        """Show containers, services and classes."""
        return decision_tables(policy, round_, decision)

    def plan(self, round_: MicroserviceRound, allocation: Allocation) -> str:
        """Count containers and SLAs."""
        return summary(round_, allocation)

    def metrics(self, metrics: MicroserviceMetrics, *, title: str) -> Table:
        """List metrics."""
        return metrics_table(metrics, title=title)

    def comparison(
        self, runs: Iterable[tuple[Labels, MicroserviceMetrics]], *, title: str
    ) -> Table:
        """Compare metrics."""
        return comparison_table(runs, title=title)

    def figure(self, run: Run) -> Text | None:
        """Draw nothing."""
        return None


MICROSERVICES = Family(
    name=MicroserviceRound.family,
    round_type=MicroserviceRound,
    scenario_type=Scenario,
    policies=POLICIES,
    default_policy="derm",
    files=MicroserviceFiles(),
    rules=MicroserviceRules(),
    runs=MicroserviceRuns(),
    tables=MicroserviceTables(),
)
