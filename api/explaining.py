"""Why a round cannot be decided, or why each job got what it got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from apportion.instances import Policy
from apportion.instances.columns import Floats
from apportion.instances.training import TrainingRound, never_fits
from apportion.instances.training.round_json import read_round
from apportion.registry import make_policy
from apportion.results import Column, Table
from apportion.results.table import Cell
from apportion.side_rules import SideRules, extended
from apportion.solver import Model, Rule, Status, cheapest_repair, find_conflict
from apportion.solving import budget_of, solver_of
from apportion.what_if import Questions, WhatIf, Worded, shortened

SMALL = 12
"""Rounds of up to so many jobs have every waiting job forced in without being asked."""


@dataclass(frozen=True)
class Option:
    """What it would take to give a job a type, or to let it wait.

    Parameters
    ----------
    gpu_type
        The type; None: it waits.
    possible
        Whether the round can do it at all.
    cost
        The job's own cost there.
    price
        What its GPUs cost there at the relaxation's prices.
    objective_change, gpus_change
        Change of the policy's objective and of the GPUs in use when it is forced, found by solving
        again; None where no optimum was proved.
    stopped
        Jobs that would have to wait instead.
    reason
        Why it is not possible, or what it is.
    """

    gpu_type: str | None
    possible: bool
    cost: float | None = None
    price: float | None = None
    objective_change: float | None = None
    gpus_change: int | None = None
    stopped: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class JobReason:
    """What a job got, and why."""

    job: str
    got: str | None
    why: str


@dataclass(frozen=True)
class TypeUse:
    """How much of a GPU type is wanted.

    Parameters
    ----------
    gpu_type
        The type.
    free, used
        GPUs beside the leases that go on, and how many of them the plan uses.
    price
        What a GPU costs whoever takes it, in the relaxation: above zero where jobs compete for it,
        below where rules have it filled at a loss; None where it was not solved.
    """

    gpu_type: str
    free: int
    used: int
    price: float | None


@dataclass(frozen=True)
class Explanation:
    """Answer to the question why.

    Parameters
    ----------
    policy, status, objective
        Of the decision that is explained.
    conflict
        Rules that no plan obeys together, in words; empty where there is no conflict.
    minimal
        Whether it was shown that any one of them can be dropped to make the others possible.
    repair
        Cheapest way to make it possible, in words.
    jobs
        What every job got, and why.
    types
        How much of each GPU type is wanted.
    job, options
        The job that was asked for, and what each type, or waiting, would take.
    notes
        What a reader should know.
    """

    policy: str
    status: str
    objective: float | None
    conflict: tuple[str, ...] = ()
    minimal: bool = False
    repair: tuple[str, ...] = ()
    jobs: tuple[JobReason, ...] = ()
    types: tuple[TypeUse, ...] = ()
    job: str | None = None
    options: tuple[Option, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give the explanation as plain data."""
        return {"schema": "apportion/explanation/1", **asdict(self)}

    def parts(self) -> Iterator[Table | Text]:
        """Show the explanation."""
        if self.conflict:
            kind = "" if self.minimal else " (perhaps not all of them are needed)"
            yield Text(f"Impossible together{kind}:")
            yield from (Text(f"  {line}") for line in self.conflict)
        if self.repair:
            yield Text("Cheapest way out:")
            yield from (Text(f"  {line}") for line in self.repair)
        if self.types:
            yield self._types()
        if self.options:
            yield self._options()
        columns = [Column("job", "job"), Column("got", "got"), Column("why", "why")]
        rows: list[list[Cell]] = [[one.job, one.got or "waits", one.why] for one in self.jobs]
        title = f"{self.policy}: {self.status}"
        if self.objective is not None:
            title += f", objective {self.objective:.6g}"
        yield Table(title, columns, rows, list(self.notes))

    def _types(self) -> Table:
        columns = [
            Column("type", "GPU type"), Column("free", "GPUs to give", "count"),
            Column("used", "given", "count"), Column("price", "price of one", "ratio"),
            Column("binds", ""),
        ]  # fmt: skip
        rows: list[list[Cell]] = [
            [
                one.gpu_type,
                one.free,
                one.used,
                one.price,
                "all given" if one.used == one.free else "",
            ]
            for one in self.types
        ]
        return Table("GPU types", columns, rows)

    def _options(self) -> Table:
        columns = [
            Column("type", "GPU type"), Column("cost", "own cost", "ratio"),
            Column("price", "price of its GPUs", "ratio"),
            Column("objective", "change of the objective", "ratio"),
            Column("gpus", "change of GPUs in use", "count"), Column("instead", "would wait"),
            Column("note", ""),
        ]  # fmt: skip
        rows: list[list[Cell]] = [
            [one.gpu_type or "(waits)", one.cost, one.price, one.objective_change,
             one.gpus_change, shortened(one.stopped), one.reason]
            for one in self.options
        ]  # fmt: skip
        return Table(f"Job {self.job}: what else it could get", columns, rows)


