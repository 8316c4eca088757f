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


_ROUNDING = 1e-9
"""Part by which a deadline may ask for more than a job's best speed: work over time is not exact."""


def deadlines_of(sharers: Sharers) -> Deadlines:
    """Read the next deadline of each job that counts and that it could keep alone.

    A deadline counts while it lies ahead and earns something. Jobs that have deadlines, and none
    of this kind, have theirs dropped.
    """
    round_, rows = sharers.round_, sharers.rows
    jobs, most = round_.jobs, sharers.speed.max(axis=1, initial=0.0)
    counts = np.diff(jobs.deadline_offsets)[rows]
    counted = jobs.slo[rows] & (counts > 0)
    owner = np.repeat(np.arange(rows.size), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    entry = np.repeat(jobs.deadline_offsets[rows], counts) + np.arange(owner.size) - first
    left_s = jobs.deadline_s[entry] - round_.now_s
    asks = np.full(owner.size, np.inf)
    np.divide(sharers.left[owner], left_s, out=asks, where=left_s > 0.0)
    able = counted[owner] & (asks <= most[owner] * (1.0 + _ROUNDING))
    able &= jobs.deadline_value[entry] > 0
    # deadlines rise within a job, and the first that is left is written last
    chosen = np.flatnonzero(able)[::-1]
    speed, kept = np.zeros(rows.size), np.zeros(rows.size, dtype=np.bool_)
    speed[owner[chosen]], kept[owner[chosen]] = asks[chosen], True
    return Deadlines(np.minimum(speed, most), kept, counted & ~kept)


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
