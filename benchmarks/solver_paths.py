"""Whole paths from NumPy columns to a checked answer: ours, PuLP, cvxpy and scipy in one run.

Usage: ``python benchmarks/solver_paths.py [--only abcd] [--short] [--cap 60] [--out FOLDER]``

a  contended max-min LP, 6 types, jobs all different: ours is ``solve_max_min``
b  choice of one of 20 configurations, MILP to gap 1e-6: ours is ``solve_choice``
c  leases with deadlines, MILP to gap 1e-3, one binary per job and lease on their side: ours is
   ``plan_leases``, and in a row of its own the same MILP by ``Solver("auto")``
d  20 rounds of (a), 5 % of the jobs new in each: ours starts from the prices of the round before

CPU seconds of this process and its children, building included on all sides, imports excluded;
the median of three runs, one run where it takes more than ``ONCE_FROM_S``. A path that is stopped
by the cap, in seconds of the clock, is shown as ``>`` with the CPU seconds that it used. Instances
are drawn from ``--seed``; the laws are in ``max_min_jobs``, ``configurations`` and ``leases``. The
settings of our drivers were chosen on seeds 0 to 2, the table is of another one.
Every optimum is checked against ours: LPs to 1e-6, MILPs within the gap. CLARABEL solves no MILPs,
so that cvxpy uses HiGHS in (b) and (c). ``--out`` writes ``solver_paths.md``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_matrix, csr_matrix, hstack, vstack

from apportion.formulations.training.leases import LeaseJobs, plan_leases
from apportion.solver import (
    Budget,
    Choice,
    ModelBuilder,
    Sharing,
    Solver,
    Status,
    solve_choice,
    solve_max_min,
)

TYPES = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
"""Part of the GPUs that each type has."""

LOAD = 5.0
"""GPUs asked for, in parts of those there are: contended."""

ROUNDS, CHANGED = 20, 0.05
ONCE_FROM_S = 4.0
REPEATS = 3
NO_LIMIT = Budget.of(None)

Columns = dict[str, np.ndarray]


def spent_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call with its children, and what it returned."""
    start = spent_s()
    out = work()
    return spent_s() - start, out


def yardstick() -> float:
    """CPU seconds of a plain loop, so that runs on a busy or another machine can be compared."""
    began, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number & 7
    return time.process_time() - began


