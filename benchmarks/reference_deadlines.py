"""Make the reference tables of deadlines: ``results/reference/deadlines_chronus*.md`` and ``.csv``.

usage: python benchmarks/reference_deadlines.py [--data DIR] [--out results/reference] [--workers 2]

``deadlines_chronus``: both Philly-derived traces of Chronus on 960 GPUs, fourteen days.
``deadlines_chronus_settings``: the beginning of one of them where starts cost time, where estimates
are wrong, and both. Every allocation is checked; where estimates are exact, a promise that is
broken ends the benchmark. DIR holds ``chronus/``; default: APPORTION_DATA, else
``../shared/data`` beside the checkout. Finished runs are kept under ``runs/reference_deadlines``.
Decisions stop on deterministic work.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import run
from apportion.executor.training.records import Run
from apportion.instances.columns import freeze
from apportion.instances.streams import stream
from apportion.instances.training import ExecutorOptions, Scenario
from apportion.instances.training.chronus_trace import read_chronus
from apportion.instances.training.jobs import NEVER
from apportion.instances.training.laws import SwitchCost
from apportion.registry import make_policy, policy_from_label
from apportion.results import training_metrics
from apportion.solver import Solver

ROOT = Path(__file__).resolve().parents[1]
NAME = "deadlines_chronus"
TRACES = ("SLO", "MIX2")
POLICIES = (
    "chronus:publish=false", "unisched", "edf", "edf:preemptive=true", "srtf", "tiresias",
    "themis:method=max-min",
)  # fmt: skip
SETTINGS = ("exact", "restarts", "estimates", "both")
PREFIX = 18_000
"""Jobs of the second table: up to the end of the first period of overload."""

RESTART_S = 30.0
"""A start on g GPUs takes so many seconds times 1 + log2 g: what Chronus and UniSched plan with."""

ERROR, LEAST, MOST = 0.3, 0.5, 2.0
"""Reported over true durations are 1 + N(0, 0.3), cut to [0.5, 2]: the form of the released code."""

SHOWN = (
    ("deadline_miss_fraction", "missed, by value", 1.0, 4),
    ("deadline_late_fraction", "past the first deadline", 1.0, 4),
    ("deadline_value_fraction", "value earned", 1.0, 4),
    ("promised", "promised", 1.0, 0), ("broken", "promises broken", 1.0, 0),
    ("deadline_tenant_worst_fraction", "worst user's misses", 1.0, 3),
    ("deadline_tenant_jain", "Jain over users", 1.0, 3),
    ("best_effort_jct_mean_s", "best-effort latency, min", 1.0 / 60.0, 0),
    ("jct_mean_s", "mean JCT, min", 1.0 / 60.0, 0), ("busy_fraction", "busy", 1.0, 3),
    ("preemptions", "preempted", 1.0, 0), ("unfinished", "unfinished", 1.0, 0),
    ("decide_p50_s", "p50 decide, ms", 1e3, 1), ("decide_p99_s", "p99 decide, ms", 1e3, 0),
    ("lease_p99_s", "p99 of the slowest quarter, ms", 1e3, 0),
    ("decide_max_s", "max decide, ms", 1e3, 0),
)  # fmt: skip
OWN = ("promised", "broken", "decide_p50_s", "decide_p99_s", "lease_p99_s", "decide_max_s")
NOTES = (
    "Chronus does not publish its commitments here (`publish=false`), which takes it as long as deciding;"
    " plans and promises are the same.",
    "Missed, by value: one less the part of the value that is left, mean over jobs with deadlines;"
    " unfinished ones are missed. Promised: jobs that the policy said would be in time; broken: those"
    " that were not. Jain's index is that of the users' misses. Decision times are CPU time of one"
    " machine, beside others' work; a lease begins at every fourth decision, so that the slowest"
    " quarter stands for the decisions at which leases are planned.",
)
TRACE_NOTE = (
    "30,735 (SLO: all with one hard deadline) and 30,746 jobs (MIX2: 60 % soft, 30 % hard, 10 % best"
    " effort), 120 nodes of 8 GPUs, rounds of 300 s, estimates exact, no cost of restarts."
)
OLD_NOTE = (
    "Rows without the slowest quarter are of runs before promises were counted; their decision times"
    " are of the clock on the wall."
)
SETTINGS_NOTE = (
    f"The first {PREFIX:,} jobs of the SLO trace. exact: durations are known and starts cost nothing."
    f" restarts: every start, resume and move stands still for {RESTART_S:g} (1 + log2 GPUs) s."
    f" estimates: what is reported is the duration times 1 + N(0, {ERROR:g}), cut to"
    f" [{LEAST:g}, {MOST:g}]. both: both."
)


@dataclass(frozen=True)
class Cell:
    """One run: a trace, how the world treats its jobs, and who decides."""

    table: str
    trace: str
    setting: str
    policy: str
    jobs: int | None = None

    @property
    def row(self) -> str:
        """Name of the row's group."""
        return self.trace if self.table == NAME else self.setting

    @property
    def path(self) -> str:
        """Name of its file."""
        group = self.trace if self.table == NAME else f"{self.trace}_{self.jobs}_{self.setting}"
        return f"{group}_{self.policy.replace(':', '_')}.json"


