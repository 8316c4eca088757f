"""An answer to a round: the decision, the checker's verdict, and all that is needed to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apportion.instances import Decision, InstanceError, Stage
from apportion.instances.files import naming, read_json, write_json
from apportion.instances.memory_json import dump_memory, load_memory
from apportion.instances.training import Allocation, TrainingRound
from apportion.instances.training.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
)
from apportion.instances.training.round_json import round_from_dict, round_to_dict

SCHEMA = "apportion/answer/1"


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
    """

    policy: str
    parameters: Mapping[str, Any]
    round_: TrainingRound
    decision: Decision
    memory: Any = None
    elapsed_s: float = 0.0
    skipped: tuple[str, ...] = field(default=())

    @property
    def allocation(self) -> Allocation:
        """Who runs where."""
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
        decision, jobs = self.decision, self.round_.jobs
        next_s = decision.next_decision_s
        return {
            "schema": SCHEMA,
            "family": "training",
            "policy": {"name": self.policy, "parameters": dict(self.parameters)},
            "status": decision.status,
            "objective": decision.objective,
            "bound": decision.bound,
            "gap": decision.gap,
            "next_decision_s": None if next_s is None or np.isinf(next_s) else next_s,
            "until_change": next_s is not None and bool(np.isinf(next_s)),
            "time_limited": decision.time_limited,
            "notes": list(decision.notes),
            "allocation": allocation_to_dict(self.round_, decision.allocation),
            "jobs": {
                "id": jobs.id.tolist(),
                **{name: np.asarray(column).tolist() for name, column in decision.per_job.items()},
            },
            "stages": [
                {
                    "name": stage.name, "objective": stage.objective, "bound": stage.bound,
                    "gap": stage.gap, "answered": stage.answered, "backend": stage.backend,
                    "note": stage.note,
                }
                for stage in decision.stages
            ],
            "carry": json.loads(dump_memory(decision.carry)),
            "memory": json.loads(dump_memory(self.memory)),
            "round": round_to_dict(self.round_),
            "timings": {
                "elapsed_s": self.elapsed_s,
                "stages_s": [stage.elapsed_s for stage in decision.stages],
            },
        }  # fmt: skip

    def write(self, path: str | Path) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        write_json(path, self.to_dict())


def answer_from_dict(data: Any) -> Answer:
    """Read an answer back from plain data.

    Raises
    ------
    InstanceError
        On anything that is not an answer of this version.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise InstanceError(f"answer: schema is {found!r}, expected {SCHEMA!r}")
    missing = [key for key in ("policy", "status", "allocation", "round") if key not in data]
    if missing:
        raise InstanceError(f"answer: {missing[0]!r} is missing")
    round_ = round_from_dict(data["round"])
    allocation = allocation_from_dict(round_, data["allocation"])
    next_s = np.inf if data.get("until_change") else data.get("next_decision_s")
    per_job = {
        name: np.asarray(column) for name, column in data.get("jobs", {}).items() if name != "id"
    }
    times = data.get("timings", {}).get("stages_s", [])
    stages = tuple(
        Stage(**stage, elapsed_s=float(times[at]) if at < len(times) else 0.0)
        for at, stage in enumerate(data.get("stages", []))
    )
    decision = Decision(
        allocation, data["status"], data.get("objective"), data.get("bound"), data.get("gap"),
        carry=load_memory(json.dumps(data.get("carry"))), next_decision_s=next_s,
        per_job=per_job, stages=stages, notes=tuple(data.get("notes", ())),
        time_limited=bool(data.get("time_limited", False)),
    )  # fmt: skip
    return Answer(
        policy=data["policy"]["name"],
        parameters=data["policy"].get("parameters", {}),
        round_=round_,
        decision=decision,
        memory=load_memory(json.dumps(data.get("memory"))),
        elapsed_s=float(data.get("timings", {}).get("elapsed_s", 0.0)),
    )


def read_answer(path: str | Path) -> Answer:
    """Read an answer file.

    Raises
    ------
    InstanceError
        Naming the file and what is wrong with it.
    """
    with naming(path):
        return answer_from_dict(read_json(path))
