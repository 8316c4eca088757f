"""Round after round from the last basis: the same optimum as afresh, sooner."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from apportion.solver import Budget, Model, ModelBuilder, ModelError, Solver, Status, check_point
from apportion.solver.backends.warm_highs import WarmHighs
from apportion.solver.drivers import session as module
from apportion.solver.drivers.session import RebuildReason, Session

pytestmark = pytest.mark.quick

NO_LIMIT = Budget.of(None)


def fairness(speed: np.ndarray, capacity: float) -> Model:
    """Raise the least speed among jobs that share types: every job is tied to the level."""
    jobs, kinds = speed.shape
    b = ModelBuilder("fairness")
    x, level = b.columns("x", (jobs, kinds)), b.columns("level", 1, upper=100.0)
    job, kind = np.arange(jobs)[:, None], np.arange(kinds)[None, :]
    b.rows("one", jobs, row=job, column=x, value=1.0, upper=1.0)
    b.rows(
        "level",
        jobs,
        row=np.broadcast_to(job, (jobs, kinds + 1)),
        column=np.c_[x, np.broadcast_to(level, (jobs, 1))],
        value=np.c_[speed, -np.ones(jobs)],
        lower=0.0,
    )
    b.rows("capacity", kinds, row=kind, column=x, value=1.0, upper=capacity)
    b.objective("level", column=level, value=1.0, maximise=True)
    return b.build()


def placement(cost: np.ndarray, gang: np.ndarray, capacity: float) -> Model:
    """Give each job at most one type."""
    jobs, kinds = cost.shape
    b = ModelBuilder("placement")
    x = b.columns("x", (jobs, kinds))
    b.rows("one", jobs, row=np.arange(jobs)[:, None], column=x, value=1.0, upper=1.0)
    kind = np.arange(kinds)[None, :]
    b.rows("capacity", kinds, row=kind, column=x, value=gang[:, None], upper=capacity)
    b.objective("cost", column=x, value=cost)
    return b.build()


def rounds(kind: str, jobs: int, count: int, seed: int = 0):
    """Models of successive rounds, 5 % of the jobs replaced in each."""
    rng = np.random.default_rng(seed)
    speed = rng.uniform(0.2, 5.0, (jobs, 6))
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], jobs)
    for _ in range(count):
        if kind == "fairness":
            yield fairness(speed, 0.2 * jobs / 6)
        else:
            yield placement(-speed * gang[:, None], gang, 0.4 * gang.sum() / 6)
        new = rng.permutation(jobs)[: max(1, jobs // 20)]
        speed[new] = rng.uniform(0.2, 5.0, (new.size, 6))
        gang[new] = rng.choice([1.0, 2.0, 4.0, 8.0], new.size)


@pytest.mark.parametrize("kind", ["fairness", "placement"])
@pytest.mark.parametrize("jobs", [40, 300])
def test_twenty_rounds_reach_the_same_optimum_as_afresh(kind, jobs):
    session = Session(Solver(gap=0.0))
    for position, model in enumerate(rounds(kind, jobs, 21)):
        warm = session.solve(model, budget=NO_LIMIT)
        cold = Solver(gap=0.0, backend="highs-ipm").solve(model, budget=NO_LIMIT)
        assert warm.status is cold.status is Status.OPTIMAL
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9, abs=1e-9)
        assert warm.bound == pytest.approx(cold.objective, rel=1e-9, abs=1e-9)
        assert check_point(model, warm.x)[0] is not None
        assert session.last.rebuild is (RebuildReason.FIRST if position == 0 else None)
        if position:
            assert 0.0 < session.last.changed < 0.2
            assert warm.backend == "highs-warm"


@pytest.mark.parametrize("kind", ["fairness", "placement"])
def test_from_the_basis_is_faster(kind, record_property):
    session, warm_s, cold_s = Session(), 0.0, 0.0
    for position, model in enumerate(rounds(kind, 1000, 9)):
        start = time.thread_time()
        session.solve(model, budget=NO_LIMIT)
        middle = time.thread_time()
        Solver().solve(model, budget=NO_LIMIT)
        if position:
            warm_s += middle - start
            cold_s += time.thread_time() - middle
    record_property("cold / warm", round(cold_s / warm_s, 2))
    assert cold_s > 1.2 * warm_s


def test_prices_are_those_of_a_cold_solve():
    session = Session()
    for model in rounds("placement", 60, 4):
        warm = session.solve(model, budget=NO_LIMIT)
        value = warm.duals @ np.where(warm.duals < 0, model.row_upper, 0.0)
        value += np.minimum(warm.reduced_costs, 0.0).sum()
        assert value == pytest.approx(warm.objective, rel=1e-9)


def test_every_part_of_a_model_may_change():
    rng = np.random.default_rng(3)
    model = next(rounds("fairness", 30, 1))
    session = Session()
    session.solve(model, budget=NO_LIMIT)
    objective = model.objectives[0]
    for changed in (
        replace(model, upper=model.upper * 0.9),
        replace(model, lower=np.where(rng.random(model.column_count) < 0.1, 0.01, model.lower)),
        model.with_row_sides(model.row_lower, model.row_upper * 0.8),
        replace(model, values=model.values * np.where(rng.random(model.values.size) < 0.1, 0.9, 1)),
        replace(model, objectives=(replace(objective, offset=5.0),)),
        replace(model, objectives=(replace(objective, cost=-objective.cost, maximise=False),)),
    ):
        warm = session.solve(changed, budget=NO_LIMIT)
        cold = Solver().solve(changed, budget=NO_LIMIT)
        assert session.last.rebuild in (None, RebuildReason.MANY_CHANGES)
        assert warm.status is cold.status is Status.OPTIMAL
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9)


def test_jobs_that_come_go_and_change_places_are_matched_by_keys():
    rng = np.random.default_rng(5)
    session, kinds = Session(), 6
    names = [f"job{i}" for i in range(80)]
    speed = {name: rng.uniform(0.2, 5.0, kinds) for name in names}
    for position in range(12):
        model = fairness(np.array([speed[name] for name in names]), 3.0)
        columns = [(name, kind) for name in names for kind in range(kinds)] + ["level"]
        rows = [("one", n) for n in names] + [("level", n) for n in names] + list(range(kinds))
        warm = session.solve(model, budget=NO_LIMIT, column_keys=columns, row_keys=rows)
        cold = Solver().solve(model, budget=NO_LIMIT)
        assert warm.status is Status.OPTIMAL
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
        assert session.last.rebuild is (RebuildReason.FIRST if position == 0 else None)
        names = [name for name in names if rng.random() > 0.05]
        for i in range(rng.integers(0, 6)):
            new = f"new{position}-{i}"
            speed[new] = rng.uniform(0.2, 5.0, kinds)
            names.append(new)
        rng.shuffle(names)


def test_the_reason_for_a_rebuild_is_told():
    first, second = rounds("fairness", 30, 2)
    session = Session()
    session.solve(first, budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.FIRST
    session.solve(next(rounds("fairness", 31, 1)), budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.OTHER_ENTRIES
    session.solve(next(rounds("fairness", 31, 1, seed=9)), budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.MANY_CHANGES
    whole = replace(first, integer=np.ones(first.column_count, dtype=bool))
    assert session.solve(whole, budget=Budget.of(20.0)).status is Status.OPTIMAL
    assert session.last.rebuild is RebuildReason.NOT_AN_LP
    session.solve(second, budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.FIRST
    session.close()
    session.solve(second, budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.FIRST
    other = Session(Solver(backend="glop"))
    assert other.solve(first, budget=NO_LIMIT).backend == "glop"
    assert other.last.rebuild is RebuildReason.BACKEND


def test_an_infeasible_round_is_said_so_and_the_next_one_starts_afresh():
    model = next(rounds("fairness", 30, 1))
    impossible = model.with_row_sides(
        np.where(np.arange(model.row_count) < 30, 1.0, model.row_lower), model.row_upper
    )
    session = Session()
    session.solve(model, budget=NO_LIMIT)
    assert session.solve(impossible, budget=NO_LIMIT).status is Status.INFEASIBLE
    assert session.solve(model, budget=NO_LIMIT).status is Status.OPTIMAL
    assert session.last.rebuild is RebuildReason.NO_BASIS


def test_a_round_without_time_has_no_false_answer():
    first, second = rounds("fairness", 300, 2)
    session = Session()
    session.solve(first, budget=NO_LIMIT)
    late = session.solve(second, budget=Budget.of(1e-6))
    assert late.status is Status.NO_SOLUTION
    assert late.time_limited
    again = session.solve(second, budget=NO_LIMIT)
    assert again.objective == pytest.approx(Solver().solve(second, budget=NO_LIMIT).objective)


def test_where_highs_refuses_to_go_on_the_model_is_solved_afresh(monkeypatch):
    first, second = rounds("fairness", 30, 2)
    session = Session()
    session.solve(first, budget=NO_LIMIT)
    monkeypatch.setattr(WarmHighs, "alter", lambda *_: False)
    found = session.solve(second, budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.FAILED
    assert found.objective == pytest.approx(Solver().solve(second, budget=NO_LIMIT).objective)


def test_an_interrupt_leaves_nothing_to_start_from(monkeypatch):
    first, second = rounds("fairness", 30, 2)
    session = Session()
    session.solve(first, budget=NO_LIMIT)
    with monkeypatch.context() as patched:
        patched.setattr(module, "run_stage", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.solve(second, budget=NO_LIMIT)
    session.solve(second, budget=NO_LIMIT)
    assert session.last.rebuild is RebuildReason.FIRST


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (["a", "b"], None, "0 row keys for 1 rows"),
        (None, ["r"], "0 column keys for 2 columns"),
        (["a"], ["r"], "1 column keys for 2 columns"),
        (["a", "a"], ["r"], "twice"),
    ],
)
def test_keys_that_do_not_fit_are_refused(columns, rows, message, dense_model):
    model = dense_model(rows=[[1, 1]], row_upper=3, cost=[1, 1])
    with pytest.raises(ModelError, match=message):
        Session().solve(model, budget=NO_LIMIT, column_keys=columns, row_keys=rows)