TABLES = {
    NAME: [Cell(NAME, trace, "exact", label) for trace in TRACES for label in POLICIES],
    f"{NAME}_settings": [
        Cell(f"{NAME}_settings", "SLO", setting, label, PREFIX)
        for setting in SETTINGS for label in POLICIES
    ],
}  # fmt: skip


class Watched:
    """A decider whose decisions are timed and whose promises are written down."""

    def __init__(self, inner: BoundPolicy, jobs: int) -> None:
        self.inner = inner
        self.subscribes, self.reacts_to = inner.subscribes, inner.reacts_to
        self.remember, self.react = inner.remember, inner.react
        self.due_s = np.full(jobs, np.nan)
        self.cpu_s: list[float] = []

    def decide(self, round_: Any, memory: Any) -> Any:
        """Decide, and note by when which jobs will be done as the policy says."""
        began = time.process_time()
        decision = self.inner.decide(round_, memory)
        self.cpu_s.append(time.process_time() - began)
        jobs, told = round_.jobs, decision.per_job
        if "promised_s" in told:
            due_s = np.asarray(told["promised_s"])
            rows = np.flatnonzero(due_s >= 0)
            self.due_s[jobs.code[rows]] = due_s[rows]
        elif "accepted" in told:
            rows = np.flatnonzero(told["accepted"])
            self.due_s[jobs.code[rows]] = jobs.deadline_s[jobs.deadline_offsets[rows + 1] - 1]
        return decision

    def figures(self, done: Run) -> dict[str, Any]:
        """Count promises and those that were broken, and give percentiles of the times."""
        known = ~np.isnan(self.due_s)
        finish_s = done.jobs.finish_s
        kept = (finish_s != NEVER) & (finish_s <= self.due_s + 1e-6)
        spent = np.array(self.cpu_s)
        times = (np.median(spent), *np.percentile(spent, (99, 99.75)), spent.max())
        counts = (int(known.sum()), int((known & ~kept).sum())) if known.any() else (None, None)
        return dict(zip(OWN, (*counts, *map(float, times)), strict=True))


def world(cell: Cell, data: Path) -> Scenario:
    """Read a trace, and make it what the setting says."""
    scenario = read_chronus(data / "chronus" / f"trace_job_Philly_{cell.trace}.csv.gz")
    jobs, options, true_work = scenario.jobs, ExecutorOptions(round_s=300.0), None
    rows = np.arange(len(jobs) if cell.jobs is None else min(cell.jobs, len(jobs)))
    columns: dict[str, Any] = {}
    if cell.setting in ("restarts", "both"):
        # the fixed part is everybody's, the rest is the gang's
        columns["restart_s"] = RESTART_S * np.log2(jobs.gang[rows])
        switch = SwitchCost(
            fixed_s=RESTART_S, charge_start=True, charge_resume=True, charge_move=True
        )
        options = replace(options, switch=switch)
    if cell.setting in ("estimates", "both"):
        true_work = jobs.work[rows]
        factor = 1.0 + ERROR * stream(scenario.seed, "work_noise").standard_normal(rows.size)
        columns["work"] = true_work * np.clip(factor, LEAST, MOST)
    for column in columns.values():
        freeze(column)
    return replace(scenario, jobs=jobs.take(rows, columns), options=options, true_work=true_work)


