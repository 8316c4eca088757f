"""A run that is killed goes on where it was, and ends with the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from apportion.executor import codec
from apportion.executor.training import run
from apportion.instances import InstanceError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def script(request):
    return request.getfixturevalue("load_helper")("journaled.py")


@pytest.fixture(scope="module")
def undisturbed(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run(script.scenario(), script.Wandering(), policy="wandering", journal=folder)
    return script.digest(done), (folder / "journal.jsonl").read_bytes()


def test_a_journal_changes_nothing(script, undisturbed):
    done = run(script.scenario(), script.Wandering(), policy="wandering")
    assert script.digest(done) == undisturbed[0]
    assert done.jobs.preemptions.sum() > 0
    assert done.leases.lost_work.sum() > 0
    assert {"failed", "expired", "moved", "completed"} <= set(done.leases.ended.tolist())


def test_killed_and_resumed_ends_with_the_same_bytes(script, undisturbed, tmp_path):
    """SIGKILL in the middle of a run in another process, then resume here."""
    path = tmp_path / "run" / "journal.jsonl"
    command = [sys.executable, str(HERE / "journaled.py"), str(path.parent), "0.03"]
    child = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < 12:
            assert child.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    before = path.read_bytes()
    lines = before.count(b"\n")
    assert 12 <= lines < undisturbed[1].count(b"\n")
    policy = script.Wandering()
    done = run(script.scenario(), policy, policy="wandering", journal=path.parent)
    assert path.read_bytes() == undisturbed[1]
    assert script.digest(done) == undisturbed[0]
    assert policy.asked == done.rounds.index.size - (lines - 1)
    assert np.isfinite(done.decide_s).sum() >= policy.asked


@pytest.mark.quick
@pytest.mark.parametrize("cut", [0.0, 0.1, 0.33, 0.5, 0.77, 1.0])
def test_cut_anywhere_it_resumes(script, undisturbed, tmp_path, cut):
    """As a kill would leave it: any number of bytes, the last line torn."""
    wanted, data = undisturbed
    (tmp_path / "journal.jsonl").write_bytes(data[: int(cut * len(data))])
    done = run(script.scenario(), script.Wandering(), policy="wandering", journal=tmp_path)
    assert script.digest(done) == wanted
    assert (tmp_path / "journal.jsonl").read_bytes() == data


@pytest.mark.quick
def test_a_finished_run_is_read_without_a_decision(script, undisturbed, tmp_path):
    (tmp_path / "journal.jsonl").write_bytes(undisturbed[1])
    policy = script.Wandering()
    done = run(script.scenario(), policy, policy="wandering", journal=tmp_path)
    assert policy.asked == 0
    assert script.digest(done) == undisturbed[0]


@pytest.mark.quick
class TestAnotherRun:
    def test_another_policy_is_refused(self, script, undisturbed, tmp_path):
        (tmp_path / "journal.jsonl").write_bytes(undisturbed[1])
        with pytest.raises(InstanceError, match="policy 'wandering', this run is of 'other'"):
            run(script.scenario(), script.Wandering(), policy="other", journal=tmp_path)
        assert (tmp_path / "journal.jsonl").read_bytes() == undisturbed[1]

    def test_another_scenario_is_refused(self, script, undisturbed, tmp_path):
        (tmp_path / "journal.jsonl").write_bytes(undisturbed[1])
        with pytest.raises(InstanceError, match="the journal is of scenario"):
            run(script.scenario(1), script.Wandering(), policy="wandering", journal=tmp_path)

    def test_damage_in_the_middle_is_told(self, script, undisturbed, tmp_path):
        lines = undisturbed[1].splitlines(keepends=True)
        lines[3] = b"{broken\n"
        (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
        with pytest.raises(InstanceError, match="line 4 is not JSON"):
            run(script.scenario(), script.Wandering(), policy="wandering", journal=tmp_path)

    def test_a_line_of_another_time_is_told(self, script, undisturbed, tmp_path):
        lines = undisturbed[1].splitlines(keepends=True)
        (tmp_path / "journal.jsonl").write_bytes(b"".join([lines[0], *lines[3:]]))
        with pytest.raises(InstanceError, match="a decision was journaled at"):
            run(script.scenario(), script.Wandering(), policy="wandering", journal=tmp_path)


@pytest.mark.quick
@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 0.1, "x", [1, [2.5]], (1, (2,)), {"a": {"b": 1}}, {1: 2, (3, 4): "x"},
        {"$": 1}, {3, 1}, frozenset({"a"}), float("inf"), -float("inf"), np.float64(0.1),
        np.int64(7), np.bool_(True),
    ],
)  # fmt: skip
def test_plain_data_comes_back(value):
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.quick
@pytest.mark.parametrize(
    "array",
    [np.arange(6).reshape(2, 3), np.array([0.1, np.inf, np.nan]), np.array([True, False]),
     np.array(["a", "bcd"]), np.zeros((0, 3))],
)  # fmt: skip
def test_columns_come_back(array):
    back = codec.decode(codec.encode(array))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    assert back.shape == array.shape


@pytest.mark.quick
def test_what_is_not_plain_is_refused():
    with pytest.raises(TypeError, match="cannot hold a PosixPath"):
        codec.encode({"a": Path()})
    with pytest.raises(TypeError, match="array of object"):
        codec.encode(np.array([None]))
