"""Scenarios of microservices as TOML files, with any number of what-ifs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown
from apportion.instances.microservices.builtin import builtin_round
from apportion.instances.microservices.generate import GENERATOR_KEYS, GraphGenerator
from apportion.instances.microservices.graph_json import graph_from_dict
from apportion.instances.microservices.microservices import Microservices
from apportion.instances.microservices.nodes import Nodes
from apportion.instances.microservices.request_rates import by_name, request_rates
from apportion.instances.microservices.round import MicroserviceRound
from apportion.instances.microservices.round_json import round_from_dict
from apportion.instances.microservices.scenario import ExecutorOptions, Scenario
from apportion.instances.microservices.scenario_keys import DEFAULT_KIND, SECTIONS, scenario_table
from apportion.instances.microservices.share_paths import named_shares, share_paths
from apportion.instances.scenario_file import (
    Rules,
    chosen,
    naming_variant,
    open_scenario,
    spelt_out,
)
from apportion.instances.scenario_merge import Kinds
from apportion.instances.streams import stream
from apportion.instances.tables import read_table

Content = dict[str, Any]

KINDS: Kinds = (
    ("graph", "kind", frozenset({"target_ms", "violation_budget"})),
    ("rates", "kind", frozenset({"noise", "rounds"})),
    ("shares", "kind", frozenset()),
    ("policy", "name", frozenset()),
)
"""Graphs, rates, shares and policies of another kind do not inherit the parameters of the first."""

NODE_CPU_CORES = 52.0
NODE_MEMORY_MIB = 131072.0
"""Nodes of the cluster on which Derm was measured (ISCA 2024, artifact): 52 cores, 128 GB."""


def read_scenario(
    path: PathLike,
    *,
    variant: str | None = None,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Scenario:
    """Read a scenario.

    Parameters
    ----------
    path
        A TOML file, a folder that holds a ``scenario.toml``, or the name of a bundled scenario
        such as ``"ticket-search"``. Paths inside the file start at its folder.
    variant
        Name of one of its variants; None: the scenario as it stands.
    seed
        Replaces the file's seed.
    overrides
        Tables like those of a variant, applied last.

    Raises
    ------
    InstanceError
        In one line: file, path of the table, key, value, and for unknown keys and names the
        nearest known one. The keys of variants that were not asked for are checked too.
    """
    file = open_scenario(path)
    with naming(file.label):
        rules = Rules("microservices", _checked, lambda _: None, KINDS)
        content = chosen(file, rules, variant=variant, seed=seed, overrides=overrides)
        with naming_variant(variant):
            return _built(content, file.folder)


def _checked(content: Content) -> Content:
    """Check every key and value of a whole scenario before anything is made from it."""
    first = {name: next(iter(kinds)) for name, (_, kinds) in SECTIONS.items()}
    known = scenario_table(first).keys
    for key in content:  # before anything is missing: it may be there under a misspelt name
        if key not in known:
            raise InstanceError(f"{key}: unknown key{nearest(key, [*known, 'variant', 'schema'])}")
    if content.get("graph") is None:
        raise InstanceError("graph is missing: say where the call graphs come from")
    kinds = {name: _kind(name, content.get(name)) for name in SECTIONS}
    return read_table(scenario_table(kinds), spelt_out(content), "")


def _kind(section: str, data: Any) -> str:
    if data is None:
        return DEFAULT_KIND[section]
    if not isinstance(data, dict):
        raise InstanceError(f"{section}: expected a table, got {shown(data)}")
    kinds = SECTIONS[section][1]
    kind = cast(Content, data).get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        hint = nearest(kind if isinstance(kind, str) else "", kinds)
        raise InstanceError(f"{section}.kind = {shown(kind)}{hint}")
    return kind


def _built(content: Content, folder: Path | None) -> Scenario:
    seed = content.get("seed", 0)
    round_ = _cluster(_graph(content, folder), content.get("cluster", {}))
    executor = dict(content.get("executor", {}))
    duration_s = float(executor.pop("round_s", round_.duration_s))
    section = content.get("rates", {"kind": "constant"})
    rates = request_rates(section, round_.services, duration_s, seed, folder)
    section = content.get("shares", {"kind": "constant"})
    share = share_paths(section, round_.services, round_.classes, rates.shape[0], seed)
    policy: Content = content.get("policy", {})
    given: Content = {"epoch": content["epoch"]} if "epoch" in content else {}
    if "name" in policy:
        given["policy"] = policy["name"]
    return Scenario(
        name=content["name"],
        start=_start(replace(round_, duration_s=duration_s), content, rates, share),
        rate_per_s=rates,
        share=share,
        true_microservices=_truth(round_.microservices, content.get("truth"), seed),
        seed=seed,
        options=ExecutorOptions(**executor),
        parameters=policy.get("parameters", {}),
        **given,
    )


def _graph(content: Content, folder: Path | None) -> MicroserviceRound:
    """Make or read the call graphs, with what the file says of SLAs and microservices."""
    section: Content = content["graph"]
    match section["kind"]:
        case "builtin":
            own = ("seed", "shift_factor")
            given = {key: section[key] for key in own if key in section}
            round_ = builtin_round(section["name"], **given)
        case "generated":
            given = {key: section[key] for key in GENERATOR_KEYS if key in section}
            seed = section.get("seed", content.get("seed", 0))
            round_ = GraphGenerator(**given).generate(seed)
        case _:
            round_ = _read(section, folder)
    services = round_.services
    names: list[str] = services.id.tolist()
    agreed = {
        key: by_name(section.get(key), getattr(services, key), names, f"graph.{key}", "service")
        for key in ("target_ms", "violation_budget")
    }
    return replace(
        round_,
        services=replace(services, **agreed),
        microservices=_changed(round_.microservices, content.get("microservice", [])),
    )


def _read(section: Content, folder: Path | None) -> MicroserviceRound:
    if folder is None:
        raise InstanceError("graph.path: a scenario that comes with the package has no folder")
    path = folder / section["path"]
    data: object = read_json(path)
    with naming(path):
        name = cast(Content, data).get("schema") if isinstance(data, dict) else None
        if isinstance(name, str) and name.startswith("apportion/graph/"):
            return graph_from_dict(cast(object, data))
        return round_from_dict(cast(object, data))


def _changed(microservices: Microservices, rows: list[Content]) -> Microservices:
    """Override columns of some microservices."""
    names: list[str] = microservices.id.tolist()
    columns: dict[str, Any] = {}
    for index, row in enumerate(rows):
        if row["name"] not in names:
            hint = nearest(row["name"], names)
            raise InstanceError(
                f"microservice[{index}].name = {row['name']!r}: unknown microservice{hint}"
            )
        for key, value in row.items():
            if key != "name":
                column = columns.setdefault(key, getattr(microservices, key).copy())
                column[names.index(row["name"])] = value
    return replace(microservices, **columns)


def _cluster(round_: MicroserviceRound, section: Content) -> MicroserviceRound:
    limits = {key: section[key] for key in ("cpu_cores", "memory_mib") if key in section}
    sizes = [key for key in ("node_cpu_cores", "node_memory_mib") if key in section]
    if sizes and "nodes" not in section:
        raise InstanceError(f"cluster.{sizes[0]}: needs cluster.nodes, the number of nodes")
    names: list[str] = []
    columns: list[list[float]] = [[], [], [], []]
    for row in section.get("node", []):
        names.append(row["name"])
        used = (row.get("cpu_used", 0.0), row.get("memory_used_mib", 0.0))
        for column, value in zip(
            columns, (row["cpu_cores"], row["memory_mib"], *used), strict=True
        ):
            column.append(value)
    for number in range(section.get("nodes", 0)):
        names.append(f"node-{number}")
        columns[0].append(section.get("node_cpu_cores", NODE_CPU_CORES))
        columns[1].append(section.get("node_memory_mib", NODE_MEMORY_MIB))
        columns[2].append(0.0)
        columns[3].append(0.0)
    nodes = Nodes.of(names, *columns) if names else round_.nodes
    return replace(round_, nodes=nodes, **limits)


def _start(
    round_: MicroserviceRound, content: Content, rates: Floats, share: Floats
) -> MicroserviceRound:
    """Say what the scheduler of the first round believes: by default the truth."""
    section: Content = content.get("start", {})
    services, classes = round_.services, round_.classes
    names: list[str] = services.id.tolist()
    changes: Content = {}
    if "containers" in section:
        of: list[str] = round_.microservices.id.tolist()
        running = np.full(len(of), -1.0)  # not yet said
        running = by_name(section["containers"], running, of, "start.containers", "microservice")
        for name, count in zip(of, running, strict=True):
            if count < 0:
                raise InstanceError(f"start.containers.{name} is missing")
        changes["containers"] = running
    if "share_error" in section:
        changes["share_error"] = by_name(
            section["share_error"], round_.share_error, names, "start.share_error", "service"
        )
    believed = by_name(section.get("rate_per_s"), rates[0], names, "start.rate_per_s", "service")
    first = classes.with_share(share[0])
    shares = named_shares(section.get("share"), services, first, "start.share")
    return replace(
        round_,
        services=replace(services, rate_per_s=believed),
        classes=classes.with_share(shares),
        **changes,
    )


def _truth(
    microservices: Microservices, section: Content | None, seed: int
) -> Microservices | None:
    """Turn what is believed into what is true.

    A rate that is off takes its least admissible value along, so that a container carries the
    same load; a slope that is off changes that load.
    """
    if not section:
        return None
    names: list[str] = microservices.id.tolist()
    error, one = section.get("model_error", 0.0), np.ones(len(names))

    def factor(key: str) -> Floats:
        return by_name(section.get(key), one, names, f"truth.{key}", "microservice")

    off = factor("rate_factor")
    off = off * stream(seed, "model_error").uniform(1.0 - error, 1.0 + error, len(names))
    rest, least = microservices.rate_at_rest_per_ms * off, microservices.least_rate_per_ms * off
    slope = microservices.rate_slope_per_ms * off * factor("slope_factor")
    most = (least - rest) / slope
    return replace(
        microservices,
        rate_at_rest_per_ms=rest,
        rate_slope_per_ms=slope,
        least_rate_per_ms=least,
        least_load_per_s=np.minimum(microservices.least_load_per_s, most),
    )
