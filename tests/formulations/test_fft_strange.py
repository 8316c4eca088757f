"""FFT on rounds that are strange but legal, on changes that must not matter, and short of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training import FFT, FIFO, SRTF
from apportion.instances import InstanceError
from apportion.instances.training import Commitments
from apportion.solver import Budget, ModelBuilder, Solver

pytestmark = pytest.mark.quick

MODES = ("lexicographic", "hard", "reward", "none")
METHODS = ("auto", "milp", "lp_repair")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("mode", ["lexicographic", "reward", "none"])
def test_types_that_nobody_can_use_change_nothing(
    lab: Any, same: Callable[..., bool], seed: int, mode: str
) -> None:
    rng = np.random.default_rng(60_000 + seed)
    n = int(rng.integers(1, 7))
    theta = rng.choice([0.0, 1.0, 2.0, 3.0], (n, 2)) * rng.uniform(0.5, 1.5, (n, 2))
    W, d, Y = rng.uniform(1.0, 20.0, n), rng.choice([1, 2, 3], n), rng.integers(0, 5, 2).tolist()
    rho = tuple(rng.choice([0.0, 1.0, 3.0], n).tolist())
    fast = np.full((n, 1), 50.0)
    base = lab.decide(lab.case(lab.build(theta, W, d, Y, t=2), rho), work_conservation=mode)
    for more, gpus in ((fast, 0), (np.zeros((n, 1)), 7)):
        wider = lab.build(np.hstack((theta, more)), W, d, [*Y, gpus], t=2)
        decision = lab.decide(lab.case(wider, rho), work_conservation=mode)
        assert same(decision.objective, base.objective)
        assert decision.allocation.gpus.sum() == base.allocation.gpus.sum()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_jobs_does_not_matter(
    lab: Any, same: Callable[..., bool], seed: int, mode: str
) -> None:
    """Leases and reservations move with their jobs."""
    rng = np.random.default_rng(70_000 + seed)
    case = lab.draw(rng)
    order = rng.permutation(len(case.rho))
    promised, place = case.round_.commitments, np.argsort(order)
    moved = replace(promised, job=place[promised.job]) if promised.job.size else promised
    turned = replace(case.round_, jobs=case.round_.jobs.take(order), commitments=moved)
    rho = tuple(np.array(case.rho)[order].tolist())
    before = lab.decide(case, work_conservation=mode)
    after = lab.decide(lab.case(turned, rho, case.options), work_conservation=mode)
    assert after.status == before.status
    assert after.allocation.gpus.sum() == before.allocation.gpus.sum()
    # where a rule was given up nothing is optimised, so that only the packing is promised
    assert before.status == "INFEASIBLE" or same(after.objective, before.objective)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", MODES)
def test_rounds_in_which_nobody_can_start(lab: Any, mode: str, method: str) -> None:
    rounds = {
        "no jobs": lab.build(np.zeros((0, 2)), [], [], [1, 2]),
        "no GPUs": lab.build([[1.0, 2.0]] * 2, [5.0] * 2, [1, 1], [0, 0]),
        "gangs too large": lab.build([[1.0, 2.0]] * 2, [5.0] * 2, [3, 4], [1, 2]),
        "no throughput": lab.build([[0.0, 0.0]] * 2, [5.0] * 2, [1, 1], [1, 2]),
    }
    for name, round_ in rounds.items():
        case = lab.case(round_, (0.0,) * len(round_.jobs))
        decision = lab.decide(case, work_conservation=mode, method=method)
        assert decision.allocation.job.size == 0, name
        asked = name in ("gangs too large", "no throughput")
        expected = "INFEASIBLE" if mode == "hard" and asked else "OPTIMAL"
        assert decision.status == expected, name
        assert decision.objective == 0.0
        assert decision.bound == (0.0 if expected == "OPTIMAL" else None)
        told = sum("can never start" in note for note in decision.notes)
        assert told == len(round_.jobs), name
        memory = FFT().remember(case.memory, round_, decision, lab.served(round_, [0.0] * told))
        assert memory["id"].tolist() == round_.jobs.id.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_one_hopeless_gang_does_not_hold_up_the_rest(lab: Any, method: str) -> None:
    round_ = lab.build([[1.0, 1.0], [1.0, 2.0]], [5.0, 6.0], [3, 1], [2, 1])
    decision = lab.decide(lab.case(round_, (0.0, 0.0)), method=method)
    assert decision.allocation.job.tolist() == [1]
    assert decision.objective == pytest.approx(3.0)
    assert decision.notes == (
        "job 'job-0' can never start: its gang of 3 GPUs is larger than any type it runs on"
        " (2 GPUs)",
    )


@pytest.mark.parametrize("method", ["auto", "milp"])
@pytest.mark.parametrize("rho", [0.0, 5.0, 1e4])
def test_two_hundred_equal_jobs(
    lab: Any, same: Callable[..., bool], rho: float, method: str
) -> None:
    """Gangs of 2 on 13 and 7 GPUs: 6 and 3 of them run, whoever they are."""
    round_ = lab.build([[1.0, 2.0]] * 200, [10.0] * 200, [2] * 200, [13, 7], t=5)
    decision = lab.decide(lab.case(round_, (rho,) * 200), method=method)
    slow, fast = 5 * 1 / 10 + 20 - rho, 5 * 2 / 10 + 10 - 2 * rho
    assert decision.status == "OPTIMAL"
    assert same(decision.objective, 6 * slow + 3 * fast)
    assert np.bincount(decision.allocation.gpu_type).tolist() == [6, 3]


@pytest.mark.parametrize("weight", [-1.0, -1e3])
def test_waiting_can_be_made_to_pay(lab: Any, same: Callable[..., bool], weight: float) -> None:
    """Negative costs: with nothing asked for, those who gain run and the others do not."""
    round_ = lab.build([[1.0]] * 4, [2.0, 4.0, 40.0, 400.0], [1] * 4, [3], t=30)
    case = lab.case(round_, (0.0,) * 4)
    cost = lab.price(case := lab.case(case.round_, case.rho, {"wait_weight": weight}))[:, 0]
    expected = float(np.sort(np.minimum(cost, 0.0))[:3].sum())
    for method in ("auto", "milp"):
        decision = lab.decide(case, work_conservation="none", method=method)
        assert decision.status == "OPTIMAL"
        assert same(decision.objective, expected)


@pytest.mark.parametrize("owed", [0.0, 10.0])
@pytest.mark.parametrize(
    ("work", "speed"),
    [(1e9, 1.0), (1e9, 1e9), (1e-6, 1.0), (1e-6, 1e-6), (1e12, 1e-6), (1e-6, 1e9), (1e15, 1e-3)],
)
def test_units_of_work_of_any_size(
    lab: Any, same: Callable[..., bool], work: float, speed: float, owed: float
) -> None:
    """Tokens or epochs: costs from 1e-15 to 1e18 and beyond."""
    rng = np.random.default_rng(3)
    n = 6
    theta = speed * rng.choice([1.0, 2.0, 3.0], (n, 2)) * rng.uniform(0.5, 1.5, (n, 1))
    round_ = lab.build(
        theta, work * rng.random(n), rng.choice([1, 2], n), [3, 2], t=20, a=rng.integers(0, 20, n)
    )
    rho = tuple((owed * speed * rng.random(n)).tolist())
    case = lab.case(round_, rho)
    gpus, least = lab.plans(case).best("lexicographic")
    for mode in ("lexicographic", "reward", "hard"):
        for method in ("auto", "milp"):
            decision = lab.decide(case, method=method, work_conservation=mode)
            assert lab.broken(case, decision) == []
            if decision.status == "INFEASIBLE":
                assert gpus < lab.plans(case).asked
                continue
            assert int(decision.allocation.gpus.sum()) == gpus
            within = 1e-9 if method == "auto" else 1e-6
            assert abs(decision.objective - least) <= within * abs(least)
            assert decision.status == "OPTIMAL"
            assert decision.bound <= least + 1e-6 * abs(least)


def test_costs_that_are_all_tiny_are_told_apart(lab: Any) -> None:
    """Jobs of a millionth of a round: which of them runs is not a matter of tolerance."""
    work = [3e-6, 1e-6, 2e-6, 5e-6]
    round_ = lab.build([[1.0]] * 4, work, [1, 2, 1, 3], [4])
    case = lab.case(round_, (0.0,) * 4)
    gpus, least = lab.plans(case).best("lexicographic")
    decision = lab.decide(case)
    assert (decision.status, int(decision.allocation.gpus.sum())) == ("OPTIMAL", gpus)
    assert decision.objective == pytest.approx(least, rel=1e-9)


def large_case(lab: Any, n: int = 3000, k: int = 8, gpus: int = 1000) -> Any:
    rng = np.random.default_rng(0)
    theta = rng.lognormal(0.0, 0.5, (n, k)) * rng.lognormal(0.0, 1.0, (n, 1))
    W, d = rng.lognormal(2.2, 0.9, n), rng.choice([1, 2, 4, 8], n, p=[0.6, 0.2, 0.15, 0.05])
    round_ = lab.build(theta, W, d, [gpus // k] * k, t=10, a=rng.integers(0, 10, n))
    return lab.case(round_, tuple(rng.choice([0.0, 1.0, 3.0], n).tolist()))


def test_three_thousand_jobs_are_proved_optimal(lab: Any) -> None:
    case = large_case(lab)
    decision = lab.decide(case)
    assert decision.status == "OPTIMAL"
    assert lab.broken(case, decision) == []
    assert int(decision.allocation.gpus.sum()) == 1000
    rounded = lab.decide(case, method="lp_repair")
    assert lab.broken(case, rounded) == []
    assert decision.objective <= rounded.objective
    assert rounded.bound <= decision.objective + 1e-6 * abs(decision.objective)
    assert 0.0 <= rounded.gap <= 0.015
    greedy = FFT().compile(case.round_, case.memory, Budget.of(None)).incumbent()
    assert decision.objective < greedy.objective


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seconds", [1e-9, 1e-3, 2e-2])
def test_a_decision_at_least_as_good_as_the_greedy_one_in_any_time(
    lab: Any, seconds: float, mode: str, method: str
) -> None:
    case = large_case(lab, n=300, k=4, gpus=100)
    policy = FFT(method=method, work_conservation=mode)
    program = policy.compile(case.round_, case.memory, Budget.of(None))
    greedy = program.incumbent()
    decision = program.solve(Solver(gap=0.0), Budget.of(seconds))
    assert lab.broken(case, decision) == []
    assert decision.status in ("OPTIMAL", "FEASIBLE")
    assert decision.status == "OPTIMAL" or decision.time_limited or method == "lp_repair"
    more = int(decision.allocation.gpus.sum()) - int(greedy.allocation.gpus.sum())
    better = decision.objective <= greedy.objective + 1e-9
    assert better if mode == "none" else (more > 0 or (more == 0 and better))
    if seconds == 1e-9:
        assert decision.time_limited
        assert decision.bound is None
        assert decision.allocation == greedy.allocation


@pytest.mark.parametrize("method", METHODS)
def test_hard_work_conservation_is_not_claimed_where_time_ran_out(lab: Any, method: str) -> None:
    """The greedy plan takes the gang of 4 and leaves 2 GPUs; two gangs of 3 would fill all."""
    round_ = lab.build([[1.0]] * 3, [1.0, 9.0, 9.0], [4, 3, 3], [6])
    case = lab.case(round_, (0.0,) * 3)
    late = lab.decide(case, method=method, work_conservation="hard", seconds=1e-9)
    assert late.allocation.gpus.tolist() == [4]
    assert late.status == "NO_SOLUTION"
    assert late.time_limited
    decision = lab.decide(case, method=method, work_conservation="hard")
    assert decision.status == "OPTIMAL" or method == "lp_repair"
    assert int(decision.allocation.gpus.sum()) == 6


@pytest.mark.parametrize("method", METHODS)
def test_given_up_work_conservation_still_places_all_that_can_be(lab: Any, method: str) -> None:
    """One GPU of the second type is of no use: 7 asked for, 6 possible, the greedy plan has 4."""
    round_ = lab.build([[1.0, 1.0]] * 3, [1.0, 9.0, 9.0], [4, 3, 3], [6, 1])
    case = lab.case(round_, (0.0,) * 3)
    decision = lab.decide(case, method=method, work_conservation="hard")
    assert decision.status == "INFEASIBLE"
    assert int(decision.allocation.gpus.sum()) == 6
    assert decision.notes[0].endswith("it asks for 7 GPUs to be placed, at most 6 can be")
    assert sum(stage.answered for stage in decision.stages) == 1


def with_rule(program: Any, least: float) -> Any:
    """The program's own model, and job 0 has to run."""
    own, builder = program.model, ModelBuilder("ruled")
    x = builder.columns("x", own.column_count, upper=own.upper, integer=True)
    entry = own.matrix.tocoo()
    builder.rows(
        "own", own.row_count, row=entry.row, column=entry.col, value=entry.data,
        lower=own.row_lower, upper=own.row_upper,
    )  # fmt: skip
    builder.rows("rule", 1, row=0, column=x[:2], value=1.0, lower=least, upper=2.0)
    for objective in own.objectives:
        builder.objective(
            objective.name, column=x, value=objective.cost, maximise=objective.maximise
        )
    return program.with_model(builder.build())


