"""Which GPUs of which nodes a gang gets: sticky, largest gang first, fewest hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from apportion.executor.training.nodes import Hosts, Room, room
from apportion.instances.columns import Bools, freeze
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Placement, TrainingRound


def place(round_: TrainingRound, allocation: Allocation) -> tuple[Allocation, list[Violation]]:
    """Give every gang of an allocation its GPUs on nodes.

    A job that runs on with the same type and number of GPUs keeps the very same ones. The others
    follow, largest gang first, then lowest row: on one node where possible (the fullest that has
    room, the lowest on ties), else on the emptiest nodes.

    Parameters
    ----------
    round_
        The round that was decided.
    allocation
        An allocation that passes ``check``. One that carries a placement is returned as it is.

    Returns
    -------
    Allocation
        With a placement, less the gangs that found no room.
    list of Violation
        One for each gang left out, rule ``unplaced``: its CPU cores or host memory fit on no
        nodes, though its GPUs do.
    """
    if allocation.placement is not None:
        return allocation, []
    free = room(round_.cluster, round_.node_up, round_.jobs)
    held = hosts_by_row(round_.placement)
    jobs, where = round_.jobs, dict[int, Hosts]()
    lost = round_.stranded
    wanted: list[tuple[int, int, int]] = []
    for row, kind, gpus in zip(
        allocation.job.tolist(), allocation.gpu_type.tolist(), allocation.gpus.tolist(), strict=True
    ):
        stays = jobs.running[row] and not lost[row] and jobs.previous_type[row] == kind
        if stays and jobs.held_gpus[row] == gpus and row in held:
            where[row] = held[row]
            free.occupy(row, held[row])
        else:
            wanted.append((row, kind, gpus))
    missing = place_gangs(free, wanted, where)
    return _with_placement(allocation, where, missing), [
        unplaced(round_, row, gpus) for row, _, gpus in missing
    ]


def place_gangs(
    free: Room, wanted: Iterable[tuple[int, int, int]], where: dict[int, Hosts]
) -> list[tuple[int, int, int]]:
    """Place gangs (row, type, GPUs), largest first, and enter them in ``where``.

    Returns
    -------
    list of (row, type, GPUs)
        The gangs that found no room.
    """
    missing: list[tuple[int, int, int]] = []
    for row, kind, gpus in sorted(wanted, key=lambda gang: (-gang[2], gang[0])):
        hosts = free.take(row, kind, gpus)
        if hosts is None:
            missing.append((row, kind, gpus))
        else:
            where[row] = hosts
    return missing


def unplaced(round_: TrainingRound, row: int, gpus: int) -> Violation:
    """Say why a gang found no room."""
    text = f"job {str(round_.jobs.id[row])!r}: no nodes have room for its {gpus} GPUs with their"
    return Violation("unplaced", f"{text} CPU cores and host memory")


def hosts_by_row(placement: Placement) -> dict[int, Hosts]:
    """Group the entries of a placement by job, nodes rising."""
    out: dict[int, list[tuple[int, int]]] = {}
    for row, node, gpus in zip(
        placement.job.tolist(), placement.node.tolist(), placement.gpus.tolist(), strict=True
    ):
        out.setdefault(row, []).append((node, gpus))
    return {row: tuple(sorted(entries)) for row, entries in out.items()}


def entries(rows: Iterable[int], where: dict[int, Hosts]) -> Placement:
    """Lay the hosts of some jobs out as a placement, rows in the order given."""
    flat = [(row, node, gpus) for row in rows for node, gpus in where[row]]
    table = np.array(flat, dtype=np.int64).reshape(len(flat), 3)
    columns = [table[:, c].copy() for c in range(3)]
    for column in columns:
        freeze(column)
    return Placement(*columns)


def without(allocation: Allocation, keep: Bools) -> Allocation:
    """Drop rows of an allocation; its placement, if any, is dropped with them."""
    columns = {
        name: getattr(allocation, name)[keep]
        for name in ("job", "gpu_type", "gpus", "lease_end_s", "guaranteed")
    }
    for column in columns.values():
        freeze(column)
    return replace(allocation, placement=None, **columns)


def _with_placement(
    allocation: Allocation, where: dict[int, Hosts], missing: list[tuple[int, int, int]]
) -> Allocation:
    if missing:
        gone = [row for row, _, _ in missing]
        allocation = without(allocation, ~np.isin(allocation.job, gone))
    return replace(allocation, placement=entries(allocation.job.tolist(), where))
