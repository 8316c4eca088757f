"""Jobs, classes, rows of forced work, walks and models, each for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.formulations.training.leases import (
    LeaseColumns,
    LeaseJobs,
    class_model,
    forced_work,
    job_model,
    lease_classes,
    plan_faults,
    realise,
    refuted,
    spread,
    tightest_set,
)
from apportion.formulations.training.leases.exchange import exchanged
from apportion.formulations.training.leases.relaxation import Relaxation, solve_relaxed
from apportion.instances import InstanceError
from apportion.solver import Budget, Solver


def array(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("gang", [1, 0], r"lease_jobs\.gang\[1\] = 0"),
        ("need", [0, 1], r"lease_jobs\.need\[0\] = 0"),
        ("need", [1], r"lease_jobs\.need has shape"),
        ("due", [3, 3, 4], r"lease_jobs\.due\[1\] = 3"),
        ("value", [5.0, 6.0, 1.0], r"lease_jobs\.value\[1\] = 6"),
        ("value", [5.0, 4.0, -1.0], r"lease_jobs\.value\[2\] = -1"),
        ("value", [5.0, 4.0, np.nan], r"lease_jobs\.value\[2\]"),
        ("option_offsets", [0, 0, 3], r"lease_jobs\.option_offsets\[0\]"),
        ("option_offsets", [0, 2, 4], r"lease_jobs\.value_offsets"),
    ],
)
def test_wrong_jobs(field: str, value: list[float], message: str) -> None:
    good: dict[str, Any] = {
        "gang": [1, 2], "need": [1, 1], "option_offsets": [0, 2, 3], "due": [2, 3, 4],
        "value": [5.0, 4.0, 9.0],
    }  # fmt: skip
    LeaseJobs(**good)
    with pytest.raises(InstanceError, match=message):
        LeaseJobs(**{**good, field: value})


def test_options_of_different_jobs_need_not_rise() -> None:
    jobs = LeaseJobs.soft([1, 1], [1, 1], [[(3, 2.0), (5, 1.0)], [(1, 9.0)]])
    assert jobs.job_of_option.tolist() == [0, 0, 1]
    assert len(jobs) == 2


def test_classes_by_what_can_still_be_met() -> None:
    """Equal jobs are one class; options that nobody can meet are no columns."""
    jobs = LeaseJobs.soft(
        [1, 1, 2, 1], [2, 2, 1, 2],
        [[(1, 9.0), (3, 5.0)], [(1, 9.0), (3, 5.0)], [(2, 1.0)], [(3, 5.0)]],
    )  # fmt: skip
    classes = lease_classes(jobs, array(2, 1, 1))
    assert classes.count.tolist() == [2, 1, 1]
    assert classes.of_class.tolist() == [0, 1, 2]
    assert classes.option.tolist() == [1, 0, 0]
    assert lease_classes(jobs, array(1, 2, 2)).of_class.tolist() == [0, 1, 2]
    assert lease_classes(jobs, array(1, 1, 2)).of_class.tolist() == [0, 2]


def test_options_that_the_horizon_makes_equal_are_one_column() -> None:
    jobs = LeaseJobs.soft([1], [1], [[(1, 9.0), (2, 5.0), (3, 4.0)]])
    assert lease_classes(jobs, array(1, 1)).option.tolist() == [0, 1]


def test_bound_knows_the_sets_that_falling_capacity_needs() -> None:
    """The first k leases allow both jobs; lease 1 alone, where each must run, allows one."""
    jobs = LeaseJobs.hard([1, 1], [2, 2], [2, 2])
    solver, budget = Solver(gap=0.0), Budget.of(60.0)
    for capacity, bound in ((array(3, 1), 1.0), (array(2, 2), 2.0)):
        classes = lease_classes(jobs, capacity)
        problem = Relaxation.of(classes, classes.value)
        relaxed = solve_relaxed(problem, solver, budget)
        assert relaxed.price is not None
        assert relaxed.price.bound == pytest.approx(bound)
        assert problem.with_violated(array(2)) is None or bound == 1.0


def test_kept_jobs_are_a_class_of_their_own() -> None:
    jobs = LeaseJobs.hard([1, 1, 1], [1, 1, 1], [1, 1, 1])
    classes = lease_classes(jobs, array(3), np.array([False, True, False]))
    assert classes.count.tolist() == [2, 1]
    assert classes.keep.tolist() == [False, True]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_counts_spread_back_to_jobs(data: Any) -> None:
    """Any counts with X <= Y and sum X = need Y become leases of jobs, none of them twice."""
    y, horizon = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    need = data.draw(st.integers(1, horizon))
    count = y + data.draw(st.integers(0, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    slots = np.zeros(horizon, dtype=np.int64)
    for _ in range(need * y):
        slots[rng.choice(np.flatnonzero(slots < y))] += 1
    jobs = LeaseJobs.hard([2] * count, [need] * count, [horizon] * count)
    capacity = np.full(horizon, 2 * y)
    classes = lease_classes(jobs, capacity)
    option, offsets, lease = spread(classes, array(y), slots[None, :])
    assert not plan_faults(jobs, capacity, option, offsets, lease)
    assert (option >= 0).sum() == y


def test_rows_by_hand() -> None:
    """(g, n, D) = (2, 2, 3): in the first k leases it must run 0, 1 and 2 times."""
    work = forced_work(array(2), array(2), array(3), array(4, 4, 4, 4), np.tri(4, dtype=bool))
    assert work.coefficient[:, 0].tolist() == [0, 2, 4, 4]
    assert work.side.tolist() == [4, 8, 12, 16]
    # a lease in which the gang does not fit is no way out
    closed = forced_work(array(2), array(2), array(3), array(4, 1, 4, 4), np.tri(4, dtype=bool))
    assert closed.coefficient[:, 0].tolist() == [2, 2, 4, 4]
    assert closed.side.tolist() == [4, 4, 8, 12]


def test_one_gang_counts_whole_gangs_only() -> None:
    assert refuted(array(2), array(3), array(3), array(1), array(2, 3, 1))
    assert refuted(array(2, 2), array(1, 2), array(3, 2), array(1, 1), array(2, 3, 1))
    assert not refuted(array(2), array(2), array(2), array(1), array(2, 3, 1))


def test_falling_capacity_is_refuted_by_a_later_lease() -> None:
    two = (array(1), array(2), array(2), array(2))
    assert refuted(*two, array(3, 1))
    assert not refuted(*two, array(2, 2))
    assert not refuted(*two, array(2, 3))


def _fluid_room(gang: Any, need: Any, due: Any, count: Any, capacity: Any) -> tuple[int, int]:
    """Work of all jobs, and the most of it that max flow brings into the leases."""
    from ortools.graph.python import max_flow

    flow, columns = max_flow.SimpleMaxFlow(), gang.size
    sink = 1 + columns + capacity.size
    for c in range(columns):
        flow.add_arc_with_capacity(0, 1 + c, int(gang[c] * need[c] * count[c]))
        for t in range(int(due[c])):
            flow.add_arc_with_capacity(1 + c, 1 + columns + t, int(gang[c] * count[c]))
    for t, gpus in enumerate(capacity.tolist()):
        flow.add_arc_with_capacity(1 + columns + t, sink, gpus)
    assert flow.solve(0, sink) == flow.OPTIMAL
    return int((gang * need * count).sum()), int(flow.optimal_flow())


@pytest.mark.parametrize("seed", range(40))
def test_tightest_set_is_the_minimum_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns, horizon = int(rng.integers(1, 7)), int(rng.integers(1, 9))
    gang, due = rng.integers(1, 5, columns), rng.integers(1, horizon + 1, columns)
    need, count = rng.integers(1, due + 1), rng.integers(0, 4, columns)
    capacity = rng.integers(0, 12, horizon)
    work, flow = _fluid_room(gang, need, due, count, capacity)
    room, chosen = tightest_set(gang, need, due, count, capacity)
    assert room == flow - work
    outside = np.array([(~chosen[:d]).sum() for d in due])
    forced = gang * np.maximum(need - outside, 0) @ count
    assert capacity[chosen].sum() - forced == room


@pytest.mark.parametrize("seed", range(60))
def test_walks_are_exact_for_one_gang(seed: int) -> None:
    """Backwards for any capacity, least laxity first where it never falls."""
    rng = np.random.default_rng(seed)
    columns, horizon, size = (
        int(rng.integers(1, 9)),
        int(rng.integers(2, 9)),
        int(rng.integers(1, 4)),
    )
    due = rng.integers(1, horizon + 1, columns)
    need, count = rng.integers(1, due + 1), rng.integers(1, 3, columns)
    capacity = rng.integers(0, size * columns + 1, horizon)
    capacity = np.sort(capacity) if seed % 2 else capacity
    gang = np.full(columns, size)
    whole = capacity - capacity % size
    work, flow = _fluid_room(gang, need, due, count, whole)
    fits = work == flow
    assert refuted(gang, need, due, count, capacity) == (not fits)
    laid = realise(LeaseColumns.of(gang, need, due), count, capacity)
    assert (laid.y == count).all() == fits
    assert (laid.leases.sum(axis=1) == need * laid.y).all()
    assert (laid.leases <= laid.y[:, None]).all()
    assert (laid.use(gang) <= capacity).all()
    assert not (laid.leases * (np.arange(horizon) >= due[:, None])).any()


def test_jobs_to_keep_are_shed_last() -> None:
    columns = LeaseColumns(
        array(1, 1), array(1, 1), array(1, 1), np.array([True, False]), np.array([1.0, 9.0])
    )
    assert realise(columns, array(1, 1), array(1)).y.tolist() == [1, 0]
    free = LeaseColumns(
        array(1, 1), array(1, 1), array(1, 1), np.zeros(2, bool), np.array([1.0, 9.0])
    )
    assert realise(free, array(1, 1), array(1)).y.tolist() == [0, 1]


def test_exchange_by_hand() -> None:
    """The first job moves from lease 1 to 0, so that a newcomer has leases 0 or 1 and 2."""
    plan = np.array([[False, True, True], [False, True, True]])
    found = exchanged(plan, array(1, 1), array(3, 3), array(2, 0, 0), (1, 2, 3))
    assert found is not None
    assert len(found.moves) == 1
    row, out_of, into = found.moves[0]
    assert plan[row, out_of]
    assert into == 0
    assert sorted(found.chosen.tolist()) == sorted([0, out_of])
    assert found.free.tolist() == [0, 0, 0]
    assert exchanged(plan, array(1, 1), array(3, 3), array(1, 0, 0), (1, 2, 3)) is None


def test_models_by_hand() -> None:
    """Two equal soft jobs: 1 class of 2 options, or 2 jobs of 2 options, the same optimum."""
    jobs = LeaseJobs.soft([1, 1], [2, 2], [[(2, 10.0), (3, 8.0)]] * 2)
    capacity = array(1, 1, 2)
    classes = lease_classes(jobs, capacity)
    by_class = class_model(classes)
    by_job, separate = job_model(jobs, capacity)
    assert by_class.column_count == 2 + 5
    assert by_job.column_count == 2 * (2 + 5)
    assert separate.count.tolist() == [1, 1]
    solver, budget = Solver(gap=0.0), Budget.of(60.0)
    assert solver.solve(by_class, budget=budget).objective == 16.0
    assert solver.solve(by_job, budget=budget).objective == 16.0


@pytest.mark.parametrize(
    ("option", "offsets", "lease", "fault"),
    [
        ([0], [0, 1], [0], "not as many leases"),
        ([0], [0, 2], [0, 0], "twice"),
        ([0], [0, 2], [0, 2], "too late"),
        ([0], [0, 2], [0, 3], "does not exist"),
        ([1], [0, 2], [0, 1], "does not exist"),
        ([-1], [0, 2], [0, 1], "not as many leases"),
        ([-1], [0, 0], [], "must be in the plan"),
        ([0], [0, 3], [0, 1], "do not fit"),
    ],
)
def test_faults_of_plans(
    option: list[int], offsets: list[int], lease: list[int], fault: str
) -> None:
    jobs, keep = LeaseJobs.hard([2], [2], [2]), np.array([True])
    found = plan_faults(jobs, array(2, 2, 2), array(*option), array(*offsets), array(*lease), keep)
    assert fault in found[0]
    assert not plan_faults(jobs, array(2, 2, 2), array(0), array(0, 2), array(0, 1), keep)
    assert "overbooked" in plan_faults(jobs, array(2, 1), array(0), array(0, 2), array(0, 1))[0]
