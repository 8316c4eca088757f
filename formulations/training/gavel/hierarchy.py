"""Tenants that fill up by their weights, and jobs inside a tenant by weights or in turn.

In every step the least weighted rise of all active jobs is made as large as possible while those
that are settled keep their level; then who cannot rise any more settles, and the tenant's weight
passes to its other jobs. Gavel finds by a MILP who can still rise. Here the duals of the step tell:
a job with a positive one has its level in every optimum, so it cannot rise. One that they do not
tell of holds the next step at no rise and gets a dual there, so levels are those of the MILP.

Source: Gavel (Narayanan et al., OSDI 2020), section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.gavel.base import inside, raised
from apportion.formulations.training.gavel.levels import Levels
from apportion.formulations.training.gavel.pairs import Pairs
from apportion.formulations.training.time_share_program import fractions_of
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import (
    Axis,
    Budget,
    Model,
    ModelBuilder,
    NoSolutionError,
    Solution,
    Solver,
)

BINDS = 1e-6
"""Dual times coefficient that counts as positive; over the active jobs of a step they sum to 1."""

AT_CAP = 1e-7
"""A job this near to all it could have alone is settled: back ends cannot tell it from there."""

SLACKS = (0.0, 1e-9, 1e-7)
"""Parts by which settled levels may be missed, tried in this order: rounding may make them clash,
and what is given up here is amplified in later steps."""


@dataclass(frozen=True, eq=False)
class Entities:
    """Tenants and their jobs.

    Parameters
    ----------
    of_job
        Tenant of each job, shape (m,).
    weight
        Weight of each tenant, shape (tenants,).
    job_weight
        Weight of each job inside its tenant, shape (m,).
    turn
        Jobs in the order in which they came, shape (m,).
    first_only
        Whether all of a tenant's share goes to its first job that can rise.
    """

    of_job: Ints
    weight: Floats
    job_weight: Floats
    turn: Ints
    first_only: bool

    def parts(self, rising: Bools) -> Floats:
        """Weight of each job's rise, 0 for those that have to wait or have settled, shape (m,)."""
        out = np.zeros(self.of_job.size)
        if self.first_only:
            waiting = self.turn[rising[self.turn]]
            _, first = np.unique(self.of_job[waiting], return_index=True)
            chosen = waiting[first]
            out[chosen] = self.weight[self.of_job[chosen]]
            return out
        own = np.where(rising, self.job_weight, 0.0)
        total = np.bincount(self.of_job, weights=own, minlength=self.weight.size)[self.of_job]
        return np.divide(self.weight[self.of_job] * own, total, out=out, where=own > 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Tenants filled up.

    Attributes
    ----------
    x
        Fractions, shape (m, k).
    level
        Level of each job, shape (m,).
    bound
        Weighted rise that the first step cannot exceed.
    finished
        False: the clock ended the steps, and levels could still rise.
    steps
        LPs solved.
    notes
        What a reader should know.
    """

    x: Floats
    level: Floats
    bound: float | None
    finished: bool
    steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One step: fractions, the rise of a unit of weight, its bound, and who is held by it."""

    x: Floats
    rise: float
    bound: float | None
    held: Bools


def fill_entities(levels: Levels, entities: Entities, solver: Solver, budget: Budget) -> Filled:
    """Raise all tenants by their weights until nobody can rise.

    Raises
    ------
    NoSolutionError
        If not even the first step is solved in time.
    """
    rising = np.ones(entities.of_job.size, dtype=np.bool_)
    level, alone = np.zeros(rising.size), levels.scale * levels.speed.max(axis=1)
    first: _Step | None = None
    x = np.zeros_like(levels.speed)
    steps = 0
    while rising.any():
        part = entities.parts(rising)
        full = (part > 0.0) & (level >= alone * (1.0 - AT_CAP))
        if full.any():
            rising &= ~full
            continue
        step = None if budget.expired() else _solved(levels, part, level, solver, budget)
        if step is None:
            break
        steps += 1
        first = first or step
        level, x = level + part * step.rise, step.x
        rising &= ~step.held
    if first is None:
        raise NoSolutionError("tenants: the budget ended before the first step")
    x = inside(levels.sharers, raised(x, levels.speed, level / levels.scale))
    finished = not rising.any()
    left = int(rising.sum())
    notes = () if finished else (f"the filling ended early: {left} jobs could perhaps rise",)
    return Filled(x, level, first.bound, finished, steps, notes)


def _solved(
    levels: Levels, part: Floats, level: Floats, solver: Solver, budget: Budget
) -> _Step | None:
    pairs = Pairs.of(levels.sharers, levels.speed)
    best = levels.scale * pairs.best
    active = part > 0.0
    # at this rise the first active job is at the most it could have alone
    unit = float(((best - level)[active] / part[active]).min())
    coefficient = part * unit / best
    for slack in SLACKS:
        model = _model(pairs, coefficient, np.minimum(level / best, 1.0) * (1.0 - slack))
        found = solver.solve(model, budget=budget)
        if found.point is not None and found.duals is not None:
            return _read(pairs, model, found, coefficient, unit)
        if budget.expired():
            break
    return None


def _read(pairs: Pairs, model: Model, found: Solution, coefficient: Floats, unit: float) -> _Step:
    x = fractions_of(model, found, len(pairs.job), len(pairs.kinds))
    rise = max(0.0, float(found.x[-1]) * unit)
    bound = None if found.bound is None else float(found.bound) * unit
    duals = np.zeros(model.row_count) if found.duals is None else found.duals
    return _Step(x, rise, bound, _held(model, duals, coefficient))


def _model(pairs: Pairs, coefficient: Floats, kept: Floats) -> Model:
    """Columns ``x`` and ``rise``; rows ``one``, ``capacity``, ``share``."""
    row, _ = pairs.places
    everyone = np.arange(len(pairs.job))
    builder = ModelBuilder("rise of tenants")
    x = pairs.time(builder)
    # 1 is as far as the rows let it go: a bound there would take the duals away from them
    rise = builder.columns("rise", 1, upper=2.0)
    builder.rows(
        "share", everyone.size,
        row=np.concatenate((row, everyone)),
        column=np.concatenate((x, np.repeat(rise, everyone.size))),
        value=np.concatenate((pairs.relative, -coefficient)),
        lower=kept, axes=(Axis("job", pairs.job),),
    )  # fmt: skip
    builder.objective("rise", column=rise, value=1.0, maximise=True)
    return builder.build()


def _held(model: Model, duals: Floats, coefficient: Floats) -> Bools:
    """Active jobs whose level is the same in every optimum of the step."""
    block = next(one for one in model.row_blocks if one.name == "share")
    worth = np.abs(duals[block.start : block.stop]) * coefficient
    held = worth > BINDS
    return held if held.any() else worth >= worth.max()
