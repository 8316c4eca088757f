"""Conflicts are minimal, by brute force that knows nothing of solvers; repairs are cheapest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from apportion.solver import (
    Axis,
    Budget,
    Model,
    ModelBuilder,
    ModelError,
    Solver,
    Status,
    cheapest_repair,
    check_point,
    find_conflict,
)
from apportion.solver.models.rules import Rule, only
from apportion.solver.proof.conflict import Conflict, _Found, _Search

INF = np.inf
SOLVER = Solver(gap=0.0)


def random_rules(seed: int) -> Model:
    """Yes/no columns, some of them fixed, under rows of small numbers."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(1, 8))
    builder = ModelBuilder("random")
    fixed = rng.random(n) < 0.3
    value = rng.integers(0, 2, n).astype(float)
    x = builder.columns(
        "x", n, lower=np.where(fixed, value, 0), upper=np.where(fixed, value, 1), integer=True
    )
    matrix = rng.integers(-3, 6, (m, n)).astype(float)
    side = rng.integers(-2, 9, m).astype(float)
    kind = rng.integers(0, 3, m)
    cut = m // 2
    for name, rows in (("first", slice(0, cut)), ("second", slice(cut, m))):
        builder.rows(
            name,
            matrix[rows].shape[0],
            row=np.arange(matrix[rows].shape[0])[:, None],
            column=x[None, :],
            value=matrix[rows],
            lower=np.where(kind[rows] == 1, -INF, side[rows]),
            upper=np.where(kind[rows] == 0, INF, side[rows]),
        )
    builder.objective("any", column=x, value=0.0)
    return builder.build()


def holds_somewhere(model: Model, rules: Any) -> bool:
    """Whether some 0/1 point satisfies these rules, by trying all of them."""
    points = np.array(list(itertools.product((0.0, 1.0), repeat=model.column_count)))
    activity = points @ model.matrix.toarray().T
    good = np.ones(len(points), dtype=bool)
    for rule in rules:
        i = rule.index
        if rule.kind == "row":
            good &= (activity[:, i] >= model.row_lower[i]) & (activity[:, i] <= model.row_upper[i])
        elif rule.kind == "lower":
            good &= points[:, i] >= model.lower[i]
        else:
            good &= points[:, i] <= model.upper[i]
    return bool(good.any())


def holds_in_fractions(model: Model, rules: Any) -> bool:
    """Whether some point satisfies these rules, by a solver that is none of ours."""
    part = only(model, rules, domains=True)
    a, low, high = part.matrix.toarray(), part.row_lower, part.row_upper
    upper, lower = np.isfinite(high), np.isfinite(low)
    found = linprog(
        np.zeros(part.column_count),
        A_ub=np.concatenate((a[upper], -a[lower])),
        b_ub=np.concatenate((high[upper], -low[lower])),
        bounds=np.c_[part.lower, part.upper],
    )
    return found.status == 0


def assert_minimal(model: Model, conflict: Conflict, holds: Any) -> None:
    assert conflict.status is Status.INFEASIBLE
    assert conflict.minimal
    rules = conflict.rules
    assert not holds(model, rules)
    for size in range(len(rules)):
        for subset in itertools.combinations(rules, size):
            assert holds(model, subset), [rule.text for rule in subset]
    for rule, witness in zip(rules, conflict.witnesses, strict=True):
        others = only(model, [one for one in rules if one is not rule], domains=True)
        assert check_point(others, witness)[0] is not None


def run_random(seeds: range, backend: str = "auto") -> int:
    found = 0
    for seed in seeds:
        for model, holds in (
            (random_rules(seed), holds_somewhere),
            (random_rules(seed).relaxed(), holds_in_fractions),
        ):
            solver = Solver(gap=0.0, backend=backend)
            conflict = find_conflict(model, solver, budget=Budget.of(60.0))
            every = [Rule("row", i, "", "", "") for i in range(model.row_count)]
            every += [Rule("lower", j, "", "", "") for j in range(model.column_count)]
            every += [Rule("upper", j, "", "", "") for j in range(model.column_count)]
            if holds(model, every):
                assert conflict.status is Status.FEASIBLE
                assert conflict.rules == ()
                continue
            found += 1
            assert_minimal(model, conflict, holds)
    return found


