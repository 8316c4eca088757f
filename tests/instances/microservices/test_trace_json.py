"""Jaeger and OpenTelemetry files: traces worked by hand, and files that are wrong in one way each."""

from __future__ import annotations

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import TracedCalls, traced_calls
from apportion.instances.microservices.spans import Spans, levels
from apportion.instances.microservices.trace_files import read_spans

pytestmark = pytest.mark.quick


def span(
    name: str, parent: str, owner: str, start: float, took: float, kind: str = "", *,
    ref: str = "CHILD_OF", tags: dict[str, Any] | None = None, trace: str = "t",
) -> dict[str, Any]:  # fmt: skip
    """Write a Jaeger span in ms."""
    listed = dict(tags or {})
    if kind:
        listed["span.kind"] = kind
    return {
        "traceID": trace, "spanID": name, "operationName": f"op-{name}",
        "references": [{"refType": ref, "traceID": trace, "spanID": parent}] if parent else [],
        "startTime": round(start * 1000), "duration": round(took * 1000),
        "tags": [{"key": key, "value": value} for key, value in listed.items()],
        "process": {"serviceName": owner},
    }  # fmt: skip


def read(tmp_path: Path, *spans: dict[str, Any], faults: Faults | None = None) -> TracedCalls:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"data": [{"spans": list(spans), "processes": {}}]}))
    faults = Faults() if faults is None else faults
    return traced_calls(read_spans([path], faults=faults), faults)


def nested(traced: TracedCalls, request: int = 0) -> Any:
    return traced.trees.nested_lists([str(one) for one in traced.microservice_id])[request]


def own(traced: TracedCalls) -> dict[str, float]:
    names = traced.microservice_id[traced.trees.microservice].tolist()
    return dict(zip(names, traced.own_ms.tolist(), strict=True))


def test_by_hand(tmp_path: Path) -> None:
    # front 100: own 10, then user and text side by side (30, 50), then store 40 of which cache 15
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100, "server"),
        span("b", "a", "user", 5, 30, "server"),
        span("c", "a", "text", 5, 50, "server"),
        span("d", "a", "store", 56, 40, "server"),
        span("e", "d", "cache", 60, 15, "server"),
    )
    assert nested(traced) == [
        [
            {
                "microservice": "front",
                "stages": [
                    [{"microservice": "user"}, {"microservice": "text"}],
                    [{"microservice": "store", "stages": [[{"microservice": "cache"}]]}],
                ],
            }
        ]
    ]
    assert own(traced) == pytest.approx(
        {"front": 10, "user": 30, "text": 50, "store": 25, "cache": 15}
    )
    assert traced.latency_ms.tolist() == [100]
    assert traced.service.tolist() == ["front op-a"]


def test_pair_of_client_and_server_is_one_call_as_long_as_the_caller_waits(tmp_path: Path) -> None:
    spans = (
        span("a", "", "front", 0, 100, "server"),
        span("b", "a", "front", 10, 60, "client"),
        span("c", "b", "back", 20, 40, "server"),
    )
    traced = read(tmp_path, *spans)
    assert own(traced) == pytest.approx({"front": 40, "back": 60})
    path = tmp_path / "trace.json"
    without = traced_calls(read_spans([path]), network=False)
    assert own(without) == pytest.approx({"front": 40, "back": 40})


def test_one_client_span_of_two_servers_is_two_calls(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100, "server"),
        span("b", "a", "front", 10, 60, "client"),
        span("c", "b", "back", 20, 10, "server"),
        span("d", "b", "back", 40, 20, "server"),
    )
    assert traced.trees.stage.tolist() == [0, 0, 1]
    assert traced.own_ms.tolist() == pytest.approx([70, 10, 20])


