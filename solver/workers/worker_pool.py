"""The worker processes of this process: started when needed, ended at the latest with it."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from apportion.solver.worker import SCRATCH_PREFIX
from apportion.solver.workers.wire import Frame, read_frame, write_frame

MOST_IDLE = 4
"""Idle workers that are kept at most: as many callers at once as we promise to serve."""

BOOT = """\
import importlib.util as u, sys
sys.modules["apportion"] = u.module_from_spec(u.find_spec("apportion"))
from apportion.solver.worker import main
main()
"""
"""What a worker runs. The face of the package is not imported, only found: importing it takes 0.8
CPU seconds and 30 MiB, against 0.4 for all that a worker needs."""


class Worker:
    """One child process. Used by one thread at a time, but :meth:`kill` is open to all.

    Attributes
    ----------
    answers
        How many models it has answered.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._scratch = tempfile.mkdtemp(prefix=SCRATCH_PREFIX)
        self._lock = threading.Lock()
        self._ended = False
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": self._scratch},
                # a group of its own, so that what a back end starts can be ended with it
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        with self._lock:
            return not self._ended and self._process.poll() is None

    def send(self, frame: Frame) -> None:
        """Send a message; an :class:`OSError` tells that the worker is gone."""
        assert self._process.stdin is not None
        write_frame(self._process.stdin, frame)

    def receive(self) -> Frame | None:
        """Wait for a message; ``None`` when the worker has ended."""
        assert self._process.stdout is not None
        # the type of a pipe says less than what it is: a buffered reader of bytes
        return read_frame(self._process.stdout)  # type: ignore[arg-type]

    def kill(self) -> None:
        """End it and what it started at once. Its pipes stay open for the thread that reads."""
        with self._lock:
            if self._ended or self._process.returncode is not None:
                # reaped: the number may be another's by now
                return
            if os.name == "posix":
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> None:
        """End it, wait for it, and leave nothing of it."""
        self.kill()
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._process.wait()
            self._close_pipes()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def forget(self) -> None:
        """Let go of it in a fork, where it belongs to the parent: only the pipes are closed."""
        self._ended = True
        self._process.returncode = 0
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # what could not be sent is lost with the worker
                with contextlib.suppress(OSError):
                    pipe.close()


class WorkerPool:
    """Workers that wait for the next model while somebody wants them kept, and end otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._keepers = 0

    def take(self) -> Worker:
        """Give an idle worker, or start one.

        Raises
        ------
        OSError
            If none can be started.
        """
        worker = self.take_idle()
        if worker is not None:
            return worker
        worker = Worker()
        with self._lock:
            self._all.add(worker)
        return worker

    def take_idle(self) -> Worker | None:
        """Give an idle worker if there is one."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker = self._idle.pop()
            if worker.alive():
                return worker
            self.drop(worker)

    def give_back(self, worker: Worker) -> None:
        """Take a worker back that has answered."""
        worker.answers += 1
        with self._lock:
            keep = self._keepers > 0 and len(self._idle) < MOST_IDLE
            if keep:
                self._idle.append(worker)
        if not keep:
            self.drop(worker)

    def drop(self, worker: Worker) -> None:
        """End a worker."""
        worker.close()
        with self._lock:
            self._all.discard(worker)

    def keep(self) -> None:
        """Keep workers between models from now on, until :meth:`release`."""
        with self._lock:
            self._keepers += 1

    def release(self) -> None:
        """Take one :meth:`keep` back; with the last one idle workers end."""
        with self._lock:
            self._keepers -= 1
            idle = [] if self._keepers > 0 else self._idle
            self._idle = self._idle if self._keepers > 0 else []
        for worker in idle:
            self.drop(worker)

    def pids(self) -> tuple[int, ...]:
        """Process ids of all workers."""
        with self._lock:
            return tuple(sorted(worker.pid for worker in self._all))

    def close(self) -> None:
        """End all workers, busy ones too."""
        with self._lock:
            everyone, self._idle, self._all = list(self._all), [], set()
        for worker in everyone:
            worker.kill()
        for worker in everyone:
            worker.close()

    def forget(self) -> None:
        """Start afresh in a fork of the process, where no other thread lives."""
        everyone, self._idle, self._all = self._all, [], set()
        self._lock = threading.Lock()
        for worker in everyone:
            worker.forget()


WORKERS = WorkerPool()
"""The workers of this process."""

atexit.register(WORKERS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKERS.forget)
