"""Scenarios as TOML files, with any number of what-ifs beside them."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, read_text, shown
from apportion.instances.tables import read_table
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.cluster_tables import read_cluster
from apportion.instances.training.laws import SwitchCost
from apportion.instances.training.metric_stops import metric_stops
from apportion.instances.training.scenario import ExecutorOptions, Failure, Scenario
from apportion.instances.training.scenario_keys import VERSION, WORKLOADS, scenario_table
from apportion.instances.training.scenario_merge import merged
from apportion.instances.training.workloads import Source, load_workload, noisy
from apportion.instances.versions import Migration, migrated

MIGRATIONS: Mapping[int, Migration] = {}
"""For each older version of the format, the step to the next one."""

BASE = "base"
"""Name of the scenario without a variant, which no variant may bear."""

Content = dict[str, Any]


def bundled_names() -> tuple[str, ...]:
    """List the scenarios that come with the package."""
    found = resources.files("apportion.instances").joinpath("bundled").iterdir()
    return tuple(sorted(Path(item.name).stem for item in found if item.name.endswith(".toml")))


def variant_names(path: PathLike) -> tuple[str, ...]:
    """List the variants of a scenario, in the order of the file.

    Raises
    ------
    InstanceError
        Where the file cannot be read, as ``read_scenario`` says.
    """
    file = _opened(path)
    with naming(file.label):
        return tuple(file.variants)


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
    file = _opened(path)
    with naming(file.label):
        content = _checked(file.base)
        checked = {name: _variant(file, name) for name in file.variants}
        if variant is not None:
            if variant not in checked:
                raise InstanceError(f"unknown variant {variant!r}{nearest(variant, checked)}")
            content = checked[variant]
        if overrides:
            with naming("overrides"):
                raw = file.base if variant is None else merged(file.base, file.variants[variant])
                content = _checked(merged(raw, overrides))
        if seed is not None:
            content["seed"] = _seed(seed)
        if variant is None:
            return _built(content, file.folder)
        with naming(f"variant {variant!r}"):
            return _built(content, file.folder)


@dataclass(frozen=True)
class _File:
    label: str
    folder: Path | None
    base: Content
    variants: dict[str, Content]


def _opened(path: PathLike) -> _File:
    place = Path(path)
    known = bundled_names()
    if isinstance(path, str) and path in known and not place.exists():
        item = resources.files("apportion.instances").joinpath("bundled", f"{path}.toml")
        return _split(f"{path}.toml (bundled)", None, item.read_text(encoding="utf-8"))
    if place.is_dir():
        place = place / "scenario.toml"
        if not place.exists():
            raise InstanceError(f"{path}: the folder holds no scenario.toml")
    with naming(path):
        if isinstance(path, str) and not place.exists() and place.name == path and not place.suffix:
            raise InstanceError(f"no such file, and no bundled scenario{nearest(path, known)}")
        text = read_text(place)
    return _split(str(place), place.parent, text)


def _split(label: str, folder: Path | None, text: str) -> _File:
    with naming(label):
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InstanceError(f"not TOML: {error}") from None
        except RecursionError:
            raise InstanceError("not read: the TOML is nested too deeply") from None
        base = migrated(data, "scenario", VERSION, MIGRATIONS)
        return _File(label, folder, base, _variants(base.pop("variant", [])))


def _variants(rows: Any) -> dict[str, Content]:
    if not isinstance(rows, list):
        raise InstanceError(f"variant: expected a list of tables [[variant]], got {shown(rows)}")
    out: dict[str, Content] = {}
    for index, row in enumerate(cast(list[Any], rows)):
        patch = dict(cast(Content, row)) if isinstance(row, dict) else {}
        name = patch.pop("name", None)
        if not isinstance(name, str) or not name:
            raise InstanceError(f"variant[{index}].name = {shown(name)}: must be a string")
        if name in out:
            raise InstanceError(f"variant[{index}].name = {name!r}: already used")
        if name == BASE:
            raise InstanceError(
                f"variant[{index}].name = {name!r}: names the scenario as it is; give it another"
                " name"
            )
        for key in ("schema", "family"):
            if key in patch:
                raise InstanceError(f"variant {name!r}: {key}: a variant cannot change it")
        out[name] = patch
    return out


def _variant(file: _File, name: str) -> Content:
    with naming(f"variant {name!r}"):
        content = _checked(merged(file.base, file.variants[name]))
        _check_names(content)
        return content


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
    epoch = content.get("epoch")
    if isinstance(epoch, datetime.datetime):  # TOML has instants of its own
        content = {**content, "epoch": epoch.isoformat()}
    return read_table(scenario_table(kind), content, "")


def _seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InstanceError(f"seed = {shown(seed)}: must be a whole number, not negative")
    return seed


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
