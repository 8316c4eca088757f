"""Answers read back from files, with the same care as rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from apportion.answer import STAGE_KEYS, VERSION, Answer
from apportion.families.family import Family
from apportion.families.lookup import family_in
from apportion.instances import Decision, InstanceError, Stage
from apportion.instances.columns import bools, floats, ints, names
from apportion.instances.errors import nearest
from apportion.instances.files import naming, read_json, shown
from apportion.instances.memory_json import load_memory
from apportion.instances.policy import Column
from apportion.instances.training.jobs_json import known_keys
from apportion.instances.versions import Migration, migrated
from apportion.solver import Status

MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

STATUSES = (*(status.name for status in Status), "HEURISTIC")

_KEYS = (
    "family", "policy", "status", "objective", "bound", "gap", "next_decision_s", "until_change",
    "time_limited", "notes", "allocation", "commitments", "shares", "stages", "carry",
    "memory", "round", "timings", "skipped", "certificate",
)  # fmt: skip


def read_answer(path: str | Path) -> Answer:
    """Read an answer file.

    Raises
    ------
    InstanceError
        Naming the file and what is wrong with it.
    """
    data = read_json(path)
    with naming(path):
        return answer_from_dict(data)


def answer_from_dict(data: object) -> Answer:
    """Read an answer back from plain data; the inverse of ``Answer.to_dict``.

    Raises
    ------
    InstanceError
        On anything that is not an answer, naming the field.
    """
    content = migrated(data, "answer", VERSION, MIGRATIONS)
    family = family_in(content, "answer.family")
    found = known_keys(content, (*_KEYS, family.files.rows, *family.files.told), "answer")
    for key in ("family", "policy", "status", "allocation", "round"):
        if key not in found:
            raise InstanceError(f"answer.{key} is missing")
    if found["family"] != family.name:
        raise InstanceError(f"answer.family = {shown(found['family'])}: must be a string")
    with naming("answer.round"):
        round_ = family.files.round_from_dict(found["round"])
    policy = known_keys(found["policy"], ("name", "parameters"), "answer.policy")
    timings = known_keys(found.get("timings", {}), ("elapsed_s", "stages_s"), "answer.timings")
    return Answer(
        policy=_text(policy.get("name"), "answer.policy.name"),
        parameters=_object(policy.get("parameters", {}), "answer.policy.parameters"),
        round_=round_,
        decision=_decision(found, family, round_, timings),
        memory=_memory(found.get("memory"), "answer.memory"),
        elapsed_s=_number(timings.get("elapsed_s"), "answer.timings.elapsed_s") or 0.0,
        certificate=_certificate(found.get("certificate")),
        skipped=_texts(found.get("skipped", []), "answer.skipped"),
    )


def _decision(
    data: Mapping[str, Any], family: Family, round_: Any, timings: Mapping[str, Any]
) -> Decision:
    status = _text(data["status"], "answer.status")
    if status not in STATUSES:
        raise InstanceError(f"answer.status = {status!r}{nearest(status, STATUSES)}")
    next_s = _number(data.get("next_decision_s"), "answer.next_decision_s")
    if _truth(data.get("until_change", False), "answer.until_change"):
        next_s = math.inf
    promised = data.get("commitments")
    shares = data.get("shares")
    files = family.files
    with naming("answer"):
        allocation = files.allocation_from_dict(round_, data["allocation"])
        commitments = None if promised is None else files.commitments_from_rows(round_, promised)
        shares = None if shares is None else files.shares_from_dict(shares)
    return Decision(
        allocation=allocation,
        status=status,
        objective=_number(data.get("objective"), "answer.objective"),
        bound=_number(data.get("bound"), "answer.bound"),
        gap=_number(data.get("gap"), "answer.gap"),
        shares=shares,
        carry=_memory(data.get("carry"), "answer.carry"),
        next_decision_s=next_s,
        commitments=commitments,
        per_job=_per_row(data.get(files.rows, {}), files.rows, files.row_names(round_)),
        stages=_stages(data.get("stages", []), timings.get("stages_s", [])),
        notes=_texts(data.get("notes", []), "answer.notes"),
        time_limited=_truth(data.get("time_limited", False), "answer.time_limited"),
    )


def _certificate(data: object) -> dict[str, Any] | None:
    """Read a certificate as it is; what it claims is for ``verify`` to judge."""
    return None if data is None else _object(data, "answer.certificate")


def _per_row(data: object, rows: str, known: list[str]) -> dict[str, Column]:
    where = f"answer.{rows}"
    columns = _object(data, where)
    ids = columns.pop("id", None)
    if ids is not None and ids != known:
        raise InstanceError(f"{where}.id = {shown(ids)}: not the {rows} of its round, in order")
    return {
        name: _column(column, f"{where}.{name}", len(known)) for name, column in columns.items()
    }


def _column(data: object, where: str, count: int) -> Column:
    """Read a column as what its values are: text, truth values, whole numbers, or floats."""
    values = _list(data, where)
    kinds = set[type](map(type, values))
    if kinds == {str}:
        return names(values, where, count=count, unique=False)
    if kinds == {bool}:
        return bools(values, where, (count,))
    if kinds == {int}:
        return ints(values, where, (count,))
    numbers = [math.inf if value is None else _number(value, where) for value in values]
    return floats(numbers, where, (count,))


def _stages(data: object, times: object) -> tuple[Stage, ...]:
    rows = _list(data, "answer.stages")
    spent = _list(times, "answer.timings.stages_s")
    if len(spent) not in (0, len(rows)):
        raise InstanceError(
            f"answer.timings.stages_s: {len(spent)} times for {len(rows)} stages in answer.stages"
        )
    return tuple(_stage(row, at, spent[at] if spent else None) for at, row in enumerate(rows))


def _stage(data: object, at: int, spent: object) -> Stage:
    where = f"answer.stages[{at}]"
    stage = known_keys(data, STAGE_KEYS, where)
    backend = stage.get("backend")
    return Stage(
        name=_text(stage.get("name"), f"{where}.name"),
        elapsed_s=_number(spent, f"answer.timings.stages_s[{at}]") or 0.0,
        objective=_number(stage.get("objective"), f"{where}.objective"),
        bound=_number(stage.get("bound"), f"{where}.bound"),
        gap=_number(stage.get("gap"), f"{where}.gap"),
        answered=_truth(stage.get("answered", False), f"{where}.answered"),
        backend=None if backend is None else _text(backend, f"{where}.backend"),
        note=_text(stage.get("note", ""), f"{where}.note"),
    )


def _memory(data: object, where: str) -> Any:
    try:
        return load_memory(json.dumps(data))
    except InstanceError as error:
        raise InstanceError(f"{where}: {error}") from None


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InstanceError(f"{where}: expected an object, got {shown(value)}")
    return dict(cast("dict[str, Any]", value))


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InstanceError(f"{where}: expected a list, got {shown(value)}")
    return cast("list[Any]", value)


def _texts(value: object, where: str) -> tuple[str, ...]:
    return tuple(_text(one, f"{where}[{at}]") for at, one in enumerate(_list(value, where)))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InstanceError(f"{where} = {shown(value)}: must be a string")
    return value


def _truth(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise InstanceError(f"{where} = {shown(value)}: must be true or false")
    return value


def _number(value: object, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InstanceError(f"{where} = {shown(value)}: must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InstanceError(f"{where} = {shown(value)}: is too large") from None
