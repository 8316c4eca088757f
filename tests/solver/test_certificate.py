"""Certificates hold without a solver, and whatever is changed in one is named."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from apportion.solver import (
    Budget,
    Certificate,
    ModelError,
    Solver,
    Status,
    certify,
    infeasibility_duals,
    verify,
)
from apportion.solver.proof.evidence import bound_by_duals

pytestmark = pytest.mark.quick

INF = np.inf
SOLVER = Solver(gap=0.0)


def solved(model, **options):
    solution = SOLVER.solve(model, budget=Budget.of(60.0))
    return certify(model, solution, gap=0.0, **options)


@pytest.fixture
def cover(dense_model):
    """min x0 + x1 with x0 + 2 x1 >= 4 and 3 x0 + x1 >= 6: 14/5 at (8/5, 6/5), duals (2/5, 1/5)."""
    return dense_model(rows=[[1, 2], [3, 1]], row_lower=[4, 6], cost=[1, 1])


@pytest.fixture
def knapsack(dense_model):
    return dense_model(
        rows=[[0.2, 0.3, 0.45]],
        row_upper=0.5,
        upper=1,
        integer=True,
        cost=[0.3, 0.4, 0.75],
        maximise=True,
    )


def test_the_bound_of_an_lp_is_proved_exactly(cover):
    certificate = solved(cover)
    assert certificate.arithmetic == "exact"
    assert certificate.bounds == ["14/5"]
    assert certificate.evidence == ["duals"]
    assert certificate.duals == pytest.approx([0.4, 0.2])
    found = verify(cover, certificate)
    assert found.holds
    assert found.proved
    assert found.arithmetic == "exact"


def test_it_goes_through_json(cover, knapsack):
    for model in (cover, knapsack):
        certificate = solved(model)
        told = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
        assert Certificate.from_dict(told) == certificate
        assert verify(model, told).holds


def test_a_point_in_whole_numbers_is_feasible_to_the_last_digit(knapsack):
    certificate = solved(knapsack)
    assert certificate.residuals["row_excess"] == "0"
    assert certificate.residuals["column_excess"] == "0"
    assert certificate.objectives == ["3/4"]
    found = verify(knapsack, certificate)
    assert found.holds
    assert found.words == ("bound of first: the word of highs",)
    assert not found.proved


def test_decimals_are_read_as_decimals(dense_model):
    model = dense_model(rows=[[0.1, 0.2]], row_upper=0.3, integer=True, cost=[-1, -1], upper=1)
    certificate = solved(model)
    assert 0.1 + 0.2 > 0.3
    assert certificate.residuals["row_excess"] == "0"


def test_long_numbers_are_checked_in_double_precision(dense_model):
    model = dense_model(rows=[[1 / 3, 1 / 7]], row_lower=1.0, cost=[1, 1])
    certificate = solved(model)
    assert certificate.arithmetic == "double"
    assert verify(model, certificate).proved


def test_the_bound_of_a_milp_can_rest_on_the_duals_of_its_relaxation(dense_model):
    model = dense_model(rows=[[2, 2]], row_upper=7, integer=True, cost=[1, 1], maximise=True)
    duals = SOLVER.solve(model.relaxed(), budget=Budget.of(60.0)).duals
    certificate = solved(model, duals=duals)
    # 7/2 rounded to what the objective can be
    assert certificate.bounds == ["3"]
    assert certificate.evidence == ["duals"]
    assert verify(model, certificate).proved


def test_weak_duals_do_not_replace_the_bound_of_a_back_end(knapsack):
    certificate = solved(knapsack, duals=[0.0])
    assert certificate.evidence == ["highs"]
    assert certificate.duals is None


def test_open_columns_are_proved_with_round_duals(dense_model):
    model = dense_model(rows=[[3, 1], [1, 3]], row_lower=[1, 1], upper=INF, cost=[0.1, 0.1])
    certificate = solved(model)
    assert Fraction(certificate.bounds[0]) == Fraction(1, 20)
    assert verify(model, certificate).proved


def test_infeasibility_is_proved_by_duals(dense_model):
    model = dense_model(
        rows=[[1, 1], [1, 1]], row_lower=[5, -INF], row_upper=[INF, 4], cost=[1, 2], integer=True
    )
    duals = infeasibility_duals(model, SOLVER, Budget.of(60.0))
    certificate = solved(model, duals=duals)
    assert certificate.status == "infeasible"
    assert verify(model, certificate).proved
    assert verify(model, replace(certificate, duals=None)).words == ("status: infeasible",)
    broken = verify(model, replace(certificate, duals=[-d for d in certificate.duals]))
    assert broken.faults == ("duals: they do not prove that no point exists",)


def test_no_duals_prove_a_possible_model_infeasible(cover):
    assert infeasibility_duals(cover, SOLVER, Budget.of(60.0)) is None
    rng = np.random.default_rng(0)
    claim = replace(solved(cover), status="infeasible", point=None, objectives=[])
    for _ in range(50):
        tried = replace(claim, duals=rng.normal(size=2).tolist())
        assert "duals: they do not prove that no point exists" in verify(cover, tried).faults


def test_several_objectives_are_recomputed(choice_model):
    model = choice_model(8, 3, whole=True)
    certificate = solved(model)
    assert len(certificate.objectives) == 2
    found = verify(model, certificate)
    assert found.holds
    assert len(found.words) == 2


CHANGES = {
    "a value out of bounds": (("point", 0), 11.0, r"point: x\[0\] = 11"),
    "a value that breaks a row": (("point", 1), 0.0, r"point: row r\[0\]"),
    "a value inside": (("point", 0), 2.0, "objective first"),
    "a value left out": (("point",), [1.6], "point: shape"),
    "no number": (("point", 0), float("nan"), r"point: x\[0\] = nan"),
    "the objective": (("objectives", 0), "13/5", "objective first"),
    "no objective": (("objectives",), [], "objectives: 0 instead of 1"),
    "the bound": (("bounds", 0), "27/10", "duals: they prove 2.8 for first, not 27/10"),
    "a bound above": (("bounds", 0), "3", "contradicts"),
    "no bound": (("bounds", 0), None, "status: optimal"),
    "a word for a bound": (("bounds", 0), "much", "'much' is not a number"),
    "a dual": (("duals", 1), 0.1, r"duals: they prove 2\.2 for first, not 14/5; .* column x\[0\]"),
    "a dual left out": (("duals",), [0.4], "one for each of 2 rows"),
    "another status": (("status",), "infeasible", "infeasible with a point"),
    "a residual": (("residuals", "row_excess"), "1", "residuals: row_excess"),
    "a part": (("parts", "matrix"), "0", "model: matrix"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_named(change, cover):
    path, value, message = CHANGES[change]
    data = copy.deepcopy(solved(cover).to_dict())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    found = verify(cover, data)
    assert not found.holds
    assert any(re.search(message, fault) for fault in found.faults), found.faults


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"upper": np.array([10.0, 9.0])}, "upper bounds"),
        ({"lower": np.array([0.5, 0.0])}, "lower bounds"),
        ({"row_lower": np.array([4.0, 5.0])}, "lower sides"),
        ({"row_upper": np.array([40.0, INF])}, "upper sides"),
        ({"values": np.array([1.0, 2.0, 3.0, 2.0])}, "matrix"),
        ({"integer": np.array([True, False])}, "whole-number columns"),
    ],
)
def test_another_model_is_named(change, part, cover):
    found = verify(replace(cover, **change), solved(cover))
    assert f"model: {part} is not what was certified" in found.faults


def test_another_objective_is_named(cover):
    other = replace(cover, objectives=(replace(cover.objectives[0], maximise=True),))
    assert any("objective 0 (first)" in fault for fault in verify(other, solved(cover)).faults)


def test_random_changes_of_numbers_never_pass_as_optimal(dense_model):
    rng = np.random.default_rng(1)
    for _ in range(30):
        model = dense_model(
            rows=rng.integers(0, 5, (2, 3)), row_lower=[3, 4], cost=rng.integers(1, 9, 3)
        )
        solution = SOLVER.solve(model, budget=Budget.of(60.0))
        if solution.status is not Status.OPTIMAL:
            continue
        certificate = certify(model, solution, gap=0.0)
        assert verify(model, certificate).proved
        for key in ("point", "duals"):
            data = copy.deepcopy(certificate.to_dict())
            at = int(rng.integers(len(data[key])))
            data[key][at] += float(rng.choice([-1.0, -0.01, 0.01, 1.0]))
            changed = Certificate.from_dict(data)
            best = solution.objective
            if verify(model, changed).holds:
                # what still holds is true: another optimum, or duals that prove the same
                assert sum(
                    c * x for c, x in zip(model.objectives[0].cost, changed.point, strict=True)
                ) == pytest.approx(best)
                assert float(bound_by_duals(model, np.array(changed.duals))) == pytest.approx(best)


@pytest.mark.parametrize(
    "change", [{"schema": "other"}, {"more": 1}, {"status": ...}], ids=["schema", "more", "less"]
)
def test_other_data_is_refused(change, cover):
    data = {**solved(cover).to_dict(), **change}
    data = {key: value for key, value in data.items() if value is not ...}
    with pytest.raises(ModelError, match="certificate: "):
        verify(cover, data)
