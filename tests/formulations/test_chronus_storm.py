"""Storms of arrivals: within the time that is left, and in a few lines."""

from __future__ import annotations

import numpy as np

from apportion.executor.training import check
from apportion.formulations.training.chronus import Chronus
from apportion.formulations.training.chronus.desk import ALWAYS_ANSWERED, MOST_NOTES
from apportion.instances import Decision
from apportion.instances.training import Cluster, Jobs, TrainingRound
from apportion.solver import Budget, Solver


def storm(n: int) -> TrainingRound:
    rng = np.random.default_rng(0)
    work = np.exp(rng.normal(8.2, 1.0, n))
    return TrainingRound(
        cluster=Cluster.uniform({"V100": 100}),
        jobs=Jobs.of(
            id=[f"j{row}" for row in range(n)], gang=rng.choice([1, 2, 4, 8], n), work=work,
            throughput_per_s=np.ones((n, 1)), slo=np.ones(n, dtype=bool),
            deadline_offsets=np.arange(n + 1), deadline_s=work * rng.uniform(1.1, 3.0, n),
            deadline_value=np.full(n, 10.0),
        ),
    )  # fmt: skip


def decide(round_: TrainingRound, seconds: float | None, memory: object = None) -> Decision:
    budget = Budget.of(seconds)
    found = Chronus().compile(round_, memory, budget).solve(Solver(), budget)
    assert not check(round_, found.allocation)
    return found


def counts(found: Decision) -> dict[str, int]:
    names, number = np.unique(np.asarray(found.per_job["state"]), return_counts=True)
    return dict(zip(names.tolist(), number.tolist(), strict=True))


def test_without_time_the_first_arrivals_are_answered_and_the_rest_waits_its_turn() -> None:
    round_ = storm(3000)
    found = decide(round_, 1e-9)
    told = counts(found)
    assert told["NEW"] == 3000 - ALWAYS_ANSWERED
    assert np.asarray(found.per_job["state"])[ALWAYS_ANSWERED:].tolist() == ["NEW"] * told["NEW"]
    assert found.time_limited
    assert any(f"{told['NEW']} newcomers are not answered yet" in note for note in found.notes)
    # nobody sits idle who would fit, answered or not
    assert int(found.allocation.gpus.sum()) == 100
    # and the next decision asks them again
    whole = decide(round_, None, found.carry)
    assert "NEW" not in counts(whole)


def test_rejections_have_their_reasons_in_a_column_and_few_notes() -> None:
    found = decide(storm(600), None)
    rejected = np.isin(np.asarray(found.per_job["state"]), ("UNACCEPTED_SLO", "LOWEST"))
    why = np.asarray(found.per_job["why"])
    assert rejected.sum() > 4 * MOST_NOTES
    assert ((why != "") == rejected).all()
    notes = [note for note in found.notes if " is rejected: " in note]
    assert notes == why[rejected][:MOST_NOTES].tolist()
    assert found.notes[-1] == (
        f"{rejected.sum() - MOST_NOTES} more jobs are rejected; column 'why' has reasons"
    )
