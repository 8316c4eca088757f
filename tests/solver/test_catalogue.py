"""A named test for every documented way in which back ends and wrappers mislead.

What we say is asserted on every back end. What they say themselves is in
``results/reference/backend_statuses.md``, made by ``benchmarks/backend_statuses.py``.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.solver import (
    BACKENDS,
    Budget,
    Model,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Solution,
    Solver,
    Status,
    UnsupportedModelError,
    check_point,
    from_pulp,
    to_pulp,
)
from apportion.solver.backends.backend import Claim, RawResult, Request
from apportion.solver.backends.highs import Highs
from apportion.solver.stage import run_stage

pytestmark = pytest.mark.quick

INF = np.inf
EVERY = pytest.mark.parametrize("backend", BACKENDS)
WHOLE = [name for name in BACKENDS if BACKENDS[name]().capabilities.integers]
FRACTIONS = [name for name in BACKENDS if BACKENDS[name]().capabilities.continuous]
MILP = pytest.mark.parametrize("backend", WHOLE)
LP = pytest.mark.parametrize("backend", FRACTIONS)
BEFORE = {Status.FEASIBLE, Status.NO_SOLUTION}
"""What may be said of a search that a limit stopped."""


def solve(backend: str, model: Model, *, limit_s: float = 60.0, **options: Any) -> Solution:
    start = options.pop("warm_start", None)
    solver = Solver(backend=backend, **options)
    return solver.solve(model, budget=Budget.of(limit_s), warm_start=start)


def suited(backend: str, model: Model) -> Model:
    """The model in whole numbers, or in fractions where the back end takes no others."""
    if backend in WHOLE:
        return replace(model, integer=np.ones(model.column_count, dtype=np.bool_))
    return model.relaxed()


@pytest.fixture
def pair(dense_model) -> Model:
    """max x0 + 2 x1 with x0 + x1 <= 15 and both at most 10: 25 at (5, 10)."""
    return dense_model(rows=[[1, 1]], row_upper=15, cost=[1, 2], maximise=True)


class TestStatusesThatAreWrong:
    @EVERY
    def test_unbounded_called_infeasible(self, backend, dense_model):
        """GLOP, HiGHS on integers, and MathOpt's GLOP, CP-SAT and PDLP."""
        model = suited(backend, dense_model(cost=[1, 1], maximise=True, upper=INF))
        if backend == "cpsat":
            with pytest.raises(UnsupportedModelError, match=r"x\[0\].* too wide"):
                solve(backend, model)
            return
        found = solve(backend, model)
        assert found.status in {Status.UNBOUNDED, Status.NO_SOLUTION}
        assert found.status is Status.UNBOUNDED or backend == "pdlp"

    @LP
    def test_unbounded_called_infeasible_of_a_feasible_ray(self, backend, dense_model):
        """CLP says ABNORMAL, PDLP gives up, GLOP says INFEASIBLE."""
        model = dense_model(rows=[[1, -1]], row_upper=2, cost=[-1, -1], upper=INF)
        assert solve(backend, model).status is not Status.INFEASIBLE

    @EVERY
    def test_infeasible_is_called_infeasible_by_two(self, backend, dense_model):
        model = dense_model(
            rows=[[1, 1], [1, -1]], row_lower=[25, -INF], row_upper=[30, 0], cost=[1, 1]
        )
        assert solve(backend, suited(backend, model)).status is Status.INFEASIBLE

    @MILP
    def test_infeasible_only_in_whole_numbers_called_optimal(self, backend, dense_model):
        """LP codes behind wrappers relax and call it optimal."""
        model = dense_model(
            rows=[[2, -2]], row_lower=1, row_upper=1, integer=True, cost=[1, 1], upper=5
        )
        assert solve(backend, model).status is Status.INFEASIBLE

    @MILP
    @pytest.mark.parametrize("limit_s", [0.001, 0.01, 0.1, 0.3])
    def test_infeasible_said_of_a_possible_model_near_the_limit(
        self, backend, limit_s, choice_model
    ):
        """CBC through pywraplp, at limits of 0.1 and 0.3 s, in four runs of four."""
        found = solve(backend, choice_model(400, 6, whole=True).single(1), limit_s=limit_s)
        assert found.status in {*BEFORE, Status.OPTIMAL}

    @MILP
    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_change_the_status(self, backend, threads, dense_model):
        """google/or-tools#3842; and MathOpt's ``threads`` option breaks its own HiGHS."""
        model = dense_model(rows=[[3, 5]], row_lower=19, row_upper=19, integer=True, cost=[1, 1])
        found = solve(backend, model, threads=threads, gap=0.0)
        assert (found.status, found.objective) == (Status.OPTIMAL, 5.0)

    @MILP
    def test_optimal_said_although_a_mip_start_cut_the_optimum_off(self, backend):
        """HiGHS 1.16.0 with a start after presolve; see ``test_mip_start.py``."""
        rng = np.random.default_rng(13)
        n, k = 10, 4
        gang = rng.choice([1, 1, 2, 4], n)
        cost = rng.uniform(3.0, 30.0, (n, k)).round(2)
        job, kind = np.nonzero(rng.random((n, k)) < 0.6)
        free = rng.integers(1, 5, k)
        b = ModelBuilder("two")
        x = b.columns("x", job.size, integer=True)
        b.rows("one", n, row=job, column=x, value=1.0, upper=1.0)
        b.rows("capacity", k, row=kind, column=x, value=gang[job], upper=free)
        b.rows("placed", 1, row=0, column=x, value=gang[job], lower=4, upper=4)
        b.objective("cost", column=x, value=cost[job, kind])
        model = b.build()
        any_point = solve("scip", model.with_cost(np.zeros(x.size))).x
        alone = solve("scip", model, gap=0.0)
        started = solve(backend, model, gap=0.0, warm_start=any_point)
        assert started.status is alone.status is Status.OPTIMAL
        assert started.objective == pytest.approx(alone.objective, rel=1e-9)

    def test_pulp_says_optimal_at_a_limit(self, hard_model):
        """PuLP's status is Optimal where its sol_status is Feasible: we read neither."""
        found = solve("cbc", from_pulp(to_pulp(hard_model(150, 40))), limit_s=0.4, gap=0.0)
        assert found.status in BEFORE


