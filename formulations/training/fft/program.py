"""FFT's round as a program: its model, its incumbent, and the way to a proved answer."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from apportion.formulations.training.fft.compensation import Compensation
from apportion.formulations.training.fft.ran import NotingSolver, with_skipped
from apportion.formulations.training.fft.work_conservation import MostGpus, Placeable, most_gpus
from apportion.formulations.training.greedy import NOWHERE, fill
from apportion.formulations.training.pinned import Pinned
from apportion.formulations.training.plain import joined, notes_on_hopeless
from apportion.instances import Budget, Decision, Stage
from apportion.instances.columns import Floats, Ints
from apportion.instances.policy import Column
from apportion.instances.training import Allocation, TrainingRound
from apportion.instances.training.jobs import NEVER
from apportion.solver import (
    Axis,
    Choice,
    ChoiceSolution,
    Classes,
    Model,
    ModelBuilder,
    Solution,
    Solver,
    Status,
    gap_of,
    identical_rows,
    solve_choice,
)
from apportion.solver import Budget as Deadline

LARGEST_COST = 2.0**45
"""Costs of a model beyond this are written in a larger unit; codes refuse them from 1e15 on."""


@dataclass(frozen=True)
class PricedDecision(Decision):
    """A decision with the prices that prove part of its bound.

    Parameters
    ----------
    prices
        Price of one GPU of each type in the relaxation, shape (k,); None where it was not solved.
    credit
        Price of one GPU in use, where as many as possible have to be.
    """

    prices: Floats | None = None
    credit: float = 0.0


@dataclass(frozen=True, eq=False)
class FFTProgram:
    """A compiled round.

    Parameters
    ----------
    round_
        The round.
    held
        Leases that go on, and the GPUs they leave.
    cost
        Cost of each job on each type, shape (n, k), infinite where it cannot run.
    owed
        Compensation of each job.
    work_conservation, method
        As in the policy.
    custom
        A model with a user's side rules; short cuts by structure are then off.
    merged
        Whether identical jobs share columns of the model.
    more_gpus
        GPUs in service beyond those of the round, for what-ifs.
    """

    round_: TrainingRound
    held: Pinned
    cost: Floats
    owed: Compensation
    work_conservation: str
    method: str
    custom: Model | None = None
    merged: bool = True
    more_gpus: int = 0

    @cached_property
    def rows(self) -> Ints:
        """Jobs that this round may place."""
        able = np.isfinite(self.cost) & (self.gang[:, None] <= self.held.free[None, :])
        return np.flatnonzero(self.held.open & able.any(axis=1))

    @property
    def gang(self) -> Ints:
        """GPUs of each job, shape (n,)."""
        return self.round_.jobs.gang

    @cached_property
    def classes(self) -> Classes:
        """Placeable jobs grouped by equal gang and equal costs, which are interchangeable."""
        if not self.merged:
            everyone: Ints = np.arange(self.rows.size, dtype=np.int64)
            return Classes(everyone, everyone, np.ones_like(everyone))
        return identical_rows(np.c_[self.gang[self.rows], self.cost[self.rows]])

    @cached_property
    def held_cost(self) -> float:
        """Cost of the leases that go on."""
        own = self.cost[self.held.job, self.held.gpu_type]
        return float(own[np.isfinite(own)].sum())

    @cached_property
    def asked(self) -> int:
        """K(t), the smaller of GPUs in service and GPUs asked for, less what is held."""
        in_service = int(self.round_.capacity.sum()) + self.more_gpus
        everything = min(in_service, int(self.gang.sum()))
        return everything - int(self.held.gpus.sum())

    @cached_property
    def placeable(self) -> Placeable:
        """What this round may place, and the GPUs there are for it."""
        return Placeable(self.rows, self.gang, self.cost, self.held.free)

    @cached_property
    def reward(self) -> float:
        """What mode ``reward`` pays for each placed GPU: more than costs can outweigh."""
        cost = np.abs(self.cost[self.rows])
        per_gpu = np.where(np.isfinite(cost), cost, 0.0) / self.gang[self.rows, None]
        return 2.0 * float(per_gpu.max(initial=0.0)) * float(self.held.free.sum()) + 1.0

    @cached_property
    def cost_unit(self) -> float:
        """Unit of the model's costs: 1, or a power of two where codes could not read them."""
        cost = np.abs(self.cost[self.rows])
        if self.work_conservation == "reward":
            cost = cost + self.reward * self.gang[self.rows, None]
        largest = float(cost[np.isfinite(cost)].max(initial=0.0))
        return 1.0 if largest <= LARGEST_COST else 2.0 ** math.frexp(largest / LARGEST_COST)[1]

    @cached_property
    def model(self) -> Model:
        """The model with all rows, merged over identical jobs.

        Columns ``x[job, type]`` count the members of a class that run on a type; rows
        ``one_type[job]`` and ``capacity[type]``; objectives by mode, costs in ``cost_unit``.
        """
        classes, jobs = self.classes, self.round_.jobs
        first = self.rows[classes.first]
        cost, gang = self.cost[first], self.gang[first]
        names, kinds = jobs.id[first].tolist(), self.round_.cluster.types.tolist()
        at, kind = np.nonzero(np.isfinite(cost) & (gang[:, None] <= self.held.free[None, :]))
        builder = ModelBuilder("fft")
        by_job = Axis("job", names)
        x = builder.columns(
            "x", at.size, upper=classes.count[at], integer=True,
            axes=(Axis("job", names, codes=at), Axis("type", kinds, codes=kind)),
        )  # fmt: skip
        builder.rows(
            "one_type", first.size, row=at, column=x, value=1.0, upper=classes.count, axes=(by_job,)
        )
        builder.rows(
            "capacity", len(kinds), row=kind, column=x, value=gang[at],
            upper=self.held.free, axes=(Axis("type", kinds),),
        )  # fmt: skip
        self._objectives(builder, x, cost[at, kind], gang[at])
        return builder.build()

    def _objectives(self, builder: ModelBuilder, x: Ints, cost: Floats, gang: Ints) -> None:
        match self.work_conservation:
            case "lexicographic":
                builder.objective("placed_gpus", column=x, value=gang, maximise=True)
            case "hard":
                builder.rows("work_conservation", 1, row=0, column=x, value=gang, lower=self.asked)
            case "reward":
                cost = cost - self.reward * gang
            case _:
                pass
        builder.objective("cost", column=x, value=cost / self.cost_unit)

    def with_model(self, model: Model) -> FFTProgram:
        """Solve this model instead: the program's own with a user's side rules."""
        return replace(self, custom=model)

    def apart(self) -> FFTProgram:
        """Give every job columns of its own, so that a side rule can tell identical jobs apart."""
        return replace(self, merged=False)

    def with_gpus(self, kind: int, more: int) -> FFTProgram:
        """Give the program with so many GPUs more of a type, or less."""
        free = self.held.free.copy()
        free[kind] += more
        return replace(
            self, held=replace(self.held, free=free), more_gpus=self.more_gpus + more
        )  # fmt: skip

    def forced(self, job: int, kind: int) -> FFTProgram:
        """Give the program with a job placed on a type, whatever it costs the others.

        Parameters
        ----------
        job
            Row of a job that may be placed.
        kind
            A type it can run on, with room for its gang.
        """
        held, gang = self.held, int(self.gang[job])
        free, open_ = held.free.copy(), held.open.copy()
        free[kind] -= gang
        open_[job] = False
        return replace(
            self,
            held=replace(
                held,
                job=np.append(held.job, job),
                gpu_type=np.append(held.gpu_type, kind),
                gpus=np.append(held.gpus, gang),
                lease_end_s=np.append(held.lease_end_s, self.round_.now_s + self.round_.duration_s),
                guaranteed=np.append(held.guaranteed, False),
                free=free,
                open=open_,
            ),
        )

    def kept_out(self, job: int) -> FFTProgram:
        """Give the program in which a job has to wait."""
        open_ = self.held.open.copy()
        open_[job] = False
        return replace(self, held=replace(self.held, open=open_))

    def value(self, allocation: Allocation) -> float:
        """Cost of an allocation's jobs, leases that go on included; infinite where one cannot be."""
        kinds = np.full(self.gang.size, NOWHERE, dtype=np.int64)
        kinds[allocation.job] = allocation.gpu_type
        kinds[self.held.job] = NOWHERE
        return self._value(kinds)

    def in_words(self, block: str, label: str) -> str:
        """Say what a row of the model demands.

        Parameters
        ----------
        block
            Name of the family of rows.
        label
            What stands in brackets in the row's name.

        Returns
        -------
        A text, empty for rows that are not the program's own.
        """
        types = self.round_.cluster.types.tolist()
        if block == "capacity" and label in types:
            return f"GPU type {label}: {int(self.held.free[types.index(label)])} GPUs are free"
        if block == "one_type":
            row = self.round_.jobs.id.tolist().index(label)
            return f"job {label!r}: its gang of {int(self.gang[row])} runs once, on one GPU type"
        if block == "work_conservation":
            return f"work conservation (F-C4): at least {self.asked} GPUs are placed"
        return ""

    def incumbent(self) -> Decision:
        """Fill types greedily, least cost per GPU first; largest gangs first if that places more."""
        start = time.perf_counter()
        kinds = self._greedy()
        stage = self._stage("incumbent", start, kinds, None, answered=True)
        return self._decision(kinds, self._unproved(kinds), None, (stage,))

    def _greedy(self) -> Ints:
        rows, gang = self.rows, self.gang
        kinds = np.full(gang.size, NOWHERE, dtype=np.int64)
        if not rows.size:
            return kinds
        per_gpu = self.cost[rows].min(axis=1) / gang[rows]
        if self.work_conservation == "none":
            worth = np.where(self.cost < 0, self.cost, np.inf)
            return fill(rows[np.argsort(per_gpu, kind="stable")], worth, gang, self.held.free)
        orders = (
            rows[np.argsort(per_gpu, kind="stable")],
            rows[np.lexsort((per_gpu, -gang[rows]))],
        )
        limit = min(int(self.held.free.sum()), int(gang[rows].sum()))
        best = -1
        for order in orders:
            tried = fill(order, self.cost, gang, self.held.free)
            placed = int(gang[tried >= 0].sum())
            if placed > best:
                kinds, best = tried, placed
            if best == limit:
                break
        return kinds

    def solve(self, solver: Solver, budget: Budget) -> Decision:
        """Decide: incumbent, most GPUs that can be placed, relaxation, repair, core.

        The answer is never worse than the incumbent, and carries what was proved. Where the mode
        is ``hard`` and cannot be kept the status is ``INFEASIBLE``, a note names the rule, and the
        allocation places as many GPUs as it can. Where it is not known whether it can be kept, the
        status of such an allocation is ``NO_SOLUTION``.
        """
        start = time.perf_counter()
        kinds = self._greedy()
        first = self._stage("incumbent", start, kinds, None)
        if self.custom is not None or self.method == "milp":
            return self._by_model(self.custom or self.model, solver, budget, kinds, first)
        if budget.left_s() <= 0.0 or not self.rows.size:
            return self._without_search(kinds, first)
        start = time.perf_counter()
        noting = NotingSolver.of(solver)
        reached = (
            None
            if self.work_conservation == "none"
            else most_gpus(self.placeable, kinds, noting, Deadline.of(_seconds(budget)))
        )
        stages = (first,)
        if reached is not None and not reached.trivial:
            stages = (first, noting.told(self._stage("most_gpus", start, reached.kinds, None)))
        if reached is not None:
            kinds = reached.kinds
        if self.work_conservation == "hard" and reached is not None and reached.gpus < self.asked:
            return self._given_up(kinds, stages, reached)
        if budget.left_s() <= 0.0:
            return self._decision(kinds, self._unproved(kinds), None, stages, time_limited=True)
        total = None if reached is None else float(reached.gpus)
        noting = NotingSolver.of(solver)
        answer = self._choose(total, kinds, noting, budget)
        sure = reached is None or reached.proved
        out = self._from_choice(answer, kinds, stages, sure, noting)
        late = reached is not None and reached.time_limited
        return replace(out, time_limited=out.time_limited or late)

    def _without_search(self, kinds: Ints, first: Stage) -> Decision:
        if self.rows.size:
            stage = replace(first, answered=True)
            return self._decision(kinds, self._unproved(kinds), None, (stage,), time_limited=True)
        if self.work_conservation == "hard" and self.asked > 0:
            return self._given_up(kinds, (first,), MostGpus(0, kinds, proved=True, trivial=True))
        cost = self._value(kinds)
        stage = replace(first, answered=True, bound=cost, gap=0.0)
        return self._decision(kinds, "OPTIMAL", cost, (stage,))

    @property
    def required(self) -> int | None:
        """GPUs that have to be placed beside the leases that go on: mode ``hard`` says so."""
        return self.asked if self.work_conservation == "hard" else None

    def choice_of(self, allocation: Allocation) -> Choice:
        """The round as a choice among all plans that place as many GPUs as an allocation does."""
        if self.work_conservation == "none":
            return self.choice(None)
        own = ~np.isin(allocation.job, self.held.job)
        return self.choice(float(self.gang[allocation.job[own]].sum()))

    def choice(self, total: float | None) -> Choice:
        """The round as a choice of a type for each class of jobs.

        Parameters
        ----------
        total
            GPUs that have to be placed beside the leases that go on; None for no such demand.
        """
        classes, rows = self.classes, self.rows
        first = rows[classes.first]
        gang = self.gang[first]
        fits = gang[:, None] <= self.held.free[None, :]
        cost = np.where(fits, self.cost[first], np.inf)
        k = cost.shape[1]
        return Choice(
            cost=cost,
            amount=np.broadcast_to(gang[:, None].astype(np.float64), cost.shape),
            resource=np.arange(k, dtype=np.int64),
            capacity=self.held.free.astype(np.float64),
            count=classes.count,
            total=total,
        )

    def _choose(
        self, total: float | None, kinds: Ints, solver: Solver, budget: Budget
    ) -> ChoiceSolution:
        classes, rows = self.classes, self.rows
        choice = self.choice(total)
        chosen = kinds[rows]
        on = chosen >= 0
        plan = np.zeros(choice.cost.shape, dtype=np.int64)
        np.add.at(plan, (classes.of_row[on], chosen[on]), 1)
        return solve_choice(
            choice, solver, budget=Deadline.of(_seconds(budget)), incumbent=plan,
            prove=self.method != "lp_repair",
        )  # fmt: skip

    def _from_choice(
        self, answer: ChoiceSolution, kinds: Ints, stages: tuple[Stage, ...], sure: bool,
        noting: NotingSolver,
    ) -> Decision:  # fmt: skip
        if answer.plan is not None:
            kinds = self._spread(answer.plan)
        told = [*stages]
        for stage in answer.stages:
            own = stage.objective == answer.objective and not any(one.answered for one in told)
            if stage.name == "incumbent":
                # the plan handed over is the one of the stage before
                told[-1] = replace(told[-1], answered=own)
                continue
            value = None if stage.objective is None else stage.objective + self.held_cost
            bound = None if stage.bound is None or not sure else stage.bound + self.held_cost
            step = Stage(
                stage.name, stage.elapsed_s, value, bound, gap_of(value, bound),
                answered=own and value is not None, note=stage.note,
            )  # fmt: skip
            told.append(noting.told(step))
        bound = None if answer.bound is None or not sure else answer.bound + self.held_cost
        status = answer.status if sure else Status.FEASIBLE
        if answer.plan is None:
            status = Status.FEASIBLE
        out = self._decision(
            kinds, status.name, bound, tuple(told), time_limited=answer.time_limited
        )
        return replace(out, prices=answer.prices, credit=answer.total_price)

    def _spread(self, plan: Ints) -> Ints:
        """Give the types a plan chose for each class to its members."""
        kinds = np.full(self.gang.size, NOWHERE, dtype=np.int64)
        classes = self.classes
        if classes.first.size == self.rows.size:
            at, kind = np.nonzero(plan)
            kinds[self.rows[at]] = kind
            return kinds
        per_class = np.c_[plan, classes.count - plan.sum(axis=1)].ravel()
        labels = np.tile(np.r_[np.arange(plan.shape[1]), NOWHERE], plan.shape[0])
        order = np.argsort(classes.of_row, kind="stable")
        kinds[self.rows[order]] = np.repeat(labels, per_class)
        return kinds

    def _by_model(
        self, model: Model, solver: Solver, budget: Budget, kinds: Ints, first: Stage
    ) -> Decision:
        if budget.left_s() <= 0.0 or (model.column_count == 0 and self.custom is None):
            out = self._without_search(kinds, first)
            return out if self.custom is None else _without_side_rules(out)
        start = time.perf_counter()
        answer = solver.solve(model, budget=Deadline.of(_seconds(budget)))
        took_s = time.perf_counter() - start
        if answer.point is None:
            stage = Stage("milp", took_s, backend=answer.backend, note=answer.message)
            stage = with_skipped(stage, answer.skipped)
            return self._without_point(answer, solver, budget, kinds, (first, stage))
        decided = self.decode(answer)
        stage = replace(decided.stages[-1], elapsed_s=took_s, backend=answer.backend)
        stage = with_skipped(stage, answer.skipped)
        if self.custom is None and self._ahead(kinds, decided):
            stage = replace(stage, answered=False)
            return self._decision(
                kinds, "FEASIBLE", decided.bound, (replace(first, answered=True), stage),
                time_limited=decided.time_limited,
            )  # fmt: skip
        return replace(decided, stages=(first, stage))

    def _ahead(self, kinds: Ints, decided: Decision) -> bool:
        """Whether the greedy plan is better than one that a search was stopped at."""
        assert decided.objective is not None
        if decided.status == Status.OPTIMAL.name or self._unproved(kinds) != "FEASIBLE":
            return False
        placed = int(self.gang[kinds >= 0].sum()) + int(self.held.gpus.sum())
        more = placed - int(decided.allocation.gpus.sum())
        if self.work_conservation in ("hard", "none"):
            more = 0
        return more > 0 or (more == 0 and self._value(kinds) < decided.objective)

    def _without_point(
        self, answer: Solution, solver: Solver, budget: Budget, kinds: Ints,
        stages: tuple[Stage, ...],
    ) -> Decision:  # fmt: skip
        """Answer where the model gave no plan: the greedy one, and what is known of the model."""
        if answer.status is not Status.INFEASIBLE:
            known = self.custom is None and self._unproved(kinds) == "FEASIBLE"
            status = "FEASIBLE" if known else answer.status.name
            out = self._decision(kinds, status, None, stages, time_limited=answer.time_limited)
            return out if self.custom is None else _without_side_rules(out)
        if self.custom is not None:
            out = self._decision(kinds, answer.status.name, None, stages)
            note = "the side rules were given up: no plan obeys the model that was given"
            return replace(out, notes=(note, *out.notes))
        reached = most_gpus(self.placeable, kinds, solver, Deadline.of(_seconds(budget)))
        kinds = reached.kinds
        stages = (*stages, self._stage("most_gpus", time.perf_counter(), kinds, None))
        return replace(self._given_up(kinds, stages, reached), status=answer.status.name)

    def decode(self, solution: Solution) -> Decision:
        """Turn a solution of the program's model into a decision.

        Raises
        ------
        NoSolutionError
            If the solution has no values.
        """
        first = self.rows[self.classes.first]
        gang = self.gang[first]
        fits = np.isfinite(self.cost[first]) & (gang[:, None] <= self.held.free[None, :])
        plan = np.zeros(fits.shape, dtype=np.int64)
        plan[np.nonzero(fits)] = np.round(solution.x).astype(np.int64)[: int(fits.sum())]
        kinds = self._spread(plan)
        bound = None if solution.bound is None else solution.bound * self.cost_unit
        if bound is not None and self.work_conservation == "reward":
            # the bound counts the reward too; what it pays is known once the plan is
            bound = self._value(kinds) - (solution.objective * self.cost_unit - bound)
        elif bound is not None:
            bound += self.held_cost
        stage = self._stage("milp", time.perf_counter(), kinds, bound, answered=True)
        return self._decision(
            kinds, solution.status.name, bound, (stage,), time_limited=solution.time_limited
        )

    def _given_up(
        self, kinds: Ints, stages: tuple[Stage, ...], reached: MostGpus
    ) -> Decision:  # fmt: skip
        most = "at most" if reached.proved else "so far"
        note = (
            f"work conservation (F-C4) was given up: it asks for {self.asked} GPUs to be placed,"
            f" {most} {reached.gpus} can be"
        )
        stages = (*stages[:-1], replace(stages[-1], answered=True))
        status = "INFEASIBLE" if reached.proved else "NO_SOLUTION"
        out = self._decision(kinds, status, None, stages, time_limited=reached.time_limited)
        return replace(out, notes=(note, *out.notes))

    def _unproved(self, kinds: Ints) -> str:
        """Status of a plan of which nothing is proved: in mode ``hard`` it may break the rule."""
        broken = int(self.gang[kinds >= 0].sum()) < self.asked
        return "NO_SOLUTION" if self.work_conservation == "hard" and broken else "FEASIBLE"

    def _value(self, kinds: Ints) -> float:
        on = np.flatnonzero(kinds >= 0)
        return float(self.cost[on, kinds[on]].sum()) + self.held_cost

    def _stage(
        self, name: str, start: float, kinds: Ints, bound: float | None, *,
        answered: bool = False,
    ) -> Stage:  # fmt: skip
        value = self._value(kinds)
        return Stage(
            name, time.perf_counter() - start, value, bound, gap_of(value, bound), answered=answered
        )

    def _decision(
        self, kinds: Ints, status: str, bound: float | None, stages: tuple[Stage, ...], *,
        time_limited: bool = False,
    ) -> PricedDecision:  # fmt: skip
        value, notes = self._value(kinds), notes_on_hopeless(self.round_)
        if self.held.chosen:
            # what is proved holds for the chosen types only
            status, bound = ("FEASIBLE" if status == "OPTIMAL" else status), None
            stages = tuple(replace(stage, bound=None, gap=None) for stage in stages)
            notes = (*notes, "reservations for any type were put on types first, then the rest")
        gap = gap_of(value, bound)
        end_s = self.round_.now_s + self.round_.duration_s
        if stages and not any(stage.answered for stage in stages):
            stages = (replace(stages[0], answered=True), *stages[1:])
        return PricedDecision(
            joined(self.held, kinds, self.gang, end_s), status=status, objective=value,
            bound=bound, gap=gap, per_job=self.columns(), stages=stages,
            notes=notes, time_limited=time_limited,
        )  # fmt: skip

    def columns(self) -> dict[str, Column]:
        """Give rho, mu, tau and the finish-time fairness each job would reach from here."""
        jobs, owed = self.round_.jobs, self.owed
        runs = owed.fair_per_s > 0
        ideal = np.full(len(jobs), np.inf)
        np.divide(jobs.work, owed.fair_per_s, out=ideal, where=runs)
        best = jobs.throughput_per_s.max(axis=1, initial=0.0)
        left = np.full(len(jobs), np.inf)
        np.divide(np.maximum(jobs.work - jobs.work_done, 0.0), best, out=left, where=best > 0)
        age = self.round_.now_s - jobs.arrival_s
        share = np.full(len(jobs), NEVER)
        np.divide(age + left, ideal, out=share, where=runs & (best > 0))
        return {
            "rho": owed.rho,
            "mu": owed.mu,
            "tau_s": np.where(runs, jobs.arrival_s + ideal, NEVER),
            "ftf_share": share,
        }


def _without_side_rules(decision: Decision) -> Decision:
    """Say of a plan that nobody asked whether it obeys the side rules."""
    note = "no plan that obeys the side rules was found in time; this one does not look at them"
    return replace(
        decision, status="NO_SOLUTION", bound=None, gap=None, notes=(note, *decision.notes)
    )


def _seconds(budget: Budget) -> float | None:
    left = budget.left_s()
    return None if left == float("inf") else max(left, 1e-6)
