"""One round through ``ap.solve``: values, memory, limits, and what happens when a policy fails."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import apportion as ap
from apportion.testing import random_round

pytestmark = pytest.mark.quick


def runs_on(answer: ap.Answer) -> dict[str, str]:
    """Name the type of every running job."""
    plan, asked = answer.allocation, answer.round_
    return {
        str(asked.jobs.id[row]): str(asked.cluster.types[kind])
        for row, kind in zip(plan.job.tolist(), plan.gpu_type.tolist(), strict=True)
    }


def test_fft_by_hand(rnd):
    # cost = gang x work / (throughput x 300 s): a 4 or 2, b 1 or 5/6; three GPUs are asked for,
    # both jobs fit, and together they cost least as a on A100 and b on V100
    answer = ap.solve(rnd, "fft", gap=0.0)
    assert runs_on(answer) == {"a": "A100", "b": "V100"}
    assert answer.status == "OPTIMAL"
    assert answer.objective == pytest.approx(3.0, abs=1e-12)
    assert answer.bound == pytest.approx(3.0, abs=1e-9)
    assert answer.allocation.placement is not None
    assert answer.allocation.placement.gpus.sum() == 3
    assert sum(stage.answered for stage in answer.stages) == 1
    assert 0 < answer.elapsed_s < 60
    assert ap.check(rnd, answer.allocation) == []


def test_plain_orders_by_hand(make):
    late = make(now_s=100.0, gang=[2, 2], arrival_s=[50.0, 10.0])
    assert runs_on(ap.solve(late, "fifo")) == {"b": "A100", "a": "V100"}
    assert runs_on(ap.solve(late, "srtf")) == {"b": "A100", "a": "V100"}
    one = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]], arrival_s=[0.0, 0.0])
    assert runs_on(ap.solve(one, "fifo")) == {"a": "A100"}
    assert runs_on(ap.solve(one, "srtf")) == {"b": "A100"}  # 250 s of work against 300 s


def test_a_policy_by_name_class_and_object_and_its_parameters(rnd):
    plain = ap.solve(rnd, ap.FFT(wait_weight=0.0))
    named = ap.solve(rnd, "fft", parameters={"wait_weight": "0"})
    assert plain.parameters == named.parameters
    assert plain.allocation == named.allocation
    changed = ap.solve(rnd, ap.FFT(wait_weight=0.0), parameters={"units": "normalised"})
    assert changed.parameters["units"] == "normalised"
    assert changed.parameters["wait_weight"] == 0.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": "ftt"}, "policy: 'ftt' is not known; did you mean 'fft'?"),
        ({"parameters": {"waitweight": 1}}, "fft: unknown parameter 'waitweight'; did you mean"),
        ({"parameters": {"wait_weight": "x"}}, "fft.wait_weight = 'x': must be a number"),
        ({"parameters": {"wait_weight": True}}, "fft.wait_weight = True: must be a number"),
        ({"parameters": {"wait_weight": math.nan}}, "fft.wait_weight = nan"),
        ({"parameters": {"remaining_work": 1}}, "fft.remaining_work = 1: must be true or false"),
        ({"parameters": {"units": 3}}, "fft.units = 3: must be like 'paper'"),
        ({"backend": "higs"}, "back end 'higs'"),
        ({"gap": -0.1}, "gap = -0.1"),
        ({"gap": math.nan}, "gap = nan"),
        ({"seed": -1}, "seed = -1"),
        ({"memory": {"rho": 1}}, "memory: not one of fft"),
        ({"round_": "nowhere.json"}, "nowhere.json: no such file"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_line(rnd, given, says):
    with pytest.raises(ap.InstanceError) as caught:
        ap.solve(**{"round_": rnd, **given})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1, 0.0, -1e-9, math.nan, math.inf, -math.inf, "1", True])
def test_limits_that_are_none(rnd, limit, scenario_file):
    for call in (
        lambda: ap.solve(rnd, time_limit_s=limit),
        lambda: ap.simulate(scenario_file, "fifo", time_limit_s=limit),
    ):
        with pytest.raises(ap.InstanceError, match=r"^time limit = ") as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("policy", ["fft", "fifo", "srtf", ap.FFT(method="milp")])
@pytest.mark.parametrize("limit", [1e-9, 1e-3, np.float32(0.25)])
def test_little_time_still_gives_a_valid_answer(policy, limit):
    asked = random_round(np.random.default_rng(5), jobs=150, types=4)
    answer = ap.solve(asked, policy, time_limit_s=limit)
    assert ap.check(asked, answer.allocation) == []
    assert answer.allocation.job.size > 0
    assert answer.elapsed_s < 20  # a loaded machine, and the first call imports the back ends
    if limit == 1e-9 and answer.policy == "fft":
        assert answer.status == "FEASIBLE"
        assert answer.bound is None
        assert answer.gap is None
        assert answer.decision.time_limited


# ---------------------------------------------------------------------- memory


def seen_by(rnd: ap.TrainingRound) -> ap.Outcome:
    return ap.Outcome(
        0.0, 300.0, np.array([100.0, 0.0]), np.array([400.0, 10.0]), np.array([False, False])
    )


def test_memory_follows_remember_called_by_hand(rnd, make):
    later = make(now_s=300.0, work_done=[100.0, 0.0])
    first, seen = ap.solve(rnd, "fft"), seen_by(rnd)
    assert first.memory is None
    by_hand = ap.FFT().remember(None, rnd, first.decision, seen)
    flow = ap.solve(later, "fft", previous=first, outcome=seen)
    own = ap.solve(later, "fft", memory=by_hand)
    assert flow.allocation == own.allocation
    assert flow.objective == own.objective
    for name, column in by_hand.items():
        assert np.array_equal(flow.memory[name], column)
    for name, column in own.decision.per_job.items():
        assert np.array_equal(flow.decision.per_job[name], column)
    assert flow.notes == ()


def test_previous_given_twice_rests_on_its_memory(rnd, make):
    first = ap.solve(rnd, "fft")
    second = ap.solve(make(now_s=300.0), "fft", previous=first, outcome=seen_by(rnd))
    third = ap.solve(make(now_s=600.0), "fft", previous=second, outcome=replace(
        seen_by(rnd), start_s=300.0, end_s=600.0))  # fmt: skip
    by_hand = ap.FFT().remember(
        second.memory, second.round_, second.decision,
        replace(seen_by(rnd), start_s=300.0, end_s=600.0),
    )  # fmt: skip
    assert np.array_equal(third.memory["rho"], by_hand["rho"])
    assert third.memory["rho"][1] > 0  # b waited for two rounds' worth of work
    given = ap.solve(make(now_s=600.0), "fft", previous=second, memory=None)
    assert "no outcome was given" in given.notes[-1]


def test_a_memory_that_is_given_replaces_that_of_previous(rnd, make):
    first = ap.solve(rnd, "fft")
    owed = {"id": rnd.jobs.id, "rho": np.array([0.0, 7.0]), "fair_per_s": np.array([0.1, 0.1])}
    answer = ap.solve(make(now_s=300.0), "fft", memory=owed, previous=first, outcome=seen_by(rnd))
    assert answer.memory["rho"][1] >= 7.0


def test_without_an_outcome_the_plan_counts_as_carried_out(rnd, make):
    first = ap.solve(rnd, "fft")
    answer = ap.solve(make(now_s=150.0), "fft", previous=first)
    assert answer.notes == (
        "no outcome was given: the previous plan is taken as carried out",
    )  # fmt: skip
    again = ap.solve(rnd, "fft", previous=first)  # at the same instant nothing can have happened
    assert again.allocation == first.allocation
    assert again.memory["rho"].tolist() == [0.0, 0.0]


def test_previous_and_outcome_that_do_not_belong(rnd, make):
    first, seen = ap.solve(rnd, "fft"), seen_by(rnd)
    with pytest.raises(ap.InstanceError, match="outcome: given without the answer it belongs to"):
        ap.solve(rnd, "fft", outcome=seen)
    with pytest.raises(ap.InstanceError, match="an answer of 'fft', the policy is 'fifo'"):
        ap.solve(rnd, "fifo", previous=first, outcome=seen)
    late = ap.solve(make(now_s=900.0), "fft")
    with pytest.raises(ap.InstanceError, match=r"round.now_s = 0.0: lies before 900.0"):
        ap.solve(rnd, "fft", previous=late)
    for changed, says in (
        ({"work": np.zeros(3)}, r"outcome.work has shape \(3,\), .* 2 jobs"),
        ({"work": np.array([np.nan, 0.0])}, "outcome.work: must be finite"),
        ({"gpu_s": np.array([np.inf, 0.0])}, "outcome.gpu_s: must be finite"),
        ({"end_s": 0.0}, "outcome.end_s = 0.0: must lie after start_s = 0.0"),
        ({"end_s": math.nan}, "outcome.end_s = nan"),
        ({"start_s": 10.0}, "outcome.start_s = 10.0: the previous answer was decided at 0.0"),
        ({"end_s": 301.0}, "outcome.end_s = 301.0: lies after this round's now_s = 300.0"),
    ):
        with pytest.raises(ap.InstanceError, match=says):
            ap.solve(make(now_s=300.0), "fft", previous=first, outcome=replace(seen, **changed))


# ---------------------------------------------------------------------- policies that fail


def test_a_search_that_raises_gives_way_to_the_incumbent(toys, rnd, capfd):
    answer = ap.solve(rnd, toys.TwoWays(search=toys.broken))
    assert answer.notes[0] == (
        "the search failed (RuntimeError: the back end broke down); this is the greedy incumbent"
    )
    assert ap.check(rnd, answer.allocation) == []
    assert runs_on(answer) == {"a": "A100", "b": "V100"}
    assert capfd.readouterr() == ("", "")


def test_a_search_that_breaks_a_rule_gives_way_to_the_incumbent(toys, make):
    asked = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]])
    answer = ap.solve(asked, toys.TwoWays(search=toys.overbooked))
    assert answer.notes[0].startswith("the search broke a rule (A100: 4 GPUs given, 2 in service")
    assert ap.check(asked, answer.allocation) == []
    assert runs_on(answer) == {"a": "A100"}


def test_commitments_that_cannot_be_kept_are_a_broken_rule(toys, rnd):
    def promises_too_much(asked):
        honest = toys.in_order(asked, range(2))
        promised = toys.Commitments.of([0, 1], [300.0] * 2, [900.0] * 2, [2, 1], [0, 0])
        return replace(honest, commitments=promised)

    answer = ap.solve(rnd, toys.TwoWays(search=promises_too_much))
    assert answer.notes[0].startswith("the search broke a rule (")
    assert answer.decision.commitments is None


@pytest.mark.parametrize("greedy", ["overbooked", "broken"])
def test_a_bad_incumbent_is_our_fault(toys, make, greedy):
    asked = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]])
    with pytest.raises(ap.EngineError, match="toy: the incumbent"):
        ap.solve(asked, toys.TwoWays(search=toys.broken, greedy=getattr(toys, greedy)))


def test_a_hopeless_gang_is_noted_and_the_rest_is_solved(make):
    asked = make(
        id=["huge", "b"], gang=[64, 1], throughput_per_s=[[9.0, 9.0], [1.0, 1.2]]
    )  # fmt: skip
    for policy in ("fft", "fifo", "srtf"):
        answer = ap.solve(asked, policy)
        assert set(runs_on(answer)) == {"b"}
        assert any("'huge' can never start" in note for note in answer.notes)


def test_hard_work_conservation_that_cannot_be_kept_names_the_rule(make):
    asked = make(gang=[2, 2], throughput_per_s=[[0.0, 2.0], [0.0, 1.2]])
    answer = ap.solve(asked, ap.FFT(work_conservation="hard"))
    assert answer.status == "INFEASIBLE"
    assert "work conservation (F-C4) was given up" in answer.notes[0]
    assert "asks for 4 GPUs" in answer.notes[0]
    assert ap.check(asked, answer.allocation) == []
    assert answer.allocation.gpus.sum() == 2


def test_gangs_whose_hosts_have_no_room_are_left_out_and_noted():
    cluster = ap.Cluster.uniform({"V100": 8}, gpus_per_node=4)
    cluster = replace(cluster, node_cpus=np.array([4.0, 4.0]))
    jobs = ap.Jobs.of(
        id=["greedy", "modest"], gang=[1, 1], work=[60.0, 60.0],
        throughput_per_s=[[1.0], [1.0]], cpus=[100.0, 1.0],
    )  # fmt: skip
    asked = ap.TrainingRound(cluster=cluster, jobs=jobs)
    answer = ap.solve(asked, "fifo")
    assert ap.check(asked, answer.allocation) == []
    assert set(runs_on(answer)) == {"modest"}
    assert any("greedy" in note for note in answer.notes)


# ---------------------------------------------------------------------- an engine among others


def test_four_threads_at_once_give_equal_answers():
    asked = random_round(np.random.default_rng(9), jobs=60, types=3)
    alone = {name: ap.solve(asked, name, gap=0.0) for name in ("fft", "srtf")}
    with ThreadPoolExecutor(4) as pool:
        told = list(
            pool.map(lambda at: ap.solve(asked, ("fft", "srtf")[at % 2], gap=0.0), range(12))
        )
    for answer in told:
        assert answer.allocation == alone[answer.policy].allocation
        assert answer.objective == alone[answer.policy].objective
        assert answer.status == alone[answer.policy].status


@pytest.mark.parametrize("backend", ["auto", "highs", "scip", "cbc"])
@pytest.mark.parametrize("method", ["auto", "milp"])
def test_the_library_prints_nothing(capfd, backend, method):
    asked = random_round(np.random.default_rng(11), jobs=40, types=3)
    answer = ap.solve(asked, ap.FFT(method=method), backend=backend, gap=0.0)
    assert ap.check(asked, answer.allocation) == []
    assert capfd.readouterr() == ("", "")
