"""Models that go to PuLP or into an MPS file come back as they were."""

from __future__ import annotations

import importlib
import subprocess
import warnings

import numpy as np
import pytest

from apportion.solver import (
    Axis,
    Budget,
    Model,
    ModelBuilder,
    ModelError,
    Solver,
    Status,
    from_pulp,
    pulp_variables,
    read_mps,
    to_pulp,
    write_mps,
)

pytestmark = pytest.mark.quick

INF = np.inf


def assert_same(left: Model, right: Model, *, slack: float = 0.0) -> None:
    """Numbers, order, names, sense and priorities; ``slack`` for lower sides of ranges."""
    for field in ("lower", "upper", "integer", "indptr", "indices", "values", "row_upper"):
        np.testing.assert_array_equal(getattr(left, field), getattr(right, field), err_msg=field)
    np.testing.assert_allclose(left.row_lower, right.row_lower, rtol=slack, atol=slack)
    assert left.column_names() == right.column_names()
    assert left.row_names() == right.row_names()
    assert len(left.objectives) == len(right.objectives)
    for one, other in zip(left.objectives, right.objectives, strict=True):
        assert (one.name, one.maximise, one.offset) == (other.name, other.maximise, other.offset)
        np.testing.assert_array_equal(one.cost, other.cost)


@pytest.fixture
def everything() -> Model:
    """Every kind of bound, row, sense and name there is."""
    builder = ModelBuilder("every thing")
    axes = (Axis("job", ["a b", "c-d"]), Axis("type", ["A100", "V/100", ""]))
    x = builder.columns("x", (2, 3), integer=True, upper=[[1, 2, 3], [4, 5, 6]], axes=axes)
    y = builder.columns("y", 4, lower=[-INF, -INF, 0.5, -3], upper=[INF, -1, INF, -3])
    kind = np.arange(3)[None, :]
    builder.rows("cap", 3, row=kind, column=x, value=0.1, lower=[-1, -INF, 0.1], upper=[2, 3, INF])
    builder.rows("free", 1, row=0, column=y, value=1.0)
    builder.rows("even", 1, row=0, column=y, value=1 / 3, lower=-0.3, upper=-0.3)
    builder.rows("empty", 1, row=[], column=np.empty(0, int), value=[], upper=4.0)
    builder.objective("most", column=x, value=1.0, maximise=True, offset=2.5)
    builder.objective("cheap", column=y, value=3.0)
    return builder.build(allow_unbounded=True)


@pytest.fixture
def choice(choice_model) -> Model:
    return choice_model(6, 3)


