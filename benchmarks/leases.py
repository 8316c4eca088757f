"""Leases with deadlines: forced work beside a variable for every lease, and admission.

Usage: ``python benchmarks/leases.py [--short] [--only plans,tiny,admission] [--cap 10]
[--out FOLDER]``

CPU seconds of this process and its children, imports excluded, one thread. A method is measured
from the jobs' columns to a plan that was checked job by job. ``--cap`` is the limit of the clock
for the two models; a run that it stopped counts as what it used up. Jobs follow the statistics of
the released trace: gangs 1/2/4/8 at 86/5/5/4 percent, run times around 60 minutes in leases of
20, deadlines at 1.1 to 2.05 times the run time and up to 40 leases more, values 10/8/5/2, and GPUs
for 1/1.4 of the work over 72 leases. ``--out`` writes ``leases.md``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from solver_paths import cpu, table, used_machine, yardstick

from apportion.formulations.training.leases import (
    Admission,
    LeaseJobs,
    class_model,
    job_model,
    lease_classes,
    plan_faults,
    plan_leases,
    spread,
)
from apportion.formulations.training.leases.models import read_class_plan
from apportion.solver import Budget, Solver

HORIZON = 72
LOAD = 1.4
JOB_MODEL_UP_TO, CLASS_MODEL_UP_TO = 5000, 20_000
SAME = 1e-9


@dataclass(frozen=True)
class Case:
    """One instance."""

    name: str
    jobs: LeaseJobs
    capacity: np.ndarray


def columns(count: int, seed: int, gangs: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    """Gang, need, due and value by the law of the trace."""
    rng = np.random.default_rng(seed)
    gang = rng.choice([1, 2, 4, 8], count, p=gangs)
    minutes = np.exp(rng.normal(np.log(60), 1.25, count))
    need = np.clip(np.ceil((minutes * 1.1 + 0.5) / 20), 1, 60).astype(int)
    start = rng.random(count) * rng.choice([0, 3, 12, 40], count)
    due = np.clip(np.ceil(need * rng.uniform(1.1, 2.05, count) + start), need, HORIZON).astype(int)
    return gang, need, due, rng.choice([10, 8, 5, 2], count, p=[0.6, 0.15, 0.15, 0.1])


def case(
    count: int, seed: int = 0, *, soft: bool = False, capacity: str = "constant",
    gangs: tuple[float, ...] = (0.86, 0.05, 0.05, 0.04), gpus: int | None = None,
) -> Case:  # fmt: skip
    """Draw an instance."""
    gang, need, due, value = columns(count, seed, gangs)
    most = gpus or int(np.ceil((gang * need).sum() / LOAD / HORIZON / 8)) * 8
    free = np.full(HORIZON, most)
    if capacity == "day and night":
        free[18:36] = free[54:] = most * 7 // 10
    elif capacity == "holes":
        free -= (np.random.default_rng(seed + 7).uniform(0, 0.125, HORIZON) * most).astype(int)
    if not soft:
        return Case(f"hard, {capacity}", LeaseJobs.hard(gang, need, due, value), free)
    options = []
    for at in range(count):
        own = [(int(due[at]), 10.0)]
        for factor, worth in ((1.1, 8.0), (1.2, 5.0), (1.5, 2.0)):
            if at % 2:
                own.append((max(own[-1][0] + 1, int(np.ceil(due[at] * factor))), worth))
        options.append(own)
    return Case(f"soft, {capacity}", LeaseJobs.soft(gang, need, options), free)


@dataclass(frozen=True)
class Run:
    """One method on one instance."""

    spent_s: float
    value: float
    bound: float | None
    proved: bool

    @property
    def gap(self) -> float | None:
        """Relative distance of bound and value."""
        if self.bound is None:
            return None
        return max(0.0, self.bound - self.value) / max(1.0, abs(self.bound))

    def cells(self) -> list[str]:
        """Seconds and how it ended."""
        gap = "no bound" if self.gap is None else f"{self.gap:.1e}"
        return [f"{self.spent_s:.2f}", "proved" if self.proved and not self.gap else gap]


def by_forced_work(one: Case, gap: float, cap_s: float) -> Run:
    """Plan by forced work."""
    spent, plan = cpu(
        lambda: plan_leases(one.jobs, one.capacity, solver=Solver(gap=gap), budget=Budget.of(cap_s))
    )
    found = plan_faults(one.jobs, one.capacity, plan.option, plan.offsets, plan.lease)
    assert not found, found
    return Run(spent, plan.value, plan.bound, plan.status == "OPTIMAL")


def by_model(one: Case, gap: float, cap_s: float, *, each: bool) -> Run:
    """Solve the model with a variable for every lease, of classes or of each job."""

    def work() -> tuple[float, float | None, bool]:
        if each:
            model, classes = job_model(one.jobs, one.capacity)
        else:
            classes = lease_classes(one.jobs, one.capacity)
            model = class_model(classes)
        answer = Solver(gap=gap).solve(model, budget=Budget.of(cap_s))
        bound = answer.bounds[-1] if answer.bounds else None
        if answer.point is None:
            return 0.0, bound, False
        option, offsets, lease = spread(classes, *read_class_plan(classes, answer.point))
        found = plan_faults(one.jobs, one.capacity, option, offsets, lease)
        assert not found, found
        return answer.objective, bound, answer.status.name == "OPTIMAL"

    spent, (value, bound, proved) = cpu(work)
    return Run(spent, value, bound, proved)


def plans(sizes: list[int], cap_s: float) -> tuple[str, list[str]]:
    """Compare the three on growing instances, to 1e-3 and to the optimum."""
    head = ["jobs", "classes", "GPUs", "deadlines, GPUs", "to 1e-3 (s)", "gap", "optimum (s)",
            "gap", "value", "class model (s)", "gap", "job model (s)", "gap"]  # fmt: skip
    rows, notes, quick, whole = list[list[str]](), list[str](), {}, {}
    for count in sizes:
        for soft, capacity in (
            (False, "constant"), (False, "day and night"), (False, "holes"), (True, "constant"),
            (True, "holes"),
        ):  # fmt: skip
            one = case(count, soft=soft, capacity=capacity)
            near = by_forced_work(one, 1e-3, cap_s)
            best = by_forced_work(one, 0.0, cap_s)
            cells = [*near.cells(), *best.cells(), f"{best.value:.0f}"]
            plain = not soft and capacity == "constant"
            for most, each in ((CLASS_MODEL_UP_TO, False), (JOB_MODEL_UP_TO, True)):
                if count > most or not (plain or (count <= 200 and capacity == "constant")):
                    cells += ["not run", ""]
                    continue
                other = by_model(one, 1e-3, cap_s, each=each)
                cells += other.cells()
                assert best.bound is not None
                assert other.value <= best.bound * (1 + SAME), "a plan above our bound"
                assert other.bound is None or best.value <= other.bound * (1 + SAME)
            classes = lease_classes(one.jobs, one.capacity)
            rows.append([str(count), str(classes.count.size), str(one.capacity.max()), one.name, *cells])  # fmt: skip
            sys.stderr.write(" | ".join(rows[-1]) + "\n")
            if plain:
                quick[count], whole[count] = near, best
    for count, limit_s in ((20_000, 0.5), (100_000, 1.5)):
        if count in quick:
            run = quick[count]
            met = "met" if run.proved and run.spent_s <= limit_s else "missed"
            notes.append(f"{count} jobs to 1e-3 in {limit_s:g} CPU s: {run.spent_s:.2f} s, gap {run.gap:.1e}; {met}.")  # fmt: skip
    for count, limit_s in ((1000, 2.0), (20_000, 15.0)):
        if count in whole:
            run = whole[count]
            met = "met" if run.proved and run.spent_s <= limit_s else "missed"
            notes.append(f"{count} jobs to the proved optimum in {limit_s:g} CPU s: {run.spent_s:.2f} s; {met}.")  # fmt: skip
    notes.append(
        f"The two models are asked for a gap of 1e-3 with {cap_s:g} s of the clock; the job model"
        f" up to {JOB_MODEL_UP_TO} jobs, the class model up to {CLASS_MODEL_UP_TO}, and both on"
        " soft deadlines at 200 jobs only. Where a gap is told"
        " the run was stopped or had reached what was asked for. The cores were shared: a run that"
        " was stopped by the clock had less CPU than the limit, as its column tells."
    )
    return table(head, rows), notes


def tiny(seeds: int) -> tuple[str, list[str]]:
    """Heavy gangs on small clusters, where packing matters: always the job model's optimum."""
    head = ["GPUs", "instances", "proved optimal", "equal to the job model", "by rows alone",
            "most CPU (s)"]  # fmt: skip
    rows = list[list[str]]()
    for gpus in (8, 16, 32):
        proved = equal = rows_alone = 0
        slowest = 0.0
        for seed in range(seeds):
            one = case(14, seed, gangs=(0.4, 0.2, 0.2, 0.2), gpus=gpus)
            short = LeaseJobs.hard(
                one.jobs.gang, np.minimum(one.jobs.need, 9), np.minimum(one.jobs.due, 12),
                one.jobs.value,
            )  # fmt: skip
            few = Case("tiny", short, one.capacity[:12])
            spent, plan = cpu(
                lambda few=few: plan_leases(
                    few.jobs, few.capacity, solver=Solver(gap=0.0), budget=Budget.of(30.0)
                )
            )
            other = by_model(few, 0.0, 30.0, each=True)
            proved += plan.status == "OPTIMAL"
            equal += abs(plan.value - other.value) < SAME
            rows_alone += all(stage.name != "class model" for stage in plan.stages)
            slowest = max(slowest, spent)
        rows.append([str(gpus), str(seeds), str(proved), str(equal), str(rows_alone), f"{slowest:.2f}"])  # fmt: skip
        sys.stderr.write(" | ".join(rows[-1]) + "\n")
    return table(head, rows), []


