"""Finish-time fairness: nobody's finish is delayed by more than need be, next to an equal share.

The ratio of a job is its age plus the time its work left takes, over the time that all its work
takes on an equal share of the cluster. A ratio r asks of each job the speed
``left / (r isolated_finish - age)``; the least r whose speeds fit is found by Newton steps on the
duals of one LP, each of which proves all smaller ratios infeasible. Gavel's code hands a cone form
to a conic solver, which gives up on contended rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.gavel.base import (
    Gavel,
    first_speed,
    inside,
    notes_on_left_out,
    proved,
    raised,
)
from apportion.formulations.training.gavel.isolated import isolated_speed, recall_isolated
from apportion.formulations.training.gavel.pairs import Pairs
from apportion.formulations.training.time_share_program import Fractions
from apportion.formulations.training.time_shares import Sharers, remembered
from apportion.instances import Decision
from apportion.instances.columns import Floats, Ints
from apportion.instances.training import Outcome, TrainingRound
from apportion.solver import (
    Axis,
    Budget,
    Level,
    Model,
    ModelBuilder,
    Solver,
    best_level,
    identical_rows,
)


@dataclass(frozen=True, eq=False)
class Ratios:
    """What ratios ask of the jobs that share a round.

    Parameters
    ----------
    sharers
        The jobs.
    speed
        Speeds the policy believes in, shape (m, k).
    age_s
        Time since each arrived, shape (m,).
    isolated_s
        Time that all work of each takes on an equal share, shape (m,).
    """

    sharers: Sharers
    speed: Floats
    age_s: Floats
    isolated_s: Floats

    @cached_property
    def best(self) -> Floats:
        """Largest speed of each job, shape (m,)."""
        return self.speed.max(axis=1)

    def of(self, speed: Floats) -> Floats:
        """Ratio of each job at some speed, infinite where it is 0, shape (m,)."""
        left = self.sharers.left
        wait = np.divide(left, speed, out=np.full(left.size, np.inf), where=speed > 0.0)
        return (self.age_s + wait) / self.isolated_s

    def at(self, x: Floats) -> Floats:
        """Ratio of each job at some fractions, shape (m,)."""
        return self.of(np.einsum("ij,ij->i", self.speed, x))

    @cached_property
    def least(self) -> float:
        """Ratio below which some job could not come even if it were alone."""
        return float(self.of(self.best).max())

    def need(self, ratio: float) -> Floats:
        """Speed that a ratio from ``least`` on asks of each job, shape (m,)."""
        time_s = ratio * self.isolated_s - self.age_s
        soonest_s = self.sharers.left / self.best
        return self.sharers.left / np.maximum(time_s, soonest_s)


@dataclass(frozen=True)
class GavelFTF(Gavel):
    """Least largest ratio of finish time to finish time on an equal share of the cluster.

    Parameters
    ----------
    recompute_s, work_conserving
        As in ``Gavel``.
    aware
        False: all types count as equally fast as the first one a job can use.
    """

    name: ClassVar[str] = "gavel-ftf"
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    aware: bool = True

    def _sharing(self, round_: TrainingRound, memory: Any) -> FinishTimes:
        return FinishTimes(self, recall_isolated(round_, memory, self.name))

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Outcome
    ) -> dict[str, Any]:
        """Add what was served, and the time its work would have taken on an equal share."""
        before = recall_isolated(round_, memory, self.name)
        speed = isolated_speed(round_)
        more = np.divide(outcome.work, speed, out=np.zeros_like(before), where=speed > 0.0)
        isolated_s = np.maximum(before + more, 0.0)
        return {**remembered(decision, outcome), "isolated_s": isolated_s}


@dataclass(frozen=True)
class FinishTimes:
    """The policy with what it remembers.

    Parameters
    ----------
    policy
        Its parameters.
    isolated_s
        Time that the work done so far takes on an equal share, by rows of the round, shape (n,).
    """

    policy: GavelFTF
    isolated_s: Floats

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def recompute_s(self) -> float:
        """The policy's."""
        return self.policy.recompute_s

    @property
    def work_conserving(self) -> bool:
        """The policy's."""
        return self.policy.work_conserving

    def ratios(self, sharers: Sharers) -> Ratios:
        """What ratios ask of the jobs that share."""
        round_, rows = sharers.round_, sharers.rows
        speed = sharers.speed if self.policy.aware else first_speed(sharers)
        alone = isolated_speed(round_, aware=self.policy.aware)[rows]
        age_s = round_.now_s - round_.jobs.arrival_s[rows]
        return Ratios(sharers, speed, age_s, self.isolated_s[rows] + sharers.left / alone)

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share the free GPUs; identical jobs share columns."""
        ratios = self.ratios(sharers)
        classes = identical_rows(
            ratios.speed, sharers.gang, ratios.age_s, ratios.isolated_s, sharers.left
        )
        pairs = Pairs.of(sharers, ratios.speed, classes)
        found = _least_ratio(ratios, pairs, classes.first, budget)
        row, kind = pairs.places
        x = np.zeros((len(pairs.job), len(pairs.kinds)))
        x[row, kind] = found.x[:-1]
        x = inside(sharers, raised(classes.spread(x), ratios.speed, ratios.need(found.level)))
        value = float(ratios.at(x).max())
        return proved(x, value, found.proved, solver.gap, notes=notes_on_left_out(sharers))

    def value(self, sharers: Sharers, x: Floats) -> float | None:
        """Largest ratio; None where a job gets no time at all."""
        worst = float(self.ratios(sharers).at(x).max())
        return worst if np.isfinite(worst) else None

    def model_of(self, sharers: Sharers) -> Model | None:
        """No single LP says it: the ratio divides by speeds."""
        return None


def _least_ratio(ratios: Ratios, pairs: Pairs, some: Ints, budget: Budget) -> Level:
    """Find the least ratio whose speeds fit, one LP with moving sides."""
    jobs = len(pairs.job)
    row, kind = pairs.places
    types = np.arange(pairs.capacity.size)
    builder = ModelBuilder("finish-time fairness")
    crowded = pairs.gang.sum() / max(1.0, pairs.capacity[pairs.capacity > 0.0].min())
    x = builder.columns("x", row.size, axes=pairs.axes())
    theta = builder.columns("theta", 1, upper=crowded)
    need = builder.rows(
        "need", jobs, row=row, column=x, value=pairs.relative, lower=0.0,
        axes=(Axis("job", pairs.job),),
    )  # fmt: skip
    builder.rows("one", jobs, row=row, column=x, value=1.0, upper=1.0)
    builder.rows(
        "load", types.size,
        row=np.concatenate((kind, types)),
        column=np.concatenate((x, np.repeat(theta, types.size))),
        value=np.concatenate((
            pairs.gang[row] / np.maximum(1.0, pairs.capacity)[kind],
            -pairs.capacity / np.maximum(1.0, pairs.capacity),
        )),
        upper=0.0,
    )  # fmt: skip
    builder.objective("theta", column=theta, value=1.0)
    model = builder.build()

    def sides(ratio: float) -> tuple[Floats, Floats]:
        lower = model.row_lower.copy()
        lower[need] = (ratios.need(ratio) / ratios.best)[some]
        return lower, model.row_upper

    # an equal share of the free GPUs always fits
    enough = float(ratios.at(ratios.sharers.isolated).max())
    least = ratios.least
    return best_level(model, sides, (least, max(least, enough)), target=1.0, budget=budget)
