from __future__ import annotations

import math
import time

import pytest

from apportion.solver import Budget

pytestmark = pytest.mark.quick


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, -math.inf])
def test_a_limit_must_be_positive(seconds):
    with pytest.raises(ValueError, match=f"time limit = {seconds!r}"):
        Budget.of(seconds)


def test_no_limit_never_ends(clock):
    budget = Budget.of(None)
    clock[0] += 1e12
    assert budget.left_s() == math.inf
    assert not budget.expired()
    assert budget.part(0.1).left_s() == math.inf


def test_time_left_runs_down_to_zero(clock):
    budget = Budget.of(2.0)
    clock[0] += 1.5
    assert budget.left_s() == pytest.approx(0.5)
    clock[0] += 1.0
    assert budget.left_s() == 0.0
    assert budget.expired()


def test_a_part_is_of_what_is_left_and_ends_no_later(clock):
    budget = Budget.of(10.0)
    clock[0] += 4.0
    assert budget.part(0.5).left_s() == pytest.approx(3.0)
    assert budget.part(1.0).deadline_s <= budget.deadline_s
    clock[0] += 7.0
    assert budget.part(0.5).expired()


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, math.nan])
def test_a_part_is_a_fraction(fraction):
    with pytest.raises(ValueError, match="fraction"):
        Budget.of(1.0).part(fraction)