def admission(sizes: list[int]) -> tuple[str, list[str]]:
    """Offer all jobs in turn; every accepted one is in the plan at every moment."""
    head = ["arrivals", "GPUs", "accepted", "refused", "us each", "free leases", "exchange",
            "walk", "model", "undecided"]  # fmt: skip
    rows, notes = list[list[str]](), list[str]()
    for count in sizes:
        one = case(count)
        gangs, needs, dues = (c.tolist() for c in (one.jobs.gang, one.jobs.need, one.jobs.due))
        desk, grounds = Admission(one.capacity), Counter[str]()

        def work(desk: Admission = desk, grounds: Counter[str] = grounds) -> None:
            for job in zip(gangs, needs, dues, strict=True):  # noqa: B023
                grounds[desk.offer(*job).ground] += 1

        spent, _ = cpu(work)
        gang, need, due = desk.jobs
        leases = desk.leases
        assert (leases.sum(axis=1) == need).all()
        assert (gang @ leases.astype(np.int64) <= one.capacity).all()
        assert not (leases & (np.arange(HORIZON) >= due[:, None])).any()
        each = spent / count * 1e6
        rows.append([
            str(count), str(one.capacity[0]), str(len(desk)), str(count - len(desk)), f"{each:.1f}",
            *(str(grounds[name]) for name in ("free leases", "exchange", "walk", "model",
                                              "undecided")),
        ])  # fmt: skip
        sys.stderr.write(" | ".join(rows[-1]) + "\n")
        if count == max(sizes):
            met = "met" if each <= 20.0 else "missed"
            notes.append(f"Goal: 20 us for each of {count} arrivals: {each:.1f}; {met}.")
    notes.append(
        "Refusals are proved by forced work unless the columns model or undecided say otherwise;"
        " the other columns tell how the accepted ones were proved. The plan of all accepted jobs"
        " was checked at the end."
    )
    return table(head, rows), notes


