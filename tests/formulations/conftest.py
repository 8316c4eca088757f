"""Small rounds written down as in the specification, and an exhaustive search that knows nothing.

Everything about the cost is written here a second time, job by job, from the formulas: nothing of
``formulations`` is used, so that an error there cannot hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from apportion.formulations.training import FFT
from apportion.instances import Decision
from apportion.instances.training import Cluster, Commitments, Jobs, Outcome, TrainingRound
from apportion.solver import Budget, Solver

R = 300.0
"""Length of a round, seconds; theta is work per round, and t, a are in rounds."""

BANDWIDTH, FIXED_S = 1.25, 30.0
EPS = 1e-9


def build(
    theta: Sequence[Sequence[float]],
    W: Sequence[float],
    d: Sequence[int],
    Y: Sequence[int],
    *,
    a: Sequence[float] | None = None,
    t: float = 0.0,
    previous: Sequence[int] | None = None,
    switch: float = 0.0,
    memory_gib: Sequence[float] | None = None,
    commitments: Commitments | None = None,
    names: Sequence[str] | None = None,
    duration_s: float = R,
    **columns: Any,
) -> TrainingRound:
    """Make a round; ``switch`` is what a change of type costs, in rounds (at least 0.1)."""
    table = np.array(theta, dtype=float).reshape(len(W), len(Y))
    if switch:
        columns["state_gb"] = np.full(len(W), (switch * duration_s - FIXED_S) * BANDWIDTH)
    kinds = [f"type-{index}" for index in range(len(Y))]
    return TrainingRound(
        cluster=Cluster.uniform(
            dict(zip(kinds, Y, strict=True)),
            memory_gib=None if memory_gib is None else dict(zip(kinds, memory_gib, strict=True)),
        ),
        jobs=Jobs(
            id=[f"job-{index}" for index in range(len(W))] if names is None else names,
            gang=d,
            work=W,
            throughput_per_s=table / duration_s,
            arrival_s=np.zeros(len(W)) if a is None else np.array(a, dtype=float) * duration_s,
            previous_type=[-1] * len(W) if previous is None else previous,
            **columns,
        ),
        now_s=t * duration_s,
        duration_s=duration_s,
        commitments=commitments or Commitments(),
    )


def owing(round_: TrainingRound, rho: Sequence[float]) -> dict[str, Any]:
    """Make a memory in which each job is owed ``rho``."""
    n = len(round_.jobs)
    return {"id": round_.jobs.id, "rho": np.array(rho, dtype=float), "fair_per_s": np.zeros(n)}


@dataclass(frozen=True)
class Case:
    """A round, what its jobs are owed, and the policy's parameters that matter to its cost."""

    round_: TrainingRound
    rho: tuple[float, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def memory(self) -> dict[str, Any]:
        return owing(self.round_, self.rho)


def draw_case(
    rng: np.random.Generator, *, jobs: int = 6, types: int = 3, held: bool = True
) -> Case:
    """Draw a small round with everything that is strange but legal in it."""
    n, k = int(rng.integers(1, jobs + 1)), int(rng.integers(1, types + 1))
    theta = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0, 4.0], (n, k))
    W = rng.integers(1, 20, n).astype(float)
    d = rng.choice([1, 1, 2, 3, 4], n)
    Y = rng.integers(0, 6, k)
    a, t = rng.integers(0, 3, n).astype(float), float(rng.integers(2, 7))
    if rng.random() < 0.5:
        theta, W = theta + rng.random((n, k)) * (theta > 0), W + rng.random(n)
    rho = rng.choice([0.0, 0.0, 0.5, 2.5], n) + rng.choice([0.0, 3.0]) * rng.random(n)
    if rng.random() < 0.3:  # equal jobs
        theta[:], W[:], d[:], a[:], rho[:] = theta[0], W[0], d[0], a[0], rho[0]
    previous = rng.integers(-1, k, n)
    more: dict[str, Any] = {"work_done": W * rng.choice([0.0, 0.5, 1.2], n)}
    if rng.random() < 0.3:
        more["memory_gib"] = rng.choice([16.0, 32.0, 80.0], k)
        more["gpu_memory_gib"] = rng.choice([0.0, 20.0, 40.0, 90.0], n)
    if held:
        more |= _leases(rng, d, Y, previous, t, theta)
    options = {
        "wait_weight": float(rng.choice([1.0, 1.0, 0.0, -1.0])),
        "remaining_work": bool(rng.random() < 0.2),
        "units": str(rng.choice(["paper", "paper", "normalised"])),
        "fairness_weight": float(rng.choice([1.0, 1.0, 0.0, 2.0])),
        "switch_weight": float(rng.choice([1.0, 0.0])),
    }
    round_ = build(theta, W, d, Y, a=a, t=t, previous=previous, switch=0.5, **more)
    return Case(round_, tuple(rho.tolist()), options)


