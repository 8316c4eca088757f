"""The command in this process: answers on standard output, errors in one line, exit codes."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version

import numpy as np
import pytest

import apportion as ap

pytestmark = pytest.mark.quick


# ---------------------------------------------------------------------- solve


def test_solve_writes_what_it_is_asked_for(command, round_file, tmp_path):
    out, memory, mps = tmp_path / "a.json", tmp_path / "m.json", tmp_path / "m.mps"
    told = command("solve", round_file, "--out", out, "--memory-out", memory, "--export-mps", mps)
    assert told.code == 0
    assert told.err == ""
    assert "A100" in told.out
    assert "OPTIMAL, objective 3, bound 3, gap 0.00%" in told.out
    assert json.loads(memory.read_text()) is None
    answer = ap.read_answer(out)
    assert answer.objective == pytest.approx(3.0)
    text = mps.read_text()
    assert "NAME fft" in text
    assert "ENDATA" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.json", "m.json", "m.mps", "round.json",
    ]  # fmt: skip


def test_solve_json_is_the_answer_file(command, round_file, tmp_path):
    told = command("solve", round_file, "--json", "-o", tmp_path / "a.json")
    assert told.code == 0
    assert told.err == ""
    assert told.out == (tmp_path / "a.json").read_text()
    assert told.json["schema"] == "apportion/answer/1"


def test_solve_goes_on_from_files_as_from_objects(command, tmp_path, make):
    first, later = make(), make(now_s=300.0, work_done=[100.0, 0.0])
    ap.write_round(first, tmp_path / "1.json")
    ap.write_round(later, tmp_path / "2.json")
    seen = {
        "start_s": 0, "end_s": 300,
        "jobs": [{"job": "a", "work": 100, "gpu_s": 400}, {"job": "b", "work": 0, "gpu_s": 9}],
    }  # fmt: skip
    (tmp_path / "seen.json").write_text(json.dumps(seen))
    assert command("solve", tmp_path / "1.json", "-o", tmp_path / "a1.json").code == 0
    files = ("--previous", tmp_path / "a1.json", "--outcome", tmp_path / "seen.json")
    told = command("solve", tmp_path / "2.json", *files, "--memory-out", tmp_path / "m.json",
                   "-o", tmp_path / "a2.json", "--json")  # fmt: skip
    assert told.code == 0
    assert told.json["notes"] == []
    work, gpu_s = np.array([100.0, 0.0]), np.array([400.0, 9.0])
    outcome = ap.Outcome(0.0, 300.0, work, gpu_s, np.zeros(2, dtype=bool))
    direct = ap.solve(later, previous=ap.solve(first), outcome=outcome)
    found = ap.read_answer(tmp_path / "a2.json")
    assert found.allocation == direct.allocation
    assert np.array_equal(found.memory["rho"], direct.memory["rho"])
    # the memory that was written leads to the same answer
    again = command("solve", tmp_path / "2.json", "--memory", tmp_path / "m.json", "--json").json
    assert again["allocation"] == told.json["allocation"]
    assert again["jobs"] == told.json["jobs"]
    assumed = command("solve", tmp_path / "2.json", "--previous", tmp_path / "a1.json", "--json")
    assert "no outcome was given" in assumed.json["notes"][-1]


def test_exit_3_carries_the_fallback(command, tmp_path, make):
    asked = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]])
    ap.write_round(asked, tmp_path / "r.json")
    told = command("solve", tmp_path / "r.json", "--param", "work_conservation=hard", "--json")
    assert told.code == 3
    assert told.err == ""
    assert told.json["status"] == "INFEASIBLE"
    assert len(told.json["allocation"]["jobs"]) == 1
    assert "F-C4" in told.json["notes"][0]


def test_exit_4_where_nothing_is_known_in_time(command, tmp_path, make):
    asked = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]])
    ap.write_round(asked, tmp_path / "r.json")
    told = command("solve", tmp_path / "r.json", "--param", "work_conservation=hard",
                   "--time-limit", "1e-9", "--json")  # fmt: skip
    assert told.code == 4
    assert told.json["status"] == "NO_SOLUTION"
    assert len(told.json["allocation"]["jobs"]) == 1


def test_names_that_look_like_markup_are_shown_as_they_are(command, tmp_path, make):
    ids = ["[red]x[/y], 1", ":smile: ü"]
    ap.write_round(make(id=ids), tmp_path / "r.json")
    told = command("solve", tmp_path / "r.json")
    assert told.code == 0
    for name in ids:
        assert name in told.out


@pytest.mark.parametrize("policy", ["fft", "fifo", "srtf"])
def test_rounds_without_jobs_and_with_one(command, tmp_path, policy):
    cluster = ap.Cluster.uniform({"V100": 2})
    for count in (0, 1):
        jobs = ap.Jobs.of(
            id=["j"] * count, gang=[1] * count, work=[1.0] * count,
            throughput_per_s=np.ones((count, 1)),
        )  # fmt: skip
        ap.write_round(ap.TrainingRound(cluster=cluster, jobs=jobs), tmp_path / "r.json")
        told = command("solve", tmp_path / "r.json", "--policy", policy, "--json")
        assert told.code == 0
        assert len(told.json["allocation"]["jobs"]) == count
        assert command("solve", tmp_path / "r.json", "--policy", policy).code == 0


@pytest.mark.parametrize("policy", ["fft", "fifo", "srtf"])
def test_huge_and_tiny_numbers(command, tmp_path, make, policy):
    asked = make(work=[1e12, 1e-12], throughput_per_s=[[1e-12, 1e12], [1e12, 1.0]])
    ap.write_round(asked, tmp_path / "r.json")
    told = command("solve", tmp_path / "r.json", "--policy", policy, "--json")
    assert told.code == 0
    assert told.err == ""
    assert len(told.json["allocation"]["jobs"]) == 2
    assert command("solve", tmp_path / "r.json", "--policy", policy).code == 0


def test_numbers_beyond_all_reason_are_refused(command, round_file, tmp_path):
    data = json.loads(round_file.read_text())
    data["jobs"]["throughput_per_s"] = [[1e-200, 1e300], [1e200, 1.0]]
    round_file.write_text(json.dumps(data))
    assert "jobs.throughput_per_s[0, 1] = 1e+300" in command("solve", round_file).refused()


# ---------------------------------------------------------------------- check


@pytest.fixture
def answer_file(command, round_file, tmp_path):
    assert command("solve", round_file, "-o", tmp_path / "a.json").code == 0
    return tmp_path / "a.json"


def corrupt(path, change):
    data = json.loads(path.read_text())
    change(data["allocation"])
    path.write_text(json.dumps(data))


def test_check_passes_a_valid_answer(command, round_file, answer_file):
    told = command("check", round_file, answer_file)
    assert told == (0, "valid: 2 jobs on 3 GPUs\n", "")
    assert command("check", round_file, answer_file, "--json").json == {
        "valid": True, "violations": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda a: a["jobs"][0].update(gpus=1), "gpus"),
        (lambda a: a["jobs"].append(dict(a["jobs"][0])), "job_twice"),
        (lambda a: a["jobs"][0].update(lease_end_s=-1.0), "lease_end"),
        (lambda a: a["jobs"][0].update(nodes={"node-0": 2}), "node_type"),
        (lambda a: a["jobs"][0].update(nodes={"node-1": 1}), "placement_sum"),
        (lambda a: a.update(lost=[{"job": "a", "work": 1.0}]), "lost_work"),
    ],
)
def test_check_names_what_was_corrupted(command, round_file, answer_file, change, rule):
    corrupt(answer_file, change)
    told = command("check", round_file, answer_file, "--json")
    assert told.code == 1
    assert told.err == ""
    assert told.json["valid"] is False
    assert rule in [one["rule"] for one in told.json["violations"]]
    lines = command("check", round_file, answer_file)
    assert lines.code == 1
    assert any(line.startswith(f"{rule}: ") for line in lines.out.splitlines())


def test_check_refuses_what_is_no_answer(command, round_file, answer_file, tmp_path):
    assert "has no 'allocation'" in command("check", round_file, round_file).refused()
    assert "no such file" in command("check", round_file, tmp_path / "none").refused()
    corrupt(answer_file, lambda a: a["jobs"][0].update(job="c"))
    told = command("check", round_file, answer_file).refused()
    assert 'a.json: allocation.jobs.job[0] = "c": unknown job' in told


# ---------------------------------------------------------------------- policies, version, usage


def test_policies(command):
    told = command("policies", "--json")
    assert told.code == 0
    names = [row["name"] for row in told.json["rows"]]
    assert names[0] == "fft"
    assert {"gavel-las", "oef-cooperative", "astraea", "srtf", "fifo"} <= set(names)
    assert all(row["about"] and row["source"] for row in told.json["rows"])
    one = command("policies", "fft", "--json").json
    known = {row["parameter"]: row for row in one["rows"]}
    assert known["fairness_weight"]["default"] == "1.0"
    assert all(row["about"] for row in known.values())
    assert "fairness_weight" in command("policies", "fft").out
    assert "did you mean 'fft'?" in command("policies", "fftt").refused()


def test_version(command):
    found = command("version", "--json").json
    assert found["apportion"] == version("apportion") == ap.__version__
    assert "highs" in found["backends"]
    assert f"apportion {ap.__version__}\n" in command("version").out


def test_help_and_usage(command):
    told = command("--help")
    assert told.code == 0
    assert told.err == ""
    for name in ("demo", "solve", "simulate", "compare", "check", "policies", "import", "version"):
        assert name in told.out
        page = command(name, "--help")
        assert page.code == 0
        assert "Usage: apportion" in page.out
    bare = command()
    assert bare.code == 2
    assert "Traceback" not in bare.err
    assert "No such command 'sole'" in command("sole").refused()
    assert "Missing argument 'ROUND'" in command("solve").refused()
    assert "--bogus" in command("solve", "x", "--bogus").refused()


# ---------------------------------------------------------------------- bad input


def jobs_with(**columns):
    def change(data):
        data["jobs"].update(columns)

    return change


def cluster_with(**columns):
    def change(data):
        data["cluster"].update(columns)

    return change


BAD_ROUNDS = [
    (jobs_with(work=[float("nan"), 1.0]), ("NaN",)),
    (jobs_with(work=[float("inf"), 1.0]), ("Infinity",)),
    (jobs_with(work=[-5.0, 1.0]), ("jobs.work[0] = -5", "'a'")),
    (jobs_with(work=[0.0, 1.0]), ("jobs.work[0] = 0", "'a'")),
    (cluster_with(node_gpus=[-2, 2]), ("cluster.node_gpus[0] = -2",)),
    (cluster_with(node_gpus=[0, 2]), ("cluster.node_gpus[0] = 0",)),
    (cluster_with(node_type=["V10", "A100"]), ('"V10"', "did you mean 'V100'?")),
    (jobs_with(id=["a", "a"]), ("jobs.id[1] = 'a'", "already used")),
    (jobs_with(throughput_per_s=[[1.0], [1.0]]), ("jobs.throughput_per_s",)),
    (jobs_with(throughput_per_s=[[1.0, 2.0]]), ("jobs.throughput_per_s",)),
    (jobs_with(throughput_per_s=[[1.0, 2.0], [1.0]]), ("jobs.throughput_per_s",)),
    (jobs_with(arrival_s=[5.0, 0.0]), ("jobs.arrival_s[0] = 5.0", "'a'", "arrives after")),
    (jobs_with(gang=[0, 1]), ("jobs.gang[0] = 0", "'a'", "at least 1 GPU")),
    (jobs_with(gangs=[1, 1]), ("jobs.gangs", "did you mean 'gang'?")),
    (jobs_with(gang=["x", 1]), ("jobs.gang[0]", '"x"')),
]


@pytest.mark.parametrize(("change", "says"), BAD_ROUNDS, ids=lambda one: str(one)[:30])
def test_bad_rounds(command, round_file, tmp_path, change, says):
    data = json.loads(round_file.read_text())
    change(data)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(data))
    told = command("solve", bad, "-o", tmp_path / "out.json").refused()
    for part in (str(bad), *says):
        assert part in told
    assert told.count(str(bad)) == 1
    assert not (tmp_path / "out.json").exists()
    assert command("check", bad, bad).refused() == told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"  \n", "the file is empty"),
        (b'{"schema": "apportion/round/1", ', "truncated JSON"),
        (b"{]", "not JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'{"schema": "apportion/answer/1"}', "expected 'apportion/round/1'"),
        (b"[]", "expected an object"),
    ],
)
def test_files_that_are_no_rounds(command, tmp_path, content, says):
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)
    told = command("solve", bad, "-o", tmp_path / "out.json").refused()
    assert str(bad) in told
    assert says in told
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "1e400", "soon", ""])
def test_time_limits(command, round_file, scenario_file, tmp_path, limit):
    for call in (("solve", round_file), ("simulate", scenario_file)):
        told = command(*call, "--time-limit", limit, "-o", tmp_path / "out").refused()
        assert "limit" in told
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--param", "wait_weight=1", "--param", "wait_weight=2"), "'wait_weight' is given twice"),
        (("--param", "wait_weight"), "--param: 'wait_weight' is not PARAMETER=VALUE"),
        (("--param", "=1"), "--param: '=1' is not PARAMETER=VALUE"),
        (("--param", "wait_wight=1"), "did you mean 'wait_weight'?"),
        (("--param", "wait_weight=a:b"), "fft.wait_weight = 'a:b': must be a number"),
        (("--policy", "fif"), "policy: 'fif' is not known; did you mean 'fifo'?"),
        (("--policy", "fifo", "--export-mps", "{tmp}/out"), "policy 'fifo' has no model"),
        (("--solver", "hihgs"), "back end 'hihgs'"),
        (("--gap", "-1"), "gap = -1.0"),
        (("--gap", "x"), "'x' is not a number"),
        (("--seed", "1.5"), "'1.5' is not a whole number"),
        (("--memory", "{tmp}/none"), "none: no such file"),
        (("--memory", "{round}"), "memory: not one of fft"),
        (("--previous", "{round}"), "schema"),
        (("--outcome", "{round}"), "--outcome needs --previous"),
        (("--memory-out", "{tmp}"), "is a folder, not a file"),
        (("--memory-out", "{tmp}/no/where"), "there is no folder"),
        (("--memory-out", "{tmp}/out"), "--memory-out {tmp}/out: is the file of --out too"),
    ],
)
def test_bad_options_of_solve(command, round_file, tmp_path, options, says):
    names = {"tmp": tmp_path, "round": round_file}
    given = [one.format(**names) for one in options]
    out = () if "--export-mps" in options else ("--out", tmp_path / "out")
    told = command("solve", round_file, *out, *given).refused()
    assert says.format(**names) in told
    assert list(tmp_path.iterdir()) == [round_file]


def test_bad_outcomes_are_named(command, round_file, answer_file, tmp_path):
    bad = tmp_path / "seen.json"
    for content, says in (
        ({"start_s": 0, "end_s": 300}, "outcome.jobs is missing"),
        ({"start_s": 9, "end_s": 3, "jobs": []}, "outcome.end_s = 3"),
        ({"start_s": 0, "end_s": 3, "jobs": [{"job": "z", "work": 1, "gpu_s": 1}]}, '"z"'),
        ({"start_s": 0, "end_s": 3, "job": []}, "did you mean 'jobs'?"),
    ):
        bad.write_text(json.dumps(content))
        told = command("solve", round_file, "--previous", answer_file, "--outcome", bad).refused()
        assert told.startswith(f"error: {bad}: ")
        assert told.count(str(bad)) == 1
        assert says in told


SCENARIO_MISTAKES = [
    ("gpus = 4", "gpu = 4", "did you mean 'gpus'?"),
    ("round_s = 300", "round = 300", "did you mean 'round_s'?"),
    ("round_s = 300", "round_s = 0", "executor.round_s = 0"),
    ("[executor]", "[executer]", "did you mean 'executor'?"),
    ('name = "fft"', 'name = "ftf"', "policy: 'ftf' is not known; did you mean 'fft'?"),
    ('name = "fft"', 'name = "fft"\nparameters = { units = "metric" }', "fft.units = 'metric'"),
    ("jobs = 12", "jobs = -1", "workload.jobs = -1"),
    ("jobs = 12", "jobs = nan", "workload.jobs"),
    ("add_gpus = { V100 = 4 }", "add_gpus = { V10 = 4 }", "did you mean 'V100'?"),
    ("seed = 3", "seed = 3 3", "not TOML"),
]


@pytest.mark.parametrize(("right", "wrong", "says"), SCENARIO_MISTAKES)
def test_misspelt_scenarios(command, scenario_file, tmp_path, right, wrong, says):
    text = scenario_file.read_text()
    assert right in text
    scenario_file.write_text(text.replace(right, wrong, 1))
    out = tmp_path / "out"
    call = ("compare", "--policies", "fifo") if "add_gpus" in right else ("simulate",)
    told = command(*call, scenario_file, "-o", out).refused()
    assert str(scenario_file) in told
    assert says in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--seeds", "3:3"), "--seeds '3:3': names no seed from 0 on"),
        (("--seeds", "-1"), "--seeds '-1'"),
        (("--seeds", "1:2:3"), "expected FIRST:STOP or numbers"),
        (("--seeds", "0:99999999999999"), "more than 100000 seeds"),
        (("--seeds", "1,1"), "named twice"),
        (("--workers", "0"), "workers = 0: must be at least 1"),
        (("--workers", "-2"), "workers = -2"),
        (("--policies", ""), "an entry is empty"),
        (("--policies", "fft,,fifo"), "an entry is empty"),
        (("--policies", "fft,fft"), "named twice"),
        (("--policies", "fft:fairness=0"), "did you mean 'fairness_weight'?"),
        (("--policies", "fft:fairness_weight"), "is not PARAMETER=VALUE"),
        (("--policies", "fft:method=milp:method=milp"), "'method' is given twice"),
        (("--policies", "fifoo"), "did you mean 'fifo'?"),
        (("--variants", "moor"), "unknown variant 'moor'"),
        (("--gap", "nan"), "gap = nan"),
        (("--solver", "gurobi"), "back end 'gurobi'"),
        (("--markdown", "--csv"), "at most one of them"),
    ],
)
def test_bad_options_of_compare(command, scenario_file, tmp_path, options, says):
    out = tmp_path / "out"
    told = command("compare", scenario_file, "-o", out, *options).refused()
    assert says in told
    assert not out.exists()


def test_outputs_that_cannot_be_written(command, scenario_file, round_file):
    for name in ("simulate", "compare"):
        told = command(name, scenario_file, "-o", round_file).refused()
        assert str(round_file) in told
        told = command(name, scenario_file, "-o", "/proc/nothing").refused()
        assert "/proc/nothing" in told
    assert tomllib.loads(scenario_file.read_text())["name"] == "tiny"


# ---------------------------------------------------------------------- simulate


def test_simulate(command, scenario_file, tmp_path):
    out = tmp_path / "run"
    told = command("simulate", scenario_file, "--policy", "fifo", "-o", out, "--json")
    assert told.code == 0
    assert told.err == ""
    assert told.json["schema"] == "apportion/table/1"
    assert sorted(path.name for path in out.iterdir()) == [
        "jobs.csv", "journal.jsonl", "metrics.json", "rounds.csv", "timings.json",
        "timings.jsonl",
    ]  # fmt: skip
    assert command("simulate", scenario_file, "--policy", "fifo", "-o", out, "--json").code == 0
    other = command("simulate", scenario_file, "--policy", "srtf", "-o", out).refused()
    assert "choose another folder" in other
    shown = command("simulate", scenario_file, "--policy", "fifo")
    assert shown.code == 0
    assert shown.out.startswith("tiny under fifo\n")
    tuned = command("simulate", scenario_file, "--param", "units=normalised")
    assert tuned.out.startswith("tiny under fft:units=normalised\n")


@pytest.mark.parametrize(
    ("right", "wrong", "finished"),
    [
        ("jobs = 12", "jobs = 0", 0),
        ("jobs = 12", "jobs = 1", 1),
        ("round_s = 300", "round_s = 300\nuntil_s = 1e-6", 0),
        ("seed = 3", 'seed = 3\nabout = "ü [bold]"', 12),
        ('name = "tiny"', 'name = "ti, [/ny]"', 12),
        ("round_s = 300", "round_s = 1e7", 12),
    ],
)
def test_strange_scenarios(command, scenario_file, tmp_path, right, wrong, finished):
    scenario_file.write_text(scenario_file.read_text().replace(right, wrong, 1))
    for policy in ("fifo", "fft"):
        told = command("simulate", scenario_file, "--policy", policy, "-o", tmp_path / policy)
        assert told.code == 0, told
        metrics = json.loads((tmp_path / policy / "metrics.json").read_text())
        assert metrics["finished"] == finished, metrics
    assert command("simulate", scenario_file, "--policy", "fifo", "--json").json


def test_a_variant_whose_name_looks_like_markup(command, scenario_file):
    name = "more, and [bold]faster[/x]"
    told = command("simulate", scenario_file, "--policy", "fifo", "--variant", name, "--json")
    assert told.code == 0
    assert "did you mean" in command("simulate", scenario_file, "--variant", name[:-1]).refused()
