"""What if, asked of a program's own model: a single solve as it is, and one for every change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from apportion.instances.columns import Floats
from apportion.questions.wording import Words, block_at, labels
from apportion.solver import Budget, Model, Solution, Solver, Status

STEP = 1e-6
"""Part of an objective by which it is moved to see what the policy makes of it: small beside what
curves, large beside rounding."""

SAME = 1e-5
"""Relative difference up to which two optima are the same: points are moved back into their rules
by ten times what codes allow, and ratios of small numbers carry that on."""

NOTHING = 1e-9
"""Prices below it, in parts of the objective, are rounding."""


@runtime_checkable
class Valued(Protocol):
    """A program whose objective is not that of its model, but can be read off it."""

    def value_of(self, solution: Solution) -> float | None:
        """Objective of the policy where the model's is that of a solution; None: it has none."""
        ...


@runtime_checkable
class Resizable(Protocol):
    """A program that can be given more GPUs."""

    @property
    def held(self) -> Any:
        """Leases that go on, and the GPUs they leave."""
        ...

    @property
    def model(self) -> Model | None:
        """The model."""
        ...

    def with_gpus(self, kind: int, more: int) -> Resizable:
        """Give the program with so many GPUs more of a type."""
        ...


@dataclass(frozen=True)
class Moved:
    """What a change of the model makes of the policy's objective.

    Parameters
    ----------
    status
        Of the changed model.
    change
        Change of the policy's objective; None where no optimum was proved, or it has none.
    """

    status: Status
    change: float | None


