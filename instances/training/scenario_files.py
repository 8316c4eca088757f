"""A scenario as a folder of our own files: ``scenario.toml`` beside ``jobs.json.gz``."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike, write_bytes
from apportion.instances.scenario_file import VERSION
from apportion.instances.toml_text import toml_text
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.cluster_tables import read_cluster
from apportion.instances.training.jobs_file import JobsFile, write_jobs
from apportion.instances.training.scenario import ExecutorOptions, Scenario
from apportion.instances.versions import schema_name

JOBS_NAME = "jobs.json.gz"
TOML_NAME = "scenario.toml"


def write_scenario(scenario: Scenario, folder: PathLike) -> Path:
    """Write a scenario for ``read_scenario``.

    Parameters
    ----------
    scenario
        Whatever its jobs came from, they are written as they are, with the hidden truth.
    folder
        Made where it does not exist; files of the same names are replaced.

    Returns
    -------
    Path
        The ``scenario.toml``.

    Raises
    ------
    InstanceError
        Where the folder cannot be written.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"{place}: cannot be made: {error.strerror or error}") from None
    content = JobsFile(
        scenario.cluster.types, scenario.tenants.id, scenario.jobs,
        scenario.true_work, scenario.true_throughput_per_s, scenario.true_curves,
    )  # fmt: skip
    text = toml_text(_tables(scenario))
    write_jobs(content, place / JOBS_NAME)
    write_bytes(place / TOML_NAME, text.encode())
    return place / TOML_NAME


def _tables(scenario: Scenario) -> dict[str, Any]:
    policy: dict[str, Any] = {"name": scenario.policy}
    if scenario.parameters:
        policy["parameters"] = scenario.parameters
    return {
        "schema": schema_name("scenario", VERSION),
        "family": "training",
        "name": scenario.name,
        "epoch": scenario.epoch,
        "seed": scenario.seed,
        "cluster": _cluster(scenario.cluster),
        "tenant": _tenants(scenario),
        "workload": {"kind": "jobs", "path": JOBS_NAME},
        "policy": policy,
        "executor": _executor(scenario.options, scenario.cluster),
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else float(value)


def _tenants(scenario: Scenario) -> list[dict[str, Any]]:
    who = scenario.tenants
    rows = zip(who.id.tolist(), who.weight.tolist(), who.quota_gpus.tolist(), strict=True)
    return [{"name": n, "weight": w, "quota_gpus": _finite(q)} for n, w, q in rows]


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """Describe a cluster by types alone where that says all, else node by node."""
    types = [_type(cluster, index) for index in range(cluster.types.size)]
    if read_cluster({"type": types}).cluster == cluster:
        return {"type": types}
    types = [{key: row[key] for key in ("name", "memory_gib") if key in row} for row in types]
    return {"type": types, "node": [_node(cluster, index) for index in range(cluster.nodes.size)]}


def _type(cluster: Cluster, index: int) -> dict[str, Any]:
    own = (cluster.node_type == index).nonzero()[0]
    row: dict[str, Any] = {"name": str(cluster.types[index]), "gpus": int(cluster.gpus[index])}
    if own.size:
        first = int(own[0])
        row["gpus_per_node"] = int(cluster.node_gpus[first])
        row["cpus_per_node"] = _finite(float(cluster.node_cpus[first]))
        row["node_memory_gib"] = _finite(float(cluster.node_memory_gib[first]))
    row["memory_gib"] = _finite(float(cluster.type_memory_gib[index]))
    return {key: value for key, value in row.items() if value is not None}


def _node(cluster: Cluster, index: int) -> dict[str, Any]:
    rack = str(cluster.racks[cluster.node_rack[index]])
    return {
        "name": str(cluster.nodes[index]),
        "type": str(cluster.types[cluster.node_type[index]]),
        "gpus": int(cluster.node_gpus[index]),
        "cpus": _finite(float(cluster.node_cpus[index])),
        "memory_gib": _finite(float(cluster.node_memory_gib[index])),
        "rack": None if rack == "rack-0" else rack,
    }


def _executor(options: ExecutorOptions, cluster: Cluster) -> dict[str, Any]:
    switch = options.switch
    out: dict[str, Any] = {
        "round_s": float(options.round_s),
        "backfill": options.backfill,
        "until_s": _finite(options.until_s),
        **{entry.name: getattr(switch, entry.name) for entry in fields(switch)},
    }
    failures = [
        {
            "node": str(cluster.nodes[failure.node]),
            "at_s": float(failure.at_s),
            "repair_s": _finite(failure.repair_s),
        }
        for failure in options.failures
    ]
    return {**out, "failure": failures} if failures else out
