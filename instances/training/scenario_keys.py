"""The keys of a training scenario: what each table of the TOML file may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apportion.instances.scenario_file import VERSION
from apportion.instances.tables import Rows, Table, Value, schema_of
from apportion.instances.training.generate import GENERATOR_KEYS
from apportion.instances.training.metric_stops import METRIC_STOPS
from apportion.instances.versions import schema_name

MOST_GPUS = 1_000_000
"""GPUs of one type at most: a slip of the finger must not fill the memory with nodes."""

MOST_NOISE = 10.0
"""Relative spread at most: beyond it nearly all true values are next to zero."""

_NODE_GPUS = Value("whole", "GPUs of a node where [cluster] is left out", 1)
_TOTAL_GPUS = Value("whole", "GPUs in all where [cluster] is left out", 1, MOST_GPUS)
_NAME = Value("text", "its name", required=True)
_GIB = Value("number", "memory, GiB; left out: not tracked", 0, above=True)
_CPUS = Value("number", "CPU cores; left out: not tracked", 0)

TYPE = Table(
    "one GPU type",
    {
        "name": _NAME,
        "gpus": Value("whole", "GPUs of this type, laid out on nodes of one size", 0, MOST_GPUS),
        "gpus_per_node": Value("whole", "GPUs of a node, default 8; the last takes the rest", 1),
        "memory_gib": _GIB,
        "cpus_per_node": _CPUS,
        "node_memory_gib": _GIB,
    },
)
NODE = Table(
    "one node, where nodes differ",
    {
        "name": _NAME,
        "type": Value("text", "its GPU type", required=True),
        "gpus": Value("whole", "its GPUs", 1, required=True),
        "cpus": _CPUS,
        "memory_gib": _GIB,
        "rack": Value("text", "rack or switch, default rack-0"),
    },
)
CLUSTER = Table(
    "the GPUs there are",
    {
        "type": Rows(TYPE),
        "node": Rows(NODE),
        "add_gpus": Value("by_name", "more GPUs of a type, on nodes of its own size", 0, MOST_GPUS),
        "remove_nodes": Value("texts", "nodes that are gone, by name"),
    },
)

EVERY_WORKLOAD: Mapping[str, Value] = {
    "kind": Value("text", "where the jobs come from", required=True),
    "weight_factor": Value(
        "number_or_by_name",
        "multiplies the jobs' weights; by name: those of a tenant",
        0,
        above=True,
    ),
    "arrival_compression": Value("number", "arrival times are divided by it", 0, above=True),
    "limit": Value("whole", "only the first so many jobs, by arrival", 0),
}
WORKLOADS: Mapping[str, Mapping[str, Value]] = {
    "generate": GENERATOR_KEYS,
    "jobs": {"path": Value("text", "a file of jobs (apportion/jobs/1)", required=True)},
    "gavel": {
        "traces": Value("texts", "trace files; each is a tenant", required=True),
        "throughputs": Value("text", "the table of throughputs", required=True),
        "missing": Value("text", "jobs the table does not hold", choices=("error", "skip")),
        "spread": Value("flag", "read the slow-down of spread gangs, default true"),
    },
    "philly": {
        "path": Value("text", "the flat table", required=True),
        "timezone": Value("text", "zone of its times: UTC, +02:00, or an IANA name", required=True),
        "gpus_per_node": _NODE_GPUS,
        "total_gpus": _TOTAL_GPUS,
    },
    "chronus": {
        "path": Value("text", "the trace", required=True),
        "model_info": Value("text", "the table of relative speeds of spread gangs"),
        "gpus_per_node": _NODE_GPUS,
        "total_gpus": _TOTAL_GPUS,
    },
    "elasticflow": {
        "path": Value("text", "the trace", required=True),
        "gpus_per_node": _NODE_GPUS,
        "total_gpus": _TOTAL_GPUS,
    },
}
"""The further keys of a workload of each kind."""

TRUTH = Table(
    "how what happens differs from what is reported",
    {
        "work_noise": Value(
            "number", "relative spread of the true work, log-normal", 0, MOST_NOISE
        ),
        "throughput_noise": Value(
            "number", "relative spread of each true throughput", 0, MOST_NOISE
        ),
    },
)
TENANT = Table(
    "one tenant",
    {
        "name": _NAME,
        "weight": Value("number", "share, default 1", 0, above=True),
        "quota_gpus": Value("number", "GPUs it is entitled to; left out: no quota", 0),
    },
)
POLICY = Table(
    "who decides",
    {
        "name": Value("text", "its registered name", required=True),
        "parameters": Value("plain", "its parameters; the policy checks them"),
    },
)
FAILURE = Table(
    "a node that fails",
    {
        "node": Value("text", "its name", required=True),
        "at_s": Value("number", "when it fails", 0, required=True),
        "repair_s": Value("number", "when it is back; left out: never", 0, above=True),
    },
)
EXECUTOR = Table(
    "how rounds are carried out",
    {
        "round_s": Value("number", "length of a round", 0, above=True),
        "backfill": Value("flag", "whether waiting jobs take what becomes free inside a round"),
        "until_s": Value("number", "stop then; left out: when all jobs are done", 0, above=True),
        "bandwidth_gb_per_s": Value("number", "rate at which state moves", 0, above=True),
        "fixed_s": Value("number", "time every charged switch costs", 0),
        "charge_start": Value("flag", "whether a first start costs a switch"),
        "charge_resume": Value("flag", "whether a resume on the same type costs a switch"),
        "charge_move": Value("flag", "whether a move between nodes of a type costs a switch"),
        "failure": Rows(FAILURE),
    },
)


def workload_table(kind: str) -> Table:
    """Describe ``[workload]`` for one kind."""
    return Table(f"jobs of kind {kind!r}", {**EVERY_WORKLOAD, **WORKLOADS[kind]})


def scenario_table(kind: str) -> Table:
    """Describe the whole file for one kind of workload, variants and ``schema`` apart."""
    return Table(
        "a training scenario",
        {
            "family": Value("text", "family of the round", choices=("training",), required=True),
            "name": Value("text", "for tables and folders", required=True),
            "about": Value("text", "one line for people"),
            "epoch": Value("text", "instant that time 0 stands for, ISO-8601 with offset"),
            "seed": Value("whole", "root of every random stream", 0),
            "cluster": CLUSTER,
            "workload": workload_table(kind),
            "truth": TRUTH,
            "metric_stops": METRIC_STOPS,
            "tenant": Rows(TENANT),
            "policy": POLICY,
            "executor": EXECUTOR,
        },
    )


def scenario_schema_from_tables() -> dict[str, Any]:
    """Make the published JSON Schema of a scenario, as its TOML reads into plain data."""
    whole = schema_of(scenario_table("generate"))
    whole["properties"]["workload"] = {"oneOf": [_workload(kind, False) for kind in WORKLOADS]}
    patch = schema_of(scenario_table("generate"), partial=True)
    patch["properties"]["workload"] = {"anyOf": [_workload(kind, True) for kind in WORKLOADS]}
    del patch["properties"]["family"]
    patch["properties"]["name"]["description"] = "name of the variant"
    patch["required"] = ["name"]
    patch["description"] = "a what-if: its name, and the values that differ"
    whole["properties"]["variant"] = {"type": "array", "items": patch}
    name = schema_name("scenario", VERSION)
    whole["properties"] = {"schema": {"const": name}, **whole["properties"]}
    whole["required"] = ["schema", *whole["required"], "workload"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": name}
    return {**head, "title": "A training scenario", **whole}


def _workload(kind: str, partial: bool) -> dict[str, Any]:
    out = schema_of(workload_table(kind), partial=partial)
    out["properties"]["kind"] = {"const": kind, "description": "where the jobs come from"}
    return out
