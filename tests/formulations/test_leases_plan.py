"""Plans of leases: worked examples, cases that once came out wrong, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from apportion.formulations.training.leases import (
    LeaseJobs,
    LeasePlan,
    class_model,
    job_model,
    lease_classes,
    plan_faults,
    plan_leases,
)
from apportion.instances import InstanceError
from apportion.solver import Budget, Solver, available_backends

EXACT = Solver(gap=0.0)
Job = tuple[int, int, int]


def hard(*jobs: Job, value: float | list[float] = 10.0) -> LeaseJobs:
    gang, need, due = np.array(jobs, dtype=np.int64).reshape(-1, 3).T
    return LeaseJobs.hard(gang, need, due, value)


def planned(jobs: LeaseJobs, capacity: list[int] | np.ndarray, **more: object) -> LeasePlan:
    arguments: dict[str, object] = {"solver": EXACT, "budget": Budget.of(60.0), **more}
    plan = plan_leases(jobs, capacity, **arguments)  # type: ignore[arg-type]
    keep = more.get("accepted") if plan.status != "INFEASIBLE" else None
    mask = None if keep is None else np.asarray(keep)
    gpus = np.asarray(capacity, dtype=np.int64)
    assert not plan_faults(jobs, gpus, plan.option, plan.offsets, plan.lease, mask)
    for value, bound in zip(plan.objectives, plan.bounds, strict=True):
        assert bound is None or value <= bound + 1e-9 * abs(bound)
    return plan


def philly_like(rng: np.random.Generator, count: int, horizon: int = 24) -> LeaseJobs:
    """Jobs as the released trace has them: small gangs, few long jobs, some slack."""
    gang = rng.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.1, 0.1])
    need = np.clip(np.ceil(np.exp(rng.normal(1.0, 1.0, count))), 1, horizon - 4).astype(np.int64)
    due = np.clip(
        np.ceil(need * rng.uniform(1.0, 2.0, count)) + rng.choice([0, 3, 9], count), 1, 40
    )
    return LeaseJobs.hard(gang, need, due, rng.choice([10.0, 8.0, 5.0, 2.0], count))


# worked examples


def test_admission_example_has_one_plan() -> None:
    plan = planned(hard((4, 1, 3), (2, 2, 2), (2, 2, 2)), [4, 4, 4])
    assert (plan.status, plan.value, plan.bound) == ("OPTIMAL", 30.0, 30.0)
    assert [plan.leases_of(job).tolist() for job in range(3)] == [[2], [0, 1], [0, 1]]
    assert plan.running(0).tolist() == [1, 2]


def test_admission_example_one_lease_earlier() -> None:
    jobs = hard((4, 1, 2), (2, 2, 2), (2, 2, 2))
    assert planned(jobs, [4, 4, 4]).value == 20.0
    assert planned(jobs, [4, 4, 4], accepted=[True] * 3).status == "INFEASIBLE"


@pytest.mark.parametrize(("sigma", "first", "total"), [(-1, 0, 20), (1, 4, 21), (0, None, 20)])
def test_first_lease_example(sigma: int, first: int | None, total: int) -> None:
    plan = planned(hard((2, 1, 2), (2, 1, 2)), [4, 4], sigma=sigma)
    assert plan.status == "OPTIMAL"
    if first is not None:
        assert plan.use.tolist() == [first, 4 - first]
        assert Fraction(plan.value) + sigma * Fraction(first, 4) == total


def test_first_lease_needs_no_model_where_forced_work_tells() -> None:
    plan = planned(hard((1, 1, 2), (1, 1, 2), (1, 1, 2)), [2, 2], sigma=-1)
    assert (plan.use.tolist(), plan.first_lease_bound) == ([1, 2], 1)
    assert plan.stages[-1].backend is None


def test_first_lease_by_the_job_model() -> None:
    """The reference model, with value first and the GPUs of lease 0 second."""
    for sigma, first in ((-1, 0.0), (1, 4.0)):
        model, _ = job_model(hard((2, 1, 2), (2, 1, 2)), np.array([4, 4]), sigma=sigma)  # type: ignore[arg-type]
        answer = EXACT.solve(model, budget=Budget.of(60.0))
        assert answer.objectives == (20.0, first)


def test_more_gpus_lower_the_weighted_sum_with_sigma_one() -> None:
    """A term divided by the largest capacity shrinks with it: 21, and 20.8 with a GPU more."""
    jobs = hard((2, 1, 2), (2, 1, 2))
    sums = [
        Fraction(planned(jobs, capacity, sigma=1).value)
        + Fraction(int(planned(jobs, capacity, sigma=1).use[0]), max(capacity))
        for capacity in ([4, 4], [4, 5])
    ]
    assert sums == [Fraction(21), Fraction(104, 5)]


def test_plan_that_greedy_does_not_find() -> None:
    plan = planned(hard((1, 2, 3), (1, 2, 3), (1, 2, 3)), [2, 2, 2], accepted=[True] * 3)
    assert (plan.status, plan.value, plan.use.tolist()) == ("OPTIMAL", 30.0, [2, 2, 2])


def test_earliest_deadline_first_misses_one() -> None:
    plan = planned(hard((1, 1, 1), (1, 1, 2), (1, 2, 2)), [2, 2])
    assert (plan.admitted, plan.value) == (3, 30.0)
    assert plan.leases_of(2).tolist() == [0, 1]


def test_a_soft_job_may_be_left_out() -> None:
    """With every job in by force, A would take its late option and B nothing: 4 and not 10."""
    jobs = LeaseJobs.soft([1, 1], [1, 1], [[(1, 10.0), (2, 2.0)], [(1, 2.0)]])
    plan = planned(jobs, [1, 1])
    assert (plan.value, plan.option.tolist()) == (10.0, [0, -1])
    both = planned(jobs, [1, 1], order=("admitted", "value"))
    assert (both.objectives, both.option.tolist()) == ((2.0, 4.0), [1, 0])
    assert planned(jobs, [1, 1], accepted=[True, True]).value == 4.0


# cases that forced work alone gets wrong


def test_one_gang_that_does_not_divide_the_capacity() -> None:
    plan = planned(hard((2, 1, 3), (2, 2, 2), value=[1005.0, 1005.0]), [2, 3, 1])
    assert (plan.status, plan.value, plan.bound) == ("OPTIMAL", 1005.0, 1005.0)


@pytest.mark.parametrize("due", [0, -3])
def test_deadline_that_has_passed(due: int) -> None:
    plan = planned(hard((2, 1, due)), [3])
    assert (plan.status, plan.admitted, plan.bound) == ("OPTIMAL", 0, 0.0)
    assert planned(hard((2, 1, due)), [3], accepted=[True]).status == "INFEASIBLE"


def test_two_gangs_that_do_not_pack() -> None:
    options = [(1, 10.0), (2, 8.0)]
    plan = planned(LeaseJobs.soft([1, 2], [2, 1], [options, options]), [2, 2])
    assert (plan.status, plan.value) == ("OPTIMAL", 10.0)


def test_four_jobs_that_fill_every_gpu_and_a_fifth() -> None:
    """16 GPU-leases before lease 4: the four need all of them, and a fifth is refused by rows."""
    four = [(1, 3, 4), (1, 3, 4), (2, 3, 4), (4, 1, 4)]
    plan = planned(hard(*four), [4] * 5, accepted=[True] * 4)
    assert (plan.status, plan.admitted) == ("OPTIMAL", 4)
    five = planned(hard(*four, (1, 1, 2)), [4] * 5, accepted=[True] * 5)
    assert (five.status, five.admitted) == ("INFEASIBLE", 4)


def test_falling_capacity_needs_other_sets_than_the_first_leases() -> None:
    """Both jobs fit the first k leases for every k; together they need lease 0 twice."""
    jobs = hard((1, 2, 2), (1, 2, 2))
    assert planned(jobs, [3, 1]).admitted == 1
    assert planned(jobs, [2, 2]).admitted == 2


# empty, equal, tight


@pytest.mark.parametrize("capacity", [[], [0, 0], [5]])
def test_no_jobs(capacity: list[int]) -> None:
    plan = planned(hard(), capacity)
    assert (plan.status, plan.value, plan.bound, plan.gap) == ("OPTIMAL", 0.0, 0.0, 0.0)
    assert plan.offsets.tolist() == [0]


@pytest.mark.parametrize("capacity", [[], [0, 0]])
def test_no_gpus(capacity: list[int]) -> None:
    plan = planned(hard((1, 1, 2), (2, 1, 1)), capacity, sigma=1)
    assert (plan.status, plan.admitted) == ("OPTIMAL", 0)


def test_equal_jobs_tie() -> None:
    plan = planned(hard(*[(2, 2, 3)] * 5), [5, 5, 5])
    assert (plan.admitted, plan.status) == (3, "OPTIMAL")
    assert plan.option.tolist() == [0, 0, 0, -1, -1]


def test_due_beyond_the_horizon_is_cut() -> None:
    options = [[(3, 5.0), (9, 4.0), (12, 3.0)]]
    plan = planned(LeaseJobs.soft([1], [2], options), [1, 1])
    assert (plan.option.tolist(), plan.value) == ([0], 5.0)


@pytest.mark.parametrize("need", [1, 2, 3])
def test_off_by_one_at_the_last_lease(need: int) -> None:
    """A job due at D may run in lease D - 1 and not in lease D."""
    assert planned(hard((1, need, need)), [1] * 4).leases_of(0).tolist() == list(range(need))
    assert planned(hard((1, need, need - 1)), [1] * 4).admitted == 0
    closed = [1] * (need - 1) + [0] + [1]
    assert planned(hard((1, need, need)), closed).admitted == 0
    assert planned(hard((1, need, need + 1)), closed).admitted == 1


def test_values_that_are_no_whole_numbers() -> None:
    plan = planned(hard((1, 1, 1), (1, 1, 1), value=[0.1, 0.3]), [1])
    assert (plan.status, plan.value) == ("OPTIMAL", 0.3)


# what always holds


@pytest.mark.parametrize("seed", range(6))
def test_more_time_or_gpus_never_lower_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, capacity = philly_like(rng, 30), rng.integers(8, 24, 24)
    before = planned(jobs, capacity)
    later = LeaseJobs.hard(jobs.gang, jobs.need, jobs.due + 1, jobs.value)
    more = planned(later, capacity)
    assert more.bound is not None
    assert more.bound >= before.value
    wider = planned(jobs, capacity + 1)
    assert wider.bound is not None
    assert wider.bound >= before.value


@pytest.mark.parametrize("seed", range(6))
def test_relabelling_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, capacity = philly_like(rng, 40), np.full(24, 24)
    order = rng.permutation(40)
    other = LeaseJobs.hard(jobs.gang[order], jobs.need[order], jobs.due[order], jobs.value[order])
    one, two = planned(jobs, capacity), planned(other, capacity)
    assert one.status == two.status == "OPTIMAL"
    assert one.value == two.value


@pytest.mark.parametrize("seed", range(4))
def test_sigma_leaves_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, capacity = philly_like(rng, 60), np.full(24, 32)
    plans = {sigma: planned(jobs, capacity, sigma=sigma) for sigma in (-1, 0, 1)}
    assert len({plan.value for plan in plans.values()}) == 1
    assert plans[-1].use[0] <= plans[0].use[0] <= plans[1].use[0]
    assert plans[-1].use[0] == plans[-1].first_lease_bound
    assert plans[1].use[0] == plans[1].first_lease_bound


def test_same_plan_again() -> None:
    jobs, capacity = philly_like(np.random.default_rng(5), 200), np.full(24, 64)
    one, two = planned(jobs, capacity), planned(jobs, capacity)
    assert np.array_equal(one.option, two.option)
    assert np.array_equal(one.lease, two.lease)


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_rows_alone_reach_the_class_model(seed: int, falls: bool) -> None:
    """With room for packing, cores of forced work prove what the model with leases finds."""
    rng = np.random.default_rng(seed)
    gang, need = rng.choice([1, 1, 1, 2], 150), rng.integers(1, 7, 150)
    options = [
        [(int(n + s), 10.0), (int(n + s + 2), 7.0)][: 1 + int(rng.integers(0, 2))]
        for n, s in zip(need, rng.integers(0, 4, 150), strict=True)
    ]
    jobs = LeaseJobs.soft(gang, need, options)
    capacity = np.full(12, 36) - (rng.integers(0, 4, 12) if falls else 0)
    keep = rng.random(150) < 0.1
    for accepted in (None, keep):
        plan = planned(jobs, capacity, accepted=accepted)
        assert plan.status == "OPTIMAL"
        assert all(stage.name != "class model" for stage in plan.stages)
        classes = lease_classes(jobs, capacity, accepted)
        answer = EXACT.solve(class_model(classes), budget=Budget.of(120.0))
        assert answer.objective == pytest.approx(plan.value)


@pytest.mark.parametrize("backend", ["auto", "highs", "highs-simplex", "cpsat", "scip", "cbc"])
def test_back_ends_agree(backend: str) -> None:
    if backend not in ("auto", *available_backends()):
        pytest.skip(f"{backend} is not installed")
    jobs, capacity = philly_like(np.random.default_rng(1), 60), np.full(24, 24)
    capacity[10:14] = 8
    plan = planned(jobs, capacity, solver=Solver(gap=0.0, backend=backend))
    assert plan.status == "OPTIMAL"
    assert plan.value == planned(jobs, capacity).value


def test_earlier_goals_are_kept() -> None:
    jobs, capacity = philly_like(np.random.default_rng(8), 120), np.full(24, 40)
    admitted = planned(jobs, capacity, order=("admitted",))
    both = planned(jobs, capacity, order=("admitted", "value"))
    assert both.admitted == admitted.admitted
    assert both.value <= planned(jobs, capacity).value
    assert both.status == "OPTIMAL"


# time, starts, wrong arguments


def test_no_time_left() -> None:
    jobs, capacity = philly_like(np.random.default_rng(3), 200), np.full(24, 64)
    plan = planned(jobs, capacity, budget=Budget(0.0), sigma=-1)
    assert (plan.status, plan.bound, plan.gap, plan.time_limited) == ("FEASIBLE", None, None, True)
    assert plan.admitted > 0
    keep = np.zeros(200, dtype=np.bool_)
    keep[plan.option >= 0] = True
    kept = planned(jobs, capacity, budget=Budget(0.0), accepted=keep)
    assert kept.status in ("FEASIBLE", "NO_SOLUTION")


def test_start_is_never_lost() -> None:
    jobs, capacity = philly_like(np.random.default_rng(3), 200), np.full(24, 64)
    best = planned(jobs, capacity)
    again = planned(jobs, capacity, budget=Budget(0.0), start=best)
    assert again.value == best.value
    assert again.time_limited
    # a plan of other jobs is not valid, and not used
    other = planned(jobs, capacity // 2, budget=Budget(0.0), start=best)
    assert other.value < best.value


def test_start_with_an_option_beyond_the_horizon() -> None:
    """Two options end at the horizon: a start that names the later one counts as the earlier."""
    jobs = LeaseJobs.soft([1, 1], [1, 1], [[(2, 5.0), (3, 4.0)], [(1, 1.0)]])
    start = planned(jobs, [1, 1])
    later = replace(
        start, option=np.array([1, -1]), offsets=np.array([0, 1, 1]), lease=np.array([0])
    )
    plan = planned(jobs, [1, 1], budget=Budget(0.0), start=later)
    assert plan.value >= 5.0


@pytest.mark.parametrize("limit_s", [0.001, 0.05])
def test_time_limit_is_honoured(limit_s: float) -> None:
    jobs, capacity = philly_like(np.random.default_rng(3), 3000), np.full(24, 800)
    plan = planned(jobs, capacity, budget=Budget.of(limit_s))
    assert plan.status in ("OPTIMAL", "FEASIBLE")


def test_accepted_jobs_that_do_not_fit_are_told() -> None:
    plan = planned(hard((1, 1, 1), (1, 1, 1), (1, 1, 2)), [1, 1], accepted=[True, True, False])
    assert plan.status == "INFEASIBLE"
    assert plan.admitted == 2


def test_wrong_arguments() -> None:
    jobs = hard((1, 1, 1))
    with pytest.raises(InstanceError, match=r"plan_leases\.order"):
        planned(jobs, [1], order=("value", "value"))
    with pytest.raises(InstanceError, match=r"plan_leases\.sigma"):
        planned(jobs, [1], sigma=2)
    with pytest.raises(InstanceError, match=r"plan_leases\.accepted"):
        planned(jobs, [1], accepted=[True, True])
    with pytest.raises(InstanceError, match=r"lease_capacity\[1\] = -1"):
        planned(jobs, [1, -1])


@pytest.mark.quick
@pytest.mark.parametrize("order", [("value",), ("value", "admitted"), ("admitted", "value")])
def test_deadlines_that_earn_nothing_are_proved_to(order: tuple[str, ...]) -> None:
    plan = planned(hard((3, 1, 2), (1, 2, 3), value=0.0), [3, 3, 3], order=order)
    assert (plan.status, plan.value, plan.gap) == ("OPTIMAL", 0.0, 0.0)
    assert plan.bounds[order.index("value")] == 0.0
    assert len(order) == 1 or plan.admitted == 2


@pytest.mark.quick
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e-12, 1e6])
def test_jobs_without_room_beside_what_must_be_kept_are_proved_out(unit: float) -> None:
    """What is kept earns nothing and takes every GPU: the best value is 0, in any unit."""
    jobs = hard((2, 2, 2), (1, 1, 2), (1, 1, 2), value=[0.0, 0.3 * unit, 0.7 * unit])
    plan = planned(jobs, [2, 2], accepted=[True, False, False])
    assert (plan.status, plan.value, plan.gap) == ("OPTIMAL", 0.0, 0.0)


@pytest.mark.quick
@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e-12, 1e9])
def test_the_unit_of_values_changes_nothing(unit: float) -> None:
    """One job of 0.9 beats three small ones of 0.8 in all, although those are more jobs."""
    jobs = hard((3, 3, 3), (1, 3, 3), (1, 3, 3), (1, 3, 3), value=[x * unit for x in (9, 3, 3, 2)])
    plan = planned(jobs, [3, 3, 3], order=("value", "admitted"))
    assert (plan.status, plan.gap) == ("OPTIMAL", 0.0)
    assert plan.option.tolist() == [0, -1, -1, -1]
    assert plan.objectives == (pytest.approx(9 * unit), 1.0)
