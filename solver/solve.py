"""The solver: objectives in priority order, within a budget, and a status that is true."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.solver.arrays import FloatArray, floats
from apportion.solver.backends.backend import Backend, Request
from apportion.solver.backends.registry import backend
from apportion.solver.budget import Budget
from apportion.solver.chain import Chain
from apportion.solver.errors import ModelError
from apportion.solver.lexicographic import solve_in_order
from apportion.solver.models.model import Model
from apportion.solver.portfolio import case_for
from apportion.solver.proof.recheck import check_point
from apportion.solver.solution import Solution
from apportion.solver.summary import summed_up, without_columns
from apportion.solver.workers.hosted import Hosted
from apportion.solver.workers.worker_pool import WORKERS


@dataclass(frozen=True, slots=True)
class Solver:
    """How models are solved. Holds parameters only, so one object may serve many threads.

    Large MILPs with a limit of some seconds are solved in a child process, which is killed where
    it overruns. It ends with the solve; inside a ``with`` block of any solver children wait for
    the next model instead, and end with the last such block.

    Parameters
    ----------
    gap
        Relative gap at which an objective counts as optimal.
    backend
        Name of a back end, or ``"auto"`` to choose by class and size of the model from the table
        in :mod:`apportion.solver.portfolio`. There, one that is missing or fails is skipped with a
        warning and the next one is tried; one asked for by name has no substitute.
    seed
        Seed of the back end's random choices.
    threads
        Threads that the back end may use.
    work_limit
        Deterministic work per objective after which to stop, in the back end's own unit (see its
        module); ``None`` for no limit. Runs stopped by it repeat exactly, runs stopped by a
        budget need not.

    Raises
    ------
    ModelError
        If a parameter is out of range or the back end unknown.
    """

    gap: float = 1e-4
    backend: str = "auto"
    seed: int = 0
    threads: int = 1
    work_limit: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.gap < math.inf:
            raise ModelError(f"gap = {self.gap!r}: must be a number from 0 on")
        if self.seed < 0:
            raise ModelError(f"seed = {self.seed!r}: must not be negative")
        if self.threads < 1:
            raise ModelError(f"threads = {self.threads!r}: must be at least 1")
        if self.work_limit is not None and not self.work_limit > 0:
            raise ModelError(f"work_limit = {self.work_limit!r}: must be greater than zero")
        if self.backend != "auto":
            backend(self.backend)

    def __enter__(self) -> Self:
        WORKERS.keep()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        WORKERS.release()

    def solve(
        self, model: Model, *, budget: Budget, warm_start: ArrayLike | None = None
    ) -> Solution:
        """Solve a model, one objective after the other.

        Every point is re-checked here. ``OPTIMAL`` means that for each objective a bound proves
        the point within the gap (for LPs a bound computed here from the duals). ``INFEASIBLE``
        and ``UNBOUNDED`` are confirmed by a second look.

        Parameters
        ----------
        model
            The model.
        budget
            Deadline for everything.
        warm_start
            A point to start from, shape (columns,). If it satisfies the model the answer is
            never worse.

        Raises
        ------
        ModelError
            If the warm start has the wrong shape or is not finite.
        UnsupportedModelError
            If a back end asked for by name refuses the model's class.
        """
        started = time.perf_counter()
        start = _start(model, warm_start)
        solver = self._chosen(model)
        if model.column_count == 0:
            return without_columns(model, solver, started)
        incumbent = None if start is None else check_point(model, start)[0]
        stages = solve_in_order(model, solver, self.request(budget, start), incumbent)
        return summed_up(model, solver, stages, time.perf_counter() - started)

    def _chosen(self, model: Model) -> Backend:
        """The back end asked for by name, or those that the portfolio has for such a model."""
        if self.backend == "auto":
            return Chain([Hosted(member) for member in case_for(model).use])
        return Hosted(backend(self.backend))

    def request(self, budget: Budget, start: FloatArray | None = None) -> Request:
        """What back ends are asked by a solver with these parameters."""
        return Request(
            budget=budget,
            gap=self.gap,
            seed=self.seed,
            threads=self.threads,
            work_limit=self.work_limit,
            start=start,
        )


def _start(model: Model, warm_start: ArrayLike | None) -> FloatArray | None:
    if warm_start is None:
        return None
    start = floats(warm_start)
    if start.shape != (model.column_count,):
        raise ModelError(f"warm_start has shape {start.shape}, not {(model.column_count,)}")
    finite = np.isfinite(start)
    if not finite.all():
        bad = int(np.argmin(finite))
        raise ModelError(f"warm_start[{bad}] = {start[bad]} ({model.column_name(bad)})")
    return start
