"""What the selector chooses from: jobs with deadlines, best-effort jobs, and their configurations.

Time is counted in leases from now on: lease t lasts from t to t + 1, and a job due at D may use
the leases 0 to D - 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from apportion.instances import InstanceError
from apportion.instances.columns import (
    Bools,
    Floats,
    Ints,
    bools,
    finite,
    floats,
    freeze,
    ints,
    ragged,
    require,
)


@dataclass(frozen=True, eq=False)
class SloJobs:
    """Jobs with deadlines; a job runs by one of its configurations for the whole plan.

    Parameters
    ----------
    menu_offsets
        Configurations of job j are ``menu_offsets[j]`` to ``menu_offsets[j + 1]``, shape (n + 1,).
    gpu_type, gpus, need
        GPU type, GPUs, and leases to the end by each configuration, shape (configurations,).
    start_cost
        What it costs to start a configuration in lease 0; 0 for the one that runs now, same shape.
    due_offsets
        Deadlines of job j are ``due_offsets[j]`` to ``due_offsets[j + 1]``, shape (n + 1,).
    due, value
        Leases before each deadline, rising within a job, and what it earns, not rising with
        lateness, shape (deadlines,).
    must
        Jobs that were accepted and stay so, shape (n,).

    Raises
    ------
    InstanceError
        If a rule is broken.
    """

    menu_offsets: Ints
    gpu_type: Ints
    gpus: Ints
    need: Ints
    start_cost: Floats
    due_offsets: Ints
    due: Ints
    value: Floats
    must: Bools

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        put("must", bools(self.must, "slo.must"))
        n = self.must.size
        starts, cost = ragged(self.menu_offsets, self.start_cost, "slo.start_cost", n)
        put("menu_offsets", starts)
        put("start_cost", cost)
        for name, least in (("gpu_type", 0), ("gpus", 1), ("need", 1)):
            column = ints(getattr(self, name), f"slo.{name}", cost.shape)
            require(column, column >= least, f"slo.{name}", f"must be at least {least}")
            put(name, column)
        dues, value = ragged(self.due_offsets, self.value, "slo.value", n)
        put("due_offsets", dues)
        put("value", value)
        put("due", ints(self.due, "slo.due", value.shape))
        for name in ("start_cost", "value"):
            column = getattr(self, name)
            finite(column, f"slo.{name}")
            require(column, column >= 0.0, f"slo.{name}", "must not be negative")
        inner = np.ones(value.size, dtype=np.bool_)
        inner[dues[:-1][np.diff(dues) > 0]] = False
        rising = np.diff(self.due, prepend=0) > 0
        require(self.due, rising | ~inner, "slo.due", "must rise within a job")
        falling = np.diff(value, prepend=0.0) <= 0.0
        require(value, falling | ~inner, "slo.value", "must not rise with lateness")

    @classmethod
    def rigid(
        cls, gpus: ArrayLike, need: ArrayLike, due: ArrayLike, value: ArrayLike = 1.0
    ) -> SloJobs:
        """Jobs of one configuration on one type and one deadline each, all of shape (n,)."""
        count = np.size(np.asarray(gpus))
        each = np.arange(count + 1, dtype=np.int64)
        return cls(
            menu_offsets=each,
            gpu_type=np.zeros(count, dtype=np.int64),
            gpus=ints(gpus, "slo.gpus"),
            need=ints(need, "slo.need"),
            start_cost=np.zeros(count),
            due_offsets=each,
            due=ints(due, "slo.due"),
            value=np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)).copy(),
            must=np.zeros(count, dtype=np.bool_),
        )

    def __len__(self) -> int:
        return self.must.size

    @cached_property
    def job_of_configuration(self) -> Ints:
        """Job of each configuration, shape (configurations,)."""
        out = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.menu_offsets))
        freeze(out)
        return out

    @cached_property
    def options(self) -> tuple[Ints, Ints]:
        """Pairs of a configuration and a deadline of the same job, by job; two columns."""
        dues = np.diff(self.due_offsets)[self.job_of_configuration]
        configuration = np.repeat(np.arange(dues.size, dtype=np.int64), dues)
        place = np.arange(configuration.size) - np.repeat(np.cumsum(dues) - dues, dues)
        deadline = self.due_offsets[self.job_of_configuration[configuration]] + place
        return configuration, deadline

    @cached_property
    def top_value(self) -> Floats:
        """Most that each job can earn, shape (n,)."""
        out = np.zeros(len(self))
        some = np.diff(self.due_offsets) > 0
        out[some] = self.value[self.due_offsets[:-1][some]]
        return out


@dataclass(frozen=True, eq=False)
class BestEffort:
    """Jobs without deadlines, which may run in lease 0 by one of their configurations.

    Parameters
    ----------
    menu_offsets
        Configurations of each job, shape (m + 1,).
    gpu_type, gpus, reward
        GPU type, GPUs and reward of each, shape (configurations,).

    Raises
    ------
    InstanceError
        If a rule is broken.
    """

    menu_offsets: Ints
    gpu_type: Ints
    gpus: Ints
    reward: Floats

    def __post_init__(self) -> None:
        put = self.__dict__.__setitem__
        count = max(np.size(self.menu_offsets) - 1, 0)
        starts, reward = ragged(self.menu_offsets, self.reward, "best_effort.reward", count)
        put("menu_offsets", starts)
        put("reward", floats(reward, "best_effort.reward"))
        finite(reward, "best_effort.reward")
        require(reward, reward >= 0.0, "best_effort.reward", "must not be negative")
        for name, least in (("gpu_type", 0), ("gpus", 1)):
            column = ints(getattr(self, name), f"best_effort.{name}", reward.shape)
            require(column, column >= least, f"best_effort.{name}", f"must be at least {least}")
            put(name, column)

    @classmethod
    def rigid(cls, gpus: ArrayLike, reward: ArrayLike) -> BestEffort:
        """Jobs of one configuration on one type, both of shape (m,)."""
        count = np.size(np.asarray(gpus))
        return cls(
            np.arange(count + 1, dtype=np.int64), np.zeros(count, dtype=np.int64),
            ints(gpus, "best_effort.gpus"), floats(reward, "best_effort.reward"),
        )  # fmt: skip

    def __len__(self) -> int:
        return self.menu_offsets.size - 1

    @cached_property
    def job_of_configuration(self) -> Ints:
        """Job of each configuration, shape (configurations,)."""
        out = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.menu_offsets))
        freeze(out)
        return out


def capacity_table(capacity: ArrayLike) -> Ints:
    """Check the GPUs of each type in each lease, shape (k, T); one type may be given flat.

    Raises
    ------
    InstanceError
        If they are not whole numbers from 0 on.
    """
    raw = np.atleast_2d(np.asarray(capacity))
    table = ints(raw, "capacity")
    require(table.ravel(), table.ravel() >= 0, "capacity", "must not be negative")
    if table.ndim != 2 or not table.shape[1]:
        raise InstanceError(f"capacity has shape {table.shape}: expected types and leases")
    return table