def test_side_rules_are_obeyed_or_named_as_given_up(lab: Any) -> None:
    """Left alone nobody runs; the rule starts job 0, where it is cheapest."""
    round_ = lab.build([[1.0, 2.0], [1.0, 4.0]], [10.0, 10.0], [1, 1], [1, 1])
    case = lab.case(round_, (0.0, 0.0))
    program = FFT(work_conservation="none").compile(round_, None, Budget.of(None))
    assert program.solve(Solver(gap=0.0), Budget.of(None)).allocation.job.size == 0
    decision = with_rule(program, 1.0).solve(Solver(gap=0.0), Budget.of(None))
    assert decision.status == "OPTIMAL"
    assert decision.allocation.job.tolist() == [0]
    assert decision.objective == pytest.approx(5.0)
    decision = with_rule(program, 2.0).solve(Solver(gap=0.0), Budget.of(None))
    assert decision.status == "INFEASIBLE"
    assert decision.notes[0].startswith("the side rules were given up")
    assert lab.broken(case, decision) == []


def test_stages_say_who_answered(lab: Any) -> None:
    case = large_case(lab, n=200, k=3, gpus=36)
    for method in METHODS:
        decision = lab.decide(case, method=method)
        assert decision.stages[0].name == "incumbent"
        answered = [stage for stage in decision.stages if stage.answered]
        assert len(answered) == 1
        assert answered[0].objective == pytest.approx(decision.objective)
        assert all(stage.elapsed_s >= 0.0 for stage in decision.stages)
    assert lab.decide(case).stages[-1].name in ("core", "repair")


