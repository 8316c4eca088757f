"""The keys of a scenario of microservices: what each table of the TOML file may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apportion.instances.microservices.builtin import BUILTIN_NAMES
from apportion.instances.microservices.generate import GENERATOR_KEYS
from apportion.instances.microservices.microservices import MOST_CONTAINERS
from apportion.instances.microservices.scenario import FORECASTS, SIMULATORS
from apportion.instances.scenario_file import VERSION
from apportion.instances.tables import Rows, Table, Value, schema_of
from apportion.instances.versions import schema_name

MOST_ROUNDS = 1_000_000
"""Rounds at most: a slip of the finger must not fill the memory."""

MOST_NODES = 1_000_000
MOST_NOISE = 10.0
"""Relative spread at most: beyond it nearly all rates are next to zero."""

_NAME = Value("text", "its name", required=True)
_CPU = Value("number", "CPU cores", 0)
_MIB = Value("number", "memory, MiB", 0)

EVERY_GRAPH: Mapping[str, Value] = {
    "kind": Value("text", "where the call graphs come from", required=True),
    "target_ms": Value(
        "number_or_by_name", "latency agreed, of every service or by service", 0, above=True
    ),
    "violation_budget": Value(
        "number_or_by_name", "share of the requests that may exceed it", 0, 1, True
    ),
}
GRAPHS: Mapping[str, Mapping[str, Value]] = {
    "builtin": {
        "name": Value("text", "which application", choices=BUILTIN_NAMES, required=True),
        "seed": Value("whole", "root of the laws that are drawn, default 0", 0),
        "shift_factor": Value("number", "multiplies the least latencies, default 1", 0),
    },
    "generated": {
        "seed": Value("whole", "root of what is drawn, default: that of the scenario", 0),
        **GENERATOR_KEYS,
    },
    "file": {"path": Value("text", "a round or a call graph (JSON)", required=True)},
}
"""The further keys of a graph of each kind."""

MICROSERVICE = Table(
    "what differs from the graph for one microservice",
    {
        "name": _NAME,
        "rate_at_rest_per_ms": Value("number", "rate of a call's time at no load", 0, above=True),
        "rate_slope_per_ms": Value("number", "its change by one call per second", most=0),
        "shift_ms": Value("number", "least latency of a call", 0),
        "least_rate_per_ms": Value("number", "rate down to which the line is trusted", 0),
        "least_load_per_s": Value("number", "lighter loads count as this one", 0),
        "cost": Value("number", "what a container costs", 0, above=True),
        "cpu_cores": _CPU,
        "memory_mib": _MIB,
        "least_containers": Value("whole", "fewest containers", 0, MOST_CONTAINERS),
        "most_containers": Value("whole", "most containers", 0, MOST_CONTAINERS),
    },
)
NODE = Table(
    "one node, where nodes differ",
    {
        "name": _NAME,
        "cpu_cores": Value("number", "CPU cores", 0, required=True),
        "memory_mib": Value("number", "memory, MiB", 0, required=True),
        "cpu_used": Value("number", "cores that others use", 0),
        "memory_used_mib": Value("number", "memory that others use, MiB", 0),
    },
)
CLUSTER = Table(
    "where containers run; left out: without limit",
    {
        "cpu_cores": Value("number", "cores in all", 0),
        "memory_mib": Value("number", "memory in all, MiB", 0),
        "nodes": Value("whole", "number of equal nodes", 1, MOST_NODES),
        "node_cpu_cores": Value("number", "cores of each of them, default 52", 0),
        "node_memory_mib": Value("number", "memory of each of them, default 131072", 0),
        "node": Rows(NODE),
    },
)

EVERY_RATES: Mapping[str, Value] = {
    "kind": Value("text", "where the request rates come from", required=True),
    "noise": Value("number", "relative spread of each rate, log-normal", 0, MOST_NOISE),
}
_ROUNDS = Value("whole", "number of rounds, default 30", 1, MOST_ROUNDS)
_CUT = Value("whole", "only the first so many rounds", 1, MOST_ROUNDS)
_MEAN = Value("number_or_by_name", "requests per second; default: those of the graph", 0)
RATES: Mapping[str, Mapping[str, Value | Rows]] = {
    "constant": {"rounds": _ROUNDS, "per_s": _MEAN},
    "sine": {
        "rounds": _ROUNDS,
        "per_s": _MEAN,
        "amplitude": Value("number", "largest excess over the mean, as a share", 0, 1),
        "period_s": Value("number", "length of a day, default 86400 s", 0, above=True),
        "phase_s": Value("number", "when the rate rises through its mean, default 0"),
    },
    "list": {
        "rounds": _CUT,
        "service": Rows(
            Table(
                "the rates of one service",
                {
                    "name": _NAME,
                    "per_s": Value("numbers", "requests per second by round", 0, required=True),
                },
            )
        ),
    },
    "csv": {
        "rounds": _CUT,
        "path": Value("text", "a table, one row a round", required=True),
        "peak_per_s": Value(
            "number_or_by_name", "scales the column so that this is its peak", 0, above=True
        ),
        "service": Rows(
            Table(
                "the column of one service, default: its name",
                {"name": _NAME, "column": Value("text", "its column", required=True)},
            )
        ),
    },
}
"""The further keys of request rates of each kind."""

EVERY_SHARES: Mapping[str, Value] = {
    "kind": Value("text", "how the shares of the classes move", required=True)
}
_SHARE = Value("by_name", "shares by class; the others of a service share what is left", 0, 1)
SHARES: Mapping[str, Mapping[str, Value | Rows]] = {
    "constant": {"share": _SHARE},
    "dynamic": {
        "share": _SHARE,
        "concentration": Value(
            "number", "how close a round stays to the one before, default 200", 0, above=True
        ),
        "pull": Value("number", "how much of the start returns in each round, default 0.05", 0, 1),
    },
    "list": {
        "class": Rows(
            Table(
                "the shares of one class",
                {
                    "name": _NAME,
                    "share": Value("numbers", "share by round", 0, 1, required=True),
                },
            )
        )
    },
}
"""The further keys of shares of each kind."""

START = Table(
    "what is believed and what runs when the first round begins",
    {
        "containers": Value(
            "number_or_by_name", "containers that run; left out: not known", 0, MOST_CONTAINERS
        ),
        "rate_per_s": Value("number_or_by_name", "requests per second; default: the truth", 0),
        "share": Value("by_name", "shares by class; default: the truth", 0, 1),
        "share_error": Value(
            "number_or_by_name", "L1 distance within which the true shares lie", 0, 2
        ),
    },
)
TRUTH = Table(
    "how containers really answer, against what is believed",
    {
        "model_error": Value(
            "number", "every rate is off by a factor drawn from 1 - this to 1 + this", 0, 0.99
        ),
        "rate_factor": Value(
            "number_or_by_name", "true rate over the believed one", 0, above=True
        ),
        "slope_factor": Value(
            "number_or_by_name", "true fall of the rate under load over the believed one",
            0, above=True,
        ),
    },
)  # fmt: skip
POLICY = Table(
    "who decides",
    {
        "name": Value("text", "its registered name", required=True),
        "parameters": Value("plain", "its parameters; the policy checks them"),
    },
)
EXECUTOR = Table(
    "how rounds are carried out",
    {
        "round_s": Value("number", "length of a round, default 60 s", 0, above=True),
        "simulator": Value("text", "how requests are carried out", choices=SIMULATORS),
        "requests": Value("whole", "requests drawn for each service and round", 1),
        "start_delay_s": Value("number", "time until a new container serves", 0),
        "stabilisation_s": Value("number", "how long larger demands keep containers", 0),
        "largest_step": Value("number", "largest change in a round, as a share", 0, above=True),
        "forecast": Value("text", "how shares are forecast", choices=FORECASTS),
        "rate_margin": Value("number", "added to forecasts of rates, as a share", 0),
        "smoothing": Value("number", "weight of the newest value", 0, 1, True),
        "window": Value("whole", "rounds that forecasts look back", 1),
        "robust": Value("flag", "whether rounds carry the recent error of the shares"),
    },
)

SECTIONS: Mapping[str, tuple[Mapping[str, Value], Mapping[str, Mapping[str, Value | Rows]]]] = {
    "graph": (EVERY_GRAPH, GRAPHS),
    "rates": (EVERY_RATES, RATES),
    "shares": (EVERY_SHARES, SHARES),
}
"""Tables with a kind: the keys of every kind, and those of each."""

DEFAULT_KIND = {"rates": "constant", "shares": "constant"}
"""Kinds of the tables that may be left out."""


def section_table(section: str, kind: str) -> Table:
    """Describe a table of one kind."""
    every, kinds = SECTIONS[section]
    return Table(f"{section} of kind {kind!r}", {**every, **kinds[kind]})


def scenario_table(kinds: Mapping[str, str]) -> Table:
    """Describe the whole file, variants and ``schema`` apart.

    Parameters
    ----------
    kinds
        The kind of each table of ``SECTIONS``.
    """
    family = Value("text", "family of the round", choices=("microservices",), required=True)
    return Table(
        "a scenario of microservices",
        {
            "family": family,
            "name": Value("text", "for tables and folders", required=True),
            "about": Value("text", "one line for people"),
            "epoch": Value("text", "instant that time 0 stands for, ISO-8601 with offset"),
            "seed": Value("whole", "root of every random stream", 0),
            **{name: section_table(name, kinds[name]) for name in SECTIONS},
            "microservice": Rows(MICROSERVICE),
            "cluster": CLUSTER,
            "start": START,
            "truth": TRUTH,
            "policy": POLICY,
            "executor": EXECUTOR,
        },
    )


def scenario_schema_from_tables() -> dict[str, Any]:
    """Make the published JSON Schema of a scenario, as its TOML reads into plain data."""
    first = {name: next(iter(kinds)) for name, (_, kinds) in SECTIONS.items()}
    whole = schema_of(scenario_table(first))
    patch = schema_of(scenario_table(first), partial=True)
    for section in SECTIONS:
        whole["properties"][section] = {"oneOf": _kinds(section, partial=False)}
        patch["properties"][section] = {"anyOf": _kinds(section, partial=True)}
    del patch["properties"]["family"]
    patch["properties"]["name"]["description"] = "name of the variant"
    patch["required"] = ["name"]
    patch["description"] = "a what-if: its name, and the values that differ"
    whole["properties"]["variant"] = {"type": "array", "items": patch}
    name = schema_name("scenario", VERSION)
    whole["properties"] = {"schema": {"const": name}, **whole["properties"]}
    whole["required"] = ["schema", *whole["required"], "graph"]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{name}/microservices",
    }
    return {**head, "title": "A scenario of a microservice application", **whole}


def _kinds(section: str, *, partial: bool) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for kind in SECTIONS[section][1]:
        one = schema_of(section_table(section, kind), partial=partial)
        one["properties"]["kind"] = {"const": kind, "description": "of which kind"}
        out.append(one)
    return out
