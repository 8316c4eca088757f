"""Inspired by Ursa: load thresholds and percentiles for each microservice, chosen by a MILP."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from apportion.formulations.microservices.baselines.sizing import Sizing
from apportion.formulations.microservices.forest import Forest
from apportion.formulations.microservices.plain import SLACK, decided, require_between, room
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.microservices import MicroserviceRound
from apportion.instances.microservices.laws import rates
from apportion.solver import Axis, Model, ModelBuilder, Solution, Solver, Status

_MOST_COLUMNS = 50_000
"""Columns beyond which the model is not tried: HiGHS takes minutes for larger ones."""


_NO_CHOICE = (
    "no choice of thresholds meets all targets by the union bound; the lowest thresholds are taken"
)


@dataclass(frozen=True, eq=False)
class _Choices:
    """Counts of each microservice to choose from, one row each.

    Parameters
    ----------
    microservice, count
        Shape (L,).
    rate_per_ms
        Rate of a call with so many containers, positive, shape (L,).
    """

    microservice: Ints
    count: Ints
    rate_per_ms: Floats

    @classmethod
    def of(cls, round_: MicroserviceRound, levels: int) -> _Choices:
        """List the counts at evenly spaced utilisations; those without a rate are left out."""
        sizing = Sizing.of_services(round_)
        plans = [sizing.at((at + 1) / levels) for at in range(levels)]
        table = np.stack(plans, axis=1)
        row, count = np.unique(
            np.stack((np.repeat(np.arange(len(round_.microservices)), levels), table.reshape(-1))),
            axis=1,
        )
        calls = round_.calls_per_s[row]
        with np.errstate(divide="ignore", invalid="ignore"):
            load = np.where(calls > 0, calls / count, 0.0)
        kinds = round_.microservices
        full = np.full((len(kinds), row.size), np.inf)
        full[row, np.arange(row.size)] = load
        rate = rates(kinds, full)[row, np.arange(row.size)]
        good = (rate > 0) | (calls <= 0)
        return cls(row[good], count[good], np.where(rate > 0, rate, 1.0)[good])


@dataclass(frozen=True, eq=False)
class UrsaProgram:
    """A compiled round.

    Parameters
    ----------
    round_
        The round.
    levels, parts
        As in the policy.
    """

    round_: MicroserviceRound
    levels: int
    parts: int

    @cached_property
    def forest(self) -> Forest:
        """The calls of the classes that occur."""
        return Forest.of(self.round_)

    @cached_property
    def choices(self) -> _Choices:
        """Counts to choose from."""
        return _Choices.of(self.round_, self.levels)

    @cached_property
    def miss(self) -> Floats:
        """Shares of a violation budget that one call may use up, shape (J,)."""
        return np.exp2(-np.arange(self.parts, dtype=np.float64))

    @cached_property
    def pair(self) -> tuple[Ints, Ints]:
        """Calls and the levels of their microservices, in pairs, shape (P,) each."""
        level_of, called = self.choices.microservice, self.forest.microservice
        first = np.searchsorted(level_of, called, side="left")
        count = np.searchsorted(level_of, called, side="right") - first
        call = np.repeat(np.arange(called.size), count)
        inside = np.arange(call.size) - np.repeat(np.cumsum(count) - count, count)
        return call, first[call] + inside

    @cached_property
    def overloaded(self) -> Bools:
        """Microservices whose calls no count within the bounds carries, shape (M,)."""
        known = np.isin(np.arange(len(self.round_.microservices)), self.choices.microservice)
        return ~known & (self.round_.calls_per_s > 0)

    @property
    def columns(self) -> int:
        """Columns of the model, stages left out."""
        return self.choices.count.size + self.pair[0].size * self.parts

    @cached_property
    def model(self) -> Model | None:
        """Columns ``level``, ``part[call, level, share]``, ``stage_ms``; None where too large.

        Only levels are whole. A mixture of two shares stands for the share between them, at a
        latency on the chord, which lies above the curve of the logarithm: that errs safely.
        Rows: ``one_level[microservice]``; ``follows``, a call takes its part at the level chosen;
        ``budget[request]``, shares add up to 1 at most; ``time`` as in the forest; capacities.
        """
        if self.columns > _MOST_COLUMNS:
            return None
        forest, choices, kinds = self.forest, self.choices, self.round_.microservices
        call, level_of = self.pair
        builder = ModelBuilder("ursa")
        level = builder.columns("level", choices.count.size, integer=True)
        part = builder.columns("part", (call.size, self.parts))
        present = np.unique(choices.microservice)
        builder.rows(
            "one_level", len(kinds), row=choices.microservice, column=level, value=1.0,
            lower=np.isin(np.arange(len(kinds)), present).astype(float), upper=1.0,
            axes=(Axis("microservice", kinds.id.tolist()),),
        )  # fmt: skip
        pairs = np.arange(call.size)
        builder.rows(
            "follows", call.size,
            row=np.concatenate((np.repeat(pairs, self.parts), pairs)),
            column=np.concatenate((part.reshape(-1), level[level_of])),
            value=np.concatenate((np.ones(part.size), -np.ones(call.size))), lower=0.0, upper=0.0,
        )  # fmt: skip
        builder.rows(
            "budget", forest.root_service.size, row=np.repeat(forest.root[call], self.parts),
            column=part.reshape(-1), value=np.tile(self.miss, call.size), upper=1.0,
        )  # fmt: skip
        self._times(builder, part)
        for name, size, limit in zip(
            ("cpu_cores", "memory_mib"), (kinds.cpu_cores, kinds.memory_mib), room(self.round_),
            strict=True,
        ):  # fmt: skip
            if np.isfinite(limit):
                value = size[choices.microservice] * choices.count
                builder.rows(name, 1, row=0, column=level, value=value, upper=limit)
        cost = kinds.cost[choices.microservice] * choices.count
        builder.objective("cost", column=level, value=cost)
        return builder.build()

    def _times(self, builder: ModelBuilder, part: Ints) -> None:
        forest, (call, level_of) = self.forest, self.pair
        services, kinds = self.round_.services, self.round_.microservices
        budget = services.violation_budget[forest.service[call]][:, None] * self.miss
        mean = forest.repeats[call] / self.choices.rate_per_ms[level_of]
        shift = forest.repeats[call] * kinds.shift_ms[forest.microservice[call]]
        own = shift[:, None] - mean[:, None] * np.log(budget)
        target = services.target_ms[forest.root_service] * (1.0 + SLACK)
        row, upper = forest.rows(target)
        wide = np.flatnonzero(forest.width > 1)
        longest = float(target.max(initial=0.0))
        ends = builder.columns("stage_ms", wide.size, upper=longest)
        end_of = np.full(forest.width.size, -1, dtype=np.int64)
        end_of[wide] = ends
        beside = np.flatnonzero(forest.width[forest.stage] > 1)
        late = own > longest  # no target leaves room for it; huge numbers do models no good
        call_of = np.repeat(row[call], self.parts)
        builder.rows(
            "time", upper.size,
            row=np.concatenate((call_of, row[forest.owner[wide]], row[beside])),
            column=np.concatenate((part.reshape(-1), ends, end_of[forest.stage[beside]])),
            value=np.concatenate((
                np.where(late, 2.0 * longest, own).reshape(-1), np.ones(wide.size),
                -np.ones(beside.size),
            )),
            upper=upper,
        )  # fmt: skip

    def incumbent(self) -> Decision:
        """Decide by one utilisation for all."""
        start = time.perf_counter()
        return decided(
            self.round_, Sizing.of_services(self.round_).even(), start=start, stage="incumbent"
        )

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Solve the model; without a plan, answer with the incumbent."""
        if budget.left_s() <= 0:
            return replace(self.incumbent(), time_limited=True)
        model = self.model
        if model is None:
            note = f"the model of ursa has more than {_MOST_COLUMNS} columns and was not solved"
            plain = self.incumbent()
            return replace(plain, status="NO_SOLUTION", notes=(note, *plain.notes))
        if self.overloaded.any():
            return self._lowest()
        start = time.perf_counter()
        answer = solver.solve(model, budget=cast(Any, budget))
        if answer.status is Status.INFEASIBLE:
            return _said(self._lowest(), answer)
        if answer.point is None:
            return _said(self.incumbent(), answer)
        counts = np.zeros(len(self.round_.microservices))
        chosen = np.flatnonzero(answer.point[: self.choices.count.size] > 0.5)
        counts[self.choices.microservice[chosen]] = self.choices.count[chosen]
        return _said(decided(self.round_, counts, start=start, stage="levels"), answer)

    def _lowest(self) -> Decision:
        """Decide where no choice meets the targets: the lowest thresholds miss them least."""
        start = time.perf_counter()
        counts = Sizing.of_services(self.round_).at(1.0 / self.levels)
        lowest = decided(self.round_, counts, start=start, stage="lowest", notes=(_NO_CHOICE,))
        return replace(lowest, status="INFEASIBLE")


