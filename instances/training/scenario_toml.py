"""Scenarios as TOML files, with any number of what-ifs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from apportion.instances import scenario_file
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, shown
from apportion.instances.scenario_file import (
    BASE,
    Rules,
    chosen,
    naming_variant,
    open_scenario,
    spelt_out,
    variant_names,
)
from apportion.instances.scenario_merge import Kinds
from apportion.instances.tables import read_table
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.cluster_tables import read_cluster
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.metric_stops import metric_stops
from apportion.instances.training.scenario import ExecutorOptions, Failure, Scenario
from apportion.instances.training.scenario_keys import WORKLOADS, scenario_table
from apportion.instances.training.workloads import Source, load_workload, noisy

__all__ = ["BASE", "KINDS", "bundled_names", "read_scenario", "variant_names"]

Content = dict[str, Any]

KINDS: Kinds = (
    ("workload", "kind", frozenset({"weight_factor", "arrival_compression", "limit"})),
    ("policy", "name", frozenset()),
)
"""Another kind of workload, or another policy, does not inherit the parameters of the first."""


def bundled_names() -> tuple[str, ...]:
    """List the training scenarios that come with the package."""
    return scenario_file.bundled_names("training")


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
        such as ``"demo"``. Paths inside the file start at its folder.
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
        nearest known one. Variants that were not asked for are checked too.
    """
    file = open_scenario(path)
    with naming(file.label):
        rules = Rules("training", _checked, _check_names, KINDS)
        content = chosen(file, rules, variant=variant, seed=seed, overrides=overrides)
        with naming_variant(variant):
            return _built(content, file.folder)


def _check_names(content: Content) -> None:
    """Check the names that can be known without making the jobs: GPU types, nodes, tenants."""
    if "cluster" in content:
        read_cluster(content["cluster"])
    workload, tenants = content["workload"], [row["name"] for row in content.get("tenant", [])]
    factor = workload.get("weight_factor")
    if isinstance(factor, dict) and (tenants or workload["kind"] == "generate"):
        if workload["kind"] in ("gavel", "philly", "chronus", "elasticflow"):
            return  # traces bring further tenants along
        known = tenants or ["default"]
        for name in cast(Content, factor):
            if name not in known:
                hint = nearest(name, known)
                raise InstanceError(f"workload.weight_factor.{name}: unknown tenant{hint}")


def _checked(content: Content) -> Content:
    """Check every key and value of a whole scenario before anything is made from it."""
    known = scenario_table("generate").keys
    for key in content:  # before anything is missing: it may be there under a misspelt name
        if key not in known:
            raise InstanceError(f"{key}: unknown key{nearest(key, [*known, 'variant', 'schema'])}")
    workload = content.get("workload")
    if workload is None:
        raise InstanceError("workload is missing: say where the jobs come from")
    if not isinstance(workload, dict):
        raise InstanceError(f"workload: expected a table, got {shown(workload)}")
    kind = cast(Content, workload).get("kind")
    if not isinstance(kind, str) or kind not in WORKLOADS:
        hint = nearest(kind if isinstance(kind, str) else "", WORKLOADS)
        raise InstanceError(f"workload.kind = {shown(kind)}{hint}")
    return read_table(scenario_table(kind), spelt_out(content), "")


def _built(content: Content, folder: Path | None) -> Scenario:
    seed = content.get("seed", 0)
    hardware = read_cluster(content["cluster"]) if "cluster" in content else None
    source = Source(content["workload"], hardware, content.get("tenant", []), folder, seed)
    workload = noisy(load_workload(source), content.get("truth", {}), seed)
    workload = metric_stops(workload, content.get("metric_stops"), seed)
    nodes = workload.cluster if hardware is None else hardware.base
    policy: Content = content.get("policy", {})
    given: Content = {}
    epoch = content.get("epoch", workload.epoch)
    if epoch is not None:
        given["epoch"] = epoch
    if "name" in policy:
        given["policy"] = policy["name"]
    return Scenario(
        name=content["name"],
        cluster=workload.cluster,
        jobs=workload.jobs,
        tenants=workload.tenants,
        seed=seed,
        options=_executor(content.get("executor", {}), workload.cluster, nodes),
        true_work=workload.true_work,
        true_throughput_per_s=workload.true_throughput_per_s,
        true_curves=workload.true_curves,
        parameters=policy.get("parameters", {}),
        **given,
    )


def _executor(section: Content, cluster: Cluster, before: Cluster) -> ExecutorOptions:
    """Build the options; failures of nodes that a what-if takes away are dropped."""
    own = ("round_s", "backfill", "until_s")
    options = {key: section[key] for key in own if key in section}
    costs = {key: value for key, value in section.items() if key not in (*own, "failure")}
    failures: list[Failure] = []
    known: list[str] = cluster.nodes.tolist()
    for index, row in enumerate(section.get("failure", [])):
        name = row["node"]
        if name in known:
            times = {key: float(row[key]) for key in ("at_s", "repair_s") if key in row}
            failures.append(Failure(known.index(name), **times))
        elif name not in before.nodes:
            raise InstanceError(
                f"executor.failure[{index}].node = {name!r}: unknown node{nearest(name, known)}"
            )
    return ExecutorOptions(**options, switch=SwitchCost(**costs), failures=tuple(failures))
