"""From files of traces to a model: laws recovered, refusals told, written and read back."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import model_file
from apportion.instances.microservices.loads import Loads
from apportion.instances.microservices.model_file import (
    files_by_kind,
    fit_traces,
    read_model,
    read_traces,
    write_model,
)
from apportion.instances.microservices.span_trees import TracedCalls

WINDOW_S = 10
RATES = (20, 40, 60, 80)  # requests per second, a window each and one without any between them
LAWS = {"front": (1.2, -0.008, 0.5), "back": (0.9, -0.02, 1.0)}
CONTAINERS = {"front": 1.0, "back": 4.0}  # every request calls back twice


def traced_windows(seed: int, repeats: int = 2) -> dict[str, Any]:
    """Write requests of ``front`` that call ``back`` twice, one call after the other."""
    rng = np.random.default_rng(seed)
    traces = []
    for at, rate in enumerate(RATES * repeats):
        start = 1_700_000_000.0 + 2 * WINDOW_S * at
        for begin in start + np.arange(rate * WINDOW_S) / rate:
            load = {"front": rate / 1, "back": 2 * rate / 4}
            own = {
                name: lambda b=b, a=a, s=s, w=load[name]: s + rng.exponential(1 / (b + a * w))
                for name, (b, a, s) in LAWS.items()
            }
            one, two, mine = own["back"](), own["back"](), own["front"]()
            traces.append(_trace(f"t{len(traces)}", begin * 1e6, mine * 1e3, one * 1e3, two * 1e3))
    return {"data": traces}


def _trace(name: str, start: float, mine: float, one: float, two: float) -> dict[str, Any]:
    def span(code: str, owner: str, begin: float, took: float, parent: str = "") -> dict[str, Any]:
        return {
            "traceID": name, "spanID": code, "operationName": "get", "processID": owner,
            "references": [{"refType": "CHILD_OF", "traceID": name, "spanID": parent}]
            if parent else [],
            "startTime": round(start + begin), "duration": round(took),
        }  # fmt: skip

    return {
        "spans": [
            span("a", "p1", 0, mine + one + two + 2),
            span("b", "p2", mine / 2, one, "a"),
            span("c", "p2", mine / 2 + one + 1, two, "a"),
        ],
        "processes": {"p1": {"serviceName": "front"}, "p2": {"serviceName": "back"}},
    }


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "traces.json.gz"
    path.write_bytes(gzip.compress(json.dumps(traced_windows(5)).encode(), 1))
    return path


def test_laws_are_recovered(traces: Path, tmp_path: Path) -> None:
    kinds: list[TracedCalls] = []
    model = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S, each=kinds.append)
    assert model.microservices.id.tolist() == ["back", "front"]
    for fit, name in zip(model.fits, model.microservices.id.tolist(), strict=True):
        true = LAWS[name]
        found = (fit.rate_at_rest_per_ms, fit.rate_slope_per_ms, fit.shift_ms)
        errors = (fit.rate_at_rest_error, fit.rate_slope_error, fit.shift_error)
        off = np.abs(np.subtract(found, true)) / errors
        assert off[:2].max() < 4
        assert found[2] == pytest.approx(true[2], abs=0.01)
        assert fit.levels == 4
        # a call of the last request of a window may begin in one that nobody watched
        assert fit.samples == pytest.approx(8000 if name == "back" else 4000, abs=16)
        assert fit.ks < 0.03
        loads = np.array(RATES) * (0.5 if name == "back" else 1.0)
        assert (fit.least_load_per_s, fit.most_load_per_s) == pytest.approx(
            (loads.min(), loads.max()), rel=0.02
        )
    assert model.linear_measured.tolist() == [True, True]
    assert model.containers is not None
    assert model.containers.tolist() == [4, 1]
    assert model.refused == {}
    assert model.warnings == ()
    table = model.services
    assert table.id.tolist() == ["front get"]
    assert table.requests.tolist() == [4000]
    assert sum(len(one) for one in kinds) == 4000
    path = tmp_path / "model.json"
    write_model(path, model)
    assert read_model(path) == model
    assert json.loads(path.read_text())["schema"] == "apportion/microservice-model/1"
    rows = model.table()
    assert rows[0]["microservice"] == "back"
    assert rows[0]["kl_mean"] == model.fits[0].kl_mean


def test_sampling_scales_loads(traces: Path) -> None:
    whole = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S)
    tenth = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S, sampling=0.1)
    assert tenth.fits[0].most_load_per_s == pytest.approx(10 * whole.fits[0].most_load_per_s)
    assert tenth.fits[0].rate_slope_per_ms == pytest.approx(whole.fits[0].rate_slope_per_ms / 10)
    assert tenth.services.rate_per_s[0] == pytest.approx(10 * whole.services.rate_per_s[0])


def test_containers_from_deployments_and_warning_without(traces: Path, tmp_path: Path) -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]}}
    items = [
        {
            "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": count, "template": pod},
        }
        for name, count in (("front", 1), ("back", 4))
    ]  # fmt: skip
    path = tmp_path / "deployments.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    model = fit_traces([path, traces], window_s=WINDOW_S)
    given = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S)
    assert model.fits == given.fits
    assert model.microservices.cpu_cores.tolist() == [0.5, 0.5]
    assert model.warnings == ("2 workloads request no memory (first: front)",)
    alone = fit_traces([traces], window_s=WINDOW_S)
    assert "containers of 2 microservices are not known" in alone.warnings[0]
    assert alone.containers is None


@pytest.mark.quick
def test_one_load_is_refused_with_the_reason(tmp_path: Path) -> None:
    document = {"data": traced_windows(1, repeats=1)["data"][:150]}  # within the first window
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InstanceError, match="no microservice can be fitted; back: 1 different"):
        fit_traces([path], window_s=WINDOW_S)


HEAD = "traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"


@pytest.mark.quick
def test_alibaba_with_rates_and_containers(tmp_path: Path) -> None:
    # A is called in four minutes at 10, 20, 30, 40 calls/s on each of its 2 containers; B has no
    # rates and is refused
    rng = np.random.default_rng(2)
    graph, rates, resources = [HEAD], [], []
    for minute in range(4):
        load = 10.0 * (minute + 1)
        for call in range(200):
            time = minute * 60_000 + call * 300
            took = round(50 + rng.exponential(1 / (0.02 - 0.0003 * load)))
            graph.append(f"m{minute}c{call},{time},0,(?),rpc,A,i,{took + 9}")
            graph.append(f"m{minute}c{call},{time},0.1,A,db,B,,9")
        rates += [f"{minute * 60_000},A,a{at},providerRPC_MCR,{load}" for at in (1, 2)]
        resources += [f"{minute * 60_000},A,a{at},n,0.1,0.2" for at in (1, 2)]
    files = {
        "graph.csv": graph,
        "rates.csv": ["timestamp,msname,msinstanceid,metric,value", *rates],
        "resource.csv": [
            "timestamp,msname,msinstanceid,nodeid,cpu_utilization,memory_utilization", *resources
        ],
    }  # fmt: skip
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    model = fit_traces([tmp_path / name for name in files])
    assert model.microservices.id.tolist() == ["A"]
    assert model.refused == {"B": "its load is not known"}
    fit = model.fits[0]
    assert (fit.least_load_per_s, fit.most_load_per_s) == (10, 40)
    found = (fit.rate_at_rest_per_ms, fit.rate_slope_per_ms)
    errors = (fit.rate_at_rest_error, fit.rate_slope_error)
    assert np.abs(np.subtract(found, (0.02, -0.0003)) / errors).max() < 4
    assert fit.shift_ms == pytest.approx(50, abs=2)


@pytest.mark.quick
def test_files_are_known_by_what_they_hold(tmp_path: Path) -> None:
    contents = {
        "spans": '{"data": []}', "call_graphs": f",{HEAD}\n", "rates": "msname,metric,value\n",
        "containers": "timestamp,msname,nodeid\n", "kubernetes": '{"apiVersion": "v1"}',
    }  # fmt: skip
    paths = []
    for name, text in contents.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    files = files_by_kind(paths)
    for name in contents:
        assert getattr(files, name) == [tmp_path / name]
    other = tmp_path / "other"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(InstanceError, match="holds no traces, containers or rates"):
        files_by_kind([other])
    other.write_text("")
    with pytest.raises(InstanceError, match="the file is empty"):
        files_by_kind([other])
    with pytest.raises(InstanceError, match="no file holds traces"):
        fit_traces(paths[2:])
    with pytest.raises(InstanceError, match="there are no spans"):
        list(read_traces(paths[:1]))


@pytest.mark.quick
def test_bad_numbers(traces: Path) -> None:
    for options, message in (
        ({"sampling": 0.0}, "sampling = 0.0"), ({"window_s": -1.0}, "window_ms = -1000.0"),
        ({"containers": {"front": 0.0}}, "containers.front = 0.0: must be positive"),
    ):  # fmt: skip
        with pytest.raises(InstanceError, match=re.escape(message)):
            fit_traces([traces], **options)


@pytest.mark.quick
def test_loads_by_hand() -> None:
    # ten requests, one each 100 ms, in a window of 10 s that was watched for 1 s; two calls each
    requests = np.arange(10) * 100.0
    loads = Loads.counted(
        requests, np.repeat(requests, 2), np.zeros(20, np.int64), np.array(["m"]),
        containers={"m": 4.0}, window_ms=10_000.0, sampling=0.5,
    )  # fmt: skip
    # 20 calls / 0.5 in 900 ms * 11 / 9, on 4 containers
    assert loads.load_per_s.tolist() == pytest.approx([20 / 0.5 / 1.1 / 4])
    lonely = Loads.counted(
        np.array([5.0]), np.array([5.0]), np.zeros(1, np.int64), np.array(["m"]), containers={},
        window_ms=10.0,
    )  # fmt: skip
    assert lonely.load_per_s.size == 0


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_loads_are_found_by_name_and_window(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = [(f"m{who}", int(at)) for who in range(4) for at in rng.choice(9, 4, replace=False)]
    rng.shuffle(known)
    loads = Loads.of(
        start_ms=np.array([10.0 * at for _, at in known]),
        microservice=[name for name, _ in known],
        load_per_s=np.arange(16.0),
        containers=np.ones(16),
        window_ms=10.0,
    )
    ids = np.array(["m7", "m2", "m0", "m3"])
    who, time = rng.integers(0, 4, 50), rng.uniform(-20, 120, 50)
    rows = loads.row_of(time, who, ids).tolist()
    row = {pair: at for at, pair in enumerate(known)}
    assert rows == [
        row.get((str(ids[one]), int(at // 10)), -1) for one, at in zip(who, time, strict=True)
    ]
    assert loads.row_of(np.zeros(0), np.zeros(0, np.int64), ids).size == 0


@pytest.fixture
def plain(tmp_path: Path, traces: Path) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "model.json"
    write_model(path, fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S))
    return path, json.loads(path.read_text())


def test_bad_models(plain: tuple[Path, dict[str, Any]]) -> None:
    path, document = plain
    changes: list[tuple[dict[str, Any], str]] = [
        ({"schema": "apportion/microservice-model/2"}, "a later version"),
        ({"schema": "apportion/round/1"}, "expected 'apportion/microservice-model/1'"),
        ({"microservice": {}}, "unknown key; did you mean 'microservices'"),
        ({"fits": {**document["fits"], "ks": [1.0]}}, "fits.ks has 1 values"),
        ({"fits": {**document["fits"], "warnings": [[]]}}, "fits.warnings: expected 2 lists"),
        ({"linear_measured": [1, 0]}, "must be true or false"),
        ({"containers": [1]}, "model.containers has shape"),
        ({"refused": []}, "expected reasons by name"),
    ]
    for change, message in changes:
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(InstanceError, match=re.escape(message)):
            read_model(path)
    del document["services"]
    path.write_text(json.dumps(document))
    with pytest.raises(InstanceError, match=r"model\.services is missing"):
        read_model(path)


def test_many_samples_are_thinned_alike(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S)
    monkeypatch.setattr(model_file, "SAMPLES_MOST", 1000)
    thin = fit_traces([traces], containers=CONTAINERS, window_s=WINDOW_S)
    assert thin.fits[0].samples == 1000
    for one, two in zip(whole.fits, thin.fits, strict=True):
        assert two.rate_at_rest_per_ms == pytest.approx(one.rate_at_rest_per_ms, rel=0.15)


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(20))
def test_every_so_manieth_sample_is_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "SAMPLES_MOST", 10)
    rng = np.random.default_rng(seed)
    samples, count = model_file._Samples(), 0
    for size in rng.integers(0, 9, 12):
        part = np.arange(count, count + size, dtype=np.float64)
        samples.add(part, -part)
        count += int(size)
        kept = np.concatenate(samples.load)
        assert kept.tolist() == list(range(0, count, samples.stride))
        assert np.concatenate(samples.time).tolist() == (-kept).tolist()
        assert kept.size <= 10
