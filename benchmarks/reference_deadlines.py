"""Make the reference table of deadlines: ``results/reference/deadlines_chronus.md`` and ``.csv``.

usage: python benchmarks/reference_deadlines.py [--data DIR] [--out results/reference] [--workers 2]

Both Philly-derived traces of Chronus on 960 GPUs, fourteen days, every allocation checked. DIR
holds ``chronus/``; default: APPORTION_DATA, else ``../shared/data`` beside the checkout. Finished
runs are kept under ``runs/reference_deadlines``. Decisions stop on deterministic work.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import run
from apportion.instances.training import ExecutorOptions
from apportion.instances.training.chronus_trace import read_chronus
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
SHOWN = (
    ("deadline_miss_fraction", "missed, by value", 1.0, 4),
    ("deadline_late_fraction", "past the first deadline", 1.0, 4),
    ("deadline_value_fraction", "value earned", 1.0, 4),
    ("deadline_tenant_worst_fraction", "worst user's misses", 1.0, 3),
    ("deadline_tenant_jain", "Jain over users", 1.0, 3),
    ("best_effort_jct_mean_s", "best-effort latency, min", 1.0 / 60.0, 0),
    ("jct_mean_s", "mean JCT, min", 1.0 / 60.0, 0), ("busy_fraction", "busy", 1.0, 3),
    ("preemptions", "preempted", 1.0, 0), ("unfinished", "unfinished", 1.0, 0),
    ("decide_p50_s", "p50 decide, ms", 1e3, 1), ("decide_p99_s", "p99 decide, ms", 1e3, 0),
    ("decide_max_s", "max decide, ms", 1e3, 0),
)  # fmt: skip
TIMES = ("decide_p50_s", "decide_p99_s", "decide_max_s")
NOTES = (
    "30,735 (SLO: all with one hard deadline) and 30,746 jobs (MIX2: 60 % soft, 30 % hard, 10 % best"
    " effort), 120 nodes of 8 GPUs, rounds of 300 s, no cost of restarts. Missed, by value: one less the"
    " part of the value that is left, mean over jobs with deadlines; unfinished ones are missed.",
    "Chronus publishes no commitments here (`publish=false`): checking tens of thousands of them in"
    " every round takes most of the time. Plans and promises are the same.",
)


def cell(trace: str, label: str, data: str) -> dict[str, Any]:
    """Run one policy on one trace."""
    path = Path(data) / "chronus" / f"trace_job_Philly_{trace}.csv.gz"
    scenario = replace(read_chronus(path), options=ExecutorOptions(round_s=300.0))
    policy = make_policy(*policy_from_label(label))
    done = run(scenario, BoundPolicy(policy, Solver(work_limit=WORK_LIMIT)), policy=label)
    told = training_metrics(done).as_dict()
    out = {name: told[name] for name, *_ in SHOWN if name not in TIMES}
    spent = np.asarray(done.decide_s)
    figures = (np.median(spent), np.percentile(spent, 99), spent.max())
    return out | dict(zip(TIMES, map(float, figures), strict=True))


def write(found: Mapping[tuple[str, str], Any], out: Path) -> None:
    """Write the table of what is there."""
    head = ["trace", "policy", *(title for _, title, _, _ in SHOWN)]
    rows = [
        [trace, label, *("" if (v := found[trace, label][name]) is None else f"{v * scale:.{digits}f}"
                         for name, _, scale, digits in SHOWN)]
        for trace in TRACES for label in POLICIES if (trace, label) in found
    ]  # fmt: skip
    text = ["# Deadlines on the traces of Chronus, 960 GPUs\n", "| " + " | ".join(head) + " |"]
    text += ["|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]
    missing = [f"{t} {p}" for t in TRACES for p in POLICIES if (t, p) not in found]
    notes = [*NOTES, *([f"Not run: {', '.join(missing)}."] if missing else [])]
    text += [f"{note}\n" for note in notes]
    text.append(
        "Made by `python benchmarks/reference_deadlines.py`. Decision times are the machine's."
    )
    (out / f"{NAME}.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    with (out / f"{NAME}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main() -> int:
    """Run what is missing, and write the table after every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = os.environ.get("APPORTION_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference")
    parser.add_argument("--scratch", type=Path, default=ROOT / "runs" / "reference_deadlines")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    paths = {
        (trace, label): options.scratch / f"{trace}_{label.replace(':', '_')}.json"
        for label in POLICIES for trace in TRACES
    }  # fmt: skip
    missing = [key for key, path in paths.items() if not path.exists()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        jobs = {pool.submit(cell, *key, str(options.data.resolve())): key for key in missing}
        for count, future in enumerate(as_completed(jobs), 1):
            path = paths[jobs[future]]
            path.with_suffix(".part").write_text(json.dumps(future.result()), encoding="utf-8")
            path.with_suffix(".part").replace(path)
            sys.stderr.write(f"{count}/{len(missing)} {jobs[future]}\n")
            done = {key: json.loads(p.read_text()) for key, p in paths.items() if p.exists()}
            write(done, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
