"""The benchmark of deadlines: what its settings change, what it counts, and what ends it."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from apportion.instances.training.jobs import NEVER

pytestmark = pytest.mark.quick

HEAD = "job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,expect_value_list,"
ROWS = (
    "a,u,1,0,m,30,90,100,0,strict", "b,v,2,0,m,60,200,100,0,strict",
    "c,u,8,5,m,45,300,100,0,strict", "d,v,4,5,m,20,25,100,0,strict",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> Any:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "reference_deadlines.py"
    spec = importlib.util.spec_from_file_location("reference_deadlines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "chronus"
    folder.mkdir()
    text = "\n".join((HEAD + "best_effort,job_type", *ROWS)) + "\n"
    (folder / "trace_job_Philly_SLO.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def cell(bench: Any, setting: str = "exact", policy: str = "edf", jobs: int | None = 4) -> Any:
    return bench.Cell("deadlines_chronus_settings", "SLO", setting, policy, jobs)


def test_settings(bench: Any, data: Path) -> None:
    exact = bench.world(cell(bench), data)
    assert exact.true_work is None
    assert exact.options.switch.charge_start is False
    minutes = np.array([30.0, 60.0, 45.0, 20.0]) * 60.0
    assert exact.jobs.work.tolist() == minutes.tolist()
    slow = bench.world(cell(bench, "restarts"), data)
    cost = slow.options.switch.switch_s(slow.jobs.state_gb, slow.jobs.restart_s)
    assert cost.tolist() == [30.0, 60.0, 120.0, 90.0]
    assert slow.options.switch.charge_start
    assert slow.options.switch.charge_resume
    assert slow.options.switch.charge_move
    assert slow.true_work is None
    for setting in ("estimates", "both"):
        wrong = bench.world(cell(bench, setting), data)
        assert wrong.true_work.tolist() == minutes.tolist()
        factor = wrong.jobs.work / minutes
        assert ((factor >= 0.5) & (factor <= 2.0)).all()
        assert np.ptp(factor) > 0.1
        # what jobs ask for stays as it was
        assert wrong.jobs.deadline_s.tolist() == exact.jobs.deadline_s.tolist()
        assert wrong.options.switch.charge_resume == (setting == "both")
    again = bench.world(cell(bench, "both"), data)
    assert again.jobs.work.tolist() == wrong.jobs.work.tolist()
    assert len(bench.world(cell(bench, jobs=2), data).jobs) == 2


@pytest.mark.parametrize("setting", ["exact", "restarts"])
@pytest.mark.parametrize(
    ("policy", "promised"), [("chronus", 3), ("unisched", 3), ("edf", None), ("srtf", None)]
)
def test_promises_are_counted(
    bench: Any, data: Path, setting: str, policy: str, promised: int | None
) -> None:
    """The last job's 20 minutes are due after 25: no whole lease ends in time."""
    out = bench.carried_out(cell(bench, setting, policy), data)
    assert out["promised"] == promised
    assert out["broken"] == (None if promised is None else 0)
    assert out["unfinished"] == 0
    assert 0 < out["decide_p50_s"] <= out["decide_p99_s"] <= out["lease_p99_s"]


def test_late_and_unfinished_jobs_break_a_promise(bench: Any) -> None:
    watch = bench.Watched(SimpleNamespace(
        subscribes=frozenset(), reacts_to=frozenset(), remember=None, react=None
    ), 5)  # fmt: skip
    watch.due_s[:4] = 10.0
    watch.cpu_s = [0.001] * 3
    finish_s = np.array([10.0, 10.1, NEVER, 3.0, 99.0])
    out = watch.figures(SimpleNamespace(jobs=SimpleNamespace(finish_s=finish_s)))
    assert (out["promised"], out["broken"]) == (4, 2)


@pytest.mark.parametrize(
    ("setting", "ends"), [("exact", True), ("restarts", True), ("both", False)]
)
def test_a_broken_promise_ends_it(
    bench: Any, data: Path, monkeypatch: Any, setting: str, ends: bool
) -> None:
    figures = dict.fromkeys(bench.OWN, 1.0)
    monkeypatch.setattr(bench.Watched, "figures", lambda *_: figures)
    if not ends:
        assert bench.carried_out(cell(bench, setting), data)["broken"] == 1.0
        return
    with pytest.raises(AssertionError, match=f"setting='{setting}'.* promises were broken"):
        bench.carried_out(cell(bench, setting), data)


def test_tables(bench: Any, tmp_path: Path) -> None:
    first, second = bench.TABLES["deadlines_chronus"][:2]
    found = {
        first: {name: 0.5 for name, *_ in bench.SHOWN} | {"best_effort_jct_mean_s": None},
        second: {"jct_mean_s": 120.0},
    }
    bench.write("deadlines_chronus", found, tmp_path)
    lines = (tmp_path / "deadlines_chronus.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(f"SLO,{first.policy},0.5000,")
    assert "Not run: SLO edf," in (tmp_path / "deadlines_chronus.md").read_text()
    assert "before promises were counted" in (tmp_path / "deadlines_chronus.md").read_text()
    assert f"| {second.policy} |  |" in (tmp_path / "deadlines_chronus.md").read_text()


def test_every_cell_has_a_file_of_its_own(bench: Any) -> None:
    cells = [one for table in bench.TABLES.values() for one in table]
    assert len({one.path for one in cells}) == len(cells)
    assert replace(cells[0], policy="a:b=c").path == "SLO_a_b=c.json"
