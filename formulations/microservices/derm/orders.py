"""Orders in which microservices serve the classes, and the cheapest plan over them.

Source: the queue mode of the specification (reconstructed after Erms): a class meets the load of
the classes that do not come after it. That is optimistic, for a real queue shifts delay instead of
removing it: plans of this mode want to be simulated with queues.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import cast

import numpy as np

from apportion.formulations.microservices.derm.greedy import climb, trim
from apportion.formulations.microservices.derm.requirements import Requirements
from apportion.formulations.microservices.derm.search import Found, cheapest
from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import laws
from apportion.instances.policy import Budget

MOST_ENUMERATED = 4
"""Classes up to which all orders are tried: 24 of them."""


def cheapest_order(
    need: Requirements, budget: Budget, *, gap: float, most_nodes: int
) -> tuple[Found, Ints | None]:
    """Search the cheapest plan over the orders of the classes.

    Returns
    -------
    found
        Proved only where all orders were tried.
    rank
        Order of all classes of the round, shape (K,); classes that do not occur come last.
    """
    own = need.tails.classes
    if own.size > MOST_ENUMERATED:
        return _improved(need, budget)
    every = [
        _rank(need, np.array(order, dtype=np.int64)) for order in permutations(range(own.size))
    ]
    every.sort(key=lambda rank: _heuristic(replace(need, rank=rank), budget))
    best: Found | None = None
    chosen, bounds, nodes, limited = every[0], list[float](), 0, False
    for rank in every:
        found = cheapest(replace(need, rank=rank), budget, gap=gap, most_nodes=most_nodes)
        nodes, limited = nodes + found.nodes, limited or found.time_limited
        if found.impossible:
            continue
        bounds.append(-np.inf if found.bound is None else found.bound)
        if found.containers is None:
            continue
        if best is None or _value(need, found) < _value(need, best):
            best, chosen = found, rank
    if best is None:
        return Found(None, None, impossible=not bounds, nodes=nodes, time_limited=limited), None
    bound = min(bounds)
    proved = best.proved and _value(need, best) - bound <= gap * abs(bound) + 1e-9
    out = replace(best, bound=bound if np.isfinite(bound) else None, proved=proved)
    return replace(out, nodes=nodes, time_limited=limited), chosen


def _value(need: Requirements, found: Found) -> float:
    return need.value(cast(Ints, found.containers))


def _rank(need: Requirements, order: Ints) -> Ints:
    """Give the rank of every class of the round from an order of the active ones."""
    out = np.full(len(need.round_.classes), order.size, dtype=np.int64)
    out[need.tails.classes[order]] = np.arange(order.size)
    return cast(Ints, out)


def _heuristic(need: Requirements, budget: Budget) -> float:
    plan = climb(need, budget)
    if not plan.kept:
        return np.inf
    return need.value(trim(need, plan.containers, budget).containers)


def _improved(need: Requirements, budget: Budget) -> tuple[Found, Ints | None]:
    """Start with the classes of least slack first, and swap neighbours while that is cheaper."""
    order = np.argsort(_slack_ms(need), kind="stable")
    best = _heuristic(replace(need, rank=_rank(need, order)), budget)
    changed = True
    while changed and budget.left_s() > 0.0:
        changed = False
        for at in range(order.size - 1):
            other = order.copy()
            other[[at, at + 1]] = other[[at + 1, at]]
            value = _heuristic(replace(need, rank=_rank(need, other)), budget)
            if value < best * (1.0 - 1e-9):
                order, best, changed = other, value, True
    rank = _rank(need, order)
    own = replace(need, rank=rank)
    plan = climb(own, budget)
    if not plan.kept:
        return Found(None, None, time_limited=plan.time_limited), None
    better = trim(own, plan.containers, budget)
    return Found(better.containers, None, time_limited=better.time_limited), rank


def _slack_ms(need: Requirements) -> Floats:
    """Target less mean latency of each active class in order of arrival, shape (A,)."""
    round_, tails = need.round_, need.tails
    counts = np.maximum(need.low, 1)
    rate = laws.rates(round_.microservices, laws.loads(round_, counts))[:, 0]
    with np.errstate(divide="ignore"):
        mean = np.where(rate > 0, 1.0 / rate, np.inf) + round_.microservices.shift_ms
    demand = round_.demand[:, tails.classes]
    total = np.where(demand > 0, demand * np.where(demand > 0, mean[:, None], 0.0), 0.0).sum(axis=0)
    target = round_.services.target_ms[round_.classes.service[tails.classes]]
    return cast(Floats, target - total)