def _leases(
    rng: np.random.Generator, d: Any, Y: Any, previous: Any, t: float, theta: Any
) -> dict[str, Any]:
    """Let some jobs run that cannot be stopped, and promise GPUs to one that waits."""
    n, free = d.size, Y.copy()
    running = np.zeros(n, dtype=bool)
    for job in range(n):
        kind = previous[job]
        if kind >= 0 and free[kind] >= d[job] and rng.random() < 0.5:
            running[job] = True
            free[kind] -= d[job]
    out: dict[str, Any] = {
        "running": running,
        "held_gpus": np.where(running, d, 0),
        "preemptible": rng.random(n) < 0.8,
        "guaranteed": rng.random(n) < 0.2,
        "lease_end_s": np.where(running, (t + rng.choice([0, 1, 2], n)) * R, -1.0),
    }
    if rng.random() < 0.3:
        job = int(rng.integers(0, n))
        end, kind = (t + rng.integers(0, 2)) * R, int(rng.integers(-1, Y.size))
        if kind >= 0 and theta[job][kind] <= 0:  # promised to nobody
            kind = -1
        out["commitments"] = Commitments.of([job], [(t - 1) * R], [end], [int(d[job])], [kind])
    return out


def price(case: Case) -> np.ndarray:
    """Cost of every job on every type by section 1.5, infinite where F-C3 forbids it."""
    round_, jobs, o = case.round_, case.round_.jobs, case.options
    length = round_.duration_s
    n, k = len(jobs), round_.cluster.types.size
    gpus = [0] * k
    for node in range(round_.cluster.nodes.size):
        if round_.node_up[node]:
            gpus[int(round_.cluster.node_type[node])] += int(round_.cluster.node_gpus[node])
    cost = np.full((n, k), np.inf)
    for j, i in itertools.product(range(n), range(k)):
        theta, whole = float(jobs.throughput_per_s[j, i]) * length, float(jobs.work[j])
        d = int(jobs.gang[j])
        if theta == 0 or d > gpus[i]:
            continue
        if jobs.gpu_memory_gib[j] > round_.cluster.type_memory_gib[i]:
            continue
        W = whole
        if o.get("remaining_work"):
            W = max(whole - float(jobs.work_done[j]), 1e-9 * whole)
        waited = (round_.now_s - float(jobs.arrival_s[j])) / length
        value = o.get("wait_weight", 1.0) * waited * theta / W + d * W / theta
        before = int(jobs.previous_type[j])
        if before not in (-1, i):
            lost = FIXED_S + float(jobs.restart_s[j]) + float(jobs.state_gb[j]) / BANDWIDTH
            value += o.get("switch_weight", 1.0) * lost / length
        speed = theta / whole if o.get("units") == "normalised" else theta
        cost[j, i] = value - o.get("fairness_weight", 1.0) * case.rho[j] * speed
    return cost


@dataclass(frozen=True)
class Held:
    """Jobs a decision may not touch: job -> (type, GPUs)."""

    leases: dict[int, tuple[int, int]]
    free: np.ndarray


