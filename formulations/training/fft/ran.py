"""Which back end answered which model, so that stages can name it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from numpy.typing import ArrayLike

from apportion.instances import Stage
from apportion.solver import Budget, Model, Solution, Solver

MODELS = {"lp": "choice-lp", "core": "choice-core", "milp": "choice", "most_gpus": ""}
"""Name of the model behind each stage; empty: any of them."""


@dataclass(frozen=True)
class Ran:
    """One solve: name and columns of the model, the back end, and those that were passed over."""

    model: str
    columns: int
    backend: str
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class NotingSolver(Solver):
    """A solver that notes what ran; what it is copied to notes in the same list.

    Parameters
    ----------
    asked
        Who solves.
    ran
        What was solved, in order.
    """

    asked: Solver = field(default_factory=Solver)
    ran: list[Ran] = field(default_factory=list[Ran], compare=False, repr=False)

    @classmethod
    def of(cls, solver: Solver) -> NotingSolver:
        """Note what a solver does."""
        return cls(
            gap=solver.gap, backend=solver.backend, seed=solver.seed, threads=solver.threads,
            work_limit=solver.work_limit, asked=solver,
        )  # fmt: skip

    def solve(
        self, model: Model, *, budget: Budget, warm_start: ArrayLike | None = None
    ) -> Solution:
        """Solve a model as the solver asked does."""
        own = replace(self.asked, gap=self.gap, backend=self.backend)
        found = own.solve(model, budget=budget, warm_start=warm_start)
        self.ran.append(Ran(model.name, model.column_count, found.backend, found.skipped))
        return found

    def told(self, stage: Stage) -> Stage:
        """Give a stage with the back end that ran in it; of several solves the last one's.

        A core is found by its number of columns, which its note begins with: cores without any
        are not solved.
        """
        name = MODELS.get(stage.name)
        if name is None:
            return stage
        own = [
            one
            for one in self.ran
            if one.model == name or (not name and one.model.startswith("choice"))
        ]
        if stage.name == "core":
            own = [one for one in own if stage.note.startswith(f"{one.columns} options ")]
        if not own:
            return stage
        skipped = tuple(dict.fromkeys(each for one in own for each in one.skipped))
        return with_skipped(replace(stage, backend=own[-1].backend), skipped)


def with_skipped(stage: Stage, skipped: tuple[str, ...]) -> Stage:
    """Name the back ends that were passed over in a stage's note."""
    if not skipped:
        return stage
    note = f"passed over: {'; '.join(skipped)}"
    return replace(stage, note=f"{stage.note}; {note}" if stage.note else note)
