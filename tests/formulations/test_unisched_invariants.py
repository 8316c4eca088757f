"""UniSched to the lease: the worked example of curves, boundaries by fractions, and bad input."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest

from apportion.executor.training import check
from apportion.formulations.training.unisched import UniSched
from apportion.instances import Decision, InstanceError
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Solver

LEASE = 1200.0
FREE = UniSched(restart_s=0.0)


def decide(round_: TrainingRound, policy: UniSched = FREE) -> Decision:
    budget = Budget.of(None)
    answer = policy.compile(round_, None, budget).solve(Solver(gap=0.0), budget)
    assert check(round_, answer.allocation) == []
    return answer


def one_job(due: float, work: float, now_s: float = 0.0, **more: Any) -> TrainingRound:
    """A job on one GPU with a deadline, in rounds of a quarter of a lease."""
    columns: dict[str, Any] = {
        "id": ["one"], "gang": [1], "work": [work], "throughput_per_s": [[1.0]], "slo": [True],
        "deadline_offsets": [0, 1], "deadline_s": [due], "deadline_value": [10.0],
    }  # fmt: skip
    duration = more.pop("duration_s", LEASE / 4)
    return TrainingRound(
        cluster=Cluster.uniform({"only": 1}), now_s=now_s, duration_s=duration,
        jobs=Jobs.of(**(columns | more)),
    )  # fmt: skip


def curved(loss: Any, target: float, cap: float = 100.0, due: float = 99.0) -> TrainingRound:
    """A job that does two epochs a lease and has shown some losses."""
    seen = np.asarray(loss, dtype=float)
    return one_job(
        due * LEASE, cap, throughput_per_s=[[2.0 / LEASE]], stop_on_metric=[True],
        metric_target=[target], iteration_cap=[cap], work_done=[float(seen.size)],
        observed_offsets=[0, seen.size], observed_iteration=np.arange(1, seen.size + 1),
        observed_metric=seen,
    )  # fmt: skip


def reserved(answer: Decision) -> int:
    return int(answer.carry["lease"].size)


K = np.arange(1, 7)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("loss", "target", "leases", "flag"),
    [
        # 18 epochs in all, 12 to go at two a lease
        (1.0 / (0.5 * K + 1.0) + 0.2, 0.30, 6, "fitted"),
        # the asymptote is 0.2: the cap of 100, 94 to go
        (1.0 / (0.5 * K + 1.0) + 0.2, 0.19, 47, "unreachable"),
        # 20 epochs in all, 14 to go
        (2.0 / K + 0.5, 0.6, 7, "fitted"),
        # fewer points than are needed for three parameters and a spread
        ((1.0 / (0.5 * K + 1.0) + 0.2)[:4], 0.30, 48, "too_few_points"),
        (np.full(6, 0.7), 0.30, 47, "no_fit"),
        (0.5 + 0.05 * K, 0.30, 47, "no_fit"),
    ],
)
def test_leases_by_curves(loss: Any, target: float, leases: int, flag: str) -> None:
    answer = decide(curved(loss, target))
    assert answer.per_job["estimate"].tolist() == [flag]
    assert answer.per_job["accepted"].tolist() == [True]
    assert reserved(answer) == leases


def test_stricter_targets_take_more_leases_up_to_the_cap() -> None:
    loss = 1.0 / (0.5 * K + 1.0) + 0.2
    told = [reserved(decide(curved(loss, target))) for target in (0.4, 0.35, 0.3, 0.25, 0.21, 0.1)]
    assert told == sorted(told)
    assert told[-1] == 47
    assert len(set(told)) > 3


def test_a_job_by_iterations_needs_linearly_less() -> None:
    told = [
        reserved(decide(one_job(99 * LEASE, 12 * LEASE, work_done=[done * LEASE])))
        for done in (0.0, 3.0, 6.0, 11.0)
    ]
    assert told == [12, 9, 6, 1]


@pytest.mark.parametrize("duration_s", [300.0, 0.3, 1e5 + 0.5])
def test_leases_before_a_deadline_by_fractions(duration_s: float) -> None:
    """One job alone: promised if and only if floor((due - now) / L) leases are enough."""
    length = 4 * Fraction(duration_s)
    policy = replace(FREE, lease_s=float(length))
    rng = np.random.default_rng(61)
    for _ in range(60):
        now = int(rng.integers(0, 9)) * length / 4
        due = now + Fraction(int(rng.integers(1, 33)), 8) * length
        due += int(rng.choice([-1, 0, 0, 1])) * length / 64
        need = int(rng.integers(1, 4))
        asked = one_job(
            float(due), float(need * length), float(now), duration_s=duration_s,
            arrival_s=[float(now)],
        )  # fmt: skip
        accepted = bool(decide(asked, policy).per_job["accepted"][0])
        assert accepted == (floor((due - now) / length) >= need), (now, due, need)


# ---------------------------------------------------------------------- bad input


@pytest.mark.quick
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"arrival_s": [600.0], "deadline_s": [500.0]}, r"jobs.deadline_s\[0\] = 500.0"),
        (
            {"deadline_offsets": [0, 2], "deadline_s": [1.0, 2.0], "deadline_value": [1.0, 2.0]},
            r"jobs.deadline_value\[1\] = 2.0",
        ),
    ],
)
def test_deadlines_that_cannot_be_are_errors(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(InstanceError, match=told):
        one_job(900.0, 60.0, **columns)


def test_negative_slack_at_arrival_is_told_and_nobody_is_dropped() -> None:
    answer = decide(one_job(1.5 * LEASE, 2 * LEASE))
    assert answer.per_job["accepted"].tolist() == [False]
    assert answer.allocation.job.tolist() == [0]
    assert any("can meet none of its deadlines" in note for note in answer.notes)


def test_needs_beyond_the_horizon_are_told_and_nobody_is_dropped() -> None:
    """30 leases of work, due after 40, planned 20 ahead; one that fits is promised as ever."""
    short = replace(FREE, horizon_s=20 * LEASE)
    answer = decide(one_job(40 * LEASE, 30 * LEASE), short)
    assert answer.per_job["accepted"].tolist() == [False]
    assert answer.allocation.job.tolist() == [0]
    assert [note for note in answer.notes if "more leases than the horizon of 20" in note]
    fits = decide(one_job(40 * LEASE, 20 * LEASE), short)
    assert fits.per_job["accepted"].tolist() == [True]
    assert not fits.notes
    assert not decide(one_job(40 * LEASE, 30 * LEASE)).notes


def test_leases_longer_than_the_horizon_are_an_error() -> None:
    with pytest.raises(InstanceError, match="must hold one lease of 3600 s"):
        UniSched(lease_s=3600.0, horizon_s=1800.0)
