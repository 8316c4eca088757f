"""Carry a Chronus trace out under one policy: deadlines missed, latency, and decision times.

python benchmarks/chronus_trace.py ../shared/data/chronus/trace_job_Philly_SLO.csv.gz
python benchmarks/chronus_trace.py TRACE --policy tiresias --jobs 3000 --spread MODEL_INFO
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

from apportion.deciding import WORK_LIMIT, BoundPolicy
from apportion.executor.training import run
from apportion.executor.training.records import Run
from apportion.formulations.training.chronus import Chronus
from apportion.instances.columns import Floats
from apportion.instances.training import ExecutorOptions, Scenario
from apportion.instances.training.chronus_trace import read_chronus
from apportion.registry import make_policy, policy_from_label
from apportion.solver import Solver


class Watched:
    """A decider that times its decisions and counts what became of the jobs."""

    def __init__(self, inner: BoundPolicy) -> None:
        self.inner = inner
        self.subscribes, self.reacts_to = inner.subscribes, inner.reacts_to
        self.accepted: set[int] = set()
        self.promised: dict[int, float] = {}
        self.notes: dict[str, int] = {}
        self.slowest: tuple[float, str] = (0.0, "")
        self.boundary_s: list[float] = []
        self.cpu_s: list[float] = []
        self.unproved = 0

    def decide(self, round_: Any, memory: Any) -> Any:
        began = time.process_time()
        decision = self.inner.decide(round_, memory)
        took = time.process_time() - began
        self.cpu_s.append(took)
        if len(self.cpu_s) % 500 == 0:
            print(f"{len(self.cpu_s)} decisions, {round_.now_s / 86400.0:.2f} days, "
                  f"{len(round_.jobs)} jobs, {sum(self.cpu_s):.0f} s", flush=True)  # fmt: skip
        if len(decision.stages) > 2:
            self.boundary_s.append(took)
        if took > self.slowest[0]:
            parts = ", ".join(f"{s.name} {s.elapsed_s:.3f} {s.note}" for s in decision.stages)
            self.slowest = (took, f"at {round_.now_s:g} s, {len(round_.jobs)} jobs: {parts}")
        if "promised_s" in decision.per_job:
            due = np.asarray(decision.per_job["promised_s"])
            rows = np.flatnonzero(due >= 0)
            codes = round_.jobs.code[rows]
            self.promised.update(zip(codes.tolist(), due[rows].tolist(), strict=True))
        self.unproved += int(np.sum(decision.per_job.get("rejected_unproved", False)))
        told = [str(text) for text in np.asarray(decision.per_job.get("why", ())).tolist() if text]
        lost = [note for note in decision.notes if " is rejected: " not in note]
        for note in (*told, *lost):
            kind = " ".join(note.split()[2:7])
            self.notes[kind] = self.notes.get(kind, 0) + 1
        return decision

    def remember(self, *told: Any) -> Any:
        return self.inner.remember(*told)

    def react(self, *told: Any) -> Any:
        return self.inner.react(*told)


def missed(scenario: Scenario, finish_s: Floats) -> Floats:
    """Part of its value that each job with deadlines lost, by the source's definition."""
    jobs, out = scenario.jobs, list[float]()
    for row in np.flatnonzero(np.diff(jobs.deadline_offsets) > 0).tolist():
        cut = slice(int(jobs.deadline_offsets[row]), int(jobs.deadline_offsets[row + 1]))
        end = finish_s[row] if finish_s[row] >= 0 else np.inf
        met = jobs.deadline_value[cut][end <= jobs.deadline_s[cut] + 1e-6]
        out.append(1.0 - (float(met[0]) / 10.0 if met.size else 0.0))
    return np.array(out)


def first_jobs(scenario: Scenario, count: int) -> Scenario:
    """Keep the jobs that were submitted first."""
    rows = np.arange(min(count, len(scenario.jobs)))
    return replace(scenario, jobs=scenario.jobs.take(rows))


def told(scenario: Scenario, done: Run, watch: Watched, took_s: float) -> None:
    """Print the figures."""
    jobs, finish = scenario.jobs, done.jobs.finish_s
    miss = missed(scenario, finish)
    best = np.flatnonzero(np.diff(jobs.deadline_offsets) == 0)
    jct = finish - jobs.arrival_s
    ms = 1e3 * np.array(watch.cpu_s)
    print(f"{scenario.name}: {len(jobs)} jobs, {took_s:.0f} s, {len(ms)} decisions, {done.stopped}")
    print(f"  miss rate {miss.mean() if miss.size else 0.0:.4f} of {miss.size} jobs with deadlines")
    if best.size:
        print(f"  best effort {jct[best].mean() / 60.0:.1f} min over {best.size} jobs")
    print(f"  mean JCT {jct.mean() / 60.0:.1f} min")
    print(
        f"  decision CPU ms p50 {np.percentile(ms, 50):.1f} p99 {np.percentile(ms, 99):.1f}"
        f" max {ms.max():.0f}; in all {ms.sum() / 1e3:.0f} s; peak"
        f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )
    if watch.boundary_s:
        lease = 1e3 * np.array(watch.boundary_s)
        print(f"  of {lease.size} boundaries p50 {np.percentile(lease, 50):.1f}"
              f" p99 {np.percentile(lease, 99):.1f}")  # fmt: skip
    if watch.promised:
        late = [row for row, due in watch.promised.items() if not 0 <= finish[row] <= due + 1e-6]
        print(f"  promised {len(watch.promised)}, broken {len(late)} {late[:5]}")
        print(f"  rejections that are not proved: {watch.unproved}")
    print(f"  slowest {watch.slowest}")
    for note, count in sorted(watch.notes.items(), key=lambda pair: -pair[1])[:6]:
        print(f"  {count} x {note}")


def main() -> None:
    """Run."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("trace")
    ask.add_argument("--policy", default="chronus", help="NAME or NAME:PARAMETER=VALUE")
    ask.add_argument("--jobs", type=int, default=10**9)
    ask.add_argument("--gpus", type=int, default=960)
    ask.add_argument("--spread", default=None, help="model_info.json: spread gangs are slower")
    asked = ask.parse_args()
    name, given = policy_from_label(asked.policy)
    if name == "chronus":
        numbers = {key: _value(key, text) for key, text in given.items()}
        policy: Any = Chronus(**numbers)
    else:
        policy = make_policy(name, given)
    scenario = read_chronus(asked.trace, model_info=asked.spread, total_gpus=asked.gpus)
    scenario = replace(first_jobs(scenario, asked.jobs), options=ExecutorOptions(round_s=300.0))
    watch = Watched(BoundPolicy(policy, Solver(work_limit=WORK_LIMIT)))
    began = time.perf_counter()
    done = run(scenario, watch, policy=asked.policy)
    told(scenario, done, watch, time.perf_counter() - began)


def _value(key: str, text: str) -> Any:
    default = getattr(Chronus(), key)
    return text == "true" if isinstance(default, bool) else type(default)(text)


if __name__ == "__main__":
    main()
