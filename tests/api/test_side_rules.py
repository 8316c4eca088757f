"""Rules of a caller's own."""

from __future__ import annotations

import time
from typing import Any

import pytest

import apportion as ap
from apportion.solver import from_pulp

pytestmark = pytest.mark.quick


def three(**columns: Any) -> ap.TrainingRound:
    """Give a round of jobs of which the first two are the same."""
    jobs: dict[str, Any] = {
        "id": ["a", "b", "c"], "gang": [1, 1, 1], "work": [600.0, 600.0, 300.0],
        "throughput_per_s": [[1.0, 2.0], [1.0, 2.0], [1.0, 1.2]],
    }  # fmt: skip
    return ap.TrainingRound(
        cluster=ap.Cluster.uniform({"V100": 2, "A100": 2}), jobs=ap.Jobs.of(**{**jobs, **columns})
    )


def never_both(problem: Any, x: Any) -> Any:
    import pulp

    problem += pulp.lpSum([x["a"].values(), x["b"].values()]) <= 1, "not a and b"
    return problem


def running(answer: ap.Answer) -> set[str]:
    return set(answer.round_.jobs.id[answer.allocation.job].tolist())


@pytest.mark.parametrize("mode", ["lexicographic", "reward", "none"])
@pytest.mark.parametrize("method", ["auto", "milp"])
def test_two_identical_jobs_are_never_in_the_same_round(mode, method):
    asked = three()
    parameters = {"work_conservation": mode, "method": method, "wait_weight": -50.0}
    free = ap.solve(asked, "fft", parameters=parameters)
    answer = ap.solve(asked, "fft", parameters=parameters, side_rules=never_both)
    assert answer.status == "OPTIMAL"
    assert not {"a", "b"} <= running(answer)
    assert ap.check(asked, answer.allocation) == []
    assert answer.allocation.placement is not None
    assert answer.certificate is None
    assert ap.verify(answer, asked).holds
    if mode != "none":
        assert {"a", "b"} <= running(free)
        assert running(answer) in ({"a", "c"}, {"b", "c"})


def test_variables_go_by_job_and_type():
    seen: dict[str, Any] = {}

    def look(problem: Any, x: Any) -> Any:
        seen.update({job: sorted(kinds) for job, kinds in x.items()})
        return problem

    answer = ap.solve(three(), "fft", side_rules=look)
    assert seen == {name: ["A100", "V100"] for name in "abc"}
    assert answer.objective == pytest.approx(ap.solve(three(), "fft").objective)


def test_a_model_of_ours_may_come_back():
    def ours(problem: Any, x: Any) -> Any:
        return from_pulp(never_both(problem, x))

    assert not {"a", "b"} <= running(ap.solve(three(), "fft", side_rules=ours))


def test_impossible_rules_are_given_up_and_it_is_told():
    def never(problem: Any, x: Any) -> Any:
        problem += x["a"]["V100"] + x["a"]["A100"] >= 2, "twice"
        return problem

    answer = ap.solve(three(), "fft", side_rules=never)
    assert answer.status == "INFEASIBLE"
    assert "side rules were given up" in answer.notes[0]
    assert ap.check(answer.round_, answer.allocation) == []


def test_no_time_means_no_claim_about_the_rules():
    def slow(problem: Any, x: Any) -> Any:
        time.sleep(0.02)
        return never_both(problem, x)

    answer = ap.solve(three(), "fft", side_rules=slow, time_limit_s=0.01)
    assert answer.status == "NO_SOLUTION"
    assert "side rules" in answer.notes[0]
    assert answer.bound is None


def test_a_changed_objective_takes_the_bound_with_it():
    def other(problem: Any, x: Any) -> Any:
        problem.setObjective(problem.objective + 100.0 * x["a"]["A100"])
        return problem

    answer = ap.solve(three(), "fft", side_rules=other)
    assert answer.bound is None
    assert answer.gap is None
    assert "changed an objective" in " ".join(answer.notes)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(ap.InstanceError, match="policy 'fifo' has no model"):
        ap.solve(three(), "fifo", side_rules=never_both)
    with pytest.raises(ap.InstanceError, match="side_rules: returned NoneType"):
        ap.solve(three(), "fft", side_rules=lambda problem, x: None)
    with pytest.raises(ZeroDivisionError):
        ap.solve(three(), "fft", side_rules=lambda problem, x: 1 / 0)
