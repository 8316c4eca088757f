"""Derm on two graphs of which neither holds the other: the static answer, and needless orders."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.formulations.microservices import Derm
from apportion.instances.microservices import laws
from apportion.instances.microservices.builtin import builtin_round
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("seed", range(3))
def test_worst_carries_what_the_dearest_class_leaves_out(seed: int) -> None:
    """No graph of the ticket search holds the other: the light one has two of its own."""
    round_ = builtin_round("ticket-search", seed=seed)
    budget = Budget.of(None)
    program = Derm(priority="worst").compile(round_, None, budget)
    for decision in (program.solve(Solver(), budget), program.incumbent()):
        plan = decision.allocation
        assert laws.admissible(round_, plan.containers).all()
        assert plan.guaranteed.all()
        assert any("no class makes all calls" in note for note in decision.notes)


def test_worst_costs_no_less_than_the_others() -> None:
    round_, budget = builtin_round("ticket-search"), Budget.of(None)
    cost = [
        Derm(priority=priority).compile(round_, None, budget).solve(Solver(), budget).objective
        for priority in ("budget", "uniform", "worst")
    ]
    assert cost == sorted(np.array(cost, dtype=float).tolist())


def test_an_order_that_a_plan_does_not_need_is_left_out() -> None:
    """With few heavy requests the least admissible counts do, whoever goes first."""
    share = {"light": 0.9, "heavy": 0.1}
    budget = Budget.of(None)
    round_ = builtin_round("ticket-search", share=share, target_ms=550.0, rate_per_s=10.0)
    plain = Derm().compile(round_, None, budget).solve(Solver(), budget)
    ordered = Derm(priority="queue").compile(round_, None, budget).solve(Solver(), budget)
    assert ordered.objective == plain.objective
    assert ordered.allocation.rank is None
    tight = builtin_round("ticket-search", target_ms=450.0)
    needed = Derm(priority="queue").compile(tight, None, budget).solve(Solver(), budget)
    assert needed.allocation.rank is not None


def test_what_cannot_be_kept_is_not_searched_without_end() -> None:
    """Heavy requests take 176 ms of shifts alone: at 200 ms the search would fill its 20,000 boxes."""
    budget = Budget.of(None)
    round_ = builtin_round("ticket-search", target_ms=200.0, rate_per_s=10.0)
    for form in ("search", "greedy"):
        policy = Derm(priority="uniform", form=form)
        decision = policy.compile(round_, None, budget).solve(Solver(), budget)
        assert decision.status == "INFEASIBLE"
        assert decision.bound is None
        nodes = [int(one.note.split()[0]) for one in decision.stages if one.note]
        assert all(count <= 500 for count in nodes)
