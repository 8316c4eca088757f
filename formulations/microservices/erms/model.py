"""The exact form: counts in whole numbers, and the latency of every path as it falls with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from apportion.formulations.microservices.erms.latency import latency_ms
from apportion.formulations.microservices.erms.problem import Problem
from apportion.formulations.microservices.plain import SLACK, room
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.solver import Axis, Model, ModelBuilder

_CONVEX = 1e-9
"""How much more a step may save than the one before, relative to the first, by rounding alone."""


@dataclass(frozen=True, eq=False)
class LevelModel:
    """A problem with near bounds as a model.

    A unit's count is its lower bound and a number of steps; each step takes off what one more
    container saves each of its calls. Where no step saves more than the one before, for none of
    the unit's calls, taking steps in their order is best for all calls at once, so that steps need
    not be whole and only counts are. Elsewhere steps are binary and in order.

    Columns: ``count[microservice]`` whole; ``step[microservice,count]``; ``stage_ms[stage]``, the
    latency of a stage with several members. Rows: ``steps[unit]`` tie counts to steps; ``order``
    where steps are binary; ``time``, first a request each, then a member of such a stage each: it
    ends within the stage; ``cpu_cores`` and ``memory_mib`` where they are limited;
    ``total[microservice]`` where units of one microservice share its bounds.

    Parameters
    ----------
    problem
        Units with bounds that are near enough to list what lies between.
    round_
        The round: names, capacities, bounds.
    slack
        Relative slack of the targets.
    around
        Counts near which steps are single containers, ever wider further off: a small relaxed
        model, whose prices tell where an exact one must look. None: all steps are single.
    """

    problem: Problem
    round_: MicroserviceRound
    slack: float = SLACK
    around: Ints | None = None

    @cached_property
    def spread(self) -> Ints:
        """Steps of each unit, shape (U,)."""
        if self._grid is None:
            return self.problem.most - self.problem.least
        return np.array([grid.size - 1 for grid in self._grid], dtype=np.int64)

    @cached_property
    def _grid(self) -> list[Ints] | None:
        """Counts that steps lead to and from, by unit."""
        if self.around is None:
            return None
        bounds = (self.problem.least, self.problem.most, self.around)
        return [_spaced(*ends) for ends in zip(*(part.tolist() for part in bounds), strict=True)]

    @cached_property
    def unit(self) -> Ints:
        """Unit of each step, shape (L,)."""
        return np.repeat(np.arange(self.spread.size), self.spread)

    @cached_property
    def first(self) -> Ints:
        """First step of each unit, shape (U,)."""
        return cast(Ints, np.cumsum(self.spread) - self.spread)

    @cached_property
    def reached(self) -> Ints:
        """Count that each step leads to, shape (L,)."""
        if self._grid is not None:
            return np.concatenate([grid[1:] for grid in self._grid])
        inside = np.arange(self.unit.size) - self.first[self.unit]
        return self.problem.least[self.unit] + inside + 1

    @cached_property
    def left(self) -> Ints:
        """Count that each step leads from, shape (L,)."""
        if self._grid is not None:
            return np.concatenate([grid[:-1] for grid in self._grid])
        return self.reached - 1

    @cached_property
    def wide(self) -> Ints:
        """Stages with several members."""
        return np.flatnonzero(self.problem.forest.width > 1)

    @cached_property
    def pair(self) -> tuple[Ints, Ints]:
        """Calls and the steps of their units, in pairs, shape (P,) each."""
        spread = self.spread[self.problem.unit]
        call = np.repeat(np.arange(self.problem.forest.calls), spread)
        inside = np.arange(call.size) - np.repeat(np.cumsum(spread) - spread, spread)
        return call, self.first[self.problem.unit[call]] + inside

    @cached_property
    def saved(self) -> Floats:
        """What a call saves by a step of its unit, shape (P,)."""
        call, step = self.pair
        after = self._own(call, self.reached[step])
        return self._own(call, self.left[step]) - after

    @cached_property
    def bent(self) -> Bools:
        """Units in which a step saves some call more than the one before, shape (U,)."""
        call, _ = self.pair
        follows = np.flatnonzero(call[1:] == call[:-1]) + 1
        more = self.saved[follows] > self.saved[follows - 1] * (1.0 + _CONVEX) + _CONVEX
        out = np.zeros(self.spread.size, dtype=np.bool_)
        out[self.problem.unit[call[follows[more]]]] = True
        return out

    def _own(self, call: Ints, count: Ints) -> Floats:
        problem, forest = self.problem, self.problem.forest
        load = problem.work[call] / np.maximum(count, 1)
        own = latency_ms(problem.linear, forest.microservice[call], load)
        return forest.repeats[call] * own

    @cached_property
    def model(self) -> Model:
        """The model."""
        problem, kinds = self.problem, self.round_.microservices
        builder = ModelBuilder("erms")
        names, exact = kinds.id[problem.microservice].tolist(), self.around is None
        units: Ints = np.arange(self.spread.size)
        count = builder.columns(
            "count", units.size, lower=problem.least, upper=problem.most, integer=exact,
            axes=(Axis("microservice", names, codes=units),),
        )  # fmt: skip
        values, at = np.unique(self.reached, return_inverse=True)
        counts = [str(value) for value in values.tolist()]
        step = builder.columns(
            "step", self.unit.size, integer=exact & self.bent[self.unit],
            axes=(Axis("microservice", names, codes=self.unit), Axis("count", counts, codes=at)),
        )  # fmt: skip
        builder.rows(
            "steps", units.size, row=np.concatenate((units, self.unit)),
            column=np.concatenate((count, step)),
            value=np.concatenate((np.ones(units.size), self.left - self.reached)),
            lower=problem.least, upper=problem.least,
        )  # fmt: skip
        later = np.flatnonzero(self.bent[self.unit] & (self.left > problem.least[self.unit]))
        rows: Ints = np.arange(later.size)
        builder.rows(
            "order", later.size, row=np.concatenate((rows, rows)),
            column=np.concatenate((step[later - 1], step[later])),
            value=np.concatenate((np.ones(later.size), -np.ones(later.size))), lower=0.0,
        )  # fmt: skip
        self._times(builder, step)
        self._capacities(builder, count)
        builder.objective("cost", column=count, value=problem.cost)
        return builder.build()

    def _times(self, builder: ModelBuilder, step: Ints) -> None:
        """Sum every call into the row it counts for: its request's, or a stage above it."""
        problem, forest = self.problem, self.problem.forest
        target = problem.target_ms * (1.0 + self.slack)
        row_of, upper = forest.rows(target)
        calls: Ints = np.arange(forest.calls)
        slowest = self._own(calls, problem.least[problem.unit])
        np.subtract.at(upper, row_of[calls], slowest)
        call, which = self.pair
        beside = np.flatnonzero(forest.width[forest.stage] > 1)
        ends = builder.columns("stage_ms", self.wide.size, upper=float(target.max(initial=0.0)))
        end_of = np.full(forest.width.size, -1, dtype=np.int64)
        end_of[self.wide] = ends
        builder.rows(
            "time", upper.size,
            row=np.concatenate((row_of[call], row_of[forest.owner[self.wide]], row_of[beside])),
            column=np.concatenate((step[which], ends, end_of[forest.stage[beside]])),
            value=np.concatenate((-self.saved, np.ones(self.wide.size), -np.ones(beside.size))),
            upper=upper,
        )  # fmt: skip

    def _capacities(self, builder: ModelBuilder, count: Ints) -> None:
        problem, kinds = self.problem, self.round_.microservices
        cpu, memory = room(self.round_)
        limits = (("cpu_cores", kinds.cpu_cores, cpu), ("memory_mib", kinds.memory_mib, memory))
        for name, size, limit in limits:
            if np.isfinite(limit):
                value = size[problem.microservice]
                builder.rows(name, 1, row=0, column=count, value=value, upper=limit)
        least = problem.total_least
        if least is not None:
            builder.rows(
                "total", least.size, row=problem.microservice, column=count, value=1.0,
                lower=least, upper=kinds.most_containers,
            )  # fmt: skip

    def multipliers(self, duals: Floats) -> tuple[Floats, Floats]:
        """Read what a millisecond is worth, for each call and for each request, from row duals.

        Of a stage's worth each member gets its part, so that whatever the duals are, the calls'
        times at their worth never exceed the requests' times at theirs.

        Parameters
        ----------
        duals
            Of the relaxed model, shape (rows,).
        """
        forest = self.problem.forest
        block = next(block for block in self.model.row_blocks if block.name == "time")
        worth = np.maximum(-duals[block.start : block.start + block.size], 0.0)
        row, _ = forest.rows(self.problem.target_ms)
        node = np.zeros(forest.calls + forest.root_service.size)
        node[forest.calls :] = worth[: forest.root_service.size]
        beside = forest.width[forest.stage] > 1
        part = np.where(beside, worth[row[: forest.calls]], 1.0)
        whole = np.bincount(forest.stage, weights=part, minlength=forest.width.size)
        for members in forest.members:
            stage = forest.stage[members]
            even = 1.0 / forest.width[stage]
            share = np.divide(part[members], whole[stage], out=even, where=whole[stage] > 0)
            node[members] = node[forest.owner[stage]] * share
        return node[: forest.calls], node[forest.calls :]

    def point(self, counts: Ints) -> Floats:
        """Columns of a plan within the bounds."""
        taken = self.reached <= counts[self.unit]
        _, stage = self.problem.forest.latency(self.problem.own_ms(counts))
        return np.concatenate((counts, taken, stage[self.wide])).astype(np.float64)

    def counts(self, point: Floats) -> Ints:
        """Read the plan from columns."""
        return np.round(point[: self.spread.size]).astype(np.int64)


def _spaced(least: int, most: int, around: int) -> Ints:
    """Counts from one bound to the other, the denser the nearer to a given one."""
    reach = 2 ** np.arange(max(most - least, 1).bit_length() + 1)
    near = np.concatenate(([least, most, around], around - reach, around + reach))
    return np.unique(np.clip(near, least, most)).astype(np.int64)
