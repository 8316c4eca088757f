"""Admission in order of arrival: worked examples, time going by, and changes of capacity."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.formulations.training.leases import Admission
from apportion.instances import InstanceError


def proved(admission: Admission) -> None:
    """The plan does every accepted job in time within the GPUs."""
    gang, need, due = admission.jobs
    leases = admission.leases
    assert (leases.sum(axis=1) == need).all()
    assert not (leases & (np.arange(admission.capacity.size) >= due[:, None])).any()
    assert (admission.free == admission.capacity - gang @ leases.astype(np.int64)).all()
    assert (admission.free >= 0).all()
    # what is kept up to date job by job is what a new start counts
    again = Admission.of(admission.capacity, gang, need, due, leases)
    assert (again._slack == admission._slack).all()


def test_worked_example_and_its_counter_offer() -> None:
    admission = Admission([4, 4, 4])
    assert admission.offer(2, 2, 2).accepted
    assert admission.offer(2, 2, 2).accepted
    refused = admission.offer(4, 1, 2)
    assert (refused.accepted, refused.ground, refused.key) == (False, "forced work", -1)
    assert admission.counter_offer(4, 1, 2) == 3
    assert admission.extra_gpus(4, 1, 2) == 4
    assert admission.offer(4, 1, 3).accepted
    proved(admission)


def test_third_job_that_latest_first_does_not_fit() -> None:
    admission = Admission([2, 2, 2])
    grounds = [admission.offer(1, 2, 3).ground for _ in range(3)]
    assert grounds[:2] == ["free leases", "free leases"]
    assert grounds[2] in ("exchange", "walk")
    assert len(admission) == 3
    proved(admission)


def test_quick_test_that_gets_harder_with_time() -> None:
    """(2, 1, D) beside (2, 1, 2) and (1, 2, 2) passes at 1 and at 2, whatever greedy says."""
    for due in (1, 2):
        admission = Admission([4, 4])
        assert admission.offer(2, 1, 2).accepted
        assert admission.offer(1, 2, 2).accepted
        assert admission.counter_offer(2, 1, due) == due
        assert admission.offer(2, 1, due).accepted
        proved(admission)


@pytest.mark.parametrize(
    ("capacity", "jobs"),
    [
        ([3, 4, 6, 6, 5], [(4, 2, 4), (3, 1, 3), (3, 2, 4)]),
        ([3] * 5, [(2, 1, 2), (3, 3, 5), (1, 2, 4), (1, 1, 2)]),
    ],
)
def test_walks_shed_where_the_exact_model_does_not(
    capacity: list[int], jobs: list[tuple[int, int, int]]
) -> None:
    admission = Admission(capacity)
    assert all(admission.offer(*job).accepted for job in jobs)
    proved(admission)


def test_exact_model_is_asked_before_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without exchanges and walks the model alone finds the plan."""
    from apportion.formulations.training.leases import admission as module
    from apportion.formulations.training.leases import feasibility

    monkeypatch.setattr(module, "exchanged", lambda *_: None)
    original = feasibility.realise

    def sheds(*arguments: object, **options: object) -> object:
        found = original(*arguments, **options)  # type: ignore[arg-type]
        found.y[:1] = 0
        return found

    monkeypatch.setattr(feasibility, "realise", sheds)
    admission = Admission([2, 2, 2])
    assert [admission.offer(1, 2, 3).ground for _ in range(3)][2] == "model"
    proved(admission)
    undecided = Admission([2, 2, 2], model_s=1e-9)
    assert [undecided.offer(1, 2, 3).ground for _ in range(3)][2] == "undecided"


def test_no_counter_offer_within_the_horizon() -> None:
    admission = Admission([1, 1])
    assert admission.counter_offer(2, 1, 1) is None
    assert admission.counter_offer(1, 3, 1) is None
    assert admission.extra_gpus(1, 3, 9) is None
    assert admission.extra_gpus(1, 2, 1) is None
    assert admission.extra_gpus(2, 1, 1) == 1
    assert len(admission) == 0


def test_questions_change_nothing() -> None:
    admission = Admission([2, 2, 2])
    admission.offer(1, 2, 3)
    before = admission.leases, admission.free
    admission.counter_offer(2, 2, 2)
    admission.extra_gpus(2, 3, 3)
    assert (admission.leases == before[0]).all()
    assert (admission.free == before[1]).all()


