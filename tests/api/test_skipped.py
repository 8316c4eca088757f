"""Back ends that were missing are named."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import apportion as ap
from apportion.solver.backends.highs import Highs

pytestmark = pytest.mark.quick


def three(**columns: Any) -> ap.TrainingRound:
    """Give a round of jobs of which the first two are the same."""
    jobs: dict[str, Any] = {
        "id": ["a", "b", "c"], "gang": [1, 1, 1], "work": [600.0, 600.0, 300.0],
        "throughput_per_s": [[1.0, 2.0], [1.0, 2.0], [1.0, 1.2]],
    }  # fmt: skip
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}), jobs=ap.Jobs.of(**{**jobs, **columns})
    )


def test_a_back_end_that_is_missing_is_named(monkeypatch, command, tmp_path):
    ap.solve(three(), "fft", parameters={"method": "milp"})  # what is there is known by now
    monkeypatch.setattr(Highs, "available", lambda self: False)
    answer = ap.solve(three(), "fft", parameters={"method": "milp"})
    assert answer.status == "OPTIMAL"
    assert any(one.startswith("highs") for one in answer.skipped), answer.skipped
    assert len(set(answer.skipped)) == len(answer.skipped)
    answer.write(tmp_path / "answer.json")
    assert ap.read_answer(tmp_path / "answer.json").skipped == answer.skipped
    ap.write_round(three(), tmp_path / "round.json")
    told = command("solve", tmp_path / "round.json", "--param", "method=milp")
    assert told.code == 0
    assert "skipped: highs" in told.out
    shown = command("solve", tmp_path / "round.json", "--param", "method=milp", "--json").json
    assert shown["skipped"] == list(answer.skipped)


def test_nothing_is_skipped_where_all_are_there():
    assert ap.solve(three(), "fft").skipped == ()


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ("oef-noncooperative", {}),
        ("oef-cooperative", {}),
        ("gavel-las", {"levels": "lexicographic"}),
    ],
)
def test_drivers_go_on_without_highs_and_say_so(monkeypatch, policy, parameters):
    expected = ap.solve(three(), policy, parameters=parameters)
    assert expected.status == "OPTIMAL"
    assert expected.skipped == ()
    monkeypatch.setitem(sys.modules, "highspy", None)
    answer = ap.solve(three(), policy, parameters=parameters)
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(expected.objective, rel=1e-6)
    assert any(one.startswith("highs") for one in answer.skipped), answer.skipped
