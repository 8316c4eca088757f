"""Gavel's and Philly's traces: real slices, and small files that are wrong in one way each."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.training import (
    Cluster,
    read_gavel,
    read_philly,
    read_scenario,
    write_scenario,
)

pytestmark = pytest.mark.quick

Find = Callable[[str], Path]
HEAD = "job_type,total_steps,scale_factor,arrival_time_s\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
TABLE = {
    "k80": {"('LM (batch size 10)', 1)": {"null": 2.0}, "('LM (batch size 10)', 2)": {"null": 3.0}},
    "v100": {
        "('LM (batch size 10)', 1)": {"null": 8.0, "('A3C', 1)": [1.0, 1.0]},
        "('LM (batch size 10)', 2)": {"null": 12.0},
        "('A3C', 1)": {"null": 0.0},
    },
    "k80_unconsolidated": {"('LM (batch size 10)', 2)": {"null": 2.7}},
    "v100_unconsolidated": {"('LM (batch size 10)', 2)": {"null": 4.8}},
}
TWO = Cluster.uniform({"V100": 4, "K80": 4})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    return path


def trace(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_gavel_columns(tmp_path: Path, table: Path) -> None:
    head = "job_type,total_steps,scale_factor,priority_weight,slo,arrival_time_s\n"
    rows = "LM (batch size 10),100,2,1.5,-1,7\n\nLM (batch size 10),50,1,2,1.2,3\n"
    scenario = read_gavel(trace(tmp_path, head + rows), table, TWO)
    jobs = scenario.jobs
    assert jobs.id.tolist() == ["trace-2", "trace-0"]  # by arrival, numbered as in the file
    assert jobs.gang.tolist() == [1, 2]
    assert jobs.throughput_per_s.tolist() == [[8, 2], [12, 3]]  # in the cluster's order
    assert jobs.weight.tolist() == [2, 1.5]
    assert jobs.model.tolist() == ["LM", "LM"]
    assert jobs.global_batch.tolist() == [10, 10]
    assert jobs.slo.tolist() == [True, False]
    assert jobs.deadline_offsets.tolist() == [0, 1, 1]
    assert jobs.deadline_s == pytest.approx([3 + 1.2 * 50 / 8])  # durations count on a V100
    assert jobs.spread_offsets.tolist() == [0, 0, 1]
    assert jobs.spread_hosts.tolist() == [2]
    assert jobs.spread_speed == pytest.approx([np.sqrt(0.9 * 0.4)])  # geometric mean over types
    assert scenario.tenants.id.tolist() == ["trace"]
    flat = read_gavel(trace(tmp_path, head + rows), table, TWO, spread=False)
    assert flat.jobs.spread_hosts.size == 0


def test_gavel_traces_are_tenants(tmp_path: Path, table: Path) -> None:
    one = trace(tmp_path, HEAD + "LM (batch size 10),5,1,9\n", "msr_seed0_vc_aaa.csv")
    two = trace(tmp_path, HEAD + "LM (batch size 10),6,1,1\n", "msr_seed0_vc_bbb.csv")
    scenario = read_gavel([one, two], table, TWO)
    assert scenario.tenants.id.tolist() == ["aaa", "bbb"]
    assert scenario.jobs.tenant.tolist() == [1, 0]
    assert scenario.jobs.id.tolist() == ["bbb-0", "aaa-0"]


def test_gavel_jobs_without_throughput(
    tmp_path: Path, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "LM (batch size 10),5,1,0\nLM (batch size 10),5,16,0\nA3C,5,1,0\n"
    path = trace(tmp_path, HEAD + rows)
    told = (
        f"{path}: line 3: {table} has no throughput for ('LM (batch size 10)', 16); did you mean"
        " \"('LM (batch size 10)', 1)\"? (2 of 3 jobs; they can be skipped)"
    )
    with pytest.raises(InstanceError) as error:
        read_gavel(path, table, TWO)
    assert str(error.value) == told
    with caplog.at_level(logging.WARNING, "apportion.instances"):
        scenario = read_gavel(path, table, TWO, missing="skip")
    assert len(scenario.jobs) == 1
    assert "skipped 2 of 3 jobs" in caplog.text
    with pytest.raises(InstanceError, match="no throughputs for the GPU type 'V10'; did you mean"):
        read_gavel(path, table, Cluster.uniform({"V10": 4}))
    with pytest.raises(InstanceError, match="traces: no file is given"):
        read_gavel([], table, TWO)


GAVEL: list[tuple[str, str]] = [
    ("", "the file is empty"),
    (HEAD, "the trace holds no jobs, only a header"),
    ("job_type,total_steps,scale_facto,arrival_time_s\nA,1,1,0\n",
     "not a Gavel trace: the column 'scale_factor' is missing; did you mean 'scale_facto'?"),
    (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
     "this looks like the flat Philly table, not a Gavel trace: the column 'job_type' is missing"),
    ("job_type,total_steps,scale_factor,mode,arrival_time_s\nA,1,1,static,0\n",
     "this looks like a Shockwave trace, not a Gavel trace: the column 'mode' is another's"),
    ("job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,1,1,1,a,1,1\n",
     "this looks like a Tiresias trace, not a Gavel trace"),
    (HEAD + "LM (batch size 10),5,1,0\nLM (batch size 10),5,0,0\n", "line 3: scale_factor = \"0\": must be positive"),
    (HEAD + "LM (batch size 10),5,1.5,0\n", "line 2: scale_factor = \"1.5\": must be a whole number"),
    (HEAD + "\nLM (batch size 10),five,1,0\n", "line 3: total_steps = \"five\": must be a number"),
    (HEAD + "LM (batch size 10),5,1,inf\n", "line 2: arrival_time_s = \"inf\": must be a number"),
    (HEAD + "LM (batch size 10),5,1,\n", "line 2: arrival_time_s = \"\": must be a number"),
    (HEAD + ",5,1,0\n", "line 2: job_type = \"\": is empty"),
    (HEAD + "LM (batch size 10),5,1,0\nLM (batch size 10),5,1,0,9\n", "not a CSV table: Expected 4 fields in line 3, saw 5"),
    (HEAD + "LM (batch size 10),5\n", "line 2: scale_factor = \"\": must be a number"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), GAVEL, ids=range(len(GAVEL)))
def test_wrong_gavel_files(tmp_path: Path, table: Path, text: str, told: str) -> None:
    path = trace(tmp_path, text)
    with pytest.raises(InstanceError) as error:
        read_gavel(path, table, TWO)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "not a Gavel table: expected accelerator -> job -> rates"),
        ('{"v100": 3}', "not a Gavel table: expected accelerator -> job -> rates"),
        ('{"v100": {"A3C": {"null": 1}}}', "not a table by job and gang"),
        ('{"v100": {"(\'A3C\', 1)": {"null": -1}}}', "v100[\"('A3C', 1)\"]['null'] = -1: must be"),
        ('{"v100": {"(\'A3C\', 1)": {}}}', "['null'] = null: must be a rate, steps a second"),
        ('{"v100": {', "truncated JSON"),
    ],
)
def test_wrong_throughputs(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(content)
    with pytest.raises(InstanceError) as error:
        read_gavel(trace(tmp_path, HEAD + "A3C,1,1,0\n"), path, Cluster.uniform({"v100": 1}))
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)


def test_gavel_slices(data: Find) -> None:
    rates = data("gavel/simulation_throughputs.json.gz")
    small = read_gavel(data("gavel/physical_small_test.csv"), rates)
    assert len(small.jobs) == 20
    assert small.cluster.gpus.tolist() == [36, 36, 36]
    assert (small.jobs.throughput_per_s >= 0).all()
    assert not small.jobs.slo.any()
    path = data("gavel/msr_seed0_vc_0e4a51.csv.gz")
    with pytest.raises(InstanceError, match=r"line 43: .*'Recommendation \(batch size 512\)', 4"):
        read_gavel(path, rates)
    scenario = read_gavel(path, rates, missing="skip")
    assert len(scenario.jobs) == 1181 - 197
    assert scenario.tenants.id.tolist() == ["0e4a51"]
    with pytest.raises(InstanceError, match="not a table by job and gang"):
        read_gavel(path, data("gavel/oracle_throughputs.json.gz"))


def test_gavel_in_a_scenario_and_as_our_own_files(data: Find, tmp_path: Path) -> None:
    folder = data("gavel/physical_small_test.csv").parent
    text = f"""
