"""What runs now, from ``kubectl get deployments,hpa -o json``: containers, sizes, bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names, floats, ints, names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.files import PathLike, naming, parse_json, read_text, shown
from apportion.instances.microservices.json_fields import Fields, rows, table, text
from apportion.instances.microservices.microservices import MOST_CONTAINERS

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
"""Objects with a number of replicas of one pod."""

_OTHER = ("HorizontalPodAutoscaler", "List", *(f"{kind}List" for kind in WORKLOADS),
          "HorizontalPodAutoscalerList")  # fmt: skip
_MIB = 2.0**20

_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "E": 1e18, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
    "Ei": 2.0**60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"\+?(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)((?P<suffix>[A-Za-z]*)|[eE](?P<power>[+-]?[0-9]{1,2}))"
)


@dataclass(frozen=True, eq=False)
class Deployments:
    """Workloads of a cluster, one row each.

    Parameters
    ----------
    id
        Names, with their namespace before a slash where two share one, shape (M,).
    containers
        Pods asked for.
    cpu_cores, memory_mib
        What a pod requests; 0: nothing is said.
    least_containers, most_containers
        Bounds of its autoscaler; without one 0 and no limit.
    warnings
        What to be wary of.
    """

    id: Names
    containers: Ints
    cpu_cores: Floats
    memory_mib: Floats
    least_containers: Ints
    most_containers: Ints
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("id", names(self.id, "deployments.id"))
        shape = (self.id.size,)
        for name in ("containers", "least_containers", "most_containers"):
            put(name, ints(getattr(self, name), f"deployments.{name}", shape))
        for name in ("cpu_cores", "memory_mib"):
            put(name, floats(getattr(self, name), f"deployments.{name}", shape))

    def __len__(self) -> int:
        return self.id.size

    def counts(self) -> dict[str, float]:
        """Give the containers by name."""
        return {str(name): float(n) for name, n in zip(self.id, self.containers, strict=True)}


class _Workload(NamedTuple):
    kind: str
    space: str
    name: str
    replicas: int
    cores: float
    memory_mib: float


class _Scaler(NamedTuple):
    space: str
    kind: str
    name: str
    least: int
    most: int


def is_kubernetes(document: Any) -> bool:
    """Tell whether a JSON document is one of Kubernetes."""
    return isinstance(document, dict) and {"kind", "apiVersion"} <= set(cast("Fields", document))


def read_kubernetes(paths: Iterable[PathLike]) -> Deployments:
    """Read workloads and their autoscalers.

    Parameters
    ----------
    paths
        JSON as ``kubectl get ... -o json`` writes it: single objects or lists. Objects of other
        kinds are passed over.

    Returns
    -------
    Deployments
        In the order of the files.

    Raises
    ------
    InstanceError
        Naming the file and the place in it: on YAML, on quantities that are none, on workloads
        that appear twice, and where there is no workload.
    """
    loads: list[_Workload] = []
    scalers: list[_Scaler] = []
    last: PathLike = "no file"
    for path in paths:
        last = path
        with naming(path):
            content = read_text(path)
            if re.match(r"(---|apiVersion:|kind:|items:|#)", content.lstrip()):
                raise InstanceError("this is YAML: write the objects with kubectl ... -o json")
            _collect(parse_json(content), "", loads, scalers)
    if not loads:
        raise InstanceError(f"{last}: there is no {', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}")
    return _joined(loads, scalers)


def _collect(value: Any, where: str, loads: list[_Workload], scalers: list[_Scaler]) -> None:
    document = table(value, where or "the file")
    at = f"{where}." if where else ""
    kind = text(document, "kind", at)
    if kind.endswith("List"):
        for number, item in enumerate(rows(document, "items", at)):
            one = table(item, f"{at}items[{number}]")
            if "kind" not in one and kind != "List":  # typed lists leave the kind out
                one = {**one, "kind": kind.removesuffix("List")}
            _collect(one, f"{at}items[{number}]", loads, scalers)
    elif kind in WORKLOADS:
        loads.append(_workload(document, kind, at))
    elif kind == "HorizontalPodAutoscaler":
        scalers.append(_scaler(document, at))
    else:
        hint = nearest(kind, (*WORKLOADS, *_OTHER))
        if not where and "mean" in hint:  # a single object of another kind is a mistake
            raise InstanceError(f"{at}kind = {shown(kind)}{hint}")


def _named(document: Fields, where: str) -> tuple[str, str]:
    meta = table(document.get("metadata"), f"{where}metadata")
    return str(meta.get("namespace") or "default"), text(meta, "name", f"{where}metadata.")


def _workload(document: Fields, kind: str, where: str) -> _Workload:
    space, name = _named(document, where)
    spec = table(document.get("spec"), f"{where}spec")
    template = table(spec.get("template"), f"{where}spec.template")
    pod = table(template.get("spec"), f"{where}spec.template.spec")
    place = f"{where}spec.template.spec."
    if not rows(pod, "containers", place):
        raise InstanceError(f"{place}containers: a pod has at least one")
    cores = _request(pod, "cpu", place)
    memory = _request(pod, "memory", place) / _MIB
    return _Workload(kind, space, name, _count(spec, "replicas", 1, f"{where}spec."), cores, memory)


def _request(pod: Fields, what: str, where: str) -> float:
    """Compute what a pod asks for: all its containers, or the largest that runs before them."""
    total, before, along = 0.0, 0.0, 0.0
    for at, one in enumerate(rows(pod, "containers", where)):
        total += _of_container(
            table(one, f"{where}containers[{at}]"), what, f"{where}containers[{at}]."
        )
    for at, one in enumerate(rows(pod, "initContainers", where)):
        place = f"{where}initContainers[{at}]"
        first = table(one, place)
        asked = _of_container(first, what, f"{place}.")
        if first.get("restartPolicy") == "Always":  # a sidecar stays
            along += asked
            before = max(before, along)
        else:
            before = max(before, along + asked)
    overhead = pod.get("overhead")
    extra = table(overhead, f"{where}overhead").get(what) if overhead is not None else None
    return max(total + along, before) + (
        0.0 if extra is None else quantity(extra, f"{where}overhead.{what}")
    )


def _of_container(container: Fields, what: str, where: str) -> float:
    resources = container.get("resources")
    if resources is None:
        return 0.0
    both = table(resources, f"{where}resources")
    for name in ("requests", "limits"):  # without a request the limit is the request
        part = both.get(name)
        if part is not None and what in table(part, f"{where}resources.{name}"):
            return quantity(part[what], f"{where}resources.{name}.{what}")
    return 0.0


def quantity(value: Any, where: str) -> float:
    """Read a quantity of Kubernetes: ``"100m"``, ``"1.5"``, ``"512Mi"``, ``"1e3"``.

    Raises
    ------
    InstanceError
        On anything else, negative ones and unknown units included.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InstanceError(
            f"{where} = {shown(value)}: must be a quantity such as 100m, 1.5, 512Mi or 1Gi"
        )
    if match["power"] is not None:
        return float(match["number"]) * 10.0 ** int(match["power"])
    suffix = match["suffix"]
    if suffix not in _SUFFIXES:
        raise InstanceError(f"{where} = {shown(value)}: unknown unit{nearest(suffix, _SUFFIXES)}")
    return float(match["number"]) * _SUFFIXES[suffix]


