"""The rules of a round of microservices, recomputed from the round alone.

Nothing here knows how an allocation was found. The claim that a service keeps its SLA is judged
by bounds that were found by other means than any planner's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from apportion.executor.listing import listed
from apportion.executor.microservices.violation_bounds import refuted_claims
from apportion.executor.tolerances import CLAIM_TOLERANCE, HOST_RELATIVE
from apportion.instances.columns import Floats
from apportion.instances.microservices import Allocation, MicroserviceRound, Nodes
from apportion.instances.policy import Violation


def check(round_: MicroserviceRound, allocation: Allocation) -> list[Violation]:
    """Recompute every rule of the family of microservices.

    Parameters
    ----------
    round_
        The round that was decided.
    allocation
        Containers, claims, and where given the order of the classes and the placement.

    Returns
    -------
    list of Violation
        Empty where the allocation may be carried out. Rules, by name: ``shape``,
        ``least_containers``, ``most_containers``, ``cpu``, ``memory``, ``rank``, ``placement``,
        ``placement_sum``, ``node_cpu``, ``node_memory``, ``guarantee``.

    Notes
    -----
    Where columns do not fit the round, the later rules cannot be looked up and are not reported.
    A claim is refuted where the lower bound of the violation is above its budget by more than
    ``CLAIM_TOLERANCE``; one that can be neither proved nor refuted with ``LATTICE_STEPS_MOST``
    lattice steps stands. Order among classes is judged by the law of the round, by which a class
    meets the load of those that do not come after it.
    """
    found = _shapes(round_, allocation)
    if found:
        return found
    found = _bounds(round_, allocation) + _totals(round_, allocation)
    found += _rank(round_, allocation)
    found += _placement(round_, allocation)
    broken = any(v.rule == "rank" for v in found)
    return found if broken else found + _claims(round_, allocation)


def _shapes(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    m, s, k = len(round_.microservices), len(round_.services), len(round_.classes)
    expected: list[tuple[str, Any, tuple[int, ...], str]] = [
        ("containers", a.containers, (m,), "i"),
        ("guaranteed", a.guaranteed, (s,), "b"),
    ]
    if a.rank is not None:
        expected.append(("rank", a.rank, (k,), "i"))
    if a.placement is not None:
        if round_.nodes is None:
            return [Violation("placement", "containers are placed, but the round has no nodes")]
        expected.append(("placement", a.placement, (m, len(round_.nodes)), "i"))
    found: list[Violation] = []
    for name, column, shape, kind in expected:
        if column.shape != shape:
            text = f"allocation.{name} has shape {column.shape}, expected {shape}"
            found.append(Violation("shape", text))
        elif column.dtype.kind != kind:
            words = {"i": "whole numbers", "b": "true or false"}[kind]
            found.append(
                Violation("shape", f"allocation.{name} holds {column.dtype}, expected {words}")
            )
    return found


def _bounds(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    table, count = round_.microservices, a.containers
    least, most, ids = table.least_containers, table.most_containers, table.id
    return listed(
        "least_containers", np.flatnonzero(count < least),
        lambda m: f"{ids[m]}: {count[m]} containers, at least {least[m]} must run",
    ) + listed(
        "most_containers", np.flatnonzero(count > most),
        lambda m: f"{ids[m]}: {count[m]} containers, at most {most[m]} may run",
    )  # fmt: skip


def _totals(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    table, found = round_.microservices, list[Violation]()
    for rule, of_one, limit, unit in (
        ("cpu", table.cpu_cores, capacity_cpu(round_), "cores"),
        ("memory", table.memory_mib, capacity_memory(round_), "MiB"),
    ):
        used = float(of_one @ a.containers)
        if used > limit * (1.0 + HOST_RELATIVE):
            text = f"containers ask for {used:g} {unit}, there are {limit:g}"
            found.append(Violation(rule, text))
    return found


def capacity_cpu(round_: MicroserviceRound) -> float:
    """CPU cores that containers may ask for in all: of the cluster, and of its nodes."""
    if round_.nodes is None:
        return round_.cpu_cores
    free = np.maximum(round_.nodes.cpu_cores - round_.nodes.cpu_used, 0.0)
    return min(round_.cpu_cores, math.fsum(free.tolist()))


def capacity_memory(round_: MicroserviceRound) -> float:
    """Memory in MiB that containers may ask for in all: of the cluster, and of its nodes."""
    if round_.nodes is None:
        return round_.memory_mib
    free = np.maximum(round_.nodes.memory_mib - round_.nodes.memory_used_mib, 0.0)
    return min(round_.memory_mib, math.fsum(free.tolist()))


def _rank(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    if a.rank is None:
        return []
    rank, ids = a.rank, round_.classes.id
    return listed(
        "rank",
        np.flatnonzero(rank < 0),
        lambda k: f"class {ids[k]} has rank {rank[k]}, the first is 0",
    )


def _placement(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    nodes, placed = round_.nodes, a.placement
    if placed is None or nodes is None:
        return []
    table = round_.microservices
    bad = placed < 0
    if bad.any():
        return listed(
            "placement", np.flatnonzero(np.any(bad, axis=1)),
            lambda m: f"{table.id[m]}: {placed[m].min()} containers on a node",
        )  # fmt: skip
    total, count = placed.sum(axis=1), a.containers
    found = listed(
        "placement_sum", np.flatnonzero(total != count),
        lambda m: f"{table.id[m]}: {total[m]} containers are placed, {count[m]} are to run",
    )  # fmt: skip
    for rule, of_one, size, used, unit in (
        ("node_cpu", table.cpu_cores, nodes.cpu_cores, nodes.cpu_used, "cores"),
        ("node_memory", table.memory_mib, nodes.memory_mib, nodes.memory_used_mib, "MiB"),
    ):
        found += _full(rule, nodes, of_one @ placed, (size, used), unit)
    return found


def _full(
    rule: str, nodes: Nodes, asked: Floats, node: tuple[Floats, Floats], unit: str
) -> list[Violation]:
    """Tell the nodes on which more is placed than others leave; nothing is always allowed."""
    size, used = node
    free = np.maximum(size - used, 0.0)
    return listed(
        rule, np.flatnonzero((asked > 0) & (asked > free + HOST_RELATIVE * size)),
        lambda j: f"{nodes.id[j]}: containers ask for {asked[j]:g} {unit}, {free[j]:g} are free",
    )  # fmt: skip


def _claims(round_: MicroserviceRound, a: Allocation) -> list[Violation]:
    services = round_.services
    claimed = a.guaranteed & (services.rate_per_s > 0)
    if not claimed.any():
        return []
    usable = np.maximum(a.containers, 0)
    found = refuted_claims(round_, usable, a.rank, claimed)
    budget = services.violation_budget
    return listed(
        "guarantee", np.flatnonzero(claimed & (found.low > budget + CLAIM_TOLERANCE)),
        lambda s: f"service {services.id[s]}: its SLA is claimed to be kept, but at least"
        f" {found.low[s]:.6g} of its requests take more than {services.target_ms[s]:g} ms,"
        f" {budget[s]:g} may",
    )  # fmt: skip
