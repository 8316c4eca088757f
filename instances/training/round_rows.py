"""What the placement and the reservations of a round must agree with: its jobs and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

import numpy as np

from apportion.instances.columns import Bools, Floats, Ints, require, sized
from apportion.instances.errors import InstanceError

if TYPE_CHECKING:
    from apportion.instances.training.round import TrainingRound

_HELD = "round.placement"
_PROMISED = "round.commitments"


def check_placement(round_: TrainingRound) -> None:
    """Refuse a placement that cannot be what the running jobs hold on the nodes.

    Raises
    ------
    InstanceError
        On rows that do not exist, a job that does not run or is named twice for a node, a node
        of another type than the job's, more GPUs than a node has, or another number than the job
        holds.
    """
    held, jobs, cluster = round_.placement, round_.jobs, round_.cluster
    n, m = len(jobs), cluster.nodes.size
    _rows(held.job, n, f"{_HELD}.job")
    _rows(held.node, m, f"{_HELD}.node")
    require(held.gpus, held.gpus >= 1, f"{_HELD}.gpus", "must be at least 1")
    if not held.job.size:
        return
    for entry in _first(~jobs.running[held.job]):
        _refuse_job(round_, entry, "holds GPUs but does not run")
    kinds = cluster.node_type[held.node]
    for entry in _first(kinds != jobs.previous_type[held.job]):
        row, types = int(held.job[entry]), cluster.types
        _refuse(
            "node", entry, int(held.node[entry]),
            f"node {_node(round_, entry)} has {types[kinds[entry]]} GPUs, job {_job(round_, row)}"
            f" runs on {types[jobs.previous_type[row]]}",
        )  # fmt: skip
    pairs = held.job * m + held.node
    first = np.unique(pairs, return_index=True)[1]
    if first.size < pairs.size:
        again = np.ones(pairs.size, dtype=np.bool_)
        again[first] = False
        for entry in _first(again):
            _refuse_job(round_, entry, f"names node {_node(round_, entry)} twice")
    _check_sums(round_)


def _check_sums(round_: TrainingRound) -> None:
    """Compare what is held with what the nodes have, and with what the jobs say they hold."""
    held, jobs, cluster = round_.placement, round_.jobs, round_.cluster
    on_node = np.bincount(held.node, weights=held.gpus, minlength=cluster.nodes.size)
    for entry in _first((on_node > cluster.node_gpus)[held.node]):
        node = int(held.node[entry])
        alone = held.gpus[entry] > cluster.node_gpus[node]
        rest = "" if alone else f", jobs hold {int(on_node[node])} of it"
        _refuse(
            "gpus", entry, int(held.gpus[entry]),
            f"node {_node(round_, entry)} has {int(cluster.node_gpus[node])} GPUs{rest}",
        )  # fmt: skip
    of_job = np.bincount(held.job, weights=held.gpus, minlength=len(jobs))
    for entry in _first((of_job != jobs.held_gpus)[held.job]):
        row = int(held.job[entry])
        _refuse(
            "gpus", entry, int(held.gpus[entry]),
            f"job {_job(round_, row)} holds {int(jobs.held_gpus[row])} GPUs by jobs.held_gpus,"
            f" {int(of_job[row])} by its placement",
        )  # fmt: skip


def check_promises(round_: TrainingRound) -> None:
    """Refuse reservations that no decision could keep, whatever else is asked for.

    Raises
    ------
    InstanceError
        On rows that do not exist, an interval that ends before it begins, a type the job cannot
        run on, more GPUs than the gang that are no configuration of the job, or two types
        promised to one job at one time.
    """
    promised, k = round_.commitments, round_.cluster.types.size
    _rows(promised.job, len(round_.jobs), f"{_PROMISED}.job")
    require(promised.gpus, promised.gpus >= 1, f"{_PROMISED}.gpus", "must be at least 1")
    known = (promised.gpu_type >= -1) & (promised.gpu_type < k)
    require(promised.gpu_type, known, f"{_PROMISED}.gpu_type", "-1 (any) or a GPU type")
    sized(promised.start_s, f"{_PROMISED}.start_s")
    later = promised.end_s > promised.start_s
    require(promised.end_s, later, f"{_PROMISED}.end_s", "must lie after start_s")
    for entry in range(promised.job.size):
        _check_possible(round_, entry)
    _check_types(round_)


def _check_possible(round_: TrainingRound, entry: int) -> None:
    promised, jobs, types = round_.commitments, round_.jobs, round_.cluster.types
    row, kind = int(promised.job[entry]), int(promised.gpu_type[entry])
    gpus = int(promised.gpus[entry])
    span = slice(int(jobs.config_offsets[row]), int(jobs.config_offsets[row + 1]))
    on_type = np.asarray(jobs.config_throughput_per_s[span] > 0)
    if kind >= 0:
        on_type &= jobs.config_type[span] == kind
        if not on_type.any() and jobs.throughput_per_s[row, kind] <= 0:
            raise InstanceError(
                f"{_PROMISED}.gpu_type[{entry}] = {str(types[kind])!r}: job {_job(round_, row)}"
                " cannot run there, its throughput is 0"
            )
    gang = int(jobs.gang[row])
    if gpus > gang and not (on_type & (jobs.config_gpus[span] == gpus)).any():
        where = "" if kind < 0 else f" on {types[kind]}"
        raise InstanceError(
            f"{_PROMISED}.gpus[{entry}] = {gpus}: job {_job(round_, row)} asks for {gang} GPUs and"
            f" has no configuration of {gpus}{where}"
        )


def _check_types(round_: TrainingRound) -> None:
    """Refuse intervals of one job that overlap on two types; a job runs on one at a time."""
    promised, types = round_.commitments, round_.cluster.types
    named = np.flatnonzero(promised.gpu_type >= 0)
    order = named[np.lexsort((promised.start_s[named], promised.job[named]))].tolist()
    open_: list[int] = []
    for entry in order:
        start = float(promised.start_s[entry])
        open_ = [
            other
            for other in open_
            if promised.job[other] == promised.job[entry] and promised.end_s[other] > start
        ]
        for other in open_:
            if promised.gpu_type[other] != promised.gpu_type[entry]:
                early, late = sorted((entry, other))
                raise InstanceError(
                    f"{_PROMISED}.gpu_type[{late}] = {str(types[promised.gpu_type[late]])!r}: job"
                    f" {_job(round_, int(promised.job[entry]))} is promised"
                    f" {types[promised.gpu_type[early]]} at the same time by entry {early}"
                )
        open_.append(entry)


def _rows(rows: Ints, count: int, where: str) -> None:
    require(rows, (rows >= 0) & (rows < count), where, f"there are {count} rows")


def _first(bad: Bools | Floats) -> list[int]:
    return cast("list[int]", np.flatnonzero(bad)[:1].tolist())


def _refuse(field: str, entry: int, value: int, rule: str) -> NoReturn:
    raise InstanceError(f"{_HELD}.{field}[{entry}] = {value}: {rule}")


def _refuse_job(round_: TrainingRound, entry: int, rule: str) -> NoReturn:
    row = int(round_.placement.job[entry])
    _refuse("job", entry, row, f"job {_job(round_, row)} {rule}")


def _job(round_: TrainingRound, row: int) -> str:
    return repr(str(round_.jobs.id[row]))


def _node(round_: TrainingRound, entry: int) -> str:
    return repr(str(round_.cluster.nodes[round_.placement.node[entry]]))
