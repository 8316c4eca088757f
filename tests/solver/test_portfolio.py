"""Which back ends "auto" means, and what happens when one of them does not run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from apportion.solver import BACKENDS, Budget, Model, ModelBuilder, Solver, Status
from apportion.solver import portfolio as table
from apportion.solver.backends.backend import Backend, Capabilities, Claim, RawResult, Request
from apportion.solver.chain import Chain
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.portfolio import PORTFOLIO, Features, case_for

pytestmark = pytest.mark.quick


@dataclass
class Stub:
    """A back end that breaks in a chosen way."""

    name: str = "stub"
    there: bool = True
    raises: Exception | None = None
    raw: RawResult = field(default_factory=lambda: RawResult(Claim.FAILED, message="broke down"))
    capabilities: Capabilities = field(default=Capabilities(integers=True, continuous=True))
    asked: list[Request] = field(default_factory=list)

    def available(self) -> bool:
        return self.there

    def solve(self, model: Model, request: Request) -> RawResult:
        self.asked.append(request)
        if self.raises is not None:
            raise self.raises
        return self.raw


def placement(jobs: int, kinds: int, *, whole: bool, integer: bool) -> Model:
    rng = np.random.default_rng(0)
    cost = rng.integers(1, 99, (jobs, kinds)) if whole else rng.uniform(1, 99, (jobs, kinds))
    b = ModelBuilder("placement")
    x = b.columns("x", (jobs, kinds), integer=integer)
    b.rows("one", jobs, row=np.arange(jobs)[:, None], column=x, value=1.0, upper=1.0)
    b.rows("cap", kinds, row=np.arange(kinds)[None, :], column=x, value=2.0, upper=float(jobs))
    b.objective("cost", column=x, value=-cost)
    return b.build()


def fairness(jobs: int, kinds: int) -> Model:
    rng = np.random.default_rng(0)
    b = ModelBuilder("fairness")
    x, t = b.columns("x", (jobs, kinds)), b.columns("t", 1, upper=100.0)
    job, kind = np.arange(jobs)[:, None], np.arange(kinds)[None, :]
    b.rows("one", jobs, row=job, column=x, value=1.0, upper=1.0)
    b.rows(
        "level",
        jobs,
        row=np.broadcast_to(job, (jobs, kinds + 1)),
        column=np.c_[x, np.broadcast_to(t, (jobs, 1))],
        value=np.c_[rng.uniform(0.2, 5, (jobs, kinds)), -np.ones(jobs)],
        lower=0.0,
    )
    b.rows("cap", kinds, row=kind, column=x, value=1.0, upper=0.2 * jobs / kinds)
    b.objective("t", column=t, value=1.0, maximise=True)
    return b.build()


@pytest.mark.parametrize(
    ("model", "name", "first"),
    [
        (placement(50, 4, whole=False, integer=False), "placement LP", "glop-dual"),
        (fairness(50, 6), "small LP", "glop"),
        (placement(2000, 8, whole=False, integer=False), "placement LP", "glop-dual"),
        (fairness(1200, 6), "contended LP", "highs-ipm"),
        (placement(50, 4, whole=True, integer=True), "MILP", "highs"),
        (placement(4000, 8, whole=False, integer=True), "large MILP", "highs"),
        (placement(4000, 8, whole=True, integer=True), "large placement in whole numbers", "cpsat"),
    ],
)
def test_the_first_rule_that_fits_decides(model, name, first):
    case = case_for(model)
    assert case.name == name
    assert case.use[0].name == first


def test_every_rule_says_why_and_names_back_ends_of_the_registry():
    assert len({case.name for case in PORTFOLIO}) == len(PORTFOLIO)
    for case in PORTFOLIO:
        assert case.reason
        for member in case.use:
            assert BACKENDS[member.name]() == member
            assert member.capabilities.integers or case.kinds == ("lp",)


def test_no_rule_tries_pdlp_and_a_rule_fits_every_class():
    assert not any(member.name == "pdlp" for case in PORTFOLIO for member in case.use)
    for kind in ("lp", "milp", "whole"):
        endless = [r for r in PORTFOLIO if kind in r.kinds and r.most_nonzeros == np.inf]
        assert any(not case.placement for case in endless)


def test_placement_is_told_from_fairness_by_its_rows():
    assert Features(placement(50, 4, whole=True, integer=True)).placement
    assert not Features(fairness(60, 4)).placement


def only(monkeypatch, *members: Backend) -> None:
    case = table.Case("stub", ("lp", "milp", "whole"), use=members, reason="a test")
    monkeypatch.setattr(table, "PORTFOLIO", (case,))


def test_what_does_not_run_is_skipped_and_named(monkeypatch, dense_model, minute, caplog):
    only(
        monkeypatch,
        Stub("gone", there=False),
        Stub("broken", raises=AttributeError("canonical_code")),
        Stub("choosy", raises=UnsupportedModelError("only on Sundays")),
        Stub("failing"),
        BACKENDS["scip"](),
        Stub("never", raises=AssertionError("was asked")),
    )
    model = dense_model(rows=[[1, 1]], row_upper=15, integer=True, cost=[1, 2], maximise=True)
    found = Solver().solve(model, budget=minute)
    assert found.status is Status.OPTIMAL
    assert found.objective == 25.0
    assert found.backend == "scip"
    assert found.skipped == (
        "gone: cannot run here",
        "broken: AttributeError: canonical_code",
        "choosy: only on Sundays",
        "failing: broke down",
    )
    for name in ("gone", "broken", "choosy", "failing"):
        assert f"{name} is skipped" in caplog.text


def test_what_was_skipped_is_not_asked_again_for_the_next_objective(
    monkeypatch, dense_model, minute
):
    broken = Stub("broken")
    only(monkeypatch, broken, BACKENDS["highs"]())
    model = dense_model(
        rows=[[1, 1]],
        row_upper=3,
        integer=True,
        cost=[1, 1],
        maximise=True,
        more=(([0, 1], False),),
    )
    found = Solver().solve(model, budget=minute)
    assert found.objectives == (3.0, 0.0)
    assert len(broken.asked) == 1
    assert len(found.skipped) == 1


def test_nothing_that_runs_is_an_error_that_says_so(monkeypatch, dense_model, minute):
    only(monkeypatch, Stub("gone", there=False), Stub("failing"))
    found = Solver().solve(dense_model(cost=[1.0]), budget=minute)
    assert found.status is Status.ERROR
    assert found.skipped == ("gone: cannot run here", "failing: broke down")


def test_a_point_found_before_a_breakdown_is_kept(dense_model, minute):
    model = dense_model(rows=[[1, 1]], row_upper=15, integer=True, cost=[-1, -2])
    before = np.array([4.0, 10.0])
    idle = Stub("idle", raw=RawResult(Claim.NOTHING))
    chain = Chain((Stub("dying", raw=RawResult(Claim.FAILED, x=before)), idle))
    raw = chain.solve(model, Request(minute, 0.0))
    assert raw.claim is Claim.POINT
    assert raw.x.tolist() == before.tolist()
    assert idle.asked[0].start.tolist() == before.tolist()
    worse = Stub("worse", raw=RawResult(Claim.POINT, x=np.zeros(2)))
    chain = Chain((Stub("dying", raw=RawResult(Claim.FAILED, x=before)), worse))
    assert chain.solve(model, Request(minute, 0.0)).x.tolist() == before.tolist()


def test_a_back_end_asked_for_by_name_has_no_substitute(monkeypatch, dense_model, minute):
    monkeypatch.setattr(BACKENDS["scip"], "solve", lambda *_: 1 / 0)
    model = dense_model(integer=True, cost=[1.0])
    found = Solver(backend="scip").solve(model, budget=minute)
    assert found.status is Status.ERROR
    assert found.skipped == ()


@pytest.mark.parametrize("model", [fairness(80, 4), placement(300, 6, whole=False, integer=False)])
def test_every_member_of_a_rule_finds_the_same_optimum(model):
    values = [
        Solver(backend=member.name).solve(model, budget=Budget.of(30.0)).objective
        for case in PORTFOLIO
        if case.kinds == ("lp",)
        for member in case.use
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-6)