def test_nothing_is_solved_to_learn_that_everybody_or_everything_is_placed(lab: Any) -> None:
    """The greedy plan reaches the smaller of GPUs and GPUs asked for; else it has to be asked."""
    for gangs, gpus, asked in (([1, 2], 9, False), ([2, 2, 2], 4, False), ([2, 2], 3, True)):
        n = len(gangs)
        round_ = lab.build([[1.0]] * n, [5.0] * n, gangs, [gpus])
        decision = lab.decide(lab.case(round_, (0.0,) * n))
        assert any(stage.name == "most_gpus" for stage in decision.stages) is asked


def test_the_same_round_gives_the_same_decision(lab: Any) -> None:
    case = large_case(lab, n=400, k=4, gpus=100)
    one, two = lab.decide(case, gap=1e-4), lab.decide(case, gap=1e-4)
    assert one.allocation == two.allocation
    assert (one.objective, one.bound) == (two.objective, two.bound)


def test_identical_jobs_are_merged_in_the_model(lab: Any) -> None:
    """The owed amount, the age or the last type tells jobs apart; their names do not."""
    same_jobs = lab.build([[1.0, 2.0]] * 50, [10.0] * 50, [2] * 50, [13, 7], t=5)
    program = FFT().compile(same_jobs, None, Budget.of(None))
    assert program.model.column_count == 2
    assert program.model.upper.tolist() == [50.0, 50.0]
    program = FFT().compile(same_jobs, lab.owing(same_jobs, [1.0] + [0.0] * 49), Budget.of(None))
    assert program.model.column_count == 4