def test_spans_inside_a_microservice_belong_to_its_call(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100),
        span("b", "a", "front", 5, 90, "internal"),
        span("c", "b", "front", 10, 80),
        span("d", "c", "back", 20, 30),
    )
    assert traced.trees.calls.size == 2
    assert own(traced) == pytest.approx({"front": 70, "back": 30})


def test_call_of_a_microservice_to_itself_is_a_call(tmp_path: Path) -> None:
    traced = read(
        tmp_path, span("a", "", "m", 0, 100, "server"), span("b", "a", "m", 10, 30, "server")
    )
    assert traced.own_ms.tolist() == pytest.approx([70, 30])


def test_peer_that_records_nothing_answers(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100, "server"),
        span("b", "a", "front", 10, 30, "client", tags={"db.system": "mongodb"}),
        span("c", "a", "front", 50, 10, "client"),  # nobody knows whom: front's own time
    )
    assert own(traced) == pytest.approx({"front": 70, "mongodb": 30})


def test_shared_names_of_client_and_server(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100, "server"),
        span("b", "a", "front", 10, 60, "client"),
        span("b", "a", "back", 20, 40, "server"),
        span("c", "b", "base", 25, 10, "server"),
    )
    assert own(traced) == pytest.approx({"front": 40, "back": 50, "base": 10})
    trees = traced.trees
    assert trees.parent.tolist() == [-1, 0, 1]


def test_nobody_waits_for_what_follows(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 50, "server"),
        span("b", "a", "mail", 40, 200, "consumer", ref="FOLLOWS_FROM"),
        span("c", "b", "disk", 60, 100, "server"),
    )
    assert nested(traced) == [[{"microservice": "front"}]]
    assert nested(traced, 1) == [[{"microservice": "mail", "stages": [[{"microservice": "disk"}]]}]]
    assert traced.service.tolist() == ["front op-a", "background mail"]
    assert traced.trace_id.tolist() == ["t", "t"]
    assert traced.latency_ms.tolist() == pytest.approx([50, 200])
    assert own(traced) == pytest.approx({"front": 50, "mail": 100, "disk": 100})


def test_client_that_returns_first_did_not_wait(tmp_path: Path) -> None:
    # on one clock: the call goes on 30 ms after the span that made it
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 50, "server"),
        span("b", "a", "front", 20, 60, "client"),
        span("c", "b", "back", 25, 50, "server"),
    )
    assert nested(traced) == [[{"microservice": "front"}]]
    assert traced.latency_ms.tolist() == pytest.approx([50, 60])


def test_client_that_ends_after_its_caller_did_not_wait_though_it_is_the_shorter(
    tmp_path: Path,
) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 50, "server"),
        span("b", "a", "front", 20, 40, "client"),
        span("c", "b", "back", 25, 30, "server"),
    )
    assert traced.latency_ms.tolist() == pytest.approx([50, 40])
    assert own(traced)["front"] == pytest.approx(50)


def test_call_that_is_longer_than_its_caller_was_not_waited_for(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 50, "server"),
        span("b", "a", "back", 10, 70, "server"),
    )
    assert traced.latency_ms.tolist() == pytest.approx([50, 70])
    # a client that gives up waits, the server goes on alone
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 50, "server"),
        span("b", "a", "front", 10, 20, "client"),
        span("c", "b", "back", 15, 80, "server"),
    )
    assert traced.latency_ms.tolist() == pytest.approx([50, 80])
    assert traced.service.tolist() == ["front op-a", "background back"]