schema = "apportion/scenario/1"
family = "training"
name = "gavel"
[cluster]
type = [{{ name = "V100", gpus = 8 }}, {{ name = "K80", gpus = 8 }}]
[[tenant]]
name = "physical_small_test"
weight = 3
[workload]
kind = "gavel"
traces = "{folder}/physical_small_test.csv"
throughputs = "{folder}/physical_cluster_throughputs.json.gz"
limit = 15
"""
    (tmp_path / "scenario.toml").write_text(text)
    scenario = read_scenario(tmp_path)
    assert len(scenario.jobs) == 15
    assert scenario.tenants.weight.tolist() == [3]
    assert scenario.jobs.throughput_per_s.shape == (15, 2)
    again = read_scenario(write_scenario(scenario, tmp_path / "own"))
    assert again.jobs == scenario.jobs
    assert again.tenants == scenario.tenants
    (tmp_path / "scenario.toml").write_text(
        text.replace('name = "physical_s', 'name = "phisical_s')
    )
    with pytest.raises(InstanceError, match=r"tenant\[0\]\.name = 'phisical_small_test': unknown"):
        read_scenario(tmp_path)


def test_philly_columns(tmp_path: Path) -> None:
    rows = [
        "2017-10-01 00:01:00,10.2,2,20.4,bbb",
        "2017-10-01 00:00:00,60,1,60,aaa",
        "2017-10-01 00:01:00,30,8,240,aaa",
    ]
    path = trace(tmp_path, PHILLY + "\n".join(rows) + "\n")
    scenario = read_philly(path, timezone="+02:00", compress=8)
    jobs = scenario.jobs
    assert scenario.epoch == "2017-10-01T00:00:00+02:00"
    assert jobs.arrival_s.tolist() == [0, 7.5, 7.5]
    assert jobs.work.tolist() == [60, 11, 30]
    assert jobs.gang.tolist() == [1, 2, 8]
    assert scenario.tenants.id[jobs.tenant].tolist() == ["aaa", "bbb", "aaa"]
    assert jobs.throughput_per_s.tolist() == [[1], [1], [1]]
    assert len(read_philly(path, timezone="UTC", limit=2).jobs) == 2


def test_philly_clocks_that_are_set_back(tmp_path: Path) -> None:
    rows = "2017-11-05 00:30:00,1,1,1,a\n2017-11-05 01:30:00,1,1,1,a\n2017-11-05 03:30:00,1,1,1,a\n"
    path = trace(tmp_path, PHILLY + rows)
    try:
        scenario = read_philly(path, timezone="America/Los_Angeles")
    except InstanceError:
        pytest.skip("no time zone data on this machine")
    assert scenario.epoch == "2017-11-05T00:30:00-07:00"
    assert scenario.jobs.arrival_s.tolist() == [0, 3600, 4 * 3600]


WRONG: list[tuple[str, str]] = [
    (HEAD + "LM (batch size 10),5,1,0\n", "this looks like a Gavel trace, not the flat Philly table"),
    (PHILLY + "2017-10-09,66.0,1,66.0,a\n", "line 2: timestamp = \"2017-10-09\": must be a time like"),
    (PHILLY + "2017-10-09 07:01:55,0,1,66.0,a\n", "line 2: duration = \"0\": must be positive"),
    (PHILLY + "2017-10-09 07:01:55,1,-1,66.0,a\n", "line 2: num_gpus = \"-1\": must be positive"),
    (PHILLY + "2017-10-09 07:01:55,1,1,66.0,\n", "line 2: cluster = \"\": is empty"),
    ("", "the file is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), WRONG, ids=range(len(WRONG)))
def test_wrong_philly_files(tmp_path: Path, text: str, told: str) -> None:
    path = trace(tmp_path, text)
    with pytest.raises(InstanceError) as error:
        read_philly(path, timezone="UTC")
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)


def test_wrong_philly_arguments(tmp_path: Path) -> None:
    path = trace(tmp_path, PHILLY + "2017-10-09 07:01:55,1,1,1,a\n")
    for zone in ("local", "+2", "+24:00", ""):
        with pytest.raises(InstanceError, match=r"timezone = .*: expected UTC, an offset"):
            read_philly(path, timezone=zone)
    with pytest.raises(InstanceError, match=r"compress = 0: must be positive"):
        read_philly(path, timezone="UTC", compress=0)
    with pytest.raises(InstanceError, match=r"limit = -1: must not be negative"):
        read_philly(path, timezone="UTC", limit=-1)


def test_the_whole_philly_table(data: Find) -> None:
    path = data("philly/philly_jobs.csv.gz")
    began = time.process_time()
    scenario = read_philly(path, timezone="UTC")
    assert time.process_time() - began < 1.5
    jobs = scenario.jobs
    assert len(jobs) == 82_247
    assert scenario.epoch.startswith("2017-09-04T")
    assert scenario.cluster.nodes.size == 312
    assert scenario.cluster.node_gpus.tolist() == [8] * 311 + [2]
    assert scenario.tenants.id.size == 15
    assert jobs.arrival_s[0] == 0
    assert (np.diff(jobs.arrival_s) >= 0).all()
    assert int(jobs.gang.max()) == 128


def test_philly_in_a_scenario(data: Find, tmp_path: Path) -> None:
    text: Any = f"""