class TestModelsThatShouldBeRefused:
    @LP
    def test_integers_relaxed_in_silence(self, backend, dense_model):
        """GLOP, CLP and HIGHS_LP in wrappers; PDLP says UNKNOWN."""
        model = dense_model(rows=[[2, 2]], row_upper=7, integer=True, cost=[1, 1], maximise=True)
        if backend in WHOLE:
            assert solve(backend, model, gap=0.0).objective == 3.0
        else:
            with pytest.raises(UnsupportedModelError, match=r"x\[0\]"):
                solve(backend, model)

    @pytest.mark.parametrize("bad", [np.nan, INF, -INF])
    def test_a_coefficient_that_is_no_number_is_accepted(self, bad, dense_model):
        """CBC and highspy leave a row with NaN out, and call the rest optimal."""
        with pytest.raises(ModelError, match=r"row r, column x\[1\]"):
            dense_model(rows=[[1, bad]], row_upper=15, cost=[1, 2])

    @pytest.mark.parametrize("bad", [np.nan, INF, -INF])
    def test_a_cost_that_is_no_number_is_accepted(self, bad, dense_model):
        """highspy: optimal, objective NaN."""
        with pytest.raises(ModelError, match=r"objective first, column x\[1\]"):
            dense_model(rows=[[1, 1]], row_upper=15, cost=[1, bad])

    @pytest.mark.parametrize("side", ["lower", "upper", "row_lower", "row_upper"])
    def test_a_bound_that_is_no_number_is_accepted(self, side, dense_model):
        """Bulk GLOP says INFEASIBLE of NaN in a bound."""
        with pytest.raises(ModelError, match=r"r: |x\[0\]: "):
            dense_model(rows=[[1, 1]], cost=[1, 2], **{side: np.nan})

    def test_crossed_bounds_are_anything_from_abnormal_to_infeasible(self, dense_model):
        with pytest.raises(ModelError, match=r"x\[0\]: \[3\.0, 2\.0\]"):
            dense_model(cost=[1, 2], lower=3, upper=2)

    @pytest.mark.parametrize("large", [1e20, 1e30])
    def test_a_large_bound_is_read_as_infinite(self, large, dense_model):
        with pytest.raises(ModelError, match="usable interval"):
            dense_model(cost=[1, 2], upper=large)

    def test_an_unknown_solver_is_none_and_a_warning(self):
        """pywraplp gives None for names it knows without a licence."""
        with pytest.raises(ModelError, match="known are glop"):
            Solver(backend="gurobi")

    def test_a_refused_option_leaves_the_default_in_force(self, pair):
        """HiGHS wheels without HiPO refuse it, and solve by the default."""
        raw = Highs(algorithm="hipo").solve(pair, Request(Budget.of(9.0), 0.0))  # type: ignore[arg-type]
        assert raw.claim is Claim.FAILED or raw.x is not None
        if raw.claim is Claim.FAILED:
            assert "refused" in raw.message

    @EVERY
    def test_long_sums_exhaust_the_recursion_limit(self, backend):
        """Python's sum over wrapped expressions nests; arrays do not."""
        builder = ModelBuilder("long")
        x = builder.columns("x", 5000, integer=backend in WHOLE)
        builder.rows("r", 1, row=0, column=x, value=1.0, upper=7.0)
        builder.objective("o", column=x, value=1.0, maximise=True)
        assert solve(backend, builder.build()).objective == pytest.approx(7.0, rel=1e-4)


