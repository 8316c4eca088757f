from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import apportion.solver.drivers.neighbourhood_search as search_module
from apportion.solver import (
    Axis,
    Budget,
    Groups,
    InTurn,
    ModelBuilder,
    ModelError,
    Neighbourhood,
    NoSolutionError,
    Rins,
    Solution,
    Solver,
    Status,
    check_point,
    fix_and_optimise,
)
from apportion.solver.drivers.restriction import Restriction

pytestmark = pytest.mark.quick

EXACT = Solver(gap=0.0)
SEEDS = [pytest.param(seed, marks=[] if seed < 20 else pytest.mark.slow) for seed in range(200)]


def minute() -> Budget:
    return Budget.of(60.0)


def random_milp(rng):
    """Two blocks of integer columns on one axis and a continuous one; 0 is always feasible."""
    jobs, kinds = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    builder = ModelBuilder("random")
    ids = [f"j{job}" for job in range(jobs)]
    x = builder.columns(
        "x",
        (jobs, kinds),
        upper=2.0,
        integer=True,
        axes=(Axis("job", ids), Axis("kind", [f"k{kind}" for kind in range(kinds)])),
    )
    y = builder.columns("y", jobs, integer=True, axes=(Axis("job", ids),))
    z = builder.columns("z", 1, upper=3.5)
    columns = np.concatenate((x.ravel(), y, z))
    rows = int(rng.integers(1, 4))
    values = rng.integers(0, 6, (rows, columns.size)).astype(float)
    builder.rows("limit", rows, row=np.arange(rows)[:, None], column=columns, value=values,
                 lower=-1.0, upper=np.floor(0.5 * values.sum(axis=1)) + 0.5)  # fmt: skip
    maximise = bool(rng.integers(2))
    cost = rng.normal(size=columns.size) + (1.0 if maximise else -1.0)
    builder.objective("cost", column=columns, value=cost, maximise=maximise, offset=2.5)
    return builder.build()


def brute_force(model) -> float:
    """Best value: all whole numbers, and for each the best of the only continuous column, z."""
    sign, matrix, z = model.objectives[0].sign, model.matrix.toarray(), model.column_count - 1
    ranges = [range(int(top) + 1) for top in model.upper[:z]]
    whole = np.array(list(itertools.product(*ranges)), dtype=float)
    activity = whole @ matrix[:, :z].T
    room = model.row_upper - activity
    fits = (room >= 0.0).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(matrix[:, z] > 0, room / matrix[:, z], np.inf).min(axis=1)
    cost = sign * model.objectives[0].cost
    last = np.where(cost[z] < 0.0, np.minimum(most, model.upper[z]), 0.0)
    value = whole @ cost[:z] + cost[z] * last
    return sign * float(value[fits].min()) + model.objectives[0].offset


