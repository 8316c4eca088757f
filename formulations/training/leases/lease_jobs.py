"""Jobs that need whole leases before a deadline, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from apportion.instances.columns import Floats, Ints, freeze, ints, ragged, require, sized


@dataclass(frozen=True, eq=False)
class LeaseJobs:
    """Gangs with leases to run and one or several deadlines.

    Time is counted in leases of equal length from the next boundary on: lease t lasts from t to
    t + 1, so that a job due at D may use the leases 0 to D - 1.

    Parameters
    ----------
    gang
        GPUs of each job, all or nothing, shape (n,).
    need
        Leases that each job still needs, shape (n,).
    option_offsets
        Options of job j are ``option_offsets[j]`` to ``option_offsets[j + 1]``, shape (n + 1,). A
        hard deadline is one option, a soft one several.
    due
        Leases before the deadline of each option, rising within a job, shape (options,). May lie
        beyond the horizon, and at or before now.
    value
        What an option earns, not rising with lateness, shape (options,).

    Raises
    ------
    InstanceError
        If a rule is broken; the message names field, index and value.
    """

    gang: Ints
    need: Ints
    option_offsets: Ints
    due: Ints
    value: Floats

    def __post_init__(self) -> None:
        gang = ints(self.gang, "lease_jobs.gang")
        need = ints(self.need, "lease_jobs.need", gang.shape)
        starts, value = ragged(self.option_offsets, self.value, "lease_jobs.value", gang.size)
        due = ints(self.due, "lease_jobs.due", value.shape)
        require(gang, gang >= 1, "lease_jobs.gang", "a gang needs at least 1 GPU")
        require(need, need >= 1, "lease_jobs.need", "a job that needs no lease is no job")
        options = np.diff(starts)
        require(starts[:-1], options >= 1, "lease_jobs.option_offsets", "a job needs an option")
        sized(value, "lease_jobs.value")
        require(value, value >= 0, "lease_jobs.value", "must not be negative")
        later = np.ones(due.size, dtype=np.bool_)
        later[starts[:-1]] = False
        rise = np.diff(due, prepend=0)
        require(due, ~later | (rise > 0), "lease_jobs.due", "options must rise in time")
        more = np.diff(value, prepend=0.0)
        rule = "a later option must not earn more"
        require(value, ~later | (more <= 0), "lease_jobs.value", rule)
        fields = {"gang": gang, "need": need, "option_offsets": starts, "due": due, "value": value}
        for name, column in fields.items():
            object.__setattr__(self, name, column)

    @classmethod
    def hard(cls, gang: ArrayLike, need: ArrayLike, due: ArrayLike, value: ArrayLike = 1.0) -> Self:
        """Jobs with one deadline each, all of shape (n,); the value may be one for all."""
        count = np.asarray(gang).size
        worth = np.broadcast_to(np.asarray(value, dtype=np.float64), (count,))
        return cls(
            ints(gang, "lease_jobs.gang"),
            ints(need, "lease_jobs.need"),
            np.arange(count + 1, dtype=np.int64),
            ints(due, "lease_jobs.due"),
            worth.copy(),
        )

    @classmethod
    def soft(
        cls,
        gang: ArrayLike,
        need: ArrayLike,
        options: Sequence[Sequence[tuple[int, float]]],
    ) -> Self:
        """Jobs with several deadlines: ``options[j]`` holds pairs of due and value, rising."""
        counts = [len(own) for own in options]
        return cls(
            ints(gang, "lease_jobs.gang"),
            ints(need, "lease_jobs.need"),
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
            np.array([due for own in options for due, _ in own], dtype=np.int64),
            np.array([value for own in options for _, value in own], dtype=np.float64),
        )

    def __len__(self) -> int:
        return self.gang.size

    @cached_property
    def job_of_option(self) -> Ints:
        """Job of each option, shape (options,)."""
        rows = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.option_offsets))
        freeze(rows)
        return rows


def lease_capacity(capacity: ArrayLike) -> Ints:
    """Check the GPUs of every future lease, shape (T,).

    Raises
    ------
    InstanceError
        If it is no column of whole numbers from 0 on.
    """
    column = ints(capacity, "lease_capacity")
    require(column, column >= 0, "lease_capacity", "must not be negative")
    return ints(column, "lease_capacity", (column.size,))


def usable_before(gangs: Ints, capacity: Ints) -> Ints:
    """Count the leases before each time in which a gang fits at all.

    Parameters
    ----------
    gangs
        Different gangs, shape (k,).
    capacity
        GPUs of each lease, shape (T,).

    Returns
    -------
    Shape (k, T + 1): leases before time d with at least so many GPUs.
    """
    counts = np.zeros((gangs.size, capacity.size + 1), dtype=np.int64)
    np.cumsum(capacity[None, :] >= gangs[:, None], axis=1, out=counts[:, 1:])
    return counts
