"""AlloX: the cheapest matching of waiting jobs with places in the queues of free machines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.peers.allox_matching import Matched, Queues, match
from apportion.formulations.training.peers.allox_running import free_beside, staying
from apportion.formulations.training.pinned import Pinned, pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Budget, Decision, Reason, Stage
from apportion.instances.columns import Floats, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training import TrainingRound
from apportion.solver import Solver

LEAST_LEFT = 1e-9
"""Part of a job's work that is taken as left at least: where reports were too low, the last
iteration still has a length."""


@dataclass(frozen=True)
class AlloX:
    """Least mean completion time by matching, without preemption (Le et al., EuroSys 2020).

    A job that is q-th from the last on a machine delays q jobs, itself among them, so that it
    costs ``q * duration``. Every GPU is a machine. A gang of g GPUs is matched as one job that
    takes g times as long on one of them; where all gangs are 1 this is the published problem.

    Parameters
    ----------
    alpha
        Part of the waiting jobs that take part, the oldest first; never fewer than there are free
        GPUs. Smaller is fairer to old jobs, 1 is best for the mean.
    """

    source: ClassVar[str] = (
        "AlloX (EuroSys 2020), as in Gavel's released code; see docs/systems/allox.md"
    )
    name: ClassVar[str] = "allox"
    subscribes: ClassVar[frozenset[Reason]] = frozenset()
    traits: ClassVar[frozenset[str]] = frozenset(
        {"permutation", "useless_type", "unit_homogeneous"}
    )

    alpha: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise InstanceError(f"allox.alpha = {self.alpha}: must be in (0, 1]")

    def compile(self, round_: TrainingRound, memory: Any, budget: Budget) -> AlloXProgram:
        """Find who goes on running, and who takes part in the matching."""
        return AlloXProgram(round_, pinned(round_), self.alpha)

    def remember(
        self, memory: Any, round_: TrainingRound, decision: Decision, outcome: Any
    ) -> None:
        """Keep nothing."""
        return None


@dataclass(frozen=True)
class MatchedDecision(Decision):
    """A decision with the matching behind it.

    Parameters
    ----------
    matched
        The matching, and the prices of places that prove its bound.
    """

    matched: Matched | None = None


@dataclass(frozen=True, eq=False)
class AlloXProgram:
    """A compiled round.

    Parameters
    ----------
    round_
        The round.
    held
        Leases that go on whatever is decided.
    alpha
        As in the policy.
    """

    round_: TrainingRound
    held: Pinned
    alpha: float

    @property
    def model(self) -> None:
        """There is none: a transportation problem whose arcs are made when prices ask for them."""
        return None

    @cached_property
    def running(self) -> Ints:
        """Type of each job that goes on running, shape (n,)."""
        everyone = np.ones(len(self.round_.jobs), dtype=np.bool_)
        return staying(self.round_, self.held, everyone)

    @cached_property
    def free(self) -> Ints:
        """GPUs of each type that nobody holds, shape (k,)."""
        return free_beside(self.held.free, self.running, self.round_.jobs.gang)

    @cached_property
    def rows(self) -> Ints:
        """Waiting jobs that take part, the oldest first."""
        jobs, free = self.round_.jobs, self.free
        fits = self.round_.eligible & (jobs.gang[:, None] <= free[None, :])
        waits = np.flatnonzero((self.running < 0) & self.held.open & fits.any(axis=1))
        waits = waits[np.lexsort((jobs.code[waits], jobs.arrival_s[waits]))]
        machines = int(free[fits[waits].any(axis=0)].sum())
        return waits[: max(int(self.alpha * waits.size), machines)]

    @cached_property
    def duration_s(self) -> Floats:
        """GPU-seconds each would take on each type, infinite where it cannot run, shape (m, k)."""
        jobs, rows = self.round_.jobs, self.rows
        left = np.maximum(jobs.work[rows] - jobs.work_done[rows], LEAST_LEFT * jobs.work[rows])
        fits = self.round_.eligible[rows] & (jobs.gang[rows][:, None] <= self.free[None, :])
        amount = np.broadcast_to((jobs.gang[rows] * left)[:, None], fits.shape)
        out = np.full(fits.shape, np.inf)
        return np.divide(amount, jobs.throughput_per_s[rows], out=out, where=fits)

    @cached_property
    def queues(self) -> Queues:
        """The matching problem."""
        return Queues(self.duration_s, self.free)

    def incumbent(self) -> Decision:
        """Put the longest jobs last, each where it costs least."""
        start = time.perf_counter()
        kind = self.queues.greedy()
        found = Matched(kind, self.queues.value(kind), None)
        return self._decision(found, "FEASIBLE", "incumbent", start)

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Find the cheapest matching; start the first job of every machine."""
        start = time.perf_counter()
        found = match(self.queues, budget, solver.gap)
        proved = found.gap is not None and found.gap <= max(solver.gap, 1e-9)
        stage = "incumbent" if found.bound is None else "matching"
        return self._decision(found, "OPTIMAL" if proved else "FEASIBLE", stage, start)

    def _decision(self, found: Matched, status: str, stage: str, start: float) -> Decision:
        round_, jobs, rows = self.round_, self.round_.jobs, self.rows
        kinds = np.maximum(self.running, self._first(found.kind))
        waited_s = float((round_.now_s - jobs.arrival_s[rows]).sum())
        value = found.value + waited_s
        bound = None if found.bound is None else found.bound + waited_s
        took_s = time.perf_counter() - start
        return MatchedDecision(
            joined(self.held, kinds, jobs.gang),
            status=status,
            objective=value,
            bound=bound,
            gap=found.gap,
            # nobody is stopped, and who waits goes on waiting until a GPU is free
            next_decision_s=np.inf if status == "OPTIMAL" else None,
            stages=(Stage(stage, took_s, value, bound, found.gap, answered=True),),
            notes=notes_on_hopeless(round_),
            time_limited=found.limited,
            matched=found,
        )

    def proof(self, decision: Decision) -> dict[str, Any] | None:
        """The matching, and prices of the places of each type at which its bound holds."""
        found = decision.matched if isinstance(decision, MatchedDecision) else None
        if found is None or found.prices is None:
            return None
        types = self.round_.cluster.types
        ids = self.round_.jobs.id[self.rows].tolist()
        return {
            "matching": dict(zip(ids, types[found.kind].tolist(), strict=True)),
            "prices": {
                str(name): prices.tolist()
                for name, prices in zip(types.tolist(), found.prices, strict=True)
            },
        }

    def proved(self, proof: Mapping[str, Any]) -> Decision:
        """Give the decision that a proof makes: its plan, its objective and its bound.

        Raises
        ------
        KeyError, TypeError, ValueError
            On what is not a proof for this round.
        """
        types = self.round_.cluster.types.tolist()
        ids = self.round_.jobs.id[self.rows].tolist()
        if set(proof["matching"]) != set(ids) or set(proof["prices"]) != set(types):
            raise ValueError("not of the jobs that take part, or not of all types")
        kind = np.array([types.index(proof["matching"][one]) for one in ids], dtype=np.int64)
        if not np.isfinite(self.duration_s[np.arange(kind.size), kind]).all():
            raise ValueError("a job is matched with a type it cannot run on")
        prices = tuple(np.array(proof["prices"][one], dtype=np.float64) for one in types)
        if not all(np.isfinite(one).all() and one.ndim == 1 for one in prices):
            raise ValueError("prices are not numbers")
        found = Matched(kind, self.queues.value(kind), self.queues.bound(prices), prices=prices)
        return self._decision(found, "OPTIMAL", "matching", 0.0)

    def _first(self, kind: Ints) -> Ints:
        """Type of each job that starts: on every type the shortest first, while gangs fit."""
        gang = self.round_.jobs.gang
        out = np.full(gang.size, NOWHERE, dtype=np.int64)
        if not self.rows.size:
            return out
        score = np.full((gang.size, self.free.size), np.inf)
        score[self.rows, kind] = 0.0
        own = self.duration_s[np.arange(kind.size), kind]
        return fill(self.rows[np.argsort(own, kind="stable")], score, gang, self.free)
