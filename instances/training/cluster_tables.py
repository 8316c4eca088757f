"""The table ``[cluster]`` of a scenario: types, nodes, and what a what-if adds or takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.training.cluster import Cluster

GPUS_PER_NODE = 8
_TRACKED = ("cpus", "memory_gib")


@dataclass(frozen=True)
class Hardware:
    """A cluster before and after ``add_gpus`` and ``remove_nodes``.

    Parameters
    ----------
    base
        What the tables of types and nodes say; a generated workload's load refers to it, so that
        "8 more A100" leaves the workload alone.
    cluster
        With the GPUs that were added and without the nodes that are gone.
    """

    base: Cluster
    cluster: Cluster


def read_cluster(section: dict[str, Any]) -> Hardware:
    """Build a cluster from the checked table ``[cluster]``."""
    kinds = cast(list[dict[str, Any]], section.get("type", []))
    seen: set[str] = set()
    for index, kind in enumerate(kinds):
        if kind["name"] in seen:
            raise InstanceError(f"cluster.type[{index}].name = {kind['name']!r}: already used")
        seen.add(kind["name"])
    nodes: list[dict[str, Any]] = []
    for kind in kinds:
        nodes += _uniform(kind, kind.get("gpus", 0), nodes)
    nodes += section.get("node", [])
    types = [kind["name"] for kind in kinds] or [node["type"] for node in nodes]
    for index, node in enumerate(section.get("node", [])):
        if node["type"] not in types:
            raise InstanceError(
                f"cluster.node[{index}].type = {node['type']!r}: unknown GPU type"
                f"{nearest(node['type'], types)}"
            )
    base = _assembled(kinds, nodes)
    changed = _added(section, kinds, nodes)
    changed = _removed(section, changed)
    if not changed:
        raise InstanceError(f"cluster: has no GPUs{_emptied(section, nodes)}")
    return Hardware(base, base if changed == nodes else _assembled(kinds, changed))


def _emptied(section: dict[str, Any], nodes: list[dict[str, Any]]) -> str:
    return " left: remove_nodes takes every node" if nodes and section.get("remove_nodes") else ""


def _uniform(kind: dict[str, Any], gpus: int, others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lay GPUs out on nodes of one size; the last takes the remainder."""
    each = kind.get("gpus_per_node", GPUS_PER_NODE)
    taken = {node["name"] for node in others}
    number = len(others)
    out: list[dict[str, Any]] = []
    while gpus > 0:
        while f"node-{number}" in taken:
            number += 1
        node = {"name": f"node-{number}", "type": kind["name"], "gpus": min(each, gpus)}
        for size, given in zip(_TRACKED, ("cpus_per_node", "node_memory_gib"), strict=True):
            if given in kind:
                node[size] = kind[given]
        out.append(node)
        taken.add(node["name"])
        gpus -= each
    return out


def _added(
    section: dict[str, Any], kinds: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    out = list(nodes)
    known = {kind["name"]: kind for kind in kinds} or {
        node["type"]: {"name": node["type"]} for node in nodes
    }
    for name, gpus in section.get("add_gpus", {}).items():
        if name not in known:
            raise InstanceError(f"cluster.add_gpus.{name}: unknown GPU type{nearest(name, known)}")
        if gpus != int(gpus):
            raise InstanceError(f"cluster.add_gpus.{name} = {gpus}: must be a whole number")
        out += _uniform(known[name], int(gpus), out)
    return out


def _removed(section: dict[str, Any], nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    gone = cast(list[str], section.get("remove_nodes", []))
    known = [node["name"] for node in nodes]
    for index, name in enumerate(gone):
        if name not in known:
            raise InstanceError(
                f"cluster.remove_nodes[{index}] = {name!r}: unknown node{nearest(name, known)}"
            )
    return [node for node in nodes if node["name"] not in gone]


def _assembled(kinds: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> Cluster:
    types = [kind["name"] for kind in kinds] or list(dict.fromkeys(n["type"] for n in nodes))
    racks = list(dict.fromkeys(node.get("rack", "rack-0") for node in nodes)) or ["rack-0"]
    code = {name: index for index, name in enumerate(types)}
    memory = {kind["name"]: kind.get("memory_gib", math.inf) for kind in kinds}

    def sizes(key: str) -> Any:
        return np.array([node.get(key, math.inf) for node in nodes], dtype=np.float64)

    return Cluster(
        types=cast(Any, types),
        type_memory_gib=np.array([memory.get(name, math.inf) for name in types]),
        nodes=cast(Any, [node["name"] for node in nodes]),
        node_type=np.array([code[node["type"]] for node in nodes], dtype=np.int64),
        node_gpus=np.array([node["gpus"] for node in nodes], dtype=np.int64),
        node_cpus=sizes("cpus"),
        node_memory_gib=sizes("memory_gib"),
        node_rack=np.array([racks.index(node.get("rack", "rack-0")) for node in nodes]),
        racks=cast(Any, racks),
    )
