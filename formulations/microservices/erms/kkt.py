"""Erms as published: targets from merged calls, then whole containers for each target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.formulations.microservices.erms.orders import all_orders, by_targets
from apportion.formulations.microservices.erms.problem import Workload
from apportion.formulations.microservices.erms.targets import Targets, targets
from apportion.instances.columns import Floats, Ints


@dataclass(frozen=True, eq=False)
class Plan:
    """Counts, and what they were made for.

    Parameters
    ----------
    counts
        Containers of each microservice, shape (M,); may be infinite.
    targets
        Targets of the calls.
    position
        Place of each service, shape (S,); None: in order of arrival.
    """

    counts: Floats
    targets: Targets
    position: Ints | None = None


def first_pass(work: Workload) -> Targets:
    """Targets of each service as if it were alone."""
    return _targets(work, work.of_own)


def in_order_of_arrival(work: Workload, first: Targets) -> Plan:
    """Containers that carry everybody's load at the smallest target."""
    problem = work.together(work.of_all, work.request_target_ms)
    return Plan(problem.counts_for(first.own_ms), first)


def apart(work: Workload, first: Targets) -> Plan:
    """Containers for each service of its own."""
    problem = work.apart()
    counts = problem.totals(problem.counts_for(first.own_ms))
    return Plan(np.maximum(counts, work.floor), first)


def with_priority(work: Workload, first: Targets, position: Ints) -> Plan:
    """Containers where each service waits only for those not behind it.

    Targets are computed a second time, with the work that each service meets. Where the plan for
    order of arrival is cheaper it is kept: under priorities nobody meets more work.
    """
    met = work.of_order(position)
    second = _targets(work, met)
    problem = work.together(met, work.request_target_ms)
    counts = problem.counts_for(second.own_ms)
    plain = in_order_of_arrival(work, first)
    cost = work.round_.microservices.cost
    if float(cost @ plain.counts) < float(cost @ counts):
        return Plan(plain.counts, first, position)
    return Plan(counts, second, position)


def best_order(work: Workload, first: Targets, *, enumerate_all: bool) -> Plan:
    """Plan under the order of the targets, or under the cheapest of all orders."""
    best = with_priority(work, first, by_targets(work, first))
    cost = work.round_.microservices.cost
    for position in all_orders(work) if enumerate_all else ():
        plan = with_priority(work, first, position)
        if float(cost @ plan.counts) < float(cost @ best.counts):
            best = plan
    return best


def _targets(work: Workload, met: Floats) -> Targets:
    cost = work.round_.microservices.cost
    return targets(work.forest, work.linear, cost, met, work.request_target_ms)
