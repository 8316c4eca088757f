"""Least attained service: the smallest weighted share of any job is as large as it can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from apportion.formulations.training.gavel.base import (
    Gavel,
    equal_share,
    inside,
    notes_on_left_out,
    proved,
    raised,
)
from apportion.formulations.training.gavel.hierarchy import Entities, fill_entities
from apportion.formulations.training.gavel.levels import Levels
from apportion.formulations.training.time_share_program import Fractions
from apportion.formulations.training.time_shares import Sharers
from apportion.instances.columns import Floats
from apportion.solver import Budget, Model, Sharing, Solution, Solver, water_filling


@dataclass(frozen=True)
class GavelLAS(Gavel):
    """Max-min of weighted shares (Gavel's heterogeneity-aware least attained service).

    The level of a job is its speed over its speed on an equal share of the free GPUs, times its
    GPUs, over its weight.

    Parameters
    ----------
    recompute_s, work_conserving
        As in ``Gavel``.
    aware
        False: all types count as equally fast for a job that can use them.
    levels
        ``max-min``: the smallest level is as large as possible. ``lexicographic``: then the second
        smallest, and so on, exactly, ties included.
    tenants
        ``ignored``, or what a tenant does with its share: ``fairness`` splits it by the weights of
        its jobs that can still rise, ``fifo`` gives all of it to the first of them. Tenants fill
        up by their weights, whatever ``levels`` says.
    """

    name: ClassVar[str] = "gavel-las"
    traits: ClassVar[frozenset[str]] = frozenset({"permutation", "unit_homogeneous"})

    aware: bool = True
    levels: Literal["max-min", "lexicographic"] = "max-min"
    tenants: Literal["ignored", "fairness", "fifo"] = "ignored"

    @classmethod
    def choices(cls) -> dict[str, tuple[str, ...]]:
        """Values of the parameters with a list of them."""
        return {
            "levels": ("max-min", "lexicographic"),
            "tenants": ("ignored", "fairness", "fifo"),
        }

    def levels_of(self, sharers: Sharers) -> Levels:
        """Levels before weights of tenants."""
        speed = sharers.speed if self.aware else (sharers.speed > 0.0).astype(np.float64)
        scale = sharers.gang / equal_share(sharers, speed)
        if self.tenants == "ignored":
            scale = scale / sharers.weight
        return Levels(sharers, speed, scale)

    def fractions(self, sharers: Sharers, solver: Solver, budget: Budget) -> Fractions:
        """Share the free GPUs."""
        levels = self.levels_of(sharers)
        notes = notes_on_left_out(sharers)
        if self.tenants != "ignored":
            filled = fill_entities(levels, self.entities(sharers), solver, budget)
            value = self.value(sharers, filled.x)
            answer = proved(
                filled.x, value, filled.bound, solver.gap, notes=(*notes, *filled.notes),
                time_limited=not filled.finished and budget.expired(),
            )  # fmt: skip
            return answer if filled.finished else replace(answer, status="FEASIBLE")
        if self.levels == "lexicographic":
            x = self._filled(levels, budget)
            # the water stops where the LP of the first level is proved optimal
            value = float(levels.of(x).min())
            return proved(x, value, value, solver.gap, notes=notes)
        found = levels.largest(solver, budget)
        value = float(levels.of(found.x).min())
        return proved(
            found.x, value, found.bound, solver.gap, notes=notes, time_limited=found.time_limited,
            proof=found.proof,
        )  # fmt: skip

    @staticmethod
    def _filled(levels: Levels, budget: Budget) -> Floats:
        sharers = levels.sharers
        sharing = Sharing(levels.speed, sharers.gang, sharers.capacity, levels.scale / levels.unit)
        filled = water_filling(sharing, budget=budget)
        need = filled.levels * levels.unit / levels.scale
        return inside(sharers, raised(filled.x, levels.speed, need))

    def entities(self, sharers: Sharers) -> Entities:
        """Tenants of the jobs that share, and who of them comes first."""
        round_, rows = sharers.round_, sharers.rows
        jobs = round_.jobs
        return Entities(
            of_job=jobs.tenant[rows],
            weight=round_.tenants.weight,
            job_weight=sharers.weight,
            turn=np.lexsort((jobs.code[rows], jobs.arrival_s[rows])),
            first_only=self.tenants == "fifo",
        )

    def value(self, sharers: Sharers, x: Floats) -> float:
        """Smallest level; with tenants, the smallest in parts of what each should rise by first."""
        level = self.levels_of(sharers).of(x)
        if self.tenants == "ignored":
            return float(level.min())
        part = self.entities(sharers).parts(np.ones(level.size, dtype=np.bool_))
        return float((level[part > 0.0] / part[part > 0.0]).min())

    def model_of(self, sharers: Sharers) -> Model | None:
        """The LP of the largest common level; None where levels are filled one by one."""
        if self.levels == "lexicographic" or self.tenants != "ignored":
            return None
        return self.levels_of(sharers).model()

    def bound_of(self, sharers: Sharers, solution: Solution) -> float | None:
        """Bound on the level from a solution of the model."""
        return self.levels_of(sharers).bound_of(solution)
