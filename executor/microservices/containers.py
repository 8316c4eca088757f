"""Containers over time: those that serve, those that start, and those that are not yet let go."""

from __future__ import annotations

import math
from collections import deque
from typing import cast

import numpy as np

from apportion.executor.microservices.check import capacity_cpu, capacity_memory
from apportion.executor.microservices.monte_carlo import Phase
from apportion.executor.tolerances import HOST_RELATIVE
from apportion.instances.columns import Floats, Ints, freeze
from apportion.instances.microservices import ExecutorOptions, MicroserviceRound
from apportion.instances.microservices.microservices import MOST_CONTAINERS


class Containers:
    """The containers of every microservice.

    A container that is let go takes no more calls at once and ends with those it has, which takes
    milliseconds and is not counted. A container that starts is paid for and does not serve yet.
    """

    def __init__(self, start: MicroserviceRound, options: ExecutorOptions) -> None:
        self._options, self._round = options, start
        self._known = start.containers is not None
        size = len(start.microservices)
        serving = start.containers if start.containers is not None else np.zeros(size, np.int64)
        self.serving: Ints = np.array(serving, dtype=np.int64)
        self._starting: deque[tuple[float, Ints]] = deque()
        self._asked: deque[tuple[float, Ints]] = deque()
        if self._known:
            self._asked.append((start.now_s, self.serving.copy()))

    def there(self) -> Ints | None:
        """Containers that serve or start, shape (M,); None before anything is known of them."""
        if not self._known:
            return None
        out = self.serving + sum(count for _, count in self._starting)
        freeze(out)
        return cast(Ints, out)

    def ask(self, now_s: float, asked: Ints) -> Ints:
        """Bring the containers to what was asked for, as far as the options let it.

        Returns
        -------
        ndarray
            Containers that serve or start from now on, shape (M,).
        """
        self._asked.append((now_s, asked))
        while self._asked[0][0] <= now_s - self._options.stabilisation_s and len(self._asked) > 1:
            self._asked.popleft()
        there = self.there()
        if there is None:  # nothing was known to run: the first plan is taken as running
            self._known = True
            self.serving = np.array(asked, dtype=np.int64)
            return asked
        goal = self._goal(there, asked)
        self._let_go(np.maximum(there - goal, 0))
        if (goal > there).any():
            new = np.maximum(goal - there, 0)
            self._starting.append((now_s + self._options.start_delay_s, new))
        return goal

    def _goal(self, there: Ints, asked: Ints) -> Ints:
        """Limit changes by stabilisation, step and capacity, in this order."""
        highest = np.max([count for _, count in self._asked], axis=0)
        kept = np.where(asked < there, np.minimum(there, highest), asked)
        # a step is a share of what is there, and one container at least
        share = np.floor(self._options.largest_step * there * (1.0 + HOST_RELATIVE))
        most = np.where(there > 0, np.clip(share, 1.0, MOST_CONTAINERS), 1.0).astype(np.int64)
        if np.isinf(self._options.largest_step):
            most[:] = MOST_CONTAINERS
        goal, least = np.clip(kept, there - most, there + most), np.maximum(asked, there - most)
        return self._within_capacity(goal, np.minimum(least, goal), there)

    def _within_capacity(self, goal: Ints, least: Ints, there: Ints) -> Ints:
        """Where the cluster is full, let go what was only held back, then start fewer, by row."""
        goal = goal.copy()
        if not any(excess > 0 for _, excess in self._excess(goal)):
            return goal
        for floor in (least, np.minimum(goal, there)):
            for m in np.flatnonzero(goal > floor).tolist():
                need = [
                    math.ceil(excess / of_one[m] * (1.0 - HOST_RELATIVE))
                    for of_one, excess in self._excess(goal)
                    if excess > 0 and of_one[m] > 0
                ]
                goal[m] -= min(max(need, default=0), int(goal[m] - floor[m]))
        return goal

    def _excess(self, goal: Ints) -> list[tuple[Floats, float]]:
        """What a container takes of CPU and memory, and by how much too much of each is asked."""
        table = self._round.microservices
        limits = (capacity_cpu(self._round), capacity_memory(self._round))
        return [
            (of_one, float(of_one @ goal) - limit * (1.0 + HOST_RELATIVE))
            for of_one, limit in zip((table.cpu_cores, table.memory_mib), limits, strict=True)
        ]

    def _let_go(self, count: Ints) -> None:
        """Give up containers that start first, the last asked for before the others."""
        left = np.array(count)
        for at in range(len(self._starting) - 1, -1, -1):
            ready_s, starting = self._starting[at]
            off = np.minimum(starting, left)
            self._starting[at] = (ready_s, starting - off)
            left = left - off
        self.serving = self.serving - left
        self._starting = deque(entry for entry in self._starting if entry[1].any())

    def phases(self, now_s: float, end_s: float) -> list[Phase]:
        """Let time pass; tell which containers serve in which part of it."""
        out: list[Phase] = []
        since, length = now_s, end_s - now_s
        while self._starting and self._starting[0][0] < end_s:
            ready_s, starting = self._starting.popleft()
            if ready_s > since:
                out.append(((ready_s - since) / length, self.serving))
                since = ready_s
            self.serving = self.serving + starting
        out.append(((end_s - since) / length, self.serving))
        return out


def mean_serving(phases: list[Phase]) -> Floats:
    """Containers that served on average, shape (M,)."""
    return cast(Floats, np.sum([share * count for share, count in phases], axis=0))
