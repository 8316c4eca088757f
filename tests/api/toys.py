"""Toy policies: honest ones, and one for each way to be bad."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training import FIFO, SRTF
from apportion.formulations.training.greedy import fill
from apportion.formulations.training.pinned import pinned
from apportion.formulations.training.plain import PlainProgram, joined, notes_on_hopeless
from apportion.formulations.training.running import fastest
from apportion.instances import Decision
from apportion.instances.training import Allocation, Commitments, Shares, TrainingRound


def in_order(round_: TrainingRound, order: Any, *, honour: bool = True) -> Decision:
    """Place jobs in an order, the leases that must go on first."""
    held = pinned(round_)
    rows = [row for row in order if held.open[row] and round_.eligible[row].any()]
    free = held.free if honour else round_.capacity
    kinds = fill(np.array(rows, dtype=np.int64), fastest(round_), round_.jobs.gang, free)
    if not honour:
        held = replace(held, **{name: getattr(held, name)[:0] for name in (
            "job", "gpu_type", "gpus", "lease_end_s", "guaranteed")})  # fmt: skip
    return Decision(joined(held, kinds, round_.jobs.gang), notes=notes_on_hopeless(round_))


@dataclass(frozen=True)
class Toy:
    """First rows first; declares what it is told to.

    Parameters
    ----------
    declares
        Traits.
    """

    source: ClassVar[str] = "a test"
    name: ClassVar[str] = "toy"
    subscribes: ClassVar[frozenset[str]] = frozenset()

    declares: frozenset[str] = frozenset()

    @property
    def traits(self) -> frozenset[str]:
        return self.declares

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        return in_order(round_, range(len(round_.jobs)))

    def compile(self, round_: TrainingRound, memory: Any, budget: Any) -> Any:
        return PlainProgram(lambda: self.decide(round_, memory))

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        return None


@dataclass(frozen=True)
class Overbooks(Toy):
    """Gives every job its gang."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        rows = np.flatnonzero(round_.eligible.any(axis=1))
        kinds = round_.eligible[rows].argmax(axis=1)
        plan = Allocation.of(rows, kinds, round_.jobs.gang[rows])
        return Decision(plan, notes=notes_on_hopeless(round_))


@dataclass(frozen=True)
class Fickle(Toy):
    """Turns its order round from call to call."""

    calls: ClassVar[Any] = itertools.count()

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        rows = list(range(len(round_.jobs)))
        return in_order(round_, rows[:: 1 if next(self.calls) % 2 else -1])


@dataclass(frozen=True)
class Peeks(Toy):
    """Finds the scenario on the stack and serves the truly shortest first."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        frame = sys._getframe()
        while frame is not None and "scenario" not in frame.f_locals:
            frame = frame.f_back
        true = round_.jobs.work if frame is None else frame.f_locals["scenario"].true_work
        return in_order(round_, np.argsort(true[round_.jobs.code], kind="stable").tolist())


@dataclass(frozen=True)
class ForgetsLeases(Toy):
    """Deals all GPUs out anew, whatever was promised."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        jobs = round_.jobs
        waits = [row for row in range(len(jobs)) if not jobs.running[row]]
        return in_order(round_, waits, honour=False)


@dataclass(frozen=True)
class CountsTypes(Toy):
    """Serves backwards where the number of types is even."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        rows = list(range(len(round_.jobs)))
        return in_order(round_, rows[:: 1 if round_.cluster.types.size % 2 else -1])


@dataclass(frozen=True)
class LikesSmallNumbers(Toy):
    """Passes over jobs with more than 1000 units of work, whatever a unit is."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        return in_order(round_, np.flatnonzero(round_.jobs.work <= 1000.0).tolist())


@dataclass(frozen=True)
class DislikesGpus(Toy):
    """Says that its objective falls with every GPU."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        decision = super().decide(round_, memory)
        return replace(decision, objective=-float(round_.capacity.sum()))


@dataclass(frozen=True)
class ForgetsInWriting(Toy):
    """Tells a memory that was written from one that was not."""

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        rows = list(range(len(round_.jobs)))
        written = memory is not None and memory["order"].flags.owndata is False
        return in_order(round_, rows[:: -1 if written else 1])

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        return {"order": np.arange(len(round_.jobs) + 1)}


def _fails() -> Decision:
    raise RuntimeError("the back end\nbroke down")


@dataclass(frozen=True)
class TwoWays(Toy):
    """A search and an incumbent of the test's choice; each answers from a round."""

    search: Callable[[TrainingRound], Decision] | None = None
    greedy: Callable[[TrainingRound], Decision] | None = None

    def compile(self, round_: TrainingRound, memory: Any, budget: Any) -> Any:
        return _TwoWaysProgram(self, round_)


@dataclass(frozen=True)
class _TwoWaysProgram:
    policy: TwoWays
    round_: TrainingRound
    model: Any = None

    def incumbent(self) -> Decision:
        chosen = self.policy.greedy or (lambda one: in_order(one, range(len(one.jobs))))
        return chosen(self.round_)

    def solve(self, solver: Any, budget: Any) -> Decision:
        return (self.policy.search or (lambda one: _fails()))(self.round_)


def overbooked(round_: TrainingRound) -> Decision:
    return Overbooks().decide(round_, None)


def broken(round_: TrainingRound) -> Decision:
    return _fails()


@dataclass(frozen=True)
class Promises(Toy):
    """Reserves GPUs and shows columns of every kind; notes what it was handed to remember."""

    seen: list[Decision] = field(default_factory=list)

    def decide(self, round_: TrainingRound, memory: Any) -> Decision:
        n, k = len(round_.jobs), round_.cluster.types.size
        now = round_.now_s
        return replace(
            in_order(round_, range(n)),
            status="FEASIBLE", objective=2.5, bound=2.0, gap=0.2,
            shares=Shares(np.array([f"u{i}" for i in range(n)]), np.ones(n), np.full((n, k), 0.25), np.arange(n), True),
            commitments=Commitments.of([0], [now + 300.0], [now + 900.0], [1], [-1], ["lease"]),
            carry={"plan": np.arange(3), "until": np.inf},
            next_decision_s=now + 60.0,
            per_job={
                "score": np.arange(n) / 3.0,
                "rank": np.arange(n),
                "late": np.arange(n) % 2 == 0,
                "group": np.array([f"g{i}, [b]" for i in range(n)]),
                "limit": np.r_[np.inf, np.zeros(max(0, n - 1))][:n],
            },
            time_limited=True,
        )  # fmt: skip

    def remember(self, memory: Any, round_: Any, decision: Any, outcome: Any) -> Any:
        self.seen.append(decision)
        return {"calls": 1 + (0 if memory is None else memory["calls"])}


__all__ = ["FIFO", "SRTF"]
