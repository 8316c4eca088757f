"""FIRM where all calls vary alike: without shifts P95 over P50 is the same for every exponential."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.formulations.microservices import Firm
from apportion.instances.microservices.builtin import builtin_round
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick


def test_ties_go_to_the_one_that_takes_most_time() -> None:
    round_ = builtin_round("ticket-search", target_ms=200.0, shift_factor=0.0)
    policy, memory, budget = Firm(), None, Budget.of(None)
    added = np.zeros(len(round_.microservices), dtype=np.bool_)
    for _ in range(60):
        decision = policy.compile(round_, memory, budget).solve(Solver(), budget)
        plan = decision.allocation.containers
        if round_.containers is not None:
            added |= plan > round_.containers
        memory = policy.remember(memory, round_, decision, None)
        round_ = replace(round_, containers=plan, now_s=round_.now_s + 60.0)
        if decision.allocation.guaranteed.all():
            break
    assert decision.allocation.guaranteed.all()
    assert added.sum() > 1
    assert plan.sum() < 400
