"""Whatever stands in a file, the answer is a round, a scenario, or one InstanceError."""

from __future__ import annotations

import contextlib
import copy
import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from apportion.instances.errors import InstanceError
from apportion.instances.training import (
    TrainingRound,
    allocation_from_dict,
    outcome_from_dict,
    read_chronus,
    read_elasticflow,
    read_gavel,
    read_philly,
    read_round,
    read_scenario,
    round_from_dict,
)

pytestmark = pytest.mark.quick

FIXTURES = [HealthCheck.function_scoped_fixture]
ANY = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.sampled_from([2**63, -(2**70), 1e308, -1e308, 0.5]),
        st.sampled_from(["", "a", "T4", "V100", "default", "node-0", "boundary"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["job", "gpus", "name", "x"]), inner, max_size=2),
    ),
    max_leaves=6,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path of every value below."""
    items = list(data.items()) if isinstance(data, dict) else list(enumerate(data))
    out: list[tuple[Any, ...]] = []
    for key, value in items:
        out.append((*path, key))
        if isinstance(value, (dict, list)):
            out += places(value, (*path, key))
    return out


def spoilt(draw: st.DataObject, data: Any) -> Any:
    """Replace one or two values anywhere by anything."""
    out = copy.deepcopy(data)
    for _ in range(draw.draw(st.integers(1, 2))):
        found = places(out)
        if not found:
            break
        *above, key = draw.draw(st.sampled_from(found))
        inner = out
        for step in above:
            inner = inner[step]
        inner[key] = draw.draw(ANY)
    return out


@settings(max_examples=300, deadline=None, suppress_health_check=FIXTURES)
@given(st.data())
def test_rounds(document: dict[str, Any], data: st.DataObject) -> None:
    with contextlib.suppress(InstanceError):
        round_from_dict(spoilt(data, document))


@settings(max_examples=200, deadline=None, suppress_health_check=FIXTURES)
@given(st.data())
def test_answers(small: TrainingRound, data: st.DataObject) -> None:
    row = {"job": "c", "gpu_type": "V100", "gpus": 4, "lease_end_s": 9, "nodes": {"node-1": 4}}
    answer = {"jobs": [row], "lost": [{"job": "a", "work": 1}]}
    with contextlib.suppress(InstanceError):
        allocation_from_dict(small, spoilt(data, answer))
    seen = {"start_s": 0, "end_s": 1, "jobs": [{"job": "a", "work": 1, "gpu_s": 1}]}
    with contextlib.suppress(InstanceError):
        outcome_from_dict(small, spoilt(data, seen))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_scenarios(data: st.DataObject) -> None:
    text = resources.files("apportion.instances").joinpath("bundled", "demo.toml")
    tables = tomllib.loads(text.read_text(encoding="utf-8"))
    tables = {key: tables[key] for key in ("cluster", "workload", "tenant", "executor", "policy")}
    tables["executor"]["failure"] = [{"node": "node-1", "at_s": 5}]
    tables["cluster"]["add_gpus"] = {"T4": 4}
    with contextlib.suppress(InstanceError):
        read_scenario("demo", overrides=spoilt(data, tables))


@settings(max_examples=100, deadline=None, suppress_health_check=FIXTURES)
@given(st.binary(max_size=40), st.sampled_from(["", "job_type,total_steps,scale_factor,arrival_time_s\n",
       "timestamp,duration,num_gpus,gpu_time,cluster\n",
       "job_id,num_gpu,submit_time,model_name,ddl,duration,batch_size\n"]))  # fmt: skip
def test_bytes(tmp_path: Path, junk: bytes, head: str) -> None:
    path = tmp_path / "junk"
    path.write_bytes(head.encode() + junk)
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"v100": {"('A', 1)": {"null": 1}}}))
    for read in (
        read_round,
        read_scenario,
        lambda place: read_gavel(place, table),
        lambda place: read_gavel(table, place),
        lambda place: read_philly(place, timezone="UTC"),
        lambda place: read_chronus(place, model_info=table),
        lambda place: read_chronus(table, model_info=place),
        read_elasticflow,
    ):
        with pytest.raises(InstanceError):
            read(path)