def main() -> None:
    """Measure, print, and write the page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="plans,tiny,admission")
    parser.add_argument("--cap", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cap_s = min(options.cap, 5.0) if options.short else options.cap
    by_forced_work(case(50), 0.0, 10.0)  # imports
    by_model(case(20), 0.0, 10.0, each=True)
    sizes = [200, 1000] if options.short else [200, 1000, 5000, 20_000, 100_000]
    parts = {
        "plans": ("Plans", lambda: plans(sizes, cap_s)),
        "tiny": ("Heavy gangs on small clusters", lambda: tiny(5 if options.short else 25)),
        "admission": ("Admission", lambda: admission([5000] if options.short else [5000, 100_000])),
    }
    loop, began = yardstick(), time.monotonic()
    text = "**Leases with deadlines: 72 leases, load 1.4**\n\n"
    for name in options.only.split(","):
        title, run = parts[name]
        body, notes = run()
        text += f"*{title}*\n\n{body}\n" + "".join(f"- {note}\n" for note in notes) + "\n"
    text += (
        f"{used_machine((loop + yardstick()) / 2)} {time.monotonic() - began:.0f} seconds of the"
        " clock in all.\n\nMade by `python benchmarks/leases.py --out results/reference`.\n"
    )
    sys.stdout.write(text)
    if options.out is not None:
        (options.out / "leases.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
