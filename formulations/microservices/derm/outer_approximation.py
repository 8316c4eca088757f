"""The level MILP: counts as steps, tangents on the classes, exact by repetition.

Every model is a relaxation: tangents lie above ``log F``, which is concave in the log means, and
chords above its exponential. The first plan of a model that keeps every row is therefore the
cheapest there is; a plan that does not adds its tangents, and a row that forbids all plans below a
largest one that still does not.

Source: outer approximation as in the specification (reconstructed there; Duran and Grossmann,
Math. Programming 36, 1986).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.levels import MOST_STEPS, Levels
from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.formulations.microservices.derm.search import Found, reachable
from apportion.instances.columns import Floats, Ints
from apportion.solver import Model, ModelBuilder, Solution, Solver, Status

BREAKS = (
    -40.0, -9.0, -3.0, -1.5, -0.8, -0.5, -0.3, -0.2, -0.14, -0.1, -0.07, -0.05, -0.03, -0.015, 0.0,
)  # fmt: skip
"""Where chords of the exponential meet, dense where SLAs lie; the first stands for a class that is
given up."""

MOST_MODELS = 200
"""Models solved before the best plan so far is given."""

SAFE = 1e-9
"""Added to every tangent, for what contours and slopes err: a relaxation has to stay one."""

_LEAST_MET = 1e-12


@dataclass(eq=False)
class Cuts:
    """Tangents and forbidden plans found so far."""

    value: list[Floats] = field(default_factory=list[Floats])
    slope: list[Floats] = field(default_factory=list[Floats])
    at: list[Floats] = field(default_factory=list[Floats])
    forbidden: list[Ints] = field(default_factory=list[Ints])

    def add_tangent(self, need: Requirements, nu: Floats) -> None:
        """Add the tangents of all classes at a point of the log means, shape (M,)."""
        met, slope = need.tails.met_and_slopes(np.exp(-nu)[:, None])
        floor = np.maximum(met, _LEAST_MET)
        self.value.append(np.log(floor))
        self.slope.append(np.where(met > _LEAST_MET, slope / floor, 0.0))
        self.at.append(nu)


def level_model(levels: Levels, cuts: Cuts) -> Model:
    """Write the relaxation with all cuts so far.

    Columns: ``step[microservice,count]`` binary and in order; ``log_met[class]``; ``met[class]``
    at most the chord of its exponential, by binary ``segment[class,number]`` and ``inside`` of it.
    Rows: ``sla`` for each requirement, ``tangent`` for each class and point, ``forbidden``.
    """
    need = levels.need
    builder = ModelBuilder("derm")
    step = levels.add_to(builder)
    count = need.tails.classes.size
    log_met = builder.columns("log_met", count, lower=BREAKS[0], upper=0.0)
    met = builder.columns("met", count, upper=1.0)
    _add_chords(builder, log_met, met)
    for name, weight, budget in (("sla", need.weight, need.budget),):
        row, k = np.nonzero(weight)
        builder.rows(
            name, budget.size, row=row, column=met[k], value=weight[row, k],
            lower=weight.sum(axis=1) - budget,
        )  # fmt: skip
    _add_tangents(builder, levels, cuts, step, log_met)
    _add_forbidden(builder, levels, cuts, step)
    return builder.build()


def _add_chords(builder: ModelBuilder, log_met: Ints, met: Ints) -> None:
    low, high = np.array(BREAKS[:-1]), np.array(BREAKS[1:])
    slope = (np.exp(high) - np.exp(low)) / (high - low)
    shape = (log_met.size, low.size)
    segment = builder.columns("segment", shape, integer=True)
    inside = builder.columns("inside", shape, upper=np.broadcast_to(high - low, shape))
    k, j = (part.ravel() for part in np.indices(shape))
    flat, within = segment.ravel(), inside.ravel()
    each = np.arange(log_met.size)
    builder.rows("one_segment", each.size, row=k, column=flat, value=1.0, lower=1.0, upper=1.0)
    builder.rows(
        "within", flat.size, row=np.tile(np.arange(flat.size), 2),
        column=np.concatenate((within, flat)),
        value=np.concatenate((np.ones(flat.size), -(high - low)[j])), upper=0.0,
    )  # fmt: skip
    builder.rows(
        "log", each.size, row=np.concatenate((each, k, k)),
        column=np.concatenate((log_met, flat, within)),
        value=np.concatenate((-np.ones(each.size), low[j], np.ones(flat.size))),
        lower=0.0, upper=0.0,
    )  # fmt: skip
    builder.rows(
        "chord", each.size, row=np.concatenate((each, k, k)),
        column=np.concatenate((met, flat, within)),
        value=np.concatenate((np.ones(each.size), -np.exp(low)[j], -slope[j])), upper=0.0,
    )  # fmt: skip


def _add_tangents(
    builder: ModelBuilder, levels: Levels, cuts: Cuts, step: Ints, log_met: Ints
) -> None:
    """``log_met <= value + slope @ (nu - at)``, with nu falling from its value at the bounds."""
    need, count = levels.need, log_met.size
    start = levels.nu(need.low)
    row, column, value, upper = list[Ints](), list[Ints](), list[Floats](), list[Floats]()
    for at, (own, slope, point) in enumerate(zip(cuts.value, cuts.slope, cuts.at, strict=True)):
        for k in range(count):
            number = at * count + k
            coefficients = slope[levels.owner, k] * levels.fall
            some = np.flatnonzero(coefficients)
            row.append(np.full(some.size + 1, number))
            column.append(np.append(step[some], log_met[k]))
            value.append(np.append(coefficients[some], 1.0))
            upper.append(np.array([own[k] + slope[:, k] @ (start - point) + SAFE]))
    if row:
        builder.rows(
            "tangent", len(row), row=np.concatenate(row), column=np.concatenate(column),
            value=np.concatenate(value), upper=np.concatenate(upper),
        )  # fmt: skip


def _add_forbidden(builder: ModelBuilder, levels: Levels, cuts: Cuts, step: Ints) -> None:
    """Some microservice has more than a plan that was too small even where it could not grow."""
    for number, plan in enumerate(cuts.forbidden):
        beyond = np.flatnonzero(levels.most > plan)
        at = levels.first[beyond] + (plan - levels.need.low)[beyond]
        builder.rows(
            f"forbidden_{number}", 1, row=np.zeros(at.size, dtype=np.int64), column=step[at],
            value=1.0, lower=1.0,
        )  # fmt: skip


def first_level_model(need: Requirements, budget: Any) -> Model | None:
    """Write the relaxation that `by_levels` starts from; None where no plan is known."""
    if not reachable(need):
        return None
    plan = climb(need, budget)
    levels = Levels.within(need, need.value(plan.containers))
    if not plan.kept or not 0 < levels.owner.size <= MOST_STEPS:
        return None
    cuts = Cuts()
    for counts in (need.low, plan.containers):
        cuts.add_tangent(need, levels.nu(counts))
    return level_model(levels, cuts)


def largest_missing(need: Requirements, plan: Ints, most: Ints) -> Ints:
    """Grow a plan that misses a row as long as it still does, one microservice after the other."""
    out = plan.copy()
    for m in np.flatnonzero(most > plan).tolist():
        low, high = int(out[m]), int(most[m])
        while low < high:
            middle = (low + high + 1) // 2
            trial = out.copy()
            trial[m] = middle
            if need.kept(trial):
                high = middle - 1
            else:
                low = middle
        out[m] = low
    return out


def by_levels(
    need: Requirements, solver: Solver, budget: Any, *, tangents: bool = True
) -> tuple[Found, Model | None]:
    """Solve level models until the plan of one keeps every row.

    Parameters
    ----------
    need
        What a plan must keep, in order of arrival.
    solver, budget
        How each model is solved, and until when.
    tangents
        False: forbidden plans alone, a pure 0/1 model. Slow, and independent of every slope.

    Returns
    -------
    found
        The plan and the bound of the last model.
    model
        The last model; None where none was needed.
    """
    if not reachable(need):
        return Found(None, None, impossible=True), None
    first = climb(need, budget)
    if not first.kept:
        return Found(None, None, time_limited=first.time_limited), None
    best = trim(need, first.containers, budget).containers
    levels = Levels.within(need, need.value(best))
    if levels.owner.size == 0 or levels.owner.size > MOST_STEPS:
        return Found(best, need.value(need.low), proved=levels.owner.size == 0), None
    cuts = Cuts()
    if tangents:
        for plan in (need.low, best):
            cuts.add_tangent(need, levels.nu(plan))
    return _repeated(levels, cuts, best, solver, budget, tangents=tangents)


def _repeated(
    levels: Levels, cuts: Cuts, best: Ints, solver: Solver, budget: Any, *, tangents: bool
) -> tuple[Found, Model]:
    need, base = levels.need, levels.need.value(levels.need.low)
    bound, number = base, 0
    model = _model(levels, cuts, tangents)
    for number in range(MOST_MODELS):  # noqa: B007  # told afterwards
        solution = solver.solve(model, budget=budget)
        bound = max(bound, base + _bound(solution))
        if solution.status is Status.INFEASIBLE:
            bound = need.value(best)  # no other plan is as cheap as the known one
            break
        if solution.point is None or need.value(best) - bound <= solver.gap * abs(bound) + 1e-9:
            break
        plan = levels.counts(solution)
        if need.kept(plan):
            best = plan if need.value(plan) <= need.value(best) else best
            break
        cuts.forbidden.append(largest_missing(need, plan, levels.most))
        if tangents:
            cuts.add_tangent(need, levels.nu(plan))
        if budget.left_s() <= 0.0:
            break
        model = _model(levels, cuts, tangents)
    value = need.value(best)
    proved = value - bound <= solver.gap * abs(bound) + 1e-9
    late = not proved and budget.left_s() <= 0.0
    return Found(best, min(bound, value), proved, nodes=number + 1, time_limited=late), model


def _bound(solution: Solution) -> float:
    found = solution.bounds[0] if solution.bounds else None
    return 0.0 if found is None else float(found)


def _model(levels: Levels, cuts: Cuts, tangents: bool) -> Model:
    if tangents:
        return level_model(levels, cuts)
    builder = ModelBuilder("derm_counts")
    step = levels.add_to(builder)
    _add_forbidden(builder, levels, cuts, step)
    return builder.build()


def tangent_values(cuts: Cuts, nu: Floats) -> Floats:
    """Give the least tangent of each class at a point, shape (A,): above ``log F`` everywhere."""
    values = [
        own + (nu - point) @ slope
        for own, slope, point in zip(cuts.value, cuts.slope, cuts.at, strict=True)
    ]
    return cast(Floats, np.min(values, axis=0))
