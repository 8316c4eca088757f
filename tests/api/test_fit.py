"""``apportion fit``: traces with known laws, what is refused, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import apportion as ap
from apportion.instances.microservices.fitted_model import read_model

pytestmark = pytest.mark.quick

REST, SLOPE, SHIFT = 0.5, -0.03, 2.0  # of the traces: per ms, per ms by call/s, ms


@pytest.fixture(scope="module")
def traces(jaeger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "traces.json"
    path.write_text(json.dumps(jaeger([2, 4, 6, 8, 10])))
    return path


def test_a_known_law_is_found_and_written(traces, tmp_path, command):
    out = tmp_path / "model.json"
    done = command("fit", traces, "-o", out, "--json")
    assert done.code == 0, done
    assert done.json == json.loads(out.read_text())
    model = read_model(out)
    assert model == ap.fit([traces])
    row = model.table()[model.microservices.id.tolist().index("back")]
    for name, true in (("rate_at_rest", REST), ("rate_slope", SLOPE), ("shift", SHIFT)):
        found = row["shift_ms" if name == "shift" else f"{name}_per_ms"]
        error = row[f"{name}_error"]
        assert abs(found - true) <= 4.0 * error + 0.02 * abs(true), (name, found, error)
    assert row["r_squared"] > 0.8
    assert row["ks"] < 0.05
    assert row["levels"] == 5


def test_the_table_lists_laws_and_fits(traces, command):
    shown = command("fit", traces).out
    for word in ("back", "front", "R2", "KS", "Laws of latency"):
        assert word in shown


def test_containers_divide_the_load(traces):
    one, four = ap.fit([traces]), ap.fit([traces], containers={"back": 4, "front": 4})
    at = one.microservices.id.tolist().index("back")
    slopes = [model.microservices.rate_slope_per_ms[at] for model in (one, four)]
    assert slopes[1] == pytest.approx(4.0 * slopes[0], rel=1e-9)
    assert four.containers.tolist() == [4, 4]


def test_one_load_is_refused(jaeger, tmp_path, command):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(jaeger([5])))
    said = command("fit", path).refused()
    assert "no microservice can be fitted" in said
    assert "1 different load" in said
    with pytest.raises(ap.InstanceError, match="no microservice can be fitted"):
        ap.fit([path])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sampling", "0"], "sampling = 0.0: must lie above 0 and up to 1"),
        (["--sampling", "2"], "sampling = 2.0"),
        (["--percentile", "1"], "percentile = 1.0"),
        (["--window", "nan"], "window = nan"),
        (["--window", "-3"], "window = -3.0"),
        (["--peak", "0"], "peak = 0.0: must be positive"),
        (["--estimator", "maen"], "did you mean 'mean'?"),
        (["--shift", "minimal"], "did you mean 'minimum'?"),
        (["--containers", "back"], "--containers: 'back' is not"),
        (["--containers", "back=x"], "--containers back=x: 'x' is not a number"),
        (["--containers", "back=0"], "containers.back = 0.0: must be positive"),
        (["--containers", "back=1", "--containers", "back=2"], "'back' is given twice"),
        (["-o", "/none/such/model.json"], "there is no folder /none/such"),
    ],
)
def test_options_out_of_range_are_named(traces, command, options, says):
    assert says in command("fit", traces, *options).refused()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ('{"data": [', "truncated JSON"),
        ("a,b\n1,2\n", "holds no traces, containers or rates"),
    ],
)
def test_files_that_are_no_traces_are_named(tmp_path, command, text, says):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    said = command("fit", path).refused()
    assert said.startswith(f"error: {path}: ")
    assert says in said
    assert "no such file" in command("fit", tmp_path / "none.json").refused()
