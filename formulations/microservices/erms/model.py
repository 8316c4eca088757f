"""The exact form: one binary for each microservice and count, and the latency of every path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from apportion.formulations.microservices.erms.latency import latency_ms
from apportion.formulations.microservices.erms.problem import Problem
from apportion.formulations.microservices.plain import SLACK, room
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.solver import Axis, Model, ModelBuilder


@dataclass(frozen=True, eq=False)
class LevelModel:
    """A problem with finite bounds as a model.

    Columns: ``level[unit, count]`` binary; ``stage_ms[stage]``, the latency of a stage with
    several members. Rows: ``one_level[unit]``; ``time``, first a request each, then a member of
    such a stage each: it ends within the stage; ``cpu_cores`` and ``memory_mib`` where they are limited;
    ``total[microservice]`` where units of one microservice share its bounds.

    Parameters
    ----------
    problem
        Units with bounds that are near enough to list what lies between.
    round_
        The round: names, capacities, bounds.
    slack
        Relative slack of the targets.
    """

    problem: Problem
    round_: MicroserviceRound
    slack: float = SLACK

    @cached_property
    def spread(self) -> Ints:
        """Levels of each unit, shape (U,)."""
        return self.problem.most - self.problem.least + 1

    @cached_property
    def unit(self) -> Ints:
        """Unit of each level, shape (L,)."""
        return np.repeat(np.arange(self.spread.size), self.spread)

    @cached_property
    def first(self) -> Ints:
        """First level of each unit, shape (U,)."""
        return cast(Ints, np.cumsum(self.spread) - self.spread)

    @cached_property
    def count(self) -> Ints:
        """Containers of each level, shape (L,)."""
        return self.problem.least[self.unit] + np.arange(self.unit.size) - self.first[self.unit]

    @cached_property
    def wide(self) -> Ints:
        """Stages with several members."""
        return np.flatnonzero(self.problem.forest.width > 1)

    @cached_property
    def model(self) -> Model:
        """The model."""
        problem = self.problem
        kinds = self.round_.microservices
        builder = ModelBuilder("erms")
        names = kinds.id[problem.microservice].tolist()
        counts = [str(value) for value in np.unique(self.count)]
        at = np.searchsorted(np.unique(self.count), self.count)
        level = builder.columns(
            "level", self.unit.size, integer=True,
            axes=(Axis("unit", names, codes=self.unit), Axis("count", counts, codes=at)),
        )  # fmt: skip
        ends = builder.columns("stage_ms", self.wide.size, upper=self._longest)
        builder.rows(
            "one_level", self.spread.size, row=self.unit, column=level, value=1.0, lower=1.0,
            upper=1.0,
        )  # fmt: skip
        self._times(builder, level, ends)
        self._capacities(builder, level)
        builder.objective("cost", column=level, value=problem.cost[self.unit] * self.count)
        return builder.build()

    @cached_property
    def _longest(self) -> float:
        return float(self.problem.target_ms.max(initial=0.0)) * (1.0 + max(self.slack, 0.0))

    def _times(self, builder: ModelBuilder, level: Ints, ends: Ints) -> None:
        """Sum every call into the row it counts for: its request's, or a stage above it."""
        problem, forest = self.problem, self.problem.forest
        row_of, upper = forest.rows(problem.target_ms * (1.0 + self.slack))
        spread = self.spread[problem.unit]
        call = np.repeat(np.arange(forest.calls), spread)
        inside = np.arange(call.size) - np.repeat(np.cumsum(spread) - spread, spread)
        which = self.first[problem.unit[call]] + inside
        load = problem.work[call] / np.maximum(self.count[which], 1)
        own = forest.repeats[call] * latency_ms(problem.linear, forest.microservice[call], load)
        over = np.flatnonzero(forest.width[forest.stage] > 1)
        end_of = np.full(forest.width.size, -1, dtype=np.int64)
        end_of[self.wide] = ends
        builder.rows(
            "time", upper.size,
            row=np.concatenate((row_of[call], row_of[forest.owner[self.wide]], row_of[over])),
            column=np.concatenate((level[which], ends, end_of[forest.stage[over]])),
            value=np.concatenate((own, np.ones(self.wide.size), -np.ones(over.size))),
            upper=upper,
        )  # fmt: skip

    def _capacities(self, builder: ModelBuilder, level: Ints) -> None:
        problem, kinds = self.problem, self.round_.microservices
        cpu, memory = room(self.round_)
        limits = (("cpu_cores", kinds.cpu_cores, cpu), ("memory_mib", kinds.memory_mib, memory))
        for name, size, limit in limits:
            if np.isfinite(limit):
                value = size[problem.microservice][self.unit] * self.count
                builder.rows(name, 1, row=0, column=level, value=value, upper=limit)
        least = problem.total_least
        if least is not None:
            builder.rows(
                "total", least.size, row=problem.microservice[self.unit], column=level,
                value=self.count, lower=least, upper=kinds.most_containers,
            )  # fmt: skip

    def point(self, counts: Ints) -> Floats:
        """Columns of a plan within the bounds."""
        out = np.zeros(self.unit.size + self.wide.size)
        out[self.first + counts - self.problem.least] = 1.0
        _, stage = self.problem.forest.latency(self.problem.own_ms(counts))
        out[self.unit.size :] = stage[self.wide]
        return out

    def counts(self, point: Floats) -> Ints:
        """Read the plan from columns."""
        chosen = np.flatnonzero(point[: self.unit.size] > 0.5)
        out = self.problem.least.copy()
        out[self.unit[chosen]] = self.count[chosen]
        return out
