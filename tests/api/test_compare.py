"""Policies x variants x seeds: kept cells, labels, and what is printed."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest

import apportion as ap
from apportion.instances.training import read_scenario


@pytest.fixture(scope="module")
def place(tmp_path_factory, scenario_text):
    """A folder with a scenario, shared by these tests so that cells are run once."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "tiny.toml").write_text(scenario_text)
    return folder


@pytest.fixture
def call(command, place):
    def compare(*options, policies="fifo,fft:fairness_weight=0"):
        return command(
            "compare", place / "tiny.toml", "--policies", policies, "--variants", "base",
            "--seeds", "0:2", "--out", place / "out", *options,
        )  # fmt: skip

    return compare


def cells(place):
    """Kept cells, without the wall times beside them."""
    found = (place / "out" / "cells").iterdir()
    return {path: path.stat().st_mtime_ns for path in found if ".timings." not in path.name}


def test_finished_cells_are_kept(call, place):
    first = call("--json")
    assert first.code == 0
    lines = first.err.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("compare: 4/4 ")
    assert sum("fft:fairness_weight=0, base, seed 1" in line for line in lines) == 1
    labels = [(row["policy"], row["variant"]) for row in first.json["rows"]]
    assert [one for one, _ in labels] == ["fifo", "fft:fairness_weight=0"]
    kept = cells(place)
    assert len(kept) == 4
    began = time.perf_counter()
    second = call("--json")
    assert time.perf_counter() - began < 2.0
    assert second.out == first.out
    assert cells(place) == kept


def test_cells_and_output_repeat_to_the_byte(call, command, place, tmp_path):
    first = call("--json")
    again = command(
        "compare", place / "tiny.toml", "--policies", "fifo,fft:fairness_weight=0", "--variants",
        "base", "--seeds", "0:2", "--out", tmp_path, "--json",
    )  # fmt: skip
    assert again.out == first.out
    for path in cells(place):
        twin = tmp_path / "cells" / path.name
        if twin.exists():  # other tests keep other cells there
            assert twin.read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "cells").iterdir())) == 8


def test_wall_times_are_told_to_whoever_asks(call, place):
    def keys(option, *more):
        told = call(option, *more)
        assert told.code == 0
        if option == "--json":
            return {column["key"] for column in told.json["columns"]}
        return set(next(csv.reader([told.out.splitlines()[0]])))

    for option in ("--json", "--csv"):
        plain, timed = keys(option), keys(option, "--timings")
        assert plain < timed
        assert not {key for key in plain if key.startswith("decide")}
        assert {key for key in timed if key.startswith("decide")}
    assert len(call("--markdown", "--timings").out) > len(call("--markdown").out)
    beside = next((place / "out" / "cells").glob("*.timings.json"))
    beside.unlink()  # without them a cell is run again
    assert call("--json").code == 0
    assert beside.exists()


def test_metrics_are_those_of_simulate(call, place):
    row = call("--json").json["rows"][0]
    runs = [ap.simulate(place / "tiny.toml", "fifo", seed=seed) for seed in (0, 1)]
    mean = [ap.training_metrics(one).jct_mean_s for one in runs]
    assert row["jct_mean_s"]["mean"] == pytest.approx(sum(mean) / 2, rel=1e-12)
    assert row["jct_mean_s"]["min"] == min(mean)
    assert row["jct_mean_s"]["max"] == max(mean)


def test_csv_markdown_and_table_say_the_same(call):
    table = call("--json").json
    rows = list(csv.DictReader(io.StringIO(call("--csv").out)))
    assert [row["policy"] for row in rows] == ["fifo", "fft:fairness_weight=0"]
    for row, raw in zip(rows, table["rows"], strict=True):
        assert float(row["jct_mean_s"]) == raw["jct_mean_s"]["mean"]
    markdown = call("--markdown").out
    assert markdown.count("| fifo |") + markdown.count("| **fifo** |") == 1
    assert "fft:fairness_weight=0" in call().out


def test_damaged_and_foreign_cells_are_run_again(call, place):
    first = call("--csv")
    kept = sorted(cells(place))
    kept[0].write_text("{")
    data = json.loads(kept[1].read_text())
    kept[1].write_text(json.dumps({**data, "version": "0.0.1"}))
    kept[2].write_text("[]")
    before = cells(place)
    assert call("--csv").out == first.out
    after = cells(place)
    assert [path for path in kept if after[path] != before[path]] == kept[:3]
    json.loads(kept[0].read_text())


def test_a_changed_scenario_is_run_again(call, place):
    first, before = call("--csv", policies="fifo"), cells(place)
    text = (place / "tiny.toml").read_text()
    try:
        (place / "tiny.toml").write_text(text.replace("round_s = 300", "round_s = 900"))
        changed = call("--csv", policies="fifo")
        assert changed.out != first.out
        assert sum(cells(place)[path] != at for path, at in before.items()) == 2
    finally:
        (place / "tiny.toml").write_text(text)
    (place / "tiny.toml").write_text(text + "\n# a remark changes nothing\n")
    assert call("--csv", policies="fifo").out == first.out


def test_variants_by_name_and_all_of_them(command, place):
    name = "more, and [bold]faster[/x]"
    told = command("compare", place / "tiny.toml", "--policies", "fifo", "--variants",
                   f'base,"{name}"', "-o", place / "out", "--json")  # fmt: skip
    assert told.code == 0, told
    assert [row["variant"] for row in told.json["rows"]] == ["base", name]
    assert f"compare: 2/2 fifo, {name}" in told.err or f"compare: 1/2 fifo, {name}" in told.err
    every = command(
        "compare", place / "tiny.toml", "--policies", "fifo", "-o", place / "out", "--json"
    )
    assert every.out == told.out
    shown = command("compare", place / "tiny.toml", "--policies", "fifo", "-o", place / "out")
    assert shown.code == 0


def test_a_variant_must_not_be_called_base(command, tmp_path, scenario_text):
    path = tmp_path / "s.toml"
    path.write_text(scenario_text.replace('name = "more, and [bold]faster[/x]"', 'name = "base"'))
    told = command("compare", path, "--policies", "fifo").refused()
    assert str(path) in told
    assert "variant[0].name = 'base': names the scenario as it is" in told


def test_objects_are_compared_in_this_process(place):
    world = read_scenario(place / "tiny.toml")
    table = ap.compare(world, [ap.FFT(), ap.FFT(fairness_weight=0.0), "fifo"])
    names = [row[0] for row in table.rows]
    assert names == ["fft", "fft:fairness_weight=0.0", "fifo"]
    for given, says in (
        ({"seeds": [1]}, "need a scenario file"),
        ({"variants": ["base"]}, "need a scenario file"),
        ({"out": place / "out"}, "out needs a scenario file"),
        ({"policies": ["fifo", "fifo"]}, "named twice"),
        ({"policies": [ap.FIFO(), ap.FIFO()]}, "named twice"),
    ):
        with pytest.raises(ap.InstanceError, match=says):
            ap.compare(**{"scenario": world, "policies": ["fifo"], **given})
    with pytest.raises(ap.InstanceError, match="seed -1"):
        ap.compare(place / "tiny.toml", ["fifo"], seeds=[-1])
    with pytest.raises(ap.InstanceError, match="at least one seed"):
        ap.compare(place / "tiny.toml", ["fifo"], seeds=[])
    with pytest.raises(ap.InstanceError, match="at least one policy"):
        ap.compare(place / "tiny.toml", [])
