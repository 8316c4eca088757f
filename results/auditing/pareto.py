"""Pareto efficiency: nobody could have more without somebody having less."""

from __future__ import annotations

from typing import cast

import numpy as np

from apportion.instances.columns import Floats
from apportion.results.auditing.audited import TOLERANCE, AuditedUsers, utility
from apportion.results.auditing.findings import Finding
from apportion.solver import Budget, Model, ModelBuilder, Solver

NAME, CAPACITY = "pareto-efficiency", "within-capacity"


def within_capacity(users: AuditedUsers) -> Finding:
    """Look whether the bundles together are no more than there is; the margin is in GPUs."""
    if not users.capacity.size:
        return Finding(CAPACITY, None, words="there are no GPU types")
    held = users.gpus.sum(axis=0)
    margin = users.capacity - held
    at = int(margin.argmin())
    kind = str(users.types[at])
    holds = bool((margin >= -TOLERANCE * np.maximum(1.0, users.capacity)).all())
    words = f"{held[at]:.4g} of {users.capacity[at]:.4g} GPUs of {kind} are held"
    return Finding(CAPACITY, holds, (kind,), float(margin[at]), words)


def pareto(
    users: AuditedUsers, *, solver: Solver | None = None, budget: Budget | None = None
) -> Finding:
    """Seek by an LP the most that users could gain together while nobody loses.

    Maximise ``sum_l utility_l(y_l)`` over bundles y with ``utility_l(y_l) >= utility_l(gpus_l)``,
    within the capacity and the GPUs each can use. The margin is minus the sum of the gains, 0 where
    the bound leaves none above the tolerance.

    The answer is no only where the gains of the LP's point, valued again here, exceed what the
    solver's rounding of rows could have made up, and yes only where the LP's bound leaves none.

    Parameters
    ----------
    users
        Who is audited.
    solver, budget
        How the LP is solved, and for how long; default: as long as it takes.
    """
    if not len(users):
        return Finding(NAME, None, words="needs a user")
    if within_capacity(users).holds is False:
        return Finding(NAME, None, words="does not apply: more GPUs are held than there are")
    own = utility(users.speed, users.most, _fitting(users))
    solver = solver or Solver(gap=TOLERANCE)
    answer = solver.solve(_model(users, own), budget=budget or Budget.of(None))
    total = float(own.sum())
    least = TOLERANCE * max(1.0, total)
    if answer.point is not None:
        better = answer.x.reshape(users.gpus.shape)
        gain = utility(users.speed, users.most, np.maximum(better, 0.0)) - own
        if float(gain.sum()) > least + _ratio(users) * float(np.maximum(-gain, 0.0).sum()):
            return _dominated(users, gain, own)
    bound = answer.bounds[-1] if answer.bounds else None
    if bound is not None and bound - total <= least:
        return Finding(NAME, True, (), 0.0, "no user can gain unless another loses")
    return Finding(NAME, None, words=f"not settled: {answer.message or answer.status.value}")


def _fitting(users: AuditedUsers) -> Floats:
    """Take back what rounding put above the capacity, so that the LP has a point."""
    held: Floats = users.gpus.sum(axis=0)
    scale = np.divide(users.capacity, held, out=np.ones(held.size), where=held > users.capacity)
    return users.gpus * np.maximum(scale, 0.0)


def _ratio(users: AuditedUsers) -> float:
    """Most that one unit of utility taken from one user can be worth to another."""
    return max(1.0, float(users.speed.max(initial=1.0)))


def _model(users: AuditedUsers, floor: Floats) -> Model:
    """Columns ``y[user, type]``; rows ``no_worse[user]``, ``capacity[type]``, ``most[user]``."""
    n, k = users.gpus.shape
    usable = users.speed > 0
    builder = ModelBuilder("pareto")
    upper = np.where(usable, np.maximum(users.capacity, 0.0)[None, :], 0.0)
    y = builder.columns("y", (n, k), upper=upper)
    row, kind = np.nonzero(usable)
    column, value = y[row, kind], users.speed[row, kind]
    builder.rows("no_worse", n, row=row, column=column, value=value, lower=floor)
    builder.rows(
        "capacity", k, row=kind, column=column, value=1.0, upper=np.maximum(users.capacity, 0.0)
    )
    limited = np.isfinite(users.most)
    if limited.any():
        place = np.cumsum(limited) - 1
        on = limited[row]
        builder.rows(
            "most", int(limited.sum()), row=place[row[on]], column=column[on], value=1.0,
            upper=users.most[limited],
        )  # fmt: skip
    builder.objective("utility", column=column, value=value, maximise=True)
    return builder.build()


def _dominated(users: AuditedUsers, gain: Floats, own: Floats) -> Finding:
    order = cast("list[int]", np.argsort(-gain, kind="stable").tolist())
    winners = [at for at in order if gain[at] > TOLERANCE * max(1.0, float(own[at]))]
    names = tuple(str(users.name[at]) for at in winners)
    shown = ", ".join(f"{users.name[at]} +{gain[at]:.4g}" for at in winners[:3])
    more = f" and {len(winners) - 3} more" if len(winners) > 3 else ""
    total = float(gain.sum())
    words = f"users could gain {total:.4g} and nobody lose: {shown}{more}"
    return Finding(NAME, False, names, -total, words)
