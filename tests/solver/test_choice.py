"""Multiple choice with few capacities against every plan, and against one plain model."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from apportion.solver import (
    Budget,
    Choice,
    ChoiceSolution,
    Model,
    ModelBuilder,
    ModelError,
    Solution,
    Solver,
    Status,
    UnsupportedModelError,
    solve_choice,
)
from apportion.solver.drivers import choice_prices, choice_search

SOME, MANY, LARGER = 20, 400, 24
FOREVER = Budget.of(None)
EXACT = Solver(gap=0.0)


def seeds(count: int, some: int = SOME) -> list[object]:
    return [
        pytest.param(seed, marks=pytest.mark.quick if seed < some else pytest.mark.slow)
        for seed in range(count)
    ]


def draw(rng: np.random.Generator) -> Choice:
    """A tiny problem with ties, infinite options, free options, counts, and any kind of total."""
    n, width, k = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    cost = (
        rng.integers(-5, 6, (n, width)).astype(float),
        rng.normal(size=(n, width)) * 10,
        np.full((n, width), float(rng.integers(-2, 3))),
        rng.random((n, width)) * 5,
    )[rng.integers(0, 4)]
    cost = np.where(rng.random((n, width)) < 0.2, np.inf, cost)
    amount = rng.integers(0 if rng.random() < 0.3 else 1, 4, (n, width)).astype(float)
    if rng.random() < 0.5:
        amount = np.broadcast_to(amount[:, :1], (n, width)).copy()
    capacity = rng.integers(0, 7, k).astype(float)
    total = (
        None,
        float(rng.integers(0, int(capacity.sum()) + 3)),
        float(capacity.sum()),
    )[rng.integers(0, 3)]
    count = rng.integers(1, 4, n)
    return Choice(cost, amount, rng.integers(0, k, width), capacity, count, total)


def least_cost(choice: Choice) -> float | None:
    """Try every plan, group by group: the least cost for each use of the capacities."""
    reached: dict[tuple[float, ...], float] = {(0.0,) * choice.capacity.size: 0.0}
    for group in range(choice.cost.shape[0]):
        copies = range(int(choice.count[group]) + 1)
        options = np.flatnonzero(np.isfinite(choice.cost[group])).tolist()
        ways = [way for way in itertools.product(copies, repeat=len(options)) if sum(way) in copies]
        after: dict[tuple[float, ...], float] = {}
        for used, value in reached.items():
            for way in ways:
                now, cost = list(used), value
                for option, copies_of in zip(options, way, strict=True):
                    now[choice.resource[option]] += copies_of * choice.amount[group, option]
                    cost += copies_of * choice.cost[group, option]
                if all(u <= c for u, c in zip(now, choice.capacity, strict=True)):
                    key = tuple(now)
                    after[key] = min(cost, after.get(key, np.inf))
        reached = after
    found = [
        value
        for used, value in reached.items()
        if choice.total is None or sum(used) >= choice.total
    ]
    return min(found) if found else None


def check_plan(choice: Choice, answer: ChoiceSolution) -> None:
    """Recompute everything the answer claims of its plan."""
    plan = answer.plan
    assert plan is not None
    assert answer.objective is not None
    assert plan.dtype.kind == "i"
    assert (plan >= 0).all()
    assert (plan.sum(axis=1) <= choice.count).all()
    assert not plan[np.isinf(choice.cost)].any()
    used = np.zeros(choice.capacity.size)
    for option, resource in enumerate(choice.resource.tolist()):
        used[resource] += float(plan[:, option] @ choice.amount[:, option])
    assert (used <= choice.capacity + 1e-6).all()
    assert choice.total is None or used.sum() >= choice.total - 1e-6
    value = float((plan * np.where(plan > 0, choice.cost, 0.0)).sum())
    assert answer.objective == pytest.approx(value, rel=1e-12, abs=1e-12 * choice.unit)
    assert answer.bound is None or answer.bound <= answer.objective + close(answer.objective)


def close(value: float) -> float:
    return 1e-9 * max(1.0, abs(value))


def check_exact(choice: Choice, answer: ChoiceSolution) -> None:
    least = least_cost(choice)
    if least is None:
        assert answer.status is Status.INFEASIBLE
        assert answer.plan is None
        assert answer.objective is None
        return
    assert answer.status is Status.OPTIMAL
    check_plan(choice, answer)
    assert answer.objective == pytest.approx(least, abs=close(least))
    assert answer.bound == pytest.approx(least, abs=close(least))
    assert answer.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", seeds(MANY))
def test_every_plan_of_tiny_problems(seed: int) -> None:
    choice = draw(np.random.default_rng(seed))
    check_exact(choice, solve_choice(choice, EXACT, budget=FOREVER))


@pytest.mark.parametrize("seed", seeds(MANY))
def test_first_prices_from_a_sample(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_prices, "SAMPLE_FROM", -1)
    choice = draw(np.random.default_rng(seed))
    check_exact(choice, solve_choice(choice, EXACT, budget=FOREVER))


@pytest.mark.parametrize("seed", seeds(MANY))
def test_wide_cores_are_handed_to_the_plain_model(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice_search, "WIDE_CORE", -100)
    choice = draw(np.random.default_rng(seed))
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    check_exact(choice, answer)
    assert not any(stage.name == "core" for stage in answer.stages)


@pytest.mark.parametrize("seed", seeds(MANY))
def test_proofs_that_run_out_of_cores_are_handed_over_too(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice_search, "CORE_ROUNDS", 0)
    choice = draw(np.random.default_rng(seed))
    check_exact(choice, solve_choice(choice, EXACT, budget=FOREVER))


@pytest.mark.parametrize("seed", seeds(MANY))
def test_without_a_proof_the_bound_still_holds(seed: int) -> None:
    choice = draw(np.random.default_rng(seed))
    answer = solve_choice(choice, EXACT, budget=FOREVER, prove=False)
    least = least_cost(choice)
    assert not any(stage.name == "core" for stage in answer.stages)
    if answer.status is Status.INFEASIBLE:
        assert least is None
        return
    if answer.plan is None:
        assert answer.status is Status.NO_SOLUTION
        return
    assert least is not None
    check_plan(choice, answer)
    assert answer.bound is not None
    assert answer.bound <= least + close(least)
    if answer.status is Status.OPTIMAL:
        assert answer.objective == pytest.approx(least, abs=close(least))


def larger(rng: np.random.Generator, *, equations: bool, groups: int = 0) -> Choice:
    """60 to 400 groups: gangs on types, all GPUs used; or configurations that may stay idle."""
    n = groups or int(rng.integers(60, 401))
    if equations:
        gang = rng.choice([1.0, 2.0, 4.0, 8.0], n, p=[0.5, 0.2, 0.2, 0.1])
        k = int(rng.integers(2, 6))
        speed = rng.uniform(0.5, 3.0, (n, k))
        cost = gang[:, None] * rng.lognormal(2.0, 1.0, (n, 1)) / speed
        capacity = np.floor(rng.dirichlet(np.ones(k)) * gang.sum() * 0.5) + 8
        total = float(capacity.sum())
        amount, resource = np.broadcast_to(gang[:, None], (n, k)), np.arange(k)
    else:
        k, sizes = 3, np.array([1.0, 2.0, 4.0, 8.0])
        resource, per = np.repeat(np.arange(k), sizes.size), np.tile(sizes, k)
        gain = rng.uniform(0.5, 3.0, (n, 1)) * per**0.7 * rng.uniform(0.8, 1.2, (n, per.size))
        cost, total = 1.1 - gain, None
        cost[rng.random(cost.shape) < 0.1] = np.inf
        amount = np.broadcast_to(per, cost.shape)
        capacity = np.floor(rng.uniform(0.3, 1.0, k) * n)
    count = rng.integers(1, 3, n) if rng.random() < 0.5 else np.ones(n, dtype=np.int64)
    return Choice(cost, amount, resource, capacity, count, total)


def plain_optimum(choice: Choice) -> float:
    """Write the problem down as one MILP and solve that."""
    groups, options = np.nonzero(np.isfinite(choice.cost))
    amount = choice.amount[groups, options]
    builder = ModelBuilder("plain")
    x = builder.columns("x", groups.size, upper=choice.count[groups], integer=True)
    builder.rows("pick", choice.count.size, row=groups, column=x, value=1.0, upper=choice.count)
    lower = choice.capacity if choice.total == choice.capacity.sum() else -np.inf
    builder.rows(
        "capacity", choice.capacity.size, row=choice.resource[options], column=x, value=amount,
        lower=lower, upper=choice.capacity,
    )  # fmt: skip
    builder.objective("cost", column=x, value=choice.cost[groups, options])
    # the plain model of the larger problems is not proved to the last digit in test time
    solution = Solver(gap=1e-6).solve(builder.build(), budget=Budget.of(60.0))
    assert solution.status is Status.OPTIMAL
    return solution.objective


@pytest.mark.parametrize("equations", [True, False])
@pytest.mark.parametrize("seed", seeds(LARGER, some=3))
def test_larger_problems_equal_the_plain_model(seed: int, *, equations: bool) -> None:
    choice = larger(np.random.default_rng(seed), equations=equations)
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    check_plan(choice, answer)
    assert answer.objective is not None
    assert answer.objective == pytest.approx(plain_optimum(choice), rel=2e-6)
    # small cores prove it: the plain model is never asked
    assert answer.stages[-1].name in ("core", "repair")


@pytest.mark.quick
@pytest.mark.parametrize("equations", [True, False])
def test_the_sample_gives_the_same_optimum_and_bound(
    monkeypatch: pytest.MonkeyPatch, *, equations: bool
) -> None:
    choice = larger(np.random.default_rng(7), equations=equations, groups=1500)
    whole = solve_choice(choice, EXACT, budget=FOREVER, prove=False)
    monkeypatch.setattr(choice_prices, "SAMPLE_FROM", 10)
    asked: list[int] = []
    plain = Solver.solve

    def counted(self: Solver, model: Model, **more: Any) -> Solution:
        asked.append(model.column_count)
        return plain(self, model, **more)

    monkeypatch.setattr(Solver, "solve", counted)
    part = solve_choice(choice, EXACT, budget=FOREVER, prove=False)
    assert part.bound == pytest.approx(whole.bound, rel=1e-8)
    # near ties only: nobody solved the relaxation over all options
    assert max(asked) < int(np.isfinite(choice.cost).sum())
    proved = solve_choice(choice, EXACT, budget=FOREVER)
    assert proved.status is Status.OPTIMAL


KINDS = ("full", "do not pack", "equal costs", "tiny", "side row")
AGREED = 200


def drawn_as(kind: str, rng: np.random.Generator) -> Choice:
    """Gangs on types: all GPUs used; even gangs on odd numbers of GPUs; ties; few; or a total."""
    n = int(rng.integers(1, 6)) if kind == "tiny" else int(rng.integers(10, 60))
    k = int(rng.integers(1, 5))
    sizes = [2.0, 4.0, 8.0] if kind == "do not pack" else [1.0, 2.0, 4.0, 8.0]
    gang = rng.choice(sizes, n)
    cost = gang[:, None] * rng.lognormal(1.0, 1.0, (n, 1)) / rng.uniform(0.5, 3.0, (n, k))
    if kind == "equal costs":
        cost = np.broadcast_to(gang[:, None] * float(rng.integers(1, 4)), (n, k)).copy()
    capacity = np.floor(rng.dirichlet(np.ones(k)) * gang.sum() * 0.6) + 1.0
    total: float | None = float(capacity.sum())
    if kind == "do not pack":
        capacity += (capacity + 1.0) % 2.0
        total = float(np.floor(rng.uniform(0.5, 1.0) * (capacity - 1.0).sum()))
    elif kind == "side row":
        total = float(np.floor(rng.uniform(0.2, 0.9) * capacity.sum()))
    elif kind == "tiny" and rng.random() < 0.5:
        cost, total = -cost, None
    amount = np.broadcast_to(gang[:, None], (n, k))
    return Choice(cost, amount, np.arange(k), capacity, np.ones(n, dtype=np.int64), total)


def by_highs(choice: Choice) -> float | None:
    """The same MILP at gap 0 by HiGHS, equations where all capacities are used; None if none."""
    groups, options = np.nonzero(choice.allowed)
    amount = choice.amount[groups, options]
    builder = ModelBuilder("plain")
    x = builder.columns("x", groups.size, upper=choice.count[groups], integer=True)
    builder.rows("pick", choice.count.size, row=groups, column=x, value=1.0, upper=choice.count)
    builder.rows(
        "capacity", choice.capacity.size, row=choice.resource[options], column=x, value=amount,
        lower=choice.capacity if choice.full else -np.inf, upper=choice.capacity,
    )  # fmt: skip
    if choice.total is not None and not choice.full:
        builder.rows("total", 1, row=0, column=x, value=amount, lower=choice.total)
    builder.objective("cost", column=x, value=choice.cost[groups, options])
    answer = Solver(gap=0.0, backend="highs").solve(builder.build(), budget=FOREVER)
    assert answer.status in (Status.OPTIMAL, Status.INFEASIBLE)
    return answer.objective if answer.point is not None else None


@pytest.mark.parametrize("seed", [*seeds(SOME), *range(SOME, AGREED)])
def test_agreement_with_highs_at_gap_zero(seed: int) -> None:
    choice = drawn_as(KINDS[seed % len(KINDS)], np.random.default_rng([77, seed]))
    answer, least = solve_choice(choice, EXACT, budget=FOREVER), by_highs(choice)
    if least is None:
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.status is Status.OPTIMAL
    check_plan(choice, answer)
    assert answer.objective == pytest.approx(least, rel=1e-9, abs=1e-9)
    assert answer.bound == pytest.approx(least, rel=1e-9, abs=1e-9)


@pytest.mark.quick
def test_a_wide_core_says_so_and_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = larger(np.random.default_rng(2), equations=True, groups=60)
    monkeypatch.setattr(choice_search, "WIDE_CORE", -100)
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    assert answer.stages[-1].name == "milp"
    assert answer.stages[-1].note.startswith("the core is wide (")
    assert answer.objective == pytest.approx(by_highs(choice), rel=1e-9)


def equal_jobs(n: int, gang: float, gpus: float, *, cost: float, total: float | None) -> Choice:
    table = np.full((n, 1), cost)
    return Choice(
        table, np.full_like(table, gang), np.array([0]), np.array([gpus]),
        np.ones(n, dtype=np.int64), total,
    )  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(
    ("choice", "least"),
    [
        (equal_jobs(4, 2.0, 3.0, cost=1.0, total=2.0), 1.0),
        (equal_jobs(4, 2.0, 3.0, cost=-1.0, total=None), -1.0),
        (equal_jobs(5, 1.0, 1.0, cost=1.0, total=1.0), 1.0),
        (equal_jobs(5, 1.0, 1.0, cost=-1.0, total=None), -1.0),
        (equal_jobs(5, 1.0, 1.0, cost=0.0, total=1.0), 0.0),
        (equal_jobs(200, 2.0, 101.0, cost=-0.1, total=None), -5.0),
        (equal_jobs(200, 2.0, 101.0, cost=0.1, total=100.0), 5.0),
    ],
)
def test_equal_jobs_do_not_stall_the_proof(choice: Choice, least: float) -> None:
    """All regrets are zero, so that a cut-off that is multiplied never moves."""
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    assert answer.objective == pytest.approx(least)
    assert answer.bound == pytest.approx(least)
    assert len(answer.stages) <= 4


@pytest.mark.quick
def test_a_plan_may_need_an_option_of_huge_regret() -> None:
    """400 equal gangs of 2 and 101 GPUs to be used up: only the dear odd job makes it whole."""
    cost, amount = np.ones((401, 1)), np.full((401, 1), 2.0)
    cost[-1], amount[-1] = 1e6, 1.0
    count = np.ones(401, dtype=np.int64)
    choice = Choice(cost, amount, np.array([0]), np.array([101.0]), count, 101.0)
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    assert answer.objective == pytest.approx(1e6 + 50)
    without = replace(choice, cost=np.where(cost > 1.0, np.inf, cost))
    assert solve_choice(without, EXACT, budget=FOREVER).status is Status.INFEASIBLE


@pytest.mark.quick
def test_options_outside_the_first_core_may_be_the_better_ones() -> None:
    """Gangs of 5 on 201 GPUs, all to be used: one more GPU, or three gangs of 2 for one of 5.

    At a price of 1 a GPU gangs of 5 have no regret, those of 2 have 3 each (9 in all), the single
    GPU has 5: the first core holds gangs of 5 only, and the plan given is not the best.
    """
    cost = np.array([[5.0]] * 100 + [[5.0]] * 3 + [[6.0]])
    amount = np.array([[5.0]] * 100 + [[2.0]] * 3 + [[1.0]])
    count = np.ones(104, dtype=np.int64)
    choice = Choice(cost, amount, np.array([0]), np.array([201.0]), count, 201.0)
    given = np.zeros((104, 1), dtype=np.int64)
    given[:39], given[100:103] = 1, 1
    assert choice.feasible(given)
    assert choice.value(given) == 5 * 39 + 15
    answer = solve_choice(choice, EXACT, budget=FOREVER, incumbent=given)
    assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, 206.0, 206.0)
    names = [stage.name for stage in answer.stages]
    assert names[:4] == ["incumbent", "lp", "repair", "core"]
    assert set(names[4:]) == {"core"}


@pytest.mark.quick
def test_a_core_without_a_plan_says_nothing_about_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search ends after the first core, in which the gangs of 2 cannot fill 101 GPUs."""
    monkeypatch.setattr(choice_search, "CORE_ROUNDS", 1)
    monkeypatch.setattr(choice_search._Search, "whole", lambda self, note: None)
    cost, amount = np.ones((401, 1)), np.full((401, 1), 2.0)
    cost[-1], amount[-1] = 1e6, 1.0
    count = np.ones(401, dtype=np.int64)
    choice = Choice(cost, amount, np.array([0]), np.array([101.0]), count, 101.0)
    monkeypatch.setattr(choice_search, "round_down_and_fill", lambda *rest: np.zeros_like(amount))
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert [stage.name for stage in answer.stages] == ["lp", "repair", "core"]
    assert answer.status is not Status.INFEASIBLE


