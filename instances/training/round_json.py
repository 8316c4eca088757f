"""Rounds as JSON files: ``"schema": "apportion/round/1"``, names instead of row numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_json, shown, write_json
from apportion.instances.plain_data import (
    codes,
    columns_of,
    finite_or_null,
    known_keys,
    plain_list,
)
from apportion.instances.policy import Reason
from apportion.instances.training.allocation import Commitments, Placement
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs_json import jobs_from_dict, jobs_to_dict
from apportion.instances.training.round import TrainingRound
from apportion.instances.training.tenants import Tenants
from apportion.instances.versions import Migration, migrated, schema_name

VERSION = 1
MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

ROUND_KEYS = (
    "schema", "family", "now_s", "duration_s", "index", "reasons", "cluster", "node_up", "tenants",
    "jobs", "placement", "commitments",
)  # fmt: skip
CLUSTER_KEYS = (
    "types", "type_memory_gib", "nodes", "node_type", "node_gpus", "node_cpus", "node_memory_gib",
    "racks", "node_rack",
)  # fmt: skip
TENANT_KEYS = ("id", "weight", "quota_gpus")
PLACEMENT_KEYS = ("job", "node", "gpus")
COMMITMENT_KEYS = ("job", "start_s", "end_s", "gpus", "gpu_type", "kind")


def read_round(path: PathLike) -> TrainingRound:
    """Read a round from a JSON file, packed where its name ends in ``.gz``.

    Raises
    ------
    InstanceError
        In one line: file, object, field, index, value, and the nearest known spelling.
    """
    data = read_json(path)
    with naming(path):
        return round_from_dict(data)


def write_round(round_: TrainingRound, path: PathLike) -> None:
    """Write a round to a JSON file, whole or not at all; reading it back gives an equal one."""
    write_json(path, round_to_dict(round_))


def round_to_dict(round_: TrainingRound) -> dict[str, Any]:
    """Turn a round into plain data for JSON; what is at its default is left out."""
    cluster, jobs = round_.cluster, round_.jobs
    out: dict[str, Any] = {
        "schema": schema_name("round", VERSION),
        "family": round_.family,
        "now_s": round_.now_s,
        "duration_s": round_.duration_s,
        "index": round_.index,
        "reasons": list(round_.reasons),
        "cluster": cluster_to_dict(cluster),
    }
    if not round_.node_up.all():
        out["node_up"] = {str(name): False for name in cluster.nodes[~round_.node_up]}
    if round_.tenants != Tenants.named("default"):
        out["tenants"] = tenants_to_dict(round_.tenants)
    out["jobs"] = jobs_to_dict(jobs, cluster.types, round_.tenants.id)
    if round_.placement.job.size:
        out["placement"] = placement_rows(round_.placement, jobs.id, cluster.nodes)
    if round_.commitments.job.size:
        out["commitments"] = commitment_rows(round_.commitments, jobs.id, cluster.types)
    return out


def round_from_dict(data: object) -> TrainingRound:
    """Read a round from plain data; the inverse of ``round_to_dict``."""
    section = known_keys(migrated(data, "round", VERSION, MIGRATIONS), ROUND_KEYS, "round")
    family = section.get("family")
    if family != TrainingRound.family:
        hint = nearest(family, [TrainingRound.family]) if isinstance(family, str) else ""
        raise InstanceError(f"round.family = {shown(family)}: expected 'training'{hint}")
    for name in ("cluster", "jobs"):
        if name not in section:
            raise InstanceError(f"round.{name} is missing")
    cluster = cluster_from_dict(section["cluster"])
    tenants = Tenants.named("default")
    if "tenants" in section:
        tenants = tenants_from_dict(section["tenants"])
    jobs = jobs_from_dict(section["jobs"], cluster.types, tenants.id)
    optional: dict[str, Any] = {
        name: section[name] for name in ("now_s", "duration_s") if name in section
    }
    if "reasons" in section:
        reasons = plain_list(section["reasons"], "name", "round.reasons")
        optional["reasons"] = tuple(cast(list[Reason], reasons))
    if "node_up" in section:
        optional["node_up"] = _node_up(section["node_up"], cluster)
    if "placement" in section:
        optional["placement"] = placement_from_rows(section["placement"], jobs.id, cluster.nodes)
    if "commitments" in section:
        rows = section["commitments"]
        optional["commitments"] = commitments_from_rows(rows, jobs.id, cluster.types)
    return TrainingRound(
        cluster=cluster, jobs=jobs, tenants=tenants, index=_index(section), **optional
    )


def _index(section: dict[str, Any]) -> int:
    index = section.get("index", 0)
    if type(index) is not int or index < 0:
        raise InstanceError(f"round.index = {shown(index)}: must be a whole number, not negative")
    return index


def _node_up(data: object, cluster: Cluster) -> Any:
    where = "round.node_up"
    section = known_keys(data, tuple(cluster.nodes.tolist()), where)
    plain_list(list(section.values()), "bool", where)
    up = np.ones(cluster.nodes.size, dtype=np.bool_)
    up[codes(list(section), cluster.nodes, where, "node")] = list(section.values())
    return up


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """Turn a cluster into plain data; sizes that are not tracked are left out."""
    out: dict[str, Any] = {"types": cluster.types.tolist()}
    optional = ("type_memory_gib", "node_cpus", "node_memory_gib")
    sizes = {
        name: finite_or_null(getattr(cluster, name))
        for name in optional
        if np.isfinite(getattr(cluster, name)).any()
    }
    if "type_memory_gib" in sizes:
        out["type_memory_gib"] = sizes.pop("type_memory_gib")
    out["nodes"] = cluster.nodes.tolist()
    out["node_type"] = cluster.types[cluster.node_type].tolist()
    out["node_gpus"] = cluster.node_gpus.tolist()
    out.update(sizes)
    if cluster.racks.tolist() != ["rack-0"]:
        out["racks"] = cluster.racks.tolist()
        out["node_rack"] = cluster.racks[cluster.node_rack].tolist()
    return out


def cluster_from_dict(data: object) -> Cluster:
    """Read a cluster from plain data; the inverse of ``cluster_to_dict``."""
    section = known_keys(data, CLUSTER_KEYS, "cluster")
    for name in ("types", "nodes", "node_type", "node_gpus"):
        if name not in section:
            raise InstanceError(f"cluster.{name} is missing")
    if ("racks" in section) != ("node_rack" in section):
        raise InstanceError("cluster.racks and cluster.node_rack: give both or none")

    def listed(name: str, kind: str, default: Any = None) -> list[Any]:
        return plain_list(section.get(name, default), kind, f"cluster.{name}")

    def sizes(name: str, count: int) -> list[Any]:
        return plain_list(
            section.get(name, [None] * count), "float", f"cluster.{name}", null=np.inf
        )

    types = np.array(listed("types", "name"), dtype=np.str_)
    nodes = np.array(listed("nodes", "name"), dtype=np.str_)
    racks = np.array(listed("racks", "name", ["rack-0"]), dtype=np.str_)
    kinds, rack = listed("node_type", "name"), listed("node_rack", "name", ["rack-0"] * nodes.size)
    return Cluster(
        types=types,
        type_memory_gib=cast(Any, sizes("type_memory_gib", types.size)),
        nodes=nodes,
        node_type=codes(kinds, types, "cluster.node_type", "GPU type"),
        node_gpus=cast(Any, listed("node_gpus", "int")),
        node_cpus=cast(Any, sizes("node_cpus", nodes.size)),
        node_memory_gib=cast(Any, sizes("node_memory_gib", nodes.size)),
        node_rack=codes(rack, racks, "cluster.node_rack", "rack"),
        racks=racks,
    )


def tenants_to_dict(tenants: Tenants) -> dict[str, Any]:
    """Turn tenants into plain data; quotas are left out where none is set."""
    out: dict[str, Any] = {"id": tenants.id.tolist(), "weight": tenants.weight.tolist()}
    if np.isfinite(tenants.quota_gpus).any():
        out["quota_gpus"] = finite_or_null(tenants.quota_gpus)
    return out


def tenants_from_dict(data: object) -> Tenants:
    """Read tenants from plain data; the inverse of ``tenants_to_dict``."""
    section = known_keys(data, TENANT_KEYS, "tenants")
    if "id" not in section:
        raise InstanceError("tenants.id is missing")
    ids = plain_list(section["id"], "name", "tenants.id")
    weight = plain_list(section.get("weight", [1.0] * len(ids)), "float", "tenants.weight")
    quota = section.get("quota_gpus", [None] * len(ids))
    quota = plain_list(quota, "float", "tenants.quota_gpus", null=np.inf)
    return Tenants(cast(Names, ids), cast(Any, weight), cast(Any, quota))


def placement_rows(placement: Placement, jobs: Names, nodes: Names) -> list[dict[str, Any]]:
    """List GPUs on nodes, one entry for each job and node."""
    columns = (
        jobs[placement.job].tolist(), nodes[placement.node].tolist(), placement.gpus.tolist(),
    )  # fmt: skip
    return [dict(zip(PLACEMENT_KEYS, row, strict=True)) for row in zip(*columns, strict=True)]


def placement_from_rows(data: object, jobs: Names, nodes: Names) -> Placement:
    """Read GPUs on nodes; the inverse of ``placement_rows``."""
    where = "placement"
    job, node, gpus = columns_of(data, PLACEMENT_KEYS, where)
    return Placement.of(
        codes(plain_list(job, "name", f"{where}.job"), jobs, f"{where}.job", "job"),
        codes(plain_list(node, "name", f"{where}.node"), nodes, f"{where}.node", "node"),
        plain_list(gpus, "int", f"{where}.gpus"),
    )


def commitment_rows(promised: Commitments, jobs: Names, types: Names) -> list[dict[str, Any]]:
    """List reservations, one entry each; a type of null is any one type."""
    kinds = [*types.tolist(), None]  # -1, any type, finds the last entry
    columns = (
        jobs[promised.job].tolist(),
        promised.start_s.tolist(),
        finite_or_null(promised.end_s),
        promised.gpus.tolist(),
        [kinds[code] for code in promised.gpu_type.tolist()],
        promised.kind.tolist(),
    )
    return [dict(zip(COMMITMENT_KEYS, row, strict=True)) for row in zip(*columns, strict=True)]


def commitments_from_rows(data: object, jobs: Names, types: Names) -> Commitments:
    """Read reservations; the inverse of ``commitment_rows``."""
    where = "commitments"
    defaults = {"end_s": None, "gpu_type": None, "kind": "reservation"}
    job, start, end, gpus, kind, called = columns_of(data, COMMITMENT_KEYS, where, defaults)
    known = np.append(types, "")  # the name of no type stands for null, any type
    at = f"{where}.gpu_type"
    wanted = codes(plain_list(kind, "name", at, null=""), known, at, "GPU type")
    return Commitments.of(
        codes(plain_list(job, "name", f"{where}.job"), jobs, f"{where}.job", "job"),
        plain_list(start, "float", f"{where}.start_s"),
        plain_list(end, "float", f"{where}.end_s", null=np.inf),
        plain_list(gpus, "int", f"{where}.gpus"),
        np.where(wanted == types.size, -1, wanted),
        plain_list(called, "name", f"{where}.kind"),
    )
