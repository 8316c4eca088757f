"""Whatever a file holds, readers of microservices read it or say in a line what is wrong."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from apportion.instances.errors import InstanceError
from apportion.instances.microservices import Allocation, Nodes
from apportion.instances.microservices.answer_json import (
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    outcome_to_dict,
)
from apportion.instances.microservices.builtin import builtin_round
from apportion.instances.microservices.following import round_after
from apportion.instances.microservices.graph_json import graph_from_dict
from apportion.instances.microservices.planned import planned_outcome
from apportion.instances.microservices.round_json import round_from_dict, round_to_dict

pytestmark = pytest.mark.quick

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(10**15, 10**25), st.floats(),
    st.text(max_size=3), st.lists(st.integers(-1, 2), max_size=3), st.lists(st.text(max_size=2)),
    st.dictionaries(st.text(max_size=3), st.integers(-1, 2), max_size=2),
)  # fmt: skip


def spoilt(data: st.DataObject, document: dict[str, Any]) -> dict[str, Any]:
    """Put something odd at a random place, or take or add a key."""
    out = copy.deepcopy(document)
    place: Any = out
    while True:
        if not place:
            return out
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        deeper = isinstance(place[key], dict | list) and place[key]
        if not deeper or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    match data.draw(st.sampled_from(["odd", "odd", "gone", "more"])):
        case "gone":
            del place[key]
        case "more" if isinstance(place, dict):
            place[data.draw(st.text(max_size=4))] = data.draw(ODD)
        case "more":
            place.append(data.draw(ODD))
        case _:
            place[key] = data.draw(ODD)
    return out


def told_in_a_line(read: Callable[[], object]) -> None:
    with contextlib.suppress(InstanceError):
        try:
            read()
        except InstanceError as error:
            assert "\n" not in str(error)  # noqa: PT017 - reading is right too
            raise


ROUND = builtin_round("social-network")
PLAN = Allocation.of(
    [2] * len(ROUND.microservices), [True, False, True], rank=[0, 1, 1, 2],
)  # fmt: skip
EVERY_KEY = round_to_dict(
    round_after(ROUND, PLAN, planned_outcome(ROUND, PLAN))
) | {
    "share_error": {"compose-post": 0.1},
    "nodes": {"id": ["n"], "cpu_cores": [99], "memory_mib": [10**6]},
    "cpu_cores": 99,
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_rounds(data: st.DataObject) -> None:
    document = spoilt(data, EVERY_KEY)
    told_in_a_line(lambda: round_from_dict(document))


def test_the_unspoilt_are_read() -> None:
    round_from_dict(EVERY_KEY)
    graph_from_dict(GRAPH)


GRAPH: dict[str, Any] = {
    "schema": "apportion/graph/1",
    "family": "microservices",
    "microservices": {
        "id": ["a", "b"], "rate_at_rest_per_ms": [1, 1], "rate_slope_per_ms": [-1, -1],
    },
    "services": {"id": ["s"], "rate_per_s": [1], "target_ms": [9]},
    "trees": {
        "s": [
            [{"microservice": "a", "calls": 2, "p": 0.5, "stages": [[{"microservice": "b"}]]}],
            [{"one_of": [{"microservice": "b", "p": 0.5}]}, {"microservice": "b", "branch": "x"}],
        ]
    },
    "joint": {"s": [{"present": ["x"], "p": 0.5}, {"present": [], "p": 0.5}]},
    "most_classes": 3,
    "least_share": 0.01,
    "rest": "largest",
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_graphs(data: st.DataObject) -> None:
    document = spoilt(data, GRAPH)
    told_in_a_line(lambda: graph_from_dict(document))


def placed() -> tuple[Any, dict[str, Any]]:
    round_ = round_from_dict(EVERY_KEY)
    assert isinstance(round_.nodes, Nodes)
    placement = [[2]] * len(round_.microservices)
    plan = Allocation.of(PLAN.containers, PLAN.guaranteed, rank=PLAN.rank, placement=placement)
    return round_, allocation_to_dict(round_, plan)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_plans_and_outcomes(data: st.DataObject) -> None:
    round_, document = placed()
    plan = spoilt(data, document)
    told_in_a_line(lambda: allocation_from_dict(round_, plan))
    outcome = spoilt(data, outcome_to_dict(round_, planned_outcome(round_, PLAN)))
    told_in_a_line(lambda: outcome_from_dict(round_, outcome))
