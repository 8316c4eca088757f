"""The child process of a solve: ``python -P -m apportion.solver.worker``.

Models come as messages on standard input, better points and answers go out on standard output, one
model after the other. It ends with its input, in the middle of a search too, so that it never
outlives the process that started it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import run_backend
from apportion.solver.backends.registry import backend
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.workers.errand import (
    REFUSED,
    packed_point,
    packed_result,
    unpacked,
)
from apportion.solver.workers.wire import Frame, read_frame, write_frame

SCRATCH_PREFIX = "apportion-worker-"
"""How the folder begins that a worker is given for temporary files, and removes at its end."""


def main() -> None:
    """Answer until the input ends."""
    # an interrupt from the keyboard reaches the parent too, which decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = _private_output()
    errands: SimpleQueue[Frame] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, errands), daemon=True).start()
    lock = threading.Lock()
    while True:
        _serve(errands.get(), out, lock)


def _private_output() -> BinaryIO:
    """Keep the output for messages: what solvers print goes nowhere."""
    out = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return out


def _listen(source: BinaryIO, errands: SimpleQueue[Frame]) -> None:
    try:
        while (frame := read_frame(source)) is not None:
            errands.put(frame)
    finally:
        _leave()


def _leave() -> None:
    """End at once, with what back ends have started, and leave no files."""
    scratch = tempfile.gettempdir()
    if os.path.basename(scratch).startswith(SCRATCH_PREFIX):  # noqa: PTH119  # no more imports now
        shutil.rmtree(scratch, ignore_errors=True)
    if hasattr(os, "getsid") and os.getsid(0) == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def _serve(frame: Frame, out: BinaryIO, lock: threading.Lock) -> None:
    def tell(x: FloatArray, bound: float | None) -> None:
        with lock:
            write_frame(out, packed_point(x, bound))

    errand = unpacked(frame)
    request = replace(errand.request, on_incumbent=tell)
    try:
        answer = packed_result(run_backend(backend(errand.backend), errand.model, request))
    except UnsupportedModelError as error:
        answer = Frame(REFUSED, {"message": str(error)})
    with lock:
        write_frame(out, answer)


if __name__ == "__main__":
    main()
