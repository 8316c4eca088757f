"""Rounds of microservices as JSON files: columns by name, call trees as nested lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Ints, Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown, write_json
from apportion.instances.microservices.call_classes import CallClasses
from apportion.instances.microservices.call_trees import CallTrees
from apportion.instances.microservices.linear_latency import LinearLatency
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.nodes import Nodes
from apportion.instances.microservices.observed import Observed
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.round_columns import (
    LINEAR,
    MICROSERVICES,
    NODES,
    OBSERVED_MICROSERVICES,
    OBSERVED_SERVICES,
    SERVICES,
    columns_from_dict,
    columns_to_dict,
)
from apportion.instances.microservices.services import Services
from apportion.instances.plain_data import codes, column_by_name, known_keys, plain_list
from apportion.instances.policy import Reason
from apportion.instances.versions import Migration, migrated, schema_name

VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

ROUND_KEYS = (
    "schema", "family", "now_s", "duration_s", "index", "reasons", "cpu_cores", "memory_mib",
    "microservices", "services", "classes", "containers", "share_error", "nodes", "linear",
    "observed",
)  # fmt: skip
CLASS_KEYS = ("id", "service", "share", "stages", "calls")
CALL_COLUMNS = ("microservice", "parent", "stage", "calls")
OBSERVED_KEYS = ("microservices", "services")


def read_round(path: PathLike) -> MicroserviceRound:
    """Read a round from a JSON file, packed where its name ends in ``.gz``.

    Raises
    ------
    InstanceError
        In one line: file, object, field, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        return round_from_dict(data)


def write_round(round_: MicroserviceRound, path: PathLike) -> None:
    """Write a round to a JSON file, whole or not at all; reading it back gives an equal one."""
    write_json(path, round_to_dict(round_))


def round_to_dict(round_: MicroserviceRound) -> dict[str, Any]:
    """Turn a round into plain data for JSON; what is at its default is left out."""
    out: dict[str, Any] = {
        "schema": schema_name("round", VERSION),
        "family": round_.family,
        "now_s": round_.now_s,
        "duration_s": round_.duration_s,
        "index": round_.index,
        "reasons": list(round_.reasons),
    }
    for name in ("cpu_cores", "memory_mib"):
        if np.isfinite(getattr(round_, name)):
            out[name] = getattr(round_, name)
    ids, services = round_.microservices.id, round_.services.id
    out["microservices"] = columns_to_dict(round_.microservices, MICROSERVICES)
    out["services"] = columns_to_dict(round_.services, SERVICES)
    out["classes"] = classes_to_dict(round_.classes, ids, services)
    if round_.containers is not None:
        out["containers"] = _by_name(round_.containers, ids)
    if round_.share_error.any():
        out["share_error"] = _by_name(round_.share_error, services)
    if round_.nodes is not None:
        out["nodes"] = columns_to_dict(round_.nodes, NODES)
    if round_.linear is not None:
        out["linear"] = columns_to_dict(round_.linear, LINEAR)
    if round_.observed is not None:
        out["observed"] = {
            "microservices": columns_to_dict(round_.observed, OBSERVED_MICROSERVICES),
            "services": columns_to_dict(round_.observed, OBSERVED_SERVICES),
        }
    return out


def round_from_dict(data: object) -> MicroserviceRound:
    """Read a round from plain data; the inverse of ``round_to_dict``."""
    section = known_keys(migrated(data, "round", VERSION, MIGRATIONS), ROUND_KEYS, "round")
    family = section.get("family")
    if family != MicroserviceRound.family:
        hint = nearest(family, [MicroserviceRound.family]) if isinstance(family, str) else ""
        raise InstanceError(f"round.family = {shown(family)}: expected 'microservices'{hint}")
    for name in ("microservices", "services", "classes"):
        if name not in section:
            raise InstanceError(f"round.{name} is missing")
    microservices = Microservices(
        **columns_from_dict(section["microservices"], MICROSERVICES, "microservices")
    )
    services = Services(**columns_from_dict(section["services"], SERVICES, "services"))
    ids, called = microservices.id, services.id
    optional: dict[str, Any] = {
        name: section[name] for name in ("now_s", "duration_s") if name in section
    }
    for name in ("cpu_cores", "memory_mib"):
        if section.get(name) is not None:
            optional[name] = section[name]
    if "reasons" in section:
        reasons = plain_list(section["reasons"], "name", "round.reasons")
        optional["reasons"] = tuple(cast(list[Reason], reasons))
    if "containers" in section:
        optional["containers"] = column_by_name(
            section["containers"], ids, "int", "round.containers"
        )
    if "share_error" in section:
        error = section["share_error"]
        optional["share_error"] = column_by_name(
            error, called, "float", "round.share_error", default=0.0
        )
    if "nodes" in section:
        optional["nodes"] = Nodes(**columns_from_dict(section["nodes"], NODES, "nodes"))
    if "linear" in section:
        optional["linear"] = LinearLatency(**columns_from_dict(section["linear"], LINEAR, "linear"))
    if "observed" in section:
        optional["observed"] = _observed(section["observed"])
    return MicroserviceRound(
        microservices=microservices,
        services=services,
        classes=classes_from_dict(section["classes"], ids, called),
        index=_index(section),
        **optional,
    )


