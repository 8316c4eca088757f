"""What makes a round impossible, in words, and the cheapest way out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.instances.columns import Floats
from apportion.questions.what_if import Questions
from apportion.questions.wording import Words
from apportion.side_rules import Mergeable
from apportion.solver import Budget, Model, Solver, Status, cheapest_repair, find_conflict

STRUCTURE = frozenset({"one", "one_type", "order", "work", "makespan", "share", "level"})
"""Families of rows that say what columns mean: moving their sides is no way out for anybody."""


@dataclass(frozen=True)
class Impossible:
    """Rules that no plan obeys together, and what would help.

    Parameters
    ----------
    conflict
        The rules, in words.
    minimal
        Whether it was shown that any one of them can be dropped to make the others possible.
    repair
        Sides of rules that move in the cheapest repair, in words.
    notes
        What was not found.
    """

    conflict: tuple[str, ...] = ()
    minimal: bool = False
    repair: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def impossible(ask: Questions) -> Impossible:
    """Find the conflict of a compiled round's model; identical jobs are told apart."""
    program = ask.program
    if ask.side_rules is None and isinstance(program, Mergeable):
        program = program.apart()
    custom: Model | None = getattr(program, "custom", None)
    own: Model | None = program.model
    model = own if custom is None else custom
    if model is None or own is None:
        return Impossible(notes=("the policy has no model whose rules could be in conflict",))
    return conflict_of(model, Words(program, model, own), ask.solver, ask.budget)


def conflict_of(
    model: Model, words: Words, solver: Solver, budget: Budget, weights: Floats | None = None
) -> Impossible:
    """Find a smallest set of rules that are impossible together, and the cheapest repair.

    Parameters
    ----------
    model, words
        The model, and its rows as texts.
    solver, budget
        How to search, and until when.
    weights
        Price of moving a side of each row by one, shape (rows,); left out: 1, and infinite for
        rows that are structure.
    """
    found = find_conflict(model, solver, budget=budget)
    if found.status is Status.FEASIBLE:
        note = "the policy's model has a plan: what is impossible is none of its rules"
        return Impossible(notes=(note,))
    notes = list[str]()
    if found.status is not Status.INFEASIBLE:
        notes.append("which rules are in conflict was not found in time")
    price = prices_of(model, words.own.row_count) if weights is None else weights
    mend = cheapest_repair(model, solver, budget=budget, weights=price)
    repair = tuple(words.of_change(one.index, one.before, one.after) for one in mend.changes)
    if not repair:
        sure = mend.status is Status.INFEASIBLE
        how = "moving limits of rules helps nobody" if sure else "it was not found in time"
        notes.append(f"no repair: {how}")
    rules = tuple(words.of_rule(rule) for rule in found.rules)
    return Impossible(rules, found.minimal, repair, tuple(notes))


def prices_of(model: Model, own_rows: int) -> Floats:
    """Price of moving a side of each row by one: 1, infinite for rows that are structure."""
    out = np.ones(model.row_count)
    for block in model.row_blocks:
        if block.start < own_rows and block.name in STRUCTURE:
            out[block.start : block.stop] = np.inf
    return out