def _said(decision: Decision, answer: Solution) -> Decision:
    found = answer.point is not None
    ran = Stage("model", answer.elapsed_s, backend=answer.backend, note=answer.message)
    return replace(
        decision, status=answer.status.name, stages=(ran, *decision.stages),
        bound=answer.bound if found and answer.bounds else None,
        gap=answer.gap if found else None, time_limited=answer.time_limited,
    )  # fmt: skip


@dataclass(frozen=True)
class Ursa:
    """Fewest containers at load thresholds, so that percentiles add up to the SLA.

    Every call gets a part of its service's violation budget and a latency that it exceeds with
    that probability only; along a path the latencies add up to the target at most, over a request
    the parts to the budget (union bound). Every class of a service keeps its SLA by itself.

    Parameters
    ----------
    levels
        Load thresholds to choose from: that many even parts of the heaviest load.
    parts
        Parts of a violation budget between which is interpolated: 1, 1/2, 1/4, ...
    """

    family: ClassVar[str] = "microservices"
    source: ClassVar[str] = (
        "inspired by Ursa (HPCA 2024); see docs/systems/microservice-baselines.md"
    )
    name: ClassVar[str] = "ursa"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "idle_class", "unit_homogeneous"})

    levels: int = 10
    parts: int = 8

    def __post_init__(self) -> None:
        require_between(self.name, "levels", self.levels, 1, 1000)
        require_between(self.name, "parts", self.parts, 1, 30)

    def compile(self, round_: MicroserviceRound, memory: Any, budget: Budget) -> UrsaProgram:
        """List thresholds and parts when the model is asked for."""
        return UrsaProgram(round_, int(self.levels), int(self.parts))

    def remember(
        self, memory: Any, round_: MicroserviceRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None