def explain(
    round_: TrainingRound | str | Path,
    policy: str | Policy = "fft",
    job: str | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    memory: Any = None,
    side_rules: SideRules | None = None,
    time_limit_s: float | None = 60.0,
    gap: float = 0.0,
    backend: str = "auto",
    seed: int = 0,
) -> Explanation:
    """Tell why a round is impossible, or why jobs got what they got.

    Where no plan obeys the policy's model: a smallest set of rules that are impossible together,
    and the cheapest repair. Else, for every job, what decided it; for the job asked for (in rounds
    of a dozen jobs for all that wait), what it would cost to force it in, by deciding again.

    Parameters
    ----------
    round_
        A round, or the path of a round file.
    policy, parameters
        A registered name or a policy, and parameters that differ from the defaults.
    job
        A job to look at in detail.
    memory
        The policy's memory.
    side_rules
        Rules of your own, as in ``solve``.
    time_limit_s
        Wall time for everything; a conflict that it cuts short is marked as not minimal.
    gap
        Relative gap of each optimum; differences are only as good as it.
    backend, seed
        Back end by name, and the seed of its random choices.

    Raises
    ------
    InstanceError
        On an unknown job, policy, parameter or memory.
    """
    budget = budget_of(time_limit_s)
    asked = round_ if isinstance(round_, TrainingRound) else read_round(round_)
    chosen = make_policy(policy, parameters)
    solver = solver_of(gap, backend, seed)
    ask = Questions(chosen, asked, memory, solver, budget, side_rules)
    row = None if job is None else ask.row(job)
    base = ask.base
    out = Explanation(chosen.name, base.status, base.objective, job=job, notes=base.notes)
    if base.status == "INFEASIBLE":
        out = _impossible(out, ask)
    out = replace(out, jobs=_reasons(ask, each=job is None), types=_types(ask))
    if row is not None:
        out = replace(out, options=_options(ask, row))
        if not isinstance(ask.program, WhatIf):
            note = f"policy {chosen.name!r} has no model to ask what else could be"
            out = replace(out, notes=(*out.notes, note))
    return out


def _impossible(out: Explanation, ask: Questions) -> Explanation:
    """Add the conflict and the repair of a model that has no point."""
    program = ask.program
    model = ask.model
    if ask.side_rules is None:
        program, _ = extended(program, lambda problem, x: problem, ask.policy.name)
        model = program.custom if hasattr(program, "custom") else model
    if model is None:
        return out
    found = find_conflict(model, ask.solver, budget=ask.budget)
    fixed = {block.name for block in model.row_blocks} & {"one_type"}
    mend = cheapest_repair(
        model, ask.solver, budget=ask.budget, weights=dict.fromkeys(fixed, np.inf)
    )
    repair = [
        f"{_row_words(program, model, one.index) or one.row}: move {one.before:g} to {one.after:g}"
        for one in mend.changes
    ]
    notes = out.notes
    if found.status is not Status.INFEASIBLE:
        notes = (*notes, "which rules are in conflict was not found in time")
    if not repair:
        sure = mend.status is Status.INFEASIBLE
        how = "moving limits of rules helps nobody" if sure else "it was not found in time"
        notes = (*notes, f"no repair: {how}")
    return replace(
        out, conflict=tuple(_in_words(program, model, rule) for rule in found.rules),
        minimal=found.minimal, repair=tuple(repair), notes=notes,
    )  # fmt: skip


def _in_words(program: Any, model: Model, rule: Rule) -> str:
    own = _row_words(program, model, rule.index) if rule.kind == "row" else ""
    return own or f"side rule {rule.text}"


def _row_words(program: Any, model: Model, row: int) -> str:
    if not isinstance(program, Worded):
        return ""
    name = model.row_name(row)
    block, _, rest = name.partition("[")
    return program.in_words(block, rest.removesuffix("]"))


def _types(ask: Questions) -> tuple[TypeUse, ...]:
    """List the GPUs that could be given, and what the prices say of them."""
    program, plan = ask.program, ask.base.allocation
    if not isinstance(program, WhatIf):
        return ()
    own = ~np.isin(plan.job, program.held.job)
    prices = _prices(ask)
    return tuple(
        TypeUse(
            name, int(program.held.free[kind]), int(plan.gpus[own & (plan.gpu_type == kind)].sum()),
            None if prices is None else float(prices[kind]),
        )
        for kind, name in enumerate(ask.round_.cluster.types.tolist())
    )  # fmt: skip


def _prices(ask: Questions) -> Floats | None:
    """What a GPU of each type costs whoever takes it."""
    prices: Floats | None = getattr(ask.base, "prices", None)
    return None if prices is None else prices - float(getattr(ask.base, "credit", 0.0))


