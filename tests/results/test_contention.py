"""The number of sharers, averaged over a job's lifetime."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.results import mean_active

pytestmark = pytest.mark.quick


def by_brute_force(arrival: list[float], finish: list[float]) -> list[float]:
    times = sorted({*arrival, *(time for time in finish if np.isfinite(time))})
    out: list[float] = []
    for start, end in zip(arrival, finish, strict=True):
        if not np.isfinite(end):
            out.append(np.nan)
            continue
        if end == start:
            out.append(1.0)
            continue
        total = 0.0
        for left, right in pairwise(times):
            if left >= start and right <= end:
                active = sum(a <= left and f >= right for a, f in zip(arrival, finish, strict=True))
                total += active * (right - left)
        out.append(total / (end - start))
    return out


def test_one_job_shares_with_itself_only():
    assert mean_active(np.array([5.0]), np.array([9.0])).tolist() == [1.0]


def test_contention_that_changes_twice():
    # X lives over [0, 10), Y over [2, 6), Z from 8 on without an end.
    # X: 2 s alone, 4 s with Y, 2 s alone, 2 s with Z: (2 + 8 + 2 + 4) / 10.
    got = mean_active(np.array([0.0, 2.0, 8.0]), np.array([10.0, 6.0, np.inf]))
    assert got[:2].tolist() == [1.6, 2.0]
    assert np.isnan(got[2])


def test_no_jobs():
    assert mean_active(np.zeros(0), np.zeros(0)).size == 0


lives = st.lists(
    st.tuples(st.integers(0, 12), st.one_of(st.integers(0, 9), st.just(np.inf))),
    max_size=12,
)


@given(lives, st.sampled_from([0.0, 1e9]), st.sampled_from([1.0, 0.37]))
@settings(max_examples=200, deadline=None)
def test_agrees_with_brute_force(lives: list[tuple[int, float]], shift: float, scale: float):
    arrival = [shift + scale * start for start, _ in lives]
    finish = [shift + scale * (start + length) for start, length in lives]
    got = mean_active(np.array(arrival), np.array(finish))
    np.testing.assert_allclose(got, by_brute_force(arrival, finish), rtol=1e-9)
    assert (got[~np.isnan(got)] >= 1 - 1e-9).all()


def test_a_whole_trace_takes_a_moment():
    rng = np.random.default_rng(0)
    arrival = rng.uniform(0, 6e6, 82_000)
    finish = arrival + rng.exponential(2e4, 82_000)
    start = time.process_time()
    mean_active(arrival, finish)
    assert time.process_time() - start < 1.0
