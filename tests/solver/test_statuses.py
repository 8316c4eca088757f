"""What we answer where back ends mislead: impossible, endless and cut-off models."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from apportion.solver import (
    BACKENDS,
    Budget,
    NoSolutionError,
    Solver,
    Status,
    UnsupportedModelError,
    check_point,
)
from apportion.solver.backends.backend import Capabilities, Claim, RawResult, Request, Stop
from apportion.solver.stage import run_stage

pytestmark = pytest.mark.quick

INF = np.inf
INTEGER_BACKENDS = [name for name in BACKENDS if BACKENDS[name]().capabilities.integers]
IMPOSSIBLE = {
    "row_out_of_reach": {"rows": [[1, 1]], "row_lower": 25, "row_upper": 30, "cost": [1, 2]},
    "rows_at_odds": {"rows": [[1, 1], [1, 1]], "row_lower": [5, -INF], "row_upper": [INF, 4], "cost": [1, 2]},
}  # fmt: skip
ENDLESS = {
    "no_row": {"cost": [1, 2], "maximise": True, "upper": INF},
    "along_a_ray": {"rows": [[1, -1]], "row_upper": 2, "cost": [-1, -1], "upper": INF},
    "downwards": {"cost": [1, 2], "lower": -INF, "upper": 0},
}


def answer(backend, model, **options):
    try:
        return Solver(backend=backend, **options).solve(model, budget=Budget.of(60.0))
    except UnsupportedModelError:
        pytest.skip("class of model refused")


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_infeasible_is_said_and_confirmed(case, backend, integer, dense_model):
    found = answer(backend, dense_model(integer=integer, **IMPOSSIBLE[case]))
    assert found.status is Status.INFEASIBLE
    assert "and" in found.message
    assert found.bounds == (None,)
    assert found.gap is None
    with pytest.raises(NoSolutionError, match="infeasible"):
        _ = found.x
    with pytest.raises(NoSolutionError, match="infeasible"):
        _ = found.objective


@pytest.mark.parametrize("backend", INTEGER_BACKENDS)
def test_infeasible_in_whole_numbers_only_is_infeasible(backend, dense_model):
    model = dense_model(rows=[[2, 2]], row_lower=7, row_upper=7, integer=True, cost=[1, 1])
    assert answer(backend, model).status is Status.INFEASIBLE


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", ENDLESS)
def test_unbounded_is_never_called_infeasible(case, backend, integer, dense_model):
    found = answer(backend, dense_model(integer=integer, **ENDLESS[case]))
    # PDLP goes on without an end, and says nothing
    assert found.status is (Status.NO_SOLUTION if backend == "pdlp" else Status.UNBOUNDED)
    assert found.point is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_infinite_bounds_alone_are_not_unbounded(backend, dense_model):
    model = dense_model(
        rows=[[1, 1]],
        row_upper=6,
        integer=backend == "cpsat",
        cost=[1, 1],
        maximise=True,
        upper=INF,
    )
    if backend == "cpsat":
        with pytest.raises(UnsupportedModelError, match="too wide"):
            Solver(backend=backend).solve(model, budget=Budget.of(9.0))
        return
    found = answer(backend, model)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(6.0)


def test_integers_are_not_relaxed_in_silence(dense_model):
    with pytest.raises(UnsupportedModelError, match="integer"):
        Solver(backend="glop").solve(dense_model(integer=True, cost=[1.0]), budget=Budget.of(1.0))


@pytest.mark.parametrize("backend", INTEGER_BACKENDS)
def test_a_time_limit_is_kept_and_never_optimal_or_infeasible(backend, hard_model):
    model, limit_s = hard_model(150, 40), 0.4
    started = time.monotonic()
    found = Solver(backend=backend, gap=0.0).solve(model, budget=Budget.of(limit_s))
    assert time.monotonic() - started < limit_s + 1.0
    assert found.status in (Status.FEASIBLE, Status.NO_SOLUTION)
    assert found.time_limited
    if found.status is Status.FEASIBLE:
        assert check_point(model, found.x)[0] is not None
        assert found.bound is None or found.bound >= found.objective
        assert found.gap is None or 0.0 < found.gap < INF


@pytest.mark.parametrize("backend", BACKENDS)
def test_almost_no_time_gives_the_warm_start_back_or_better(backend, choice_model):
    model = choice_model(300, 4, whole=True)
    start = np.zeros(model.column_count)
    if not BACKENDS[backend]().capabilities.integers:
        model = model.relaxed()
    if not BACKENDS[backend]().capabilities.continuous and model.is_lp:
        pytest.skip("integers only")
    found = Solver(backend=backend).solve(model, budget=Budget.of(0.002), warm_start=start)
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert found.objectives[0] >= 0.0


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_a_work_limit_repeats_exactly(backend, hard_model):
    solver = Solver(backend=backend, gap=0.0, work_limit=0.05 if backend == "cpsat" else 20)
    model = hard_model(80, 15)
    first, second = (solver.solve(model, budget=Budget.of(None)) for _ in range(2))
    assert first.status is Status.FEASIBLE
    assert not first.time_limited
    assert first.x.tobytes() == second.x.tobytes()
    assert first.bounds == second.bounds
    assert first.work == second.work


@dataclass
class Liar:
    """A back end that returns what it was told to."""

    raw: RawResult | Exception
    name: str = "liar"
    capabilities: Capabilities = field(default=Capabilities(integers=True, continuous=True))

    def available(self) -> bool:
        return True

    def solve(self, model, request) -> RawResult:
        if isinstance(self.raw, Exception):
            raise self.raw
        return self.raw


def test_infeasibility_claimed_late_is_not_believed(dense_model, monkeypatch):
    model = dense_model(integer=True, **IMPOSSIBLE["rows_at_odds"])
    times = iter([100.0, 100.0, 109.5, 109.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    found = run_stage(model, Liar(RawResult(Claim.INFEASIBLE)), Request(Budget(110.0), 0.0), None)
    assert found.status is Status.NO_SOLUTION
    assert "at a limit" in found.message
    assert found.raw.stop is Stop.TIME  # a second run, with the clock elsewhere, may differ


@pytest.fixture
def stage_of(dense_model):
    """Judge a lie about: maximise x0 + 2 x1 with x0 + x1 <= 15, both whole and at most 10."""
    model = dense_model(rows=[[1, 1]], row_upper=15, integer=True, cost=[1, 2], maximise=True)

    def judge(raw, *, incumbent=None, limit_s=None, gap=1e-4):
        request = Request(Budget.of(limit_s), gap)
        return run_stage(model, Liar(raw), request, incumbent)

    return judge


@pytest.mark.parametrize(
    "x",
    [
        [6.0, 10.0],  # over the row
        [5.5, 9.0],  # not whole
        [-1.0, 10.0],  # below a bound
        [4.0, 11.0],  # above a bound
        [np.nan, 1.0],
        [5.0],
    ],
)
def test_a_corrupt_point_is_treated_as_none(x, stage_of):
    found = stage_of(RawResult(Claim.OPTIMAL, x=np.array(x), bound=-25.0))
    assert found.status is Status.NO_SOLUTION
    assert found.x is None
    assert "refused" in found.message


def test_a_corrupt_point_does_not_displace_the_incumbent(stage_of):
    found = stage_of(
        RawResult(Claim.OPTIMAL, x=np.array([6.0, 10.0]), bound=-26.0),
        incumbent=np.array([5.0, 9.0]),
    )
    assert found.status is Status.FEASIBLE
    assert found.x.tolist() == [5.0, 9.0]


def test_optimal_without_a_bound_is_feasible(stage_of):
    found = stage_of(RawResult(Claim.OPTIMAL, x=np.array([5.0, 10.0])))
    assert found.status is Status.FEASIBLE
    assert found.bound is None


def test_optimal_with_an_open_gap_is_feasible(stage_of):
    found = stage_of(RawResult(Claim.OPTIMAL, x=np.array([5.0, 9.0]), bound=-25.0))
    assert found.status is Status.FEASIBLE
    assert found.bound == -25.0


def test_a_bound_that_contradicts_the_point_is_dropped(stage_of):
    found = stage_of(RawResult(Claim.OPTIMAL, x=np.array([5.0, 10.0]), bound=-24.0))
    assert found.status is Status.FEASIBLE
    assert found.bound is None
    assert "contradicts" in found.message


def test_a_bound_between_whole_values_is_rounded(stage_of):
    found = stage_of(RawResult(Claim.POINT, x=np.array([5.0, 10.0]), bound=-25.7), gap=0.0)
    assert found.status is Status.OPTIMAL
    assert found.bound == -25.0


@pytest.mark.parametrize("claim", [Claim.INFEASIBLE, Claim.INFEASIBLE_OR_UNBOUNDED])
def test_false_infeasibility_is_refuted_by_a_point(claim, stage_of):
    found = stage_of(RawResult(claim))
    assert found.status is Status.FEASIBLE
    assert found.x is not None


def test_false_unboundedness_is_refuted(stage_of):
    assert stage_of(RawResult(Claim.UNBOUNDED)).status is Status.FEASIBLE


def test_infeasibility_claimed_at_a_limit_is_not_believed(dense_model):
    model = dense_model(integer=True, **IMPOSSIBLE["rows_at_odds"])
    for stop in (Stop.TIME, Stop.WORK):
        found = run_stage(
            model, Liar(RawResult(Claim.INFEASIBLE, stop)), Request(Budget.of(None), 0.0), None
        )
        assert found.status is Status.NO_SOLUTION


def test_false_infeasibility_without_the_trivial_point_is_refuted_by_another_code(dense_model):
    model = dense_model(rows=[[3, 5]], row_lower=19, row_upper=19, integer=True, cost=[1, 1])
    found = run_stage(model, Liar(RawResult(Claim.INFEASIBLE)), Request(Budget.of(None), 0.0), None)
    assert found.status is Status.FEASIBLE
    assert found.x.tolist() == [3.0, 2.0]


@pytest.mark.parametrize("backend", INTEGER_BACKENDS)
def test_the_gap_is_relative_to_the_objective_with_its_offset(backend, choice_model):
    model = choice_model(12, 3, whole=True).single(1)
    everyone = np.arange(model.row_count) < 12
    model = replace(
        model, row_lower=np.where(everyone, 1.0, -INF), row_upper=np.where(everyone, 1.0, 30.0)
    )
    plain = Solver(backend=backend, gap=0.0).solve(model, budget=Budget.of(20.0))
    offset = -0.999 * plain.objective
    shifted = replace(model, objectives=(replace(model.objectives[0], offset=offset),))
    found = Solver(backend=backend, gap=1e-3).solve(shifted, budget=Budget.of(20.0))
    assert found.status is Status.OPTIMAL
    assert found.gap <= 1e-3
    assert found.objective == pytest.approx(plain.objective + offset, rel=2e-3)
    assert found.bound <= found.objective


def test_no_time_left_means_that_no_code_is_run(dense_model):
    spent = Request(Budget(time.monotonic()), 0.0)
    found = run_stage(dense_model(cost=[1.0]), Liar(AssertionError("was run")), spent, None)
    assert found.status is Status.NO_SOLUTION
    assert found.raw.stop is Stop.TIME


def test_a_breakdown_is_an_error_or_the_incumbent(stage_of):
    broken = AttributeError("'StatusNotOk' object has no attribute 'canonical_code'")
    found = stage_of(broken)
    assert found.status is Status.ERROR
    assert "canonical_code" in found.message
    assert stage_of(broken, incumbent=np.zeros(2)).status is Status.FEASIBLE
