"""The round that follows a decision, once it is known what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Bools, Ints
from apportion.instances.errors import InstanceError
from apportion.instances.training.allocation import (
    Allocation,
    Commitments,
    Outcome,
    Placement,
)
from apportion.instances.training.jobs import COLUMNS, NEVER, RAGGED, Jobs
from apportion.instances.training.round import TrainingRound


def round_after(
    round_: TrainingRound,
    allocation: Allocation,
    outcome: Outcome,
    *,
    arrivals: Jobs | None = None,
    commitments: Commitments | None = None,
) -> TrainingRound:
    """Build the next round from the last one, its allocation and its outcome.

    Finished jobs leave, the others carry on what they did and hold, newcomers join at the end.

    Parameters
    ----------
    round_, allocation
        What was asked and what was decided, with its placement.
    outcome
        What came of it; the next round falls on its end.
    arrivals
        New jobs, with the same GPU types and tenants.
    commitments
        Reservations from now on, in rows of the last round; default: those in force.

    Raises
    ------
    InstanceError
        Where the parts do not fit together, or a newcomer's id or code is taken.
    """
    jobs, now_s = round_.jobs, outcome.end_s
    if outcome.work.shape != (len(jobs),):
        raise InstanceError(f"outcome.work has shape {outcome.work.shape}, not ({len(jobs)},)")
    stay = np.flatnonzero(~outcome.finished)
    known = {name: column[stay] for name, column in _advanced(round_, allocation, outcome).items()}
    everyone = _joined(jobs.take(stay), known, arrivals)
    row = np.full(len(jobs), -1, dtype=np.int64)
    row[stay] = np.arange(stay.size)
    running = np.zeros(len(jobs), dtype=np.bool_)
    running[stay] = cast(Bools, known["running"])
    return replace(
        round_,
        jobs=everyone,
        now_s=now_s,
        reasons=("boundary",),
        placement=_kept(allocation.placement, running, row),
        commitments=_promised(commitments or round_.commitments, now_s, row),
        index=round_.index + 1,
    )


def _advanced(round_: TrainingRound, allocation: Allocation, outcome: Outcome) -> dict[str, Any]:
    """Columns of the last round's jobs as they are at the end of the outcome."""
    jobs, rows, n = round_.jobs, allocation.job, len(round_.jobs)
    started = np.zeros(n, dtype=np.bool_)
    started[rows] = True
    ends = np.full(n, NEVER)
    ends[rows] = allocation.lease_end_s
    # a lease that ends with the outcome may be continued without a break
    on = started & ~outcome.finished & (ends >= outcome.end_s)
    kinds, gpus = jobs.previous_type.copy(), np.zeros(n, dtype=np.int64)
    kinds[rows], gpus[rows] = allocation.gpu_type, allocation.gpus
    sure = np.zeros(n, dtype=np.bool_)
    sure[rows] = allocation.guaranteed
    goes_on = on & jobs.running & (kinds == jobs.previous_type) & (gpus == jobs.held_gpus)
    first = np.where(started & (jobs.first_start_s < 0), round_.now_s, jobs.first_start_s)
    return {
        "work_done": np.maximum(jobs.work_done + outcome.work, 0.0),
        "attained_gpu_s": jobs.attained_gpu_s + outcome.gpu_s,
        "running": on,
        "previous_type": kinds,
        "held_gpus": np.where(on, gpus, 0),
        "first_start_s": first,
        "lease_start_s": np.where(
            on, np.where(goes_on, jobs.lease_start_s, round_.now_s), NEVER
        ),
        "lease_end_s": np.where(on, ends, NEVER),
        "guaranteed": on & sure,
        "work_in_lease": np.where(
            on, outcome.work + np.where(goes_on, jobs.work_in_lease, 0.0), 0.0
        ),
    }  # fmt: skip


def _joined(stay: Jobs, known: dict[str, Any], arrivals: Jobs | None) -> Jobs:
    """Put those who stay and those who arrive into one table."""
    names = ("id", "throughput_per_s", *COLUMNS)
    columns: dict[str, Any] = {name: known.get(name, getattr(stay, name)) for name in names}
    columns.update(_ragged(stay))
    if arrivals is None or not len(arrivals):
        return Jobs(**columns)
    extra = _ragged(arrivals)
    for name in names:
        columns[name] = np.concatenate((columns[name], getattr(arrivals, name)))
    for group, parts in RAGGED.items():
        offsets = f"{group}_offsets"
        shifted = extra[offsets][1:] + columns[offsets][-1]
        columns[offsets] = np.concatenate((columns[offsets], shifted))
        for part in parts:
            columns[part] = np.concatenate((columns[part], extra[part]))
    columns["code"] = _codes(stay.code, arrivals.code)
    return Jobs(**columns)


def _ragged(jobs: Jobs) -> dict[str, Any]:
    names = [part for group, parts in RAGGED.items() for part in (f"{group}_offsets", *parts)]
    return {name: getattr(jobs, name) for name in names}


def _codes(stay: Ints, arrivals: Ints) -> Ints:
    """Keep everybody's code where they differ; else number the newcomers on."""
    if not np.intersect1d(stay, arrivals).size:
        return np.concatenate((stay, arrivals))
    first = int(stay.max(initial=-1)) + 1
    return np.concatenate((stay, np.arange(first, first + arrivals.size)))


def _kept(placement: Placement | None, running: Bools, row: Ints) -> Placement:
    if placement is None:
        return Placement()
    on = running[placement.job]
    return Placement(row[placement.job[on]], placement.node[on], placement.gpus[on])


def _promised(promised: Commitments, now_s: float, row: Ints) -> Commitments:
    on = (promised.end_s > now_s) & (row[promised.job] >= 0)
    return Commitments(
        row[promised.job[on]], promised.start_s[on], promised.end_s[on], promised.gpus[on],
        promised.gpu_type[on], promised.kind[on],
    )  # fmt: skip
