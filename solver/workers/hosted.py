"""A back end in a worker process where that is worth its start, else in this process."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from threading import Timer

from apportion.solver.arrays import FloatArray
from apportion.solver.backends.backend import Backend, Capabilities, Claim, RawResult, Request, Stop
from apportion.solver.backends.registry import BACKENDS
from apportion.solver.models.model import Model
from apportion.solver.workers.errand import INCUMBENT, RESULT, Errand, packed, unpacked_result
from apportion.solver.workers.wire import Frame
from apportion.solver.workers.worker_pool import WORKERS, Worker

WORKER_FROM_S = 2.0
"""Time left from which a worker is started for a MILP. That takes 0.4 CPU seconds, and up to 2 s of
the clock on a machine with five searches a core, which shorter limits cannot spare."""

IDLE_FROM_S = 0.2
"""Time left from which a MILP goes to a worker that is there already: putting a model of 64,000
nonzeros into a message and reading it takes a thousandth of a second, an errand 0.02 s."""

WORKER_FROM_NONZEROS = 5_000
"""Size from which a MILP goes to a worker. The stretches in which codes look at no clock grow with
the model, to 1 CPU second for 32,000 nonzeros; below this they are shorter than the start."""

GRACE_S = 0.1
"""Time after the deadline at which a worker is killed, so that it may hand over what it found."""

DIED = "worker died"
"""Message of a result that a worker did not live to give."""

_log = logging.getLogger("apportion.solver")


def wants_worker(model: Model, request: Request) -> bool:
    """Whether a model goes to a worker if one is there; from ``WORKER_FROM_S`` on one is started.

    Without a limit there is nothing to kill a worker for.
    """
    return (
        not model.is_lp
        and model.values.size >= WORKER_FROM_NONZEROS
        and IDLE_FROM_S <= request.budget.left_s() < math.inf
    )


@dataclass(frozen=True, slots=True)
class Hosted:
    """A back end of the registry, run in a worker where :func:`wants_worker` says so.

    Parameters
    ----------
    inner
        The back end.
    """

    inner: Backend

    @property
    def name(self) -> str:
        """Name in the registry."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        return self.inner.capabilities

    def available(self) -> bool:
        """Whether it can run here."""
        return self.inner.available()

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``.

        Raises
        ------
        UnsupportedModelError
            If the model is of a class that it does not solve.
        """
        if not (wants_worker(model, request) and self._known()):
            return self.inner.solve(model, request)
        worker = self._worker(request)
        if worker is None:
            return self.inner.solve(model, request)
        waited = worker.answers > 0
        raw = _Visit(worker, request).run(packed(Errand(self.name, model, request)))
        if raw is None:
            # refused: asked here it says so at once, and with names that the worker does not know
            return self.inner.solve(model, request)
        if waited and raw.claim is Claim.FAILED and raw.message == DIED:
            # it may have died while it waited, which says nothing of the model
            return self.solve(model, request)
        return raw

    def _worker(self, request: Request) -> Worker | None:
        if request.budget.left_s() < WORKER_FROM_S:
            return WORKERS.take_idle()
        try:
            return WORKERS.take()
        except OSError:
            _log.warning("no worker can be started: %s runs in this process", self.name)
            return None

    def _known(self) -> bool:
        """Whether a worker would make the same back end from the name."""
        return self.name in BACKENDS and BACKENDS[self.name]() == self.inner


@dataclass(eq=False)
class _Visit:
    """One errand at a worker, and the best point heard of."""

    worker: Worker
    request: Request
    x: FloatArray | None = None
    bound: float | None = None
    answered: bool = field(default=False)

    def run(self, errand: Frame) -> RawResult | None:
        """Have it done; ``None`` where the model was refused."""
        fuse = Timer(self.request.budget.left_s() + GRACE_S, self.worker.kill)
        fuse.daemon = True
        fuse.start()
        try:
            answer = self._answer(errand)
        finally:
            fuse.cancel()
            if self.answered:
                WORKERS.give_back(self.worker)
            else:
                WORKERS.drop(self.worker)
        if answer is None:
            return self._without_answer()
        return unpacked_result(answer) if answer.kind == RESULT else None

    def _answer(self, errand: Frame) -> Frame | None:
        try:
            self.worker.send(errand)
            while (frame := self.worker.receive()) is not None:
                if frame.kind != INCUMBENT:
                    self.answered = True
                    return frame
                self._hear(frame)
        except OSError:
            # the pipe breaks when the worker ends
            return None
        return None

    def _hear(self, frame: Frame) -> None:
        self.x, self.bound = frame.arrays["x"], frame.values["bound"]
        if self.request.on_incumbent is not None:
            self.request.on_incumbent(self.x, self.bound)

    def _without_answer(self) -> RawResult:
        """Make the best of a worker that was killed at the deadline, or died."""
        if self.request.budget.expired():
            claim = Claim.NOTHING if self.x is None else Claim.POINT
            note = "worker killed at the deadline"
            return RawResult(claim, Stop.TIME, x=self.x, bound=self.bound, message=note)
        return RawResult(Claim.FAILED, x=self.x, bound=self.bound, message=DIED)
