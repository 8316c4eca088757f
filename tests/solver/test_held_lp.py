"""LPs held in HiGHS: limits count from now, and another back end stands in where it is missing."""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from apportion.solver import (
    Budget,
    Model,
    ModelBuilder,
    NoSolutionError,
    Rows,
    Session,
    Sharing,
    Solution,
    UncertifiedError,
    best_level,
    generate_rows,
    noting_skipped,
    water_filling,
    with_violation,
)
from apportion.solver.backends import held_lp as module
from apportion.solver.backends.held_lp import HeldLP
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.highs_calls import new_highs, time_limit

pytestmark = pytest.mark.quick

NO_LIMIT = Budget.of(None)


def fairness(jobs: int, seed: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    speed = rng.uniform(0.2, 5.0, (jobs, 6))
    return Sharing(speed, np.ones(jobs), np.full(6, jobs / 30), np.ones(jobs)).max_min_model()


@pytest.fixture(params=["not there", "cannot be loaded", "not found"])
def no_highs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """HiGHS is missing, in three ways."""
    if request.param == "not there":
        monkeypatch.setitem(sys.modules, "highspy", None)
    elif request.param == "not found":
        monkeypatch.setattr(Highs, "available", lambda _: False)
    else:
        real = importlib.import_module

        def refuse(name: str, *more: str) -> object:
            if name == "highspy":
                raise ImportError("a library is missing")
            return real(name, *more)

        monkeypatch.setattr(importlib, "import_module", refuse)
    return str(request.param)


def test_a_limit_is_added_to_the_time_that_the_object_ran() -> None:
    class Ran:
        def getRunTime(self) -> float:  # noqa: N802
            return 90.0

    assert time_limit(Ran(), 5.0) == {"time_limit": 95.0}
    assert time_limit(Ran(), np.inf)["time_limit"] >= 1e20


def longest(solve: Callable[[Model, Budget], object], models: list[Model]) -> float:
    """Solve models in turn; the longest time that one of them took, the first one aside."""
    solve(models[0], NO_LIMIT)
    took_s = []
    for position in range(1, 20):
        start = time.monotonic()
        solve(models[position % len(models)], NO_LIMIT)
        took_s.append(time.monotonic() - start)
    return max(took_s)


def of_two_sizes() -> list[Model]:
    model = fairness(300)
    row = np.arange(model.row_count)
    capacity = (row // 6 == 50) & (row % 2 == 0)
    return [
        model.with_row_sides(model.row_lower, np.where(capacity, part, 1.0) * model.row_upper)
        for part in (1.0, 0.3)
    ]


def test_a_late_run_has_the_whole_of_its_budget() -> None:
    models = of_two_sizes()
    lp = HeldLP(models[0])
    capacity = np.arange(300, 306)

    def solve(model: Model, budget: Budget) -> object:
        lp.set_sides(capacity, model.row_lower[capacity], model.row_upper[capacity])
        return lp.solve(budget)

    budget_s = 3.0 * longest(solve, models)
    # less than all runs took: held against them it would be over at once
    assert lp._held._solver.getRunTime() > budget_s  # pyright: ignore
    for model in models:
        assert solve(model, Budget.of(budget_s)) is not None


def test_a_late_model_of_a_session_has_the_whole_of_its_budget() -> None:
    models, session = of_two_sizes(), Session()

    def solve(model: Model, budget: Budget) -> Solution:
        return session.solve(model, budget=budget)

    budget_s = 3.0 * longest(solve, models)
    assert session._highs._solver.getRunTime() > budget_s  # pyright: ignore
    for model in models:
        found = solve(model, Budget.of(budget_s))
        assert session.last is not None
        assert session.last.rebuild is None
        assert found.status.name == "OPTIMAL"


def test_highs_does_count_the_seconds_of_all_runs() -> None:
    """What all this is for; where it no longer holds, ``time_limit`` has to go."""
    _, solver = new_highs()
    lp = HeldLP(fairness(200))
    lp.solve(NO_LIMIT)
    held = lp._held._solver  # pyright: ignore
    once = held.getRunTime()
    lp.set_sides(np.array([200]), np.array([-np.inf]), np.array([3.0]))
    lp.solve(NO_LIMIT)
    assert held.getRunTime() > once > solver.getRunTime() == 0.0


def test_a_budget_that_ends_in_the_run_is_told_as_such() -> None:
    with pytest.raises(NoSolutionError, match="budget"):
        HeldLP(fairness(3000)).solve(Budget.of(0.05))


def sharing() -> Sharing:
    speed = np.array([[1.0, 4.0, 1.0], [1.0, 4.0, 1.0], [0.0, 0.0, 4.0]])
    scale = np.array([1.0, 2.0, 1.0])
    return Sharing(speed / scale[:, None], np.ones(3), np.ones(3), scale)


def by_level() -> float:
    b = ModelBuilder("cover")
    x = b.columns("x", 2, upper=10.0)
    b.rows("need", 2, row=np.arange(2), column=x, value=[1.0, 2.0], lower=1.0)
    b.rows("room", 1, row=0, column=x, value=1.0, upper=0.0)
    b.objective("none", column=x, value=0.0)
    model = with_violation(b.build(), np.array([0.0, 0.0, 1.0]))

    def sides(level: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([1.0, 1.0, -np.inf]), np.array([np.inf, np.inf, level])

    return best_level(model, sides, (0.0, 8.0), budget=NO_LIMIT).level


def by_rows() -> float:
    b = ModelBuilder("split")
    x = b.columns("x", 2, upper=1.0)
    b.rows("room", 1, row=0, column=x, value=1.0, upper=2.0)
    b.objective("worth", column=x, value=[2.0, 1.0], maximise=True)

    def equal(point: np.ndarray) -> Rows | None:
        if abs(point[0] - 0.5 * point[1]) < 1e-9:
            return None
        return Rows(csr_matrix([[1.0, -0.5]]), np.zeros(1), np.zeros(1))

    return generate_rows(b.build(), equal, budget=NO_LIMIT).value


DRIVERS: dict[str, tuple[Callable[[], object], object]] = {
    "levels": (lambda: water_filling(sharing(), budget=NO_LIMIT).levels, [2.5, 2.5, 4.0]),
    "least level": (by_level, 1.5),
    "rows on demand": (by_rows, 2.0),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_drivers_go_on_without_highs(
    name: str, no_highs: str, caplog: pytest.LogCaptureFixture
) -> None:
    solve, expected = DRIVERS[name]
    with caplog.at_level(logging.WARNING, "apportion.solver"), noting_skipped() as missing:
        assert solve() == pytest.approx(expected, rel=1e-9)
    assert len(missing) == 1
    assert missing[0].startswith("highs"), no_highs
    assert "highs-simplex is skipped" in caplog.text


def test_nobody_is_noted_where_highs_is_there() -> None:
    with noting_skipped() as missing:
        water_filling(sharing(), budget=NO_LIMIT)
    assert missing == []


def test_without_highs_infeasible_is_said_when_two_algorithms_agree(no_highs: str) -> None:
    b = ModelBuilder("full")
    x = b.columns("x", 1, upper=1.0)
    b.rows("most", 1, row=0, column=x, value=1.0, upper=1.0)
    b.objective("worth", column=x, value=1.0)
    lp = HeldLP(b.build())
    lp.add_rows(csr_matrix([[1.0]]), np.array([2.0]), np.array([np.inf]))
    assert lp.solve(NO_LIMIT) is None
    lp.set_sides(np.array([1]), np.array([0.5]), np.array([np.inf]))
    point = lp.solve(NO_LIMIT)
    assert point is not None
    assert point.value == pytest.approx(0.5)
    assert point.duals == pytest.approx([0.0, 1.0])


def test_without_highs_an_lp_without_end_is_no_optimum(no_highs: str) -> None:
    b = ModelBuilder("endless")
    x = b.columns("x", 2, upper=np.inf)
    b.rows("least", 1, row=0, column=x, value=1.0, lower=1.0)
    b.objective("worth", column=x, value=1.0, maximise=True)
    with pytest.raises(UncertifiedError):
        HeldLP(b.build(allow_unbounded=True)).solve(NO_LIMIT)


def test_without_highs_a_budget_is_kept(no_highs: str) -> None:
    with pytest.raises(NoSolutionError, match="budget"):
        HeldLP(fairness(3000)).solve(Budget.of(0.02))


def test_without_any_back_end_nothing_is_made_up(
    no_highs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apportion.solver.backends.glop.Glop.available", lambda _: False)
    with pytest.raises(UncertifiedError, match="no back end runs"):
        water_filling(sharing(), budget=NO_LIMIT)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_levels_with_and_without_highs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(2, 9)), int(rng.integers(2, 5))
    drawn = Sharing(
        rng.choice([0.0, 1.0, 2.0, 3.5], (jobs, kinds)), rng.choice([1.0, 2.0, 40.0], jobs),
        rng.choice([1.0, 2.0, 5.0], kinds), rng.choice([1.0, 0.5], jobs),
    )  # fmt: skip
    held = water_filling(drawn, budget=NO_LIMIT)
    monkeypatch.setattr(module, "_highs_runs", lambda: False)
    monkeypatch.setattr(Highs, "available", lambda _: False)
    cold = water_filling(drawn, budget=NO_LIMIT)
    np.testing.assert_allclose(cold.levels, held.levels, rtol=1e-8, atol=1e-12)
