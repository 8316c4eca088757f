"""An answer to a round: the decision, the checker's verdict, and all that is needed to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.instances import Decision, InstanceError, Stage
from apportion.instances.columns import floats
from apportion.instances.errors import nearest
from apportion.instances.files import naming, read_json, shown, write_json
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


_KEYS = (
    "schema", "family", "policy", "status", "objective", "bound", "gap", "next_decision_s",
    "until_change", "time_limited", "notes", "allocation", "jobs", "stages", "carry", "memory",
    "round", "timings",
)  # fmt: skip


def answer_from_dict(data: object) -> Answer:
    """Read an answer back from plain data.

    Raises
    ------
    InstanceError
        On anything that is not an answer of this version.
    """
    found = _mapping(data, "answer")
    if found.get("schema") != SCHEMA:
        raise InstanceError(f"answer: schema is {found.get('schema')!r}, expected {SCHEMA!r}")
    for key in found:
        if key not in _KEYS:
            raise InstanceError(f"answer: unknown key {key!r}{nearest(key, _KEYS)}")
    for key in ("policy", "status", "allocation", "round"):
        if key not in found:
            raise InstanceError(f"answer: {key!r} is missing")
    round_ = round_from_dict(found["round"])
    policy = _mapping(found["policy"], "answer.policy")
    timings = _mapping(found.get("timings", {}), "answer.timings")
    return Answer(
        policy=_text(policy.get("name"), "answer.policy.name"),
        parameters=_mapping(policy.get("parameters", {}), "answer.policy.parameters"),
        round_=round_,
        decision=_decision(found, round_, timings),
        memory=load_memory(json.dumps(found.get("memory"))),
        elapsed_s=_number(timings.get("elapsed_s"), "answer.timings.elapsed_s") or 0.0,
    )


def _decision(
    data: Mapping[str, Any], round_: TrainingRound, timings: Mapping[str, Any]
) -> Decision:
    per_job = _mapping(data.get("jobs", {}), "answer.jobs")
    until_change = data.get("until_change") is True
    return Decision(
        allocation=allocation_from_dict(round_, data["allocation"]),
        status=_text(data["status"], "answer.status"),
        objective=_number(data.get("objective"), "answer.objective"),
        bound=_number(data.get("bound"), "answer.bound"),
        gap=_number(data.get("gap"), "answer.gap"),
        carry=load_memory(json.dumps(data.get("carry"))),
        next_decision_s=(
            np.inf if until_change
            else _number(data.get("next_decision_s"), "answer.next_decision_s")
        ),
        per_job={
            name: floats(column, f"answer.jobs.{name}", (len(round_.jobs),))
            for name, column in per_job.items()
            if name != "id"
        },
        stages=_stages(data, timings),
        notes=tuple(_text(note, "answer.notes") for note in _rows(data.get("notes", []), "notes")),
        time_limited=data.get("time_limited") is True,
    )  # fmt: skip


def _stages(data: Mapping[str, Any], timings: Mapping[str, Any]) -> tuple[Stage, ...]:
    times = _rows(timings.get("stages_s", []), "timings.stages_s")
    out: list[Stage] = []
    for at, row in enumerate(_rows(data.get("stages", []), "stages")):
        where = f"answer.stages[{at}]"
        stage = _mapping(row, where)
        elapsed = _number(times[at], f"{where}: time") if at < len(times) else None
        out.append(
            Stage(
                name=_text(stage.get("name"), f"{where}.name"),
                elapsed_s=elapsed or 0.0,
                objective=_number(stage.get("objective"), f"{where}.objective"),
                bound=_number(stage.get("bound"), f"{where}.bound"),
                gap=_number(stage.get("gap"), f"{where}.gap"),
                answered=stage.get("answered") is True,
                backend=stage.get("backend"),
                note=str(stage.get("note", "")),
            )
        )
    return tuple(out)


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InstanceError(f"{where}: expected a table, got {shown(value)}")
    return cast("dict[str, Any]", value)


def _rows(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InstanceError(f"answer.{where}: expected a list, got {shown(value)}")
    return cast("list[Any]", value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InstanceError(f"{where}: expected text, got {shown(value)}")
    return value


def _number(value: object, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InstanceError(f"{where}: expected a number, got {shown(value)}")
    return float(value)


def read_answer(path: str | Path) -> Answer:
    """Read an answer file.

    Raises
    ------
    InstanceError
        Naming the file and what is wrong with it.
    """
    with naming(path):
        return answer_from_dict(read_json(path))
