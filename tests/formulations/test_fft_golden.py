"""FFT on the worked examples of its specification, through the public face of the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training import FFT
from apportion.solver import Budget, Solver

pytestmark = pytest.mark.quick

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
METHODS = ("auto", "milp")


def case_of(lab: Any, example: dict[str, Any]) -> Any:
    names = ("theta", "W", "d", "Y", "t", "previous", "switch")
    return lab.case(lab.build(**{name: example[name] for name in names}), tuple(example["rho"]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("example", GOLDEN["fft"], ids=lambda example: example["id"])
def test_worked_examples(lab: Any, same: Any, example: dict[str, Any], method: str) -> None:
    # without a switching cost nobody has a previous type, so that nothing is charged
    case = case_of(lab, example)
    decision = lab.decide(case, method=method)
    assert decision.status == "OPTIMAL"
    assert same(decision.objective, example["objective"])
    assert lab.types_of(case, decision).tolist() == example["type_of_job"]
    assert int(decision.allocation.gpus.sum()) == example["placed_gpus"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("example", GOLDEN["fft"], ids=lambda example: example["id"])
def test_worked_examples_paid_by_a_reward(
    lab: Any, same: Any, example: dict[str, Any], method: str
) -> None:
    case = case_of(lab, example)
    decision = lab.decide(case, method=method, work_conservation="reward")
    assert decision.status == "OPTIMAL"
    assert same(decision.objective, example["objective"])
    assert lab.types_of(case, decision).tolist() == example["type_of_job"]


@pytest.mark.parametrize("method", METHODS)
def test_f3_cannot_keep_hard_work_conservation(lab: Any, method: str) -> None:
    case = case_of(lab, example_of("F3"))
    decision = lab.decide(case, method=method, work_conservation="hard")
    assert decision.status == "INFEASIBLE"
    assert decision.bound is None
    assert decision.gap is None
    assert int(decision.allocation.gpus.sum()) == 2  # B*, although K = 3
    assert decision.notes[0] == (
        "work conservation (F-C4) was given up: it asks for 3 GPUs to be placed, at most 2 can be"
    )


@pytest.mark.parametrize("method", METHODS)
def test_f3_places_nobody_when_nothing_is_asked(lab: Any, method: str) -> None:
    decision = lab.decide(case_of(lab, example_of("F3")), method=method, work_conservation="none")
    assert decision.allocation.job.size == 0
    assert decision.objective == 0.0
    assert decision.status == "OPTIMAL"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["F1", "F2a", "F2b"])
def test_hard_work_conservation_where_it_can_be_kept(
    lab: Any, same: Any, name: str, method: str
) -> None:
    example = example_of(name)
    decision = lab.decide(case_of(lab, example), method=method, work_conservation="hard")
    assert decision.status == "OPTIMAL"
    assert same(decision.objective, example["objective"])


def example_of(name: str) -> dict[str, Any]:
    return next(example for example in GOLDEN["fft"] if example["id"] == name)


def test_f2_swaps_where_the_specification_says(lab: Any) -> None:
    """No switching cost: iff rho_A > 1.7. With 0.5 for each move: iff rho_A > 2.7."""
    for switch, threshold in ((0.0, 1.7), (0.5, 2.7)):
        for rho, swapped in ((threshold - 1e-6, False), (threshold + 1e-6, True)):
            example = example_of("F2a" if switch else "F2-free-1.6") | {"rho": [rho, 0.0]}
            decision = lab.decide(case_of(lab, example))
            assert (decision.allocation.gpu_type.tolist() == [1, 0]) is swapped


def test_f5_old_job_gets_its_turn(lab: Any, same: Any) -> None:
    """One GPU; each round a fresh identical job competes with A, which arrived at 0."""
    golden, policy, memory = GOLDEN["stream"], FFT(), None
    wins = []
    for t, rho in enumerate(golden["rho"]):
        round_ = lab.build(
            [[golden["theta"]]] * 2, [golden["W"]] * 2, [1, 1], [1],
            a=[0, t], t=t, names=["A", f"fresh-{t}"],
        )  # fmt: skip
        program = policy.compile(round_, memory, Budget.of(None))
        decision = program.solve(Solver(gap=0.0), Budget.of(None))
        columns = decision.per_job
        assert columns["rho"][0] == pytest.approx(rho, abs=1e-12)
        assert columns["mu"][0] == pytest.approx(t / 20)
        assert columns["tau_s"][0] == pytest.approx(20 * lab.round_s)
        assert same(decision.objective, min(10 + t / 10 - rho, 10.0))
        if decision.objective < 10.0 - 1e-9:
            wins.append(t)
            assert decision.allocation.job.tolist() == [0]
            assert same(decision.objective, golden["winning_cost"])
        # a tie may fall either way: the stream of the specification serves the newcomer
        work = [0.0, golden["theta"]] if t < golden["first_strict_win"] else [golden["theta"], 0.0]
        memory = policy.remember(memory, round_, decision, lab.served(round_, work))
    assert wins == [golden["first_strict_win"]]


def test_f6_recursion(lab: Any) -> None:
    golden, policy, memory = GOLDEN["recursion"], FFT(), None
    after = []
    for t, work in enumerate(golden["served"]):
        round_ = lab.build([[golden["theta"]]] * 2, [golden["W"]] * 2, [1, 1], [2], t=t)
        decision = policy.compile(round_, memory, Budget.of(None)).incumbent()
        memory = policy.remember(memory, round_, decision, lab.served(round_, [work, 0.0]))
        after.append(memory["rho"][0])
    assert after == pytest.approx(golden["rho_after"], abs=1e-12)
    # duration 8, fair rate 1.5 per round
    assert memory["fair_per_s"][0] * lab.round_s == pytest.approx(1.5)


def test_tau_is_estimated_anew_when_jobs_arrive_or_leave(lab: Any) -> None:
    policy = FFT()
    two = lab.build([[3.0]] * 2, [12.0] * 2, [1, 1], [2], t=1)
    decision = policy.compile(two, None, Budget.of(None)).incumbent()
    memory = policy.remember(None, two, decision, lab.served(two, [0.0, 0.0]))
    fair = {2: 1.5 / lab.round_s, 3: 1.0 / lab.round_s, 1: 3.0 / lab.round_s}
    for n, names in ((3, ["job-0", "job-1", "new"]), (1, ["job-1"]), (2, ["job-0", "new"])):
        later = lab.build([[3.0]] * n, [12.0] * n, [1] * n, [2], t=2, names=names)
        owed = policy.compile(later, memory, Budget.of(None)).owed
        assert owed.fair_per_s == pytest.approx([fair[n]] * n)
    # the same jobs, in any order: nothing is estimated, everything goes with its job
    memory = {**memory, "fair_per_s": np.array([7.0, 8.0]), "rho": np.array([0.1, 0.2])}
    same = lab.build([[9.0]] * 2, [12.0] * 2, [1, 1], [2], t=2)
    assert policy.compile(same, memory, Budget.of(None)).owed.fair_per_s.tolist() == [7.0, 8.0]
    turned = lab.build([[3.0]] * 2, [12.0] * 2, [1, 1], [2], t=2, names=["job-1", "job-0"])
    owed = policy.compile(turned, memory, Budget.of(None)).owed
    assert owed.fair_per_s.tolist() == [8.0, 7.0]
    assert owed.rho.tolist() == [0.2, 0.1]


def test_isolated_tau_uses_an_equal_part_of_every_type(lab: Any) -> None:
    """Two jobs, Y = (1, 1), d = 1: half of each type, thr = (theta_0 + theta_1) / 2."""
    round_ = lab.build([[1.0, 2.0], [1.0, 4.0]], [10.0, 10.0], [1, 1], [1, 1])
    owed = FFT(tau_model="isolated").compile(round_, None, Budget.of(None)).owed
    assert owed.fair_per_s * lab.round_s == pytest.approx([1.5, 2.5])
    owed = FFT().compile(round_, None, Budget.of(None)).owed
    assert owed.fair_per_s * lab.round_s == pytest.approx([1.0, 2.0])


def test_columns_beside_each_job(lab: Any) -> None:
    """ftf_share: age + time left at best speed, over the time on an equal share."""
    round_ = lab.build(
        [[1.0, 2.0], [0.0, 0.0]], [10.0, 5.0], [1, 1], [1, 1], t=3, work_done=[4.0, 0.0]
    )
    decision = FFT().compile(round_, None, Budget.of(None)).incumbent()
    assert decision.per_job["ftf_share"].tolist() == pytest.approx([(3 + 6 / 2) / 10, -1.0])
    assert decision.per_job["tau_s"].tolist() == pytest.approx([10 * lab.round_s, -1.0])


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"wait_weight": 0.0}, -0.8),
        ({"wait_weight": -1.0}, -1.6),
        ({"remaining_work": True}, 4 * 2 / 5 - 4 * 2 / 10 + 5 / 2 - 10 / 2),
        ({"fairness_weight": 0.0}, 2.0),
        ({"fairness_weight": 3.0}, -4.0),
        ({"units": "normalised"}, 2.0 - 0.2),
        ({"switch_weight": 0.0}, -0.5),
        ({"switch_weight": 2.0}, 0.5),
        ({"bandwidth_gb_per_s": 2.5}, -0.2),
        ({"switch_fixed_s": 0.0}, -0.1),
    ],
)
def test_every_option_of_the_cost(
    lab: Any, same: Callable[..., bool], options: dict[str, Any], change: float
) -> None:
    """phi = 4*2/10 + 10/2, s = 0.5 (0.1 of it fixed), rho*theta = 1*2: 4.3 in all."""
    round_ = lab.build(
        [[0.0, 2.0]], [10.0], [1], [1, 1], t=4, previous=[0], switch=0.5, work_done=[5.0]
    )
    base = 0.8 + 5.0 + 0.5 - 2.0
    case = lab.case(round_, (1.0,))
    assert same(lab.decide(case).objective, base)
    assert same(lab.decide(case, **options).objective, base + change)