def used_machine(loop_s: float) -> str:
    """One line on the machine."""
    return (
        f"{os.cpu_count()} cores; a loop of ten million additions took {loop_s:.2f} CPU seconds"
        " beside it."
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """Give a Markdown table."""
    lines = [head, [":--"] + ["--:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


class StoppedError(Exception):
    """A path that the cap stopped."""


class WrongError(Exception):
    """A path whose answer is not the optimum."""


def max_min_jobs(jobs: int, seed: int) -> Columns:
    """Draw jobs that are all different; levels are in parts of an equal share, over weights."""
    rng = np.random.default_rng([seed, jobs])
    speed = np.linspace(1.0, 4.0, TYPES.size) ** rng.uniform(0.2, 1.3, (jobs, 1))
    speed = speed * np.exp(rng.normal(0.0, 0.1, speed.shape))
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], jobs, p=[0.6, 0.2, 0.15, 0.05])
    capacity = np.round(gang.sum() / LOAD * TYPES)
    weight = rng.choice([1.0, 2.0, 4.0], jobs, p=[0.7, 0.2, 0.1])
    scale = 1.0 / (weight * (speed @ (capacity / capacity.sum())))
    return {"speed": speed, "gang": gang, "capacity": capacity, "scale": scale}


def changing_rounds(jobs: int, rounds: int, seed: int) -> list[Columns]:
    """Draw rounds in each of which one job in twenty is another one; capacities stay."""
    rng = np.random.default_rng([3, seed, jobs])
    all_rounds = [max_min_jobs(jobs, seed)]
    for number in range(1, rounds):
        last, fresh = all_rounds[-1], max_min_jobs(jobs, 1000 + seed * rounds + number)
        new = rng.random(jobs) < CHANGED
        mixed = {key: last[key].copy() for key in ("speed", "gang", "scale")}
        for key, column in mixed.items():
            column[new] = fresh[key][new]
        all_rounds.append({**mixed, "capacity": last["capacity"]})
    return all_rounds


def configurations(jobs: int, seed: int) -> Columns:
    """Draw jobs that take one of 20 configurations, or none; whole-number values."""
    rng = np.random.default_rng([1, seed, jobs])
    kind, size = np.divmod(np.arange(20), 4)
    amount = 2.0**size
    fast = rng.uniform(0.5, 2.0, (jobs, 5)) * np.array([1.0, 1.3, 1.7, 2.2, 3.0])
    power = rng.uniform(0.5, 0.95, (jobs, 1))
    value = np.rint(100.0 * fast[:, kind] * amount**power) + 1.0
    return {"value": value, "kind": kind, "amount": amount, "capacity": np.full(5, jobs // 4 + 1.0)}


def leases(jobs: int, count: int, seed: int) -> Columns:
    """Draw jobs that need some leases before a deadline, or none; overload 1.4."""
    rng = np.random.default_rng([2, seed, jobs])
    gang = rng.choice([1.0, 2.0, 4.0, 8.0], jobs, p=[0.5, 0.25, 0.15, 0.1])
    need = rng.integers(1, count // 4 + 1, jobs)
    deadline = np.minimum(count, need + rng.integers(0, count, jobs))
    value = np.round(gang * need * rng.uniform(0.5, 2.0, jobs), 3)
    capacity = np.full(count, np.floor(float(gang @ need) / (1.4 * count)))
    return {"gang": gang, "need": need, "deadline": deadline, "value": value, "capacity": capacity}


def max_min_by_us(data: Columns, prices: Any = None) -> tuple[float, Any]:
    """Build, solve and check; also the prices."""
    found = solve_max_min(Sharing(**data), budget=NO_LIMIT, prices=prices)
    assert found.bound is not None
    assert found.bound - found.level <= 1e-6 * found.level, "no proof"
    assert found.excess <= 1e-6
    return found.level, found.prices


def max_min_by_scipy(data: Columns, cap_s: float, method: str) -> float:
    """The LP in sparse blocks through linprog."""
    jobs, types = data["speed"].shape
    job, kind = np.repeat(np.arange(jobs), types), np.tile(np.arange(types), jobs)
    column = np.arange(jobs * types)
    one = csr_matrix((np.ones(column.size), (job, column)))
    load = csr_matrix((data["gang"][job], (kind, column)))
    earn = csr_matrix((-(data["scale"][:, None] * data["speed"]).ravel(), (job, column)))
    level = csr_matrix(np.r_[np.zeros(jobs + types), np.ones(jobs)][:, None])
    side = np.r_[np.ones(jobs), data["capacity"], np.zeros(jobs)]
    cost = np.r_[np.zeros(column.size), -1.0]
    matrix = hstack([vstack([one, load, earn]), level]).tocsc()
    answer = linprog(cost, A_ub=matrix, b_ub=side, method=method, options={"time_limit": cap_s})
    if answer.status == 1:
        raise StoppedError
    x = answer.x[:-1].reshape(jobs, types)
    _check(Sharing(**data).excess(x) <= 1e-6)
    return float((data["scale"] * (data["speed"] * x).sum(axis=1)).min())


def max_min_by_cvxpy(data: Columns, cap_s: float) -> float:
    """The LP in whole-array expressions through cvxpy with CLARABEL."""
    import cvxpy as cp

    x, level = cp.Variable(data["speed"].shape, nonneg=True), cp.Variable()
    earned = cp.sum(cp.multiply(data["scale"][:, None] * data["speed"], x), axis=1)
    rules = [cp.sum(x, axis=1) <= 1, data["gang"] @ x <= data["capacity"], earned >= level]
    problem = cp.Problem(cp.Maximize(level), rules)
    problem.solve(solver=cp.CLARABEL, time_limit=cap_s)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise StoppedError
    _check(Sharing(**data).excess(x.value) <= 1e-6)
    return float((data["scale"] * (data["speed"] * x.value).sum(axis=1)).min())


def max_min_by_pulp(data: Columns, cap_s: float) -> float:
    """The LP in PuLP's ordinary expressions with CBC."""
    import pulp

    jobs, types = data["speed"].shape
    began = time.monotonic()
    earn = (data["scale"][:, None] * data["speed"]).tolist()
    gang, problem = data["gang"].tolist(), pulp.LpProblem("max_min", pulp.LpMaximize)
    x = [[pulp.LpVariable(f"x_{j}_{i}", 0) for i in range(types)] for j in range(jobs)]
    level = pulp.LpVariable("level", 0)
    problem += level
    for j in range(jobs):
        problem += pulp.lpSum(x[j]) <= 1
        problem += pulp.LpAffineExpression([*zip(x[j], earn[j], strict=True), (level, -1)]) >= 0
    for i, room in enumerate(data["capacity"].tolist()):
        problem += pulp.LpAffineExpression((x[j][i], gang[j]) for j in range(jobs)) <= room
    left_s = max(1.0, cap_s - (time.monotonic() - began))
    problem.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=left_s))
    if problem.sol_status != pulp.LpSolutionOptimal:
        raise StoppedError
    found = np.array([[v.value() for v in row] for row in x], dtype=float)
    _check(Sharing(**data).excess(found) <= 1e-5)
    return float((data["scale"] * (data["speed"] * found).sum(axis=1)).min())


@dataclass(frozen=True)
class Milp:
    """A MILP of binaries as sparse arrays, to be maximised: what our competitors are given."""

    value: np.ndarray
    matrix: csr_matrix
    lower: np.ndarray
    upper: np.ndarray
    gap: float

    def checked(self, x: np.ndarray) -> float:
        """Check a point on the data; give its value."""
        x = np.rint(x)
        rows = self.matrix @ x
        _check(bool((rows <= self.upper + 1e-6).all() and (rows >= self.lower - 1e-6).all()))
        return float(self.value @ x)


def choice_milp(data: Columns, gap: float) -> Milp:
    """One binary per job and configuration."""
    jobs, width = data["value"].shape
    column = np.arange(jobs * width)
    job, option = np.divmod(column, width)
    row = np.r_[job, jobs + data["kind"][option]]
    entry = np.r_[np.ones(column.size), data["amount"][option]]
    upper = np.r_[np.ones(jobs), data["capacity"]]
    matrix = coo_matrix((entry, (row, np.r_[column, column]))).tocsr()
    return Milp(data["value"].ravel(), matrix, np.full(upper.size, -np.inf), upper, gap)


def lease_entries(data: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Job and lease of each binary: the leases before the job's deadline."""
    return np.nonzero(np.arange(data["capacity"].size)[None, :] < data["deadline"][:, None])


def lease_milp(data: Columns, gap: float) -> Milp:
    """Binaries for jobs that are admitted, then one per job and lease before its deadline."""
    jobs, count = data["gang"].size, data["capacity"].size
    job, lease = lease_entries(data)
    admit, column = np.arange(jobs), jobs + np.arange(job.size)
    row = np.r_[job, admit, jobs + lease]
    entry = np.r_[np.ones(job.size), -data["need"].astype(float), data["gang"][job]]
    matrix = coo_matrix((entry, (row, np.r_[column, admit, column]))).tocsr()
    lower = np.r_[np.zeros(jobs), np.full(count, -np.inf)]
    upper = np.r_[np.zeros(jobs), data["capacity"]]
    return Milp(np.r_[data["value"], np.zeros(job.size)], matrix, lower, upper, gap)


def milp_by_scipy(build: Callable[[], Milp], cap_s: float) -> float:
    """Through scipy.optimize.milp."""
    model = build()
    answer = milp(
        -model.value, integrality=np.ones(model.value.size), bounds=Bounds(0, 1),
        constraints=LinearConstraint(model.matrix, model.lower, model.upper),
        options={"time_limit": cap_s, "mip_rel_gap": model.gap},
    )  # fmt: skip
    if answer.status != 0:
        raise StoppedError
    return model.checked(answer.x)


def milp_by_cvxpy(build: Callable[[], Milp], cap_s: float) -> float:
    """Through cvxpy with HiGHS."""
    import cvxpy as cp

    model = build()
    x = cp.Variable(model.value.size, boolean=True)
    low = np.isfinite(model.lower)
    rules = [model.matrix @ x <= model.upper]
    rules += [model.matrix[low] @ x >= model.lower[low]] if low.any() else []
    problem = cp.Problem(cp.Maximize(model.value @ x), rules)
    problem.solve(solver=cp.HIGHS, time_limit=cap_s, mip_rel_gap=model.gap)
    if problem.status != "optimal":
        raise StoppedError
    return model.checked(x.value)


def milp_by_pulp(build: Callable[[], Milp], cap_s: float) -> float:
    """Through PuLP with CBC."""
    import pulp

    began, model = time.monotonic(), build()
    problem = pulp.LpProblem("milp", pulp.LpMaximize)
    x = [pulp.LpVariable(f"x_{j}", cat="Binary") for j in range(model.value.size)]
    problem += pulp.LpAffineExpression(zip(x, model.value.tolist(), strict=True))
    start, index, entry = (part.tolist() for part in (
        model.matrix.indptr, model.matrix.indices, model.matrix.data))  # fmt: skip
    for row, (low, high) in enumerate(zip(model.lower, model.upper, strict=True)):
        places = range(start[row], start[row + 1])
        left = pulp.LpAffineExpression((x[index[p]], entry[p]) for p in places)
        problem += left == float(high) if low == high else left <= float(high)
    left_s = max(1.0, cap_s - (time.monotonic() - began))
    problem.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=left_s, gapRel=model.gap))
    if problem.sol_status != pulp.LpSolutionOptimal:
        raise StoppedError
    return model.checked(np.array([v.value() for v in x], dtype=float))


def choice_by_us(data: Columns, gap: float) -> float:
    """The choice by its own driver."""
    jobs = data["value"].shape[0]
    choice = Choice(
        -data["value"], np.broadcast_to(data["amount"], data["value"].shape), data["kind"],
        data["capacity"], np.ones(jobs, dtype=np.int64),
    )  # fmt: skip
    answer = solve_choice(choice, Solver(gap=gap), budget=NO_LIMIT)
    assert answer.status is Status.OPTIMAL
    assert answer.plan is not None
    assert choice.feasible(answer.plan)
    return -choice.value(answer.plan)


def leases_by_us(data: Columns, gap: float, cap_s: float) -> float:
    """Forced work, and leases laid from it."""
    jobs = LeaseJobs.hard(data["gang"], data["need"], data["deadline"], data["value"])
    plan = plan_leases(jobs, data["capacity"], solver=Solver(gap=gap), budget=Budget.of(cap_s))
    if plan.status != Status.OPTIMAL.name:
        raise StoppedError
    return float(plan.value)


def lease_milp_by_us(data: Columns, gap: float, cap_s: float) -> float:
    """The lease MILP by blocks, and whatever ``auto`` means for it."""
    jobs, count = data["gang"].size, data["capacity"].size
    job, lease = lease_entries(data)
    builder = ModelBuilder("leases")
    admit = builder.columns("admit", jobs, integer=True)
    x = builder.columns("run", job.size, integer=True)
    builder.rows(
        "need", jobs, row=np.r_[job, np.arange(jobs)], column=np.r_[x, admit],
        value=np.r_[np.ones(job.size), -data["need"]], lower=0.0, upper=0.0,
    )  # fmt: skip
    builder.rows(
        "capacity", count, row=lease, column=x, value=data["gang"][job], upper=data["capacity"]
    )
    builder.objective("value", column=admit, value=data["value"], maximise=True)
    answer = Solver(gap=gap).solve(builder.build(), budget=Budget.of(cap_s))
    if answer.status is not Status.OPTIMAL:
        raise StoppedError
    assert answer.objective is not None
    return answer.objective


def _check(holds: bool) -> None:
    if not holds:
        raise WrongError("the point breaks a rule")


@dataclass
class Case:
    """One row of the table: our path, theirs, and how far apart optima may be."""

    name: str
    goal: float
    ours: Callable[[], float]
    theirs: dict[str, Callable[[], float]]
    apart: float = 1e-6
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def run(self) -> None:
        """Measure all paths; ours first, whose optimum the others must have."""
        self.seconds["ours"], value = self._measured("ours", self.ours)
        for name, path in self.theirs.items():
            self.seconds[name], other = self._measured(name, path)
            if value is not None and other is not None:
                size = max(abs(value), abs(other))
                assert abs(value - other) <= self.apart * size, (self.name, name, value, other)

    def _measured(self, name: str, path: Callable[[], float]) -> tuple[float, float | None]:
        spent, value = list[float](), None
        while not spent or (len(spent) < REPEATS and spent[0] < ONCE_FROM_S):
            start = spent_s()
            try:
                value = path()
            except StoppedError:
                self.notes[name] = ">"
                spent = [spent_s() - start]
                break
            except ImportError:
                self.notes[name] = "absent"
                return float("nan"), None
            except WrongError as fault:
                self.notes[name] = f"wrong: {fault}"
                return float("nan"), None
            spent.append(spent_s() - start)
        return statistics.median(spent), value

    @property
    def best(self) -> float:
        """Seconds of the fastest of the others; a stopped one counts as what it used."""
        return float(np.nanmin([self.seconds[name] for name in self.theirs]))

    def cells(self, names: list[str]) -> list[str]:
        """Cells of the table."""
        return [self.name, *(self._cell(name) for name in ("ours", *names)),
                f"{self.best / self.seconds['ours']:.1f}"]  # fmt: skip

    def _cell(self, name: str) -> str:
        note = self.notes.get(name, "")
        if name not in self.seconds or (note and note != ">"):
            return note or "-"
        return f"{note}{self.seconds[name]:.3g}"

    def verdict(self) -> str:
        """How the goal was met."""
        ratio = self.best / self.seconds["ours"]
        if "ours" in self.notes:
            return f"{self.name}: ours was stopped by the cap"
        stopped = all(
            self.notes.get(name) for name in self.theirs if self.seconds[name] <= self.best
        )
        least = "at least " if stopped else ""
        missed = f"MISSED by a factor of {self.goal / ratio:.2f}"
        met = "met" if ratio >= self.goal else "not decided by this cap" if stopped else missed
        return (
            f"{self.name}: {least}{ratio:.1f} times faster than the best of them, goal"
            f" {self.goal:g}: {met}"
        )


def cases(only: str, short: bool, cap_s: float, seed: int) -> list[Case]:
    """Draw all instances, before anything is measured."""
    found = list[Case]()
    if "a" in only:
        for jobs in (256, 1024) if short else (1024, 4096, 16384):
            data = max_min_jobs(jobs, seed)
            found.append(
                _max_min_case(f"a {jobs} x 6", [data], 5.0 if jobs == 16384 else 1.0, cap_s)
            )
    if "b" in only:
        for jobs in (50, 200) if short else (200, 1000, 5000):
            found.append(_choice_case(jobs, cap_s, seed))
    if "c" in only:
        for jobs, count in ((30, 8), (50, 12)) if short else ((200, 24), (800, 48)):
            found.append(_lease_case(jobs, count, cap_s, seed))
        found.append(_lease_case(*((30, 8) if short else (200, 24)), cap_s, seed, as_milp=True))
    if "d" in only:
        jobs, rounds = (700, 3) if short else (4096, ROUNDS)
        data = changing_rounds(jobs, rounds, seed)
        found.append(_max_min_case(f"d {rounds} rounds of {jobs} x 6", data, 5.0, cap_s))
    return found


def _max_min_case(name: str, rounds: list[Columns], goal: float, cap_s: float) -> Case:
    def ours() -> float:
        total, prices = 0.0, None
        for data in rounds:
            level, prices = max_min_by_us(data, prices)
            total += level
        return total

    def each(path: Callable[[Columns, float], float]) -> Callable[[], float]:
        def all_rounds() -> float:
            began, total = time.monotonic(), 0.0
            for data in rounds:
                left_s = cap_s - (time.monotonic() - began)
                if left_s <= 0.0:
                    raise StoppedError
                total += path(data, left_s)
            return total

        return all_rounds

    theirs = {
        "PuLP": each(max_min_by_pulp),
        "cvxpy": each(max_min_by_cvxpy),
        "scipy": each(lambda data, cap: max_min_by_scipy(data, cap, "highs")),
        "scipy ipm": each(lambda data, cap: max_min_by_scipy(data, cap, "highs-ipm")),
    }
    return Case(name, goal, ours, theirs)


def _milps(build: Callable[[], Milp], cap_s: float) -> dict[str, Callable[[], float]]:
    return {
        "PuLP": lambda: milp_by_pulp(build, cap_s),
        "cvxpy": lambda: milp_by_cvxpy(build, cap_s),
        "scipy": lambda: milp_by_scipy(build, cap_s),
    }


def _choice_case(jobs: int, cap_s: float, seed: int) -> Case:
    data, gap = configurations(jobs, seed), 1e-6
    theirs = _milps(lambda: choice_milp(data, gap), cap_s)
    return Case(f"b {jobs} x 20", 1.0, lambda: choice_by_us(data, gap), theirs, 2 * gap)


def _lease_case(jobs: int, count: int, cap_s: float, seed: int, *, as_milp: bool = False) -> Case:
    data, gap = leases(jobs, count, seed), 1e-3
    ours = lease_milp_by_us if as_milp else leases_by_us
    theirs = _milps(lambda: lease_milp(data, gap), cap_s)
    name = f"c {jobs} x {count}" + (", the same MILP" if as_milp else "")
    return Case(name, 1.0, lambda: ours(data, gap, cap_s), theirs, 2 * gap)


def main() -> None:
    """Measure, print, and write the table where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="abcd", help="letters of cases")
    parser.add_argument("--short", action="store_true", help="small instances, to see that it runs")
    parser.add_argument("--cap", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for case in (_max_min_case("", [max_min_jobs(700, 1)], 1.0, 9.0), _choice_case(9, 9.0, 1)):
        case.run()  # imports
    text, loop, done = (
        "",
        yardstick(),
        cases(options.only, options.short, options.cap, options.seed),
    )
    names = ["PuLP", "cvxpy", "scipy", "scipy ipm"]
    for place, case in enumerate(done):
        case.run()
        sys.stderr.write(" | ".join(case.cells(names)) + "\n")
        text = _text(done[: place + 1], names, (loop + yardstick()) / 2, options)
        if options.out is not None:
            # after every case, since the whole takes many minutes
            (options.out / "solver_paths.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def _text(done: list[Case], names: list[str], loop_s: float, options: argparse.Namespace) -> str:
    head = ["case", "ours", "PuLP + CBC", "cvxpy", "scipy", "scipy ipm", "best of them / ours"]
    absent = sorted(
        {name for case in done for name, note in case.notes.items() if note == "absent"}
    )
    notes = [case.verdict() for case in done]
    notes += [f"{name} is not installed: its column is empty" for name in absent]
    notes += [
        "CPU seconds of the process and its children from NumPy columns to a checked answer, the"
        f" median of {REPEATS} runs, of one where it takes over {ONCE_FROM_S:g} s; > where the cap"
        f" of {options.cap:g} s of the clock stopped a path, with the seconds that it had used",
        "a and d: cvxpy with CLARABEL, scipy with linprog by HiGHS' own choice and by interior"
        " point; b (gap 1e-6) and c (gap 1e-3): cvxpy with HiGHS, scipy with milp",
        "a and d: all have the same level to 1e-6, proved by our own bound; b and c: values differ"
        " by no more than two gaps",
    ]
    return (
        "**Whole paths of the solver room beside PuLP, cvxpy and scipy**\n\n"
        + table(head, [case.cells(names) for case in done])
        + "\n"
        + "".join(f"- {note}.\n" for note in notes)
        + f"\n{used_machine(loop_s)}\n\nMade by `python benchmarks/solver_paths.py --out results/reference`.\n"
    )


if __name__ == "__main__":
    main()