def carried_out(cell: Cell, data: Path) -> dict[str, Any]:
    """Carry out a cell.

    Raises
    ------
    AssertionError
        If a promise is broken although what the policy was told is true.
    """
    scenario = world(cell, data)
    policy = make_policy(*policy_from_label(cell.policy))
    watch = Watched(BoundPolicy(policy, Solver(work_limit=WORK_LIMIT)), len(scenario.jobs))
    done = run(scenario, watch, policy=cell.policy)
    found = training_metrics(done).as_dict()
    out = {name: found[name] for name, *_ in SHOWN if name not in OWN} | watch.figures(done)
    if cell.setting in ("exact", "restarts") and out["broken"]:
        raise AssertionError(f"{cell}: {out['broken']} promises were broken, estimates are exact")
    return out


def write(table: str, found: Mapping[Cell, Mapping[str, Any]], out: Path) -> None:
    """Write the table of what is there."""
    group = "trace" if table == NAME else "setting"
    head = [group, "policy", *(title for _, title, _, _ in SHOWN)]
    rows = [
        [cell.row, cell.policy, *(shown(found[cell].get(name), scale, digits)
                                  for name, _, scale, digits in SHOWN)]
        for cell in TABLES[table] if cell in found
    ]  # fmt: skip
    title = "the traces of Chronus" if table == NAME else "Chronus' SLO trace, four settings"
    text = [f"# Deadlines on {title}, 960 GPUs\n", "| " + " | ".join(head) + " |"]
    text += ["|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]
    missing = [f"{cell.row} {cell.policy}" for cell in TABLES[table] if cell not in found]
    notes = [TRACE_NOTE if table == NAME else SETTINGS_NOTE, *NOTES]
    if any("lease_p99_s" not in found[cell] for cell in TABLES[table] if cell in found):
        notes.append(OLD_NOTE)
    notes += [f"Not run: {', '.join(missing)}."] if missing else []
    text += [f"{note}\n" for note in notes]
    text.append("Made by `python benchmarks/reference_deadlines.py`.")
    (out / f"{table}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    with (out / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def shown(value: float | None, scale: float, digits: int) -> str:
    """Write a figure; nothing where there is none."""
    return "" if value is None else f"{value * scale:.{digits}f}"


def collected(cells: Sequence[Cell], scratch: Path) -> dict[Cell, Any]:
    """Read the runs that are finished."""
    paths = {cell: scratch / cell.path for cell in cells}
    return {cell: json.loads(path.read_text()) for cell, path in paths.items() if path.exists()}


def write_all(scratch: Path, out: Path) -> None:
    """Write both tables."""
    for table, cells in TABLES.items():
        write(table, collected(cells, scratch), out)


def main() -> int:
    """Run what is missing, and write the tables after every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "reference_deadlines")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="cells whose file has this in its name")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    cells = [cell for table in TABLES.values() for cell in table if options.only in cell.path]
    missing = [cell for cell in cells if not (options.scratch / cell.path).exists()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        jobs = {pool.submit(carried_out, cell, options.data.resolve()): cell for cell in missing}
        for count, future in enumerate(as_completed(jobs), 1):
            path = options.scratch / jobs[future].path
            path.with_suffix(".part").write_text(json.dumps(future.result()), encoding="utf-8")
            path.with_suffix(".part").replace(path)
            sys.stderr.write(f"{count}/{len(missing)} {jobs[future]}\n")
            write_all(options.scratch, options.out)
    write_all(options.scratch, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
