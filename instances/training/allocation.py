"""What a decision is: who runs where until when, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from apportion.instances.columns import (
    Bools,
    Floats,
    Ints,
    Names,
    bools,
    equal_columns,
    floats,
    freeze,
    ints,
    names,
)


def _none() -> Ints:
    empty = np.zeros(0, dtype=np.int64)
    freeze(empty)
    return empty


def _none_float() -> Floats:
    empty = np.zeros(0)
    freeze(empty)
    return empty


@dataclass(frozen=True, eq=False)
class Placement:
    """GPUs on nodes: entry e gives ``gpus[e]`` GPUs of node ``node[e]`` to job ``job[e]``.

    All three have the same length, one entry for each (job, node) pair; rows are those of the
    round's jobs and of its cluster's nodes.
    """

    job: Ints = field(default_factory=_none)
    node: Ints = field(default_factory=_none)
    gpus: Ints = field(default_factory=_none)

    @classmethod
    def of(cls, job: object, node: object, gpus: object) -> Placement:
        """Build from any sequences; raises InstanceError on what is not whole numbers."""
        rows = ints(job, "placement.job")
        shape = (rows.size,)
        return cls(rows, ints(node, "placement.node", shape), ints(gpus, "placement.gpus", shape))

    def __eq__(self, other: object) -> bool:
        own = ("job", "node", "gpus")
        return isinstance(other, Placement) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


@dataclass(frozen=True, eq=False)
class Commitments:
    """Reservations: GPUs promised to a job for an interval that may lie in the future.

    Parameters
    ----------
    job
        Rows of the round's jobs.
    start_s, end_s
        Half-open intervals.
    gpus
        GPUs promised.
    gpu_type
        GPU type promised, -1 = any one type.
    kind
        What it is called: ``"reservation"``, ``"lease"``.
    """

    job: Ints = field(default_factory=_none)
    start_s: Floats = field(default_factory=_none_float)
    end_s: Floats = field(default_factory=_none_float)
    gpus: Ints = field(default_factory=_none)
    gpu_type: Ints = field(default_factory=_none)
    kind: Names = field(default_factory=lambda: np.zeros(0, dtype=np.str_))

    @classmethod
    def of(
        cls,
        job: object,
        start_s: object,
        end_s: object,
        gpus: object,
        gpu_type: object = None,
        kind: object = None,
    ) -> Commitments:
        """Build from any sequences; missing types are "any", missing kinds "reservation"."""
        rows = ints(job, "commitments.job")
        m = rows.size
        return cls(
            rows,
            floats(start_s, "commitments.start_s", (m,)),
            floats(end_s, "commitments.end_s", (m,)),
            ints(gpus, "commitments.gpus", (m,)),
            ints(np.full(m, -1) if gpu_type is None else gpu_type, "commitments.gpu_type", (m,)),
            names(
                np.full(m, "reservation") if kind is None else kind,
                "commitments.kind", count=m, unique=False,
            ),
        )  # fmt: skip

    def active(self, now_s: float) -> Ints:
        """Entries whose interval contains an instant."""
        return cast(Ints, np.flatnonzero((self.start_s <= now_s) & (now_s < self.end_s)))

    def __eq__(self, other: object) -> bool:
        own = ("job", "start_s", "end_s", "gpus", "gpu_type", "kind")
        return isinstance(other, Commitments) and equal_columns(self, other, own)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


@dataclass(frozen=True, eq=False)
class Allocation:
    """The jobs that run, in one row each; every other job of the round waits.

    Parameters
    ----------
    job
        Rows of the round's jobs, distinct, shape (m,).
    gpu_type
        The one GPU type each runs on.
    gpus
        GPUs each gets.
    lease_end_s
        End of each lease. Infinite: until the next decision. A later decision may still end a
        lease early unless it is guaranteed.
    guaranteed
        True: no later decision may end the lease early.
    placement
        GPUs on nodes; None leaves that to the executor (sticky, largest gang first, fewest
        hosts).
    lost_job, lost_work
        Preempted jobs that lose progress with this decision, and how much, in work units of the
        present lease.
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    lease_end_s: Floats
    guaranteed: Bools
    placement: Placement | None = None
    lost_job: Ints = field(default_factory=_none)
    lost_work: Floats = field(default_factory=_none_float)

    @classmethod
    def of(
        cls,
        job: object,
        gpu_type: object,
        gpus: object,
        *,
        lease_end_s: object = np.inf,
        guaranteed: object = False,
        placement: Placement | None = None,
        lost_job: object = (),
        lost_work: object = (),
    ) -> Allocation:
        """Build from any sequences; one lease end and one guarantee may serve all jobs.

        Raises
        ------
        InstanceError
            On columns of different lengths or of the wrong kind. Whether the allocation obeys
            the round is the checker's question.
        """
        rows = ints(job, "allocation.job")
        m = rows.size
        ends = np.full(m, lease_end_s) if np.ndim(cast(Floats, lease_end_s)) == 0 else lease_end_s
        sure = np.full(m, guaranteed) if np.ndim(cast(Bools, guaranteed)) == 0 else guaranteed
        lost = ints(lost_job, "allocation.lost_job")
        return cls(
            rows,
            ints(gpu_type, "allocation.gpu_type", (m,)),
            ints(gpus, "allocation.gpus", (m,)),
            floats(ends, "allocation.lease_end_s", (m,)),
            bools(sure, "allocation.guaranteed", (m,)),
            placement,
            lost,
            floats(lost_work, "allocation.lost_work", (lost.size,)),
        )

    @classmethod
    def empty(cls) -> Allocation:
        """Nobody runs."""
        return cls.of((), (), ())

    def __eq__(self, other: object) -> bool:
        own = ("job", "gpu_type", "gpus", "lease_end_s", "guaranteed", "lost_job", "lost_work")
        if not isinstance(other, Allocation) or not equal_columns(self, other, own):
            return False
        # where nobody runs, no placement and an empty one are the same
        return self.placement == other.placement or not self.job.size

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # columns are compared, not hashed


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the executor did between one decision and the next.

    Parameters
    ----------
    start_s, end_s
        The interval, half-open.
    work
        Work executed for each job of the round that the decision answered, shape (n,); less
        what was lost.
    gpu_s
        GPU-seconds held by each, shape (n,).
    finished
        Whether it ended inside the interval, shape (n,).
    assumed
        True: nobody watched; the plan is taken as carried out.
    """

    start_s: float
    end_s: float
    work: Floats
    gpu_s: Floats
    finished: Bools
    assumed: bool = False
