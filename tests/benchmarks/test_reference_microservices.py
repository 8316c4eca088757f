"""The benchmark of microservices: what its cells say, and that its tables repeat byte for byte."""

from __future__ import annotations

import csv
import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.instances import Decision
from apportion.instances.microservices import Allocation

pytestmark = pytest.mark.quick

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TABLES = FOLDER.parent / "results" / "reference"
FEW = ("derm", "erms", "hpa")


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


NAMES = ("line_chart", "microservice_cells", "reference_microservices")


@pytest.fixture(scope="module")
def bench() -> Any:
    yield [loaded(name) for name in NAMES][-1]
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture(scope="module")
def cells(bench: Any) -> Any:
    return sys.modules["microservice_cells"]


def test_no_plan_is_said_and_compared_with_nothing(cells: Any) -> None:
    """176 ms of shifts alone leave a heavy request no 200 ms."""
    told = cells.target_cell(1.0, 10.0, 200.0, 0, FEW)
    assert told["possible"] is False
    assert 0.05 < told["least"] <= 0.5


def test_a_plan_is_simulated_as_the_law_says(cells: Any) -> None:
    told = cells.target_cell(1.0, 10.0, 550.0, 0, FEW)["policies"]
    assert tuple(told) == FEW
    for one in told.values():
        spread = 4.0 * np.sqrt(one["by_law"] * (1.0 - one["by_law"]) / 1e5) + 1e-5
        assert one["violation"] == pytest.approx(one["by_law"], abs=spread)
    assert told["derm"]["kept"]
    assert told["derm"]["status"] == "OPTIMAL"


def test_one_graph_leaves_nothing_to_choose(cells: Any) -> None:
    for share in (0.0, 1.0):
        told = cells.share_cell(550.0, share, 0)
        assert len({one["containers"] for one in told.values()}) == 1


def test_rules_that_look_back_are_asked_until_they_stay(cells: Any) -> None:
    """HPA starts with what 60 % utilisation needs, and nothing moves it; FIRM gives back first."""
    round_ = cells.ticket(0, 30.0, 550.0)
    first = cells.bound("firm").decide(round_, None).allocation.containers
    settled = cells.decided("firm", round_).allocation.containers
    assert settled.sum() <= first.sum()
    once = cells.bound("erms").decide(round_, None).allocation.containers
    assert cells.decided("erms", round_).allocation.containers.tolist() == once.tolist()


def test_a_fixed_plan_claims_nothing(cells: Any) -> None:
    told = cells.Fixed(Allocation.of([3, 4], [True])).decide(None, None)
    assert told.allocation.containers.tolist() == [3, 4]
    assert not told.allocation.guaranteed.any()


def test_slower_laws_are_later(cells: Any) -> None:
    late = [
        cells.error_cell(error, 0, ("derm",))["derm"]["violation"]
        for error in ("1.2", "1.0", "0.8")
    ]
    assert late == sorted(late)
    assert late[0] < 0.05 < late[2]


def test_events_judge_an_order(cells: Any) -> None:
    told = cells.queue_cell("hotel", 0.4, 0, 2000)
    assert told["budget"]["order"] == ""
    assert told["queue"]["containers"] == told["queue, unordered"]["containers"]
    assert told["queue"]["containers"] <= told["budget"]["containers"]
    assert told["queue"]["law"] <= told["queue, unordered"]["law"]
    assert 0.0 <= told["queue"]["events"] <= 1.0


def test_forecasts_are_held_out(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is shown to the forecast that is judged by it."""
    seen: list[int] = []
    real = cells.predict_shares

    def watched(past: Any, *rest: Any) -> Any:
        seen.append(len(past))
        return real(past, *rest)

    monkeypatch.setattr(cells, "predict_shares", watched)
    told = cells.forecast_cell(2, 200.0, 0, 24)
    assert seen == [20, 21, 22, 23] * len(cells.FORECASTS)
    assert all(0.0 <= one["covers"] <= 1.0 for one in told.values())


def test_more_requests_recover_shares_better(cells: Any) -> None:
    assert cells.recovery_cell(4000, 0)["l1"] < cells.recovery_cell(40, 0)["l1"]


def test_tables_repeat_byte_for_byte(bench: Any, cells: Any, tmp_path: Path) -> None:
    small = {
        "microservices_trace": (
            lambda *key: cells.trace_cell(*key, 4),
            (("derm", "ewma", False, 0), ("hpa", "ewma", False, 0)),
        ),
        "microservices_shares": (cells.share_cell, ((550.0, 0.0, 0), (550.0, 1.0, 0))),
    }
    for one in bench.TABLES:
        if one.name not in small:
            continue
        cell, keys = small[one.name]
        for folder in ("first", "second"):
            made = one.shown([(key, cell(*key)) for key in keys])
            bench.write(replace(one, keys=keys), made, tmp_path / folder)
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert {name.rsplit(".", 1)[1] for name in names} == {"md", "csv", "svg"}
    for name in names:
        first, second = ((tmp_path / f / name).read_bytes() for f in ("first", "second"))
        assert first == second
        assert b"ynthetic" in first or name.endswith(".csv")


def test_a_chart_is_xml_and_keeps_its_points_inside(bench: Any) -> None:
    lines = {"a & b": [(0.0, 1.0), (1.0, 100.0)], "empty": [], "c": [(0.5, 10.0)]}
    for log in (False, True):
        root = ElementTree.fromstring(bench.line_chart("T < U", "x", "y", lines, log=log))
        drawn = root.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(drawn) == 2
        for line in drawn:
            for point in line.attrib["points"].split():
                across, up = map(float, point.split(","))
                assert 0.0 < across < 640.0
                assert 0.0 < up < 400.0


def rows_of(name: str) -> list[dict[str, str]]:
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_committed_tables_hold_what_is_proved(bench: Any) -> None:
    """Derm keeps every SLA that can be kept, and budget costs no more than its stricter modes."""
    rows = rows_of("microservices_targets")
    kept = [row["kept"] for row in rows if row["policy"].startswith("derm")]
    assert len(kept) > 100
    assert set(kept) == {"True"}
    counts = {
        (row["target_ms"], row["share_heavy"], row["seed"], row["priority"]): int(row["containers"])
        for row in rows_of("microservices_shares")
    }
    for *key, priority in counts:
        if priority == "budget":
            budget, uniform, queue = (counts[*key, name] for name in ("budget", "uniform", "queue"))
            assert queue <= budget <= uniform
    assert {path.stem for path in TABLES.glob("microservices_*.csv")} >= {
        one.name for one in bench.TABLES
    }


def test_decisions_of_the_fixed_decider_are_heuristic(cells: Any) -> None:
    told = cells.Fixed(Allocation.of([1], [False])).decide(None, None)
    assert isinstance(told, Decision)
    assert told.bound is None
