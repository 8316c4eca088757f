"""More of the catalogue: calls that do not listen, and limits that stop elsewhere each time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.solver import BACKENDS, Budget, Model, Sharing, Solver, Status, check_point
from apportion.solver.backends import cbc
from apportion.solver.backends.backend import Claim, Request, Stop
from apportion.solver.backends.highs import Highs
from apportion.solver.workers import hosted
from apportion.solver.workers.worker_pool import WORKERS

pytestmark = pytest.mark.quick

WHOLE = [name for name in BACKENDS if BACKENDS[name]().capabilities.integers]
MILP = pytest.mark.parametrize("backend", WHOLE)
BEFORE = {Status.FEASIBLE, Status.NO_SOLUTION}
"""What may be said of a search that a limit stopped."""

LATE_S = 1.0
"""What an answer may be late on a machine that others use."""

Models = Callable[..., Model]


class TestInterruptsThatAreIgnored:
    """SCIP and HiGHS in MathOpt, and HiGHS' presolve, go on when they are told to stop."""

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX are sent")
    @pytest.mark.parametrize("backend", ["scip", "highs"])
    def test_what_ignores_everything_is_killed_in_its_worker(
        self, backend: str, hard_model: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hosted, "WORKER_FROM_NONZEROS", 0)
        model = hard_model(200, 40)
        with Solver(backend=backend, gap=0.0) as solver:
            solver.solve(hard_model(5, 1), budget=Budget.of(60.0))  # starts the worker
            (pid,) = WORKERS.pids()
            # stopped in its tracks: it hears nothing, not even an end of its input
            stop = threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP))
            stop.start()
            start = time.monotonic()
            found = solver.solve(model, budget=Budget.of(1.0))
            took_s = time.monotonic() - start
            stop.join()
            assert pid not in WORKERS.pids()
        assert 0.9 < took_s < 1.0 + hosted.GRACE_S + LATE_S
        assert found.status in BEFORE
        assert found.time_limited
        assert "killed at the deadline" in found.message

    def test_highs_is_stopped_by_its_callback_where_its_clock_does_not(
        self, hard_model: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = Highs.options

        def without_limit(self: Highs, model: Model, request: Request) -> dict[str, Any]:
            return {k: v for k, v in options(self, model, request).items() if k != "time_limit"}

        monkeypatch.setattr(Highs, "options", without_limit)
        start = time.monotonic()
        raw = Highs().solve(hard_model(200, 40), Request(Budget.of(0.5), 0.0))
        assert time.monotonic() - start < 0.5 + LATE_S
        assert raw.stop is Stop.TIME
        assert raw.claim in {Claim.POINT, Claim.NOTHING}

    @pytest.fixture
    def deaf(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A CBC that ignores requests to end and sleeps; it leaves its process id in a file."""
        note, program = tmp_path / "pid", tmp_path / "cbc"
        program.write_text(
            f"#!{sys.executable}\n"
            "import os, pathlib, signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            f"pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
            "print('Lower bound: 0.000', flush=True)\n"
            "time.sleep(120)\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(cbc, "_binary", lambda: str(program))
        yield note
        if note.exists():
            assert not Path(f"/proc/{note.read_text()}").exists()

    @pytest.mark.skipif(os.name != "posix", reason="a script stands in for the binary")
    def test_cbc_is_killed_at_the_deadline(self, deaf: Path, hard_model: Models) -> None:
        start = time.monotonic()
        raw = cbc.Cbc().solve(hard_model(30, 5), Request(Budget.of(1.0), 0.0))
        assert 1.0 <= time.monotonic() - start < 1.0 + cbc.GRACE_S + LATE_S
        assert (raw.claim, raw.stop) == (Claim.NOTHING, Stop.TIME)
        assert raw.message == "killed at the deadline"
        assert (raw.x, raw.bound) == (None, None)
        assert deaf.exists()

    @pytest.mark.skipif(os.name != "posix", reason="a script stands in for the binary")
    def test_a_start_outlives_a_cbc_that_is_killed(self, deaf: Path, hard_model: Models) -> None:
        model = hard_model(30, 5)
        start = np.zeros(30)
        start[0] = 1.0
        found = Solver(backend="cbc").solve(model, budget=Budget.of(1.0), warm_start=start)
        assert found.status is Status.FEASIBLE
        assert found.time_limited
        assert found.x.tolist() == start.tolist()
        assert deaf.exists()


class TestLocksThatAreHeld:
    @MILP
    def test_the_interpreter_is_free_during_a_solve(self, backend: str, hard_model: Models) -> None:
        """Some bindings keep the interpreter's lock: then no other thread runs, timers included."""
        model, ticks, over = hard_model(200, 40), 0, threading.Event()

        def tick() -> None:
            nonlocal ticks
            while not over.wait(0.01):
                ticks += 1

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            solver = Solver(backend=backend, gap=0.0)
            found = solver.solve(model, budget=Budget.of(0.8))
        finally:
            over.set()
            thread.join()
        assert found.status in BEFORE
        # 80 where nobody else wants the processors
        assert ticks >= 15

    @pytest.mark.parametrize("backend", ["glop", "highs-simplex", "highs-ipm", "pdlp"])
    def test_the_interpreter_is_free_during_an_lp(self, backend: str) -> None:
        rng = np.random.default_rng(0)
        over = threading.Event()
        pauses: list[float] = []

        def tick() -> None:
            last = time.monotonic()
            while not over.wait(0.005):
                now = time.monotonic()
                pauses.append(now - last)
                last = now

        model = _max_min(rng, 1200)
        thread = threading.Thread(target=tick)
        thread.start()
        start = time.monotonic()
        try:
            Solver(backend=backend).solve(model, budget=Budget.of(1.5))
        finally:
            took_s = time.monotonic() - start
            over.set()
            thread.join()
        assert max(pauses) < max(0.25, 0.5 * took_s)


def _max_min(rng: np.random.Generator, jobs: int) -> Model:
    speed = rng.uniform(0.2, 3.0, (jobs, 6))
    return Sharing(speed, np.ones(jobs), np.full(6, jobs / 30), np.ones(jobs)).max_min_model()


class TestLimitsThatDoNotRepeat:
    """Runs that the clock stops end elsewhere each time; those stopped by work do not."""

    @pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "cbc"])
    def test_an_lp_stopped_by_work_repeats(self, backend: str) -> None:
        if not BACKENDS[backend]().capabilities.continuous:
            pytest.skip("whole numbers only")
        model = _max_min(np.random.default_rng(1), 120)
        solver = Solver(backend=backend, work_limit=30)
        first, second, third = (solver.solve(model, budget=Budget.of(None)) for _ in range(3))
        for again in (second, third):
            assert _told(again) == _told(first)
        assert not first.time_limited

    @MILP
    def test_a_search_stopped_by_work_repeats_under_a_wide_budget(
        self, backend: str, hard_model: Models
    ) -> None:
        work = 0.05 if backend == "cpsat" else 20
        solver = Solver(backend=backend, gap=0.0, work_limit=work)
        model = hard_model(80, 15)
        runs = [solver.solve(model, budget=Budget.of(limit)) for limit in (None, 300.0, 500.0)]
        assert all(_told(run) == _told(runs[0]) for run in runs)
        assert runs[0].status is Status.FEASIBLE
        assert not runs[0].time_limited


