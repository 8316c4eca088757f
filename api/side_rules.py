"""Rules that a caller adds to a compiled round, in PuLP's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from apportion.instances import Decision, InstanceError
from apportion.solver import Block, Model, ModelError, from_pulp, pulp_variables, to_pulp

Variables: TypeAlias = Mapping[str, Mapping[str, Any]]
"""PuLP variables by job and GPU type; a job that cannot be placed has none."""

SideRules: TypeAlias = Callable[[Any, Variables], Any]
"""Takes a ``pulp.LpProblem`` and its variables; gives the problem back, or a model of ours."""


@runtime_checkable
class Extendable(Protocol):
    """A program whose model may be replaced by one with side rules."""

    @property
    def model(self) -> Model | None:
        """The model."""
        ...

    def with_model(self, model: Model) -> Any:
        """Give the program that solves this model instead."""
        ...


@runtime_checkable
class Mergeable(Protocol):
    """A program that merges identical jobs and can be told not to."""

    def apart(self) -> Any:
        """Give every job columns of its own."""
        ...


def extended(program: Any, side_rules: SideRules, name: str) -> tuple[Any, bool]:
    """Give a program with a caller's side rules, and whether they left its objectives alone.

    Parameters
    ----------
    program
        The compiled round.
    side_rules
        The caller's rules. What they raise is theirs and passes through.
    name
        Name of the policy, for messages.

    Raises
    ------
    InstanceError
        If the policy has no model to add rules to, or what comes back is not one.
    """
    own = program.apart() if isinstance(program, Mergeable) else program
    if not isinstance(own, Extendable) or own.model is None:
        raise InstanceError(f"side_rules: policy {name!r} has no model that rules can be added to")
    model = own.model
    try:
        problem = to_pulp(model, objective=len(model.objectives) - 1)
    except ModelError as error:
        raise InstanceError(f"side_rules: {error}") from None
    given = side_rules(problem, variables(problem, model))
    changed = _model(given, model)
    return own.with_model(changed), _same_objectives(model, changed)


def variables(problem: Any, model: Model) -> dict[str, dict[str, Any]]:
    """Give the variables of a problem by job and type, from the block of columns that has both."""
    found = pulp_variables(problem, model)
    names = model.column_names()
    out: dict[str, dict[str, Any]] = {}
    for block in model.column_blocks:
        for at, (job, kind) in enumerate(_jobs_and_types(block)):
            out.setdefault(job, {})
            name = names[block.start + at]
            if name in found:
                out[job][kind] = found[name]
    return out


def _jobs_and_types(block: Block) -> list[tuple[str, str]]:
    by_name = {axis.name: axis for axis in block.axes}
    if set(by_name) != {"job", "type"}:
        return []
    job, kind = by_name["job"], by_name["type"]
    if job.codes is None or kind.codes is None:
        return []
    pairs = zip(np.asarray(job.codes).tolist(), np.asarray(kind.codes).tolist(), strict=True)
    return [(str(job.labels[one]), str(kind.labels[other])) for one, other in pairs]


def _model(given: Any, before: Model) -> Model:
    if isinstance(given, Model):
        changed = given
    elif hasattr(given, "variables") and hasattr(given, "objective"):
        try:
            changed = from_pulp(given, like=before, objective=len(before.objectives) - 1)
        except ModelError as error:
            raise InstanceError(f"side_rules: {error}") from None
    else:
        raise InstanceError(
            f"side_rules: returned {type(given).__name__}, expected the PuLP problem or a Model"
        )
    first = changed.column_names()[: before.column_count]
    if first != before.column_names():
        raise InstanceError("side_rules: the model's own columns have to come first, in order")
    return changed


def _same_objectives(before: Model, after: Model) -> bool:
    if len(before.objectives) != len(after.objectives):
        return False
    return all(
        one.maximise == other.maximise
        and one.offset == other.offset
        and np.array_equal(one.cost, other.cost[: one.cost.size])
        and not other.cost[one.cost.size :].any()
        for one, other in zip(before.objectives, after.objectives, strict=True)
    )


def without_proof(decision: Decision) -> Decision:
    """Take back a bound that was proved for objectives the side rules have changed."""
    note = "the side rules changed an objective: the value shown is the policy's own, without bound"
    return replace(decision, bound=None, gap=None, notes=(*decision.notes, note))
