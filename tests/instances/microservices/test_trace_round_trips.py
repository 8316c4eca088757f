"""Call trees written as traces of every format, read back: the same trees and the same times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.microservices.alibaba import read_call_graphs
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import BACKGROUND, TracedCalls, traced_calls
from apportion.instances.microservices.spans import Spans
from apportion.instances.microservices.trace_files import read_spans

NAMES = [f"ms-{at}" for at in range(7)]
EPOCH_MS = 1_700_000_000_000


@dataclass
class Call:
    """A call in whole ms; the one called answers ``network`` later than it is asked, twice."""

    name: str
    own: int
    network: int = 0
    stages: list[list[Call]] = field(default_factory=list)
    background: list[Call] = field(default_factory=list)

    @property
    def served(self) -> int:
        return self.own + sum(max(one.waited for one in stage) for stage in self.stages)

    @property
    def waited(self) -> int:
        return self.served + 2 * self.network

    def key(self) -> tuple[Any, ...]:
        """Name, own time with the network, and the stages with their members sorted."""
        stages = tuple(tuple(sorted(one.key() for one in stage)) for stage in self.stages)
        return (self.name, float(self.own + 2 * self.network), stages)


def drawn(rng: np.random.Generator, depth: int = 0, above: str = "") -> Call:
    name = str(rng.choice([one for one in NAMES if one != above]))
    out = Call(name, int(rng.integers(2, 40)), int(rng.integers(0, 4)))
    if depth < 4:
        for _ in range(int(rng.choice([0, 1, 2, 3], p=[0.35, 0.3, 0.2, 0.15]))):
            width = int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))
            out.stages.append([drawn(rng, depth + 1, name) for _ in range(width)])
        if rng.random() < 0.15:
            out.background.append(drawn(rng, depth + 2, name))
    return out


@dataclass
class Side:
    """A call as both sides saw it."""

    call: Call
    path: str
    above: str
    asked: int
    waited: int
    begun: int
    served: int
    nobody_waits: bool = False


def laid_out(call: Call, start: int, path: str = "0", above: str = "") -> list[Side]:
    """Put a call and all below it on the clock: own time in equal parts around the stages."""
    begun = start + call.network
    out = [Side(call, path, above, start, call.waited, begun, call.served)]
    at, number = begun + call.own // 2, 0
    for stage in call.stages:
        for one in stage:
            number += 1
            out += laid_out(one, at, f"{path}.{number}", path)
        at += max(one.waited for one in stage)
    for one in call.background:  # begins last and outlasts its caller
        number += 1
        late = laid_out(one, begun + call.served - 1, f"{path}.{number}", path)
        late[0].nobody_waits = True
        out += late
    return out


def late_calls(call: Call) -> list[Call]:
    inside = [one for stage in call.stages for one in stage]
    below = [found for one in [*inside, *call.background] for found in late_calls(one)]
    return [*call.background, *below]


def found_keys(traced: TracedCalls, request: int) -> list[tuple[Any, ...]]:
    """Rebuild the key of each root of a request from the columns."""
    trees = traced.trees
    low, high = int(trees.offsets[request]), int(trees.offsets[request + 1])

    def key(place: int) -> tuple[Any, ...]:
        row = low + place
        name = str(traced.microservice_id[trees.microservice[row]])
        return (name, round(float(traced.own_ms[row]), 6), stages(place))

    def stages(parent: int) -> tuple[Any, ...]:
        below = [at for at in range(high - low) if trees.parent[low + at] == parent]
        numbers = sorted({int(trees.stage[low + at]) for at in below})
        return tuple(
            tuple(sorted(key(at) for at in below if trees.stage[low + at] == number))
            for number in numbers
        )

    return [one for stage in stages(-1) for one in stage]


def jaeger(requests: dict[str, list[Side]], path: Path, pairs: bool) -> Spans:
    data = []
    for trace, sides in requests.items():
        processes = {f"p{at}": {"serviceName": name} for at, name in enumerate(NAMES)}
        owner = {side.path: side.call.name for side in sides}
        spans = []

        def add(
            owner_: str, span: str, parent: str, start: int, took: int, kind: str, ref: str,
            spans: list[Any] = spans, trace: str = trace,
        ) -> None:  # fmt: skip
            references = [{"refType": ref, "traceID": trace, "spanID": parent}] if parent else []
            spans.append({
                "traceID": trace, "spanID": span, "operationName": "op", "references": references,
                "startTime": (EPOCH_MS + start) * 1000, "duration": took * 1000,
                "tags": [{"key": "span.kind", "type": "string", "value": kind}],
                "processID": f"p{NAMES.index(owner_)}",
            })  # fmt: skip

        for side in sides:
            ref = "FOLLOWS_FROM" if side.nobody_waits else "CHILD_OF"
            parent = side.above
            if pairs and parent:
                client = f"{side.path}/client"
                add(owner[parent], client, parent, side.asked, side.waited, "client", ref)
                parent, ref = client, "CHILD_OF"
            add(side.call.name, side.path, parent, side.begun, side.served, "server", ref)
        data.append({"traceID": trace, "spans": spans[::-1], "processes": processes})
    path.write_text(json.dumps({"data": data}))
    return read_spans([path], strict=True)


def otlp(requests: dict[str, list[Side]], path: Path, pairs: bool) -> Spans:
    """One line a microservice, as its own exporter would write it."""
    spans: dict[str, list[Any]] = {name: [] for name in NAMES}
    for trace, sides in requests.items():
        owner = {side.path: side.call.name for side in sides}
        for side in sides:
            parent = side.above

            def span(
                name: str, above: str, start: int, took: int, kind: Any, trace: str = trace
            ) -> dict[str, Any]:
                begin = (EPOCH_MS + start) * 1_000_000
                return {
                    "traceId": trace, "spanId": name, "parentSpanId": above, "name": "op",
                    "kind": kind, "startTimeUnixNano": str(begin),
                    "endTimeUnixNano": str(begin + took * 1_000_000),
                }  # fmt: skip

            if pairs and parent:
                kind = "SPAN_KIND_PRODUCER" if side.nobody_waits else 3
                one = span(f"{side.path}/client", parent, side.asked, side.waited, kind)
                spans[owner[parent]].append(one)
                parent = f"{side.path}/client"
            kind = 5 if side.nobody_waits else "SPAN_KIND_SERVER"
            spans[side.call.name].append(span(side.path, parent, side.begun, side.served, kind))
    lines = [
        json.dumps({
            "resourceSpans": [{
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": name}}]
                },
                "scopeSpans": [{"spans": listed}],
            }]
        })
        for name, listed in spans.items()
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return read_spans([path], strict=True)


def alibaba(requests: dict[str, list[Side]], path: Path, year: int) -> Spans:
    head = "traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"
    rows = []
    for trace, sides in requests.items():
        owner = {side.path: side.call.name for side in sides}
        for side in sides:
            who = (owner.get(side.above, "(?)"), "mq" if side.nobody_waits else "rpc")
            sign = -1 if year == 2021 else 1
            for start, took in ((side.asked, side.waited), (side.begun, sign * side.served)):
                rows.append(
                    f"{trace},{start},{side.path},{who[0]},{who[1]},{side.call.name},i,{took}"
                )
    lines = [f",{head}", *(f"{at},{row}" for at, row in enumerate(rows))]
    if year == 2022:
        head = head.replace("rpcid", "rpc_id")
        lines = [f"{head},service", *(f"{row},S_1" for row in rows)]
    packed = path.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    windows = list(read_call_graphs([packed], block_rows=37, faults=Faults(strict=True)))
    assert len(windows) == 1
    return windows[0]


WRITERS: dict[str, Callable[[dict[str, list[Side]], Path], Spans]] = {
    "jaeger, server spans": lambda requests, path: jaeger(requests, path, False),
    "jaeger, pairs": lambda requests, path: jaeger(requests, path, True),
    "otlp, pairs": lambda requests, path: otlp(requests, path, True),
    "otlp, server spans": lambda requests, path: otlp(requests, path, False),
    "alibaba 2021": lambda requests, path: alibaba(requests, path, 2021),
    "alibaba 2022": lambda requests, path: alibaba(requests, path, 2022),
}


def without_network(call: Call) -> Call:
    """What is seen where callers record nothing: networks are part of the caller's own time."""
    stages = [[without_network(one) for one in stage] for stage in call.stages]
    late = [without_network(one) for one in call.background]
    out = Call(call.name, 0, 0, stages, late)
    out.own = call.served - out.served
    return out


