"""FFT at scale: what a round costs, step by step, beside the plain relaxation of the same model.

Usage: ``python benchmarks/fft_rounds.py [--repeats 5] [--sizes 200x3,1000x8,4000x8] [--json]``

CPU seconds of this process (one thread), imports excluded, medians. ``lp highspy`` is the LP
relaxation of the same model handed over as arrays, ``lp cvxpy`` the same LP built and solved
through cvxpy with HiGHS.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

import apportion as ap
from apportion.deciding import decide_safely
from apportion.executor.training import check, place
from apportion.formulations.training.fft.program import FFTProgram
from apportion.solver import Budget, Model, Solver

GPUS = {3: 36, 8: 1000}
NO_LIMIT = Budget.of(None)


def make_round(jobs: int, types: int, seed: int) -> tuple[ap.TrainingRound, dict[str, Any]]:
    """Draw a contended round: gangs 1 to 8, log-normal work, mixed speed-ups, jobs that run."""
    rng = np.random.default_rng(seed)
    gpus = GPUS[types] // types
    cluster = ap.Cluster.uniform({f"type-{i}": gpus for i in range(types)})
    speed = np.linspace(1.0, 2.7, types) ** rng.uniform(0.5, 1.2, (jobs, 1))
    theta = speed * np.exp(rng.normal(0.0, 0.05, (jobs, types)))
    theta[:, 1:][rng.random((jobs, types - 1)) < 0.05] = 0.0
    now_s = 60 * 300.0
    waited = rng.integers(0, 60, jobs) * 300.0
    table = ap.Jobs.of(
        id=[f"job-{i}" for i in range(jobs)],
        gang=rng.choice([1, 2, 4, 8], jobs, p=[0.6, 0.2, 0.15, 0.05]),
        work=np.clip(np.exp(rng.normal(2.2, 0.9, jobs)), 3.0, 200.0),
        throughput_per_s=theta / 300.0,
        arrival_s=now_s - waited,
        previous_type=rng.integers(-1, types, jobs),
        state_gb=rng.uniform(0.2, 30.0, jobs),
    )
    memory = {
        "id": table.id,
        "rho": np.maximum(0.0, rng.normal(0.5, 1.0, jobs)),
        "fair_per_s": theta.max(axis=1) / 300.0 / jobs,
    }
    return ap.TrainingRound(cluster=cluster, jobs=table, now_s=now_s), memory


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    start = time.process_time()
    out = work()
    return time.process_time() - start, out


def relaxation_by_highspy(model: Model, solver: str) -> float:
    """Solve the relaxation of the second objective, all GPUs in use, as plain arrays."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.column_count, model.row_count
    lp.col_cost_ = model.objectives[-1].cost
    lp.col_lower_, lp.col_upper_ = model.lower, model.upper
    upper = model.row_upper.copy()
    lower = np.where(np.arange(upper.size) >= upper.size - _types(model), upper, -np.inf)
    lp.row_lower_, lp.row_upper_ = lower, upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = model.indptr, model.indices
    lp.a_matrix_.value_ = model.values
    highs = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("solver", solver)):
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    highs.run()
    return highs.getInfo().objective_function_value


def _types(model: Model) -> int:
    return next(block for block in model.row_blocks if block.name == "capacity").size


def relaxation_by_cvxpy(model: Model) -> float:
    """Build and solve the same relaxation through cvxpy with HiGHS."""
    import cvxpy as cp

    x = cp.Variable(model.column_count, nonneg=True)
    ones, kinds = model.matrix[: -_types(model)], model.matrix[-_types(model) :]
    rules = [ones @ x <= model.row_upper[: ones.shape[0]], x <= model.upper]
    rules.append(kinds @ x == model.row_upper[ones.shape[0] :])
    problem = cp.Problem(cp.Minimize(model.objectives[-1].cost @ x), rules)
    return float(problem.solve(solver=cp.HIGHS))


def measure(jobs: int, types: int, seed: int) -> dict[str, Any]:
    """Measure one round once."""
    round_, memory = make_round(jobs, types, seed)
    out: dict[str, Any] = {"jobs": jobs, "types": types, "seed": seed}
    repair, exact = ap.FFT(method="lp_repair"), ap.FFT()
    out["compile"], program = cpu(lambda: _compiled(repair, round_, memory))
    out["solve"], decision = cpu(lambda: program.solve(Solver(), NO_LIMIT))
    out["check"], broken = cpu(lambda: check(round_, decision.allocation))
    out["place"], _ = cpu(lambda: place(round_, decision.allocation))
    assert not broken, broken
    out["gap"] = decision.gap
    fresh = repair.compile(round_, memory, NO_LIMIT)
    out["whole lp_repair"], _ = cpu(
        lambda: decide_safely(repair, round_, memory, Solver(), NO_LIMIT)
    )
    out["whole exact"], proved = cpu(
        lambda: decide_safely(exact, round_, memory, Solver(gap=0.0), NO_LIMIT).decision
    )
    out["exact status"], out["exact gap"] = proved.status, proved.gap
    model = fresh.model
    out["lp highspy"], value = cpu(lambda: relaxation_by_highspy(model, "choose"))
    out["lp highspy ipm"], _ = cpu(lambda: relaxation_by_highspy(model, "ipm"))
    out["lp value"] = value
    try:
        out["lp cvxpy"], again = cpu(lambda: relaxation_by_cvxpy(model))
        assert abs(again - value) <= 1e-6 * max(1.0, abs(value)), (again, value)
    except ImportError:
        out["lp cvxpy"] = None
    return out


def _compiled(policy: ap.FFT, round_: ap.TrainingRound, memory: Any) -> FFTProgram:
    program = policy.compile(round_, memory, NO_LIMIT)
    assert program.classes.first.size
    return program


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default="200x3,1000x8,4000x8")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    relaxation_by_cvxpy(_compiled(ap.FFT(), *make_round(20, 3, 0)).model)
    for size in options.sizes.split(","):
        jobs, types = (int(part) for part in size.split("x"))
        runs = [measure(jobs, types, seed) for seed in range(options.repeats)]
        row: dict[str, Any] = {"jobs": jobs, "types": types, "runs": len(runs)}
        for key in ("compile", "solve", "check", "place", "whole lp_repair", "whole exact",
                    "lp highspy", "lp highspy ipm", "lp cvxpy"):  # fmt: skip
            values = [run[key] for run in runs if run[key] is not None]
            row[key] = round(statistics.median(values), 4) if values else None
        row["worst gap"] = max(run["gap"] for run in runs)
        row["all exact proved"] = all(run["exact status"] == "OPTIMAL" for run in runs)
        added = row["compile"] + row["check"]
        row["added / lp highspy"] = round(added / row["lp highspy"], 3)
        row["whole lp_repair / lp cvxpy"] = (
            round(row["whole lp_repair"] / row["lp cvxpy"], 3) if row["lp cvxpy"] else None
        )
        rows.append(row)
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    keys = list(rows[0])
    sys.stdout.write("| " + " | ".join(keys) + " |\n|" + "---|" * len(keys) + "\n")
    for row in rows:
        cells = [f"{v:.2%}" if k == "worst gap" else str(v) for k, v in row.items()]
        sys.stdout.write("| " + " | ".join(cells) + " |\n")


if __name__ == "__main__":
    main()
