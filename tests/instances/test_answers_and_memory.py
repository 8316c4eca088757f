"""Allocations, outcomes and memory as plain data."""

from __future__ import annotations

import json
import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from apportion.instances import dump_memory, load_memory
from apportion.instances.errors import InstanceError
from apportion.instances.training import (
    Allocation,
    Cluster,
    Jobs,
    Outcome,
    Placement,
    TrainingRound,
    allocation_from_dict,
    allocation_to_dict,
    outcome_from_dict,
    outcome_to_dict,
)

pytestmark = pytest.mark.quick


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


def test_allocations_read_back(small: TrainingRound) -> None:
    for allocation in (
        Allocation.empty(),
        Allocation.of([2, 0], [1, 0], [4, 1]),
        Allocation.of(
            [0, 2], [1, 1], [2, 4],
            lease_end_s=[900.0, np.inf],
            guaranteed=[True, False],
            placement=Placement.of([0, 2, 2], [1, 1, 2], [2, 2, 2]),
            lost_job=[1],
            lost_work=[0.5],
        ),
    ):  # fmt: skip
        data = through_json(allocation_to_dict(small, allocation))
        assert allocation_from_dict(small, data) == allocation


def test_allocations_speak_names(small: TrainingRound) -> None:
    placed = Placement.of([2, 2], [1, 2], [2, 2])
    data = allocation_to_dict(small, Allocation.of([2], [1], [4], placement=placed))
    assert data == {
        "jobs": [
            {
                "job": "c",
                "gpu_type": "V100",
                "gpus": 4,
                "lease_end_s": None,
                "guaranteed": False,
                "nodes": {"node-1": 2, "node-2": 2},
            }
        ]
    }
    short = {"jobs": [{"job": "c", "gpu_type": "V100", "gpus": 4}]}
    assert allocation_from_dict(small, short) == Allocation.of([2], [1], [4])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "allocation: expected an object, got []"),
        ({}, "allocation.jobs is missing"),
        ({"job": []}, "allocation.job: unknown key; did you mean 'jobs'?"),
        ({"jobs": [{"job": "d", "gpu_type": "T4", "gpus": 1}]}, 'allocation.jobs.job[0] = "d": unknown job'),
        ({"jobs": [{"job": "a", "gpu_type": "V10", "gpus": 1}]}, "unknown GPU type; did you mean 'V100'?"),
        ({"jobs": [{"job": "a", "gpu_type": "T4"}]}, "allocation.jobs[0].gpus is missing"),
        ({"jobs": [{"job": "a", "gpu_type": "T4", "gpu": 1}]}, "allocation.jobs[0].gpu: unknown key"),
        ({"jobs": [{"job": "a", "gpu_type": "T4", "gpus": 1, "nodes": {"node-9": 1}}]},
         "allocation.jobs[0].nodes.node-9: unknown key; did you mean 'node-"),
        ({"jobs": [{"job": "a", "gpu_type": "T4", "gpus": 1, "nodes": {"node-0": "1"}}]},
         'allocation.jobs[0].nodes[0] = "1": must be a whole number'),
    ],
)  # fmt: skip
def test_wrong_answers(small: TrainingRound, data: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        allocation_from_dict(small, data)
    assert told in str(error.value)


def test_placements_that_names_cannot_tell(small: TrainingRound) -> None:
    stray = Allocation.of([2], [1], [4], placement=Placement.of([0], [1], [1]))
    with pytest.raises(InstanceError, match="job 'a' holds GPUs of 'node-1' but does not run"):
        allocation_to_dict(small, stray)
    twice = Allocation.of([0], [1], [2], placement=Placement.of([0, 0], [1, 1], [1, 1]))
    with pytest.raises(InstanceError, match="job 'a' names 'node-1' twice"):
        allocation_to_dict(small, twice)


def test_outcomes_read_back(small: TrainingRound) -> None:
    outcome = Outcome(
        0.0, 300.0, np.array([1.5, 0.0, 0.0]), np.array([300.0, 0.0, 7.0]),
        np.array([False, False, True]), assumed=True,
    )  # fmt: skip
    data = through_json(outcome_to_dict(small, outcome))
    assert [row["job"] for row in data["jobs"]] == ["a", "c"]
    again = outcome_from_dict(small, data)
    for name in ("start_s", "end_s", "assumed"):
        assert getattr(again, name) == getattr(outcome, name)
    for name in ("work", "gpu_s", "finished"):
        assert np.array_equal(getattr(again, name), getattr(outcome, name))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"end_s": 0}, "outcome.end_s = 0: must lie after start_s = 0"),
        ({"start_s": ...}, "outcome.start_s is missing"),
        ({"asumed": True}, "outcome.asumed: unknown key; did you mean 'assumed'?"),
        ({"jobs": [{"job": "aa", "work": 1, "gpu_s": 1}]}, 'outcome.jobs.job[0] = "aa": unknown job'),
        ({"jobs": [{"job": "a", "work": 1, "gpu_s": 1}] * 2}, "outcome.jobs: job 'a' is named twice"),
        ({"jobs": [{"job": "a", "work": 1, "gpu_s": -1}]}, "outcome.jobs.gpu_s[0] = -1: must not be negative"),
        ({"jobs": [{"job": "a", "work": 1}]}, "outcome.jobs[0].gpu_s is missing"),
    ],
)  # fmt: skip
def test_wrong_outcomes(small: TrainingRound, changes: Any, told: str) -> None:
    data = {"start_s": 0, "end_s": 300, "jobs": [], **changes}
    data = {key: value for key, value in data.items() if value is not ...}
    with pytest.raises(InstanceError) as error:
        outcome_from_dict(small, data)
    assert told in str(error.value)


