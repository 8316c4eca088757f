"""The published schemas: equal to the readers' tables, and true of the files we write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from apportion.instances import jobs_schema, round_schema, scenario_schema, schemas
from apportion.instances.training import (
    TrainingRound,
    read_scenario,
    round_to_dict,
    write_round,
    write_scenario,
)
from apportion.instances.training import round_json as reader
from apportion.instances.training.jobs_file import JOBS_FILE_KEYS, JobsFile, write_jobs
from apportion.instances.training.jobs_json import JOB_KEYS
from apportion.instances.training.scenario_keys import WORKLOADS, scenario_table, workload_table

pytestmark = pytest.mark.quick


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", schemas.NAMES)
def test_the_committed_file_is_what_the_tables_say(name: str) -> None:
    made = schemas.generated(name)
    assert schemas.published(name) == json.loads(json.dumps(made))
    jsonschema.Draft202012Validator.check_schema(made)


def test_publishing_writes_the_committed_files(tmp_path: Path) -> None:
    schemas.publish(tmp_path)
    for name in schemas.NAMES:
        item = resources.files("apportion.instances").joinpath("schemas", f"{name}.json")
        assert (tmp_path / f"{name}.json").read_bytes() == item.read_bytes()


def test_schemas_and_readers_know_the_same_keys() -> None:
    properties = round_schema()["properties"]
    assert set(properties) == set(reader.ROUND_KEYS)
    assert set(properties["jobs"]["properties"]) == set(JOB_KEYS)
    assert set(properties["cluster"]["properties"]) == set(reader.CLUSTER_KEYS)
    assert set(properties["tenants"]["properties"]) == set(reader.TENANT_KEYS)
    assert set(properties["placement"]["items"]["properties"]) == set(reader.PLACEMENT_KEYS)
    assert set(properties["commitments"]["items"]["properties"]) == set(reader.COMMITMENT_KEYS)
    assert set(jobs_schema()["properties"]) == set(JOBS_FILE_KEYS)
    whole = scenario_schema()["properties"]
    assert set(whole) == {"schema", "variant", *scenario_table("generate").keys}
    kinds = {one["properties"]["kind"]["const"]: one for one in whole["workload"]["oneOf"]}
    assert set(kinds) == set(WORKLOADS)
    for kind, one in kinds.items():
        assert set(one["properties"]) == set(workload_table(kind).keys)


def test_written_rounds_are_valid(
    small: TrainingRound, document: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "round.json"
    write_round(small, path)
    validator(round_schema()).validate(json.loads(path.read_text()))
    validator(round_schema()).validate(document)
    validator(round_schema()).validate(round_to_dict(reader.round_from_dict(document)))


def test_written_scenarios_are_valid(tmp_path: Path) -> None:
    demo = resources.files("apportion.instances").joinpath("bundled", "demo.toml")
    validator(scenario_schema()).validate(tomllib.loads(demo.read_text(encoding="utf-8")))
    scenario = read_scenario("demo", overrides={"truth": {"work_noise": 0.1}})
    path = write_scenario(scenario, tmp_path)
    validator(scenario_schema()).validate(tomllib.loads(path.read_text()))
    content = JobsFile(
        scenario.cluster.types, scenario.tenants.id, scenario.jobs, true_work=scenario.true_work
    )
    write_jobs(content, tmp_path / "jobs.json")
    validator(jobs_schema()).validate(json.loads((tmp_path / "jobs.json").read_text()))


BREAK: list[Callable[[dict[str, Any]], Any]] = [
    lambda d: d.update(jobz=1),
    lambda d: d.pop("cluster"),
    lambda d: d.update(schema="apportion/round/2"),
    lambda d: d.update(duration_s=0),
    lambda d: d["jobs"].update(gang=[1, 0]),
    lambda d: d["jobs"].update(gang=[1.5, 1]),
    lambda d: d["jobs"].update(work=[1, None]),
    lambda d: d["jobs"].pop("throughput_per_s"),
    lambda d: d["jobs"].update(gpu_fraction=[0, 1]),
    lambda d: d["cluster"].update(types=[]),
]


@pytest.mark.parametrize("spoil", BREAK, ids=range(len(BREAK)))
def test_schemas_refuse_what_the_readers_refuse(
    document: dict[str, Any], spoil: Callable[[dict[str, Any]], Any]
) -> None:
    spoil(document)
    assert not validator(round_schema()).is_valid(document)


def test_infinity_is_null(small: TrainingRound) -> None:
    data = round_to_dict(small)
    assert None in data["jobs"]["lease_end_s"]
    assert np.isinf(small.jobs.lease_end_s).any()
    validator(round_schema()).validate(data)