def _scaler(document: Fields, where: str) -> _Scaler:
    space, _ = _named(document, where)
    spec = table(document.get("spec"), f"{where}spec")
    target = table(spec.get("scaleTargetRef"), f"{where}spec.scaleTargetRef")
    place = f"{where}spec."
    least = _count(spec, "minReplicas", 1, place)
    most = _count(spec, "maxReplicas", None, place)
    if most < least:
        raise InstanceError(f"{place}maxReplicas = {most}: is below minReplicas = {least}")
    return _Scaler(
        space, str(target.get("kind") or "Deployment"),
        text(target, "name", f"{place}scaleTargetRef."), least, most,
    )  # fmt: skip


def _count(spec: Fields, key: str, default: int | None, where: str) -> int:
    value = spec.get(key, default)
    if value is None:
        value = default
    if value is None:
        raise InstanceError(f"{where}{key} is missing")
    good = isinstance(value, int) and not isinstance(value, bool)
    if not good or not 0 <= value <= MOST_CONTAINERS:
        raise InstanceError(f"{where}{key} = {shown(value)}: must be a whole number of containers")
    return int(value)


def _joined(loads: list[_Workload], scalers: list[_Scaler]) -> Deployments:
    seen: set[tuple[str, str, str]] = set()
    for load in loads:
        key = (load.space, load.kind, load.name)
        if key in seen:
            raise InstanceError(f"{load.kind} {load.space}/{load.name} appears twice")
        seen.add(key)
    bare = [load.name for load in loads]
    full = [f"{load.space}/{load.name}" for load in loads]
    ids = [
        name
        if bare.count(name) == 1
        else (path if full.count(path) == 1 else f"{path}.{load.kind}")
        for name, path, load in zip(bare, full, loads, strict=True)
    ]
    low, high = np.zeros(len(loads), np.int64), np.full(len(loads), MOST_CONTAINERS, np.int64)
    warnings: list[str] = []
    for scaler in scalers:
        mine = [
            at for at, load in enumerate(loads)
            if (load.space, load.kind, load.name) == (scaler.space, scaler.kind, scaler.name)
        ]  # fmt: skip
        if not mine:
            warnings.append(
                f"an autoscaler is for {scaler.kind} {scaler.space}/{scaler.name}, which is not"
                " among the workloads"
            )
        low[mine], high[mine] = scaler.least, scaler.most
    for what, none in (("cpu", [load.cores == 0 for load in loads]),
                       ("memory", [load.memory_mib == 0 for load in loads])):  # fmt: skip
        if any(none):
            first = ids[none.index(True)]
            warnings.append(f"{sum(none)} workloads request no {what} (first: {first})")
    return Deployments(
        id=np.array(ids, dtype=np.str_),
        containers=np.array([load.replicas for load in loads], dtype=np.int64),
        cpu_cores=np.array([load.cores for load in loads], dtype=np.float64),
        memory_mib=np.array([load.memory_mib for load in loads], dtype=np.float64),
        least_containers=low,
        most_containers=high,
        warnings=tuple(warnings),
    )
