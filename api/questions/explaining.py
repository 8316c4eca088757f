"""Why a round cannot be decided, or why each job got what it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from apportion.families.lookup import training_round
from apportion.instances import Policy
from apportion.instances.training import TrainingRound, never_fits
from apportion.promises import without_broken_promises
from apportion.questions.conflicts import Impossible, impossible
from apportion.questions.explanation import Explanation, JobReason, Option, TypeUse
from apportion.questions.model_questions import ModelQuestions
from apportion.questions.model_reasons import SharedReasons
from apportion.questions.priced_reasons import best_forced, options_of, types_of, why
from apportion.questions.promise_conflicts import clash
from apportion.questions.what_if import Questions, WhatIf
from apportion.registry import make_policy
from apportion.side_rules import SideRules
from apportion.solving import budget_of, solver_of

SMALL = 12
"""Rounds of up to so many jobs have every waiting job forced in without being asked."""


def explain(
    round_: TrainingRound | str | Path,
    policy: str | Policy = "fft",
    job: str | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    side_rules: SideRules | None = None,
    time_limit_s: float | None = 60.0,
    gap: float = 0.0,
    backend: str = "auto",
    seed: int = 0,
) -> Explanation:
    """Tell why a round is impossible, or why jobs got what they got.

    Where reservations cannot all be kept, or no plan obeys the policy's model: a smallest set of
    rules that are impossible together, and the cheapest repair. Further, for every job, what
    decided it: its share of time, its turn, and what binds by the model's prices; for the job asked
    for (in rounds of a dozen jobs for all that wait), what it would cost to force it in, by solving
    again.

    Parameters
    ----------
    round_
        A round, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults.
    job
        A job to look at in detail.
    memory
        The policy's memory.
    side_rules
        Rules of your own, as in ``solve``.
    time_limit_s
        Wall time for everything; a conflict that it cuts short is marked as not minimal.
    gap
        Relative gap of each optimum; differences are only as good as it.
    backend, seed
        Back end by name, and the seed of its random choices.

    Raises
    ------
    InstanceError
        On an unknown job, policy, parameter or memory.
    """
    budget = budget_of(time_limit_s)
    asked = training_round(round_, "explain")
    kept, given_up = without_broken_promises(asked)
    chosen = make_policy(policy, parameters)
    solver = solver_of(gap, backend, seed)
    ask = Questions(chosen, kept, memory, solver, budget, side_rules)
    tell = _Reasons(ask, job is None)
    row = None if job is None else ask.row(job)
    base = ask.base
    out = Explanation(
        chosen.name, "INFEASIBLE" if given_up else base.status, base.objective, job=job,
        notes=(*given_up, *base.notes),
    )  # fmt: skip
    if given_up:
        out = _with(out, clash(asked, solver, budget))
    elif base.status == "INFEASIBLE" or tell.no_plan:
        out = _with(out, impossible(ask))
    out = replace(out, jobs=tell.jobs(), types=tell.types(), notes=(*out.notes, *tell.notes()))
    if row is not None:
        out = replace(out, options=tell.options(row), notes=(*out.notes, *tell.notes_on_options()))
    return out


def _with(out: Explanation, found: Impossible) -> Explanation:
    return replace(
        out, conflict=found.conflict, minimal=found.minimal, repair=found.repair,
        notes=(*out.notes, *found.notes),
    )  # fmt: skip


@dataclass(eq=False)
class _Reasons:
    """The answers of one explanation: by costs and prices, by a model, or by what was shared."""

    ask: Questions
    each: bool

    @cached_property
    def model(self) -> ModelQuestions | None:
        """The model to ask, None for programs that answer what-ifs themselves or have none."""
        ask = self.ask
        if isinstance(ask.program, WhatIf):
            return None
        return ModelQuestions.of(ask.program, ask.model, ask.solver, ask.budget)

    @cached_property
    def shared(self) -> SharedReasons:
        return SharedReasons(self.ask, self.model)

    @property
    def no_plan(self) -> bool:
        """Whether the model is impossible, although the policy answered by giving rules up."""
        return self.model is not None and self.model.no_plan

    def jobs(self) -> tuple[JobReason, ...]:
        round_ = self.ask.round_
        hopeless = dict(never_fits(round_))
        types = round_.cluster.types.tolist()
        out: list[JobReason] = []
        for row, name in enumerate(round_.jobs.id.tolist()):
            kind = self.ask.kind_of(row)
            if row in hopeless:
                text, parts = f"can never start: {hopeless[row]}", dict[str, float]()
            else:
                text, parts = self._why(row, kind)
            out.append(JobReason(name, None if kind is None else str(types[kind]), text, parts))
        return tuple(out)

    def _why(self, row: int, kind: int | None) -> tuple[str, dict[str, float]]:
        ask, program = self.ask, self.ask.program
        deep = self.each and kind is None and len(ask.round_.jobs) <= SMALL
        if isinstance(program, WhatIf):
            text = why(ask, program, row, kind)
            if deep and ask.base.status == "OPTIMAL" and row in set(program.rows.tolist()):
                text += best_forced(ask, program, row)
            return text, {}
        text = self.shared.why(row, kind)
        if deep and self.model is not None and self.model.solved:
            text += self.shared.best_forced(row)
        if self.model is None and ask.base.status == "HEURISTIC":
            text = f"decided by the order of policy {ask.policy.name!r}, which has no model; {text}"
        return text, self.shared.parts(row)

    def types(self) -> tuple[TypeUse, ...]:
        if isinstance(self.ask.program, WhatIf):
            return types_of(self.ask, self.ask.program)
        if self.model is None and self.ask.base.status == "HEURISTIC":
            return ()
        return self.shared.types_of()

    def options(self, row: int) -> tuple[Option, ...]:
        if isinstance(self.ask.program, WhatIf):
            return options_of(self.ask, self.ask.program, row)
        return self.shared.options(row)

    def notes(self) -> tuple[str, ...]:
        model = self.model
        if model is None:
            return ()
        if model.duals is not None:
            return ("price: change of the policy's objective per unit, by the duals of its model",)
        if model.no_plan:
            return ("the policy's model is impossible as a whole: it answered by giving rules up",)
        return ()

    def notes_on_options(self) -> tuple[str, ...]:
        name, model = self.ask.policy.name, self.model
        if isinstance(self.ask.program, WhatIf):
            return ()
        if model is None and self.ask.base.status == "HEURISTIC":
            return (f"policy {name!r} has no model to ask what else could be",)
        if model is None:
            return (f"policy {name!r}: no single model says what else could be",)
        if not model.solved:
            return ("what else could be is not known: no optimum of the model was proved",)
        if not model.has_jobs:
            return ("what else a job could get is not known: the model shares among users",)
        return ()
