"""Multiple choice with few capacities: FFT's round proved optimal, beside HiGHS on the same MILP.

Usage: ``python benchmarks/choice.py [--seeds 5] [--first 10] [--sizes 1000x8,4000x8] [--cap 60] [--out FOLDER]``

CPU seconds of this process and its children, imports excluded, one thread. ``ours`` is
``solve_choice`` from columns to a proved plan, median of ``--repeats`` runs; ``whole round``
compiles, decides and checks the round by the policy. ``HiGHS`` is highspy on the same MILP at gap
0, every capacity as an equation, building included, stopped after ``--cap`` seconds of the clock:
it runs once, and a run that was stopped counts as what it used up. Rounds are drawn by
``fft_rounds.make_round`` with seeds from ``--first`` on; sizes of cores were chosen on seeds 0 to 4,
so the table begins at 10. ``--out`` writes ``choice_proofs.md``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fft_rounds import make_round
from scipy.sparse import coo_matrix
from solver_paths import cpu, table, used_machine, yardstick

import apportion as ap
from apportion.deciding import decide_safely
from apportion.solver import Budget, Choice, ChoiceSolution, Solver, Status, solve_choice

NO_LIMIT = Budget.of(None)
SAME = 1e-6
"""Relative difference up to which two proved optima are the same."""


@dataclass(frozen=True)
class Row:
    """One round: seconds of each side, and what HiGHS proved."""

    size: str
    seed: int
    ours_s: float
    whole_s: float
    highs_s: float
    highs_gap: float
    value: float
    core: str

    @property
    def ratio(self) -> float:
        """How many times longer HiGHS takes, at least."""
        return self.highs_s / self.ours_s

    def cells(self) -> list[str]:
        """Cells of the table."""
        stopped = self.highs_gap > 0.0
        at_least = ">" if stopped else ""
        return [
            self.size, str(self.seed), f"{self.ours_s:.3f}", f"{self.whole_s:.3f}",
            f"{at_least}{self.highs_s:.2f}", f"{self.highs_gap:.1e}" if stopped else "proved",
            f"{at_least}{self.ratio:.0f}", f"{self.value:.6f}", self.core,
        ]  # fmt: skip


def by_highs(choice: Choice, cap_s: float) -> tuple[float, float]:
    """Build the MILP with equations, solve it; give the value and the gap that is left."""
    import highspy

    groups, options = np.nonzero(choice.allowed)
    n, column = choice.count.size, np.arange(groups.size)
    matrix = coo_matrix(
        (
            np.r_[np.ones(groups.size), choice.amount[groups, options]],
            (np.r_[groups, n + choice.resource[options]], np.r_[column, column]),
        ),
        shape=(n + choice.capacity.size, groups.size),
    ).tocsc()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = groups.size, n + choice.capacity.size
    lp.col_cost_, lp.col_lower_ = choice.cost[groups, options], np.zeros(groups.size)
    lp.col_upper_ = choice.count[groups].astype(float)
    lp.row_lower_ = np.r_[np.full(n, -np.inf), choice.capacity]
    lp.row_upper_ = np.r_[choice.count, choice.capacity].astype(float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * groups.size
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
    lp.a_matrix_.value_ = matrix.data
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False), ("threads", 1), ("time_limit", cap_s),
        ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0),
    ):  # fmt: skip
        highs.setOptionValue(option, value)
    highs.passModel(lp)
    highs.run()
    info = highs.getInfo()
    proved = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(info.objective_function_value), 0.0 if proved else float(info.mip_gap)


def measure(jobs: int, types: int, seed: int, repeats: int, cap_s: float) -> Row:
    """Measure one round on both sides."""
    round_, memory = make_round(jobs, types, seed)
    policy = ap.FFT()
    choice: Choice = policy.compile(round_, memory, NO_LIMIT).choice(float(round_.capacity.sum()))
    assert choice.full
    runs = [cpu(lambda: _proved(choice)) for _ in range(repeats)]
    wholes = [cpu(lambda: _whole(policy, round_, memory))[0] for _ in range(repeats)]
    answer = runs[0][1]
    highs_s, (value, gap) = cpu(lambda: by_highs(choice, cap_s))
    size = max(1.0, abs(answer.objective))
    assert answer.bound <= value + SAME * size, "HiGHS has a plan below our bound"
    assert gap > 0.0 or abs(answer.objective - value) <= SAME * size, "two optima"
    return Row(
        f"{jobs} x {types}", seed, statistics.median(spent for spent, _ in runs),
        statistics.median(wholes), highs_s, gap, answer.objective, answer.stages[-1].note,
    )  # fmt: skip


def _proved(choice: Choice) -> ChoiceSolution:
    answer = solve_choice(choice, Solver(gap=0.0), budget=NO_LIMIT)
    assert answer.status is Status.OPTIMAL
    assert answer.plan is not None
    assert choice.feasible(answer.plan)
    return answer


def _whole(policy: ap.FFT, round_: Any, memory: Any) -> None:
    decided = decide_safely(policy, round_, memory, Solver(gap=0.0), NO_LIMIT)
    assert decided.decision.status == "OPTIMAL"


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", default="1000x8,4000x8")
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    _whole(ap.FFT(), *make_round(20, 3, 0))  # imports
    by_highs(Choice(*(np.ones(s) for s in [(1, 1), (1, 1)]), np.array([0]), np.ones(1), np.ones(1, dtype=int)), 1.0)  # fmt: skip
    loop, rows = yardstick(), list[Row]()
    for size in options.sizes.split(","):
        jobs, types = (int(part) for part in size.split("x"))
        for seed in range(options.first, options.first + options.seeds):
            rows.append(measure(jobs, types, seed, options.repeats, options.cap))
            sys.stderr.write(" | ".join(rows[-1].cells()) + "\n")
    text = _text(rows, (loop + yardstick()) / 2, options.cap)
    sys.stdout.write(text)
    if options.out is not None:
        (options.out / "choice_proofs.md").write_text(text, encoding="utf-8")


def _text(rows: list[Row], loop_s: float, cap_s: float) -> str:
    head = ["jobs x types", "seed", "ours (s)", "whole round (s)", "HiGHS (s)", "HiGHS ends",
            "ratio", "optimum", "last core"]  # fmt: skip
    notes = []
    for size in dict.fromkeys(row.size for row in rows):
        mine = [row for row in rows if row.size == size]
        ratios = [row.ratio for row in mine]
        stopped = sum(row.highs_gap > 0.0 for row in mine)
        notes.append(
            f"{size}: ours {statistics.median(row.ours_s for row in mine):.3f} s in the median and"
            f" {max(row.ours_s for row in mine):.3f} s at most, the whole round"
            f" {max(row.whole_s for row in mine):.3f} s at most, HiGHS"
            f" {statistics.median(row.highs_s for row in mine):.1f} s in the median and stopped on"
            f" {stopped} of {len(mine)}; ratio {statistics.median(ratios):.0f} in the median and"
            f" {min(ratios):.0f} at least. Goals: 1 s at most, 10 times faster:"
            f" {_goals(mine)}."
        )
    notes.append(
        f"A HiGHS run that was stopped after {cap_s:g} s of the clock counts as the CPU seconds it"
        " used, so that such a ratio is a lower bound; the last column but one tells the gap it had"
        " left. Optima agree to 1e-6 where both are proved, and no plan of HiGHS is below our bound"
        " where not."
    )
    return (
        "**FFT's round proved optimal, and HiGHS on the same MILP with equations**\n\n"
        + table(head, [row.cells() for row in rows])
        + "\n"
        + "".join(f"- {note}\n" for note in notes)
        + f"\n{used_machine(loop_s)}\n\nMade by `python benchmarks/choice.py --out results/reference`.\n"
    )


def _goals(rows: list[Row]) -> str:
    slow = [row.seed for row in rows if max(row.ours_s, row.whole_s) > 1.0]
    close = [row.seed for row in rows if row.ratio < 10.0]
    missed = [f"over 1 s on seeds {slow}"] * bool(slow) + [f"ratio under 10 on seeds {close}"] * bool(close)  # fmt: skip
    return " and ".join(missed) if missed else "both met on every seed"


if __name__ == "__main__":
    main()
