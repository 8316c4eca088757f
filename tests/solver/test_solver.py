from __future__ import annotations

import importlib
import logging
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from apportion.solver import (
    BACKENDS,
    Budget,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Solver,
    Status,
    available_backends,
)
from apportion.solver.backends.backend import Request

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"gap": -0.1}, "gap = -0.1"),
        ({"gap": math.nan}, "gap = nan"),
        ({"gap": math.inf}, "gap = inf"),
        ({"seed": -1}, "seed = -1"),
        ({"threads": 0}, "threads = 0"),
        ({"work_limit": 0}, "work_limit = 0"),
        ({"work_limit": math.nan}, "work_limit = nan"),
        ({"backend": "cplex"}, "back end 'cplex': known are glop, glop-dual"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ModelError, match=message):
        Solver(**parameters)


def test_every_back_end_runs_here():
    assert {"glop", "highs", "scip", "cpsat", "cbc"} <= set(available_backends())


def test_the_solver_is_a_value_and_a_context_manager(dense_model, minute):
    with Solver(seed=3) as solver:
        assert solver == Solver(seed=3)
        assert solver.solve(dense_model(cost=[1.0]), budget=minute).objective == 0.0


def test_an_empty_model_has_one_point(minute):
    builder = ModelBuilder("empty")
    builder.rows("r", 1, row=[], column=np.empty(0, dtype=int), value=[], upper=1.0)
    builder.objective("o", column=np.empty(0, dtype=int), value=[], offset=2.0)
    found = Solver().solve(builder.build(), budget=minute)
    assert found.status is Status.OPTIMAL
    assert found.objective == found.bound == 2.0
    assert found.x.shape == (0,)
    builder.rows("bad", 1, row=[], column=np.empty(0, dtype=int), value=[], lower=1.0)
    found = Solver().solve(builder.build(), budget=minute)
    assert found.status is Status.INFEASIBLE
    with pytest.raises(NoSolutionError):
        _ = found.x


@pytest.mark.parametrize("backend", ["glop", "highs", "scip", "cbc", "cpsat"])
def test_rows_without_entries_are_fine(backend, dense_model, minute):
    model = dense_model(
        rows=[[0, 0], [1, 1]],
        row_lower=[-1, 2],
        integer=backend == "cpsat",
        cost=[1, 2],
    )
    found = Solver(backend=backend).solve(model, budget=minute)
    assert found.objective == pytest.approx(2.0)


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_the_answer_is_never_worse_than_a_good_warm_start(backend, hard_model):
    model = hard_model(150, 25)
    best = Solver(backend="highs").solve(model, budget=Budget.of(0.5))
    found = Solver(backend=backend).solve(model, budget=Budget.of(0.1), warm_start=best.x)
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert found.objective >= best.objective


@pytest.mark.parametrize("backend", ["scip", "cbc", "cpsat"])
def test_the_code_itself_starts_from_the_warm_start(backend, hard_model):
    model = hard_model(150, 25)
    best = Solver(backend="highs").solve(model, budget=Budget.of(0.7))
    work_limit = 0.01 if backend == "cpsat" else 1
    request = Request(Budget.of(2.0), np.float64(0.0), work_limit=work_limit, start=best.x)
    raw = BACKENDS[backend]().solve(model, request)
    assert model.objectives[0].value(np.rint(raw.x)) >= best.objective


def test_a_useless_warm_start_does_no_harm(dense_model, minute):
    model = dense_model(rows=[[1, 1]], row_upper=3, integer=True, cost=[-1, -2])
    for backend in ("highs", "scip", "cbc", "cpsat"):
        solver = Solver(backend=backend)
        found = solver.solve(model, budget=minute, warm_start=[9.0, 9.0])
        assert found.status is Status.OPTIMAL
        assert found.objective == -6.0


@pytest.mark.parametrize("start", [[1.0], [[1.0, 2.0]], [1.0, math.nan]])
def test_a_warm_start_that_is_no_point_is_refused(start, dense_model, minute):
    with pytest.raises(ModelError, match="warm_start"):
        Solver().solve(dense_model(cost=[1, 1]), budget=minute, warm_start=start)


def test_threads_may_change_from_call_to_call(dense_model, hard_model, minute):
    model = hard_model(20, 4)
    values = [
        Solver(backend="highs", threads=threads, gap=0.0).solve(model, budget=minute)
        for threads in (1, 2, 1)
    ]
    assert {v.status for v in values} == {Status.OPTIMAL}
    assert len({v.objective for v in values}) == 1


def test_a_strangers_use_of_highs_in_the_same_thread_does_no_harm(dense_model, minute):
    highspy = importlib.import_module("highspy")

    def stranger():
        solver = highspy.Highs.__base__()
        solver.setOptionValue("output_flag", False)
        solver.addVar(0.0, 1.0)
        return solver.run()

    model = dense_model(rows=[[1, 1]], row_upper=15, integer=True, cost=[-1, -2])
    for _ in range(2):
        assert stranger() == highspy.HighsStatus.kOk
        assert Solver(backend="highs").solve(model, budget=minute).objective == -25.0


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_one_solver_may_serve_many_threads(backend, choice_model, minute):
    solver = Solver(backend=backend, gap=0.0)
    models = [choice_model(10, 2, seed=seed, whole=True) for seed in range(4)]
    alone = [solver.solve(model, budget=minute).objectives for model in models]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda m: solver.solve(m, budget=minute).objectives, models))
    assert together == alone


def test_every_run_is_logged_and_nothing_else_is_said(dense_model, minute, caplog, capfd):
    with caplog.at_level(logging.DEBUG, logger="apportion.solver"):
        Solver().solve(dense_model(cost=[1, 1]), budget=minute)
    assert "glop on small" in caplog.text
    assert capfd.readouterr() == ("", "")