def compare(seed: int, name: str, folder: Path, count: int = 6) -> None:
    rng = np.random.default_rng(seed)
    calls = {f"t{at:03d}": drawn(rng) for at in range(count)}
    if name in ("jaeger, server spans", "otlp, server spans"):
        for call in calls.values():
            _still(call)
    requests = {trace: laid_out(call, 1000 * at) for at, (trace, call) in enumerate(calls.items())}
    spans = WRITERS[name](requests, folder / "trace.json")
    traced = traced_calls(spans)
    ids = traced.trace_id.tolist()
    assert ids[:count] == sorted(calls)
    late = {trace: late_calls(call) for trace, call in calls.items()}
    for at, trace in enumerate(sorted(calls)):
        root = calls[trace]
        # the caller of the request is nobody: only Alibaba's table tells how long he waited
        network = root.network if name.startswith("alibaba") else 0
        expected = (root.name, float(root.own + 2 * network), root.key()[2])
        assert found_keys(traced, at) == [expected]
        assert traced.latency_ms[at] == pytest.approx(root.served + 2 * network)
        found = [row for row in range(count, len(ids)) if ids[row] == trace]
        for row in found:
            assert str(traced.service[row]).startswith(BACKGROUND)
        assert sorted(found_keys(traced, row)[0][0] for row in found) == sorted(
            one.name for one in late[trace]
        )
        trees = sorted(_shape(found_keys(traced, row)[0]) for row in found)
        assert trees == sorted(_shape(one.key()) for one in late[trace])


