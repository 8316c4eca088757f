"""The largest level that all jobs can have at once, by one LP with a bound of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apportion.formulations.training.gavel.base import bound_in, inside, raised
from apportion.formulations.training.gavel.pairs import Pairs
from apportion.formulations.training.shared_proof import Merged
from apportion.formulations.training.time_share_program import fractions_of
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Floats
from apportion.solver import (
    Axis,
    Budget,
    Model,
    ModelBuilder,
    NoSolutionError,
    Sharing,
    Solution,
    Solver,
    identical_rows,
    solve_max_min,
)

BY_PRICES = 4_000
"""Pairs of classes and types from which the level is found by prices of the types: below, the LP
takes milliseconds, and its rows are made for numbers of very different size."""

SMALLEST_PART = 1e-9
"""Coefficients below it are dropped by back ends; what such jobs ask for is given them after."""


@dataclass(frozen=True, slots=True, eq=False)
class CommonLevel:
    """The level that all jobs reach.

    Attributes
    ----------
    x
        Fractions, shape (m, k).
    bound
        Level that no fractions exceed; None where nothing was proved.
    time_limited
        Whether the clock stopped the LP.
    proof
        The LP, where one was solved.
    """

    x: Floats
    bound: float | None
    time_limited: bool
    proof: Merged | None = None


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of the jobs that share a round: ``scale * speed @ x``.

    Parameters
    ----------
    sharers
        The jobs.
    speed
        Speeds the policy believes in, shape (m, k); each job has a positive one.
    scale
        Level per unit of speed, shape (m,).
    """

    sharers: Sharers
    speed: Floats
    scale: Floats

    @cached_property
    def unit(self) -> float:
        """Largest level that the job that is slowest on its own could have: none exceeds it."""
        return float((self.scale * self.speed.max(axis=1)).min())

    def of(self, x: Floats) -> Floats:
        """Level of each job at some fractions, shape (m,)."""
        return self.scale * np.einsum("ij,ij->i", self.speed, x)

    def model(self, pairs: Pairs | None = None, scale: Floats | None = None) -> Model:
        """Columns ``x`` and ``level`` (in ``unit``); rows ``one``, ``capacity``, ``share[job]``."""
        pairs = Pairs.of(self.sharers, self.speed) if pairs is None else pairs
        scale = self.scale if scale is None else scale
        row, _ = pairs.places
        everyone = np.arange(len(pairs.job))
        part = self.unit / (scale * pairs.best)
        part = np.where(part < SMALLEST_PART, 0.0, part)
        builder = ModelBuilder("level of all")
        x = pairs.time(builder)
        level = builder.columns("level", 1)
        builder.rows(
            "share", everyone.size,
            row=np.concatenate((row, everyone)),
            column=np.concatenate((x, np.repeat(level, everyone.size))),
            value=np.concatenate((pairs.relative, -part)),
            lower=0.0, axes=(Axis("job", pairs.job),),
        )  # fmt: skip
        builder.objective("level", column=level, value=1.0, maximise=True)
        return builder.build()

    def bound_of(self, solution: Solution) -> float | None:
        """Bound on the level from a solution of the model."""
        return bound_in(solution, self.unit)

    def largest(self, solver: Solver, budget: Budget) -> CommonLevel:
        """Find the fractions at which the least level is largest; identical jobs are one.

        Raises
        ------
        NoSolutionError
            If the LP is not solved in time.
        """
        sharers = self.sharers
        classes = identical_rows(self.speed, sharers.gang, self.scale)
        pairs = Pairs.of(sharers, self.speed, classes)
        if pairs.speed.size >= BY_PRICES:
            found = self._by_prices(solver, budget)
            if found is not None:
                return found
        model = self.model(pairs, self.scale[classes.first])
        found = solver.solve(model, budget=budget)
        if found.point is None:
            raise NoSolutionError(f"level of all: {found.message}")
        x = classes.spread(fractions_of(model, found, len(pairs.job), len(pairs.kinds)))
        level = float(found.point[-1]) * self.unit
        x = inside(sharers, raised(x, self.speed, level / self.scale))
        proof = Merged(model, found, classes)
        return CommonLevel(x, self.bound_of(found), found.time_limited, proof)

    def _by_prices(self, solver: Solver, budget: Budget) -> CommonLevel | None:
        """Let the driver for many different jobs find it; None where it proves nothing."""
        sharers = self.sharers
        sharing = Sharing(self.speed, sharers.gang, sharers.capacity, self.scale / self.unit)
        found = solve_max_min(sharing, budget=budget, solver=solver)
        if found.bound is None:
            return None
        x = inside(sharers, found.x)
        return CommonLevel(x, found.bound * self.unit, False)