@pytest.mark.quick
def test_random_conflicts_are_minimal():
    assert run_random(range(20)) >= 20


@pytest.mark.quick
@pytest.mark.parametrize("backend", ["scip", "cbc", "cpsat", "highs"])
def test_every_back_end_finds_minimal_conflicts(backend):
    assert run_random(range(40, 43), backend) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_hundreds_of_random_conflicts_are_minimal(block):
    assert run_random(range(100 + 40 * block, 140 + 40 * block)) >= 25


@pytest.fixture
def cluster() -> Any:
    """Place jobs on types: one type per job, capacity per type, and rules that may be impossible."""

    def build(**options: Any) -> Model:
        jobs, kinds = [f"job{j}" for j in range(6)], ["A100", "V100"]
        gang = np.array([4.0, 4, 2, 2, 1, 1])
        by_job, by_kind = Axis("job", jobs), Axis("type", kinds)
        builder = ModelBuilder("cluster")
        lower = np.zeros((6, 2))
        lower[options.get("forced", []), 0] = 1.0
        x = builder.columns("x", (6, 2), lower=lower, integer=True, axes=(by_job, by_kind))
        one = np.arange(6)[:, None]
        builder.rows("one_type", 6, row=one, column=x, value=1.0, upper=1.0, axes=(by_job,))
        builder.rows(
            "capacity",
            2,
            row=[[0, 1]],
            column=x,
            value=gang[:, None],
            upper=[8, 4],
            axes=(by_kind,),
        )
        builder.rows(
            "least", 1, row=0, column=x, value=gang[:, None], lower=options.get("least", 0)
        )
        if "must" in options:
            builder.rows(
                "must", 6, row=one, column=x, value=1.0, lower=options["must"], axes=(by_job,)
            )
        builder.objective("cost", column=x, value=np.arange(12.0).reshape(6, 2))
        return builder.build()

    return build


@pytest.mark.quick
class TestPlanted:
    def test_capacity_against_demand(self, cluster, minute):
        conflict = find_conflict(cluster(least=13), SOLVER, budget=minute)
        assert set(conflict.texts) == {"capacity[A100] <= 8", "capacity[V100] <= 4", "least >= 13"}
        assert conflict.minimal
        assert str(conflict).startswith("impossible together: ")

    def test_jobs_that_are_forced_in(self, cluster, minute):
        conflict = find_conflict(cluster(forced=[0, 1, 4]), SOLVER, budget=minute)
        assert conflict.texts[0] == "capacity[A100] <= 8"
        assert sorted(conflict.texts[1:]) == [f"x[job{j},A100] >= 1" for j in (0, 1, 4)]

    def test_one_rule_alone_can_be_the_cause(self, cluster, minute):
        must = np.array([0, 0, 0, 3.0, 0, 0])
        conflict = find_conflict(cluster(must=must), SOLVER, budget=minute)
        assert conflict.texts == ["must[job3] >= 3"]
        assert conflict.rules[0].block == "must"

    def test_two_rules_on_one_job(self, cluster, minute):
        must = np.array([0, 0, 2.0, 0, 0, 0])
        conflict = find_conflict(cluster(must=must), SOLVER, budget=minute)
        assert sorted(conflict.texts) == ["must[job2] >= 2", "one_type[job2] <= 1"]

    def test_whole_numbers_alone_can_be_the_cause(self, dense_model, minute):
        model = dense_model(
            rows=[[2, 2], [1, 0]], row_lower=[3, -INF], row_upper=[3, 1], integer=True, cost=[0, 0]
        )
        conflict = find_conflict(model, SOLVER, budget=minute)
        assert conflict.texts == ["r[0] = 3"]
        assert conflict.minimal

    def test_bounds_count_where_domains_are_not_taken_for_granted(self, dense_model, minute):
        model = dense_model(rows=[[1, 1]], row_upper=-1, cost=[1, 1])
        assert find_conflict(model, SOLVER, budget=minute).texts == ["r <= -1"]
        conflict = find_conflict(model, SOLVER, budget=minute, domains=False)
        assert sorted(conflict.texts) == ["r <= -1", "x[0] >= 0", "x[1] >= 0"]


