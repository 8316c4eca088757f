"""Any spans give trees whose latency is that of the trace, in times that are not negative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.microservices.raw_spans import Faults
from apportion.instances.microservices.span_trees import TracedCalls, traced_calls
from apportion.instances.microservices.spans import Kind, Spans

pytestmark = pytest.mark.quick


def spans(rng: np.random.Generator, count: int, *, inside: bool) -> Spans:
    """Draw spans of three traces; ``inside``: each within the one that caused it."""
    trace, parent = np.sort(rng.integers(0, 3, count)), np.full(count, -1)
    start, took = rng.uniform(0, 50, count), rng.uniform(0, 100, count)
    for row in range(count):
        before = np.flatnonzero(trace[:row] == trace[row])
        if not before.size or (not inside and rng.random() < 0.1):
            continue
        above = parent[row] = int(rng.choice(before))
        if inside:
            start[row] = start[above] + took[above] * rng.uniform(0, 1)
            took[row] = (start[above] + took[above] - start[row]) * rng.uniform(0, 1)
    order = rng.permutation(count)
    place = np.empty(count + 1, dtype=np.int64)
    place[order], place[count] = np.arange(count), -1
    return Spans(
        trace_id=np.array(["x", "y", "z"]), service=np.array(["s"] * 3),
        microservice_id=np.array(["a", "b", "c", "d"]), span_id=np.arange(count).astype(str),
        trace=trace[order], span=order, parent=place[parent[order]],
        microservice=rng.integers(0, 4, count), start_ms=start[order], duration_ms=took[order],
        kind=rng.integers(0, 2 if inside else 5, count),
        waited=np.ones(count, np.bool_) if inside else rng.random(count) < 0.9,
        failed=np.zeros(count, np.bool_),
    )  # fmt: skip


def latency(traced: TracedCalls, request: int) -> float:
    """Evaluate a request's tree as its definition says."""
    trees = traced.trees
    low, high = int(trees.offsets[request]), int(trees.offsets[request + 1])

    def stages(parent: int) -> float:
        below = [at for at in range(low, high) if trees.parent[at] == parent]
        longest: dict[int, float] = {}
        for at in below:
            took = float(traced.own_ms[at]) + stages(at - low)
            longest[int(trees.stage[at])] = max(longest.get(int(trees.stage[at]), 0.0), took)
        return sum(longest.values())

    return stages(-1)


@pytest.mark.parametrize("seed", range(40))
def test_latency_of_the_tree_is_that_of_the_trace(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = spans(rng, 40, inside=True)
    faults = Faults()
    traced = traced_calls(given, faults)
    assert faults.warnings == () or "own time" in faults.warnings[0]
    assert len(traced) == 3
    for request in range(3):
        found = latency(traced, request)
        assert found >= traced.latency_ms[request] - 1e-6
        if not faults.warnings:
            assert found == pytest.approx(traced.latency_ms[request], abs=0.05)
        top = (given.trace == request) & (given.parent < 0)
        if top.any():
            assert traced.latency_ms[request] == pytest.approx(given.duration_ms[top].max())


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_whatever_the_spans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = spans(rng, 60, inside=False)
    traced = traced_calls(given)
    assert (traced.own_ms >= 0).all()
    above = given.microservice[given.parent]
    begins = (given.parent < 0) | (given.microservice != above)
    begins |= (given.kind == Kind.SERVER) | (given.kind == Kind.CONSUMER)
    called = np.bincount(given.microservice[begins], minlength=4)
    assert np.bincount(traced.trees.microservice, minlength=4).tolist() == called.tolist()
    for request in range(len(traced)):
        assert latency(traced, request) >= traced.latency_ms[request] - 1e-6
    again = traced_calls(given)
    assert again.trees == traced.trees
    assert np.array_equal(again.own_ms, traced.own_ms)


def test_no_spans() -> None:
    nothing: dict[str, Any] = {
        name: np.zeros(0, np.int64) for name in ("trace", "span", "parent", "microservice", "kind")
    }
    empty = Spans(
        **nothing, trace_id=np.zeros(0, "U1"), service=np.zeros(0, "U1"),
        microservice_id=np.zeros(0, "U1"), span_id=np.zeros(0, "U1"), start_ms=np.zeros(0),
        duration_ms=np.zeros(0), waited=np.zeros(0, np.bool_), failed=np.zeros(0, np.bool_),
    )  # fmt: skip
    assert len(traced_calls(empty)) == 0


def test_traced_calls_check_themselves() -> None:
    traced = traced_calls(spans(np.random.default_rng(0), 10, inside=True))
    for change, message in (
        ({"own_ms": -traced.own_ms - 1}, "must not be negative"),
        ({"latency_ms": np.zeros(1)}, "has shape"),
        ({"microservice_id": np.array(["a"])}, "there are 1"),
    ):
        with pytest.raises(InstanceError, match=message):
            TracedCalls(**{**vars(traced), **change})
