"""Why jobs got what they got where every job has a cost on every type, and GPUs have prices."""

from __future__ import annotations

import numpy as np

from apportion.instances.columns import Floats
from apportion.questions.explanation import Option, TypeUse
from apportion.questions.what_if import Questions, WhatIf, shortened


def types_of(ask: Questions, program: WhatIf) -> tuple[TypeUse, ...]:
    """List the GPUs that could be given, and what the prices say of them."""
    plan = ask.base.allocation
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


def why(ask: Questions, program: WhatIf, row: int, kind: int | None) -> str:
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


def best_forced(ask: Questions, program: WhatIf, row: int) -> str:
    """Tell the least that it takes to let a waiting job run."""
    tried = [
        one
        for one in options_of(ask, program, row)
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


def options_of(ask: Questions, program: WhatIf, row: int) -> tuple[Option, ...]:
    """What each type, or waiting, would take."""
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
