"""JSON Schemas of rounds and files of jobs, made from the tables of their readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apportion.instances.policy import REASONS
from apportion.instances.training import jobs_file, round_json
from apportion.instances.training.curves import FAMILIES
from apportion.instances.training.jobs import COLUMNS, INFINITE, RAGGED, Column
from apportion.instances.training.jobs_json import JOB_KEYS, REQUIRED
from apportion.instances.training.true_curves import NOISE_MOST
from apportion.instances.versions import schema_name

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "number"}
_OR_INFINITE: Schema = {"type": ["number", "null"], "description": "null: infinite"}
_TYPES: Mapping[str, str] = {"int": "integer", "float": "number", "bool": "boolean"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, Schema], required: tuple[str, ...]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "required": list(required),
    }


def _head(kind: str, version: int, title: str) -> Schema:
    name = schema_name(kind, version)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        "title": title,
    }


def round_schema_from_tables() -> Schema:
    """Make the schema of a round file."""
    properties = {
        "schema": {"const": schema_name("round", round_json.VERSION)},
        "family": {"const": "training"},
        "now_s": {**_NUMBER, "description": "when the decision falls, seconds since the epoch"},
        "duration_s": {"type": "number", "exclusiveMinimum": 0},
        "index": {"type": "integer", "minimum": 0},
        "reasons": _list({"enum": list(REASONS)}),
        "cluster": _cluster(),
        "node_up": {
            "type": "object",
            "additionalProperties": {"type": "boolean"},
            "description": "nodes out of service are false; the others may be left out",
        },
        "tenants": _tenants(),
        "jobs": jobs_schema(),
        "placement": _list(_placement()),
        "commitments": _list(_commitment()),
    }
    required = ("schema", "family", "cluster", "jobs")
    title = "A scheduling round of a training cluster"
    return {**_head("round", round_json.VERSION, title), **_object(properties, required)}


def jobs_file_schema() -> Schema:
    """Make the schema of a file of jobs."""
    properties = {
        "schema": {"const": schema_name("jobs", jobs_file.VERSION)},
        "family": {"const": "training"},
        "types": {**_list(_NAME), "description": "GPU types, in the order of the throughputs"},
        "jobs": jobs_schema(),
        "true_work": _list({"type": "number", "exclusiveMinimum": 0}),
        "true_throughput_per_s": _list(_list({"type": "number", "minimum": 0})),
        "true_curves": _true_curves(),
    }
    required = ("schema", "family", "types", "jobs")
    title = "Jobs of a training scenario, with their arrivals"
    return {**_head("jobs", jobs_file.VERSION, title), **_object(properties, required)}


def _true_curves() -> Schema:
    amount = _list({"type": "number", "minimum": 0})
    family = _list({"enum": [*FAMILIES, "none"]})
    noise = {"type": "number", "minimum": 0, "maximum": NOISE_MOST}
    out = _object(
        {"family": family, "a": amount, "b": amount, "c": amount, "noise": noise},
        ("family", "a", "b", "c"),
    )
    return {**out, "description": "how the metrics of the jobs really develop"}


def jobs_schema() -> Schema:
    """Make the schema of the section ``jobs``: columns by name."""
    special: dict[str, Schema] = {
        "id": _NAME,
        "throughput_per_s": {
            **_list({"type": "number", "minimum": 0}),
            "description": "one row a job: work a second of the whole gang on each GPU type",
        },
        "tenant": _NAME,
        "previous_type": {"type": ["string", "null"], "description": "null: never ran"},
    }
    ragged = {part for parts in RAGGED.values() for part in parts}
    properties: dict[str, Schema] = {}
    for name in JOB_KEYS:
        if name in special:
            properties[name] = _list(special[name])
        elif name in ragged:
            properties[name] = _list(_list(_NAME if name == "config_type" else _NUMBER))
        else:
            properties[name] = _list(_column(name, COLUMNS[name]))
    return _object(properties, REQUIRED)


def _column(name: str, column: Column) -> Schema:
    if column.kind == "name":
        return dict(_TEXT)
    kind: Any = _TYPES[column.kind]
    out: Schema = {"type": [kind, "null"] if name in INFINITE else kind}
    if column.least > -math.inf:
        out["exclusiveMinimum" if column.above else "minimum"] = column.least
    if column.most < math.inf:
        out["maximum"] = column.most
    return out


def _cluster() -> Schema:
    sizes = _list(_OR_INFINITE)
    properties = {
        "types": {**_list(_NAME), "minItems": 1},
        "type_memory_gib": sizes,
        "nodes": _list(_NAME),
        "node_type": _list(_NAME),
        "node_gpus": _list({"type": "integer", "minimum": 1}),
        "node_cpus": sizes,
        "node_memory_gib": sizes,
        "racks": _list(_NAME),
        "node_rack": _list(_NAME),
    }
    return _object(properties, ("types", "nodes", "node_type", "node_gpus"))


def _tenants() -> Schema:
    weight = _list({"type": "number", "exclusiveMinimum": 0})
    return _object(
        {"id": _list(_NAME), "weight": weight, "quota_gpus": _list(_OR_INFINITE)}, ("id",)
    )


def _placement() -> Schema:
    gpus = {"type": "integer", "minimum": 1}
    return _object({"job": _NAME, "node": _NAME, "gpus": gpus}, round_json.PLACEMENT_KEYS)


def _commitment() -> Schema:
    properties = {
        "job": _NAME,
        "start_s": _NUMBER,
        "end_s": _OR_INFINITE,
        "gpus": {"type": "integer", "minimum": 1},
        "gpu_type": {"type": ["string", "null"], "description": "null: any one type"},
        "kind": _TEXT,
    }
    return _object(properties, ("job", "start_s", "gpus"))