@pytest.mark.parametrize(
    ("calls", "stages"),
    [
        ([(0, 10), (10, 20)], [0, 1]),
        ([(0, 10), (2, 1000)], [0, 0]),  # most of the shorter one
        ([(0, 1000), (995, 2000)], [0, 1]),
        ([(0, 100), (10, 20), (50, 60)], [0, 0, 0]),  # beside the first, not the one before
        ([(0, 100), (10, 20), (50, 120), (110, 130), (140, 150)], [0, 0, 0, 0, 1]),
        ([(0, 100), (50, 50), (100, 100)], [0, 0, 1]),  # a call that takes no time
    ],
)
def test_stages_by_hand(tmp_path: Path, calls: list[tuple[int, int]], stages: list[int]) -> None:
    spans = [
        span(str(at), "a", f"m{at}", begin, end - begin, "server")
        for at, (begin, end) in enumerate(calls)
    ]
    traced = read(tmp_path, span("a", "", "front", 0, 5000, "server"), *spans)
    names = traced.microservice_id[traced.trees.microservice].tolist()
    found = dict(zip(names, traced.trees.stage.tolist(), strict=True))
    assert [found[f"m{at}"] for at in range(len(calls))] == stages


def test_clock_that_is_behind(tmp_path: Path) -> None:
    faults = Faults()
    traced = read(
        tmp_path,
        span("a", "", "front", 1000, 100, "server"),
        span("b", "a", "back", 400, 60, "server"),
        span("c", "b", "base", 420, 20, "server"),
        faults=faults,
    )
    assert traced.start_of_call_ms.tolist() == pytest.approx([1000, 1000, 1000])
    assert own(traced) == pytest.approx({"front": 40, "back": 40, "base": 20})
    assert faults.warnings[0].startswith("2 spans outside")


def test_small_overlaps_are_clocks_and_large_ones_are_parallel(tmp_path: Path) -> None:
    for overlap, stages in ((0.9, [0, 0, 1]), (1.1, [0, 0, 0])):
        traced = read(
            tmp_path,
            span("a", "", "front", 0, 100, "server"),
            span("b", "a", "one", 10, 20, "server"),
            span("c", "a", "two", 30 - overlap, 10, "server"),
        )
        assert traced.trees.stage.tolist() == stages


def test_parent_that_was_not_recorded(tmp_path: Path) -> None:
    faults = Faults()
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 100, "server"),
        span("c", "lost", "back", 20, 30, "server"),
        faults=faults,
    )
    assert own(traced) == pytest.approx({"front": 70, "back": 30})
    assert "1 spans without their parent" in faults.warnings[0]
    # no root was recorded either: both are the request's own calls, one after the other
    traced = read(
        tmp_path,
        span("b", "lost", "one", 0, 30, "server"),
        span("c", "lost", "two", 40, 20, "server"),
    )
    assert traced.trees.parent.tolist() == [-1, -1]
    assert traced.latency_ms.tolist() == pytest.approx([50])


def test_errors_are_counted(tmp_path: Path) -> None:
    traced = read(
        tmp_path,
        span("a", "", "front", 0, 10, trace="t1"),
        span("b", "a", "back", 2, 3, tags={"error": True}, trace="t1"),
        span("a", "", "front", 0, 10, trace="t2", tags={"otel.status_code": "OK"}),
    )
    assert traced.failed.tolist() == [True, False]


def test_traces_in_several_files_and_lines(tmp_path: Path) -> None:
    one, two = tmp_path / "one.json.gz", tmp_path / "two.jsonl"
    first = {"data": [{"spans": [span("a", "", "front", 0, 10)], "processes": {}}]}
    one.write_bytes(gzip.compress(json.dumps(first).encode()))
    lines = [{"spans": [span(name, "a", "back", at, 2)]} for at, name in ((1, "b"), (5, "c"))]
    two.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n")
    traced = traced_calls(read_spans([one, two]))
    assert len(traced) == 1
    assert traced.own_ms.tolist() == pytest.approx([6, 2, 2])


