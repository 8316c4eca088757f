"""Which GPUs of which nodes gangs get, by how fast they are when spread.

The batch rule tries four orders and keeps the best; the exact model chooses a pattern for every
gang. Both are pure functions of gangs, speeds and free GPUs; ``placed`` applies them to a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from apportion.instances import Decision
from apportion.instances.columns import Floats, Ints
from apportion.instances.training import Allocation, Placement, TrainingRound
from apportion.instances.training.laws import spread_speed
from apportion.solver import Budget, ModelBuilder, Solver

PlacementMode = Literal["none", "batch", "exact"]

Hosts: TypeAlias = tuple[tuple[int, int], ...]
"""Nodes, rising, with the GPUs on each."""

PATTERNS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((1,),),
    2: ((2,), (1, 1)),
    3: ((3,), (2, 1)),
    4: ((4,), (2, 2)),
    5: ((5,), (3, 2), (2, 2, 1)),
    6: ((6,), (4, 2), (2, 2, 2)),
    7: ((7,), (6, 1), (4, 3), (3, 2, 2)),
    8: ((8,), (4, 4), (6, 2), (4, 2, 2), (2, 2, 2, 2)),
}
"""Ways to split a gang that the source profiles; larger gangs are laid on the fewest nodes."""

MOST_MODELLED = 20_000
"""Variables of the exact model beyond which the batch rule answers: it would take seconds."""


def speeds_by_hosts(round_: TrainingRound, rows: Ints) -> Floats:
    """Relative speed of jobs on 1, 2, ... nodes, shape (m, largest gang); the last also on more."""
    jobs = round_.jobs
    most = int(jobs.gang[rows].max(initial=1))
    out = np.ones((rows.size, most))
    for at, row in enumerate(rows.tolist()):
        cut = slice(int(jobs.spread_offsets[row]), int(jobs.spread_offsets[row + 1]))
        hosts, speed = jobs.spread_hosts[cut], jobs.spread_speed[cut]
        if hosts.size:
            out[at] = [spread_speed(count, hosts, speed) for count in range(1, most + 1)]
    return out


def reward(gang: Ints, speed: Floats, hosts: Sequence[Hosts]) -> float:
    """GPUs times relative speed, added up."""
    column = np.array([len(one) for one in hosts], dtype=np.int64).clip(1, speed.shape[1]) - 1
    return float((gang * speed[np.arange(gang.size), column]).sum()) if gang.size else 0.0


def batch_placement(gang: Ints, speed: Floats, free: Ints) -> list[Hosts]:
    """Place gangs greedily in four orders, and keep the one of most reward, the first on ties.

    Parameters
    ----------
    gang
        GPUs of each job, shape (m,); in all no more than are free.
    speed
        Relative speed by number of nodes, shape (m, h).
    free
        GPUs free on each node, shape (nodes,).

    Raises
    ------
    ValueError
        If there are too few GPUs.
    """
    if int(gang.sum()) > int(free.sum()):
        raise ValueError(f"{int(gang.sum())} GPUs to place, {int(free.sum())} free")
    worth = gang[:, None] * speed
    spread, most = worth.max(axis=1) - worth.min(axis=1), worth.max(axis=1)
    best, best_worth = list[Hosts](), -np.inf
    for key in (-spread, -gang, gang, -most):
        left = free.copy()
        hosts: list[Hosts] = [()] * gang.size
        for job in np.argsort(key, kind="stable").tolist():
            hosts[job] = _greedy(int(gang[job]), left)
        if (total := reward(gang, speed, hosts)) > best_worth:
            best, best_worth = hosts, total
    return best


def _greedy(gang: int, left: Ints) -> Hosts:
    """Take the tightest node that fits, else the emptiest and one for the rest, else the emptiest.

    Changes ``left``.
    """
    fits = np.flatnonzero(left >= gang)
    if fits.size:
        return _take([(int(fits[np.argmin(left[fits])]), gang)], left)
    largest = int(np.argmax(left))
    rest = gang - int(left[largest])
    others = np.flatnonzero(left >= rest)
    others = others[others != largest]
    if others.size and left[largest]:
        second = int(others[np.argmin(left[others])])
        return _take([(largest, gang - rest), (second, rest)], left)
    return emptiest_first(gang, left)


def emptiest_first(gang: int, left: Ints) -> Hosts:
    """Fill the emptiest nodes, which are the fewest that hold a gang; changes ``left``."""
    taken = list[tuple[int, int]]()
    for node in np.argsort(-left, kind="stable").tolist():
        if gang == 0:
            break
        part = min(gang, int(left[node]))
        if part:
            taken.append((node, part))
            gang -= part
    return _take(taken, left)


def _take(taken: list[tuple[int, int]], left: Ints) -> Hosts:
    for node, part in taken:
        left[node] -= part
    return tuple(sorted(taken))


def exact_placement(
    gang: Ints, speed: Floats, free: Ints, solver: Solver, budget: Budget
) -> list[Hosts] | None:
    """Choose a pattern for every gang and nodes for its parts, for the most reward.

    ``y[j,P]`` chooses a pattern, ``u[j,P,q,m]`` puts a part of q GPUs on node m: each pattern has
    as many parts of q GPUs as it says, on different nodes, and nodes hold what is free.

    Parameters
    ----------
    gang, speed, free
        As for the batch rule; gangs of at most 8 GPUs.
    solver, budget
        With what, and until when.

    Returns
    -------
    Nodes of each job; None where no patterns fit, or no answer was found.
    """
    choices = [(job, parts) for job, size in enumerate(gang.tolist()) for parts in PATTERNS[size]]
    entries = [
        (at, size, node)
        for at, (_, parts) in enumerate(choices)
        for size in sorted(set(parts))
        for node in np.flatnonzero(free >= size).tolist()
    ]
    if not entries or len(entries) > MOST_MODELLED:
        return None
    point = _solved(gang, speed, free, choices, entries, solver, budget)
    if point is None:
        return None
    hosts: list[list[tuple[int, int]]] = [[] for _ in range(gang.size)]
    for chosen, (at, size, node) in zip(point[len(choices) :].tolist(), entries, strict=True):
        if chosen > 0.5:
            hosts[choices[at][0]].append((node, size))
    return [tuple(sorted(one)) for one in hosts]


def _solved(
    gang: Ints, speed: Floats, free: Ints, choices: list[tuple[int, tuple[int, ...]]],
    entries: list[tuple[int, int, int]], solver: Solver, budget: Budget,
) -> Floats | None:  # fmt: skip
    job = np.array([job for job, _ in choices], dtype=np.int64)
    width = speed.shape[1]
    parts = np.array([min(len(parts), width) for _, parts in choices], dtype=np.int64)
    choice, size, node = np.array(entries, dtype=np.int64).T
    builder = ModelBuilder("placement")
    y = builder.columns("pattern", job.size, upper=1.0, integer=True)
    u = builder.columns("part", choice.size, upper=1.0, integer=True)
    builder.rows("one_pattern", gang.size, lower=1.0, upper=1.0, row=job, column=y, value=1.0)
    kinds = [(at, q) for at, (_, pattern) in enumerate(choices) for q in sorted(set(pattern))]
    place = {kind: row for row, kind in enumerate(kinds)}
    row = np.array([place[at, q] for at, q, _ in entries], dtype=np.int64)
    count = np.array([choices[at][1].count(q) for at, q in kinds], dtype=np.float64)
    owner = np.array([at for at, _ in kinds], dtype=np.int64)
    builder.rows(
        "parts", len(kinds), lower=0.0, upper=0.0,
        row=np.concatenate((row, np.arange(len(kinds)))), column=np.concatenate((u, y[owner])),
        value=np.concatenate((np.ones(u.size), -count)),
    )  # fmt: skip
    pair = choice * free.size + node
    known, at = np.unique(pair, return_inverse=True)
    builder.rows(
        "apart", known.size, upper=0.0,
        row=np.concatenate((at, np.arange(known.size))),
        column=np.concatenate((u, y[known // free.size])),
        value=np.concatenate((np.ones(u.size), -np.ones(known.size))),
    )  # fmt: skip
    builder.rows("free", free.size, row=node, column=u, value=size, upper=free)
    builder.objective("reward", column=y, value=gang[job] * speed[job, parts - 1], maximise=True)
    return solver.solve(builder.build(), budget=budget).point


def placed(
    round_: TrainingRound, decision: Decision, mode: PlacementMode, solver: Solver, budget: Budget
) -> Decision:
    """Put the gangs of a decision on nodes; those that run on stay where they are.

    Gangs larger than any node go first, onto the fewest nodes; unlike in the released code none is
    refused, since that would break a promise. Where jobs ask for CPU cores or memory, which the
    source does not treat, the executor places them.
    """
    plan: Allocation = decision.allocation
    jobs = round_.jobs
    if mode == "none" or not plan.job.size:
        return decision
    if jobs.cpus.any() or jobs.memory_gib.any():
        note = "chronus.placement: jobs ask for CPU cores or memory; the executor places them"
        return replace(decision, notes=(*decision.notes, note))
    cluster, entries = round_.cluster, list[tuple[int, int, int]]()
    held = round_.placement
    left = np.where(round_.node_up, cluster.node_gpus, 0)
    stays = jobs.running[plan.job] & ~round_.stranded[plan.job]
    stays &= (jobs.previous_type[plan.job] == plan.gpu_type) & (
        jobs.held_gpus[plan.job] == plan.gpus
    )
    stays &= np.isin(plan.job, held.job)
    on = np.isin(held.job, plan.job[stays])
    np.subtract.at(left, held.node[on], held.gpus[on])
    entries += zip(held.job[on].tolist(), held.node[on].tolist(), held.gpus[on].tolist(),
                   strict=True)  # fmt: skip
    for kind in range(cluster.types.size):
        new = np.flatnonzero(~stays & (plan.gpu_type == kind))
        nodes = np.flatnonzero(cluster.node_type == kind)
        hosts = _on_type(round_, plan, new, left[nodes], mode, solver, budget)
        for at, one in zip(new.tolist(), hosts, strict=True):
            entries += [(int(plan.job[at]), int(nodes[node]), gpus) for node, gpus in one]
    table = np.array(sorted(entries), dtype=np.int64).reshape(-1, 3)
    where = Placement.of(table[:, 0], table[:, 1], table[:, 2])
    return replace(decision, allocation=replace(plan, placement=where))


def _on_type(
    round_: TrainingRound, plan: Allocation, new: Ints, left: Ints, mode: PlacementMode,
    solver: Solver, budget: Budget,
) -> list[Hosts]:  # fmt: skip
    gang = plan.gpus[new]
    hosts: list[Hosts] = [()] * new.size
    large = gang > max(PATTERNS)
    for at in np.flatnonzero(large)[np.argsort(-gang[large], kind="stable")].tolist():
        hosts[at] = emptiest_first(int(gang[at]), left)
    small = np.flatnonzero(~large)
    if not small.size:
        return hosts
    speed = speeds_by_hosts(round_, plan.job[new[small]])
    found = None
    if mode == "exact" and not budget.expired():
        found = exact_placement(gang[small], speed, left, solver, budget)
    found = batch_placement(gang[small], speed, left) if found is None else found
    for at, one in zip(small.tolist(), found, strict=True):
        hosts[at] = one
    return hosts