@pytest.mark.quick
class TestHonesty:
    def test_a_possible_model_has_no_conflict(self, cluster, minute):
        conflict = find_conflict(cluster(least=12), SOLVER, budget=minute)
        assert conflict.status is Status.FEASIBLE
        assert conflict.rules == ()
        assert str(conflict) == "no conflict: a point exists"

    def test_without_time_nothing_is_said(self, cluster):
        conflict = find_conflict(cluster(least=13), SOLVER, budget=Budget(0.0))
        assert conflict.status is Status.NO_SOLUTION
        assert conflict.rules == ()

    def test_what_the_time_cap_cut_off_is_not_called_minimal(self, cluster, monkeypatch):
        ask, left = _Search.point, iter(range(2))

        def in_time(search: Any, rules: Any) -> Any:
            return _Found(Status.NO_SOLUTION) if next(left, None) is None else ask(search, rules)

        monkeypatch.setattr(_Search, "point", in_time)
        model = cluster(least=13)
        conflict = find_conflict(model, SOLVER, budget=Budget.of(60.0))
        assert conflict.status is Status.INFEASIBLE
        assert not conflict.minimal
        assert "(not minimal)" in str(conflict)
        assert not holds_in_fractions(model, conflict.rules)


@pytest.mark.quick
class TestRepair:
    def test_the_cheapest_side_moves(self, cluster, minute):
        model = cluster(least=13)
        repair = cheapest_repair(
            model, SOLVER, budget=minute, weights={"least": 10, "capacity": 5, "capacity[V100]": 2}
        )
        assert repair.status is Status.OPTIMAL
        assert [change.row for change in repair.changes] == ["capacity[V100]"]
        assert repair.changes[0].after == pytest.approx(5.0)
        assert repair.cost == pytest.approx(2.0)
        assert repair.bound == pytest.approx(2.0)
        assert check_point(repair.applied(model), repair.point)[0] is not None

    def test_rows_that_may_not_be_broken_are_not(self, cluster, minute):
        weights = {"capacity": INF, "one_type": INF}
        repair = cheapest_repair(cluster(least=13), SOLVER, budget=minute, weights=weights)
        assert [(change.row, change.after) for change in repair.changes] == [("least", 12.0)]
        weights["least"] = INF
        repair = cheapest_repair(cluster(least=13), SOLVER, budget=minute, weights=weights)
        assert repair.status is Status.INFEASIBLE
        assert repair.changes == ()

    def test_whole_numbers_are_kept(self, dense_model, minute):
        model = dense_model(rows=[[2, 2]], row_lower=3, row_upper=3, integer=True, cost=[0, 0])
        repair = cheapest_repair(model, SOLVER, budget=minute)
        assert repair.cost == pytest.approx(1.0)
        assert abs(repair.changes[0].after - 3.0) == pytest.approx(1.0)

    def test_a_possible_model_costs_nothing(self, cluster, minute):
        repair = cheapest_repair(cluster(least=12), SOLVER, budget=minute)
        assert (repair.changes, repair.cost) == ((), 0.0)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [({"capacty": 1.0}, "capacty"), ({"least": 0.0}, "least = 0.0"), ([1.0], "shape")],
    )
    def test_bad_weights_are_refused(self, cluster, minute, weights, message):
        with pytest.raises(ModelError, match=message):
            cheapest_repair(cluster(), SOLVER, budget=minute, weights=weights)

    def test_it_is_never_dearer_than_any_other_way(self, minute):
        for seed in range(10):
            model = random_rules(seed)
            repair = cheapest_repair(model, SOLVER, budget=minute)
            points = np.array(list(itertools.product((0.0, 1.0), repeat=model.column_count)))
            inside = ((points >= model.lower) & (points <= model.upper)).all(axis=1)
            activity = points[inside] @ model.matrix.toarray().T
            broken = np.maximum(model.row_lower - activity, activity - model.row_upper)
            best = np.maximum(broken, 0.0).sum(axis=1).min()
            assert repair.cost == pytest.approx(best)
