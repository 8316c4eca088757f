"""The partial-allocation auction: most product of valuations, and hidden payments.

Source: Cole, Gkatzelis and Goel, "Mechanism design for fair division" (EC 2013), as used by Themis
(Mahajan et al., NSDI 2020). An agent keeps the part ``c_i`` of what it won, ``c_i`` = the others'
product of valuations beside it over their product without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.training.greedy import fill
from apportion.instances import Budget, Stage
from apportion.instances.columns import Floats, Ints
from apportion.solver import Budget as Deadline
from apportion.solver import Choice, ChoiceSolution, Solver, Status, solve_choice

EXACT_WINNERS = 24
"""Winners up to which each payment is an auction of its own without them; beyond, prices tell."""


@dataclass(frozen=True, eq=False)
class Bids:
    """What agents bid for bundles, each of which lies on one type.

    Parameters
    ----------
    gain
        Logarithm of the valuation of each bundle over that of nothing, minus infinity where the
        bundle is of no use, shape (a, options).
    gpus
        GPUs of each bundle, shape (a, options).
    kind
        Type that each option lies on, shape (options,).
    free
        GPUs on offer of each type, shape (k,).
    """

    gain: Floats
    gpus: Ints
    kind: Ints
    free: Ints

    def without(self, agent: int) -> Bids:
        """Leave an agent out."""
        gain, gpus = np.delete(self.gain, agent, axis=0), np.delete(self.gpus, agent, axis=0)
        return Bids(gain, gpus, self.kind, self.free)

    @property
    def choice(self) -> Choice:
        """The auction as a choice of least cost; bundles that are worse than nothing left out."""
        useful = np.isfinite(self.gain) & (self.gain > 0.0)
        return Choice(
            cost=np.where(useful, -self.gain, np.inf),
            amount=self.gpus.astype(np.float64),
            resource=self.kind,
            capacity=self.free.astype(np.float64),
            count=np.ones(int(self.gain.shape[0]), dtype=np.int64),
        )

    def greedy(self) -> Ints:
        """Take bundles by gain per GPU; option of each agent, -1 = none."""
        agents, options = self.gain.shape
        out = np.full(agents, -1, dtype=np.int64)
        left = self.free.tolist()
        agent, option = np.nonzero(self.gain > 0.0)
        by_gpu = self.gain[agent, option] / np.maximum(self.gpus[agent, option], 1)
        for at in np.lexsort((agent * options + option, -by_gpu)).tolist():
            who, what = int(agent[at]), int(option[at])
            kind, need = int(self.kind[what]), int(self.gpus[who, what])
            if out[who] < 0 and need <= left[kind]:
                out[who] = what
                left[kind] -= need
        return out


@dataclass(frozen=True, eq=False)
class Auction:
    """The outcome of an auction.

    Parameters
    ----------
    option
        Option that each agent wins, -1 = none, shape (a,).
    kept
        Part of it that each keeps, 1 for those who win nothing, shape (a,).
    value, bound
        Logarithm of the product of valuations over those of nothing, and what none exceeds, or
        None.
    status
        Of the first auction, the one without anybody left out.
    exact
        Whether all payments are those of the source; else some are bounded by prices.
    time_limited
        Whether the clock stopped a step.
    stages
        What was done.
    """

    option: Ints
    kept: Floats
    value: float
    bound: float | None
    status: str
    exact: bool
    time_limited: bool = False
    stages: tuple[Stage, ...] = ()


def hold(bids: Bids, solver: Solver, budget: Budget) -> Auction:
    """Find the most product of valuations, and what each winner pays for the harm to the others.

    Parameters
    ----------
    bids
        The agents' bids.
    solver
        Gap and back end.
    budget
        At its end the best so far is given; payments that were not computed are bounded by prices.
    """
    agents = int(bids.gain.shape[0])
    nobody = np.full(agents, -1, dtype=np.int64)
    if not agents or not (bids.gain > 0.0).any():
        return Auction(nobody, np.ones(agents), 0.0, 0.0, "OPTIMAL", True)
    start = bids.greedy()
    if budget.left_s() <= 0.0:
        value = _value(bids, start)
        return Auction(start, np.ones(agents), value, None, "FEASIBLE", False, True)
    found = _solved(bids, start, solver, budget)
    option = start if found.plan is None else _options(found.plan)
    value = _value(bids, option)
    kept, exact = _payments(bids, option, found, solver, budget)
    bound = None if found.bound is None else max(value, -found.bound)
    known = found.status in (Status.OPTIMAL, Status.FEASIBLE)
    stages = tuple(Stage(s.name, s.elapsed_s, note=s.note) for s in found.stages)
    status = found.status.name if known else "FEASIBLE"
    return Auction(option, kept, value, bound, status, exact, found.time_limited, stages)


def _solved(bids: Bids, start: Ints, solver: Solver, budget: Budget) -> ChoiceSolution:
    left_s = budget.left_s()
    deadline = Deadline.of(None if np.isinf(left_s) else max(left_s, 1e-6))
    plan = np.zeros(bids.gain.shape, dtype=np.int64)
    on = np.flatnonzero(start >= 0)
    plan[on, start[on]] = 1
    return solve_choice(bids.choice, solver, budget=deadline, incumbent=plan)


def _options(plan: Ints) -> Ints:
    return np.where(plan.any(axis=1), plan.argmax(axis=1), -1)


def _value(bids: Bids, option: Ints) -> float:
    on = np.flatnonzero(option >= 0)
    return float(bids.gain[on, option[on]].sum())


def _payments(
    bids: Bids, option: Ints, found: ChoiceSolution, solver: Solver, budget: Budget
) -> tuple[Floats, bool]:
    """Part that each winner keeps, and whether all of them are exact."""
    kept = np.ones(option.size)
    winners = np.flatnonzero(option >= 0)
    if not winners.size:
        return kept, True
    kind = bids.kind[option[winners]]
    own = bids.gain[winners, option[winners]]
    if winners.size <= EXACT_WINNERS and found.status is Status.OPTIMAL:
        for winner, gain in zip(winners.tolist(), own.tolist(), strict=True):
            if budget.left_s() <= 0.0:
                break
            rest = bids.without(winner)
            kept[winner] = _kept(rest, float(own.sum()) - gain, np.delete(option, winner),
                                 solver, budget)  # fmt: skip
        else:
            return kept, True
    if found.prices is None:
        return kept, False
    # the others gain at most what the freed GPUs are worth at the prices of the relaxation
    worth = np.abs(found.prices)[kind] * bids.gpus[winners, option[winners]]
    kept[winners] = np.exp(-np.minimum(worth, own))
    return kept, False


def _kept(rest: Bids, beside: float, option: Ints, solver: Solver, budget: Budget) -> float:
    """Others' product beside an agent over their product without it."""
    if not (rest.gain > 0.0).any():
        return 1.0
    found = _solved(rest, option, solver, budget)
    alone = beside if found.plan is None else _value(rest, _options(found.plan))
    return float(np.exp(min(0.0, beside - alone)))


def placed(order: Ints, speed: Floats, gang: Ints, free: Ints) -> Ints:
    """Give what is left to whole gangs in order, each on its fastest type with room."""
    return fill(order, np.where(speed > 0.0, -speed, np.inf), gang, free)
