from __future__ import annotations

import re

import numpy as np
import pytest

from apportion.solver import check_point

pytestmark = pytest.mark.quick


@pytest.fixture
def model(dense_model):
    """x0 whole, x1 not; x0 + x1 <= 15 and a row of small numbers."""
    return dense_model(
        rows=[[1, 1], [1e-5, 1e-5]],
        row_lower=[-np.inf, 1e-5],
        row_upper=[15, np.inf],
        integer=[True, False],
        cost=[1, 1],
    )


def test_a_good_point_passes_and_cannot_be_written(model):
    point, fault = check_point(model, np.array([5.0, 9.5]))
    assert point.tolist() == [5.0, 9.5]
    assert fault == ""
    assert not point.flags.writeable


def test_whole_numbers_are_rounded_and_bounds_met_exactly(model):
    point, _ = check_point(model, np.array([4.0000004, 10.0000003]))
    assert point.tolist() == [4.0, 10.0]


def test_rounding_that_breaks_a_row_is_refused(dense_model):
    # a continuous column that leans on the unrounded part of a large coefficient
    model = dense_model(
        rows=[[1e7, 1]], row_upper=1e4, integer=[True, False], upper=[5, 1e4], cost=[1, 1]
    )
    assert check_point(model, np.array([0.0, 1e4]))[0] is not None
    point, fault = check_point(model, np.array([1 - 9e-7, 0.0]))
    assert point is None
    assert "row r" in fault


@pytest.mark.parametrize(
    ("x", "fault"),
    [
        ([5.0, 10.1], r"x\[1\] = 10.1 outside"),
        ([-1.0, 1.0], r"x\[0\] = -1.0 outside"),
        ([11.0, 1.0], r"x\[0\] = 11.0 outside"),
        ([5.4, 1.0], "not a whole number"),
        ([8.0, 7.1], r"row r\[0\] = 15.1 outside"),
        ([0.0, 0.5], r"row r\[1\]"),
        ([np.nan, 1.0], "nan"),
        ([1.0, np.inf], "inf"),
        ([1.0], "shape"),
    ],
)
def test_a_corrupt_point_is_refused_by_name(x, fault, model):
    point, found = check_point(model, np.array(x))
    assert point is None
    assert re.search(fault, found)


def test_tolerance_follows_the_size_of_the_row(dense_model):
    wide = dense_model(rows=[[1, 1]], row_upper=1e6, upper=1e6, cost=[1, 1])
    assert check_point(wide, np.array([5e5, 5e5 + 0.5]))[0] is not None
    assert check_point(wide, np.array([5e5, 5e5 + 2.0]))[0] is None
    narrow = dense_model(rows=[[1e-6, 1e-6]], row_upper=1e-6, cost=[1, 1])
    assert check_point(narrow, np.array([1.0, 1e-7]))[0] is not None
    assert check_point(narrow, np.array([1.0, 1e-3]))[0] is None
