"""Searches in child processes: killed when late, believed only as far as they got, never left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from apportion.solver import BACKENDS, Budget, Solver, Status, check_point
from apportion.solver.backends.backend import Claim, RawResult, Request, Stop
from apportion.solver.workers import hosted
from apportion.solver.workers.errand import (
    Errand,
    packed,
    packed_result,
    unpacked,
    unpacked_result,
)
from apportion.solver.workers.hosted import Hosted, wants_worker
from apportion.solver.workers.wire import Frame, read_frame, write_frame
from apportion.solver.workers.worker_pool import WORKERS

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX are sent"),
]

IMPORTS_S = 20.0
"""What the start of a worker may take where many others want the processors."""


@pytest.fixture
def always(monkeypatch):
    """Send small models to workers too."""
    monkeypatch.setattr(hosted, "WORKER_FROM_NONZEROS", 0)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert WORKERS.pids() == ()


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether a process ends within some seconds; a zombie has ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def first_worker(within_s: float = IMPORTS_S) -> int:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if WORKERS.pids():
            return WORKERS.pids()[0]
        time.sleep(0.01)
    raise AssertionError("no worker was started")


class TestWire:
    def test_frames_come_back_equal(self, tmp_path):
        arrays = {
            "a": np.arange(6.0).reshape(2, 3),
            "b": np.empty(0),
            "c": np.array([True, False]),
            "d": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        }
        with (tmp_path / "pipe").open("wb") as sink:
            write_frame(sink, Frame("one", {"x": None, "y": 1.5, "z": "ä"}, arrays))
            write_frame(sink, Frame("two"))
        with (tmp_path / "pipe").open("rb") as source:
            one, two, end = read_frame(source), read_frame(source), read_frame(source)
        assert (one.kind, dict(one.values)) == ("one", {"x": None, "y": 1.5, "z": "ä"})
        for name, array in arrays.items():
            np.testing.assert_array_equal(one.arrays[name], array)
            assert one.arrays[name].dtype == array.dtype
        assert two.kind == "two"
        assert end is None

    def test_half_a_frame_is_none(self, tmp_path):
        file = tmp_path / "pipe"
        with file.open("wb") as sink:
            write_frame(sink, Frame("one", {}, {"a": np.arange(9.0)}))
        whole = file.read_bytes()
        for length in (0, 5, 12, len(whole) - 1):
            file.write_bytes(whole[:length])
            with file.open("rb") as source:
                assert read_frame(source) is None

    def test_errands_and_results_come_back_equal(self, choice_model):
        model = choice_model(6, 2).single(0)
        request = Request(Budget.of(None), 0.1, 3, 2, 7.0, np.ones(12))
        errand = unpacked(packed(Errand("scip", model, request)))
        assert errand.backend == "scip"
        assert errand.request.budget == request.budget
        assert errand.request.work_limit == 7.0
        for name in ("lower", "upper", "integer", "values", "row_lower", "row_upper"):
            np.testing.assert_array_equal(getattr(errand.model, name), getattr(model, name))
        assert errand.model.objectives[0].maximise == model.objectives[0].maximise
        raw = RawResult(Claim.POINT, Stop.WORK, np.ones(2), -1.5, work=3.0, message="so")
        again = unpacked_result(packed_result(raw))
        assert (again.claim, again.stop, again.bound) == (Claim.POINT, Stop.WORK, -1.5)
        assert again.x.tolist() == [1.0, 1.0]
        assert again.duals is None


def test_a_worker_is_for_large_milps_with_some_seconds(choice_model):
    large = choice_model(2000, 4)
    assert wants_worker(large, Request(Budget.of(3.0), 0.0))
    assert not wants_worker(large, Request(Budget.of(0.1), 0.0))
    assert not wants_worker(large, Request(Budget.of(None), 0.0))
    assert not wants_worker(large.relaxed(), Request(Budget.of(3.0), 0.0))
    assert not wants_worker(choice_model(20, 4), Request(Budget.of(3.0), 0.0))


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_the_answer_is_the_same_as_in_this_process(backend, always, choice_model):
    model = choice_model(12, 3, whole=True)
    here = Solver(backend=backend, gap=0.0).solve(model, budget=Budget.of(None))
    there = Solver(backend=backend, gap=0.0).solve(model, budget=Budget.of(60.0))
    assert there.status is here.status is Status.OPTIMAL
    assert there.objectives == here.objectives
    assert there.x.tobytes() == here.x.tobytes()


def test_a_class_that_is_refused_is_refused_with_its_names(always, dense_model):
    model = dense_model(integer=[True, False], cost=[1, 1])
    with pytest.raises(ValueError, match=r"x\[1\]"):
        Solver(backend="cpsat").solve(model, budget=Budget.of(60.0))


def test_workers_are_kept_in_a_with_block_and_end_with_it(always, choice_model):
    model = choice_model(6, 2, whole=True)
    with Solver(backend="highs") as solver:
        solver.solve(model, budget=Budget.of(60.0))
        (first,) = WORKERS.pids()
        with Solver():
            solver.solve(model, budget=Budget.of(60.0))
        assert WORKERS.pids() == (first,)
    assert gone(first)


def test_a_short_limit_uses_a_worker_that_is_there_and_starts_none(always, choice_model):
    model = choice_model(6, 2, whole=True)
    with Solver(backend="highs") as solver:
        solver.solve(model, budget=Budget.of(1.5))
        assert WORKERS.pids() == ()
        solver.solve(model, budget=Budget.of(60.0))
        (worker,) = WORKERS.pids()
        os.kill(worker, signal.SIGSTOP)
        found = solver.solve(model, budget=Budget.of(0.4))
        assert found.status is Status.NO_SOLUTION
        assert "killed" in found.message
    assert gone(worker)


def test_without_a_with_block_none_is_kept(always, choice_model):
    Solver(backend="highs").solve(choice_model(6, 2), budget=Budget.of(60.0))
    assert WORKERS.pids() == ()


def test_a_worker_that_overruns_is_killed_and_its_last_point_used(choice_model):
    """The worker is stopped in its tracks, as a code that looks at no clock would be."""
    model = choice_model(1500, 8, whole=True).single(1)
    model = model.with_row("busy", choice_model(1500, 8, whole=True).objectives[0].cost, 2990, 3000)
    heard = threading.Event()
    points = []

    def tell(x, _bound):
        points.append(x)
        if not heard.is_set():
            os.kill(WORKERS.pids()[0], signal.SIGSTOP)
            heard.set()

    budget = Budget.of(4.0)
    raw = Hosted(BACKENDS["highs"]()).solve(model, Request(budget, 0.0, on_incumbent=tell))
    late_s = time.monotonic() - budget.deadline_s
    if not points:
        pytest.skip("no point was found in time on this machine")
    assert raw.claim is Claim.POINT
    assert raw.stop is Stop.TIME
    assert "killed" in raw.message
    assert check_point(model, raw.x)[0] is not None
    np.testing.assert_array_equal(raw.x, points[-1])
    assert late_s < hosted.GRACE_S + 1.0


def test_a_worker_that_dies_is_replaced_by_the_next_back_end(always, hard_model, caplog):
    model = hard_model(60, 12)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(Solver(gap=0.0).solve, model, budget=Budget.of(60.0))
        os.kill(first_worker(), signal.SIGKILL)
        found = answer.result()
    assert found.status is Status.OPTIMAL
    assert found.backend == "scip"
    assert found.skipped == ("highs: worker died",)
    assert "highs is skipped" in caplog.text


def test_a_dead_idle_worker_is_not_asked(always, choice_model):
    model = choice_model(6, 2, whole=True)
    with Solver(backend="highs") as solver:
        solver.solve(model, budget=Budget.of(60.0))
        os.kill(WORKERS.pids()[0], signal.SIGKILL)
        assert gone(WORKERS.pids()[0])
        assert solver.solve(model, budget=Budget.of(60.0)).status is Status.OPTIMAL


def test_no_worker_at_all_means_this_process(always, choice_model, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = Solver(backend="highs").solve(choice_model(6, 2), budget=Budget.of(60.0))
    assert found.status is Status.OPTIMAL
    assert "in this process" in caplog.text


def test_four_threads_at_once(always, choice_model):
    models = [choice_model(10, 2, seed=seed, whole=True) for seed in range(4)]
    with Solver(backend="highs", gap=0.0) as solver, ThreadPoolExecutor(4) as pool:
        alone = [solver.solve(model, budget=Budget.of(None)).objectives for model in models]
        together = [
            pool.submit(solver.solve, model, budget=Budget.of(60.0)) for model in models * 2
        ]
        assert [one.result().objectives for one in together] == alone * 2
        assert 1 <= len(WORKERS.pids()) <= 4


PARENT = """
import sys
sys.path.insert(0, {folder!r})
from conftest import hard_model
from apportion.solver import Budget, Solver
from apportion.solver.workers import hosted
from apportion.solver.workers.worker_pool import WORKERS
import threading
hosted.WORKER_FROM_NONZEROS = 0
solver = Solver(gap=0.0, backend={backend!r})
thread = threading.Thread(
    target=solver.solve, args=(hard_model(200, 60),), kwargs=dict(budget=Budget.of(90.0)), daemon=True
)
thread.start()
while not WORKERS.pids():
    pass
