"""The same model on every back end; CP-SAT only where the costs are decimals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training import FFT
from apportion.solver import Budget, Solver, UnsupportedModelError

SOME, MANY = 20, 100
CASES = [
    pytest.param(seed, marks=pytest.mark.quick if seed < SOME else pytest.mark.slow)
    for seed in range(MANY)
]


def compiled(case: Any, **options: Any) -> Any:
    policy = FFT(**{**case.options, **options})
    return policy.compile(case.round_, case.memory, Budget.of(None))


def draw_larger(lab: Any, rng: np.random.Generator) -> Any:
    """A round of 12 jobs x 3 types, some of them equal, with costs of every sort."""
    n, k = 12, 3
    theta = rng.choice([0.0, 1.0, 2.0, 3.0], (n, k)) * rng.uniform(0.5, 1.5, (n, k))
    W, d = rng.uniform(1.0, 20.0, n), rng.choice([1, 1, 2, 4], n)
    theta[6:9], W[6:9], d[6:9] = theta[6], W[6], d[6]
    rho = rng.choice([0.0, 1.0, 3.0], n)
    rho[6:9] = rho[6]
    previous = rng.integers(-1, k, n)
    previous[6:9] = previous[6]
    round_ = lab.build(
        theta, W, d, rng.integers(1, 7, k), t=float(rng.integers(0, 9)), previous=previous,
        switch=0.5,
    )  # fmt: skip
    return lab.case(round_, tuple(rho.tolist()))


@pytest.mark.parametrize("seed", CASES)
def test_three_codes_agree(lab: Any, same: Callable[..., bool], seed: int) -> None:
    rng = np.random.default_rng(30_000 + seed)
    case = draw_larger(lab, rng) if seed % 2 else lab.draw(rng)
    mode = ("lexicographic", "reward", "none")[seed % 3]
    program = compiled(case, work_conservation=mode)
    values, gpus = [], set()
    for backend in ("highs", "scip", "cbc"):
        solution = Solver(gap=0.0, backend=backend).solve(program.model, budget=Budget.of(None))
        decision = program.decode(solution)
        assert lab.broken(case, decision) == []
        values.append(lab.cost_of(case, decision))
        gpus.add(int(decision.allocation.gpus.sum()))
        assert same(decision.objective, values[-1])
    assert same(values[1], values[0], within=1e-6)
    assert same(values[2], values[0], within=1e-6)
    assert len(gpus) == 1 or mode == "none"
    assert same(lab.decide(case, work_conservation=mode).objective, values[0], within=1e-6)


def draw_decimal(lab: Any, rng: np.random.Generator) -> Any:
    """A round whose costs are whole numbers or short decimals: W a multiple of theta, t = a."""
    n, k = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    theta = rng.choice([1.0, 2.0, 4.0], (n, k))
    W = 4.0 * rng.integers(1, 9, n)
    rho = rng.choice([0.0, 0.5, 1.25, 3.0], n)
    round_ = lab.build(theta, W, rng.choice([1, 2, 3], n), rng.integers(1, 6, k))
    return lab.case(round_, tuple(rho.tolist()))


def is_decimal(value: float, places: int = 9) -> bool:
    """Whether a double is the one nearest to a decimal of so many places."""
    nearest = Fraction(round(Fraction(value) * 10**places), 10**places)
    return float(nearest) == value


@pytest.mark.parametrize("seed", CASES)
def test_cp_sat_solves_decimals_exactly_and_refuses_the_rest(
    lab: Any, same: Callable[..., bool], seed: int
) -> None:
    rng = np.random.default_rng(40_000 + seed)
    case = lab.draw(rng) if seed % 2 else draw_decimal(lab, rng)
    program = compiled(case)
    cost = program.cost[program.rows]
    fits = np.isfinite(cost) & (program.gang[program.rows, None] <= program.held.free)
    takes = all(is_decimal(value) for value in cost[fits].tolist())
    assert takes or seed % 2, "these are decimals by construction"
    solver = Solver(gap=0.0, backend="cpsat")
    if not program.model.column_count:
        return
    if not takes:
        with pytest.raises(UnsupportedModelError, match="is not a decimal of at most 9 places"):
            solver.solve(program.model, budget=Budget.of(None))
        return
    decision = program.decode(solver.solve(program.model, budget=Budget.of(None)))
    gpus, least = lab.plans(case).best("lexicographic")
    assert decision.status == "OPTIMAL"
    assert int(decision.allocation.gpus.sum()) == gpus
    assert same(decision.objective, least)
    # the driver asks no LP of a code that has none
    driven = compiled(case).solve(solver, Budget.of(None))
    assert driven.status == "OPTIMAL"
    assert same(driven.objective, least)


@pytest.mark.quick
def test_both_sides_of_the_decimal_test_are_met(lab: Any) -> None:
    """The test above is empty unless its random rounds fall on both sides."""
    found = set()
    for seed in range(SOME):
        rng = np.random.default_rng(40_000 + seed)
        program = compiled(lab.draw(rng) if seed % 2 else draw_decimal(lab, rng))
        cost = program.cost[program.rows]
        fits = np.isfinite(cost) & (program.gang[program.rows, None] <= program.held.free)
        found.add(all(is_decimal(value) for value in cost[fits].tolist()))
    assert found == {True, False}