def _told(found: Any) -> tuple[Any, ...]:
    point = None if found.point is None else found.point.tobytes()
    return found.status, point, found.objectives, found.bounds, found.work


class TestTheTableOfLimits:
    """Choice of an option for many jobs, nobody placed at first: 60, 1 and 0.1 s in the table.

    There wrappers took 5.1 s of 1 s, called it infeasible at 0.1 s, lost the incumbent, or searched
    on after the gap was closed. Here fewer jobs, and limits of 20, 0.5 and 0.1 s.
    """

    @MILP
    def test_a_long_limit_ends_when_the_gap_is_closed(
        self, backend: str, choice_model: Models
    ) -> None:
        model = choice_model(60, 6, whole=True)
        start = time.monotonic()
        found = Solver(backend=backend, gap=1e-4).solve(model.single(0), budget=Budget.of(20.0))
        assert found.status is Status.OPTIMAL
        assert found.gap is not None
        assert found.gap <= 1e-4
        assert time.monotonic() - start < 15.0

    @MILP
    @pytest.mark.parametrize("limit_s", [0.1, 0.5])
    def test_a_short_limit_is_kept_and_nothing_false_is_said(
        self, backend: str, limit_s: float, choice_model: Models
    ) -> None:
        model = choice_model(500, 20).single(1)
        model = replace(model, objectives=(replace(model.objectives[0], maximise=True),))
        if backend == "cpsat":  # it takes short decimals only
            cost = np.round(model.objectives[0].cost, 2)
            model = replace(model, objectives=(replace(model.objectives[0], cost=cost),))
        nobody = np.zeros(model.column_count)
        for start in (None, nobody):
            began = time.monotonic()
            found = Solver(backend=backend, gap=1e-4).solve(
                model, budget=Budget.of(limit_s), warm_start=start
            )
            assert time.monotonic() - began < limit_s + LATE_S
            assert found.status in {*BEFORE, Status.OPTIMAL}
            if start is not None:
                assert found.status is not Status.NO_SOLUTION
                assert found.objective >= 0.0
            if found.status is Status.OPTIMAL:
                assert found.gap is not None
                assert found.gap <= 1e-4
            elif found.point is not None:
                assert found.time_limited
                assert check_point(model, found.x)[0] is not None
                assert found.bound is None or found.bound >= found.objective