def _shape(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (key[0], tuple(tuple(sorted(map(_shape, stage))) for stage in key[2]))


def _still(call: Call) -> None:
    call.network = 0
    for one in [*(one for stage in call.stages for one in stage), *call.background]:
        _still(one)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("seed", range(20))
def test_written_and_read_back(seed: int, name: str, tmp_path: Path) -> None:
    compare(seed, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_many_written_and_read_back(name: str, tmp_path: Path) -> None:
    for seed in range(100, 300):
        compare(seed, name, tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_clocks_of_other_machines_change_nothing_where_pairs_are_recorded(
    seed: int, tmp_path: Path
) -> None:
    # every microservice's clock is off by up to 10 s: client spans lie on the caller's clock, so
    # that nothing but the network's two directions is lost
    rng = np.random.default_rng(seed)
    calls = {f"t{at}": drawn(rng) for at in range(4)}
    off = {name: int(rng.integers(-10_000, 10_000)) for name in NAMES}
    requests = {trace: laid_out(call, 0) for trace, call in calls.items()}
    plain = traced_calls(jaeger(requests, tmp_path / "plain.json", True))
    path = tmp_path / "off.json"
    document = json.loads((tmp_path / "plain.json").read_text())
    for trace in document["data"]:
        for span in trace["spans"]:
            span["startTime"] += off[NAMES[int(span["processID"][1:])]] * 1000
    path.write_text(json.dumps(document))
    faults = Faults()
    skewed = traced_calls(read_spans([path]), faults)
    for at in range(len(plain)):
        assert found_keys(skewed, at) == found_keys(plain, at)
    np.testing.assert_allclose(skewed.latency_ms, plain.latency_ms, atol=1e-6)
    assert any("clocks differ" in line for line in faults.warnings)