class TestValuesThatAreNone:
    @EVERY
    def test_zeros_read_as_a_solution(self, backend, dense_model):
        """Every pywraplp back end leaves values at 0.0 where there are none."""
        model = dense_model(rows=[[1, 1]], row_lower=25, cost=[1, 1])
        found = solve(backend, suited(backend, model))
        assert found.point is None
        with pytest.raises(NoSolutionError):
            _ = found.x
        with pytest.raises(NoSolutionError):
            _ = found.objective

    @EVERY
    def test_a_limit_of_zero_read_as_none_or_as_unknown(self, backend, pair):
        """CP-SAT answers UNKNOWN at 0 s; others read 0 as no limit. We run none of them."""
        found = Solver(backend=backend).solve(suited(backend, pair), budget=Budget(0.0))
        assert found.status is Status.NO_SOLUTION
        assert found.time_limited

    @MILP
    def test_the_incumbent_is_lost_at_a_limit(self, backend, hard_model):
        """HiGHS in OR-Tools' bulk and MPSolver interfaces."""
        model = hard_model(150, 40)
        start = np.zeros(model.column_count)
        start[0] = 1.0
        found = solve(backend, model, limit_s=0.3, gap=0.0, warm_start=start)
        assert found.status is Status.FEASIBLE
        assert found.objective >= model.objectives[0].value(start)
        assert check_point(model, found.x)[0] is not None

    @EVERY
    def test_the_wrapper_fails_in_its_own_error_path(self, backend, pair, monkeypatch):
        """MathOpt: 'StatusNotOk' object has no attribute 'canonical_code'."""

        def fail(*_: Any) -> RawResult:
            raise AttributeError("'StatusNotOk' object has no attribute 'canonical_code'")

        monkeypatch.setattr(type(BACKENDS[backend]()), "solve", fail)
        raw = run_stage(pair, BACKENDS[backend](), Request(Budget.of(9.0), 0.0), None)
        assert raw.status is Status.ERROR
        assert "canonical_code" in raw.message

    @pytest.mark.parametrize("overshoot", [2e-2, 1e-3, 3.5e-4])
    def test_a_point_within_relative_tolerances_breaks_a_row(self, overshoot, pair):
        """PDLP's tolerance is relative to the norms of the problem."""

        class Near:
            name = "near"
            capabilities = Highs().capabilities

            def available(self) -> bool:
                return True

            def solve(self, model: Model, request: Request) -> RawResult:
                return RawResult(Claim.OPTIMAL, x=np.array([5.0 + overshoot, 10.0]), bound=-25.0)

        found = run_stage(pair, Near(), Request(Budget.of(9.0), 0.0), None)
        assert found.x is None
        assert found.status is Status.NO_SOLUTION

    @LP
    def test_an_objective_is_off_by_a_dual_tolerance(self, backend, dense_model):
        """HiGHS' simplex stopped 9e-8 off: a bound has to say how far."""
        rng = np.random.default_rng(3)
        rows = rng.uniform(0.1, 1, (20, 60))
        model = dense_model(rows=rows, row_upper=5, cost=rng.uniform(1, 2, 60), maximise=True)
        found = solve(backend, model)
        assert found.bound is not None
        assert found.bound >= found.objective
        assert found.gap is not None
        assert found.gap <= (1e-4 if backend == "pdlp" else 1e-6)


