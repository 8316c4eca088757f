"""Chronus' and ElasticFlow's traces: real files, and small ones that are wrong in one way each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances.errors import InstanceError
from apportion.instances.training import (
    Jobs,
    read_chronus,
    read_elasticflow,
    read_scenario,
    write_scenario,
)
from apportion.instances.training.chronus_trace import counted_chronus
from apportion.instances.training.laws import spread_speed

pytestmark = pytest.mark.quick

Find = Callable[[str], Path]
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
    "expect_value_list,best_effort,job_type\n"
)
ELASTIC = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
SPEEDS = {
    "vgg16": {
        "2": {"1": 1.0, "2": 0.75},
        "4": {"1": 1.0, "4": 0.25, "2": 0.5},
        "8": {"1": 1.0, "4": 0.125},
    },
    "alexnet": {"4": {"1": 1.0, "2": 1.5}},
}
SPEEDS["vgg16"]["8"]["2"] = 0.375


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def speeds(tmp_path: Path) -> Path:
    return written(tmp_path, json.dumps(SPEEDS), "model_info.json")


def table_of(jobs: Jobs, row: int, hosts: int) -> float:
    own = slice(jobs.spread_offsets[row], jobs.spread_offsets[row + 1])
    return spread_speed(hosts, jobs.spread_hosts[own], jobs.spread_speed[own])


def test_chronus_columns(tmp_path: Path, speeds: Path) -> None:
    rows = (
        "7,vc_b,4,30,1,vgg16,20,5,25-35.5-60,10-8-8,0,soft\n"
        "3,vc_a,1,10,1,alexnet,100,5,110,10,0,strict\n"
        "\n"
        "4,vc_a,0,11,1,alexnet,100,5,110,10,0,strict\n"
        "5,vc_b,2,30,1,vgg16,1,5,918,10,1,best\n"
    )
    scenario, dropped = counted_chronus(written(tmp_path, CHRONUS + rows), speeds)
    jobs = scenario.jobs
    assert dropped == 1
    assert jobs.id.tolist() == ["3", "7", "5"]  # by submission; rows break ties
    assert jobs.arrival_s.tolist() == [600, 1800, 1800]  # minutes become seconds
    assert jobs.work.tolist() == [6000, 1200, 60]
    assert jobs.throughput_per_s.tolist() == [[1], [1], [1]]
    assert jobs.gang.tolist() == [1, 4, 2]
    assert jobs.model.tolist() == ["alexnet", "vgg16", "vgg16"]
    assert scenario.tenants.id[jobs.tenant].tolist() == ["vc_a", "vc_b", "vc_b"]
    assert jobs.slo.tolist() == [True, True, False]
    assert jobs.deadline_offsets.tolist() == [0, 1, 4, 4]  # best effort: the 918 is ignored
    assert jobs.deadline_s.tolist() == [600 + 6600, 1800 + 1500, 1800 + 2130, 1800 + 3600]
    assert jobs.deadline_value.tolist() == [10, 10, 8, 8]
    assert scenario.cluster.nodes.size == 120
    assert scenario.cluster.gpus.tolist() == [960]


def test_chronus_speeds_by_number_of_nodes(tmp_path: Path, speeds: Path) -> None:
    kinds = [("vgg16", 1), ("vgg16", 2), ("vgg16", 4), ("vgg16", 8), ("vgg16", 16), ("alexnet", 4)]
    rows = "".join(f"{i},u,{g},{i},1,{m},9,1,9,1,0,strict\n" for i, (m, g) in enumerate(kinds))
    path = written(tmp_path, CHRONUS + rows)
    jobs = read_chronus(path, model_info=speeds).jobs
    got = [[table_of(jobs, row, hosts) for hosts in (1, 2, 3, 4, 8)] for row in range(6)]
    assert got == [
        [1, 1, 1, 1, 1],
        [1, 0.75, 0.75, 0.75, 0.75],  # no column 4: that of 2 goes on
        [1, 0.5, 0.25, 0.25, 0.25],  # three nodes are as slow as four
        [1, 0.375, 0.125, 0.125, 0.125],
        [1, 1, 1, 1, 1],  # the table ends at 8 GPUs
        [1, 1.5, 1.5, 1.5, 1.5],  # a measurement above 1 stays
    ]
    assert read_chronus(path).jobs.spread_hosts.size == 0


def test_rows_with_no_gpus_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "1,u,0,1,1,vgg16,9,1,9,1,0,strict\n2,u,1,1,1,vgg16,9,1,9,1,0,strict\n"
    path = written(tmp_path, CHRONUS + rows)
    with caplog.at_level(logging.WARNING, "apportion.instances"):
        assert len(read_chronus(path).jobs) == 1
    assert "dropped rows with 0 GPUs: 1" in caplog.text
    path = written(tmp_path, CHRONUS + rows.split("\n")[0] + "\n")
    with pytest.raises(InstanceError, match="the trace holds no jobs with GPUs"):
        read_chronus(path)


GOOD = "1,u,1,1,1,vgg16,9,1,9-12,10-8,0,soft\n"


def row(**changes: str) -> str:
    columns = CHRONUS.strip().split(",")
    values = dict(zip(columns, f"2{GOOD[1:]}".strip().split(","), strict=True))
    return ",".join({**values, **changes}.values()) + "\n"


TIMES, WORTH = "line 3: expect_time_list = ", "line 3: expect_value_list = "
BAD_CHRONUS: list[tuple[dict[str, str], str]] = [
    ({"expect_time_list": "-9-12"}, TIMES + '"-9-12": a deadline must lie after the submission'),
    ({"expect_time_list": "0-12"}, TIMES + '"0-12": a deadline must lie after the submission'),
    ({"expect_time_list": "12-9"}, TIMES + '"12-9": deadlines must rise'),
    ({"expect_time_list": "9-9"}, TIMES + '"9-9": deadlines must rise'),
    ({"expect_time_list": "9-nan"}, TIMES + '"9-nan": must be numbers with a dash between each'),
    ({"expect_time_list": "9--12"}, TIMES + '"9--12": must be numbers with a dash'),
    ({"expect_time_list": "9-"}, TIMES + '"9-": must be numbers with a dash'),
    ({"expect_time_list": "9;12"}, TIMES + '"9;12": must be numbers with a dash'),
    ({"expect_time_list": "9-1_2"}, TIMES + '"9-1_2": must be numbers with a dash'),
    ({"expect_time_list": ""}, TIMES + '"": is empty'),
    ({"expect_time_list": "9-12-15"}, WORTH + '"10-8": holds 2 values for 3 deadlines'),
    ({"job_type": "strict"}, TIMES + '"9-12": a strict job has one deadline'),
    ({"expect_value_list": "10"}, WORTH + '"10": holds 1 values for 2 deadlines'),
    ({"expect_value_list": "8-10"}, WORTH + '"8-10": values must not rise: finishing later is'),
    ({"expect_value_list": "-8-1"}, WORTH + '"-8-1": a value must not be negative'),
    ({"expect_value_list": "ten-8"}, WORTH + '"ten-8": must be numbers with a dash'),
    ({"num_gpu": "1.5"}, 'line 3: num_gpu = "1.5": must be a whole number'),
    ({"num_gpu": "-1"}, 'line 3: num_gpu = "-1": must not be negative'),
    ({"submit_time": "nan"}, 'line 3: submit_time = "nan": must be a number'),
    ({"duration": "0"}, 'line 3: duration = "0": must be positive'),
    ({"job_id": "1"}, 'line 3: job_id = "1": is used already'),
    ({"job_type": "sotf"}, "line 3: job_type = \"sotf\": unknown kind; did you mean 'soft'?"),
    ({"best_effort": "1"}, "line 3: best_effort = \"1\": must be 1 where job_type is 'best'"),
    ({"model_name": "vgg15"}, "model_info.json; did you mean 'vgg16'?"),
]


@pytest.mark.parametrize(("changes", "told"), BAD_CHRONUS, ids=range(len(BAD_CHRONUS)))
def test_wrong_chronus_files(
    tmp_path: Path, speeds: Path, changes: dict[str, str], told: str
) -> None:
    path = written(tmp_path, CHRONUS + GOOD + row(**changes))
    with pytest.raises(InstanceError) as error:
        read_chronus(path, model_info=speeds)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_row_those_are_made_from_is_right(tmp_path: Path, speeds: Path) -> None:
    assert len(read_chronus(written(tmp_path, CHRONUS + GOOD + row()), model_info=speeds).jobs) == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", "not a table of models"),
        ("{}", "not a table of models"),
        ('{"vgg16": 3}', "not a table of models"),
        ('{"vgg16": {"two": {}}}', "vgg16['two']: expected a number of GPUs"),
        ('{"vgg16": {"2": {"2": 0}}}', "vgg16['2']['2'] = 0: must be a relative speed above 0"),
        ('{"vgg16": {"2": {"2": "x"}}}', "vgg16['2']['2'] = \"x\": must be a relative speed"),
        ('{"vgg16": {"4": {"4": 0.5}}}', "vgg16['4']: has a speed on 4 nodes and none on 2"),
        ('{"vgg16": {', "truncated JSON"),
    ],
)
def test_wrong_speeds(tmp_path: Path, content: str, told: str) -> None:
    path = written(tmp_path, content, "model_info.json")
    with pytest.raises(InstanceError) as error:
        read_chronus(written(tmp_path, CHRONUS + GOOD), model_info=path)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)


def test_other_traces_are_recognised(tmp_path: Path) -> None:
    path = written(tmp_path, ELASTIC + "0,1,1,vgg16,9,1,1,1\n")
    with pytest.raises(
        InstanceError, match=r"looks like an ElasticFlow trace, not a Chronus trace"
    ):
        read_chronus(path)
    short = "job_id,num_gpu,submit_time,model_name,expect_time_list\n1,1,1,a,1\n"
    with pytest.raises(InstanceError, match="not a Chronus trace: the column 'user' is missing"):
        read_chronus(written(tmp_path, short))
    path = written(tmp_path, CHRONUS + GOOD)
    with pytest.raises(
        InstanceError, match=r"looks like a Chronus trace, not an ElasticFlow trace"
    ):
        read_elasticflow(path)
    short = "job_id,num_gpu,submit_time,model_name,ddl\n1,1,1,a,1\n"
    with pytest.raises(InstanceError, match="not an ElasticFlow trace: the column 'duration' is m"):
        read_elasticflow(written(tmp_path, short))


def test_elasticflow_columns(tmp_path: Path) -> None:
    head = ELASTIC.replace("duration", "duration,best_effort")
    rows = "b,150,7,bert,151,64,4,30,0\na,100,7,vgg16,100,32,1,50,0\nc,150,7,bert,1,64,2,30,1\n"
    scenario = read_elasticflow(written(tmp_path, head + rows, "small.v1.csv"))
    jobs = scenario.jobs
    assert jobs.id.tolist() == ["a", "b", "c"]
    assert jobs.arrival_s.tolist() == [0, 50, 50]  # since the first submission
    assert jobs.work.tolist() == [50, 30, 30]
    assert jobs.gang.tolist() == [1, 4, 2]
    assert jobs.global_batch.tolist() == [32, 64, 64]
    assert jobs.slo.tolist() == [True, True, False]
    assert jobs.deadline_offsets.tolist() == [0, 1, 2, 2]
    assert jobs.deadline_s.tolist() == [0, 51]
    assert jobs.deadline_value.tolist() == [1, 1]
    assert scenario.tenants.id.tolist() == ["small"]
    assert scenario.cluster.gpus.tolist() == [128]


BAD_ELASTIC: list[tuple[str, str]] = [
    ("0,10,1,vgg16,9.5,1,1,1\n", 'line 2: ddl = "9.5": must not lie before submit_time = 10'),
    ("0,10,1,vgg16,inf,1,1,1\n", 'line 2: ddl = "inf": must be a number'),
    ("0,10,1,vgg16,19,1,0,1\n", 'line 2: num_gpu = "0": must be positive'),
    ("0,10,1,vgg16,19,1.5,1,1\n", 'line 2: batch_size = "1.5": must be a whole number'),
    ("0,10,1,vgg16,19,1,1,-1\n", 'line 2: duration = "-1": must be positive'),
    ("0,10,1,,19,1,1,1\n", 'line 2: model_name = "": is empty'),
    ("0,1,1,a,9,1,1,1\n0,1,1,a,9,1,1,1\n", 'line 3: job_id = "0": is used already'),
]


@pytest.mark.parametrize(("rows", "told"), BAD_ELASTIC, ids=range(len(BAD_ELASTIC)))
def test_wrong_elasticflow_files(tmp_path: Path, rows: str, told: str) -> None:
    path = written(tmp_path, ELASTIC + rows)
    with pytest.raises(InstanceError) as error:
        read_elasticflow(path)
    assert str(error.value) == f"{path}: {told}"


def test_a_flag_of_elasticflow_that_is_none(tmp_path: Path) -> None:
    head = ELASTIC.replace("duration", "duration,best_effort")
    path = written(tmp_path, head + "0,10,1,vgg16,19,1,1,1,2\n")
    with pytest.raises(InstanceError, match='line 2: best_effort = "2": must be 0 or 1'):
        read_elasticflow(path)


@pytest.mark.parametrize(
    ("name", "dropped", "deadlines", "best"), [("SLO", 205, 1, 0.0), ("MIX2", 194, 4, 0.10)]
)
def test_chronus_whole_traces(
    data: Find, name: str, dropped: int, deadlines: int, best: float
) -> None:
    path = data(f"chronus/trace_job_Philly_{name}.csv.gz")
    scenario, lost = counted_chronus(path, data("chronus/model_info.json"))
    jobs = scenario.jobs
    assert lost == dropped
    assert len(jobs) == 30_940 - dropped
    assert jobs.arrival_s.max() <= 20_151 * 60 < 14 * 86_400
    assert (np.diff(jobs.arrival_s) >= 0).all()
    # the share of one-GPU jobs is stated over all rows of the file
    assert (jobs.gang == 1).sum() / 30_940 == pytest.approx(0.915, abs=0.003)
    assert scenario.tenants.id.size == 11
    assert set(jobs.model.tolist()) == {
        "alexnet", "vgg16", "resnet101", "mobilenet_v2", "inception_v3",
    }  # fmt: skip
    assert (jobs.work.min(), jobs.work.max()) == (20 * 60, 4317 * 60)
    assert np.median(jobs.work) / 60 == pytest.approx(60, abs=1)
    each = np.diff(jobs.deadline_offsets)
    assert each.max() == deadlines
    assert (jobs.slo == (each > 0)).all()
    assert (~jobs.slo).mean() == pytest.approx(best, abs=0.005)
    first = jobs.deadline_s[jobs.deadline_offsets[:-1][jobs.slo]]
    slack = (first - jobs.arrival_s[jobs.slo]) / jobs.work[jobs.slo]
    assert round(float(slack.min()), 2) == 1.10
    long = jobs.work[jobs.slo] >= 1000 * 60
    assert slack[long].max() < 2.06
    if deadlines == 4:
        assert (each == 4).mean() == pytest.approx(0.60, abs=0.005)
        assert (each == 1).mean() == pytest.approx(0.30, abs=0.005)
        soft = jobs.deadline_offsets[:-1][each == 4][:, None] + np.arange(4)
        assert (jobs.deadline_value[soft] == [10, 8, 5, 2]).all()
    else:
        assert (each == 1).all()
        # demand in GPU minutes over what 960 GPUs have until the last submission
        load = (jobs.gang * jobs.work).sum() / 60 / (960 * 20_151)
        assert load == pytest.approx(1.14, abs=0.005)


@pytest.mark.parametrize(
    ("name", "jobs", "tight"),
    [("philly_103959", 876, 0.53), ("elasticVpollux_e", 195, 0.49), ("resnet_cifar_trace", 5, 0)],
)
def test_elasticflow_whole_traces(data: Find, name: str, jobs: int, tight: float) -> None:
    read = read_elasticflow(data(f"elasticflow/{name}.csv")).jobs
    assert len(read) == jobs
    assert read.slo.all()
    assert read.arrival_s[0] == 0
    assert (read.deadline_s - read.arrival_s < read.work).mean() == pytest.approx(tight, abs=0.01)


def scenario_text(kind: str, keys: str) -> str:
    head = 'schema = "apportion/scenario/1"\nfamily = "training"\nname = "x"\n'
    return f'{head}[workload]\nkind = "{kind}"\npath = "trace.csv"\n{keys}'


def test_chronus_in_a_scenario_and_as_our_own_files(tmp_path: Path, speeds: Path) -> None:
    rows = GOOD + row() + row(job_id="3", num_gpu="4", submit_time="61", job_type="soft")
    path = written(tmp_path, CHRONUS + rows)
    keys = 'model_info = "model_info.json"\n'
    scenario = read_scenario(written(tmp_path, scenario_text("chronus", keys), "scenario.toml"))
    direct = read_chronus(path, model_info=speeds)
    assert scenario.jobs == direct.jobs
    assert scenario.cluster == direct.cluster
    again = read_scenario(write_scenario(scenario, tmp_path / "own"))
    assert again.jobs == scenario.jobs
    assert again.tenants == scenario.tenants
    assert again.cluster == scenario.cluster
    keys += "arrival_compression = 4\nlimit = 2\ngpus_per_node = 4\ntotal_gpus = 64\n"
    small = read_scenario(written(tmp_path, scenario_text("chronus", keys), "small.toml"))
    assert len(small.jobs) == 2
    assert small.cluster.nodes.size == 16
    assert small.jobs.arrival_s.tolist() == [15, 15]
    # deadlines stay as far behind the arrival as they were
    assert small.jobs.deadline_s.tolist() == [15 + 540, 15 + 720] * 2
    keys = "[[cluster.type]]\nname = 'A'\ngpus = 4\n[[cluster.type]]\nname = 'B'\ngpus = 4\n"
    with pytest.raises(InstanceError, match="cluster has 2 GPU types: a Chronus trace tells none"):
        read_scenario(written(tmp_path, scenario_text("chronus", keys), "two.toml"))
    keys = "[[cluster.type]]\nname = 'A100'\ngpus = 4\n"
    one: Any = read_scenario(written(tmp_path, scenario_text("chronus", keys), "one.toml"))
    assert one.cluster.types.tolist() == ["A100"]


def test_elasticflow_in_a_scenario_and_as_our_own_files(tmp_path: Path) -> None:
    path = written(tmp_path, ELASTIC + "0,1,1,vgg16,9,1,1,1\n1,2,1,vgg16,5,1,1,7\n")
    toml = written(tmp_path, scenario_text("elasticflow", "total_gpus = 8\n"), "scenario.toml")
    scenario = read_scenario(toml)
    assert scenario.jobs == read_elasticflow(path).jobs
    assert scenario.cluster.gpus.tolist() == [8]
    assert read_scenario(write_scenario(scenario, tmp_path / "own")).jobs == scenario.jobs
    wrong = scenario_text("elasticflow", "").replace("path", "trace")
    with pytest.raises(InstanceError, match=r"workload\.trace: unknown key"):
        read_scenario(written(tmp_path, wrong, "wrong.toml"))
