"""What a back end is to us: a thin adapter that minimises, and repeats what its code claims."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from typing import Protocol

from apportion.solver.arrays import FloatArray
from apportion.solver.budget import Budget
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.models.model import Model

_log = logging.getLogger("apportion.solver")


class Claim(Enum):
    """What a back end says about a model; evidence to be checked, not a verdict."""

    OPTIMAL = "optimal"
    POINT = "point"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    INFEASIBLE_OR_UNBOUNDED = "infeasible or unbounded"
    NOTHING = "nothing"
    FAILED = "failed"


class Stop(Enum):
    """Why a back end stopped."""

    FINISHED = "finished"
    TIME = "time limit"
    WORK = "work limit"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Model classes that a back end takes.

    Attributes
    ----------
    integers
        Integer columns.
    continuous
        Continuous columns.
    exact_integers_only
        Only whole numbers, or short decimals that can be scaled to them, as data.
    duals
        Row duals and reduced costs of LPs are returned.
    """

    integers: bool
    continuous: bool
    exact_integers_only: bool = False
    duals: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """How a model is to be solved.

    Attributes
    ----------
    budget
        Wall-clock deadline.
    gap
        Relative gap at which a search may stop.
    seed
        Seed of the back end's random choices.
    threads
        Threads that the back end may use.
    work_limit
        Deterministic work after which to stop, in the back end's own unit; ``None`` for no limit.
    start
        A point to start from, shape (columns,); back ends that cannot use one ignore it.
    on_incumbent
        Told of every better point that a MILP search finds, and of the lower bound at that moment,
        in the sense of :class:`RawResult`. Called from the search's own thread, by those back
        ends that can (HiGHS and CP-SAT).
    """

    budget: Budget
    gap: float
    seed: int = 0
    threads: int = 1
    work_limit: float | None = None
    start: FloatArray | None = None
    on_incumbent: Callable[[FloatArray, float | None], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RawResult:
    """What a back end returned for the minimisation of a model's first objective.

    Maximised objectives are handed over negated, so ``bound`` and the duals are those of
    ``min sign * (cost @ x + offset)``.

    Attributes
    ----------
    claim
        What the back end says.
    stop
        Why it stopped.
    x
        Its point, shape (columns,), unchecked.
    bound
        Lower bound that it claims.
    duals, reduced_costs
        For LPs, where it gives them: change of the minimum per unit of a row's side, shape
        (rows,), and per unit of a column's bound, shape (columns,).
    work
        Deterministic work done, in the unit of ``Request.work_limit``.
    message
        Its own words, for logs.
    """

    claim: Claim
    stop: Stop = Stop.FINISHED
    x: FloatArray | None = None
    bound: float | None = None
    duals: FloatArray | None = None
    reduced_costs: FloatArray | None = None
    work: float | None = None
    message: str = ""


class Backend(Protocol):
    """A solver behind the one contract."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Model classes that it takes."""
        ...

    def available(self) -> bool:
        """Whether it can run here."""
        ...

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model``, which has at least one column.

        Raises
        ------
        UnsupportedModelError
            If the model is of a class that it does not solve.
        """
        ...


def run_backend(solver: Backend, model: Model, request: Request) -> RawResult:
    """Run a back end; a breakdown becomes a claim of its own.

    Raises
    ------
    UnsupportedModelError
        If the model is of a class that it does not solve.
    """
    if request.budget.expired():
        # some codes read a limit of zero as none
        return RawResult(Claim.NOTHING, Stop.TIME, message="no time left")
    try:
        raw = solver.solve(model, request)
    except UnsupportedModelError:
        raise
    except Exception as error:
        # wrappers fail in their own error paths, with whatever exception is at hand
        _log.warning("%s failed on model %s", solver.name, model.name, exc_info=True)
        return RawResult(Claim.FAILED, message=f"{type(error).__name__}: {error}")
    _log.debug("%s on %s: %s, %s (%s)", solver.name, model.name, raw.claim, raw.stop, raw.message)
    return raw


def too_late(request: Request, model: Model, s_per_nonzero: float) -> RawResult | None:
    """Nothing, where the time left does not even hand the model over; else ``None``.

    Parameters
    ----------
    request
        Its budget counts.
    model
        The model to hand over.
    s_per_nonzero
        What handing over costs the back end.
    """
    if request.budget.left_s() > s_per_nonzero * model.values.size:
        return None
    return RawResult(Claim.NOTHING, Stop.TIME, message="no time to hand the model over")


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return find_spec(module) is not None


def require_lp(name: str, model: Model) -> None:
    """Refuse integer columns, which some LP codes would silently relax.

    Raises
    ------
    UnsupportedModelError
        If the model has an integer column.
    """
    if not model.is_lp:
        column = model.column_name(int(model.integer.argmax()))
        raise UnsupportedModelError(f"{name} solves LPs only: column {column} is integer")


def why_stopped(request: Request, *, finished: bool) -> Stop:
    """Guess why a back end that does not tell stopped, from the clock and the limits set."""
    if finished:
        return Stop.FINISHED
    if request.work_limit is not None and not request.budget.expired():
        return Stop.WORK
    return Stop.TIME
