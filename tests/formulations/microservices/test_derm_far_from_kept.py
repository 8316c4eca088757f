"""Plans for long chains: at the least admissible counts so many are late that no step shows."""

import math

import numpy as np
import pytest

from apportion.executor.microservices import check, violation_bounds
from apportion.formulations.microservices.derm import Derm
from apportion.formulations.microservices.tails import Tails
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver

STAGES = 12


def chain(target_ms, calls=1.0):
    """Twelve microservices whose ten containers hardly carry the load: rates of 0.0001 per ms."""
    kinds = Microservices.of([f"m{at}" for at in range(STAGES)], 1.0, -0.1)
    trees = CallTrees.serial([[calls]] * STAGES)
    return MicroserviceRound(
        kinds, Services.of(["s"], 99.99 / calls, target_ms), CallClasses.of(["all"], trees)
    )


@pytest.mark.parametrize("form", ["search", "greedy"])
def test_a_plan_is_found_from_where_nobody_is_in_time(form):
    round_ = chain(60.0)
    assert Tails.of(round_).class_tails(np.full(STAGES, 10))[0] == pytest.approx(1.0, abs=1e-12)
    even = next(x for x in range(10, 99) if late(round_, x) <= 0.05)
    budget = Budget.of(None)
    with Solver(gap=0.05) as solver:
        program = Derm(form=form, most_nodes=50).compile(round_, None, budget)
        decision = program.solve(solver, budget)
    for one in (program.incumbent(), decision):
        assert one.allocation.guaranteed.tolist() == [True]
        assert check(round_, one.allocation) == []
    assert STAGES * (even - 1) < decision.objective <= STAGES * even
    assert decision.status == ("HEURISTIC" if form == "greedy" else "OPTIMAL")


def test_what_no_count_brings_in_time_is_not_bought_without_end():
    round_ = chain(10.0)
    decision = Derm().compile(round_, None, Budget.of(None)).incumbent()
    assert decision.allocation.guaranteed.tolist() == [False]
    least = late(round_, 10**6)
    assert least == pytest.approx(erlang_tail(10.0), abs=1e-3)
    missed = violation_bounds(round_, decision.allocation.containers).high[0]
    assert missed == pytest.approx(least + 0.05 * (1.0 - least), abs=2e-3)


def erlang_tail(time):
    """Tail of a sum of twelve times of mean one."""
    return math.exp(-time) * sum(time**n / math.factorial(n) for n in range(STAGES))


def late(round_, count):
    return violation_bounds(round_, np.full(STAGES, count)).high[0]


def test_a_service_of_forks_known_from_above_is_not_said_to_be_hopeless():
    kinds = Microservices.of(["front", "store"], 1.0, -0.01)
    branch = [[{"microservice": "store", "calls": 1 + at / 7}] for at in range(3)]
    calls = [{"microservice": "front", "stages": branch} for _ in range(30)]
    trees = CallTrees.nested([[calls]], ["front", "store"])
    round_ = MicroserviceRound(
        kinds, Services.of(["s"], 10.0, 40.0), CallClasses.of(["all"], trees)
    )
    assert not Tails.of(round_).exact.all()
    decision = Derm().compile(round_, None, Budget.of(None)).incumbent()
    assert any("is known to keep its SLA" in note for note in decision.notes)
    assert not any("no number of containers keeps" in note for note in decision.notes)
