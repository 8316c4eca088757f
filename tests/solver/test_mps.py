"""What we write is read by three codes, none of them through our adapters."""

from __future__ import annotations

import importlib
import subprocess

import numpy as np
import pytest

from apportion.solver import Axis, ModelBuilder, Solver, Status, write_mps
from apportion.solver.models.mps import legal_names

pytestmark = pytest.mark.quick

INF = np.inf


def read_by_highs(path):
    highspy = importlib.import_module("highspy")
    solver = highspy.Highs.__base__()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value


def read_by_scip(path):
    helper = importlib.import_module("ortools.linear_solver.python.model_builder_helper")
    builder = helper.ModelBuilderHelper()
    assert builder.import_from_mps_file(str(path))
    solver = helper.ModelSolverHelper("SCIP")
    solver.solve(builder)
    assert solver.status() == helper.SolveStatus.OPTIMAL
    return solver.objective_value()


def read_by_cbc(path):
    binary = importlib.import_module("pulp.apis").PULP_CBC_CMD.pulp_cbc_path
    command = [binary, path.name, "-ratio", "0", "-solve", "-solution", "answer"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True)
    assert "read with 0 errors" in done.stdout
    head = (path.parent / "answer").read_text().splitlines()[0]
    assert head.startswith("Optimal")
    return float(head.split()[-1])


READERS = {"highs": read_by_highs, "scip": read_by_scip, "cbc": read_by_cbc}
MODELS = {
    "maximised": {"rows": [[1, 1]], "row_upper": 15, "cost": [1, 2], "maximise": True, "offset": 3},
    "minimised": {"rows": [[1, 2], [3, 1]], "row_lower": [4, 6], "cost": [1, 1], "offset": -2.5},
    "ranges": {"rows": [[1, 1], [1, -1]], "row_lower": [2, -3], "row_upper": [6, -3], "cost": [1, -2]},
    "integers": {"rows": [[7, 3]], "row_upper": 26, "integer": True, "cost": [-5, -2]},
    "integers_without_upper": {"rows": [[7, 3]], "row_upper": 26, "integer": True, "upper": INF, "cost": [-5, -2]},
    "mixed_runs": {"rows": [[1, 1, 1, 1]], "row_upper": 7.5, "integer": [True, False, True, True], "upper": [2, 0.25, 2, 9], "cost": [-3, -9, -4, -1]},
    "negative_upper": {"cost": [1, -1], "lower": -5, "upper": -1},
    "zero_upper": {"cost": [1, -1], "lower": [-5, 0], "upper": 0, "integer": [False, True]},
    "free_column": {"rows": [[1, 1]], "row_lower": -3, "lower": [-INF, 0], "upper": [INF, 2], "cost": [1, 1]},
    "only_upper": {"rows": [[1, 1]], "row_lower": -3, "lower": [-INF, 0], "upper": [-1, 2], "cost": [1, 1]},
    "fixed": {"rows": [[1, 1]], "row_upper": 9, "lower": [4, 0], "upper": [4, 10], "cost": [-1, -1]},
    "free_row": {"rows": [[1, 1], [1, 0]], "row_upper": [INF, 3], "cost": [-1, 0]},
    "empty_column": {"rows": [[0, 1]], "row_upper": 2, "cost": [0, -1]},
    "long_numbers": {"rows": [[1 / 3, 0.1]], "row_upper": 2 / 3, "upper": 1e7, "cost": [-1 / 7, -1e-7]},
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", MODELS)
def test_readers_find_our_optimum(case, reader, dense_model, minute, tmp_path):
    model = dense_model(**MODELS[case])
    ours = Solver(backend="highs", gap=0.0).solve(model, budget=minute)
    assert ours.status is Status.OPTIMAL
    write_mps(model, tmp_path / "model.mps")
    sign = model.objectives[0].sign
    assert sign * READERS[reader](tmp_path / "model.mps") == pytest.approx(ours.objective, rel=1e-6)


@pytest.mark.parametrize("reader", READERS)
def test_names_that_no_format_allows_still_read(reader, tmp_path, minute):
    builder = ModelBuilder("a name with spaces")
    jobs = Axis("job", ["j 1", "j\t1", "j$1", "é", "", "x" * 300, "y" * 300])
    x = builder.columns("x", 7, integer=True, axes=(jobs,))
    builder.columns("RHS", 1)
    builder.columns("BOUNDS", 1)
    builder.columns("17", 1)
    builder.columns("*", 1)
    builder.rows("ROWS", 1, row=0, column=np.arange(11), value=1.0, upper=3.0)
    builder.rows("cost", 1, row=0, column=x, value=1.0, upper=2.0)
    builder.objective("cost", column=np.arange(11), value=-np.arange(11.0))
    model = builder.build()
    write_mps(model, tmp_path / "model.mps")
    assert READERS[reader](tmp_path / "model.mps") == pytest.approx(-27.0)


def test_names_stay_recognisable_and_unique():
    assert legal_names(["x[job17,A100]", "level"]) == ["x[job17,A100]", "level"]
    names = legal_names(["a b", "a_b", "a_b_1", "a\tb", "9", "rhs"])
    assert len(set(names)) == len(names)
    assert names[0] == "a_b"
    assert names[-2:] == ["_9", "_rhs"]


def test_the_chosen_objective_is_written(dense_model, tmp_path):
    model = dense_model(
        rows=[[1, 1]], row_upper=4, cost=[1, 1], maximise=True, more=(([2, 1], False),)
    )
    write_mps(model, tmp_path / "second.mps", objective=1)
    assert " N next0" in (tmp_path / "second.mps").read_text()
    assert read_by_highs(tmp_path / "second.mps") == 0.0


def test_a_failed_write_leaves_the_old_file_and_nothing_else(dense_model, tmp_path, monkeypatch):
    path = tmp_path / "model.mps"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_mps(dense_model(cost=[1, 1]), path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.mps"]
    assert path.read_text() == "old"
