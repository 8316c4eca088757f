"""A user's story: a rule added in PuLP's terms to a compiled round, solved by our own chain."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import apportion as ap
from apportion.solver import Budget, Solver, from_pulp, pulp_variables, to_pulp

pytestmark = pytest.mark.quick

JOBS, KINDS = ["a", "b", "c"], ["V100", "A100"]


@pytest.fixture
def round_() -> ap.TrainingRound:
    """Enough for everybody: two GPUs of each type, and three jobs of one GPU."""
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform(dict.fromkeys(KINDS, 2)),
        jobs=ap.Jobs.of(
            id=JOBS,
            gang=[1, 1, 1],
            tenant=[0, 0, 1],
            work=[4e3, 5e3, 9e3],
            throughput_per_s=[[5.0, 9.0], [4.0, 8.0], [0.8, 2.4]],
        ),
        tenants=ap.Tenants.named("vision", "language"),
    )


def test_two_jobs_that_may_not_run_in_the_same_round(round_):
    program = ap.FFT().compile(round_, None, Budget.of(None))
    free = program.solve(Solver(gap=0.0), Budget.of(20.0))
    assert sorted(round_.jobs.id[free.allocation.job]) == JOBS

    pulp = importlib.import_module("pulp")
    problem = to_pulp(program.model)
    x = pulp_variables(problem, program.model)
    together = pulp.lpSum(x[f"x[{job},{kind}]"] for job in ("a", "b") for kind in KINDS)
    problem += together <= 1, "not together"
    model = from_pulp(problem)

    assert model.column_names() == program.model.column_names()
    assert [one.name for one in model.objectives] == ["placed_gpus", "cost"]
    decision = program.with_model(model).solve(Solver(gap=0.0), Budget.of(20.0))
    assert decision.status == "OPTIMAL"
    placed = round_.jobs.id[decision.allocation.job].tolist()
    assert len(placed) == 2
    assert "c" in placed
    assert ap.check(round_, decision.allocation) == []
    # the cheaper of the two runs, both on their best types
    direct = Solver(gap=0.0).solve(model, budget=Budget.of(20.0))
    assert decision.objective == pytest.approx(direct.objectives[1] * program.cost_unit)
    assert direct.objectives[0] == 2.0


def test_a_helper_column_behind_the_own_ones_does_not_disturb_decoding(round_):
    program = ap.FFT().compile(round_, None, Budget.of(None))
    problem = to_pulp(program.model)
    x = pulp_variables(problem, program.model)
    many = problem.add_variable("many", 0, 1, "Integer")
    everybody = sum(x.values())
    problem += everybody <= 1 + many, "few unless many"
    problem += many <= 0, "never many"
    decision = program.with_model(from_pulp(problem)).solve(Solver(gap=0.0), Budget.of(20.0))
    assert decision.status == "OPTIMAL"
    assert np.asarray(decision.allocation.gpus).sum() == 1
