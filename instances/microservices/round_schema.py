"""The JSON Schema of a round of microservices, made from the tables of its reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from apportion.instances.microservices import graph_json, round_json
from apportion.instances.microservices.class_merge import LEAST_SHARE, MOST_CLASSES, RESTS
from apportion.instances.microservices.round_columns import (
    LINEAR,
    MICROSERVICES,
    NODES,
    OBSERVED_MICROSERVICES,
    OBSERVED_SERVICES,
    SERVICES,
    Column,
    Columns,
)
from apportion.instances.policy import REASONS
from apportion.instances.versions import schema_name

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "minLength": 1}
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_TYPES: Mapping[str, str] = {"int": "integer", "float": "number", "bool": "boolean"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, Schema], required: Iterable[str]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "required": list(required),
    }


def round_schema_from_tables() -> Schema:
    """Make the schema of a round file."""
    name = schema_name("round", round_json.VERSION)
    cluster: Schema = {"type": ["number", "null"], "minimum": 0}
    properties: dict[str, Schema] = {
        "schema": {"const": name},
        "family": {"const": "microservices"},
        "now_s": {"type": "number", "description": "when the decision falls"},
        "duration_s": _POSITIVE,
        "index": {"type": "integer", "minimum": 0},
        "reasons": _list({"enum": list(REASONS)}),
        "cpu_cores": {**cluster, "description": "of the whole cluster; null: no limit"},
        "memory_mib": {**cluster, "description": "of the whole cluster; null: no limit"},
        "microservices": table_schema(MICROSERVICES),
        "services": table_schema(SERVICES),
        "classes": _classes(),
        "containers": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0},
            "description": "containers that run now, by microservice; left out: not known",
        },
        "share_error": {
            "type": "object",
            "additionalProperties": {"type": "number", "minimum": 0, "maximum": 2},
            "description": "L1 distance within which the true shares of a service are expected",
        },
        "nodes": table_schema(NODES),
        "linear": table_schema(LINEAR),
        "observed": _object(
            {
                "microservices": table_schema(OBSERVED_MICROSERVICES),
                "services": table_schema(OBSERVED_SERVICES),
            },
            ("microservices", "services"),
        ),
    }
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{name}/microservices",
        "title": "A scheduling round of a microservice application",
    }
    required = ("schema", "family", "microservices", "services", "classes")
    return {**head, **_object(properties, required), "$defs": {"stages": _stages()}}


def table_schema(columns: Columns) -> Schema:
    """Describe a table of columns."""
    properties = {name: _list(_value(column)) for name, column in columns.items()}
    for name, column in columns.items():
        properties[name]["description"] = column.about
    return _object(properties, (name for name, one in columns.items() if one.default is None))


def _value(column: Column) -> Schema:
    if column.kind == "name":
        return dict(_NAME)
    kind: Any = _TYPES[column.kind]
    out: Schema = {"type": [kind, "null"] if column.infinite else kind}
    if column.least > -math.inf:
        out["exclusiveMinimum" if column.above else "minimum"] = column.least
    if column.most < math.inf:
        out["exclusiveMaximum" if column.below else "maximum"] = column.most
    return out


def _classes() -> Schema:
    properties: dict[str, Schema] = {
        "id": _list(_NAME),
        "service": {**_list(_NAME), "description": "its service; may be left out if there is one"},
        "share": _list({"type": "number", "minimum": 0, "maximum": 1}),
        "stages": {**_list({"$ref": "#/$defs/stages"}), "description": "the call tree of each"},
        "calls": {**_list(_calls()), "description": "the same as columns, instead of stages"},
    }
    one_form = [{"required": ["stages"]}, {"required": ["calls"]}]
    return {**_object(properties, ("id", "share")), "oneOf": one_form}


def _calls() -> Schema:
    properties = {
        "microservice": _list(_NAME),
        "parent": {
            **_list({"type": "integer", "minimum": -1}),
            "description": "place of the caller in these lists; -1: the request",
        },
        "stage": _list({"type": "integer", "minimum": 0}),
        "calls": _list(_POSITIVE),
    }
    return _object(properties, round_json.CALL_COLUMNS)


def _stages() -> Schema:
    """Describe a tree: stages run one after the other, the calls of a stage side by side."""
    call = _object(
        {
            "microservice": _NAME,
            "calls": {**_POSITIVE, "description": "calls for each call of the parent; default 1"},
            "stages": {"$ref": "#/$defs/stages"},
        },
        ("microservice",),
    )
    return _list(_list(call))


def graph_schema_from_tables() -> Schema:
    """Make the schema of a file of call graphs with branches."""
    name = schema_name("graph", graph_json.VERSION)
    trees: Schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/stages"}}
    rows = {**_list(_joint_row()), "description": "their probabilities sum to 1"}
    properties: dict[str, Schema] = {
        "schema": {"const": name},
        "family": {"const": "microservices"},
        "microservices": table_schema(MICROSERVICES),
        "services": table_schema(SERVICES),
        "trees": {**trees, "description": "the stages of each service"},
        "joint": {
            "type": "object",
            "additionalProperties": rows,
            "description": "branches of a service that depend on one another",
        },
        "most_classes": {
            "type": "integer",
            "minimum": 1,
            "description": f"classes of a service at most, default {MOST_CLASSES}",
        },
        "least_share": {
            **_PROBABILITY,
            "description": f"rarer graphs count as violated, default {LEAST_SHARE:g}",
        },
        "rest": {"enum": list(RESTS), "description": "what becomes of graphs beyond the most"},
    }
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        "title": "Call graphs of a microservice application, with branches",
    }
    required = ("schema", "family", "microservices", "services", "trees")
    return {**head, **_object(properties, required), "$defs": {"stages": _branching()}}


def _joint_row() -> Schema:
    return _object({"present": _list(_NAME), "p": _PROBABILITY}, ("present", "p"))


def _branching() -> Schema:
    """Describe a tree whose calls may be left out or exclude one another."""
    keys: dict[str, Schema] = {
        "microservice": _NAME,
        "calls": {**_POSITIVE, "description": "calls for each call of the parent; default 1"},
        "stages": {"$ref": "#/$defs/stages"},
        "p": {**_PROBABILITY, "description": "chance that it is made, default 1"},
    }
    branch: Schema = {**_NAME, "description": "name of a branch that the joint table decides"}
    one = _object({**keys, "branch": branch}, ("microservice",))
    choice = _object({"one_of": _list(_object(keys, ("microservice", "p")))}, ("one_of",))
    return _list(_list({"anyOf": [one, choice]}))
