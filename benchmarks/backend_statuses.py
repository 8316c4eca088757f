"""Write down what back ends and wrappers say themselves: ``results/reference/backend_statuses.md``.

Usage: ``python benchmarks/backend_statuses.py [--out results/reference]``

None of our adapters takes part. Each route runs in a child, since some break down. The table changes
with versions, which it names; what *we* say is asserted by ``tests/solver/test_catalogue.py``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "python benchmarks/backend_statuses.py"
CHILD_LIMIT_S = 120.0
INF, NAN = math.inf, math.nan
NUMBER = re.compile(r"-?[\d.]+(e[+-]\d+)?")
SEEDS = (7, 13, 19)
"""Choices on which HiGHS 1.16.0 was seen to cut the optimum off."""
PACKAGES = ("ortools", "highspy", "pulp", "scipy", "numpy")

# max cost @ x, rows @ x <= row_upper, lower <= x <= upper; from the study of statuses
BASE: dict[str, Any] = {"rows": [[1.0, 1.0]], "row_lower": [-INF], "row_upper": [15.0], "lower": [0.0, 0.0], "upper": [10.0, 10.0], "cost": [1.0, 2.0]}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "plain (25)": {},
    "infeasible": {"row_lower": [25.0], "row_upper": [30.0]},
    "unbounded": {"upper": [INF, INF], "row_upper": [INF]},
    "NaN in a row": {"rows": [[1.0, NAN]]},
    "NaN cost": {"cost": [1.0, NAN]},
    "inf in a row": {"rows": [[1.0, INF]]},
    "NaN bound": {"upper": [10.0, NAN]},
    "lower > upper": {"lower": [0.0, 11.0]},
    "2x + 2y = 7, whole (none)": {"rows": [[2.0, 2.0]], "row_lower": [7.0], "row_upper": [7.0], "whole": True},
    "limit of 0.1 s, hard": {"hard": True, "whole": True, "limit_s": 0.1},
}  # fmt: skip


def data_of(case: str) -> dict[str, Any]:
    """Arrays of a case."""
    data = {**BASE, "whole": False, "limit_s": 20.0, **CASES[case]}
    if data.pop("hard", False):
        rng = np.random.default_rng(0)
        rows = rng.integers(100, 1000, (40, 200)).astype(float)
        data.update(rows=rows, row_lower=np.full(40, -INF), row_upper=rows.sum(axis=1) / 3)
        data.update(lower=np.zeros(200), upper=np.ones(200), cost=rng.integers(100, 1000, 200))
    for key in ("rows", "row_lower", "row_upper", "lower", "upper", "cost"):
        data[key] = np.asarray(data[key], dtype=float)
    return data


def told(status: Any, value: float | None) -> str:
    """Give a status, and the value where there is one."""
    return str(status) if value is None else f"{status} {value:g}"


def by_pywraplp(kind: str, data: dict[str, Any]) -> str:
    """Through OR-Tools' older interface."""
    pywraplp: Any = importlib.import_module("ortools.linear_solver.pywraplp")
    solver = pywraplp.Solver.CreateSolver(kind)
    if solver is None:
        return "no such solver"
    solver.set_time_limit(int(1000 * data["limit_s"]))
    make = solver.IntVar if data["whole"] else solver.NumVar
    x = [
        make(lo, up, f"x{j}")
        for j, (lo, up) in enumerate(zip(data["lower"], data["upper"], strict=True))
    ]
    for row, lo, up in zip(data["rows"], data["row_lower"], data["row_upper"], strict=True):
        constraint = solver.Constraint(float(lo), float(up))
        for variable, value in zip(x, row, strict=True):
            constraint.SetCoefficient(variable, float(value))
    for variable, value in zip(x, data["cost"], strict=True):
        solver.Objective().SetCoefficient(variable, float(value))
    solver.Objective().SetMaximization()
    status = solver.Solve()
    names = ["OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNBOUNDED", "ABNORMAL", "MODEL_INVALID", "NOT_SOLVED"]  # fmt: skip
    word = names[status] if status < len(names) else f"status {status}"
    # read without a look at the status, as many do
    return told(word, float(solver.Objective().Value()))


def by_bulk(kind: str, data: dict[str, Any]) -> str:
    """Through OR-Tools' bulk interface."""
    helper: Any = importlib.import_module("ortools.linear_solver.python.model_builder_helper")
    sparse: Any = importlib.import_module("scipy.sparse")
    builder, solver = helper.ModelBuilderHelper(), helper.ModelSolverHelper(kind)
    builder.fill_model_from_sparse_data(
        data["lower"], data["upper"], data["cost"], data["row_lower"], data["row_upper"],
        sparse.csr_matrix(data["rows"]),
    )  # fmt: skip
    builder.set_maximize(True)
    for j in range(data["lower"].size if data["whole"] else 0):
        builder.set_var_integrality(j, True)
    solver.enable_output(False)
    solver.set_time_limit_in_seconds(data["limit_s"])
    solver.solve(builder)
    value = float(solver.objective_value()) if solver.has_solution() else None
    return told(solver.status().name, value)


