"""Erms where a microservice may not have the containers that its load needs by the laws."""

import numpy as np
import pytest

from apportion.formulations.microservices.erms import Erms
from apportion.instances.microservices import (
    CallClasses,
    CallTrees,
    LinearLatency,
    MicroserviceRound,
    Microservices,
    Services,
)
from apportion.solver import Budget, Solver


def decided(most, scheme):
    """Ten containers carry less than 100 calls per second by the law, and any by the lines."""
    round_ = MicroserviceRound(
        Microservices.of(["A"], 1.0, -0.1, most_containers=most),
        Services.of(["s"], 100.0, 1000.0),
        CallClasses.of(["all"], CallTrees.serial([[1]])),
        linear=LinearLatency(*(np.array([value]) for value in (0.01, 1.0, 0.01, 1.0, np.inf))),
    )
    budget = Budget.of(None)
    with Solver() as solver:
        return Erms(form="exact", scheme=scheme).compile(round_, None, budget).solve(solver, budget)


@pytest.mark.parametrize("scheme", ["fcfs", "partition", "priority"])
def test_a_load_that_the_laws_do_not_admit_is_not_called_solved(scheme):
    short, enough = decided(10, scheme), decided(11, scheme)
    assert (short.status, short.bound, short.gap) == ("INFEASIBLE", None, None)
    assert "'A': 10 containers, all it may have, do not carry its load" in short.notes[0]
    assert short.allocation.guaranteed.tolist() == [False]
    assert (enough.status, enough.objective, enough.bound) == ("OPTIMAL", 11.0, 11.0)
