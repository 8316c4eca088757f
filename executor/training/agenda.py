"""What will happen when: arrivals, completions, lease ends, failures and repairs, in heaps."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from apportion.executor.tolerances import SAME_INSTANT
from apportion.instances.training import Scenario


def boundary_from(instant: float, round_s: float) -> int:
    """Index of the first boundary at or after an instant."""
    index = round(instant / round_s)
    if abs(index * round_s - instant) <= SAME_INSTANT * max(1.0, abs(instant)):
        return index
    return index if index * round_s > instant else index + 1


def boundary_after(instant: float, round_s: float) -> int:
    """Index of the first boundary after an instant."""
    index = boundary_from(instant, round_s)
    return index + 1 if on_boundary(instant, round_s) == index * round_s else index


def boundary_before(instant: float, round_s: float) -> int:
    """Index of the last boundary at or before an instant."""
    index = boundary_from(instant, round_s)
    return index if on_boundary(instant, round_s) == index * round_s else index - 1


def on_boundary(instant: float, round_s: float) -> float:
    """Give the boundary that an instant falls on but for rounding, else the instant itself."""
    if instant == math.inf:
        return instant
    nearest = round(instant / round_s) * round_s
    return nearest if abs(nearest - instant) <= SAME_INSTANT * max(1.0, abs(instant)) else instant


@dataclass
class Happenings:
    """What falls on one instant, in the order in which it is carried out."""

    completed: list[int] = field(default_factory=list[int])
    repaired: list[int] = field(default_factory=list[int])
    failed: list[int] = field(default_factory=list[int])
    lease_ended: list[int] = field(default_factory=list[int])


class Agenda:
    """Future events of a run.

    Ends are absolute times, so a job that runs on costs nothing. An entry that has been overtaken
    (the job was stopped first) carries an old stamp and is dropped when it comes up.
    """

    def __init__(self, scenario: Scenario) -> None:
        arrival = scenario.jobs.arrival_s
        order = np.argsort(arrival, kind="stable")
        self._arrival_row: list[int] = order.tolist()
        self._round_s = scenario.options.round_s
        self._arrival_s = [self._at(instant) for instant in arrival[order].tolist()]
        self._next = 0
        self._ends: list[tuple[float, int, int]] = []
        self._leases: list[tuple[float, int, int]] = []
        self._end_stamp = [0] * len(scenario.jobs)
        self._lease_stamp = [0] * len(scenario.jobs)
        failures = scenario.options.failures
        outages = [(self._at(f.at_s), 1, f.node) for f in failures]
        outages += [(self._at(f.repair_s), 0, f.node) for f in failures]
        self._outages = sorted((o for o in outages if o[0] < math.inf), reverse=True)

    def _at(self, instant: float) -> float:
        return on_boundary(instant, self._round_s)

    def next_arrival_s(self) -> float:
        """Time of the first job that has not been admitted; infinite when there is none."""
        return self._arrival_s[self._next] if self._next < len(self._arrival_s) else math.inf

    def arrived(self, now_s: float) -> list[int]:
        """Take the jobs that have arrived by now, in order of arrival."""
        first, times = self._next, self._arrival_s
        while self._next < len(times) and times[self._next] <= now_s:
            self._next += 1
        return self._arrival_row[first : self._next]

    def expect(self, row: int, end_s: float, lease_end_s: float) -> None:
        """Enter when a job that starts will end if it runs on, and when its lease will."""
        if end_s < math.inf:
            heapq.heappush(self._ends, (self._at(end_s), row, self._end_stamp[row]))
        if lease_end_s < math.inf:
            heapq.heappush(self._leases, (self._at(lease_end_s), row, self._lease_stamp[row]))

    def expect_lease_end(self, row: int, at_s: float) -> None:
        """Enter the end of a job's lease; replaces what was entered before."""
        self._lease_stamp[row] += 1
        if at_s < math.inf:
            heapq.heappush(self._leases, (self._at(at_s), row, self._lease_stamp[row]))

    def forget(self, row: int) -> None:
        """Drop whatever was entered for a job."""
        self._end_stamp[row] += 1
        self._lease_stamp[row] += 1

    def next_s(self) -> float:
        """Time of the next completion, lease end, failure or repair; infinite without one."""
        ends, leases = self._ends, self._leases
        while ends and ends[0][2] != self._end_stamp[ends[0][1]]:
            heapq.heappop(ends)
        while leases and leases[0][2] != self._lease_stamp[leases[0][1]]:
            heapq.heappop(leases)
        first = ends[0][0] if ends else math.inf
        if leases and leases[0][0] < first:
            first = leases[0][0]
        if self._outages and self._outages[-1][0] < first:
            first = self._outages[-1][0]
        return first

    def next_completion(self, until_s: float) -> tuple[float, int] | None:
        """Take the next completion up to a time, if nothing else of ``next_s`` comes before it."""
        first = self.next_s()
        ends = self._ends
        if first > until_s or not ends or ends[0][0] != first:
            return None
        return heapq.heappop(ends)[:2]

    def due(self, now_s: float) -> Happenings:
        """Take everything that falls on or before an instant, as ``next_s`` told it."""
        out = Happenings()
        out.completed = _due(self._ends, self._end_stamp, now_s)
        while self._outages and self._outages[-1][0] <= now_s:
            _, fails, node = self._outages.pop()
            (out.failed if fails else out.repaired).append(node)
        ended = set(out.completed)
        leases = _due(self._leases, self._lease_stamp, now_s)
        out.lease_ended = [row for row in leases if row not in ended]
        return out

    def outages_left(self) -> bool:
        """Whether a failure or a repair is still to come."""
        return bool(self._outages)


def _due(heap: list[tuple[float, int, int]], stamps: list[int], now_s: float) -> list[int]:
    rows: list[int] = []
    while heap and heap[0][0] <= now_s:
        _, row, stamp = heapq.heappop(heap)
        if stamp == stamps[row]:
            rows.append(row)
    return rows
