"""What the tests of the face share: small inputs, toy policies, and the command in this process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import apportion as ap
from apportion.command import main

HERE = Path(__file__).parent

SCENARIO = """\
schema = "apportion/scenario/1"
family = "training"
name = "tiny"
epoch = "2025-01-06T08:00:00+00:00"
seed = 3

[[cluster.type]]
name = "T4"
gpus = 4

[[cluster.type]]
name = "V100"
gpus = 4

[workload]
kind = "generate"
jobs = 12
load = 0.9
work_most = 20
epoch_s = 300
speed = { T4 = 1.0, V100 = 2.0 }

[policy]
name = "fft"

[executor]
round_s = 300

[[variant]]
name = "more, and [bold]faster[/x]"
[variant.cluster]
add_gpus = { V100 = 4 }
"""


class Told(NamedTuple):
    """What the command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refused(self) -> str:
        """Give the one line of an error of the caller's making."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.startswith("error: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Run the command in this process."""

    def call(*arguments: object) -> Told:
        capfd.readouterr()
        code = main([str(one) for one in arguments])
        out, err = capfd.readouterr()
        return Told(code, out, err)

    return call


@pytest.fixture(scope="session")
def toys() -> ModuleType:
    name = "apportion_test_api_toys"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "toys.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """Find real data, or skip with a message."""
    root = HERE.parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("APPORTION_DATA", root)).resolve()

    def find(name: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"no {name} under {folder}: set APPORTION_DATA")
        return folder / name

    return find


def small_round(now_s: float = 0.0, **columns: Any) -> ap.TrainingRound:
    jobs: dict[str, Any] = {
        "id": ["a", "b"], "gang": [2, 1], "work": [600.0, 300.0],
        "throughput_per_s": [[1.0, 2.0], [1.0, 1.2]],
    }  # fmt: skip
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}),
        jobs=ap.Jobs.of(**{**jobs, **columns}),
        now_s=now_s,
    )


@pytest.fixture
def make() -> Callable[..., ap.TrainingRound]:
    """Make the small round with other columns or at another time."""
    return small_round


@pytest.fixture
def rnd() -> ap.TrainingRound:
    return small_round()


@pytest.fixture
def round_file(tmp_path: Path, rnd: ap.TrainingRound) -> Path:
    ap.write_round(rnd, tmp_path / "round.json")
    return tmp_path / "round.json"


@pytest.fixture(scope="session")
def scenario_text() -> str:
    return SCENARIO


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def jaeger() -> Callable[..., dict[str, Any]]:
    """Make traces of a known law, at so many requests a second in each minute."""
    return _jaeger


def _jaeger(loads: list[int], containers: int = 1, seed: int = 0) -> dict[str, Any]:
    """Jaeger's JSON: a call of ``back`` by ``front`` in each trace, a minute at each load."""
    rest, slope, shift = 0.5, -0.03, 2.0  # per ms, per ms by call/s, ms
    rng = np.random.default_rng(seed)
    data: list[dict[str, Any]] = []
    for minute, load in enumerate(loads):
        count = 60 * load
        starts = 60e6 * minute + np.sort(rng.choice(59_000, count, replace=False)) * 1e3
        own = rng.exponential(1.0 / (rest + slope * load / containers), count) + shift
        others = rng.exponential(2.0, count)  # of the front end itself
        for at, (start, time, other) in enumerate(zip(starts, own, others, strict=True)):
            name = f"{minute}-{at}"
            spans = [
                _span(name, "a", "p1", start, 1e3 * (time + 3.0 + other), None),
                _span(name, "b", "p2", start + 1e3, 1e3 * time, "a"),
            ]
            processes = {"p1": {"serviceName": "front"}, "p2": {"serviceName": "back"}}
            data.append({"traceID": name, "spans": spans, "processes": processes})
    return {"data": data}


def _span(
    trace: str, own: str, process: str, start_us: float, long_us: float, parent: str | None
) -> dict[str, Any]:
    above = [] if parent is None else [{"refType": "CHILD_OF", "traceID": trace, "spanID": parent}]
    return {
        "traceID": trace, "spanID": f"{trace}{own}", "operationName": "call",
        "references": [{**one, "spanID": f"{trace}{one['spanID']}"} for one in above],
        "startTime": round(start_us), "duration": round(long_us), "processID": process,
        "tags": [{"key": "span.kind", "value": "server"}],
    }  # fmt: skip
