"""The files of a run: one writer, damage told, wall times no obstacle."""

from __future__ import annotations

import json

import pytest

from apportion.deciding import BoundPolicy
from apportion.executor.json_lines import Lines
from apportion.executor.training import run
from apportion.formulations.training import FIFO
from apportion.instances import InstanceError
from apportion.instances.training import Cluster, Jobs, Scenario, Tenants
from apportion.solver import Solver

pytestmark = pytest.mark.quick


def go(folder):
    jobs = Jobs.of(
        id=["a", "b", "c"], gang=[1, 1, 1], work=[700.0, 900.0, 100.0],
        throughput_per_s=[[1.0]] * 3, arrival_s=[0.0, 100.0, 1500.0],
    )  # fmt: skip
    scenario = Scenario(
        name="t", cluster=Cluster.uniform({"only": 1}), jobs=jobs, tenants=Tenants.named("default")
    )
    return run(scenario, BoundPolicy(FIFO(), Solver()), policy="fifo", journal=folder)


def test_a_second_writer_is_refused(tmp_path):
    held = Lines(tmp_path / "journal.jsonl")
    with pytest.raises(InstanceError, match=r"journal\.jsonl: another run is writing"):
        go(tmp_path)
    held.close()
    assert go(tmp_path).stopped == ""


def test_damaged_wall_times_do_not_stop_a_resume(tmp_path):
    go(tmp_path)
    before = (tmp_path / "journal.jsonl").read_bytes()
    (tmp_path / "timings.jsonl").write_bytes(
        b'{"now_s": 0.0, "decide_s": 1.0}\nnonsense\n{"x": 1}\n'
    )
    assert go(tmp_path).decide_s[0] == 1.0
    assert (tmp_path / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"end_s"', '"end_X"', "the journal is damaged"),
        ('"now_s"', '"now_X"', r"journal.jsonl"),
        ("{", "[", "is not JSON"),
    ],
)
def test_a_damaged_line_is_told(tmp_path, old, new, said):
    go(tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace(old, new, 1)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InstanceError, match=said):
        go(tmp_path)


def test_a_torn_last_line_is_dropped(tmp_path):
    go(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    go(tmp_path)
    assert path.read_bytes() == whole
    assert all(isinstance(json.loads(line), dict) for line in whole.splitlines())
