"""A max-min round of many identical jobs, step by step.

Usage: ``python benchmarks/aggregation.py [--jobs 1000000] [--classes 100] [--repeats 5]``

CPU seconds of this process, imports excluded, medians, and the largest memory of the process. The
yardstick ``lp`` is a plain highspy solve of the merged model, run beside it.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from apportion.solver import Budget, Model, Sharing, Solver, identical_rows, solve_max_min

TYPES = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
"""Part of the GPUs that each type has."""


def make_round(jobs: int, classes: int, seed: int = 0) -> Sharing:
    """Draw jobs of few classes that ask for three times the GPUs there are."""
    rng = np.random.default_rng(seed)
    speed = np.linspace(1.0, 4.0, TYPES.size) ** rng.uniform(0.2, 1.3, (classes, 1))
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], classes, p=[0.7, 0.1, 0.15, 0.05])
    pick = rng.integers(0, classes, jobs)
    capacity = np.round(gang[pick].sum() / 3 * TYPES)
    return Sharing(speed[pick], gang[pick], capacity, 1.0 / rng.choice([1.0, 2.0], classes)[pick])


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    start = time.process_time()
    out = work()
    return time.process_time() - start, out


def plain(model: Model) -> None:
    """Solve by highspy alone."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.column_count, model.row_count
    lp.col_cost_ = -model.objectives[0].cost
    lp.col_lower_, lp.col_upper_ = model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = model.indptr, model.indices
    lp.a_matrix_.value_ = model.values
    highs.passModel(lp)
    highs.run()


def measure(sharing: Sharing) -> dict[str, float]:
    """Measure every step once, and the whole."""
    out: dict[str, float] = {}
    out["group"], _ = cpu(lambda: identical_rows(sharing.speed))
    out["merge"], (merged, classes) = cpu(sharing.merged)
    out["compile"], model = cpu(merged.max_min_model)
    out["solve"], answer = cpu(lambda: Solver().solve(model, budget=Budget.of(None)))
    out["lp"], _ = cpu(lambda: plain(model))
    part = answer.x[:-1].reshape(merged.speed.shape)
    out["spread"], x = cpu(lambda: classes.spread(part))
    out["check"], _ = cpu(lambda: (sharing.levels(x), sharing.excess(x)))
    out["whole"], found = cpu(lambda: solve_max_min(sharing, budget=Budget.of(None)))
    out["level"], out["excess"], out["classes"] = (
        found.level,
        found.excess,
        found.classes.first.size,
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    identical_rows(np.ones((2, 2)))  # imports
    sharing = make_round(asked.jobs, asked.classes)
    runs = [measure(sharing) for _ in range(asked.repeats)]
    for step in runs[0]:
        print(f"{step:>8} {statistics.median(run[step] for run in runs):.6g}")
    print(f"  memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.3f} GiB")


if __name__ == "__main__":
    main()