def untouchable(case: Case) -> Held:
    """Find the leases that go on and the reservation that is due, from the raw columns."""
    round_, jobs = case.round_, case.round_.jobs
    free = np.zeros(round_.cluster.types.size, dtype=int)
    for node in range(round_.cluster.nodes.size):
        free[int(round_.cluster.node_type[node])] += int(round_.cluster.node_gpus[node])
    leases: dict[int, tuple[int, int]] = {}
    for j in range(len(jobs)):
        sure = bool(jobs.guaranteed[j]) and jobs.lease_end_s[j] > round_.now_s
        if jobs.running[j] and (not jobs.preemptible[j] or sure):
            leases[j] = (int(jobs.previous_type[j]), int(jobs.held_gpus[j]))
            free[leases[j][0]] -= leases[j][1]
    promised = round_.commitments
    able = np.isfinite(price(case))
    for entry in range(promised.job.size):
        j, gpus = int(promised.job[entry]), int(promised.gpus[entry])
        due = promised.start_s[entry] <= round_.now_s < promised.end_s[entry]
        if not due or j in leases:
            continue
        wanted = int(promised.gpu_type[entry])
        fits = [
            i
            for i in range(free.size)
            if able[j, i] and free[i] >= max(gpus, jobs.gang[j]) and wanted in (-1, i)
        ]
        if not fits:
            continue
        fastest = max(fits, key=lambda i: (jobs.throughput_per_s[j, i], -i))
        stays = jobs.running[j] and int(jobs.previous_type[j]) in fits
        kind = int(jobs.previous_type[j]) if stays else fastest
        leases[j] = (kind, max(gpus, int(jobs.gang[j])))
        free[kind] -= leases[j][1]
    return Held(leases, free)


@dataclass(frozen=True)
class Plans:
    """Every plan that obeys F-C1 to F-C3: type of each job (-1 = waits), GPUs placed, cost."""

    kinds: np.ndarray
    placed: np.ndarray
    cost: np.ndarray
    asked: int

    @property
    def most(self) -> int:
        return int(self.placed.max())

    def best(self, mode: str) -> tuple[int, float] | None:
        """GPUs and least cost under a mode of work conservation; None where it is infeasible."""
        if mode == "none":
            at = int(np.argmin(self.cost))
            return int(self.placed[at]), float(self.cost[at])
        if mode == "hard" and self.most < self.asked:
            return None
        least = self.asked if mode == "hard" else self.most
        return self.most, float(self.cost[self.placed >= least].min())


def enumerate_plans(case: Case) -> Plans:
    """List all plans; leases that go on are part of each, with their GPUs and their cost."""
    cost, held, jobs = price(case), untouchable(case), case.round_.jobs
    n, k = cost.shape
    d = np.asarray(jobs.gang)
    ways = []
    for j in range(n):
        if j in held.leases:
            ways.append([-1])
        else:
            ways.append([-1, *(i for i in range(k) if np.isfinite(cost[j, i]))])
    kinds = np.array(list(itertools.product(*ways)), dtype=int).reshape(-1, n)
    used = np.stack([((kinds == i) * d).sum(axis=1) for i in range(k)], axis=1)
    kinds = kinds[(used <= held.free).all(axis=1)]
    own = np.where(kinds >= 0, np.take_along_axis(
        np.c_[np.zeros(n), np.where(np.isfinite(cost), cost, 0.0)].T, kinds.astype(int) + 1, axis=0
    ), 0.0)  # fmt: skip
    fixed = sum(float(cost[j, i]) for j, (i, _) in held.leases.items() if np.isfinite(cost[j, i]))
    gpus = sum(gpus for _, gpus in held.leases.values())
    for j, (i, _) in held.leases.items():
        kinds[:, j] = i
    everything = int(held.free.sum()) + gpus
    placed = ((kinds >= 0) * d).sum(axis=1)
    placed += sum(gpus - int(d[j]) for j, (_, gpus) in held.leases.items())
    return Plans(kinds, placed, own.sum(axis=1) + fixed, min(everything, int(d.sum())))