class TestLimitsThatAreNotKept:
    @MILP
    @pytest.mark.parametrize("limit_s", [0.1, 0.4])
    def test_a_limit_counts_something_else_or_is_looked_at_late(self, backend, limit_s, hard_model):
        """CBC counts CPU seconds, HiGHS' presolve ran 2.5 s at 0.1, SCIP ignores interrupts."""
        model = hard_model(200, 40)
        started = time.monotonic()
        found = solve(backend, model, limit_s=limit_s, gap=0.0)
        assert time.monotonic() - started < limit_s + 1.0
        assert found.status in BEFORE
        assert found.time_limited

    @LP
    def test_an_lp_at_its_limit_is_not_optimal_without_proof(self, backend):
        """GLOP gives a feasible point, CLP and HiGHS none, PDLP NOT_SOLVED."""
        rng = np.random.default_rng(0)
        jobs, kinds = 1500, 6
        builder = ModelBuilder("max_min")
        x = builder.columns("x", (jobs, kinds))
        level = builder.columns("level", 1, upper=100.0)
        one, kind = np.arange(jobs)[:, None], np.arange(kinds)[None, :]
        speed = rng.uniform(0.2, 3.0, (jobs, kinds))
        builder.rows("time", jobs, row=one, column=x, value=1.0, upper=1.0)
        builder.rows("capacity", kinds, row=kind, column=x, value=1.0, upper=jobs / 30)
        builder.rows(
            "fair",
            jobs,
            row=np.concatenate((np.repeat(np.arange(jobs), kinds), np.arange(jobs))),
            column=np.concatenate((x.ravel(), np.full(jobs, level[0]))),
            value=np.concatenate((speed.ravel(), np.full(jobs, -1.0))),
            lower=0.0,
        )
        builder.objective("level", column=level, value=1.0, maximise=True)
        model = builder.build()
        found = solve(backend, model, limit_s=0.05)
        if found.status is Status.OPTIMAL:
            assert found.bound == pytest.approx(found.objective, rel=1e-3)
        else:
            assert found.status in BEFORE
        if found.point is not None:
            assert check_point(model, found.x)[0] is not None

    @MILP
    def test_the_gap_does_not_reach_the_solver(self, backend, choice_model):
        """pywraplp's HIGHS and SAT searched on after the gap was closed."""
        model = choice_model(40, 3, whole=True).single(0)
        for gap in (0.5, 0.0):
            found = solve(backend, model, gap=gap)
            assert found.status is Status.OPTIMAL
            assert found.gap is not None
            assert found.gap <= max(gap, 1e-9)

    @MILP
    def test_a_second_run_has_the_time_of_the_first_one_counted(self, backend, hard_model):
        """highspy's clock goes on over runs of one object; ours is made for each run."""
        model, solver = hard_model(60, 10), Solver(backend=backend, gap=0.5)
        for _ in range(3):
            found = solver.solve(model, budget=Budget.of(20.0))
            assert found.status is Status.OPTIMAL
            assert not found.time_limited

    @EVERY
    def test_two_threads_disturb_each_other(self, backend, dense_model):
        models = [
            suited(backend, dense_model(rows=[[1, 1]], row_upper=k, cost=[1, 2], maximise=True))
            for k in (3, 7, 11, 15)
        ]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda model: solve(backend, model).objective, models * 2))
        assert found == pytest.approx([6, 14, 21, 25] * 2, rel=1e-4)

    @EVERY
    def test_the_name_of_what_ran_is_another_one(self, backend, pair):
        """pywraplp's HIGHS calls itself PDLP Solver."""
        assert solve(backend, suited(backend, pair)).backend == backend