schema = "apportion/scenario/1"
family = "training"
name = "philly"
[workload]
kind = "philly"
path = "{data("philly/philly_jobs.csv.gz")}"
timezone = "UTC"
arrival_compression = 6.5
limit = 500
"""
    path = tmp_path / "philly.toml"
    path.write_text(text)
    scenario = read_scenario(path)
    direct = read_philly(data("philly/philly_jobs.csv.gz"), timezone="UTC", compress=6.5, limit=500)
    assert scenario.jobs == direct.jobs
    assert scenario.epoch == direct.epoch
    assert scenario.cluster == direct.cluster
    path.write_text(text.replace('timezone = "UTC"', ""))
    with pytest.raises(InstanceError, match=r"workload\.timezone is missing"):
        read_scenario(path)
    two = '[cluster]\ntype = [{ name = "A", gpus = 8 }, { name = "B", gpus = 8 }]\n'
    path.write_text(text + two)
    with pytest.raises(InstanceError, match="cluster has 2 GPU types: the Philly table tells none"):
        read_scenario(path)


@pytest.mark.quick
@pytest.mark.filterwarnings("default")  # as outside of tests: a warning is no error by itself
def test_rows_with_more_fields_than_the_header_are_refused_in_a_line(tmp_path, capfd):
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,user,vc,jobname,gpu_num,duration\n" + "0,a,b,c,1,60,7\n" * 3)
    with pytest.raises(InstanceError) as told:
        read_philly(path, timezone="UTC")
    assert str(told.value).startswith(f"{path}: not a CSV table: Length of header")
    assert "\n" not in str(told.value)
    assert capfd.readouterr() == ("", "")
