"""Kubernetes' objects: replicas, requests, autoscalers, and files that are wrong."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.kubernetes import quantity, read_kubernetes
from apportion.instances.microservices.microservices import MOST_CONTAINERS

pytestmark = pytest.mark.quick


def deployment(name: str, replicas: int | None, *containers: Any, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "template": {"spec": {"containers": [{"name": "c", "resources": c} for c in containers]}}
    }
    spec["template"]["spec"].update(more)
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def scaler(name: str, low: int | None, high: int) -> dict[str, Any]:
    spec = {"maxReplicas": high, "scaleTargetRef": {"kind": "Deployment", "name": name}}
    if low is not None:
        spec["minReplicas"] = low
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{name}-hpa"}, "spec": spec,
    }  # fmt: skip


def asked(cpu: Any, memory: Any, kind: str = "requests") -> dict[str, Any]:
    return {kind: {"cpu": cpu, "memory": memory}}


LIST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        deployment("front", 3, {**asked("200m", "512Mi"), **asked("2", "4Gi", "limits")}, asked("0.1", "1Gi", "limits")),
        deployment(
            "back", None, asked(1, "1e9"),
            initContainers=[{"name": "i", "resources": asked("1500m", "1Mi")}],
        ),
        deployment("bare", 0, None),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}},
        scaler("front", 2, 8),
        scaler("back", None, 4),
        scaler("gone", 1, 2),
    ],
}  # fmt: skip


def write(tmp_path: Path, data: Any, name: str = "objects.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_list_by_hand(tmp_path: Path) -> None:
    found = read_kubernetes([write(tmp_path, LIST)])
    assert found.id.tolist() == ["front", "back", "bare"]
    assert found.containers.tolist() == [3, 1, 0]
    assert found.cpu_cores.tolist() == pytest.approx([0.3, 1.5, 0])
    assert found.memory_mib.tolist() == pytest.approx([1536, 1e9 / 2**20, 0])
    assert found.least_containers.tolist() == [2, 1, 0]
    assert found.most_containers.tolist() == [8, 4, MOST_CONTAINERS]
    assert found.counts() == {"front": 3, "back": 1, "bare": 0}
    assert found.warnings == (
        "an autoscaler is for Deployment default/gone, which is not among the workloads",
        "1 workloads request no cpu (first: bare)",
        "1 workloads request no memory (first: bare)",
    )


def test_sidecars_stay_beside_the_others(tmp_path: Path) -> None:
    early = [
        {"resources": asked("100m", "1Mi"), "restartPolicy": "Always"},
        {"resources": asked("350m", "1Mi")},
    ]
    one = deployment("a", 1, asked("200m", "1Mi"), initContainers=early)
    two = deployment("b", 1, asked("900m", "1Mi"), initContainers=early, overhead={"cpu": "50m"})
    found = read_kubernetes([write(tmp_path, {"kind": "List", "items": [one, two]})])
    # a: 100 stay while 350 run first; b: 100 + 900, and what the runtime adds
    assert found.cpu_cores.tolist() == pytest.approx([0.45, 1.05])


def test_typed_lists_single_objects_and_several_files(tmp_path: Path) -> None:
    bare = {key: value for key, value in deployment("a", 2, None).items() if key != "kind"}
    one = write(tmp_path, {"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [bare]})
    two = write(tmp_path, {**deployment("b", 1, None), "kind": "StatefulSet"}, "two.json")
    assert read_kubernetes([one, two]).id.tolist() == ["a", "b"]


def test_names_in_two_namespaces(tmp_path: Path) -> None:
    items = []
    for space in ("red", "blue"):
        items.append(deployment("web", 1, None))
        items[-1]["metadata"]["namespace"] = space
    found = read_kubernetes([write(tmp_path, {"kind": "List", "items": items})])
    assert found.id.tolist() == ["red/web", "blue/web"]
    with pytest.raises(InstanceError, match="Deployment red/web appears twice"):
        read_kubernetes([write(tmp_path, {"kind": "List", "items": [items[0], items[0]]})])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", 0.1), ("1.5", 1.5), (2, 2), (0.25, 0.25), ("2Ki", 2048), ("1Mi", 2**20),
        ("3Gi", 3 * 2**30), ("1Ti", 2**40), ("5k", 5000), ("7M", 7e6), ("1e3", 1000),
        ("1E", 1e18), ("12E-1", 1.2), ("500n", 5e-7), ("+3", 3), (".5", 0.5),
    ],
)  # fmt: skip
def test_quantities(text: Any, value: float) -> None:
    assert quantity(text, "q") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["", "m", "-1", "1 Gi", "1..2", None, True, "NaN", [], "1e999"])
def test_bad_quantities(text: Any) -> None:
    with pytest.raises(InstanceError, match=re.escape("q = ")):
        quantity(text, "q")


def test_unknown_unit() -> None:
    with pytest.raises(InstanceError, match="unknown unit; did you mean 'M'"):
        quantity("1MB", "q")


def changed(way: str, value: Any) -> Any:
    document = copy.deepcopy(LIST)
    at: Any = document
    *path, last = [int(part) if part.isdigit() else part for part in way.split(".")]
    for part in path:
        at = at[part]
    at[last] = value
    return document


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ('{"kind": "List", "items": [', "truncated JSON"),
        ("apiVersion: v1\nkind: List\n", "this is YAML"),
        ("---\napiVersion: v1\n", "this is YAML"),
        ("[]", "expected an object"),
        ({"kind": "Deploymnt"}, "did you mean 'Deployment'?"),
        ({"kind": "List", "items": []}, "there is no Deployment"),
        ({"kind": "List", "items": 3}, "items: expected a list"),
        ({"kind": "List", "items": [{}]}, "items[0].kind is missing"),
        (changed("items.0.spec.replicas", 1.5), "items[0].spec.replicas = 1.5"),
        (changed("items.0.spec.replicas", -1), "must be a whole number of containers"),
        (changed("items.0.metadata", {}), "items[0].metadata.name is missing"),
        (changed("items.0.spec.template.spec.containers", []), "a pod has at least one"),
        (
            changed("items.0.spec.template.spec.containers.0.resources.requests.cpu", "2x"),
            "items[0].spec.template.spec.containers[0].resources.requests.cpu = \"2x\": unknown",
        ),
        (changed("items.4.spec.maxReplicas", 1), "maxReplicas = 1: is below minReplicas = 2"),
        (changed("items.4.spec", {"scaleTargetRef": {"name": "x"}}), "maxReplicas is missing"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, data: Any, message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InstanceError, match=re.escape(message)) as caught:
        read_kubernetes([path])
    assert str(path) in str(caught.value)