def test_a_reservation_larger_than_the_gang_is_served(lab: Any) -> None:
    promised = Commitments.of([1], [0.0], [1e6], [3], [1])
    round_ = lab.build(
        [[1.0, 2.0]] * 2, [10.0] * 2, [1, 2], [2, 4], commitments=promised,
        config_offsets=[0, 0, 1], config_gpus=[3], config_type=[1], config_throughput_per_s=[0.01],
    )  # fmt: skip
    case = lab.case(round_, (0.0, 0.0))
    for decision in (
        lab.decide(case),
        FIFO().compile(round_, None, Budget.of(None)).incumbent(),
        SRTF().compile(round_, None, Budget.of(None)).incumbent(),
    ):
        plan = decision.allocation
        assert plan.job.tolist() == [0, 1]
        assert plan.gpu_type[1] == 1
        assert plan.gpus.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"work_conservation": "soft"}, "work_conservation"),
        ({"tau_model": "guess"}, "tau_model"),
        ({"units": "metric"}, "units"),
        ({"method": "magic"}, "method"),
        ({"wait_weight": float("nan")}, "wait_weight"),
        ({"wait_weight": float("inf")}, "wait_weight"),
        ({"fairness_weight": -1.0}, "fairness_weight"),
        ({"switch_weight": -0.1}, "switch_weight"),
        ({"bandwidth_gb_per_s": 0.0}, "bandwidth_gb_per_s"),
        ({"switch_fixed_s": -1.0}, "fixed_s"),
    ],
)
def test_parameters_out_of_range_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InstanceError, match=field):
        FFT(**options)


@pytest.mark.parametrize(
    "memory", [{}, {"id": ["a"]}, 7, "text", {"id": ["a"], "rho": [1.0, 2.0], "fair_per_s": [0.0]}]
)
def test_a_memory_of_somebody_else_is_refused(lab: Any, memory: Any) -> None:
    round_ = lab.build([[1.0]], [10.0], [1], [1])
    with pytest.raises(InstanceError, match=r"^memory: "):
        FFT().compile(round_, memory, Budget.of(None))


def test_memory_may_be_plain_lists(lab: Any) -> None:
    """As it is after a way through a file; jobs that are gone and new ones do no harm."""
    round_ = lab.build([[1.0]] * 2, [10.0] * 2, [1, 1], [1], names=["b", "new"])
    memory = {"id": ["a", "b"], "rho": [1.0, 2.0], "fair_per_s": [0.1, 0.2]}
    owed = FFT().compile(round_, memory, Budget.of(None)).owed
    assert owed.rho.tolist() == [2.0, 0.0]