@pytest.mark.quick
def test_totals_beyond_every_reach_are_infeasible_at_once() -> None:
    base = equal_jobs(3, 1.0, 2.0, cost=1.0, total=None)
    for total, status in (
        (2.0, Status.OPTIMAL),
        (2.5, Status.INFEASIBLE),
        (3.0, Status.INFEASIBLE),
    ):
        answer = solve_choice(replace(base, total=total), EXACT, budget=FOREVER)
        assert answer.status is status
    few = replace(base, capacity=np.array([10.0]))
    assert solve_choice(replace(few, total=3.0), EXACT, budget=FOREVER).objective == 3.0
    answer = solve_choice(replace(few, total=4.0), EXACT, budget=FOREVER)
    assert answer.status is Status.INFEASIBLE
    assert answer.stages[-1].note == "4 of at most 3"


@pytest.mark.quick
def test_fractional_capacities_are_not_equations_by_rounding() -> None:
    """0.6 of 1.0 is within half a unit of the capacity, and yet leaves room."""
    choice = Choice(
        np.array([[1.0]]), np.array([[0.6]]), np.array([0]), np.array([1.0]), np.array([1]), 0.6
    )
    assert not choice.full
    answer = solve_choice(choice, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    assert answer.objective == 1.0


@pytest.mark.quick
@pytest.mark.parametrize("total", [None, 53.0])
@pytest.mark.parametrize("unit", [2.0**-60, 2.0**-20, 1.0, 2.0**30, 2.0**60])
def test_the_size_of_costs_changes_no_digit(unit: float, total: float | None) -> None:
    rng = np.random.default_rng(1)
    n = 100
    cost = rng.random((n, 3)) * (1.0 if total else -1.0)
    gang = np.broadcast_to(rng.choice([1.0, 2.0, 4.0], (n, 1)), (n, 3))
    choice = Choice(
        cost, gang, np.arange(3), np.array([20.0, 20.0, 13.0]), np.ones(n, dtype=np.int64), total
    )
    reference = solve_choice(choice, EXACT, budget=FOREVER)
    scaled = replace(choice, cost=cost * unit)
    answer = solve_choice(scaled, EXACT, budget=FOREVER)
    assert answer.status is Status.OPTIMAL
    check_plan(scaled, answer)
    assert answer.objective == pytest.approx(reference.objective * unit, rel=1e-9)
    assert answer.bound == pytest.approx(reference.objective * unit, rel=1e-9)
    assert answer.prices == pytest.approx(reference.prices * unit, rel=1e-6)
    assert answer.stages[0].bound == pytest.approx(reference.stages[0].bound * unit, rel=1e-9)


@pytest.mark.quick
def test_prices_prove_the_bound() -> None:
    """Weak duality, added up here: sum over copies of the best reduced cost, less what is sold."""
    for seed in range(30):
        choice = larger(np.random.default_rng(seed), equations=bool(seed % 3))
        if seed % 3 == 2:  # most of the capacities are to be used, no matter which
            choice = replace(choice, total=choice.capacity.sum() - 7.0)
        answer = solve_choice(choice, Solver(gap=1.0), budget=FOREVER, prove=False)
        assert answer.prices is not None
        assert choice.full or (answer.prices >= 0).all()
        # nobody runs unasked where every option costs something
        assert (answer.total_price > 0) is (seed % 3 == 2)
        price = answer.prices[choice.resource] - answer.total_price
        best = np.minimum((choice.cost + choice.amount * price).min(axis=1), 0.0)
        bound = float(choice.count @ best) - float(answer.prices @ choice.capacity)
        bound += answer.total_price * (choice.total or 0.0)
        assert answer.stages[0].bound == pytest.approx(bound, rel=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("equations", [True, False])
@pytest.mark.parametrize("seconds", [1e-6, 1e-3, 5e-3])
def test_tiny_budgets_answer_at_once(seconds: float, *, equations: bool) -> None:
    choice = larger(np.random.default_rng(5), equations=equations)
    nobody = np.zeros(choice.cost.shape, dtype=np.int64)
    for incumbent in (None, nobody):
        budget = Budget.of(seconds)
        answer = solve_choice(choice, EXACT, budget=budget, incumbent=incumbent)
        if answer.plan is None:
            assert answer.status is Status.NO_SOLUTION
            assert equations or incumbent is None
        else:
            check_plan(choice, answer)
            assert answer.status in (Status.OPTIMAL, Status.FEASIBLE)
        assert answer.time_limited or answer.status is Status.OPTIMAL
        if answer.status is not Status.OPTIMAL:
            assert answer.gap is None or answer.gap > 0.0


@pytest.mark.quick
def test_an_incumbent_is_kept_unless_it_breaks_a_rule() -> None:
    choice = equal_jobs(3, 1.0, 2.0, cost=-1.0, total=None)
    gone = Budget.of(1e-9)
    answer = solve_choice(choice, EXACT, budget=gone, incumbent=np.array([[1], [0], [0]]))
    assert (answer.status, answer.objective) == (Status.FEASIBLE, -1.0)
    assert answer.time_limited
    for broken in ([[1], [1], [1]], [[2], [0], [0]], [[-1], [0], [0]]):
        answer = solve_choice(choice, EXACT, budget=gone, incumbent=np.array(broken))
        assert answer.status is Status.NO_SOLUTION
        assert answer.plan is None
    short = replace(choice, total=2.0)
    answer = solve_choice(short, EXACT, budget=gone, incumbent=np.array([[1], [0], [0]]))
    assert answer.plan is None


@pytest.mark.quick
@pytest.mark.parametrize("limit", [1.0, 20.0])
def test_work_limits_repeat_exactly(limit: float) -> None:
    choice = larger(np.random.default_rng(11), equations=True)
    solver = Solver(gap=0.0, work_limit=limit)
    one, two = (solve_choice(choice, solver, budget=FOREVER) for _ in range(2))
    assert one.status is two.status
    assert (one.objective, one.bound) == (two.objective, two.bound)
    assert (one.plan is None) == (two.plan is None)
    if one.plan is not None:
        check_plan(choice, one)
        assert (one.plan == two.plan).all()
    assert not one.time_limited


@pytest.mark.quick
def test_stopping_at_a_gap_keeps_it() -> None:
    for seed in range(6):
        choice = larger(np.random.default_rng(100 + seed), equations=bool(seed % 2))
        exact = solve_choice(choice, EXACT, budget=FOREVER)
        loose = solve_choice(choice, Solver(gap=0.02), budget=FOREVER)
        assert loose.status is Status.OPTIMAL
        assert loose.gap is not None
        assert loose.gap <= 0.02
        assert loose.bound is not None
        assert exact.objective is not None
        assert loose.bound <= exact.objective + close(exact.objective)


@pytest.mark.quick
def test_every_code_answers_or_refuses() -> None:
    cost = np.arange(6.0).reshape(3, 2) ** 2
    choice = Choice(
        cost, np.ones((3, 2)), np.arange(2), np.ones(2), np.ones(3, dtype=np.int64), 2.0
    )
    for backend in ("highs", "scip", "cbc", "cpsat"):
        answer = solve_choice(choice, Solver(gap=0.0, backend=backend), budget=FOREVER)
        assert (answer.status, answer.objective) == (Status.OPTIMAL, 5.0)
    with pytest.raises(UnsupportedModelError, match="not a decimal"):
        solve_choice(
            replace(choice, cost=cost / 3.0), Solver(gap=0.0, backend="cpsat"), budget=FOREVER
        )


@pytest.mark.quick
@pytest.mark.parametrize("total", [None, 0.0, 1.0])
def test_nothing_to_choose(total: float | None) -> None:
    empty = Choice(
        np.zeros((0, 2)), np.zeros((0, 2)), np.arange(2), np.ones(2), np.zeros(0, dtype=np.int64),
        total,
    )  # fmt: skip
    barred = equal_jobs(3, 1.0, 2.0, cost=np.inf, total=total)
    for choice in (empty, barred):
        answer = solve_choice(choice, EXACT, budget=FOREVER)
        if total == 1.0:
            assert answer.status is Status.INFEASIBLE
        else:
            assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, 0.0, 0.0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("cost", np.zeros((2, 2))),
        ("cost", np.array([[np.nan]])),
        ("cost", np.array([[-np.inf]])),
        ("amount", np.array([[-1.0]])),
        ("amount", np.array([[np.nan]])),
        ("capacity", np.array([-1.0])),
        ("count", np.array([0])),
        ("count", np.array([1, 1])),
        ("resource", np.array([0, 0])),
    ],
)
def test_malformed_problems_are_refused(part: str, value: object) -> None:
    sound = Choice(np.ones((1, 1)), np.ones((1, 1)), np.array([0]), np.ones(1), np.array([1]))
    with pytest.raises(ModelError, match=r"^choice: "):
        replace(sound, **{part: value})