@dataclass(eq=False)
class ModelQuestions:
    """A program's model, and how it is solved.

    Parameters
    ----------
    program
        The compiled round.
    model
        Its model, perhaps with side rules.
    solver, budget
        How to solve, and until when.
    """

    program: Any
    model: Model
    solver: Solver
    budget: Budget

    @classmethod
    def of(
        cls, program: Any, model: Model | None, solver: Solver, budget: Budget
    ) -> ModelQuestions | None:
        """Ask a program that has a model with columns; None for others.

        A program whose model is only a part of what it solves says so by ``model_is_part``.
        """
        if model is None or not model.column_count or getattr(program, "model_is_part", False):
            return None
        return cls(program, _loosened(program, model), replace(solver, gap=0.0), budget)

    @cached_property
    def base(self) -> Solution:
        """The model solved as it is."""
        return self.solver.solve(self.model, budget=self.budget)

    @property
    def solved(self) -> bool:
        """Whether an optimum was proved, without which there are no differences."""
        return self.base.status is Status.OPTIMAL

    @property
    def no_plan(self) -> bool:
        """Whether the model is impossible."""
        return self.base.status is Status.INFEASIBLE

    @property
    def has_jobs(self) -> bool:
        """Whether jobs have columns of their own."""
        return bool(self._columns)

    @cached_property
    def words(self) -> Words:
        """Rows as texts."""
        own: Model | None = self.program.model
        return Words(self.program, self.model, self.model if own is None else own)

    def value(self, solution: Solution) -> float | None:
        """Objective of the policy at a solution, of the first one where there are several."""
        return _value(self.program, solution)

    def agrees(self, objective: float | None) -> bool:
        """Whether the model's optimum is the objective that the policy states."""
        value = self.value(self.base)
        if value is None or objective is None:
            return False
        return abs(value - objective) <= SAME * max(abs(value), abs(objective))

    def changes(self, moved: Floats) -> Floats:
        """Changes of the policy's objective where that of the model changes by so much."""
        if not isinstance(self.program, Valued):
            return moved
        base, start = self.base.objective, self.value(self.base)
        out = np.full(moved.shape, np.nan)
        for place, change in np.ndenumerate(moved):
            at = base + float(change)
            now = self.program.value_of(replace(self.base, objectives=(at,), bounds=(at,)))
            if start is not None and now is not None and np.isfinite(at):
                out[place] = now - start
        return out

    @property
    def resizable(self) -> bool:
        """Whether the program itself can be given more GPUs."""
        return isinstance(self.program, Resizable)

    @property
    def in_gpus(self) -> bool:
        """Whether the limits of GPU types are numbers of GPUs."""
        return all(self.step(row) == 1.0 for row in self.rows_by("type"))

    def step(self, row: int) -> float:
        """By how much one GPU more raises the limit of a type's row."""
        kind = self.rows_by("type")[row][1]
        more = self._with_gpus(kind, 1)
        wider = None if more is None else more.model
        if wider is None or wider.row_upper.shape != self.model.row_upper.shape:
            return 1.0
        return float(wider.row_upper[row]) - float(self.model.row_upper[row])

    def with_gpus(self, kind: str, more: int) -> float:
        """Change of the policy's objective with more GPUs of a type; NaN where none was proved."""
        changed = self._with_gpus(kind, more)
        if changed is None or changed.model is None:
            return np.nan
        found = self.solver.solve(changed.model, budget=self.budget)
        before, after = self.value(self.base), _value(changed, found)
        return np.nan if before is None or after is None else after - before

    def _with_gpus(self, kind: str, more: int) -> Resizable | None:
        """The program with more GPUs, or None where it cannot be given them, or has fewer."""
        program: Any = self.program
        if not self.resizable:
            return None
        types: list[str] = program.round_.cluster.types.tolist()
        at = types.index(kind)
        if int(program.held.free[at]) + more < 0:
            return None
        changed: Resizable = program.with_gpus(at, more)
        return changed

    def binds(self, row: int) -> bool:
        """Whether a row has a price; in models without duals, whether its side is reached."""
        if not self.solved:
            return False
        if self.duals is not None:
            return abs(float(self.duals[row])) > NOTHING * max(1.0, float(np.abs(self.duals).max()))
        use = float(self.model.activity(self.base.x)[row])
        sides = np.array([self.model.row_lower[row], self.model.row_upper[row]])
        return bool((np.abs(sides - use) <= SAME * np.maximum(1.0, np.abs(use))).any())

    def forced(self, job: str, kind: str | None) -> Moved | None:
        """Solve again with a job on a type, or nowhere; None where it has no such column.

        Parameters
        ----------
        job, kind
            Name of the job, and of the type or None.
        """
        own = self.columns_of(job)
        lower, upper = self.model.lower.copy(), self.model.upper.copy()
        if kind is None:
            upper[list(own.values())] = 0.0
        elif kind not in own:
            return None
        else:
            lower[own[kind]] = min(1.0, float(upper[own[kind]]))
        if (lower > upper).any():
            return Moved(Status.INFEASIBLE, None)
        return self._moved(replace(self.model, lower=lower, upper=upper))

    def _moved(self, model: Model) -> Moved:
        found = self.solver.solve(model, budget=self.budget)
        before, after = self.value(self.base), self.value(found)
        if before is None or after is None:
            return Moved(found.status, None)
        return Moved(found.status, after - before)

    def columns_of(self, job: str) -> dict[str, int]:
        """Columns of a job by GPU type; empty where the model has no such columns."""
        return self._columns.get(job, {})

    @cached_property
    def _columns(self) -> dict[str, dict[str, int]]:
        out: dict[str, dict[str, int]] = {}
        for block in self.model.column_blocks:
            if {axis.name for axis in block.axes} == {"job", "type"} and not out:
                for place in range(block.size):
                    at = labels(block, place)
                    out.setdefault(at["job"], {})[at["type"]] = block.start + place
        return out

    @cached_property
    def duals(self) -> Floats | None:
        """Change of the policy's objective per unit by which each row's side is raised."""
        if len(self.model.objectives) > 1 or not self.solved or self.base.duals is None:
            return None
        return np.asarray(self.base.duals, dtype=np.float64) * self.slope

    @cached_property
    def slope(self) -> float:
        """Change of the policy's objective per unit of the model's."""
        if not isinstance(self.program, Valued):
            return 1.0
        at = self.base.objective
        step = STEP * max(abs(at), STEP)
        low, high = (
            self.program.value_of(replace(self.base, objectives=(one,), bounds=(one,)))
            for one in (at - step, at + step)
        )
        return np.nan if low is None or high is None else (high - low) / (2.0 * step)

    def binding(self, axis: str, label: str) -> list[str]:
        """Rows of a job, user or tenant that have a price, in words."""
        return self._binding.get((axis, label), [])

    @cached_property
    def _binding(self) -> dict[tuple[str, str], list[str]]:
        out: dict[tuple[str, str], list[str]] = {}
        duals = self.duals
        if duals is None:
            return out
        least = NOTHING * max(1.0, float(np.abs(duals).max(initial=0.0)))
        for row in np.flatnonzero(np.abs(duals) > least).tolist():
            block = block_at(self.model.row_blocks, row)
            at = {} if block is None else labels(block, row - block.start)
            text = f"{self.words.of_row(row)} (price {abs(duals[row]):.4g})" if at else ""
            for axis, label in at.items():
                out.setdefault((axis, label), []).append(text)
        return out

    def rows_by(self, axis: str) -> dict[int, tuple[str, str]]:
        """Rows of families with one axis of a name: family and label by row."""
        return {
            block.start + place: (block.name, str(block.axes[0].labels[place]))
            for block in self.model.row_blocks
            if len(block.axes) == 1 and block.axes[0].name == axis and block.axes[0].codes is None
            for place in range(block.size)
        }

    def prices_of_types(self) -> dict[str, float]:
        """What one GPU of each type is worth at the margin, from 0 on, by name of the type."""
        duals = self.duals
        if duals is None:
            return {}
        return {
            label: abs(float(duals[row]))
            for row, (name, label) in self.rows_by("type").items()
            if name == "capacity"
        }


def _loosened(program: Any, model: Model) -> Model:
    """Give the bounds of columns that follow from the number of GPUs room for more of them.

    They are there for proofs and follow from the rows; but where they are reached a price may
    stand at them, and not at the rows.
    """
    if not isinstance(program, Resizable):
        return model
    more: Resizable = program
    for kind, free in enumerate(program.held.free.tolist()):
        more = more.with_gpus(kind, free + 1)
    wider: Model | None = more.model
    if wider is None or wider.upper.shape != model.upper.shape:
        return model
    free = ~model.integer & (wider.upper >= model.upper)
    return replace(model, upper=np.where(free, wider.upper, model.upper))


def _value(program: Any, solution: Solution) -> float | None:
    if solution.status is not Status.OPTIMAL:
        return None
    return program.value_of(solution) if isinstance(program, Valued) else solution.objectives[0]