class TestPulp:
    @pytest.mark.parametrize("position", [0, 1])
    def test_a_problem_comes_back_as_its_model(self, everything, position):
        assert_same(from_pulp(to_pulp(everything, objective=position)), everything)

    def test_a_copy_comes_back_with_the_model_it_should_be_like(self, everything):
        pulp = importlib.import_module("pulp")
        problem = to_pulp(everything, objective=1)
        assert_same(from_pulp(problem.copy(), like=everything, objective=1), everything)
        _, told = pulp.LpProblem.fromDict(problem.toDict())
        assert_same(from_pulp(told, like=everything, objective=1), everything)

    def test_pulp_solves_what_it_was_given(self, choice):
        pulp = importlib.import_module("pulp")
        problem = to_pulp(choice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            problem.solve(pulp.PULP_CBC_CMD(msg=False))
        ours = Solver(gap=0.0).solve(choice.single(0), budget=Budget.of(60.0))
        assert pulp.value(problem.objective) == pytest.approx(ours.objective)

    def test_rules_bounds_columns_and_costs_are_taken_over(self, choice):
        problem = to_pulp(choice, objective=1)
        x = pulp_variables(problem, choice)
        spare = problem.add_variable("spare", 0, 4)
        problem.addConstraint(x["x[0,0]"] + 2 * spare <= 1.5, "rule")
        x["x[1,0]"].upBound = 0
        problem.objective.addterm(spare, 7.0)
        found = from_pulp(problem)
        assert found.column_names() == [*choice.column_names(), "spare"]
        assert found.row_names() == [*choice.row_names(), "rule"]
        assert found.column_blocks[0] is choice.column_blocks[0]
        assert found.upper[[0, 3, 18]].tolist() == [1.0, 0.0, 4.0]
        assert found.matrix[[9]].toarray().ravel()[[0, 18]].tolist() == [1.0, 2.0]
        assert (found.row_lower[9], found.row_upper[9]) == (-INF, 1.5)
        assert [one.name for one in found.objectives] == ["busy", "cost"]
        assert [one.cost[18] for one in found.objectives] == [0.0, 7.0]

    def test_a_rule_that_was_taken_out_keeps_its_place_without_sides(self, everything):
        pulp = importlib.import_module("pulp")
        problem = to_pulp(everything)
        shorter = pulp.LpProblem("shorter", problem.sense)
        shorter.setObjective(problem.objective)
        for constraint in problem.constraints():
            if constraint.name not in ("cap_0_", "even"):
                shorter.addConstraint(constraint)
        found = from_pulp(shorter, like=everything)
        assert found.row_names() == everything.row_names()
        assert found.row_lower.tolist() == [-1.0, -INF, 0.1, -INF, -INF, -INF]
        assert found.row_upper.tolist() == [INF, 3.0, INF, INF, INF, 4.0]

    def test_a_problem_of_somebody_else_is_read_as_it_is(self):
        pulp = importlib.import_module("pulp")
        problem = pulp.LpProblem("theirs", pulp.LpMaximize)
        u, v = problem.add_variable("u", 0, 3, "Integer"), problem.add_variable("v", None, 2)
        w = problem.add_variable("w", cat="Binary")
        problem += u + 2 * v - w + 5
        problem += u + v <= 4
        problem += u - w >= 1, "named"
        found = from_pulp(problem)
        assert found.name == "theirs"
        assert found.column_names() == ["u", "v", "w"]
        assert found.row_names() == ["_C1", "named"]
        assert found.lower.tolist() == [0, -INF, 0]
        assert found.upper.tolist() == [3, 2, 1]
        assert found.integer.tolist() == [True, False, True]
        answer = Solver(gap=0.0).solve(found, budget=Budget.of(20.0))
        assert answer.status is Status.OPTIMAL
        assert answer.objective == pytest.approx(11.0)

    def test_no_objective_asks_for_any_point(self):
        pulp = importlib.import_module("pulp")
        problem = pulp.LpProblem("any", pulp.LpMinimize)
        problem += problem.add_variable("u", 0, 3) >= 2
        assert from_pulp(problem).objectives[0].cost.tolist() == [0.0]

    @pytest.mark.parametrize("kind", ["sos1", "sos2"])
    def test_special_ordered_sets_are_refused_by_name(self, choice, kind):
        problem = to_pulp(choice)
        getattr(problem, kind)["pieces"] = {}
        with pytest.raises(ModelError, match=f"{kind} set pieces"):
            from_pulp(problem)

    def test_other_categories_and_numbers_are_refused_by_name(self, choice):
        problem = to_pulp(choice)
        variable = pulp_variables(problem, choice)["x[2,1]"]
        variable.cat = "SemiContinuous"
        with pytest.raises(ModelError, match=r"x_2,1_.*SemiContinuous"):
            from_pulp(problem)
        variable.cat = "Integer"
        problem.objective[variable] = "much"
        with pytest.raises(ModelError, match=r"'much' at x_2,1_"):
            from_pulp(problem)
        problem.objective[variable] = float("nan")
        with pytest.raises(ModelError, match=r"column x\[2,1\].*nan"):
            from_pulp(problem)

    def test_two_variables_of_one_name_are_refused(self):
        pulp = importlib.import_module("pulp")
        problem = pulp.LpProblem("double", pulp.LpMinimize)
        problem += problem.add_variable("u", 0, 3) + problem.add_variable("u", 0, 1)
        with pytest.raises(ModelError, match=r"u .*twice"):
            from_pulp(problem)

    def test_two_sides_that_part_are_refused(self, everything):
        problem = to_pulp(everything)
        problem.get_constraint_by_name("cap_0__lower").expr.clear()
        with pytest.raises(ModelError, match="no longer one row"):
            from_pulp(problem)

    def test_names_that_become_equal_are_kept_apart(self):
        builder = ModelBuilder("m")
        x = builder.columns("x", 3, axes=(Axis("job", ["a b", "a-b", "a_b"]),))
        builder.objective("o", column=x, value=[1.0, 2.0, 3.0])
        model = builder.build()
        assert_same(from_pulp(to_pulp(model)), model)
        costs = {name: v.upBound for name, v in pulp_variables(to_pulp(model), model).items()}
        assert list(costs) == ["x[a b]", "x[a-b]", "x[a_b]"]


class TestMps:
    def test_a_written_model_is_read_as_it_was(self, choice, tmp_path):
        for position in (0, 1):
            write_mps(choice, tmp_path / "m.mps", objective=position)
            found = read_mps(tmp_path / "m.mps")
            assert_same(found, choice.single(position))
            assert [block.name for block in found.row_blocks] == ["one", "capacity"]
            assert [block.size for block in found.column_blocks] == [18]

    def test_every_kind_of_bound_and_row_survives(self, everything, tmp_path):
        write_mps(everything, tmp_path / "m.mps")
        found = read_mps(tmp_path / "m.mps")
        assert found.column_names()[:2] == ["x[a_b,A100]", "x[a_b,V_100]"]
        again = tmp_path / "again.mps"
        write_mps(found, again)
        assert again.read_text() == (tmp_path / "m.mps").read_text()
        for field in ("lower", "upper", "integer", "values", "row_upper"):
            np.testing.assert_array_equal(getattr(found, field), getattr(everything, field))
        np.testing.assert_allclose(found.row_lower, everything.row_lower, rtol=1e-15)
        assert found.objectives[0].maximise
        assert found.objectives[0].offset == 2.5

    def test_random_models_survive(self, dense_model, tmp_path):
        rng = np.random.default_rng(0)
        for _ in range(40):
            shape = (int(rng.integers(0, 5)), int(rng.integers(1, 6)))
            lower = rng.choice([-INF, -2.5, 0.0, 1 / 3], shape[1])
            low = rng.choice([-INF, -1.0, 0.1], shape[0])
            model = dense_model(
                rows=rng.normal(size=shape) * (rng.random(shape) < 0.7),
                row_lower=low,
                row_upper=np.where(
                    np.isinf(low),
                    3.0,
                    np.nan_to_num(low, neginf=0) + rng.choice([0, 0.3, INF], shape[0]),
                ),
                lower=lower,
                upper=np.where(np.isinf(lower), 0, lower) + rng.choice([0.0, 1.7, INF], shape[1]),
                integer=rng.random(shape[1]) < 0.5,
                cost=rng.normal(size=shape[1]).round(3),
                maximise=bool(rng.random() < 0.5),
                offset=float(rng.choice([0.0, -1.5])),
            )
            write_mps(model, tmp_path / "m.mps")
            assert_same(read_mps(tmp_path / "m.mps"), model, slack=1e-14)

    def test_what_highs_reads_is_what_we_read(self, tmp_path):
        highspy = importlib.import_module("highspy")
        (tmp_path / "theirs.mps").write_text(THEIRS)
        solver = highspy.Highs.__base__()
        solver.setOptionValue("output_flag", False)
        assert solver.readModel(str(tmp_path / "theirs.mps")) == highspy.HighsStatus.kOk
        lp, ours = solver.getLp(), read_mps(tmp_path / "theirs.mps")
        assert ours.column_names() == list(lp.col_names_)
        assert ours.row_names() == list(lp.row_names_)
        for mine, other in (
            (ours.lower, lp.col_lower_),
            (ours.upper, lp.col_upper_),
            (ours.row_lower, lp.row_lower_),
            (ours.row_upper, lp.row_upper_),
            (ours.objectives[0].cost, lp.col_cost_),
        ):
            np.testing.assert_array_equal(mine, np.array(other))
        assert ours.objectives[0].offset == lp.offset_ == -5.0
        assert ours.objectives[0].name == "COST"

    def test_three_readers_keep_the_names(self, choice, tmp_path):
        write_mps(choice, tmp_path / "m.mps", objective=1)
        highspy = importlib.import_module("highspy")
        solver = highspy.Highs.__base__()
        solver.setOptionValue("output_flag", False)
        solver.readModel(str(tmp_path / "m.mps"))
        assert list(solver.getLp().col_names_) == choice.column_names()
        assert list(solver.getLp().row_names_) == choice.row_names()
        helper = importlib.import_module("ortools.linear_solver.python.model_builder_helper")
        builder = helper.ModelBuilderHelper()
        assert builder.import_from_mps_file(str(tmp_path / "m.mps"))
        names = [builder.var_name(j) for j in range(builder.num_variables())]
        assert names == choice.column_names()
        binary = importlib.import_module("pulp.apis").PULP_CBC_CMD.pulp_cbc_path
        command = [binary, "m.mps", "-printi", "all", "-solve", "-solution", "answer"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        lines = (tmp_path / "answer").read_text().splitlines()[1:]
        words = [line.replace("**", "").split()[1] for line in lines]
        assert words == [*choice.row_names(), *choice.column_names()]

    def test_fixed_format_allows_blanks_in_names(self, tmp_path):
        (tmp_path / "fixed.mps").write_text(FIXED)
        found = read_mps(tmp_path / "fixed.mps")
        assert found.column_names() == ["THE ONE", "OTHER"]
        assert found.row_names() == ["ROW 1"]
        assert found.matrix.toarray().tolist() == [[1.0, 2.0]]
        assert found.row_upper.tolist() == [4.0]
        assert found.upper.tolist() == [INF, 3.0]
        assert found.objectives[0].maximise
        with pytest.raises(ModelError, match="line 6"):
            read_mps(tmp_path / "fixed.mps", layout="free")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (" L  LIM1", " Q  LIM1", r"line 5 \(ROWS\): 'Q LIM1' is no row"),
            (" G  LIM2", " G  LIM1", "LIM1 is given twice"),
            ("    B3        COST", "    B3        CAST", "no row CAST"),
            (
                "    A3        COST                 1",
                "    A3        COST               1x1",
                "'1x1'",
            ),
            (" PL B5", " SC B5", "kind SC"),
            (" PL B5", " PL C5", "no column C5"),
            (" UP BND A1 0", " UP BND A1 -1", "A1 is at most -1"),
            ("RANGES", "QUADOBJ", "QUADOBJ"),
            ("BOUNDS", "SOS", r"\(SOS\): the section is not supported"),
            ("ENDATA", "", "before ENDATA"),
            (" N  COST\n", "", "no row COST"),
        ],
    )
    def test_a_fault_is_named_with_its_line(self, old, new, message, tmp_path):
        assert old in THEIRS
        (tmp_path / "bad.mps").write_text(THEIRS.replace(old, new, 1))
        with pytest.raises(ModelError, match=message):
            read_mps(tmp_path / "bad.mps")


