"""Speeds that deadlines ask for, and the fewest of them to give up where not all can be kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.gavel.base import SHOWN
from apportion.formulations.training.gavel.pairs import Pairs
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Bools, Floats
from apportion.solver import Axis, Budget, ModelBuilder, Solver, Status


@dataclass(frozen=True, eq=False)
class Deadlines:
    """Deadlines of the jobs that share a round.

    Parameters
    ----------
    speed
        Speed that each needs from now on to be done in time, 0 without a deadline, shape (m,).
    kept
        Deadlines that are asked for, shape (m,).
    dropped
        Deadlines that were given up, shape (m,).
    proved
        Whether no fewer could be given up.
    """

    speed: Floats
    kept: Bools
    dropped: Bools
    proved: bool = True

    @property
    def need(self) -> Floats:
        """Speed that the kept ones ask for, shape (m,)."""
        return np.where(self.kept, self.speed, 0.0)

    def notes(self, sharers: Sharers) -> tuple[str, ...]:
        """Name the jobs whose deadlines were given up."""
        jobs = sharers.round_.jobs.id[sharers.rows[self.dropped]].tolist()
        if not jobs:
            return ()
        named = ", ".join(repr(str(one)) for one in jobs[:SHOWN])
        more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
        least = "" if self.proved else ", perhaps more than had to be"
        count = "1 deadline was" if len(jobs) == 1 else f"{len(jobs)} deadlines were"
        return (f"{count} given up{least}: {named}{more}",)


def deadlines_of(sharers: Sharers) -> Deadlines:
    """Read the next deadline of each job that counts; those that nothing can keep are dropped."""
    round_, rows = sharers.round_, sharers.rows
    jobs = round_.jobs
    counted = jobs.slo[rows] & (np.diff(jobs.deadline_offsets)[rows] > 0)
    start, end = jobs.deadline_offsets[rows], jobs.deadline_offsets[rows + 1]
    passed = np.concatenate(([0], np.cumsum(jobs.deadline_s <= round_.now_s)))
    following = start + passed[end] - passed[start]
    ahead = counted & (following < end)
    next_s = np.full(rows.size, -np.inf)
    next_s[ahead] = jobs.deadline_s[following[ahead]]
    left_s = next_s - round_.now_s
    speed = np.divide(sharers.left, left_s, out=np.zeros(rows.size), where=left_s > 0.0)
    hopeless = counted & ((left_s <= 0.0) | (speed > sharers.speed.max(axis=1, initial=0.0)))
    return Deadlines(speed, counted & ~hopeless, hopeless)


def fewest_dropped(
    sharers: Sharers, pairs: Pairs, deadlines: Deadlines, solver: Solver, budget: Budget
) -> Deadlines:
    """Give up as few deadlines as can be: a MILP over the jobs that have one.

    Parameters
    ----------
    sharers, pairs
        The jobs, one by one.
    deadlines
        Those that cannot all be kept.
    solver, budget
        How the MILP is solved, and how long. Without a point in time all are given up.
    """
    rows = np.flatnonzero(deadlines.kept)
    few = Pairs(
        [pairs.job[row] for row in rows.tolist()], pairs.kinds, pairs.speed[rows],
        pairs.gang[rows], pairs.capacity,
    )  # fmt: skip
    row, _ = few.places
    everyone = np.arange(rows.size)
    builder = ModelBuilder("deadlines")
    x = few.time(builder)
    names = Axis("job", few.job)
    keep = builder.columns("keep", rows.size, integer=True, axes=(names,))
    builder.rows(
        "in_time", rows.size,
        row=np.concatenate((row, everyone)), column=np.concatenate((x, keep)),
        value=np.concatenate((few.relative, -deadlines.speed[rows] / few.best)),
        lower=0.0, axes=(names,),
    )  # fmt: skip
    builder.objective("kept", column=keep, value=1.0, maximise=True)
    found = solver.solve(builder.build(), budget=budget)
    kept = np.zeros(deadlines.kept.size, dtype=np.bool_)
    if found.point is not None:
        kept[rows] = found.point[keep] > 0.5
    return Deadlines(
        deadlines.speed, kept, deadlines.dropped | (deadlines.kept & ~kept),
        deadlines.proved and found.status is Status.OPTIMAL,
    )  # fmt: skip
