"""Sharing a cluster by fractions of time: the data, the plain max-min model, and a check.

Source: Gavel (Narayanan et al., OSDI 2020), section 4: a job spends a fraction of the round on each
GPU type, and its level is a multiple of the throughput it gets by that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.solver.arrays import FloatArray, IntArray, floats, read_only
from apportion.solver.budget import Budget
from apportion.solver.drivers.aggregate import Classes, identical_rows
from apportion.solver.drivers.max_min_prices import PRICES_FROM, least_best, level_by_prices
from apportion.solver.errors import ModelError, NoSolutionError
from apportion.solver.models.builder import ModelBuilder
from apportion.solver.models.model import Model
from apportion.solver.solve import Solver

SMALL_LEVEL = 0.01
"""Levels below this are solved in a smaller unit: dual tolerances of 1e-7 at a thousand columns add
up to 1e-4 in the bound, whatever the level is. A power of two changes no digit."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """Jobs that share types of GPU by fractions of time.

    The level of a job is ``scale * speed @ x`` for its fractions ``x``, which add up to 1 at most.

    Parameters
    ----------
    speed
        Speed of each job's whole gang on each type, 0 where it cannot run, shape (n, k).
    gang
        GPUs of each job, shape (n,). A class of identical jobs is one job with the GPUs of all.
    capacity
        GPUs of each type, shape (k,).
    scale
        Level per unit of speed: one over the weight, say. Shape (n,).
    ceiling
        Largest level that is of use to each job, shape (n,); infinite unless given.

    Raises
    ------
    ModelError
        If shapes do not fit, or a number is NaN, negative, or zero where it may not be.
    """

    speed: FloatArray
    gang: FloatArray
    capacity: FloatArray
    scale: FloatArray
    ceiling: FloatArray | None = None

    def __post_init__(self) -> None:
        jobs, types = np.shape(self.speed)
        shapes = {"speed": (jobs, types), "capacity": (types,)}
        for field in ("speed", "capacity", "gang", "scale", "ceiling"):
            value = getattr(self, field)
            if value is None:
                continue
            array = floats(value)
            if array.shape != shapes.get(field, (jobs,)):
                raise ModelError(f"sharing: {field} has shape {array.shape}")
            sound = array > 0.0 if field in ("gang", "scale") else array >= 0.0
            if field != "ceiling":
                sound &= np.isfinite(array)
            if not sound.all():
                bad = np.unravel_index(int(np.argmin(sound)), array.shape)
                raise ModelError(f"sharing: {field}{[int(i) for i in bad]} = {array[bad]}")
            object.__setattr__(self, field, read_only(array))

    @cached_property
    def best(self) -> FloatArray:
        """Largest level of each job if it were alone, shape (n,)."""
        usable = np.where(self.capacity > 0.0, self.speed, 0.0)
        alone = self.scale * usable.max(axis=1, initial=0.0)
        return alone if self.ceiling is None else np.minimum(alone, self.ceiling)

    def merged(self) -> tuple[Sharing, Classes]:
        """Give the same problem with identical jobs as one, and who they are.

        Exact for max-min and its lexicographic form: the mean of the fractions of identical jobs
        is feasible and leaves none of them below the least of them.
        """
        columns = [self.speed, self.gang, self.scale]
        classes = identical_rows(*columns, *(() if self.ceiling is None else (self.ceiling,)))
        some = classes.first
        ceiling = None if self.ceiling is None else self.ceiling[some]
        gang = self.gang[some] * classes.count
        return Sharing(self.speed[some], gang, self.capacity, self.scale[some], ceiling), classes

    def levels(self, x: FloatArray) -> FloatArray:
        """Level of every job at the fractions ``x``, shape (n, k)."""
        return self.scale * np.einsum("ij,ij->i", self.speed, x)

    def excess(self, x: FloatArray) -> float:
        """Largest excess of fractions ``x`` over the rules, relative; 0 where all are kept."""
        per_job = x.sum(axis=1) - 1.0
        load = np.einsum("i,ij->j", self.gang, x)
        per_type = (load - self.capacity) / np.maximum(1.0, self.capacity)
        below = -x.min(initial=0.0)
        return max(0.0, per_job.max(initial=0.0), per_type.max(initial=0.0), float(below))

    def max_min_model(self) -> Model:
        """Give the model of the largest level that every job can have, ceilings left aside."""
        jobs, types = self.speed.shape
        job: IntArray = np.arange(jobs, dtype=np.int64)[:, None]
        kind: IntArray = np.arange(types, dtype=np.int64)[None, :]
        top = np.max(self.scale * self.speed.max(axis=1, initial=0.0), initial=0.0)
        builder = ModelBuilder("max-min")
        x = builder.columns("x", (jobs, types), upper=np.where(self.capacity > 0.0, 1.0, 0.0))
        level = builder.columns("level", 1, upper=top)
        builder.rows("one", jobs, row=job, column=x, value=1.0, upper=1.0)
        builder.rows(
            "capacity", types, row=kind, column=x, value=self.gang[:, None], upper=self.capacity
        )
        row = np.hstack((np.broadcast_to(job, x.shape), job))
        column = np.hstack((x, np.broadcast_to(level, (jobs, 1))))
        value = np.hstack((self.scale[:, None] * self.speed, np.full((jobs, 1), -1.0)))
        builder.rows("share", jobs, row=row, column=column, value=value, lower=0.0)
        builder.objective("level", column=level, value=1.0, maximise=True)
        return builder.build()


@dataclass(frozen=True, slots=True, eq=False)
class MaxMin:
    """A max-min round.

    Attributes
    ----------
    level
        Level that every job has at least.
    x
        Fractions, shape (n, k).
    excess
        Largest excess over the rules, relative.
    classes
        Who is identical.
    bound
        Level that none exceeds, proved; ``None`` where nothing was.
    prices
        What one more GPU of each type would add to the level, shape (k,); ``None`` if not known.
    """

    level: float
    x: FloatArray
    excess: float
    classes: Classes
    bound: float | None = None
    prices: FloatArray | None = None


def solve_max_min(
    sharing: Sharing,
    *,
    budget: Budget,
    solver: Solver | None = None,
    prices: FloatArray | None = None,
) -> MaxMin:
    """Find the largest level that every job can have.

    Many classes of jobs are solved by prices of the types, see
    :mod:`apportion.solver.drivers.max_min_prices`; few, or where that ends without a proof or another back
    end is asked for, by one LP with a column per class and type.

    Parameters
    ----------
    sharing
        The jobs; with one that can run nowhere the level is 0.
    budget
        Deadline for everything.
    solver
        How LPs are solved.
    prices
        Those of an earlier round that is much like this one, shape (k,): a start that saves most
        of the time where there are many classes, and never changes what is proved.

    Returns
    -------
    The fractions of all jobs; the level is read off them, so identical jobs are counted one by one.

    Raises
    ------
    NoSolutionError
        If the budget ends before the LP is solved.
    """
    if prices is not None and np.shape(prices) != sharing.capacity.shape:
        raise ModelError(f"max-min: prices have shape {np.shape(prices)}")
    classes_only, classes = sharing.merged()
    unit = _unit(classes_only)
    classes_only = replace(classes_only, scale=classes_only.scale / unit)
    solver = Solver() if solver is None else solver
    if solver.backend == "auto" and classes_only.speed.size >= PRICES_FROM:
        for start in (None,) if prices is None else (prices, None):
            found = level_by_prices(classes_only, solver, budget, start)
            if found is not None:
                bound, price = unit * found.bound, unit * found.price
                return _spread(sharing, classes, found.x, bound, price)
    return _by_one_lp(sharing, classes_only, classes, solver, budget, unit)


def _unit(sharing: Sharing) -> float:
    """Power of two near the level if it is small, from what the least job has alone and shared."""
    best = least_best(sharing)
    if not 0.0 < best < np.inf:
        return 1.0
    part = sharing.capacity / max(float(sharing.gang.sum()), float(sharing.capacity.sum()))
    shared = float((sharing.scale * sharing.speed.dot(part)).min())
    middle = math.sqrt(best * shared)
    return 2.0 ** math.frexp(middle)[1] if 0.0 < middle < SMALL_LEVEL else 1.0


def _by_one_lp(
    sharing: Sharing,
    classes_only: Sharing,
    classes: Classes,
    solver: Solver,
    budget: Budget,
    unit: float,
) -> MaxMin:
    found = solver.solve(classes_only.max_min_model(), budget=budget)
    if found.point is None:
        raise NoSolutionError(f"max-min: {found.message}")
    x = found.point[:-1].reshape(classes_only.speed.shape)
    prices = None
    if found.duals is not None:
        first = classes.first.size
        prices = unit * np.maximum(found.duals[first : first + sharing.capacity.size], 0.0)
    bound = found.bounds[-1] if found.bounds else None
    return _spread(sharing, classes, x, None if bound is None else unit * bound, prices)


def _spread(
    sharing: Sharing,
    classes: Classes,
    x: FloatArray,
    bound: float | None,
    prices: FloatArray | None,
) -> MaxMin:
    """Give all jobs what their classes have, and read the level off that."""
    everyone = classes.spread(x)
    level = float(sharing.levels(everyone).min(initial=np.inf))
    return MaxMin(level, everyone, sharing.excess(everyone), classes, bound, prices)
