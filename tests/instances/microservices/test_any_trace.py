"""Files with anything in any place are read or refused in one line, never crash."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.fitted_model import model_from_dict, model_to_dict
from apportion.instances.microservices.kubernetes import read_kubernetes
from apportion.instances.microservices.model_file import files_by_kind, fit_traces, read_traces
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import traced_calls
from apportion.instances.microservices.trace_files import read_spans

JUNK: list[Any] = [
    None, True, 0, -1, 3, 1.5, -2.5, 10**15, 10**30, 1e300, "", "x", "0", "-1", "a\0b", "\ud800",
    "é" * 3, [], [1], [None], [[]], {}, {"a": 1}, {"key": "x"}, {"value": {}},
]  # fmt: skip


def places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))
    return [way, *(one for key, value in inner for one in places(value, (*way, key)))]


def spoiled(data: Any, rng: np.random.Generator) -> Any:
    """Put junk into, or take away, one or two places."""
    out = copy.deepcopy(data)
    for _ in range(int(rng.integers(1, 3))):
        ways = [way for way in places(out) if way]
        if not ways:
            break
        *path, last = ways[int(rng.integers(len(ways)))]
        at = out
        for part in path:
            at = at[part]
        if rng.random() < 0.25:
            del at[last]
        else:
            at[last] = copy.deepcopy(JUNK[int(rng.integers(len(JUNK)))])
    return out


def told(run: Any) -> None:
    """Run what may only succeed or refuse in one line."""
    message = "fine"
    try:
        run()
    except InstanceError as error:
        message = str(error)
    assert len(message.splitlines()) == 1


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


JAEGER: dict[str, Any] = {
    "data": [
        {
            "traceID": "t",
            "processes": {"p1": {"serviceName": "front"}, "p2": {"serviceName": "back"}},
            "spans": [
                {
                    "traceID": "t", "spanID": "a", "operationName": "get", "references": [],
                    "startTime": 1000, "duration": 900, "processID": "p1",
                    "tags": [{"key": "span.kind", "value": "server"}],
                },
                {
                    "traceID": "t", "spanID": "b", "operationName": "get", "processID": "p2",
                    "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "a"}],
                    "startTime": 1100, "duration": 200,
                    "tags": [{"key": "error", "value": True}],
                },
            ],
        }
    ]
}  # fmt: skip
OTLP: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [_attribute("service.name", "front")]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "t", "spanId": "a", "name": "get", "kind": 2,
                            "startTimeUnixNano": "1000", "endTimeUnixNano": "9000",
                            "attributes": [_attribute("db.system", "redis")],
                            "links": [{"traceId": "t", "spanId": "c"}], "status": {"code": 0},
                        },
                    ]
                }
            ],
        }
    ]
}  # fmt: skip
POD = {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
OBJECTS: dict[str, Any] = {
    "apiVersion": "v1", "kind": "List",
    "items": [
        {
            "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 1, "template": {"spec": POD}},
        },
        {
            "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}},
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ["jaeger", "otlp", "kubernetes"])
def test_any_json(name: str, tmp_path: Path) -> None:
    any_json(name, tmp_path, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jaeger", "otlp", "kubernetes"])
def test_much_json(name: str, tmp_path: Path) -> None:
    any_json(name, tmp_path, 5000)


def any_json(name: str, tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    good = {"jaeger": JAEGER, "otlp": OTLP, "kubernetes": OBJECTS}[name]
    path = tmp_path / "file.json"
    for _ in range(count):
        path.write_text(json.dumps(spoiled(good, rng)))
        if name == "kubernetes":
            told(lambda: read_kubernetes([path]))
        else:
            told(lambda: traced_calls(read_spans([path], faults=Faults())))
        told(lambda: files_by_kind([path]))


HEAD = "traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"
ROWS = [
    "t,10,0,u,http,a,i,100", "t,10,0,u,http,a,i,-90", "t,20,0.1,a,rpc,b,i,30",
    "t,30,0.1.1,b,db,c,i,5", "s,90000,0,u,mq,a,i,7",
]  # fmt: skip
CELLS = ["", "nan", "inf", "-1", "1e400", "0.", ".1", "0..1", "x", "1,2", "é", '"', "9" * 30, "0.1"]


@pytest.mark.parametrize("seed", range(60))
def test_any_table(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    lines = [line.split(",") for line in [HEAD, *ROWS]]
    for _ in range(int(rng.integers(1, 4))):
        line = lines[int(rng.integers(1, len(lines))) if rng.random() < 0.8 else 0]
        line[int(rng.integers(len(line)))] = CELLS[int(rng.integers(len(CELLS)))]
    path = tmp_path / "graph.csv"
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")
    told(lambda: list(read_traces([path])))
    cut = path.read_bytes()
    path.write_bytes(cut[: int(rng.integers(1, len(cut)))])
    told(lambda: list(read_traces([path])))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("model") / "graph.csv"
    rows = [
        f"t{minute}x{at},{minute * 60_000 + at * gap},0,u,rpc,m,i,{round(rng.exponential(50)) + 1}"
        for minute, gap in enumerate((500, 900, 300, 700))
        for at in range(60)
    ]
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    model = fit_traces([path])
    return model_to_dict(model)


def test_any_model(plain: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    assert model_to_dict(model_from_dict(plain)) == plain
    for _ in range(400):
        told(lambda: model_from_dict(spoiled(plain, rng)))


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text(f"{HEAD}\nt,10,0,u,http,a,i,x y\n")
    with pytest.raises(InstanceError, match=re.escape('line 2: rt = "x y": must be a number')):
        list(read_traces([path]))
