"""Random small models: every code gives the same optimum, and brute force agrees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.solver import Budget, Solver, Status

pytestmark = pytest.mark.quick

INF = np.inf
relaxed = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def milp_data(draw, *, whole=False):
    columns, rows = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    number = st.integers(-6, 6) if whole else st.integers(-60, 60).map(lambda n: n / 10)
    vector = st.lists(number, min_size=columns, max_size=columns)
    matrix = draw(st.lists(vector, min_size=rows, max_size=rows))
    lower = [draw(st.sampled_from([-INF, -4, 0, 1])) for _ in range(rows)]
    width = [draw(st.sampled_from([0, 3, 8, INF])) for _ in range(rows)]
    upper = [w if low == -INF else low + w for low, w in zip(lower, width, strict=True)]
    booleans = st.lists(st.booleans(), min_size=columns, max_size=columns)
    return {
        "rows": matrix,
        "row_lower": lower,
        "row_upper": upper,
        "lower": draw(st.sampled_from([0, -2])),
        "upper": draw(st.sampled_from([1, 3])),
        "integer": True if whole else draw(booleans),
        "cost": draw(vector),
        "maximise": draw(st.booleans()),
    }


@relaxed
@given(data=milp_data())
def test_codes_agree_on_small_milps(data, dense_model):
    model = dense_model(**data)
    answers = [
        Solver(backend=name, gap=0.0).solve(model, budget=Budget.of(20.0))
        for name in ("highs", "scip", "cbc")
    ]
    assert {answer.status for answer in answers} <= {Status.OPTIMAL, Status.INFEASIBLE}
    assert len({answer.status for answer in answers}) == 1
    if answers[0].status is Status.OPTIMAL:
        values = [answer.objective for answer in answers]
        np.testing.assert_allclose(values, values[0], rtol=1e-6, atol=1e-6)


@relaxed
@given(data=milp_data(whole=True))
def test_cpsat_and_highs_agree_with_brute_force(data, dense_model):
    model = dense_model(**data)
    points = np.array(
        list(
            itertools.product(
                *(range(int(a), int(b) + 1) for a, b in zip(model.lower, model.upper, strict=True))
            )
        ),
        dtype=float,
    )
    activity = points @ model.matrix.toarray().T
    good = ((activity >= model.row_lower) & (activity <= model.row_upper)).all(axis=1)
    for name in ("cpsat", "highs"):
        found = Solver(backend=name, gap=0.0).solve(model, budget=Budget.of(20.0))
        if not good.any():
            assert found.status is Status.INFEASIBLE
            continue
        values = points[good] @ model.objectives[0].cost
        best = values.max() if data["maximise"] else values.min()
        assert found.status is Status.OPTIMAL
        assert found.objective == found.bound == best


@relaxed
@given(data=milp_data())
def test_lp_codes_agree_and_their_duals_prove_it(data, dense_model):
    model = dense_model(**data).relaxed()
    answers = [
        Solver(backend=name).solve(model, budget=Budget.of(20.0))
        for name in ("glop", "highs", "highs-ipm", "cbc")
    ]
    assert len({answer.status for answer in answers}) == 1
    if answers[0].status is Status.OPTIMAL:
        values = [answer.objective for answer in answers]
        np.testing.assert_allclose(values, values[0], rtol=1e-6, atol=1e-6)
        for answer in answers:
            assert answer.bound == pytest.approx(answer.objective, rel=1e-6, abs=1e-6)