OTLP: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {
                "attributes": [{"key": "service.name", "value": {"stringValue": "front"}}]
            },
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "t", "spanId": "a", "name": "GET", "kind": 2,
                            "startTimeUnixNano": "1000000000", "endTimeUnixNano": "1100000000",
                            "status": {"code": 2},
                        },
                        {
                            "traceId": "t", "spanId": "b", "parentSpanId": "a", "kind": 3,
                            "startTimeUnixNano": 1020000000, "endTimeUnixNano": 1050000000,
                            "attributes": [
                                {"key": "db.system", "value": {"stringValue": "redis"}}
                            ],
                        },
                        {
                            "traceId": "t", "spanId": "c", "kind": "SPAN_KIND_CONSUMER",
                            "startTimeUnixNano": 1020000000, "endTimeUnixNano": 1050000000,
                            "links": [{"traceId": "t", "spanId": "a"}],
                        },
                    ]
                }
            ],
        }
    ]
}  # fmt: skip


def write(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "file.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_open_telemetry_by_hand(tmp_path: Path) -> None:
    spans = read_spans([write(tmp_path, OTLP)])
    traced = traced_calls(spans)
    assert nested(traced) == [[{"microservice": "front", "stages": [[{"microservice": "redis"}]]}]]
    assert traced.own_ms.tolist() == pytest.approx([70, 30, 30])
    assert traced.service.tolist() == ["front GET", "background front"]
    assert traced.failed.tolist() == [True, True]
    zeros = changed(f"{SPAN}.parentSpanId", "0" * 16)  # how some write that there is none
    assert read_spans([write(tmp_path, zeros)]) == spans
    older = copy.deepcopy(OTLP)
    group = older["resourceSpans"][0]
    group["instrumentationLibrarySpans"] = group.pop("scopeSpans")
    assert read_spans([write(tmp_path, {"batches": [group]})]) == spans


def changed(path: str, value: Any) -> Any:
    """Change one field of the OTLP document, or with ``...`` take it out."""
    document = copy.deepcopy(OTLP)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at: Any = document
    for part in way:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return document


SPAN = "resourceSpans.0.scopeSpans.0.spans.0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ("  \n", "the file is empty"),
        ('{"data": [{"spans": [', "truncated JSON"),
        ('{"spans": []}\n{"spans": [{"tra', "line 2: truncated JSON"),
        ('{"data": []}', "there are no spans"),
        ("[1]", "[0].expected traces, got 1"),
        ({"dta": []}, "did you mean 'data'?"),
        ({"data": {}}, "data: expected a list"),
        ({"data": [{"span": []}]}, "spans is missing; did you mean 'span'?"),
        ({"data": [{"spans": [{"traceId": "t"}]}]}, "traceID is missing; did you mean 'traceId'?"),
        (changed(f"{SPAN}.endTimeUnixNano", ...), "endTimeUnixNano is missing"),
        (changed(f"{SPAN}.startTimeUnixNano", "soon"), "must be a whole number"),
        (changed(f"{SPAN}.kind", "SPAN_KIND_SERVR"), "did you mean 'SPAN_KIND_SERVER'?"),
        (changed(f"{SPAN}.kind", 9), "is no kind of span"),
        (changed(f"{SPAN}.spanId", ""), "must be a string that is not empty"),
        (changed("resourceSpans.0.resource", {}), "service.name is missing"),
        (changed("resourceSpans.0.scopeSpans", ...), "scopeSpans is missing"),
    ],
)
def test_bad_files(tmp_path: Path, data: Any, message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InstanceError, match=re.escape(message)) as caught:
        read_spans([path])
    assert str(path) in str(caught.value)


def test_bad_gzip(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(OTLP).encode())[:-9])
    with pytest.raises(InstanceError, match="truncated"):
        read_spans([path])
    with pytest.raises(InstanceError, match="no such file"):
        read_spans([tmp_path / "none.json"])


def test_process_that_is_not_listed(tmp_path: Path) -> None:
    one = span("a", "", "front", 0, 1)
    del one["process"]
    one["processID"] = "p2"
    data = {"data": [{"spans": [one], "processes": {"p1": {"serviceName": "front"}}}]}
    with pytest.raises(InstanceError, match=r"processID = \"p2\": no process; known: p1"):
        read_spans([write(tmp_path, data)])


