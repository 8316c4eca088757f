"""Round after round of one family of LPs: each starts from the basis of the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self

from apportion.solver.backends.highs import Highs
from apportion.solver.backends.warm_highs import WarmHighs
from apportion.solver.budget import Budget
from apportion.solver.drivers.slots import NEW, Changes, Keys, changes, old_places
from apportion.solver.models.model import Model
from apportion.solver.portfolio import Features, case_for
from apportion.solver.solution import Solution
from apportion.solver.solve import Solver
from apportion.solver.stage import run_stage
from apportion.solver.status import Status
from apportion.solver.summary import summed_up

MOST_CHANGED = 0.5
"""Part of the columns from which a change is too large for the old basis, placement excepted.

CPU seconds from the basis and afresh: max-min of 2048 x 6 .037 and .22 at 5 % changed, .097 and .22
at 20 %, .19 and .39 at 50 %, no gain at 100 %; of 512 x 6 .006 and .038, then .03 and .02 at 100 %.
Placement of 4000 x 8 gains at 100 % too: .031 and .054.
"""


class RebuildReason(Enum):
    """Why a model was solved afresh."""

    FIRST = "the first model"
    OTHER_ENTRIES = "entries of the matrix lie in other places, and no keys tell which are which"
    MANY_CHANGES = "so much changed that starting afresh is faster"
    NO_BASIS = "the last solve left no basis"
    NOT_AN_LP = "integer columns, or several objectives"
    BACKEND = "the solver names a back end other than HiGHS"
    FAILED = "HiGHS did not go on from the last model"


@dataclass(frozen=True, slots=True)
class SessionStep:
    """How one model was solved.

    Attributes
    ----------
    rebuild
        Why it was solved afresh; ``None`` if it started from the basis of the one before.
    changed
        Part of the columns (or of the rows where that is more) in which something changed, or,
        where keys were matched, that are new; ``None`` where nothing was compared.
    work
        Simplex iterations, or those of interior point.
    """

    rebuild: RebuildReason | None
    changed: float | None
    work: float | None


class Session:
    """Solves models that are much like the one before: changed in place, from the last basis.

    Owned by the caller, who closes it or leaves it to a ``with`` block. It holds one HiGHS object.
    Answers carry the same proofs as those of :class:`Solver`, whatever they started from; where
    there are several optimal points another one may be found. One thread at a time is served.

    Parameters
    ----------
    solver
        Gap, seed, threads and work limit; its back end must be ``"auto"`` or one of HiGHS, others
        are asked afresh each time.

    Attributes
    ----------
    last
        How the last model was solved; ``None`` before the first.

    Examples
    --------
    >>> from apportion.solver import Budget, ModelBuilder
    >>> session = Session()
    >>> for price in (3.0, 4.0):
    ...     b = ModelBuilder("prices")
    ...     x = b.columns("x", 2)
    ...     one = b.rows("one", 1, row=0, column=x, value=1.0, upper=1.0)
    ...     b.objective("value", column=x, value=[2.0, price], maximise=True)
    ...     print(session.solve(b.build(), budget=Budget.of(10.0)).objective, session.last.rebuild)
    3.0 RebuildReason.FIRST
    4.0 None
    """

    def __init__(self, solver: Solver | None = None) -> None:
        self.solver = Solver() if solver is None else solver
        self.last: SessionStep | None = None
        self._highs = WarmHighs()
        self._model: Model | None = None
        self._keys: Keys | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the HiGHS object; the next model is solved afresh."""
        with self._lock:
            self._forget()

    def solve(
        self,
        model: Model,
        *,
        budget: Budget,
        column_keys: Sequence[Hashable] | None = None,
        row_keys: Sequence[Hashable] | None = None,
    ) -> Solution:
        """Solve a model.

        Parameters
        ----------
        model
            The model; anything may have changed, data, size and order.
        budget
            Deadline for everything.
        column_keys, row_keys
            What each column and row stands for, such as ``(job, type)``, none twice. Given with
            two models in a row, they tell which parts are the same when columns or rows come, go
            or change places. Without them only models whose entries lie in the same places match.

        Raises
        ------
        ModelError
            If keys are given for only one of the two, do not fit, or one is there twice.
        UnsupportedModelError
            If a back end asked for by name refuses the model's class.
        """
        keys = _keys(model, column_keys, row_keys)
        with self._lock:
            reason = self._out_of_scope(model)
            if reason is not None:
                return self._by_solver(model, budget, reason)
            try:
                return self._step(model, keys, budget)
            except BaseException:
                # whatever state HiGHS is in, the next model does not start from it
                self._forget()
                raise

    def _out_of_scope(self, model: Model) -> RebuildReason | None:
        if not model.is_lp or len(model.objectives) != 1 or model.column_count == 0:
            return RebuildReason.NOT_AN_LP
        if self.solver.backend != "auto" and not self.solver.backend.startswith("highs"):
            return RebuildReason.BACKEND
        return None if self._highs.available() else RebuildReason.FAILED

    def _step(self, model: Model, keys: Keys | None, budget: Budget) -> Solution:
        started = time.perf_counter()
        reason, share = self._bring_in(model, keys)
        if reason is not None and not self._afresh(model):
            return self._by_solver(model, budget, RebuildReason.FAILED)
        stage = run_stage(model, self._highs, self.solver.request(budget), None)
        if stage.status is Status.ERROR and not budget.expired():
            return self._by_solver(model, budget, RebuildReason.FAILED)
        self._model, self._keys = model, keys
        self.last = SessionStep(reason, share, stage.raw.work)
        return summed_up(model, self._highs, [stage], time.perf_counter() - started)

    def _bring_in(
        self, model: Model, keys: Keys | None
    ) -> tuple[RebuildReason | None, float | None]:
        """Change the last model to this one, or say why not; and how much of it is changed."""
        if self._model is None:
            return RebuildReason.FIRST, None
        if not self._highs.has_basis:
            return RebuildReason.NO_BASIS, None
        same = changes(self._model, model) if _in_place(self._keys, keys) else None
        if same is not None:
            return self._alter(model, same), same.share
        if keys is None or self._keys is None:
            return RebuildReason.OTHER_ENTRIES, None
        columns = old_places(self._keys.columns, keys.columns)
        rows = old_places(self._keys.rows, keys.rows)
        share = max(
            float((columns == NEW).mean()), float((rows == NEW).mean()) if rows.size else 0.0
        )
        if share > MOST_CHANGED and not Features(model).placement:
            return RebuildReason.MANY_CHANGES, share
        taken = self._highs.move(model, columns, rows)
        return None if taken else RebuildReason.FAILED, share

    def _alter(self, model: Model, what: Changes) -> RebuildReason | None:
        if what.share > MOST_CHANGED and not Features(model).placement:
            return RebuildReason.MANY_CHANGES
        return None if self._highs.alter(model, what) else RebuildReason.FAILED

    def _afresh(self, model: Model) -> bool:
        """Load a model without a basis, for the algorithm that the portfolio has for such ones."""
        own = (member for member in case_for(model).use if isinstance(member, Highs))
        ipm = self.solver.backend == "highs-ipm" or (
            self.solver.backend == "auto" and next(own, Highs()).algorithm == "ipm"
        )
        self._highs.algorithm = "ipm" if ipm else "simplex"
        return self._highs.load(model)

    def _by_solver(self, model: Model, budget: Budget, reason: RebuildReason) -> Solution:
        self._forget()
        answer = self.solver.solve(model, budget=budget)
        self.last = SessionStep(reason, None, answer.work)
        return answer

    def _forget(self) -> None:
        self._highs, self._model, self._keys = WarmHighs(), None, None


def _keys(
    model: Model, columns: Sequence[Hashable] | None, rows: Sequence[Hashable] | None
) -> Keys | None:
    if columns is None and rows is None:
        return None
    keys = Keys(() if columns is None else columns, () if rows is None else rows)
    keys.require_fit(model)
    return keys


def _in_place(old: Keys | None, new: Keys | None) -> bool:
    """Whether equal places mean equal things: they do without keys, or with the same ones."""
    if old is None or new is None:
        return True
    return list(old.columns) == list(new.columns) and list(old.rows) == list(new.rows)
