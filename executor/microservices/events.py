"""Requests that queue at containers, event by event.

A container serves one call at a time in exponential time. By default every container has a queue
of its own and calls are spread over them by chance, as a Kubernetes service does: a container
that is called w times per ms and serves mu calls per ms then answers after an exponential time of
rate mu - w, which is the very form of the law planners use. One queue before all containers of a
microservice (M/M/x) is there too; its latency is not exponential.

Where calls are served in order of arrival the end of a call is known when it comes (Lindley 1952),
so that a call costs one event. With priorities a call of a class that goes first interrupts the
one being served, which goes on later where it was (preemptive resume).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from apportion.instances.columns import Floats, Ints
from apportion.instances.microservices import CallTrees

_BATCH = 1 << 15  # random numbers drawn at once

_Stages: TypeAlias = "list[list[int]]"


class _Call:
    """A call under way, or a request: one without a parent, whose row is its class."""

    __slots__ = ("at", "came", "left", "parent", "rank", "row", "stages", "waits", "where")

    def __init__(
        self, parent: _Call | None, stages: _Stages, left: int, row: int, where: int, rank: int,
        came: float,
    ) -> None:  # fmt: skip
        self.parent, self.stages, self.left = parent, stages, left  # repeats that are left
        self.row, self.where, self.rank, self.came = row, where, rank, came
        self.at = 0  # next stage
        self.waits = 0  # members of the running stage that have not ended


class _Server:
    """A container that serves the call of the least rank, and what waits there."""

    __slots__ = ("call", "end", "key", "turn", "waiting")

    def __init__(self) -> None:
        self.call: _Call | None = None
        self.end = 0.0
        self.key: tuple[int, int] = (0, 0)  # rank and order of arrival of the call being served
        self.turn = 0  # events of earlier turns are void
        self.waiting: list[tuple[tuple[int, int], float, _Call]] = []


class Ended(NamedTuple):
    """Requests that ended, in the order in which they did."""

    of_class: Ints
    came_ms: Floats
    ended_ms: Floats


class EventSimulation:
    """An application whose requests queue.

    Parameters
    ----------
    trees
        What requests of each class call. Repeats are made one after the other; of a fraction
        one more is made with that probability.
    rate_per_ms
        Rate at which a container serves, positive, shape (M,).
    shift_ms
        Time that a call takes besides, without holding a container, shape (M,).
    containers
        Shape (M,).
    rng
        Where chance comes from.
    queue
        ``"container"``: one for each container, by chance; ``"shared"``: one for each
        microservice.
    rank
        Order of the classes, shape (K,): lower ranks interrupt higher ones at containers with
        queues of their own; None: order of arrival.
    start_ms
        When it begins.

    Attributes
    ----------
    events
        Requests that came and calls that ended, so far.
    unfinished
        Requests under way.
    """

    def __init__(
        self,
        trees: CallTrees,
        rate_per_ms: Floats,
        shift_ms: Floats,
        containers: Ints,
        rng: np.random.Generator,
        *,
        queue: Literal["container", "shared"] = "container",
        rank: Ints | None = None,
        start_ms: float = 0.0,
    ) -> None:
        if rank is not None and queue == "shared":
            raise ValueError("rank: priorities need queue = 'container'")
        self._mean: list[float] = (1.0 / rate_per_ms).tolist()
        self._shift: list[float] = shift_ms.tolist()
        self._where: list[int] = trees.microservice.tolist()
        calls: list[float] = trees.calls.tolist()
        self._whole = [math.floor(n) for n in calls]
        self._part = [n - math.floor(n) for n in calls]
        self._below, self._roots = _stages(trees)
        self._shared, self._ranked = queue == "shared", rank is not None
        self._rank: list[int] = [0] * len(trees) if rank is None else rank.tolist()
        self._times, self._chances = _draws(rng.standard_exponential), _draws(rng.random)
        self._heap: list[tuple[float, int, _Call, _Server | None, int]] = []
        self._number, self.events, self._now = 0, 0, start_ms
        self._free: list[list[float]] = [[] for _ in self._mean]
        self._servers: list[list[_Server]] = [[] for _ in self._mean]
        self._parked: list[list[_Call]] = [[] for _ in self._mean]
        self._count = [0] * len(self._mean)
        self._ended = array("d")  # class, came, ended
        self._own = [array("d") for _ in self._mean]
        self.unfinished = 0
        self.set_containers(containers)

    # ------------------------------------------------------------------ from outside

    def set_containers(self, containers: Ints) -> None:
        """Change the number of containers; those let go end with the calls they have."""
        for m, count in enumerate(containers.tolist()):
            change = count - self._count[m]
            self._count[m] = count
            if self._ranked:
                servers = self._servers[m]
                servers += [_Server() for _ in range(change)]
                del servers[count:]
                continue
            free = self._free[m]
            if change > 0:
                free += [self._now] * change
            elif self._shared:
                free.sort()
                del free[: len(free) - count]  # those that are free first go first
            else:
                del free[count:]
            if self._shared:
                heapify(free)
        for m, calls in enumerate(self._parked):
            if calls and self._count[m]:
                self._parked[m] = []
                for call in calls:
                    self._enter(call, self._now)

    def set_rank(self, rank: Ints) -> None:
        """Change the order of the classes, for requests that are still to come."""
        self._rank = cast("list[int]", rank.tolist())

    def advance(self, until_ms: float, came_ms: Floats, of_class: Ints) -> Ended:
        """Let requests come and time pass.

        Parameters
        ----------
        until_ms
            Time to stop before; infinite: when all have ended.
        came_ms, of_class
            When requests come, rising and before that time, and their classes.

        Returns
        -------
        Ended
        """
        heap, proceed, leave = self._heap, self._proceed, self._leave
        events = 0
        times: list[float] = came_ms.tolist()
        kinds: list[int] = of_class.tolist()
        for time, k in zip(times, kinds, strict=True):
            while heap and heap[0][0] <= time:
                now, _, call, server, turn = heappop(heap)
                events += 1
                if server is None:
                    proceed(call, now)
                else:
                    leave(call, server, turn, now)
            events += 1
            self.unfinished += 1
            proceed(_Call(None, self._roots[k], 1, k, -1, self._rank[k], time), time)
        while heap and heap[0][0] < until_ms:
            now, _, call, server, turn = heappop(heap)
            events += 1
            if server is None:
                proceed(call, now)
            else:
                leave(call, server, turn, now)
        self.events += events
        self._now = max(self._now, until_ms) if until_ms < math.inf else self._now
        table = np.array(self._ended).reshape(-1, 3)
        self._ended = array("d")
        return Ended(table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2].copy())

    def take_own_ms(self) -> list[Floats]:
        """Take the own latencies of the calls to each microservice since this was last asked."""
        out: list[Floats] = [np.array(own, dtype=np.float64) for own in self._own]
        self._own = [array("d") for _ in self._mean]
        return out

    # ------------------------------------------------------------------ calls

    def _proceed(self, call: _Call, now: float) -> None:
        """A call has done its own part, or a stage below it has ended."""
        while True:
            stages, at = call.stages, call.at
            while at < len(stages):
                at += 1
                begun = 0
                for row in stages[at - 1]:
                    left = self._whole[row]
                    if self._part[row] and next(self._chances) < self._part[row]:
                        left += 1
                    if left:
                        begun += 1
                        member = _Call(
                            call, self._below[row], left, row, self._where[row], call.rank, now
                        )
                        self._enter(member, now)
                if begun:
                    call.at, call.waits = at, begun
                    return
            call.left -= 1
            if call.left:
                call.at = 0
                self._enter(call, now)
                return
            parent = call.parent
            if parent is None:
                self._ended.extend((call.row, call.came, now))
                self.unfinished -= 1
                return
            parent.waits -= 1
            if parent.waits:
                return
            call = parent

    def _enter(self, call: _Call, now: float) -> None:
        """A call comes to a microservice."""
        m = call.where
        count = self._count[m]
        if not count:
            self._parked[m].append(call)
            return
        service = next(self._times) * self._mean[m]
        if self._ranked:
            server = self._servers[m][int(next(self._chances) * count)]
            self._queue(call, server, service, now)
            return
        free = self._free[m]
        if self._shared:
            first = free[0]
            done = (first if first > now else now) + service
            heapreplace(free, done)
        else:
            at = int(next(self._chances) * count) if count > 1 else 0
            first = free[at]
            done = free[at] = (first if first > now else now) + service
        done += self._shift[m]
        self._own[m].append(done - now)
        self._number += 1
        heappush(self._heap, (done, self._number, call, None, 0))

    # ------------------------------------------------------------------ priorities

    def _queue(self, call: _Call, server: _Server, service: float, now: float) -> None:
        self._number += 1
        key = (call.rank, self._number)
        call.came = now
        if server.call is None:
            self._serve(call, server, key, service, now)
        elif key < server.key:
            heappush(server.waiting, (server.key, server.end - now, server.call))
            self._serve(call, server, key, service, now)
        else:
            heappush(server.waiting, (key, service, call))

    def _serve(
        self, call: _Call, server: _Server, key: tuple[int, int], service: float, now: float
    ) -> None:
        server.call, server.key, server.end = call, key, now + service
        server.turn += 1
        self._number += 1
        heappush(self._heap, (now + service, self._number, call, server, server.turn))

    def _leave(self, call: _Call, server: _Server, turn: int, now: float) -> None:
        """A container has done with a call, unless it was interrupted since."""
        if turn != server.turn:
            return
        m = call.where
        server.call = None
        if server.waiting:
            key, left, waiting = heappop(server.waiting)
            self._serve(waiting, server, key, left, now)
        shift = self._shift[m]
        self._own[m].append(now - call.came + shift)
        if shift:
            self._number += 1
            heappush(self._heap, (now + shift, self._number, call, None, 0))
        else:
            self._proceed(call, now)


def _stages(trees: CallTrees) -> tuple[list[_Stages], list[_Stages]]:
    """List the stages below every call, and those of the requests of every class."""
    below: list[dict[int, list[int]]] = [{} for _ in range(trees.calls.size)]
    roots: list[dict[int, list[int]]] = [{} for _ in range(len(trees))]
    parents: list[int] = trees.parent_row.tolist()
    for row, parent in enumerate(parents):
        owner = roots[int(trees.class_of[row])] if parent < 0 else below[parent]
        owner.setdefault(int(trees.stage[row]), []).append(row)
    return (
        [[stages[number] for number in sorted(stages)] for stages in below],
        [[stages[number] for number in sorted(stages)] for stages in roots],
    )


def _draws(draw: Callable[[int], Any]) -> Iterator[float]:
    while True:
        yield from cast("list[float]", draw(_BATCH).tolist())