def test_removal_makes_room() -> None:
    admission = Admission([1, 1])
    first = admission.offer(1, 2, 2)
    assert not admission.offer(1, 1, 2).accepted
    admission.remove(first.key)
    second = admission.offer(1, 1, 2)
    assert second.accepted
    assert second.key > first.key
    with pytest.raises(InstanceError, match="no accepted job"):
        admission.remove(first.key)


def test_time_goes_by_as_planned() -> None:
    admission = Admission([2, 2, 2])
    keys = [admission.offer(1, 2, 3).key for _ in range(3)]
    running = admission.leases[:, 0]
    assert admission.shift(2) == []
    _, need, due = admission.jobs
    assert due.tolist() == [2] * due.size
    assert need.sum() == 6 - running.sum()
    assert admission.capacity.tolist() == [2, 2, 2]
    proved(admission)
    for _ in range(2):
        assert admission.shift(2) == []
    assert len(admission) == 0
    assert admission.offer(1, 1, 1).key > max(keys)


def test_job_that_did_not_run_gets_another_lease_or_is_told() -> None:
    admission = Admission([1, 1, 1])
    slack, tight = admission.offer(1, 1, 3), admission.offer(1, 1, 1)
    assert admission.shift(1, ran=np.zeros(2, dtype=np.bool_)) == [tight.key]
    assert admission.key.tolist() == [slack.key]
    proved(admission)
    again = Admission([1, 1])
    key = again.offer(1, 1, 1).key
    assert again.shift(1, ran=np.zeros(1, dtype=np.bool_)) == [key]


def test_job_that_ran_for_nothing_gives_its_earliest_lease_back() -> None:
    admission = Admission([1, 1, 1])
    admission.offer(1, 2, 3)
    assert admission.leases[0].tolist() == [False, True, True]
    assert admission.shift(1, ran=np.ones(1, dtype=np.bool_)) == []
    assert admission.leases[0].tolist() == [False, True, False]
    proved(admission)


def test_lost_gpus_tell_who_cannot_be_done() -> None:
    admission = Admission([2, 2, 2])
    keys = [admission.offer(1, 2, 3).key for _ in range(3)]
    assert admission.set_capacity([2, 2, 1]) == [keys[2]]
    assert admission.key.tolist() == keys[:2]
    proved(admission)
    assert admission.set_capacity([2, 2, 2]) == []


def test_plan_can_be_handed_over() -> None:
    one = Admission([2, 2, 2])
    for _ in range(3):
        one.offer(1, 2, 3)
    two = Admission.of(one.capacity, *one.jobs, one.leases)
    assert two.offer(1, 1, 3).ground == one.offer(1, 1, 3).ground == "forced work"
    assert (two.free == one.free).all()
    with pytest.raises(InstanceError, match=r"admission\.need\[0\]"):
        Admission.of([2], [1], [1], [1], np.zeros((1, 1), dtype=np.bool_))
    with pytest.raises(InstanceError, match=r"admission\.leases\[0\]"):
        Admission.of([2], [3], [1], [1], np.ones((1, 1), dtype=np.bool_))


@pytest.mark.parametrize("job", [(0, 1, 1), (1, 0, 1), (-1, 1, 1)])
def test_wrong_offers(job: tuple[int, int, int]) -> None:
    with pytest.raises(InstanceError, match="must be at least 1"):
        Admission([1]).offer(*job)


@pytest.mark.parametrize("seed", range(4))
def test_guarantees_outlive_a_long_stream(seed: int) -> None:
    """Arrivals, and leases that pass as planned: nobody who was accepted is ever late."""
    rng = np.random.default_rng(seed)
    admission, accepted, done = Admission(np.full(12, 16)), 0, 0
    for _ in range(30):
        for _ in range(12):
            need = int(rng.integers(1, 6))
            job = (int(rng.choice([1, 1, 1, 2, 4, 8])), need, need + int(rng.integers(0, 8)))
            accepted += admission.offer(*job).accepted
        proved(admission)
        before = len(admission)
        assert admission.shift(16) == []
        done += before - len(admission)
    while len(admission):
        before = len(admission)
        assert admission.shift(16) == []
        done += before - len(admission)
    assert accepted == done
    assert accepted > 50