def alike(left: Any, right: Any) -> bool:
    """Compare memories, columns by type, shape and value."""
    if isinstance(left, np.ndarray):
        same = isinstance(right, np.ndarray) and left.dtype == right.dtype
        return same and left.shape == right.shape and left.tobytes() == right.tobytes()
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(alike, left, right))
    return (
        left == right and math.copysign(1, left) == math.copysign(1, right)
        if isinstance(left, float)
        else left == right
    )


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
FLOATS = st.floats(allow_nan=False)
COLUMNS = st.one_of(
    st.lists(FLOATS, max_size=4).map(lambda v: np.array(v, dtype=np.float64)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(lambda v: np.array(v, dtype=np.float32)),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda v: np.array(v, dtype=np.int64)),
    st.lists(st.booleans(), max_size=4).map(lambda v: np.array(v, dtype=np.bool_)),
    st.lists(WORDS, max_size=3).map(lambda v: np.array(v, dtype="<U5")),
    st.lists(FLOATS, min_size=6, max_size=6).map(lambda v: np.array(v).reshape(2, 3)),
)  # fmt: skip
KEYS = st.one_of(WORDS, st.integers(), st.sampled_from(["$column", "$tuple", "$"]))
MEMORY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, WORDS, COLUMNS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(MEMORY)
def test_memory_reads_back_to_the_last_bit(memory: Any) -> None:
    text = dump_memory(memory)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert alike(load_memory(text), memory)
    assert dump_memory(load_memory(text)) == text


def test_memory_columns_come_back_read_only() -> None:
    column = load_memory(dump_memory({"rho": np.zeros(3)}))["rho"]
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({"a": [1.0, math.nan]}, "memory.a[1] = NaN"),
        ({"a": np.array([0.0, np.nan])}, "memory.a[1] = NaN"),
        ({"a": {1, 2}}, "memory.a: set is not plain data"),
        ({"a": object()}, "memory.a: object is not plain data"),
        ({"a": np.array([None])}, "memory.a: a column of object is not plain data"),
        ({"a": np.array([1j])}, "memory.a: a column of complex128 is not plain data"),
        ({(1, 2): 3}, "is no string or whole number"),
        ({True: 3}, "is no string or whole number"),
    ],
)
def test_memory_that_is_not_plain(memory: Any, told: str) -> None:
    with pytest.raises(InstanceError) as error:
        dump_memory(memory)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"$tuples": []}',
        '{"$tuple": 3}',
        '{"$tuple": [], "x": 1}',
        '{"$column": {"dtype": "<f8", "shape": [2], "values": [1.0]}}',
        '{"$column": {"dtype": "O", "shape": [1], "values": [1.0]}}',
        '{"$column": {"dtype": "<f8", "shape": [1], "values": ["1"]}}',
        '{"$column": {"dtype": "<i8", "shape": [1], "values": [true]}}',
        '{"$column": {"dtype": "<f8", "shape": [1]}}',
        '{"$column": {"dtype": "<i1", "shape": [1], "values": [300]}}',
        '{"$pairs": [[1]]}',
        '{"$pairs": [["a", 1], ["a", 2]]}',
        '{"a": NaN}',
    ],
)
def test_text_that_is_no_memory(text: str) -> None:
    with pytest.raises(InstanceError):
        load_memory(text)


def test_an_allocation_of_nobody_survives_being_written():
    jobs = Jobs.of(id=["a"], gang=[1], work=[1.0], throughput_per_s=[[1.0]])
    asked = TrainingRound(cluster=Cluster.uniform({"only": 1}), jobs=jobs)
    for placement in (None, Placement.of([], [], [])):
        plan = Allocation.of([], [], [], placement=placement)
        assert allocation_from_dict(asked, allocation_to_dict(asked, plan)) == plan
