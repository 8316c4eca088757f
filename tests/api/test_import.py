"""Public traces through the command, and then a short run of what they became."""

from __future__ import annotations

import gzip
import json

import pytest


def test_gavel(command, data, tmp_path):
    trace = data("gavel/physical_small_test.csv")
    table = data("gavel/physical_cluster_throughputs.json.gz")
    out = tmp_path / "gavel"
    told = command(
        "import", "gavel", trace, "--throughputs", table, "--gpus", "v100=8,p100=8,k80=8",
        "--limit", "6", "-o", out, "--json",
    )  # fmt: skip
    assert told.code == 0, told
    assert told.err == ""
    assert told.json == {"scenario": str(out / "scenario.toml"), "jobs": 6}
    for policy in ("fft", "fifo"):
        done = command("simulate", out, "--policy", policy, "-o", tmp_path / policy, "--json")
        assert done.code == 0, done
        metrics = json.loads((tmp_path / policy / "metrics.json").read_text())
        assert metrics["jobs"] == metrics["finished"] == 6


def test_philly(command, data, tmp_path):
    table = data("philly/philly_jobs.csv.gz")
    out = tmp_path / "philly"
    with gzip.open(table, "rt") as file:
        lines = [next(file) for _ in range(400)]
    short = tmp_path / "short.csv"
    short.write_text("".join(lines))
    told = command("import", "philly", short, "--timezone", "UTC", "--limit", "40", "-o", out)
    assert told == (0, f"{out / 'scenario.toml'}: 40 jobs\n", "")
    done = command("simulate", out, "--policy", "srtf", "--json")
    assert done.code == 0, done


def test_chronus(command, data, tmp_path):
    trace, speeds = data("chronus/trace_job_Philly_MIX2.csv.gz"), data("chronus/model_info.json")
    out = tmp_path / "chronus"
    told = command("import", "chronus", trace, "--model-info", speeds, "--limit", "30", "-o", out)
    said = f"{out / 'scenario.toml'}: 30 jobs, 194 rows with 0 GPUs dropped\n"
    assert told == (0, said, "")
    told = command("import", "chronus", trace, "--limit", "30", "-o", out, "--force", "--json")
    assert told.json == {"scenario": str(out / "scenario.toml"), "jobs": 30, "dropped": 194}
    done = command("simulate", out, "--policy", "srtf", "-o", tmp_path / "run", "--json")
    assert done.code == 0, done
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["finished"] == 30


def test_elasticflow(command, data, tmp_path):
    trace, out = data("elasticflow/resnet_cifar_trace.csv"), tmp_path / "elasticflow"
    told = command("import", "elasticflow", trace, "-o", out)
    assert told == (0, f"{out / 'scenario.toml'}: 5 jobs\n", "")
    done = command("simulate", out, "--policy", "fifo", "--json")
    assert done.code == 0, done


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("gavl", "x"), "'gavl' is not a kind of trace; did you mean 'gavel'?"),
        (("gavel", "x"), "--throughputs names the table"),
        (("gavel", "x", "--throughputs", "y", "--timezone", "UTC"), "--timezone does not apply"),
        (("gavel", "x", "--throughputs", "y", "--missing", "skp"), "--missing 'skp'"),
        (("gavel", "x", "--throughputs", "y", "--gpus", "v100"), "expected TYPE=COUNT"),
        (("gavel", "x", "--throughputs", "y", "--gpus", "v100=²"), "expected TYPE=COUNT"),
        (("gavel", "x", "--throughputs", "y", "--gpus", "a=1,a=2"), "'a' is given twice"),
        (("gavel", "x", "--throughputs", "y", "--gpus", "a=-1"), "a = -1: must not be negative"),
        (("gavel", "none.csv", "--throughputs", "none.json"), "no such file"),
        (("gavel", "x", "--limit", "0"), "--limit 0: must be at least 1"),
        (("gavel", "x", "--limit", "many"), "'many' is not a whole number"),
        (("philly", "x"), "give --timezone"),
        (("philly", "x", "y", "--timezone", "UTC"), "one table, not 2 files"),
        (("philly", "x", "--timezone", "UTC", "--gpus", "a=1"), "--gpus does not apply"),
        (("philly", "x", "--timezone", "UTC", "--missing", "skip"), "--missing does not apply"),
        (("philly", "none.csv", "--timezone", "UTC"), "none.csv: no such file"),
        (("philly", "{here}", "--timezone", "UTC"), "test_import.py: not a CSV table"),
        (("philly", "x", "--timezone", "UTC", "--model-info", "y"), "--model-info does not apply"),
        (("gavel", "x", "--throughputs", "y", "--model-info", "z"), "--model-info does not apply"),
        (("chronus", "x", "y"), "import chronus: one trace, not 2 files"),
        (("chronus", "x", "--timezone", "UTC"), "import chronus: --timezone does not apply"),
        (("chronus", "x", "--gpus", "a=1"), "import chronus: --gpus does not apply"),
        (("chronus", "none.csv"), "none.csv: no such file"),
        (("elasticflow", "x", "--missing", "skip"), "elasticflow: --missing does not apply"),
        (("elasticflow", "x", "--model-info", "y"), "elasticflow: --model-info does not apply"),
    ],
)
def test_bad_options(command, tmp_path, options, says):
    out = tmp_path / "out"
    given = [one.format(here=__file__) for one in options]
    assert says in command("import", *given, "-o", out).refused()
    assert not out.exists()


def test_another_traces_columns(command, data, tmp_path):
    gavel, table = data("gavel/physical_small_test.csv"), data("philly/philly_jobs.csv.gz")
    rates = data("gavel/physical_cluster_throughputs.json.gz")
    out = tmp_path / "out"
    told = command("import", "philly", gavel, "--timezone", "UTC", "-o", out).refused()
    assert str(gavel) in told
    assert "gavel" in told.removeprefix(f"error: {gavel}").lower()
    told = command("import", "gavel", table, "--throughputs", rates, "-o", out).refused()
    assert "philly" in told.removeprefix(f"error: {table}").lower()
    short = tmp_path / "short.csv"
    short.write_text("job_type,total_steps\nx,1\n")
    told = command("import", "gavel", short, "--throughputs", rates, "-o", out).refused()
    assert str(short) in told
    assert not out.exists()


def test_a_scenario_that_is_there_is_not_replaced(command, tmp_path):
    trace, rates = tmp_path / "trace.csv", tmp_path / "rates.json"
    rates.write_text("{}")
    trace.write_text("x\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "scenario.toml").write_text("mine")
    given = ("import", "gavel", trace, "--throughputs", rates, "-o", out)
    told = command(*given).refused()
    assert told == f"error: import: {out / 'scenario.toml'} is there already; --force replaces it"
    assert (out / "scenario.toml").read_text() == "mine"
    assert "is there already" not in command(*given, "--force").refused()


def test_a_scenario_is_replaced_by_force(command, data, tmp_path):
    trace = data("gavel/physical_small_test.csv")
    table = data("gavel/physical_cluster_throughputs.json.gz")
    given = ("import", "gavel", trace, "--throughputs", table, "--limit", "3", "-o", tmp_path / "g")
    assert command(*given).code == 0
    first = (tmp_path / "g" / "scenario.toml").read_bytes()
    command(*given).refused()
    assert command(*given, "--force").code == 0
    assert (tmp_path / "g" / "scenario.toml").read_bytes() == first