def broken_rules(case: Case, decision: Decision) -> list[str]:
    """Name the rules that a decision breaks, from the raw columns."""
    out: list[str] = []
    plan, jobs, held = decision.allocation, case.round_.jobs, untouchable(case)
    able, k = np.isfinite(price(case)), case.round_.cluster.types.size
    if len(set(plan.job.tolist())) != plan.job.size:
        out.append("F-C1: a job twice")
    used = np.zeros(k, dtype=int)
    for j, i, gpus in zip(
        plan.job.tolist(), plan.gpu_type.tolist(), plan.gpus.tolist(), strict=True
    ):
        used[i] += gpus
        if j in held.leases:
            if held.leases[j] != (i, gpus):
                out.append(f"job {j}: its lease was touched")
            continue
        if gpus != jobs.gang[j]:
            out.append(f"job {j}: {gpus} GPUs, not its gang")
        if not able[j, i]:
            out.append(f"F-C3: job {j} cannot run on type {i}")
    missing = set(held.leases) - set(plan.job.tolist())
    out += [f"job {j}: its lease was ended" for j in sorted(missing)]
    capacity = held.free.copy()
    for i, gpus in held.leases.values():
        capacity[i] += gpus
    if (used > capacity).any():
        out.append(f"F-C2: {used.tolist()} of {capacity.tolist()} GPUs used")
    return out


def types_of(case: Case, decision: Decision) -> np.ndarray:
    """Type of each job of the round, -1 = waits."""
    out = np.full(len(case.round_.jobs), -1)
    out[decision.allocation.job] = decision.allocation.gpu_type
    return out


def cost_of(case: Case, decision: Decision) -> float:
    """Cost of a decision, added up job by job from the formulas."""
    cost, plan = price(case), decision.allocation
    own = cost[plan.job, plan.gpu_type]
    return float(own[np.isfinite(own)].sum())


def decide(
    case: Case, *, gap: float = 0.0, seconds: float | None = None, **options: Any
) -> Decision:
    """Solve a round through the public face of the policy."""
    policy, budget = FFT(**{**case.options, **options}), Budget.of(seconds)
    return policy.compile(case.round_, case.memory, budget).solve(Solver(gap=gap), budget)


def served(round_: TrainingRound, work: Sequence[float]) -> Outcome:
    """Make the outcome of one whole round in which each job did so much work."""
    n = len(round_.jobs)
    return Outcome(
        round_.now_s, round_.now_s + round_.duration_s, np.array(work, dtype=float),
        np.zeros(n), np.zeros(n, dtype=bool),
    )  # fmt: skip


def chose_types(decision: Decision) -> bool:
    """Whether a reservation for any type was put on one of several before the rest was decided."""
    return any(note.startswith("reservations for any type") for note in decision.notes)


@dataclass(frozen=True)
class Lab:
    """The tools above, for tests: modules under ``tests`` cannot import one another."""

    build: Callable[..., TrainingRound] = build
    owing: Callable[..., dict[str, Any]] = owing
    case: type[Case] = Case
    draw: Callable[..., Case] = draw_case
    price: Callable[[Case], np.ndarray] = price
    untouchable: Callable[[Case], Held] = untouchable
    plans: Callable[[Case], Plans] = enumerate_plans
    broken: Callable[[Case, Decision], list[str]] = broken_rules
    types_of: Callable[[Case, Decision], np.ndarray] = types_of
    cost_of: Callable[[Case, Decision], float] = cost_of
    decide: Callable[..., Decision] = decide
    served: Callable[..., Outcome] = served
    chose: Callable[[Decision], bool] = chose_types
    round_s: float = R


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


def equal(left: float | None, right: float, *, within: float = EPS) -> bool:
    """Compare two sums of costs, relative to the larger and to 1 at least."""
    return left is not None and abs(left - right) <= within * max(1.0, abs(left), abs(right))


@pytest.fixture(scope="session")
def same() -> Callable[..., bool]:
    return equal