def by_highspy(kind: str, data: dict[str, Any]) -> str:
    """Through HiGHS' own interface."""
    highspy: Any = importlib.import_module("highspy")
    sparse: Any = importlib.import_module("scipy.sparse")
    matrix = sparse.csr_matrix(data["rows"])
    solver = highspy.Highs.__base__()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("solver", kind)
    solver.setOptionValue("time_limit", data["limit_s"])
    columns, rows = data["lower"].size, data["row_lower"].size
    taken = solver.passModel(
        columns, rows, matrix.nnz, int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMaximize), 0.0, data["cost"], data["lower"], data["upper"],
        data["row_lower"], data["row_upper"], matrix.indptr, matrix.indices, matrix.data,
        np.full(columns, int(data["whole"]), dtype=np.int32),
    )  # fmt: skip
    if taken == highspy.HighsStatus.kError:
        return "model refused"
    solver.run()
    info = solver.getInfo()
    word = solver.modelStatusToString(solver.getModelStatus())
    return told(word, float(info.objective_function_value))


def by_mathopt(kind: str, data: dict[str, Any]) -> str:
    """Through OR-Tools' newer interface."""
    mathopt: Any = importlib.import_module("ortools.math_opt.python.mathopt")
    datetime: Any = importlib.import_module("datetime")
    model = mathopt.Model()
    bounds = zip(data["lower"], data["upper"], strict=True)
    x = [model.add_variable(lb=lo, ub=up, is_integer=data["whole"]) for lo, up in bounds]
    for row, lo, up in zip(data["rows"], data["row_lower"], data["row_upper"], strict=True):
        constraint = model.add_linear_constraint(lb=lo, ub=up)
        for variable, value in zip(x, row, strict=True):
            constraint.set_coefficient(variable, value)
    model.maximize(sum(c * v for c, v in zip(data["cost"], x, strict=True)))
    limit = datetime.timedelta(seconds=data["limit_s"])
    parameters = mathopt.SolveParameters(time_limit=limit)
    found = mathopt.solve(model, mathopt.SolverType[kind], params=parameters)
    value = found.objective_value() if found.has_primal_feasible_solution() else None
    return told(found.termination.reason.name, value)


def by_pulp(kind: str, data: dict[str, Any]) -> str:
    """Through PuLP and the CBC that it brings."""
    pulp: Any = importlib.import_module("pulp")
    problem = pulp.LpProblem("raw", pulp.LpMaximize)
    finite = [[None if math.isinf(b) else b for b in data[side]] for side in ("lower", "upper")]
    category = "Integer" if data["whole"] else "Continuous"
    x = [pulp.LpVariable(f"x{j}", lo, up, category) for j, (lo, up) in enumerate(zip(*finite, strict=True))]  # fmt: skip
    problem += pulp.lpSum(c * v for c, v in zip(data["cost"], x, strict=True))
    for row, lo, up in zip(data["rows"], data["row_lower"], data["row_upper"], strict=True):
        total = pulp.lpSum(a * v for a, v in zip(row, x, strict=True))
        if math.isfinite(up):
            problem += total <= up
        if math.isfinite(lo):
            problem += total >= lo
    problem.solve(getattr(pulp, kind)(msg=False, timeLimit=data["limit_s"]))
    words = f"{pulp.LpStatus[problem.status]} / {pulp.LpSolution[problem.sol_status]}"
    return told(words, pulp.value(problem.objective))


def by_scipy(kind: str, data: dict[str, Any]) -> str:
    """Through SciPy."""
    optimize: Any = importlib.import_module("scipy.optimize")
    constraints = optimize.LinearConstraint(data["rows"], data["row_lower"], data["row_upper"])
    found = optimize.milp(
        -data["cost"], constraints=constraints, bounds=optimize.Bounds(data["lower"], data["upper"]),
        integrality=np.full(data["lower"].size, int(data["whole"])),
        options={"time_limit": data["limit_s"]},
    )  # fmt: skip
    return told(f"status {found.status}", None if found.fun is None else -float(found.fun))


ROUTES: dict[str, tuple[Callable[[str, dict[str, Any]], str], tuple[str, ...]]] = {
    "pywraplp": (by_pywraplp, ("GLOP", "PDLP", "CLP", "CBC", "SCIP", "SAT", "HIGHS")),
    "bulk": (by_bulk, ("GLOP", "PDLP", "SCIP", "SAT", "HIGHS")),
    "MathOpt": (by_mathopt, ("GLOP", "PDLP", "GSCIP", "CP_SAT", "HIGHS")),
    "highspy": (by_highspy, ("choose", "ipm")),
    "PuLP": (by_pulp, ("PULP_CBC_CMD",)),
    "scipy": (by_scipy, ("milp",)),
}


