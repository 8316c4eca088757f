"""The command as a process: exit codes, streams, interrupts, kills, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "apportion"]
INSTALLED = Path(sys.executable).with_name("apportion")
PATIENCE_S = 60.0

LONG = """
schema = "apportion/scenario/1"
family = "training"
name = "long"
epoch = "2025-01-06T08:00:00+00:00"
seed = 3
[[cluster.type]]
name = "V100"
gpus = 64
[[cluster.type]]
name = "A100"
gpus = 64
[workload]
kind = "generate"
jobs = 1500
load = 0.95
speed = { V100 = 1.0, A100 = 2.0 }
[policy]
name = "fft"
"""


def run(*arguments, env=None, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **(env or {})}, **options,
    )  # fmt: skip


def start(*arguments) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(what, child) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    """Find the processes a process has started, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int]) -> bool:
    until = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")


@pytest.fixture
def long_file(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    return tmp_path / "long.toml"


# ---------------------------------------------------------------------- streams and codes


def test_the_installed_command_answers():
    done = subprocess.run(
        [INSTALLED, "policies", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["title"] == "Policies"
    assert done.stderr == ""


def test_codes_and_streams_of_a_process(round_file, tmp_path):
    done = run("solve", round_file, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "OPTIMAL"
    assert done.stderr == ""
    bad = run("solve", tmp_path / "none.json", "-o", tmp_path / "out.json")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == f"error: {tmp_path / 'none.json'}: no such file\n"
    assert not (tmp_path / "out.json").exists()


def test_names_a_terminal_cannot_spell(tmp_path, make):
    import apportion as ap

    ap.write_round(make(id=["ä", "日本"]), tmp_path / "r.json")
    done = run("solve", tmp_path / "r.json", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\xe4" in done.stdout


def test_a_reader_that_goes_away_is_no_error(round_file):
    child = start("solve", round_file, "--json")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()  # long before anything is written
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait(PATIENCE_S) == 141
    assert said == ""


def test_our_own_errors_are_told_as_such(round_file, tmp_path):
    site = tmp_path / "site"
    info = site / "stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[apportion.policies]\nbad = stranger:Bad\n")
    (site / "stranger.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "@dataclass(frozen=True)\nclass Bad:\n"
        "    name: ClassVar[str] = 'bad'\n"
        "    def compile(self, *rest):\n        raise RuntimeError('oh\\nno')\n"
    )
    done = run("solve", round_file, "--policy", "bad", env={"PYTHONPATH": str(site)})
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        "internal error: RuntimeError: oh no\n"
        "this is our fault; APPORTION_DEBUG=1 shows where it happened\n"
    )
    env = {"PYTHONPATH": str(site), "APPORTION_DEBUG": "1"}
    assert "Traceback" in run("solve", round_file, "--policy", "bad", env=env).stderr


def test_a_strangers_modules_in_the_working_folder_change_nothing(scenario_file, tmp_path):
    for name in ("solver", "results", "instances", "executor"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger')")
    done = subprocess.run(
        [INSTALLED, "compare", "tiny.toml", "--policies", "fifo", "--variants", "base", "--csv"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("policy,")


def test_demo(tmp_path):
    done = run("demo", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["policy"] for row in json.loads(done.stdout)["rows"]] == ["fft", "srtf", "fifo"]
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- interrupts and kills


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_compare_leaves_no_child_behind(long_file, tmp_path, how):
    child = start("compare", long_file, "--policies", "fft,srtf", "--variants", "base",
                  "--seeds", "0:4", "-o", tmp_path / "out", "--workers", "2")  # fmt: skip
    wait_for(lambda: len(children_of(child.pid)) >= 2, child)
    time.sleep(1.0)
    below = children_of(child.pid)
    assert below
    began = time.monotonic()
    child.send_signal(how)
    _, said = child.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - began < 20
    assert gone(below)
    if how == signal.SIGINT:
        assert child.returncode == 130
        assert said.splitlines()[-1] == "interrupted"
        assert "Traceback" not in said
    else:
        assert child.returncode == -how


@needs_proc
def test_interrupting_simulate(long_file, tmp_path):
    child = start("simulate", long_file, "-o", tmp_path / "out")
    journal = tmp_path / "out" / "journal.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 20_000, child)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - began < 20
    assert child.returncode == 130
    assert out == ""
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said


# ---------------------------------------------------------------------- same bytes


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if not path.name.startswith("timings.")
    }


def test_two_runs_give_the_same_bytes(scenario_file, tmp_path):
    for name in ("one", "two"):
        done = run("simulate", scenario_file, "-o", tmp_path / name, "--json")
        assert done.returncode == 0
    one = content(tmp_path / "one")
    assert set(one) == {"jobs.csv", "rounds.csv", "metrics.json", "journal.jsonl"}
    assert one == content(tmp_path / "two")
    for name, data in one.items():
        assert not re.search(rb"decide_s|elapsed", data), name


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path):
    scenario = tmp_path / "s.toml"
    scenario.write_text(LONG.replace("jobs = 1500", "jobs = 60").replace("gpus = 64", "gpus = 8"))
    assert run("simulate", scenario, "-o", tmp_path / "whole").returncode == 0
    size = (tmp_path / "whole" / "journal.jsonl").stat().st_size
    journal = tmp_path / "killed" / "journal.jsonl"
    for part in (0.2, 0.6):
        child = start("simulate", scenario, "-o", tmp_path / "killed")
        wait_for(lambda: journal.exists() and journal.stat().st_size > part * size, child)  # noqa: B023
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed" / "metrics.json").exists()
    done = run("simulate", scenario, "-o", tmp_path / "killed")
    assert done.returncode == 0
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
