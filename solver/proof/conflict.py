"""Which rules make a model impossible: a smallest set, every member of it shown to be needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from apportion.solver.arrays import FloatArray
from apportion.solver.budget import Budget
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.models.model import Model
from apportion.solver.models.rules import Rule, grouped, only, rules_of
from apportion.solver.proof.elastic import infeasibility_duals
from apportion.solver.proof.recheck import check_point
from apportion.solver.solve import Solver
from apportion.solver.status import Status


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """Answer to the question which rules make a model impossible.

    Attributes
    ----------
    status
        ``INFEASIBLE`` where there is a conflict; ``FEASIBLE`` where there is none, a point being
        known; ``NO_SOLUTION`` where neither was shown in time.
    rules
        Rules that no point satisfies together; empty without a conflict.
    minimal
        Whether it was shown that without any one of the rules a point exists.
    witnesses
        Beside ``rules``: a point that breaks this rule only, re-checked; ``None`` where not found.
    solves
        Number of models solved.
    elapsed_s
        Wall-clock seconds.
    """

    status: Status
    rules: tuple[Rule, ...] = ()
    minimal: bool = False
    witnesses: tuple[FloatArray | None, ...] = field(default=(), repr=False)
    solves: int = 0
    elapsed_s: float = 0.0

    @property
    def texts(self) -> list[str]:
        """The rules in words."""
        return [rule.text for rule in self.rules]

    def __str__(self) -> str:
        if self.status is Status.FEASIBLE:
            return "no conflict: a point exists"
        if self.status is not Status.INFEASIBLE:
            return "not known whether there is a conflict"
        note = "" if self.minimal else " (not minimal)"
        return f"impossible together{note}: {', '.join(self.texts)}"


def find_conflict(
    model: Model, solver: Solver, *, budget: Budget, domains: bool = True
) -> Conflict:
    """Find a minimal set of rules that no point satisfies together.

    Where duals prove that not even fractions help, only the rules they name are looked at. Then
    whole families are left out, then halves of families, down to single rules: what can be left
    out while the rest stays impossible is dropped. What remains is solved alone once more.

    Parameters
    ----------
    model
        The model.
    solver
        How to solve; one that chooses by itself takes over where its back end refuses.
    budget
        Deadline for everything.
    domains
        Whether what a column is (not negative; 0 or 1) is taken for granted instead of counting
        as a rule.
    """
    started = time.perf_counter()
    search = _Search(model, solver, budget, domains)
    rules = rules_of(model, domains=domains)
    possible = search.point(rules)
    if possible.status is not Status.INFEASIBLE:
        status = Status.NO_SOLUTION if possible.x is None else Status.FEASIBLE
        return Conflict(status, solves=search.solves, elapsed_s=time.perf_counter() - started)
    rules = search.filtered(search.named_by_duals(rules))
    alone = search.point(rules)
    witnesses = tuple(search.witness(rules, rule) for rule in rules)
    return Conflict(
        Status.INFEASIBLE,
        tuple(rules),
        alone.status is Status.INFEASIBLE and all(one is not None for one in witnesses),
        witnesses,
        search.solves,
        time.perf_counter() - started,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    status: Status
    x: FloatArray | None = None


class _Search:
    """One search: what was solved, and the points that were met on the way."""

    def __init__(self, model: Model, solver: Solver, budget: Budget, domains: bool) -> None:
        self.model, self.solver, self.budget, self.domains = model, solver, budget, domains
        self.solves = 0
        self.met: dict[Rule, FloatArray] = {}

    def point(self, rules: Sequence[Rule]) -> _Found:
        """Look for a point that satisfies these rules."""
        if self.budget.expired():
            return _Found(Status.NO_SOLUTION)
        self.solves += 1
        part = only(self.model, rules, domains=self.domains)
        # a proof in fractions is much cheaper than two searches that end without a point
        if not part.is_lp and infeasibility_duals(part, self.solver, self.budget) is not None:
            return _Found(Status.INFEASIBLE)
        try:
            found = self.solver.solve(part, budget=self.budget)
        except UnsupportedModelError:
            other = replace(self.solver, backend="auto")
            found = other.solve(part, budget=self.budget)
        return _Found(found.status, found.point)

    def named_by_duals(self, rules: list[Rule]) -> list[Rule]:
        """Give the rules that duals proving the conflict make use of, or all of them."""
        duals = infeasibility_duals(self.model, self.solver, self.budget)
        if duals is None:
            return rules
        self.solves += 1
        pull = -np.asarray(self.model.matrix.T.dot(duals), dtype=np.float64)
        used = {
            "row": duals != 0.0,
            "lower": pull > 0.0,
            "upper": pull < 0.0,
        }
        named = [rule for rule in rules if used[rule.kind][rule.index]]
        return named if self.point(named).status is Status.INFEASIBLE else rules

    def filtered(self, rules: list[Rule]) -> list[Rule]:
        """Leave out what is not needed: largest families first, then parts of families."""
        families = sorted(grouped(rules).values(), key=len, reverse=True)
        kept = list(rules)
        needed: list[list[Rule]] = []
        for family in families:
            kept, gone = self._without(kept, family)
            if not gone:
                needed.append(family)
        for family in needed:
            kept = self._thinned(kept, family)
        return kept

    def _thinned(self, kept: list[Rule], part: list[Rule]) -> list[Rule]:
        """Leave out what is not needed of a part that is needed as a whole."""
        if len(part) == 1:
            return kept
        middle = len(part) // 2
        for half in (part[:middle], part[middle:]):
            kept, gone = self._without(kept, half)
            if not gone:
                kept = self._thinned(kept, half)
        return kept

    def _without(self, kept: list[Rule], part: list[Rule]) -> tuple[list[Rule], bool]:
        """Drop a part if the others are impossible without it."""
        gone = set(part)
        others = [rule for rule in kept if rule not in gone]
        found = self.point(others)
        if found.status is Status.INFEASIBLE:
            return others, True
        if found.x is not None and len(part) == 1:
            self.met[part[0]] = found.x
        return kept, False

    def witness(self, rules: Sequence[Rule], rule: Rule) -> FloatArray | None:
        """Give a point that satisfies all rules but one, checked against them once more."""
        others = [one for one in rules if one is not rule]
        x = self.met.get(rule)
        if x is None:
            x = self.point(others).x
        if x is None:
            return None
        return check_point(only(self.model, others, domains=self.domains), x)[0]
