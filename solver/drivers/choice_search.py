"""Solve a multiple choice problem: relaxation, rounding, then a core that proves the optimum."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import numpy as np

from apportion.solver.arrays import BoolArray, FloatArray, IntArray
from apportion.solver.budget import Budget
from apportion.solver.drivers.choice import SPLIT, Choice, ChoiceSolution, ChoiceStage
from apportion.solver.drivers.choice_prices import Prices, restrict, solve_relaxation
from apportion.solver.proof.proof import relative_gap
from apportion.solver.solve import Solver
from apportion.solver.status import Status

WIDE_CORE = 20_000
"""Options above which a core is no longer small and the plain model is as good."""

CORE_ROUNDS = 16
"""Each round adds at most twice as many options as the one before, up to ``WIDE_CORE`` and more."""

LARGEST_CORE_GAP = 0.2
"""A core's value may be a thousandth of the whole: beyond this its gap is no more worth having."""

MOST_AT_ONCE = 6
"""Times as many options as asked for up to which the cut-off of the proof is taken at once."""

FIRST_CORE = 9
"""Options per resource, beyond one per group, in the first core: on FFT's rounds enough for a plan
at or near the optimum within 0.04 s, after which the cut-off is what the proof needs. 25 took 0.05
to 0.5 s, and had to be solved again with another cut-off in four of ten."""