GOOD = span("a", "", "front", 0, 10, trace="good")
FAULTS = {
    "two different spans have this name": [
        span("a", "", "front", 0, 10), span("a", "", "front", 3, 4),
    ],
    "its parents form a cycle": [
        span("a", "", "front", 0, 10), span("b", "c", "m", 1, 2), span("c", "b", "n", 1, 2),
    ],
    "the duration is negative (-5 ms)": [span("a", "", "front", 0, -5)],
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_bad_traces_are_left_out_and_told(tmp_path: Path, what: str) -> None:
    faults = Faults()
    traced = read(tmp_path, *FAULTS[what], GOOD, faults=faults)
    assert traced.trace_id.tolist() == ["good"]
    assert faults.warnings[0].startswith(f"1 traces left out: {what} (first: trace 't', span")
    with pytest.raises(InstanceError, match=re.escape(what)):
        read_spans([tmp_path / "trace.json"], strict=True)
    with pytest.raises(InstanceError, match="no trace is usable"):
        read(tmp_path, *FAULTS[what])


def test_span_that_is_its_own_parent(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="cycle"):
        read(tmp_path, span("a", "a", "front", 0, 10))


def test_span_listed_twice_is_one(tmp_path: Path) -> None:
    faults = Faults()
    traced = read(tmp_path, GOOD, GOOD, faults=faults)
    assert traced.trees.calls.size == 1
    assert faults.warnings == ("1 spans listed twice (first: trace 'good')",)


def test_depth_is_no_limit() -> None:
    count = 5000
    spans = Spans(
        trace_id=np.array(["t"]), service=np.array(["s"]), microservice_id=np.array(["m"]),
        span_id=np.arange(count).astype(str), trace=np.zeros(count, np.int64),
        span=np.arange(count),
        parent=np.arange(-1, count - 1), microservice=np.zeros(count, np.int64),
        start_ms=np.zeros(count), duration_ms=np.linspace(count, 1, count),
        kind=np.ones(count, np.int64), waited=np.ones(count, np.bool_),
        failed=np.zeros(count, np.bool_),
    )  # fmt: skip
    traced = traced_calls(spans)
    np.testing.assert_allclose(traced.own_ms, 1.0)
    assert traced.trees.parent.tolist() == list(range(-1, count - 1))


@pytest.mark.parametrize("seed", range(20))
def test_levels_by_walking_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parent = rng.integers(-1, 12, 12)
    expected = []
    for row in range(12):
        steps, at = 0, int(parent[row])
        while at >= 0 and steps <= 12:
            steps, at = steps + 1, int(parent[at])
        expected.append(steps if at < 0 else -1)
    assert levels(parent).tolist() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parent": [-1, 5]}, "spans.parent[1] = 5: is no row"),
        ({"parent": [1, 0]}, "its parents form a cycle"),
        ({"trace": [0, 1], "parent": [-1, 0]}, "lies in another trace"),
        ({"duration_ms": [1.0, -1.0]}, "must not be negative"),
        ({"duration_ms": [1.0, float("nan")]}, "NaN"),
        ({"microservice": [0, 3]}, "does not exist"),
        ({"kind": [0, 9]}, "is no kind"),
        ({"wait_ms": [1.0]}, "has shape"),
    ],
)
def test_spans_check_themselves(change: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {
        "trace_id": ["t", "u"], "service": ["s", "s"], "microservice_id": ["m"], "trace": [0, 0],
        "span_id": ["a", "b"], "span": [0, 1], "parent": [-1, 0], "microservice": [0, 0], "start_ms": [0.0, 0.0],
        "duration_ms": [1.0, 1.0], "kind": [0, 0], "waited": [True, True],
        "failed": [False, False],
    }  # fmt: skip
    with pytest.raises(InstanceError, match=re.escape(message)):
        Spans(**{**columns, **change})
