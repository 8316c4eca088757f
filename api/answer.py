"""An answer to a round: the decision, the checker's verdict, and all that is needed to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apportion.families.family import Family
from apportion.families.lookup import family_of
from apportion.instances import Decision, InstanceError, Stage
from apportion.instances.files import write_json
from apportion.instances.memory_json import dump_memory
from apportion.instances.versions import schema_name

VERSION = 1
"""Of the format of answer files."""

STAGE_KEYS = ("name", "objective", "bound", "gap", "answered", "backend", "note")
"""What a file says of each stage; its time stands under ``timings``."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What ``solve`` gives back.

    Parameters
    ----------
    policy, parameters
        Who decided.
    round_
        The round that was asked.
    decision
        The decision, placed on nodes; its allocation has passed the checker.
    memory
        The policy's memory that the decision rests on; hand the whole answer back as
        ``previous`` and the next call brings it up to date.
    elapsed_s
        Wall time of the whole call.
    skipped
        Back ends that were missing, each with a reason.
    certificate
        What proves the answer to somebody without a solver, as plain data (see ``verify``); None
        for policies whose model does not allow it, and with side rules.
    """

    policy: str
    parameters: Mapping[str, Any]
    round_: Any
    decision: Decision
    memory: Any = None
    elapsed_s: float = 0.0
    skipped: tuple[str, ...] = field(default=())
    certificate: Mapping[str, Any] | None = None

    def next_round(
        self,
        outcome: Any = None,
        *,
        now_s: float | None = None,
        arrivals: Any = None,
    ) -> Any:
        """Build the round that follows: finished jobs leave, the others carry on, newcomers join.

        Parameters
        ----------
        outcome
            What came of the answer; default: its plan carried out as planned.
        now_s
            With no outcome: when the next round falls; default: one round later.
        arrivals
            New jobs, with the same GPU types and tenants.

        Raises
        ------
        InstanceError
            Where the parts do not fit together.
        """
        if outcome is None:
            outcome = self.family.rules.planned_outcome(self.round_, self.allocation, now_s)
        elif now_s is not None and now_s != outcome.end_s:
            raise InstanceError(f"now_s = {now_s}: the outcome ends at {outcome.end_s}")
        return self.family.rules.round_after(self.round_, self.decision, outcome, arrivals)

    @property
    def family(self) -> Family:
        """What the face knows of the round's family."""
        return family_of(self.round_)

    @property
    def allocation(self) -> Any:
        """What was decided, the family's own type: for training jobs, who runs where."""
        return self.decision.allocation

    @property
    def status(self) -> str:
        """What the policy's model says: OPTIMAL, FEASIBLE, INFEASIBLE, NO_SOLUTION, HEURISTIC."""
        return self.decision.status

    @property
    def objective(self) -> float | None:
        """Value of the policy's objective, None where it has none."""
        return self.decision.objective

    @property
    def bound(self) -> float | None:
        """Proved bound of the objective, None where nothing was proved."""
        return self.decision.bound

    @property
    def gap(self) -> float | None:
        """Relative gap between objective and bound, None where nothing was proved."""
        return self.decision.gap

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Which stage ran, how long, and which one answered."""
        return self.decision.stages

    @property
    def notes(self) -> tuple[str, ...]:
        """What the caller should read."""
        return self.decision.notes

    def to_dict(self) -> dict[str, Any]:
        """Give the answer as plain data; wall times stand apart under ``timings``."""
        decision, round_, family = self.decision, self.round_, self.family
        files = family.files
        next_s, promised = decision.next_decision_s, decision.commitments
        return {
            "schema": schema_name("answer", VERSION),
            "family": family.name,
            "policy": {"name": self.policy, "parameters": dict(self.parameters)},
            "status": decision.status,
            "objective": decision.objective,
            "bound": decision.bound,
            "gap": decision.gap,
            "next_decision_s": None if next_s is None or np.isinf(next_s) else next_s,
            "until_change": next_s is not None and bool(np.isinf(next_s)),
            "time_limited": decision.time_limited,
            "notes": list(decision.notes),
            "allocation": files.allocation_to_dict(round_, decision.allocation),
            "commitments": None if promised is None else files.commitment_rows(round_, promised),
            "shares": None if decision.shares is None else decision.shares.to_dict(),
            files.rows: {
                **{name: _shown_column(column) for name, column in decision.per_job.items()},
                "id": files.row_names(round_),
            },
            **files.facts(round_, decision.allocation),
            "stages": [
                {name: getattr(stage, name) for name in STAGE_KEYS} for stage in decision.stages
            ],
            "certificate": None if self.certificate is None else dict(self.certificate),
            "carry": _plain(decision.carry),
            "memory": _plain(self.memory),
            "round": files.round_to_dict(round_),
            "timings": {
                "elapsed_s": self.elapsed_s,
                "stages_s": [stage.elapsed_s for stage in decision.stages],
            },
            "skipped": list(self.skipped),
        }

    def write(self, path: str | Path) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        write_json(path, self.to_dict())


def _shown_column(column: Any) -> list[Any]:
    """List a column; null stands for what is infinite or not known."""
    values = np.asarray(column)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values.tolist()
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _plain(memory: Any) -> Any:
    return json.loads(dump_memory(memory))