THEIRS = """* an ordinary file
NAME          theirs
ROWS
 N  COST
 L  LIM1
 G  LIM2
 E  MYEQN
COLUMNS
    MARKER    'MARKER'                 'INTORG'
    XONE      COST                 1   LIM1                 1
    XONE      LIM2                 1
    B3        COST                 1   LIM1              1D01
    B4        COST                 1   LIM1                 1
    B5        COST                 1   LIM1                 1
    B7        COST                 1   LIM1                 1
    MARKER    'MARKER'                 'INTEND'
    YTWO      COST                 4   LIM1                 1
    YTWO      MYEQN               -1
    ZTHREE    COST                 9   LIM2                 1
    ZTHREE    MYEQN                1
    A1        COST                 1   LIM1                 1
    A2        COST                 1   LIM1                 1
    A3        COST                 1   LIM1                 1
RHS
    RHS       LIM1                 4   LIM2                 1
    RHS       MYEQN                7   COST  5
RANGES
    R  MYEQN -2
    R  LIM1 3 LIM2 4
BOUNDS
 UP BND       YTWO                 4
 MI BND       ZTHREE
 UP BND A1 0
 LO BND A2 -3
 UP BND A2 -1
 LO B3 2
 MI B4
 PL B5
 LO B7 -1
ENDATA
"""

FIXED = """NAME          SMALL
OBJSENSE
    MAX
ROWS
 N  COST
 L  ROW 1
COLUMNS
    THE ONE   COST               1.0   ROW 1              1.0
    OTHER     COST               1.0   ROW 1              2.0
RHS
    RHS       ROW 1              4.0
BOUNDS
 UP BND       OTHER              3.0
ENDATA
"""
