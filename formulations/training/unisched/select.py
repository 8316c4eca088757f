"""Two passes: the most value of deadlines first, then the most reward that leaves it as it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from apportion.formulations.training.leases import LeaseJobs, plan_leases
from apportion.formulations.training.leases.realise import LeaseColumns, realise
from apportion.formulations.training.unisched.demand import BestEffort, SloJobs
from apportion.formulations.training.unisched.first_lease import emptied, forced_now
from apportion.formulations.training.unisched.latest_fit import with_best_effort, with_more
from apportion.formulations.training.unisched.model import Selector, bucket_edges, floor_of
from apportion.formulations.training.unisched.plan import NONE, SAME, Plan, better, plan_faults
from apportion.instances import Stage
from apportion.instances.columns import Bools, Floats, Ints
from apportion.solver import Budget, Solution, Solver, Status
from apportion.solver.tolerances import PROOF

MOST_SLOTS = 20_000
"""Columns of leases up to which the model is asked lease by lease: it takes seconds there."""

LEASE_COST = 1e-6
"""Cost of a GPU-lease: of plans that are otherwise equal the one with fewer GPUs is taken."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What was selected and what is proved of it.

    Attributes
    ----------
    plan
        The plan.
    value, reward
        What it is worth in both passes.
    value_bound
        What no plan that keeps the same promises can earn; None where nothing was proved.
    reward_bound
        What the reward cannot pass while the value is what it is; None likewise.
    gap
        The larger of both relative gaps; None if one is not known.
    status
        ``"OPTIMAL"`` (both passes proved), ``"FEASIBLE"``, or ``"NO_SOLUTION"`` where no search
        gave a plan and the greedy one answers.
    given_up
        Accepted jobs that are not in the plan, rising.
    stages
        What was done.
    time_limited
        Whether the clock stopped a search.
    """

    plan: Plan
    value: float
    reward: float
    value_bound: float | None
    reward_bound: float | None
    gap: float | None
    status: str
    given_up: Ints
    stages: tuple[Stage, ...] = ()
    time_limited: bool = False


def select(
    slo: SloJobs,
    best_effort: BestEffort,
    capacity: Ints,
    start: Plan,
    *,
    solver: Solver,
    budget: Budget,
    lease_cost: float = LEASE_COST,
    most_slots: int = MOST_SLOTS,
) -> Selection:
    """Select configurations, deadlines and leases.

    Parameters
    ----------
    slo, best_effort
        The jobs.
    capacity
        GPUs of each type in each lease, shape (k, T).
    start
        A plan to begin with; the answer is never worse.
    solver, budget
        Back end, the gap at which a pass counts as optimal, and the deadline.
    lease_cost
        Cost of a GPU for one lease.
    most_slots
        Columns of leases from which on time is cut into buckets of growing width.
    """
    return _Search(slo, best_effort, capacity, solver, budget, lease_cost, start, most_slots).run()


@dataclass(eq=False)
class _Search:
    """State of a selection."""

    slo: SloJobs
    best_effort: BestEffort
    capacity: Ints
    solver: Solver
    budget: Budget
    lease_cost: float
    best: Plan
    most_slots: int
    stages: list[Stage] = field(default_factory=list[Stage])
    time_limited: bool = False
    failed: bool = False
    bounds: list[float | None] = field(default_factory=lambda: [None, None])

    def run(self) -> Selection:
        """Keep the promises, maximise value, then reward."""
        started = time.perf_counter()
        self.must = self.slo.must.copy()
        self.selector = self._cut()
        self._told("latest fit", started, None)
        if self.budget.expired():
            self.time_limited = True
            return self._selected()
        if (self.must & (self.best.configuration < 0)).any():
            self._keep_promises()
        # a promise that is not in the best plan is given up; it may still be planned anew
        self.must &= self.best.configuration >= 0
        self._pass_value()
        if self._counted():
            self._empty_first_lease()
        self._pass_reward()
        return self._selected()

    def _cut(self) -> Selector:
        horizon = self.capacity.shape[1]
        whole = Selector(
            self.slo, self.best_effort, self.capacity, bucket_edges(horizon, doubling=False)
        )
        if whole.slots[0].size <= self.most_slots:
            return whole
        edges = bucket_edges(horizon, doubling=True)
        return Selector(self.slo, self.best_effort, self.capacity, edges)

    # ------------------------------------------------------------------ passes

    def _keep_promises(self) -> None:
        """Keep the most value of accepted jobs, where not all can be kept."""
        started, nobody = time.perf_counter(), np.zeros_like(self.must)
        model = self.selector.model(goal="promises", must=nobody)
        start = self.selector.point(self.best, model.column_count)
        answer = self._asked(self.solver.solve(model, budget=self.budget, warm_start=start))
        if answer.point is not None:
            plan = self._laid(answer, kept_only=True)
            if self._kept(plan) > self._kept(self.best) + SAME:
                self.best = self._filled(plan)
        self._told("promises", started, answer)

    def _kept(self, plan: Plan) -> float:
        kept = self.must & (plan.configuration >= 0)
        return float((self.slo.top_value[kept] + SAME).sum())

    def _pass_value(self) -> None:
        # no plan earns more than every job's best deadline that it could meet alone
        most = float(self._alone().sum())
        if self._proves(self.best.value(self.slo), most):
            self.bounds[0] = most
            return
        if self._rigid():
            self._by_lease_classes()
            return
        started = time.perf_counter()
        model = self.selector.model(goal="value", must=self.must)
        start = self.selector.point(self.best, model.column_count)
        answer = self._asked(self.solver.solve(model, budget=self.budget, warm_start=start))
        if answer.bounds:
            self.bounds[0] = answer.bounds[0]
        if answer.point is not None:
            self._take(self._filled(self._laid(answer)))
        self._told("value", started, answer)

    def _pass_reward(self) -> None:
        """Raise the reward, with the value as a row."""
        if self._out_of_time():
            return
        if self._without_slo() or self._out_of_time():
            return
        if self._counted():
            # what buckets allow for lease 0 is rarely a plan, and takes seconds
            return
        started, value = time.perf_counter(), self.best.value(self.slo)
        model = self.selector.model(
            goal="reward", must=self.must, floor=floor_of(value), lease_cost=self.lease_cost
        )
        start = self.selector.point(self.best, model.column_count)
        answer = self._asked(self.solver.solve(model, budget=self.budget, warm_start=start))
        if answer.bounds:
            self.bounds[1] = answer.bounds[0]
        if answer.point is not None:
            self._take(self._laid(answer))
        self._told("reward", started, answer)

    def _without_slo(self) -> bool:
        """Give lease 0 to best effort alone: a bound, and often a plan that reaches it.

        Returns
        -------
        Whether the reward is proved so.
        """
        started, nobody = time.perf_counter(), SloJobs.rigid([], [], [])
        room = self.capacity[:, :1]
        if self._counted():
            room = room - self._forced_now()
        alone = Selector(nobody, self.best_effort, room, np.array([0, 1]))
        bound = 0.0
        if self.best_effort.reward.size:
            model = alone.model(goal="reward", must=nobody.must)
            start = np.zeros(model.column_count)
            answer = self.solver.solve(model, budget=self.budget, warm_start=start)
            self.time_limited |= answer.time_limited
            if not answer.bounds or answer.bounds[0] is None:
                return False
            bound = answer.bounds[0]
            if answer.point is not None:
                plan = replace(self.best, chosen=alone.read(answer.point)[3])
                if not plan_faults(self.slo, self.best_effort, self.capacity, plan):
                    self._take(plan)
        bound -= self._least_lease_cost()
        proved = self._proves(self._worth(self.best)[1], bound)
        if proved or self._counted():
            self.bounds[1] = bound
            self._told("reward", started, None, bound=bound)
        return proved

    def _counted(self) -> bool:
        """Whether both passes go by counts of equal jobs: many leases, and all jobs rigid."""
        return not self.selector.exact and bool(len(self.slo)) and self._rigid()

    def _empty_first_lease(self) -> None:
        """Leave lease 0 to best effort as far as the jobs in the plan allow."""
        if self._out_of_time():
            return
        started = time.perf_counter()
        plan = emptied(self.slo, self.capacity, self.best, self.budget)
        self._take(self._filled(plan))
        self._told("first lease", started, None)

    def _forced_now(self) -> Ints:
        """GPUs of lease 0 that are taken in every plan of this value, by type, shape (k, 1)."""
        slo, rows = self.slo, np.flatnonzero(self.must)
        deadline = slo.due_offsets[rows + 1] - 1
        if self.best.value(slo) >= float(self._alone().sum()) - SAME:
            # all earn the most they can alone, so that all of them are in every such plan
            rows = np.flatnonzero((self._alone() > 0.0) & (self.best.deadline >= 0))
            deadline = self.best.deadline[rows]
        return forced_now(slo, self.capacity, rows, deadline)

    def _proves(self, value: float, bound: float) -> bool:
        return gap_of(value, bound) <= max(self.solver.gap, SAME)

    def _alone(self) -> Floats:
        """Most that each job could earn alone, shape (n,)."""
        out = np.zeros(len(self.slo))
        np.maximum.at(out, self.selector.job_of_pair, self.slo.value[self.selector.pairs[1]])
        return out

    def _least_lease_cost(self) -> float:
        """Least cost of GPU-leases that jobs have in every plan of this value."""
        if self.best.value(self.slo) < float(self._alone().sum()) - SAME:
            return 0.0
        configuration, deadline = self.selector.pairs
        job, slo = self.selector.job_of_pair, self.slo
        # what earns nothing need not be in a plan of the most value
        best = (slo.value[deadline] >= self._alone()[job]) & (slo.value[deadline] > 0.0)
        least = np.full(len(slo), np.inf)
        np.minimum.at(least, job[best], (slo.gpus * slo.need)[configuration[best]])
        return self.lease_cost * float(least[np.isfinite(least)].sum())

    def _rigid(self) -> bool:
        """Whether each job has one configuration, all on one type, so that counts suffice."""
        alone = (np.diff(self.slo.menu_offsets) == 1).all()
        dated = (np.diff(self.slo.due_offsets) >= 1).all()
        return bool(alone and dated and np.unique(self.slo.gpu_type).size == 1)

    def _by_lease_classes(self) -> None:
        """Let the lease core maximise the value: jobs of one configuration are counted there."""
        started, slo = time.perf_counter(), self.slo
        jobs = LeaseJobs(slo.gpus, slo.need, slo.due_offsets, slo.due, slo.value)
        kind = int(slo.gpu_type[0])
        found = plan_leases(
            jobs, self.capacity[kind], solver=self.solver, budget=self.budget, accepted=self.must
        )
        self.time_limited |= found.time_limited
        if found.status in ("OPTIMAL", "FEASIBLE"):
            self.bounds[0] = found.bound
            leases = np.zeros_like(self.best.leases)
            rows = np.repeat(np.arange(len(slo)), np.diff(found.offsets))
            leases[rows, found.lease] = True
            cut = np.where(found.option >= 0, slo.menu_offsets[:-1], NONE)
            plan = replace(self.best, configuration=cut, deadline=cut, leases=leases)
            self._take(self._filled(plan.with_earliest_deadlines(slo)))
        self.stages.extend(replace(stage, answered=False) for stage in found.stages)
        self._told("value by classes", started, None, bound=self.bounds[0])

    # ------------------------------------------------------------------ plans

    def _laid(self, answer: Solution, *, kept_only: bool = False) -> Plan:
        """Read a point, and lay the leases inside buckets."""
        configuration, deadline, counts, chosen = self.selector.read(answer.x)
        if kept_only:
            configuration = np.where(self.must, configuration, NONE)
            deadline = np.where(self.must, deadline, NONE)
            counts = np.where(self.must[:, None], counts, 0)
        if self.selector.exact:
            plan = Plan(configuration, deadline, counts > 0, chosen)
            return plan.with_earliest_deadlines(self.slo)
        plan = lay_buckets(self.slo, self.capacity, configuration, deadline, counts[:, 0] > 0)
        plan = with_more(self.slo, self.capacity, replace(plan, chosen=chosen))
        return self._filled(plan)

    def _filled(self, plan: Plan) -> Plan:
        return with_best_effort(self.slo, self.best_effort, self.capacity, plan)

    def _take(self, plan: Plan) -> None:
        """Keep a plan if it is better; it must be one and hold all promises."""
        faults = plan_faults(self.slo, self.best_effort, self.capacity, plan)
        if faults:
            raise AssertionError(f"plan of the selector: {faults[0]}")
        if (self.must & (plan.configuration < 0)).any():
            return
        if better(self._worth(plan), self._worth(self.best)):
            self.best = plan

    def _worth(self, plan: Plan) -> tuple[float, float]:
        reward = plan.reward(self.slo, self.best_effort, self.lease_cost)
        return plan.value(self.slo), reward

    # ------------------------------------------------------------------ what is said

    def _asked(self, answer: Solution) -> Solution:
        self.time_limited |= answer.time_limited
        self.failed |= answer.point is None
        if answer.status is Status.INFEASIBLE:
            raise AssertionError("the selector's model lost the plan it began with")
        return answer

    def _out_of_time(self) -> bool:
        if self.budget.expired():
            self.time_limited = True
            return True
        return False

    def _told(
        self, name: str, started: float, answer: Solution | None, bound: float | None = None
    ) -> None:
        note = "" if self.selector.exact else f"{self.selector.edges.size - 1} buckets of leases"
        value, reward = self._worth(self.best)
        objective = reward if name == "reward" else value
        if answer is not None and answer.bounds:
            bound = answer.bounds[0] if name != "promises" else None
        self.stages.append(
            Stage(
                name, time.perf_counter() - started, objective, bound,
                None if bound is None else gap_of(objective, bound),
                backend=None if answer is None else answer.backend, note=note,
            )
        )  # fmt: skip

    def _selected(self) -> Selection:
        value, reward = self._worth(self.best)
        gaps = [
            None if bound is None else gap_of(told, bound)
            for told, bound in zip((value, reward), self.bounds, strict=True)
        ]
        known = [gap for gap in gaps if gap is not None]
        gap = max(known) if len(known) == 2 else None
        proved = gap is not None and gap <= max(self.solver.gap, SAME)
        self.stages[-1] = replace(self.stages[-1], answered=True)
        status = "OPTIMAL" if proved else "NO_SOLUTION" if self.failed else "FEASIBLE"
        return Selection(
            self.best, value, reward, self.bounds[0], self.bounds[1], gap, status,
            np.flatnonzero(self.slo.must & (self.best.configuration < 0)),
            tuple(self.stages), self.time_limited,
        )  # fmt: skip


def gap_of(value: float, bound: float) -> float:
    """Gap of a value to maximise, relative to values from 1 on; 0 within what codes leave off."""
    size = max(abs(value), abs(bound), 1.0)
    return (bound - value) / size if bound - value > PROOF * size else 0.0


def lay_buckets(
    slo: SloJobs, capacity: Ints, configuration: Ints, deadline: Ints, first: Bools
) -> Plan:
    """Lay jobs whose configuration, deadline and part of lease 0 are known, type by type.

    Jobs that do not fit are left out: leases inside a bucket were only counted.
    """
    horizon = capacity.shape[1]
    leases = np.zeros((len(slo), horizon), dtype=np.bool_)
    inside = np.full(len(slo), NONE, dtype=np.int64)
    rows = np.flatnonzero(configuration >= 0)
    for kind in np.unique(slo.gpu_type[configuration[rows]]).tolist():
        own = rows[slo.gpu_type[configuration[rows]] == kind]
        cut, now = configuration[own], first[own]
        rest = slo.need[cut] - now
        due = np.clip(slo.due[deadline[own]], 0, horizon) - 1
        columns = LeaseColumns(
            slo.gpus[cut], np.maximum(rest, 1), due, slo.must[own], slo.value[deadline[own]]
        )
        found = realise(columns, (rest > 0).astype(np.int64), capacity[kind, 1:])
        good = (found.y > 0) | (rest == 0)
        leases[own[good], 1:] = found.leases[good] > 0
        leases[own[good], 0] = now[good]
        inside[own[good]] = cut[good]
    plan = Plan(inside, inside, leases, np.zeros(0, dtype=np.int64))
    return plan.with_earliest_deadlines(slo)
