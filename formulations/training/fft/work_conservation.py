"""How many GPUs gangs can occupy at most: a packing question over few kinds of gangs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from apportion.formulations.training.greedy import NOWHERE
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Budget, Choice, Solver, Status, identical_rows, solve_choice


@dataclass(frozen=True, eq=False)
class Placeable:
    """Jobs that may be placed, and the GPUs there are for them.

    Parameters
    ----------
    rows
        The jobs.
    gang, cost
        Columns over all jobs, shapes (n,) and (n, k); an infinite cost = cannot run there.
    free
        GPUs of each type, shape (k,).
    """

    rows: Ints
    gang: Ints
    cost: Floats
    free: Ints

    def fits(self) -> Bools:
        """Where each of the rows could run, shape (rows, k)."""
        gang = self.gang[self.rows]
        return np.isfinite(self.cost[self.rows]) & (gang[:, None] <= self.free[None, :])


@dataclass(frozen=True, eq=False)
class MostGpus:
    """The most GPUs that can be placed: a plan that does it, and whether that is proved.

    ``trivial``: the greedy plan reached the obvious limit, so that nothing had to be solved.
    ``time_limited``: the clock stopped the proof.
    """

    gpus: int
    kinds: Ints
    proved: bool
    trivial: bool
    time_limited: bool = False


def most_gpus(jobs: Placeable, greedy: Ints, solver: Solver, budget: Budget) -> MostGpus:
    """Find the most GPUs that whole gangs can occupy.

    Jobs with the same gang and the same usable types are interchangeable here, so that the
    problem has a handful of groups whatever the number of jobs.

    Parameters
    ----------
    jobs
        What can be placed.
    greedy
        Type of each job in a feasible plan, ``NOWHERE`` where it waits, shape (n,).
    solver, budget
        Search and deadline; the answer is sought without any gap.
    """
    placed = int(jobs.gang[greedy >= 0].sum())
    limit = min(int(jobs.free.sum()), int(jobs.gang[jobs.rows].sum()))
    if placed == limit:
        return MostGpus(placed, greedy, proved=True, trivial=True)
    fits, gang = jobs.fits(), jobs.gang[jobs.rows]
    classes = identical_rows(np.c_[gang, fits].astype(np.float64))
    fits, gang = fits[classes.first], gang[classes.first].astype(np.float64)
    choice = Choice(
        cost=np.where(fits, -gang[:, None], np.inf),
        amount=np.broadcast_to(gang[:, None], fits.shape),
        resource=np.arange(fits.shape[1], dtype=np.int64),
        capacity=jobs.free.astype(np.float64),
        count=classes.count,
    )
    answer = solve_choice(choice, replace(solver, gap=0.0), budget=budget)
    if answer.plan is None:
        return MostGpus(placed, greedy, False, False, answer.time_limited)
    gpus = int((answer.plan * choice.amount).sum())
    proved = answer.status is Status.OPTIMAL
    if gpus <= placed:
        return MostGpus(placed, greedy, proved, False, answer.time_limited)
    kinds = np.full(jobs.gang.size, NOWHERE, dtype=np.int64)
    per_class = np.c_[answer.plan, classes.count - answer.plan.sum(axis=1)].ravel()
    labels = np.tile(np.r_[np.arange(fits.shape[1]), NOWHERE], fits.shape[0])
    # the cheapest members of a class go first, so that the plan is a fair start
    cheapest = jobs.cost[jobs.rows].min(axis=1)
    order = np.lexsort((cheapest, classes.of_row))
    kinds[jobs.rows[order]] = np.repeat(labels, per_class)
    return MostGpus(gpus, kinds, proved, False, answer.time_limited)