def round_down_and_fill(choice: Choice, shares: FloatArray, regret: FloatArray) -> IntArray:
    """Keep the whole part of an LP plan and offer what is left, least regret per unit first.

    Parameters
    ----------
    choice
        The problem.
    shares
        An LP plan, shape (n, options).
    regret
        Regret of each option at the LP's prices, shape (n, options).

    Returns
    -------
    IntArray
        A plan within counts and capacities; it may miss the total.
    """
    plan = np.floor(shares + SPLIT).astype(np.int64)
    left = (choice.capacity - choice.used(plan)).tolist()
    spare = choice.count - plan.sum(axis=1)
    open_ = choice.allowed & (spare > 0)[:, None] & (choice.amount > 0)
    open_ &= choice.amount <= np.asarray(left)[choice.resource][None, :]
    groups, options = np.nonzero(open_)
    worth = choice.total is not None
    score = regret[groups, options] if worth else choice.cost[groups, options]
    if not worth:
        groups, options, score = groups[score < 0], options[score < 0], score[score < 0]
    order = np.argsort(score / choice.amount[groups, options], kind="stable")
    remaining = spare.tolist()
    for group, option in zip(groups[order].tolist(), options[order].tolist(), strict=True):
        need = float(choice.amount[group, option])
        resource = int(choice.resource[option])
        fits = int(min(remaining[group], (left[resource] + SPLIT) // need))
        if fits > 0:
            plan[group, option] += fits
            remaining[group] -= fits
            left[resource] -= fits * need
    return plan


def solve_choice(
    choice: Choice,
    solver: Solver,
    *,
    budget: Budget,
    incumbent: IntArray | None = None,
    prove: bool = True,
) -> ChoiceSolution:
    """Find a plan of least cost and prove how good it is.

    Parameters
    ----------
    choice
        The problem.
    solver
        Gap, back end, seed and work limit.
    budget
        Deadline for everything.
    incumbent
        A plan to start from, shape (n, options); an infeasible one is left aside.
    prove
        False: stop after rounding the relaxation, with the gap that it proves.

    Returns
    -------
    ChoiceSolution
        ``INFEASIBLE`` only where the total cannot be reached.
    """
    unit = choice.unit
    if unit != 1.0:
        scaled = replace(choice, cost=choice.cost / unit)
        answer = solve_choice(scaled, solver, budget=budget, incumbent=incumbent, prove=prove)
        return _in_unit(answer, unit)
    search = _Search(choice, solver, budget)
    if incumbent is not None:
        search.offer("incumbent", incumbent)
    if choice.total is not None and choice.total > choice.reach + SPLIT:
        return search.out_of_reach()
    if choice.cost.size == 0 or not choice.allowed.any():
        return search.nothing_to_choose()
    if search.relax_and_round() and prove and not search.closed():
        search.prove()
    elif search.prices is None and not budget.expired():
        search.whole("the relaxation has no usable answer")
    return search.solution()


def _in_unit(answer: ChoiceSolution, unit: float) -> ChoiceSolution:
    """Turn an answer whose costs were measured in ``unit`` back into its own."""

    def own(value: float | None) -> float | None:
        return None if value is None else value * unit

    stages = tuple(
        replace(stage, objective=own(stage.objective), bound=own(stage.bound))
        for stage in answer.stages
    )
    return replace(
        answer, objective=own(answer.objective), bound=own(answer.bound), stages=stages,
        prices=None if answer.prices is None else answer.prices * unit,
        total_price=answer.total_price * unit,
    )  # fmt: skip


def _ranked(regrets: FloatArray, place: int) -> float:
    """Regret of the option in a place of their order, or of the last one that exists."""
    place = min(regrets.size - 1, place)
    cut = float(np.partition(regrets, place)[place])
    return cut if math.isfinite(cut) else float(regrets[np.isfinite(regrets)].max())


@dataclass(eq=False)
class _Search:
    """The best plan and bound so far."""

    choice: Choice
    solver: Solver
    budget: Budget
    plan: IntArray | None = None
    value: float = math.inf
    bound: float = -math.inf
    prices: Prices | None = None
    infeasible: bool = False
    time_limited: bool = False
    stages: list[ChoiceStage] = field(default_factory=list[ChoiceStage])
    clock: float = field(default_factory=time.perf_counter)

    def offer(self, name: str, plan: IntArray | None, note: str = "") -> None:
        """Take a plan if it is feasible and better, and record the step."""
        value = None
        if plan is not None and self.choice.feasible(plan):
            value = self.choice.value(plan)
            if value < self.value:
                self.plan, self.value = plan, value
        now = time.perf_counter()
        bound = self.bound if math.isfinite(self.bound) else None
        self.stages.append(ChoiceStage(name, now - self.clock, value, bound, note))
        self.clock = now

    def scale(self) -> float:
        """Size of the sums behind the value: what rounding errors are relative to."""
        if self.plan is None:
            return 1.0
        taken = self.plan > 0
        return max(1.0, float(np.abs(self.choice.cost[taken] * self.plan[taken]).sum()))

    def closed(self) -> bool:
        """Whether the gap is proved."""
        if self.plan is None:
            return False
        if self.value - self.bound <= SPLIT * 1e-3 * self.scale():
            self.bound = self.value
        return relative_gap(self.value, self.bound) <= self.solver.gap

    def relax_and_round(self) -> bool:
        """Solve the relaxation, round it; False where it has no answer."""
        relaxed = solve_relaxation(self.choice, self.solver, self.budget)
        if relaxed is None:
            self.time_limited = self.budget.expired()
            return False
        self.prices, self.bound = relaxed.prices, relaxed.prices.bound
        self.offer("lp", None)
        plan = round_down_and_fill(self.choice, relaxed.shares, relaxed.prices.regret)
        self.offer("repair", plan)
        return True

    def prove(self) -> None:
        """Solve cores of growing regret until the bound meets the plan."""
        assert self.prices is not None
        prices, base = self.prices, self.bound
        n, width = self.choice.cost.shape
        regrets = np.concatenate((prices.regret.ravel(), prices.idle_regret))
        more = FIRST_CORE * self.choice.capacity.size
        cut = _ranked(regrets, n + more)
        slack = SPLIT * 1e-3 * self.scale()
        for _ in range(CORE_ROUNDS):
            keep = (prices.regret <= cut + slack) & self.choice.allowed
            idle = prices.idle_regret <= cut + slack
            if int(keep.sum()) > n + WIDE_CORE:
                self.whole(f"the core is wide ({int(keep.sum())} of {n * width} options)")
                return
            core_bound = self._core(keep, idle)
            if core_bound is None:
                return
            whole = bool((keep == self.choice.allowed).all() and idle.all())
            self.infeasible = whole and core_bound == math.inf
            outside = math.inf if whole else base + cut
            self.bound = max(self.bound, min(core_bound, outside, self.value))
            if math.isfinite(self.bound):
                self.stages[-1] = replace(self.stages[-1], bound=self.bound)
            if self.closed() or whole or self.time_limited:
                return
            inside = int((regrets <= cut + slack).sum())
            need = (self.value - base) * (1.0 + 1e-7)
            few = int((regrets <= need).sum()) <= n + MOST_AT_ONCE * more
            wider = need if few else min(need, _ranked(regrets, inside + more))
            more *= 2
            # all regrets may be zero, so that the cut-off must rise whatever their ranks say
            cut = max(wider, cut + (slack if self.plan is not None else 1e3 * slack))
        self.whole(f"{CORE_ROUNDS} cores did not close the proof")

    def _core(self, keep: BoolArray, idle: BoolArray) -> float | None:
        """Solve one core; give its bound, infinite when it has no plan, None when stopped."""
        part = restrict(self.choice, keep, idle, "choice-core", integer=True, prices=self.prices)
        note = f"{part.model.column_count} options of {self.choice.cost.shape[0]} groups"
        if part.model.column_count == 0:
            self.offer("core", part.fixed, note)
            return self.choice.value(part.fixed) if self.choice.feasible(part.fixed) else math.inf
        gap = self._core_gap(part.left_out)
        answer = replace(self.solver, gap=gap).solve(part.model, budget=self.budget)
        self.time_limited = answer.time_limited
        self.offer("core", None if answer.point is None else part.plan(answer.point), note)
        if answer.status is Status.INFEASIBLE:
            return math.inf
        return None if answer.bound is None else answer.bound + part.left_out

    def _core_gap(self, left_out: float) -> float:
        """Gap of a core that is half that of the whole, whose value holds what is left out too."""
        if not math.isfinite(self.value):
            return 0.0
        own = abs(self.value - left_out)
        whole = 0.5 * self.solver.gap * abs(self.value)
        return min(LARGEST_CORE_GAP, whole / own) if own > 0.0 else self.solver.gap

    def whole(self, note: str) -> None:
        """Hand the whole problem over as a plain model."""
        everything = np.ones(self.choice.cost.shape[0], dtype=np.bool_)
        part = restrict(self.choice, self.choice.allowed, everything, "choice", integer=True)
        start = None if self.plan is None else self.plan[part.groups, part.options]
        answer = self.solver.solve(part.model, budget=self.budget, warm_start=start)
        self.time_limited = answer.time_limited
        if answer.bound is not None:
            self.bound = max(self.bound, answer.bound + part.left_out)
        self.infeasible = answer.status is Status.INFEASIBLE
        self.offer("milp", None if answer.point is None else part.plan(answer.point), note)
        self.closed()

    def out_of_reach(self) -> ChoiceSolution:
        """Answer where the total is more than the capacities or the copies can draw."""
        self.infeasible = True
        self.offer("reach", None, f"{self.choice.total:g} of at most {self.choice.reach:g}")
        return self.solution()

    def nothing_to_choose(self) -> ChoiceSolution:
        """Answer where no option is allowed: everybody stays idle."""
        plan = np.zeros(self.choice.cost.shape, dtype=np.int64)
        self.infeasible = not self.choice.feasible(plan)
        self.bound = 0.0
        self.offer("idle", plan)
        return self.solution()

    def solution(self) -> ChoiceSolution:
        """Sum up."""
        if self.plan is None:
            status = Status.INFEASIBLE if self.infeasible else Status.NO_SOLUTION
        else:
            status = Status.OPTIMAL if self.closed() else Status.FEASIBLE
        return ChoiceSolution(
            status=status,
            plan=self.plan,
            objective=None if self.plan is None else self.value,
            bound=self.bound if math.isfinite(self.bound) else None,
            prices=None if self.prices is None else self.prices.resource,
            total_price=0.0 if self.prices is None else self.prices.total,
            stages=tuple(self.stages),
            time_limited=self.time_limited,
        )