def knapsack(size=30, rows=5, seed=0):
    """0/1 problem whose relaxation is well away from its optimum."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(10, 100, (rows, size)).astype(float)
    builder = ModelBuilder("knapsack")
    ids = [f"i{item}" for item in range(size)]
    x = builder.columns("x", size, integer=True, axes=(Axis("item", ids),))
    builder.rows("weight", rows, row=np.arange(rows)[:, None], column=x, value=weight,
                 upper=np.floor(weight.sum(axis=1) / 3))  # fmt: skip
    builder.objective("worth", column=x, value=rng.integers(10, 100, size), maximise=True)
    return builder.build()


def leases(jobs, count, seed):
    """Admit jobs y and run their leases x, all that a job needs or none; jobs by release."""
    rng = np.random.default_rng(seed)
    gang, needs = rng.choice([1, 2, 4, 8], jobs), rng.integers(1, count // 4 + 1, jobs)
    first = np.sort(rng.integers(0, count - needs + 1))
    last = np.minimum(count, first + np.ceil(needs * rng.uniform(1.0, 2.0, jobs)).astype(int))
    needs = np.minimum(needs, last - first)
    job = np.repeat(np.arange(jobs), last - first)
    lease = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    ids, times = [f"j{row}" for row in range(jobs)], [f"l{at}" for at in range(count)]
    builder = ModelBuilder("leases")
    y = builder.columns("y", jobs, integer=True, axes=(Axis("job", ids),))
    x = builder.columns(
        "x",
        job.size,
        integer=True,
        axes=(Axis("job", ids, codes=job), Axis("lease", times, codes=lease)),
    )
    builder.rows(
        "needs",
        jobs,
        row=np.append(job, np.arange(jobs)),
        column=np.append(x, y),
        value=np.append(np.ones(job.size), -needs),
        lower=0.0,
        upper=0.0,
    )
    builder.rows("capacity", count, row=lease, column=x, value=gang[job],
                 upper=np.ceil((gang * needs).sum() / count / 1.4))  # fmt: skip
    early = -1e-3 * gang[job] * lease / count
    work = rng.uniform(1.0, 3.0, jobs) * gang * needs
    builder.objective("work", column=np.append(y, x), value=np.append(work, early), maximise=True)
    return builder.build()


def story(found):
    """All of an answer but the clock."""
    point = None if found.point is None else found.point.tolist()
    stages = [replace(stage, elapsed_s=0.0) for stage in found.stages]
    return (found.status, point, found.objective, found.bound, found.message,
            [tuple(getattr(stage, name) for name in stage.__slots__) for stage in stages])  # fmt: skip


def choices(model, seed):
    jobs = Groups.of_axis(model, "job")
    return [jobs, Rins(), InTurn((Rins(), jobs)), Groups.of_blocks(model)][seed % 4]


@pytest.mark.parametrize("seed", SEEDS)
def test_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    model = random_milp(rng)
    best, objective = brute_force(model), model.objectives[0]
    start = np.zeros(model.column_count) if seed % 3 else None
    found = fix_and_optimise(model, choices(model, seed), EXACT, budget=minute(), start=start)
    slack = 1e-6 * max(1.0, abs(best))
    assert check_point(model, found.x)[0] is not None
    assert found.objective == pytest.approx(objective.value(found.x), rel=1e-12)
    # never better than the optimum, the bound never on the wrong side of it
    assert objective.sign * (found.objective - best) >= -slack
    assert objective.sign * (best - found.bound) >= -slack
    if start is not None:
        assert objective.sign * (objective.value(start) - found.objective) >= 0.0
    # every cycle without gain grows the size up to the whole model, unless it has no member
    if found.status is Status.OPTIMAL:
        assert found.objective == pytest.approx(best, abs=slack)
        assert found.gap <= 1e-6
    else:
        assert seed % 4 == 1
        assert found.status is Status.FEASIBLE
    assert EXACT.solve(model, budget=minute()).objective == pytest.approx(best, abs=slack)


def test_values_and_bounds_only_get_better():
    model = knapsack()
    found = fix_and_optimise(
        model, Groups.of_axis(model, "item"), EXACT, budget=minute(), start=np.zeros(30)
    )
    assert found.status is Status.OPTIMAL
    assert found.objective == found.bound == EXACT.solve(model, budget=minute()).objective
    assert [found.stages[0].name, found.stages[-1].name] == ["relaxation", "everything"]
    values = [stage.objective for stage in found.stages]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-1] == found.objective
    assert sum(stage.gain for stage in found.stages) == found.objective
    bounds = [stage.bound for stage in found.stages]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == math.floor(bounds[0]), "a whole-number objective has a whole bound"
    relaxed = EXACT.solve(model.relaxed(), budget=minute()).objective
    assert bounds[0] == math.floor(relaxed)
    assert not found.time_limited


def test_sizes_grow_where_nothing_is_found_up_to_everything():
    model = knapsack()
    optimum = EXACT.solve(model, budget=minute()).x
    found = fix_and_optimise(
        model, Groups.of_axis(model, "item"), EXACT, budget=minute(), start=optimum
    )
    sizes = [stage.columns for stage in found.stages[1:]]
    # a tenth of 30 columns first, a quarter more after each
    assert sizes[:4] == [3, 3, 4, 5]
    assert sizes[-1] == 30
    assert all(stage.gain == 0.0 for stage in found.stages)
    assert found.x.tolist() == optimum.tolist()


def scripted(monkeypatch, status):
    """Let every step end with a status, without a better point."""

    def solve(self, model, *, budget, warm_start=None):
        if model.is_lp:
            return real(self, model, budget=budget, warm_start=warm_start)
        value = model.objectives[0].value(warm_start)
        return Solution(status, warm_start, (value,), (None,), "scripted", 0.0)

    real = Solver.solve
    monkeypatch.setattr(Solver, "solve", solve)


def test_sizes_shrink_where_a_limit_stops_a_step(monkeypatch):
    scripted(monkeypatch, Status.FEASIBLE)
    monkeypatch.setattr(search_module, "FIRST_PART", 0.5)
    model = knapsack()
    found = fix_and_optimise(
        model, Groups.of_axis(model, "item"), EXACT, budget=minute(), start=np.zeros(30)
    )
    # 15, then half of it, and so on; the next cycle is of 1 each, and leaves the size at 1
    sizes = [stage.columns for stage in found.stages[1:]]
    assert sizes == [15, 7, 3, 1, 1, 1, 1, 1] + 30 * [1]
    assert (found.status, found.objective) == (Status.FEASIBLE, 0.0)


def test_a_set_proved_to_hold_nothing_is_not_solved_again(monkeypatch):
    scripted(monkeypatch, Status.OPTIMAL)
    model = knapsack()
    half = Groups((Neighbourhood("half", np.arange(15)),))
    found = fix_and_optimise(model, half, EXACT, budget=minute(), start=np.zeros(30))
    assert [stage.name for stage in found.stages] == ["relaxation", "half", "everything"]


@dataclass
class Script:
    """The same columns in every cycle; notes the sizes that were asked for."""

    columns: list[list[int]]

    def __post_init__(self):
        self.sizes: list[int] = []

    def cycle(self, view):
        for columns in self.columns:
            self.sizes.append(view.most)
            yield Neighbourhood(str(columns), np.array(columns))


def test_after_a_gain_a_set_is_solved_again():
    # x <= y: x can only rise after y did
    model = small(rows=[[1.0, -1.0]], upper=0.0, cost=[1.0, 1.0], maximise=True, top=1.0)
    script = Script([[0], [1], [0]])
    found = fix_and_optimise(model, script, EXACT, budget=minute(), start=np.zeros(2))
    assert [(stage.name, stage.gain) for stage in found.stages[1:]] == [
        ("[0]", 0.0), ("[1]", 1.0), ("[0]", 1.0),
    ]  # fmt: skip
    assert found.status is Status.OPTIMAL


def test_sizes_stay_where_there_is_a_gain():
    script = Script([[3 * at, 3 * at + 1, 3 * at + 2] for at in range(3)])
    found = fix_and_optimise(
        knapsack(), script, EXACT, budget=minute(), start=np.zeros(30), most_steps=3
    )
    assert all(stage.gain > 0.0 for stage in found.stages[1:])
    assert script.sizes == [3, 3, 3]


def test_a_size_that_only_goes_to_and_fro_ends_the_search(monkeypatch):
    statuses = itertools.cycle([Status.OPTIMAL, Status.FEASIBLE])
    real = Solver.solve

    def solve(self, model, *, budget, warm_start=None):
        if model.is_lp:
            return real(self, model, budget=budget, warm_start=warm_start)
        value = model.objectives[0].value(warm_start)
        return Solution(next(statuses), warm_start, (value,), (None,), "scripted", 0.0)

    class Anew:
        def cycle(self, view):
            yield Neighbourhood("some", view.rng.permutation(30)[: view.most])

    monkeypatch.setattr(Solver, "solve", solve)
    found = fix_and_optimise(
        knapsack(), Anew(), EXACT, budget=minute(), start=np.zeros(30), most_steps=50
    )
    # 3 grows to 3.75, a record; shrinks, grows and shrinks without another
    assert len(found.stages) == 1 + 4


def test_a_worse_point_is_not_taken(monkeypatch):
    real = Solver.solve

    def worst(self, model, *, budget, warm_start=None):
        if model.is_lp:
            return real(self, model, budget=budget, warm_start=warm_start)
        point = np.zeros(model.column_count)
        value = model.objectives[0].value(point)
        return Solution(Status.FEASIBLE, point, (value,), (None,), "worst", 0.0)

    monkeypatch.setattr(Solver, "solve", worst)
    start = np.zeros(30)
    start[:3] = 1.0
    model = knapsack()
    found = fix_and_optimise(model, Groups.of_blocks(model), EXACT, budget=minute(), start=start)
    assert found.x.tolist() == start.tolist()
    assert all(stage.gain == 0.0 for stage in found.stages)


def test_steps_are_solved_more_closely_than_the_whole_and_the_start_less(monkeypatch):
    asked, real = [], Solver.solve

    def solve(self, model, *, budget, warm_start=None):
        asked.append((model.is_lp, model.column_count, self.gap, self.work_limit))
        return real(self, model, budget=budget, warm_start=warm_start)

    monkeypatch.setattr(Solver, "solve", solve)
    solver = Solver(gap=1e-6, work_limit=10_000)
    script = Script([[0, 1, 2]])
    found = fix_and_optimise(knapsack(), script, solver, budget=minute())
    assert found.status is Status.OPTIMAL
    assert asked[0] == (True, 30, 1e-6, None)
    assert asked[1] == (False, 30, 0.5, 10_000)
    assert (False, 3, pytest.approx(2e-7), 10_000) in asked
    assert asked[-1] == (False, 30, 1e-6, 10_000)


def test_columns_that_cannot_move_do_not_count():
    model = knapsack()
    upper = model.upper.copy()
    upper[4] = 0.0
    model = replace(model, upper=upper)
    found = fix_and_optimise(
        model, Groups.of_blocks(model), EXACT, budget=minute(), start=np.zeros(30)
    )
    assert [(stage.name, stage.columns) for stage in found.stages[1:]] == [("x", 29)]
    assert found.status is Status.OPTIMAL


def test_groups_come_once_in_a_cycle_and_join_up_to_the_size():
    model = leases(6, 8, 0)
    groups = Groups.of_axis(model, "job")
    assert [group.name for group in groups.groups] == [f"j{row}" for row in range(6)]
    names = model.column_names()
    for group in groups.groups:
        assert {names[column].split("[")[1].rstrip("]").split(",")[0] for column in group.columns} == {group.name}  # fmt: skip
    view = View(model, np.zeros(model.column_count), None, 9)
    for choice in (groups, replace(groups, in_order=True)):
        cycle = list(choice.cycle(view))
        freed = np.concatenate([one.columns for one in cycle])
        assert sorted(freed.tolist()) == list(range(model.column_count))
        largest = max(group.columns.size for group in groups.groups)
        assert all(one.columns.size <= max(9, largest) for one in cycle)
        joined = [one for one in cycle if one.name.endswith("more")]
        assert joined
        assert all(" and " in one.name for one in joined)


def test_groups_in_order_are_freed_with_their_neighbours():
    groups = tuple(Neighbourhood(f"g{at}", np.array([at])) for at in range(6))
    view = View(knapsack(6, 1), np.zeros(6), None, 2)
    pairs = [one.columns.tolist() for one in Groups(groups, in_order=True).cycle(view)]
    assert len(pairs) == 3
    assert all((second - first) % 6 == 1 for first, second in pairs)
    starts = {next(Groups(groups, in_order=True).cycle(view)).columns[0] for _ in range(40)}
    assert starts == set(range(6))


def test_groups_by_axis_know_blocks_with_codes_and_with_shapes():
    model = random_milp(np.random.default_rng(2))
    shape = model.column_blocks[0].shape
    kinds = Groups.of_axis(model, "kind").groups
    x = np.arange(math.prod(shape)).reshape(shape)
    assert [group.columns.tolist() for group in kinds] == x.T.tolist()
    leased = leases(5, 8, 1)
    codes = leased.column_blocks[1].axes[1].codes
    for group in Groups.of_axis(leased, "lease").groups:
        assert (5 + np.flatnonzero(codes == int(group.name[1:]))).tolist() == group.columns.tolist()
    blocks = Groups.of_blocks(leased).groups
    assert [(one.name, one.columns.size) for one in blocks] == [("y", 5), ("x", codes.size)]
    with pytest.raises(ModelError, match="no block of columns has an axis week"):
        Groups.of_axis(leased, "week")


@dataclass
class View:
    """What a choice of neighbourhoods sees."""

    model: object
    incumbent: object
    relaxed: object
    most: int

    def __post_init__(self):
        self.rng = np.random.default_rng(5)


def test_rins_frees_where_incumbent_and_relaxation_differ_the_most_first():
    model = random_milp(np.random.default_rng(0))
    model = replace(model, upper=np.full(model.column_count, 9.0))
    incumbent, relaxed = np.zeros(model.column_count), np.zeros(model.column_count)
    relaxed[[0, 1, 3, -1]] = [0.5, 1e-9, 0.75, 3.0]
    assert not model.integer[-1], "the last column may differ, but is free in any case"
    (all_of_them,) = Rins().cycle(View(model, incumbent, relaxed, 5))
    assert (all_of_them.name, all_of_them.columns.tolist()) == ("rins", [0, 3])
    (most,) = Rins().cycle(View(model, incumbent, relaxed, 1))
    assert most.columns.tolist() == [3]
    assert list(Rins().cycle(View(model, incumbent, None, 5))) == []
    assert list(Rins().cycle(View(model, incumbent, incumbent, 5))) == []


def test_choices_in_turn_alternate_until_none_has_any_left():
    model = knapsack(4, 1)
    groups = Groups(tuple(Neighbourhood(f"g{at}", np.array([at])) for at in range(3)))
    relaxed = np.full(4, 0.5)
    turn = InTurn((groups, Rins())).cycle(View(model, np.zeros(4), relaxed, 1))
    assert [one.name[0] for one in turn] == ["g", "r", "g", "g"]


def test_the_rest_keeps_its_values_and_rows_without_free_columns_are_left_out():
    model = leases(5, 8, 1)
    incumbent = np.zeros(model.column_count)
    y = np.zeros(model.column_count, dtype=bool)
    y[:2] = True
    part = Restriction(model, incumbent, y, "y").model
    assert (part.column_count, part.row_count) == (2, 2)
    assert part.objectives[0].value(np.zeros(2)) == model.objectives[0].value(incumbent)
    assert part.row_upper.tolist() == [0.0, 0.0]


def test_a_part_has_the_values_sides_and_costs_of_the_whole():
    model = knapsack(6, 2)
    model = replace(model, row_upper=model.row_upper + 100.0)
    incumbent = np.array([1.0, 0, 0, 1.0, 0, 0])
    free = np.array([True, True, False, False, True, False])
    part = Restriction(model, incumbent, free, "some")
    assert part.start.tolist() == [1.0, 0.0, 0.0]
    point = np.array([0.0, 1.0, 1.0])
    whole = part.whole(point)
    assert whole.tolist() == [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert part.model.objectives[0].value(point) == model.objectives[0].value(whole)
    room = part.model.row_upper - part.model.activity(point)
    np.testing.assert_allclose(room, model.row_upper - model.activity(whole))
    assert part.model.objectives[0].maximise


def test_what_the_tolerance_granted_the_incumbent_is_not_taken_back():
    builder = ModelBuilder("tight")
    x = builder.columns("x", 3, upper=5.0)
    builder.rows("sum", 1, row=0, column=x, value=1.0, lower=2.0, upper=2.0)
    builder.objective("cost", column=x, value=1.0)
    part = Restriction(
        builder.build(), np.array([1.0, 0.5, 0.5 + 1e-7]), np.array([True, False, True]), "xz"
    )
    assert part.model.row_lower[0] == 1.5
    assert part.model.row_upper[0] == pytest.approx(1.5 + 1e-7, abs=1e-12)
    below = Restriction(
        builder.build(), np.array([1.0, 0.5, 0.5 - 1e-7]), np.array([True, False, True]), "xz"
    )
    assert below.model.row_lower[0] == pytest.approx(1.5 - 1e-7, abs=1e-12)
    assert below.model.row_upper[0] == 1.5


def test_the_same_twice():
    model = leases(40, 12, 3)
    choice = InTurn((Rins(), Groups.of_axis(model, "job")))
    solver = Solver(gap=1e-6, seed=4, work_limit=20)
    first, second = (
        fix_and_optimise(model, choice, solver, budget=Budget.of(None), most_steps=12)
        for _ in range(2)
    )
    assert story(first) == story(second)
    assert len(first.stages) <= 2 + 12
    assert not first.time_limited
    other = fix_and_optimise(
        model, choice, replace(solver, seed=5), budget=Budget.of(None), most_steps=12
    )
    assert [stage.name for stage in other.stages] != [stage.name for stage in first.stages]


def test_without_time_or_steps_the_start_is_the_answer():
    model = knapsack()
    start = np.zeros(30)
    start[3] = 1.0
    groups = Groups.of_axis(model, "item")
    for budget, steps, late in ((Budget(0.0), None, True), (minute(), 0, False)):
        found = fix_and_optimise(model, groups, EXACT, budget=budget, start=start, most_steps=steps)
        assert (found.status, found.stages) == (Status.FEASIBLE, ())
        assert found.x.tolist() == start.tolist()
        assert found.objective == model.objectives[0].cost[3]
        assert (found.bound, found.gap, found.time_limited) == (None, None, late)
    one = fix_and_optimise(model, groups, EXACT, budget=minute(), start=start, most_steps=1)
    assert len(one.stages) == 2
    assert one.objective > found.objective


def test_without_a_start_and_without_time_there_is_no_solution():
    model = knapsack()
    found = fix_and_optimise(model, Rins(), EXACT, budget=Budget(0.0))
    assert (found.status, found.objective, found.gap) == (Status.NO_SOLUTION, None, None)
    with pytest.raises(NoSolutionError, match="no values: no_solution"):
        _ = found.x


def test_a_start_is_found_where_none_is_given():
    model = knapsack()
    found = fix_and_optimise(model, Groups.of_axis(model, "item"), EXACT, budget=minute())
    assert [stage.name for stage in found.stages[:2]] == ["relaxation", "start"]
    assert found.stages[1].objective is not None
    assert found.status is Status.OPTIMAL


def small(*, rows, lower=-np.inf, upper=np.inf, cost, maximise=False, top=10.0):
    builder = ModelBuilder("small")
    x = builder.columns("x", len(cost), upper=top, integer=True)
    rows = np.atleast_2d(rows)
    builder.rows("r", len(rows), row=np.arange(len(rows))[:, None], column=x, value=rows,
                 lower=lower, upper=upper)  # fmt: skip
    builder.objective("cost", column=x, value=cost, maximise=maximise)
    return builder.build(allow_unbounded=True)


def test_infeasible_models_are_told():
    by_rows = small(rows=[[1.0, 1.0]], lower=30.0, cost=[1.0, 1.0])
    by_whole_numbers = small(rows=[[2.0, 2.0]], lower=3.0, upper=3.0, cost=[1.0, 1.0])
    for model in (by_rows, by_whole_numbers):
        found = fix_and_optimise(model, Rins(), EXACT, budget=minute())
        assert (found.status, found.point, found.objective) == (Status.INFEASIBLE, None, None)
        assert "infeasible" in found.message
        steps = ["relaxation"] if model is by_rows else ["relaxation", "start"]
        assert [stage.name for stage in found.stages] == steps


def test_unbounded_models_are_told_with_and_without_a_start():
    model = small(rows=[[1.0, -1.0]], upper=4.0, cost=[1.0, 0.0], maximise=True, top=np.inf)
    for start in (None, np.zeros(2)):
        blocks = Groups.of_blocks(model)
        found = fix_and_optimise(model, blocks, EXACT, budget=minute(), start=start)
        assert found.status is Status.UNBOUNDED
        assert (found.bound, found.gap) == (None, None)


def test_a_bound_from_outside_ends_the_search_and_spares_the_relaxation():
    model = knapsack()
    best = EXACT.solve(model, budget=minute())
    groups = Groups.of_axis(model, "item")
    found = fix_and_optimise(
        model, groups, EXACT, budget=Budget(0.0), start=best.x, bound=best.objective
    )
    assert (found.status, found.stages, found.gap) == (Status.OPTIMAL, (), 0.0)
    near = fix_and_optimise(
        model, groups, Solver(gap=0.05), budget=minute(), start=np.zeros(30), bound=best.objective
    )
    assert near.status is Status.OPTIMAL
    assert near.bound == best.objective
    assert near.gap <= 0.05
    assert "relaxation" not in [stage.name for stage in near.stages]
    lazily = fix_and_optimise(
        model, Rins(), EXACT, budget=minute(), start=np.zeros(30), bound=best.objective + 5.0
    )
    assert lazily.stages[0].name == "relaxation"


def test_a_bound_beside_the_value_by_rounding_says_no_more_than_the_value():
    model = knapsack()
    best = EXACT.solve(model, budget=minute())
    beside = best.objective * (1.0 - 1e-9)
    found = fix_and_optimise(model, Rins(), EXACT, budget=Budget(0.0), start=best.x, bound=beside)
    assert (found.status, found.bound, found.gap) == (Status.OPTIMAL, best.objective, 0.0)


def test_a_bound_that_a_point_refutes_proves_nothing(caplog):
    model = knapsack()
    best = EXACT.solve(model, budget=minute())
    found = fix_and_optimise(
        model, Rins(), EXACT, budget=Budget(0.0), start=best.x, bound=best.objective - 1.0
    )
    assert (found.status, found.bound, found.gap) == (Status.FEASIBLE, None, None)
    assert "is refuted by the point" in found.message
    assert "is refuted by the point" in caplog.text


def test_a_point_of_a_step_that_breaks_a_row_is_refused(monkeypatch, caplog):
    real = Solver.solve

    def lie(self, model, *, budget, warm_start=None):
        answer = real(self, model, budget=budget, warm_start=warm_start)
        if model.is_lp:
            return answer
        return replace(answer, point=model.upper.copy(), status=Status.FEASIBLE)

    monkeypatch.setattr(Solver, "solve", lie)
    model = knapsack()
    found = fix_and_optimise(
        model, Groups.of_blocks(model), EXACT, budget=minute(), start=np.zeros(30)
    )
    assert (found.status, found.objective) == (Status.FEASIBLE, 0.0)
    assert found.stages[-1].note.startswith("refused: row weight")
    assert "refused" in caplog.text


def test_what_makes_no_sense_is_refused():
    model = knapsack()
    groups = Groups.of_axis(model, "item")
    for start, message in (
        (np.ones(30), "start is not feasible: row weight"),
        (np.full(30, 0.5), "is not a whole number"),
        (np.zeros(4), r"shape \(4,\)"),
        (np.full(30, np.nan), r"x\[i0\] = nan"),
    ):
        with pytest.raises(ModelError, match=message):
            fix_and_optimise(model, groups, EXACT, budget=Budget(0.0), start=start)
    for bound in (np.nan, np.inf):
        with pytest.raises(ModelError, match="bound = "):
            fix_and_optimise(model, groups, EXACT, budget=minute(), bound=bound)
    for column in (-1, 30):
        strange = Groups((Neighbourhood("strange", np.array([column])),))
        with pytest.raises(ModelError, match="strange: a column that does not exist"):
            fix_and_optimise(model, strange, EXACT, budget=minute(), start=np.zeros(30))
    two = replace(model, objectives=model.objectives * 2)
    with pytest.raises(ModelError, match="one objective"):
        fix_and_optimise(two, groups, EXACT, budget=minute())


def test_models_without_integer_columns_and_without_columns():
    model = knapsack().relaxed()
    found = fix_and_optimise(model, Rins(), EXACT, budget=minute(), start=np.zeros(30))
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(EXACT.solve(model, budget=minute()).objective)
    builder = ModelBuilder("empty")
    builder.objective("none", column=[], value=[], offset=3.0)
    empty = fix_and_optimise(builder.build(), Rins(), EXACT, budget=minute())
    assert (empty.status, empty.objective, empty.bound) == (Status.OPTIMAL, 3.0, 3.0)


@pytest.mark.parametrize("backend", ["highs", "scip", "cbc", "cpsat"])
def test_back_ends_by_name_take_the_steps(backend):
    model = knapsack(15, 2)
    solver = Solver(gap=0.0, backend=backend)
    found = fix_and_optimise(model, Groups.of_axis(model, "item"), solver, budget=minute())
    assert found.status is Status.OPTIMAL
    assert found.objective == EXACT.solve(model, budget=minute()).objective


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
)
def test_leases_to_a_thousandth(seed):
    model = leases(40, 12, seed)
    choice = InTurn((Rins(), Groups.of_axis(model, "job", in_order=True)))
    start = np.zeros(model.column_count)
    found = fix_and_optimise(model, choice, Solver(gap=1e-3), budget=minute(), start=start)
    assert found.status is Status.OPTIMAL
    assert found.gap <= 1e-3
    exact = Solver(gap=1e-3).solve(model, budget=minute())
    assert found.objective <= exact.bound * (1.0 + 1e-9)
    assert exact.objective <= found.bound * (1.0 + 1e-9)
    steps = [stage for stage in found.stages if 0 < stage.columns < model.column_count]
    assert sum(stage.gain for stage in steps) > 0.9 * found.objective