def _reasons(ask: Questions, *, each: bool) -> tuple[JobReason, ...]:
    round_ = ask.round_
    hopeless = dict(never_fits(round_))
    types = round_.cluster.types.tolist()
    deep = each and len(round_.jobs) <= SMALL and ask.base.status == "OPTIMAL"
    out: list[JobReason] = []
    for row, name in enumerate(round_.jobs.id.tolist()):
        kind = ask.kind_of(row)
        if row in hopeless:
            why = f"can never start: {hopeless[row]}"
        elif isinstance(ask.program, WhatIf):
            why = _why(ask, ask.program, row, kind)
            if deep and kind is None and row in set(ask.program.rows.tolist()):
                why += _best_forced(ask, row)
        else:
            why = f"decided by the order of policy {ask.policy.name!r}, which has no model"
        out.append(JobReason(name, None if kind is None else str(types[kind]), why))
    return tuple(out)


def _why(ask: Questions, program: WhatIf, row: int, kind: int | None) -> str:
    """Say what decided a job, by its costs and the prices of the GPUs."""
    types, gang = ask.round_.cluster.types.tolist(), int(ask.round_.jobs.gang[row])
    held = program.held
    if row in held.job.tolist():
        return "its lease goes on, or it holds a reservation"
    if row not in program.rows.tolist():
        return f"no type it runs on has {gang} GPUs free beside the leases that go on"
    cost = np.where(gang <= held.free, program.cost[row], np.inf)
    best = int(np.argmin(cost))
    prices = _prices(ask)
    if kind is not None:
        if kind == best or cost[kind] <= cost[best]:
            return f"runs on the type it costs least on ({cost[kind]:.4g})"
        text = f"{types[best]} would cost {cost[kind] - cost[best]:.4g} less, but"
        if prices is not None and prices[best] > prices[kind]:
            dearer = prices[best] - prices[kind]
            return f"{text} its GPUs are wanted: each is {dearer:.4g} dearer than {types[kind]}'s"
        return f"{text} whole gangs pack better this way"
    if prices is None:
        return "waits: the GPUs are of more use to others"
    net = cost + prices * gang
    at = int(np.argmin(net))
    if net[at] <= 1e-9 * max(1.0, abs(float(cost[at]))):
        return f"waits: at the going prices {types[at]} would be as good, but gangs do not pack"
    return f"waits: at the going prices it would have to cost {net[at]:.4g} less on {types[at]}"


def _best_forced(ask: Questions, row: int) -> str:
    """Tell the least that it takes to let a waiting job run."""
    tried = [
        one
        for one in _options(ask, row)
        if one.gpu_type is not None and one.possible and one.gpus_change is not None
    ]
    if not tried:
        return ""
    best = min(tried, key=lambda one: (-(one.gpus_change or 0), _or_infinite(one.objective_change)))
    change = "not known" if best.objective_change is None else f"{best.objective_change:+.4g}"
    stopped = f", {shortened(best.stopped)} would wait" if best.stopped else ""
    return (
        f"; forced onto {best.gpu_type}: objective {change}, {best.gpus_change:+d} GPUs in use"
        f"{stopped}"
    )


def _or_infinite(value: float | None) -> float:
    return np.inf if value is None else value


def _options(ask: Questions, row: int) -> tuple[Option, ...]:
    """What each type, or waiting, would take."""
    program = ask.program
    if not isinstance(program, WhatIf):
        return ()
    jobs, got = ask.round_.jobs, ask.kind_of(row)
    gang, free = int(jobs.gang[row]), program.held.free
    prices = _prices(ask)
    leased = row in program.held.job.tolist()
    out: list[Option] = []
    for kind, name in enumerate(ask.round_.cluster.types.tolist()):
        cost = float(program.cost[row, kind])
        shown = cost if np.isfinite(cost) else None
        price = None if prices is None else float(prices[kind]) * gang
        if kind == got:
            out.append(Option(name, True, shown, price, 0.0, 0, (), "what it got"))
        elif leased:
            out.append(Option(name, False, shown, price, reason="its lease goes on elsewhere"))
        elif shown is None:
            out.append(Option(name, False, reason="it cannot run there"))
        elif gang > free[kind]:
            reason = f"{int(free[kind])} GPUs are free, its gang needs {gang}"
            out.append(Option(name, False, shown, price, reason=reason))
        else:
            out.append(_forced(ask, row, kind, name, shown, price))
    if got is None:
        out.append(Option(None, True, 0.0, 0.0, 0.0, 0, (), "what it got"))
    elif not leased:
        out.append(_forced(ask, row, None, None, 0.0, 0.0))
    return tuple(out)


def _forced(
    ask: Questions, row: int, kind: int | None, name: str | None, cost: float, price: float | None
) -> Option:
    change = ask.forced(row, kind)
    possible = change.status not in ("INFEASIBLE", "NO_SOLUTION")
    reason = "" if possible else f"{change.status}: no plan obeys all rules then"
    stopped = tuple(one for one in change.stopped if one != str(ask.round_.jobs.id[row]))
    return Option(
        name, possible, cost, price, change.objective, change.gpus, stopped, reason
    )  # fmt: skip