def answer(route: str, kind: str, case: str) -> str:
    """What one route says of one case, or how it fails."""
    started = time.monotonic()
    try:
        text = ROUTES[route][0](kind, data_of(case))
    except Exception as error:
        return f"{type(error).__name__}"
    late = time.monotonic() - started > 1.0
    if "limit" not in case:
        return text
    # values and times at a limit differ from run to run
    word, _, value = text.rpartition(" ")
    text = f"{word} with a value" if value not in ("0", "inf") and NUMBER.fullmatch(value) else text
    return f"{text}, far beyond the limit" if late else text


def in_child(route: str, kind: str, cases: list[str]) -> dict[str, str]:
    """Run cases in a child; where it breaks down, each case in one of its own."""
    command = [sys.executable, __file__, "--one", route, kind, *cases]
    with tempfile.TemporaryFile("w+") as out:
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=out, timeout=CHILD_LIMIT_S, check=False,
                env={**os.environ, "GLOG_minloglevel": "3"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            done = None
    last = done.stdout.decode(errors="replace").strip().splitlines()[-1:] if done else []
    if done is not None and done.returncode == 0 and last:
        return json.loads(last[0])
    if len(cases) > 1:
        return {case: in_child(route, kind, [case])[case] for case in cases}
    return {cases[0]: "killed at the limit" if done is None else "breaks down"}


def with_a_start(seed: int, *, start: bool) -> str:
    """What HiGHS says of placing four GPUs at least cost, with or without a MIP start."""
    highspy: Any = importlib.import_module("highspy")
    sparse: Any = importlib.import_module("scipy.sparse")
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 1, 2, 4], 10)
    cost = rng.uniform(3.0, 30.0, (10, 4)).round(2)
    job, kind = np.nonzero(rng.random((10, 4)) < 0.6)
    free = rng.integers(1, 5, 4)
    count, at = job.size, np.arange(job.size)
    place = (np.r_[job, 10 + kind, np.full(count, 14)], np.r_[at, at, at])
    entries = np.r_[np.ones(count), gang[job], gang[job]].astype(float)
    matrix = sparse.csr_matrix((entries, place), shape=(15, count))

    def run(cost: Any, low: float, high: float, begin: Any) -> tuple[Any, str]:
        solver = highspy.Highs.__base__()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("mip_rel_gap", 0.0)
        upper = np.r_[np.ones(10), free, high].astype(float)
        solver.passModel(
            count, 15, matrix.nnz, int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize), 0.0, cost, np.zeros(count), np.ones(count),
            np.r_[np.full(14, -INF), low], upper, matrix.indptr, matrix.indices, matrix.data,
            np.ones(count, dtype=np.int32),
        )  # fmt: skip
        if begin is not None:
            given = highspy.HighsSolution()
            given.col_value, given.value_valid = list(begin), True
            solver.setSolution(given)
        solver.run()
        word = solver.modelStatusToString(solver.getModelStatus())
        value = solver.getInfo().objective_function_value
        return np.array(solver.getSolution().col_value), f"{word} {value:g}"

    first, _ = run(-gang[job].astype(float), 0.0, 99.0, None)
    most = float(gang[job] @ first)
    return run(cost[job, kind], most, most, first if start else None)[1]


def table() -> str:
    """The whole table as Markdown."""
    lines = [
        "# What back ends say themselves",
        "",
        f"Made by `{COMMAND}`; versions: "
        + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
        + ".",
        "",
        "The plain case is max x + 2y with 0 <= x, y <= 10 and x + y <= 15, optimum 25; the others",
        "change what their names say. A number is the objective that the route hands out, wanted or",
        "not: pywraplp and highspy have one even where there is no solution. What this package says",
        "of the same models is asserted in `tests/solver/test_catalogue.py`.",
        "",
        f"| route | {' | '.join(CASES)} |",
        f"|---{'|---' * len(CASES)}|",
    ]
    for route, (_, kinds) in ROUTES.items():
        for kind in kinds:
            print(f"{route} {kind}", file=sys.stderr, flush=True)
            found = in_child(route, kind, list(CASES))
            lines.append(f"| {route} {kind} | {' | '.join(found[case] for case in CASES)} |")
    lines += [
        "",
        "HiGHS through highspy on three small choices, each with the whole-number point that places",
        "most GPUs as a start, and without one. The answers should be equal.",
        "",
        "| choice | with a start | without |",
        "|---|---|---|",
        *(
            f"| {seed} | {with_a_start(seed, start=True)} | {with_a_start(seed, start=False)} |"
            for seed in SEEDS
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        route, kind, *cases = options.one
        print("\n" + json.dumps({case: answer(route, kind, case) for case in cases}), flush=True)
        # some interfaces fail while they are taken down
        os._exit(0)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "backend_statuses.md").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
