"""From a checked allocation to what changes in the world."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from apportion.executor.refusal import InvalidAllocation
from apportion.executor.training.check import check
from apportion.executor.training.check_nodes import check_placement
from apportion.executor.training.check_promises import check_commitments
from apportion.executor.training.nodes import Hosts
from apportion.executor.training.placement import hosts_by_row, place_gangs, unplaced, without
from apportion.executor.training.state import NODE, SEVERAL, lay_out, spread_out
from apportion.executor.training.world import Grant, World
from apportion.instances.columns import Bools, Ints, freeze
from apportion.instances.policy import Violation
from apportion.instances.training import Allocation, Commitments, Placement, TrainingRound


def require_valid(
    round_: TrainingRound, allocation: Allocation, commitments: Commitments | None = None
) -> None:
    """Check an allocation, and the commitments that come with it.

    Raises
    ------
    InvalidAllocation
        Listing every broken rule.
    """
    found = check(round_, allocation)
    if commitments is not None and commitments.job.size:
        found += check_commitments(round_, commitments, None if found else allocation)
    if found:
        raise InvalidAllocation(round_.now_s, found)


def in_order(allocation: Allocation) -> Allocation:
    """Sort the rows of an allocation by job, so that equal decisions are equal columns."""
    job = allocation.job
    if np.count_nonzero(job[1:] > job[:-1]) >= job.size - 1:
        return allocation
    order = np.argsort(job)
    columns = {
        name: getattr(allocation, name)[order]
        for name in ("job", "gpu_type", "gpus", "lease_end_s", "guaranteed")
    }
    for column in columns.values():
        freeze(column)
    return replace(allocation, **columns)


def carry_out(world: World, round_: TrainingRound, allocation: Allocation) -> list[Violation]:
    """Make the world run what an allocation says, which has passed ``check``.

    A job whose type, GPUs and (where given) nodes stay the same is not touched, but for its
    lease. All others are stopped first; then the gangs to start are placed.

    Returns
    -------
    list of Violation
        The gangs that found no room on nodes for their CPU cores and memory, rule ``unplaced``.

    Raises
    ------
    InvalidAllocation
        If the placement found here breaks a rule of the nodes.
    """
    explicit = None if allocation.placement is None else hosts_by_row(allocation.placement)
    differs = _differs(world, round_, allocation, explicit)
    rows, held = round_.jobs.code, round_.jobs.held_gpus
    stops: list[int] = rows[differs & (held > 0)].tolist()
    for row in stops:
        world.room.give(row, world.running[row].hosts)
    starts = cast(Ints, differs[allocation.job].nonzero()[0])
    placed, missing = _place(world, round_, allocation, starts, explicit)
    if missing:
        lost = np.isin(allocation.job, missing)
        starts = starts[~lost[starts]] - np.cumsum(lost)[starts[~lost[starts]]]
        allocation = without(allocation, ~lost)
    if explicit is None and starts.size:
        # where nothing starts, what runs on lies where it was checked when it was placed
        full = _whole_placement(world, round_, allocation, stops, placed)
        if found := check_placement(round_, allocation, full):
            raise InvalidAllocation(round_.now_s, found)
    _stop(world, round_, allocation, stops, placed)
    _start(world, round_, allocation, starts, placed, frozenset(stops))
    _renew(world, round_, allocation, differs)
    return [unplaced(round_, row, int(round_.jobs.gang[row])) for row in missing]


def _differs(
    world: World,
    round_: TrainingRound,
    allocation: Allocation,
    explicit: dict[int, Hosts] | None,
) -> Bools:
    jobs, n = round_.jobs, len(round_.jobs)
    gpus = np.zeros(n, dtype=np.int64)
    gpus[allocation.job] = allocation.gpus
    differs = cast(Bools, gpus != jobs.held_gpus)
    if round_.cluster.types.size > 1:
        kinds = jobs.previous_type[allocation.job]
        differs[allocation.job] |= kinds != allocation.gpu_type
    if explicit is not None:
        for at, row in zip(
            allocation.job.tolist(), jobs.code[allocation.job].tolist(), strict=True
        ):
            stretch = world.running.get(row)
            if stretch is not None and stretch.hosts != explicit[at]:
                differs[at] = True
    return differs


def _place(
    world: World,
    round_: TrainingRound,
    allocation: Allocation,
    starts: Ints,
    explicit: dict[int, Hosts] | None,
) -> tuple[dict[int, Hosts], list[int]]:
    """Take room for the gangs to start; return hosts by scenario row, and rows without room."""
    if not starts.size:
        return {}, []
    at = allocation.job[starts]
    rows: list[int] = round_.jobs.code[at].tolist()
    placed: dict[int, Hosts] = {}
    if explicit is not None:
        for row, job in zip(rows, at.tolist(), strict=True):
            placed[row] = explicit[job]
            world.room.occupy(row, explicit[job])
        return placed, []
    kinds, gpus = allocation.gpu_type[starts].tolist(), allocation.gpus[starts].tolist()
    missing = place_gangs(world.room, zip(rows, kinds, gpus, strict=True), placed)
    if not missing:
        return placed, []
    job_of = dict(zip(rows, at.tolist(), strict=True))
    return placed, sorted(job_of[row] for row, _, _ in missing)


def _whole_placement(
    world: World,
    round_: TrainingRound,
    allocation: Allocation,
    stops: list[int],
    placed: dict[int, Hosts],
) -> Placement:
    """Lay out what will run: the jobs that are not touched where they are, and those placed."""
    state, rows = world.state, round_.jobs.code[allocation.job]
    node, split = state.ints[:, NODE][rows], state.split
    gone = [row for row in stops if len(world.running[row].hosts) > 1]
    if gone:
        split = split[:, ~np.isin(split[0], gone)]
    if placed:
        new = np.array(list(placed), dtype=np.int64)
        node[rows.searchsorted(new)] = [
            hosts[0][0] if len(hosts) == 1 else SEVERAL for hosts in placed.values()
        ]
        spread = [spread_out(row, hosts) for row, hosts in placed.items() if len(hosts) > 1]
        split = np.concatenate([split, *spread], axis=1) if spread else split
    if split.size:
        split = np.array(split)
        split[0] = allocation.job[rows.searchsorted(split[0])]
    return lay_out(allocation.job, node, allocation.gpus, split)


def _stop(
    world: World,
    round_: TrainingRound,
    allocation: Allocation,
    stops: list[int],
    placed: dict[int, Hosts],
) -> None:
    if not stops:
        return
    codes = round_.jobs.code[allocation.lost_job].tolist()
    lost = dict(zip(codes, allocation.lost_work.tolist(), strict=True))
    for row in stops:
        over = world.lease_over(row, round_.now_s)
        ended = "moved" if row in placed else "expired" if over else "preempted"
        world.preempt(row, round_.now_s, ended, lost.get(row, 0.0))


def _start(
    world: World,
    round_: TrainingRound,
    allocation: Allocation,
    starts: Ints,
    placed: dict[int, Hosts],
    moving: frozenset[int],
) -> None:
    if not starts.size:
        return
    columns = (
        round_.jobs.code[allocation.job[starts]], allocation.gpu_type[starts],
        allocation.gpus[starts], allocation.lease_end_s[starts], allocation.guaranteed[starts],
    )  # fmt: skip
    for row, kind, gpus, end, sure in zip(*(c.tolist() for c in columns), strict=True):
        grant = Grant(row, kind, gpus, placed[row], end, sure)
        world.start(grant, round_.now_s, moves=row in moving)


def _renew(world: World, round_: TrainingRound, allocation: Allocation, differs: Bools) -> None:
    jobs, job = round_.jobs, allocation.job
    other = allocation.lease_end_s != jobs.lease_end_s[job]
    other |= allocation.guaranteed != jobs.guaranteed[job]
    other &= ~differs.take(job)
    if np.count_nonzero(other):
        rows = jobs.code[job[other]]
        world.renew(rows, allocation.lease_end_s[other], allocation.guaranteed[other], round_.now_s)