print(*WORKERS.pids(), flush=True)
{then}
"""


def started(backend: str, then: str) -> subprocess.Popen:
    code = PARENT.format(folder=str(Path(__file__).parent), backend=backend, then=then)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def members(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_a_busy_worker_ends_when_its_parent_is_killed(backend):
    with started(backend, "thread.join()") as parent:
        worker = int(parent.stdout.readline())
        until = time.monotonic() + IMPORTS_S
        while backend == "cbc" and len(members(worker)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        parent.kill()
    assert gone(worker)
    until = time.monotonic() + 5.0
    while members(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert members(worker) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_busy_worker_ends_with_its_parent():
    with started("highs", "") as parent:
        worker = int(parent.stdout.readline())
    assert parent.returncode == 0
    assert gone(worker)


def test_a_strangers_module_does_not_stand_in_the_way(always, choice_model, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    found = Solver(backend="highs").solve(choice_model(6, 2, whole=True), budget=Budget.of(60.0))
    assert found.status is Status.OPTIMAL
    assert found.skipped == ()


def test_it_runs_as_a_module_and_ends_with_its_input():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "apportion.solver.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60.0,
    )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_does_not_take_the_workers_of_its_parent(always, choice_model):
    with Solver(backend="highs") as solver:
        solver.solve(choice_model(6, 2), budget=Budget.of(60.0))
        child = os.fork()
        if child == 0:
            os._exit(0 if WORKERS.pids() == () else 1)
        assert os.waitpid(child, 0)[1] == 0
        (worker,) = WORKERS.pids()
        assert not gone(worker, within_s=0.1)
