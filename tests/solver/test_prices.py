"""Prices: duals and re-solved differences, with one sign convention."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.solver import (
    BACKENDS,
    Axis,
    Budget,
    ModelBuilder,
    ModelError,
    NoSolutionError,
    Solver,
    prices,
)

pytestmark = pytest.mark.quick

INF = np.inf
SOLVER = Solver()
WITH_DUALS = [name for name in BACKENDS if BACKENDS[name]().capabilities.duals]


@pytest.mark.parametrize("backend", WITH_DUALS)
@pytest.mark.parametrize("maximise", [False, True])
def test_dual_and_differences_agree_where_nothing_is_degenerate(
    backend, maximise, dense_model, minute
):
    """max x0 + 2 x1, x0 + x1 <= 15, x <= 10: one unit more of the row is worth 1."""
    sign = 1.0 if maximise else -1.0
    model = dense_model(
        rows=[[1, 1]], row_upper=15, cost=[sign, 2 * sign], maximise=maximise, offset=7.0
    )
    found = prices(model, "r", Solver(backend=backend), budget=minute)
    assert found.dual.tolist() == pytest.approx([sign])
    assert found.one_more.tolist() == pytest.approx([sign])
    assert found.one_less.tolist() == pytest.approx([sign])
    assert found.sides == ["upper"]


def test_every_side_has_the_same_sign_convention(dense_model, minute):
    """min x0 + 3 x1 + x2 with x0 + x1 = 4, x1 + x2 >= 5: raising either side costs 1."""
    model = dense_model(
        rows=[[1, 1, 0], [0, 1, 1]], row_lower=[4, 5], row_upper=[4, INF], cost=[1, 3, 1]
    )
    found = prices(model, ["r"], SOLVER, budget=minute)
    assert found.sides == ["both", "lower"]
    for column in (found.dual, found.one_more, found.one_less):
        assert column.tolist() == pytest.approx([1.0, 1.0])


def test_a_row_with_two_sides_is_priced_where_it_binds(dense_model, minute):
    data = {"rows": [[1, 1]], "row_lower": 2, "row_upper": 6, "cost": [1, 2]}
    low = prices(dense_model(**data), 0, SOLVER, budget=minute)
    assert (low.sides, low.one_more.tolist()) == (["lower"], pytest.approx([1.0]))
    high = prices(dense_model(**data, maximise=True), 0, SOLVER, budget=minute)
    assert (high.sides, high.one_more.tolist()) == (["upper"], pytest.approx([2.0]))


def test_degenerate_duals_lie_between_the_two_prices(dense_model, minute):
    """max x0 + x1, x0 + x1 <= 4, x0, x1 <= 2: a fifth unit is worth nothing, the fourth 1."""
    model = dense_model(rows=[[1, 1]], row_upper=4, upper=2, cost=[1, 1], maximise=True)
    found = prices(model, "r", SOLVER, budget=minute)
    assert found.one_more.tolist() == pytest.approx([0.0])
    assert found.one_less.tolist() == pytest.approx([1.0])
    assert -1e-9 <= found.dual[0] <= 1.0 + 1e-9


def test_for_lps_the_dual_is_always_between(dense_model, minute):
    rng = np.random.default_rng(0)
    for seed in range(15):
        maximise = bool(seed % 2)
        model = dense_model(
            rows=rng.integers(0, 4, (3, 4)),
            row_upper=rng.integers(4, 12, 3),
            cost=rng.integers(1, 6, 4) * (1.0 if maximise else -1.0),
            upper=4,
            maximise=maximise,
        )
        found = prices(model, "r", SOLVER, budget=minute)
        low, high = np.sort(np.stack((found.one_more, found.one_less)), axis=0)
        assert (found.dual >= low - 1e-6).all()
        assert (found.dual <= high + 1e-6).all()
        # one more is never worth more than the one before it
        assert (np.abs(found.one_more) <= np.abs(found.one_less) + 1e-6).all()


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_a_milp_has_differences_and_no_dual(backend, dense_model, minute):
    """Weights 2, 3, 4, values 3, 4, 5: 7 at 5, and 8 at 6, 4 at 4 would be 5."""
    model = dense_model(
        rows=[[2, 3, 4]], row_upper=5, upper=1, integer=True, cost=[3, 4, 5], maximise=True
    )
    found = prices(model, "r", Solver(backend=backend), budget=minute)
    assert np.isnan(found.dual).all()
    assert found.one_more.tolist() == pytest.approx([1.0])
    assert found.one_less.tolist() == pytest.approx([2.0])


def test_several_objectives_are_told_apart(minute):
    """Place most GPUs, then at least cost: another A100 places one more, and costs 5."""
    builder = ModelBuilder("cluster")
    kinds = Axis("type", ["A100", "V100"])
    x = builder.columns("x", (4, 2), integer=True)
    one, kind = np.arange(4)[:, None], np.arange(2)[None, :]
    builder.rows("one_type", 4, row=one, column=x, value=1.0, upper=1.0)
    builder.rows("capacity", 2, row=kind, column=x, value=1.0, upper=[1, 2], axes=(kinds,))
    builder.objective("placed", column=x, value=1.0, maximise=True)
    builder.objective("cost", column=x, value=[[5.0, 9], [5, 9], [5, 9], [5, 9]])
    found = prices(builder.build(), ["capacity"], SOLVER, budget=minute)
    assert found.rows == ["capacity[A100]", "capacity[V100]"]
    assert found.more.tolist() == [[1.0, 5.0], [1.0, 9.0]]
    assert found.less.tolist() == [[1.0, 5.0], [1.0, 9.0]]
    assert np.isnan(found.dual).all()
    table = found.to_dict()
    assert list(table) == [
        *("row", "side", "dual", "one_more (placed)", "one_less (placed)"),
        *("one_more (cost)", "one_less (cost)", "one_more_status", "one_less_status"),
    ]
    assert table["dual"] == [None, None]


def test_an_impossible_step_has_no_price(dense_model, minute):
    model = dense_model(rows=[[1, 1]], row_lower=20, row_upper=INF, cost=[1, 1])
    found = prices(model, "r", SOLVER, budget=minute)
    assert np.isnan(found.one_more[0])
    assert found.more_status == ["infeasible"]
    assert found.one_less.tolist() == pytest.approx([1.0])
    assert found.to_dict()["one_more"] == [None]


def test_what_the_budget_cuts_off_is_not_made_up(choice_model, monkeypatch):
    ask, left = Solver.solve, iter(range(2))

    def in_time(self, model, *, budget, warm_start=None):
        spent = budget if next(left, None) is not None else Budget(0.0)
        return ask(self, model, budget=spent, warm_start=warm_start)

    monkeypatch.setattr(Solver, "solve", in_time)
    model = choice_model(6, 2, whole=True).single(0)
    found = prices(model, "capacity", SOLVER, budget=Budget.of(60.0))
    assert np.isnan(found.one_more).tolist() == [False, True]
    assert np.isnan(found.one_less).all()


@pytest.mark.parametrize(
    ("rows", "unit", "message"),
    [
        ("capacty", 1.0, "capacty; is it capacity"),
        ([17], 1.0, "row 17: there are 8"),
        ("capacity", 0.0, "unit = 0.0"),
    ],
)
def test_bad_questions_are_refused(rows, unit, message, choice_model, minute):
    with pytest.raises(ModelError, match=message):
        prices(choice_model(6, 2), rows, SOLVER, budget=minute, unit=unit)


def test_an_impossible_model_has_no_prices(dense_model, minute):
    model = dense_model(rows=[[1, 1]], row_lower=30, cost=[1, 1])
    with pytest.raises(NoSolutionError, match="no prices: infeasible"):
        prices(model, "r", SOLVER, budget=minute)
    free = dense_model(rows=[[1, 1]], cost=[1, 1])
    with pytest.raises(ModelError, match="no side"):
        prices(free, "r", SOLVER, budget=minute)