def _index(section: dict[str, Any]) -> int:
    index = section.get("index", 0)
    if type(index) is not int or index < 0:
        raise InstanceError(f"round.index = {shown(index)}: must be a whole number, not negative")
    return index


def _by_name(values: Any, names: Names) -> dict[str, Any]:
    return dict(zip(names.tolist(), values.tolist(), strict=True))


def _observed(data: object) -> Observed:
    section = known_keys(data, OBSERVED_KEYS, "observed")
    parts: dict[str, Any] = {}
    for name, columns in (
        ("microservices", OBSERVED_MICROSERVICES),
        ("services", OBSERVED_SERVICES),
    ):
        if name not in section:
            raise InstanceError(f"observed.{name} is missing")
        parts.update(columns_from_dict(section[name], columns, f"observed.{name}"))
    return Observed(**parts)


def classes_to_dict(classes: CallClasses, microservices: Names, services: Names) -> dict[str, Any]:
    """Turn classes into plain data.

    Trees are nested lists where these read back as the same columns, else columns: numbers of
    stages may leave gaps, and very deep trees cannot be nested.
    """
    out: dict[str, Any] = {
        "id": classes.id.tolist(),
        "service": services[classes.service].tolist(),
        "share": classes.share.tolist(),
    }
    names: list[str] = microservices.tolist()
    try:
        nested = classes.trees.nested_lists(names)
        same = CallTrees.nested(nested, names) == classes.trees
    except RecursionError:
        nested, same = [], False
    if same:
        return {**out, "stages": nested}
    return {**out, "calls": _calls_to_list(classes.trees, microservices)}


def _calls_to_list(trees: CallTrees, microservices: Names) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for k in range(len(trees)):
        own = slice(int(trees.offsets[k]), int(trees.offsets[k + 1]))
        out.append({
            "microservice": microservices[trees.microservice[own]].tolist(),
            "parent": trees.parent[own].tolist(),
            "stage": trees.stage[own].tolist(),
            "calls": trees.calls[own].tolist(),
        })  # fmt: skip
    return out


def classes_from_dict(data: object, microservices: Names, services: Names) -> CallClasses:
    """Read classes from plain data; the inverse of ``classes_to_dict``.

    Raises
    ------
    InstanceError
        On unknown keys, microservices and services, and on trees that are not given in exactly
        one of the two forms.
    """
    section = known_keys(data, CLASS_KEYS, "classes")
    for name in ("id", "share"):
        if name not in section:
            raise InstanceError(f"classes.{name} is missing")
    if ("stages" in section) == ("calls" in section):
        raise InstanceError("classes: give the trees as either 'stages' or 'calls'")
    ids = plain_list(section["id"], "name", "classes.id")
    form = "stages" if "stages" in section else "calls"
    trees = section[form]
    if not isinstance(trees, list) or len(cast(list[Any], trees)) != len(ids):
        raise InstanceError(f"classes.{form}: expected a list of {len(ids)}, one for each class")
    rows = cast(list[Any], trees)
    read = CallTrees.nested(rows, microservices.tolist()) if form == "stages" else None
    return CallClasses.of(
        ids,
        _calls_from_list(rows, microservices) if read is None else read,
        share=plain_list(section["share"], "float", "classes.share"),
        service=_owner(section, len(ids), services),
    )


def _owner(section: dict[str, Any], count: int, services: Names) -> Ints:
    if "service" not in section:
        if services.size != 1:
            raise InstanceError("classes.service is missing: there is more than one service")
        return np.zeros(count, dtype=np.int64)
    where = "classes.service"
    return codes(plain_list(section["service"], "name", where), services, where, "service")


def _calls_from_list(rows: list[Any], microservices: Names) -> CallTrees:
    columns: dict[str, list[Any]] = {name: [] for name in CALL_COLUMNS}
    offsets = [0]
    for index, row in enumerate(rows):
        where = f"classes.calls[{index}]"
        section = known_keys(row, CALL_COLUMNS, where)
        count: int | None = None
        for name, kind in zip(CALL_COLUMNS, ("name", "int", "int", "float"), strict=True):
            if name not in section:
                raise InstanceError(f"{where}.{name} is missing")
            values = plain_list(section[name], kind, f"{where}.{name}")
            count = len(values) if count is None else count
            if len(values) != count:
                raise InstanceError(
                    f"{where}.{name} has {len(values)} values, {where}.microservice has {count}"
                )
            if name == "microservice":
                values = codes(values, microservices, f"{where}.{name}", "microservice").tolist()
            columns[name] += values
        offsets.append(len(columns["calls"]))
    return CallTrees(cast(Any, offsets), **cast(Any, columns))
