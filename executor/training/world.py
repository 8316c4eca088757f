"""What really happens to jobs and nodes: starts, stops, completions, failures.

The world holds the truth (work and speed as they are) and knows no policy. Whoever calls it has
checked what is to be done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apportion.executor.training.agenda import Agenda, boundary_before
from apportion.executor.training.ledger import DOWN, ENDED, HELD, Demand, Ledger
from apportion.executor.training.nodes import Hosts, room
from apportion.executor.training.recorder import JobLog, LeaseLog
from apportion.executor.training.state import (
    ATTAINED,
    BASE,
    FIRST,
    GPUS,
    KIND,
    LEASE_BASE,
    LEASE_END,
    LEASE_START,
    NODE,
    NOWHERE,
    RATE,
    SINCE,
    SURE,
    State,
)
from apportion.instances.columns import Bools, Floats, Ints
from apportion.instances.training import Scenario
from apportion.instances.training.laws import spread_speed


@dataclass(slots=True)
class Stretch:
    """A job running on the same GPUs at one speed."""

    start_s: float
    kind: int
    gpus: int
    hosts: Hosts
    stall_s: float
    rate: float
    base: float


class Grant(NamedTuple):
    """GPUs for a job, with the lease on them."""

    row: int
    kind: int
    gpus: int
    hosts: Hosts
    lease_end_s: float
    guaranteed: bool


class World:
    """Jobs, nodes and GPUs as they are, and the records of what happened to them."""

    def __init__(self, scenario: Scenario) -> None:
        jobs = scenario.jobs
        self.scenario = scenario
        self.options = scenario.options
        self.state = State(scenario)
        self.agenda = Agenda(scenario)
        self.ledger = Ledger(scenario.cluster.gpus)
        self.demand = Demand(scenario)
        self.room = room(scenario.cluster, self.state.up, jobs)
        self.running: dict[int, Stretch] = {}
        self.leases = LeaseLog()
        self.jobs = JobLog(len(jobs))
        self.unfinished = len(jobs)
        self._truth = jobs.work if scenario.true_work is None else scenario.true_work
        given = scenario.true_throughput_per_s
        self._speed = jobs.throughput_per_s if given is None else given
        self._outages = [0] * scenario.cluster.nodes.size
        self._node_kind: list[int] = scenario.cluster.node_type.tolist()
        self._node_gpus: list[int] = scenario.cluster.node_gpus.tolist()
        self._ended: list[tuple[int, int, Hosts]] = []
        self._last: dict[int, Hosts] = {}

    # ------------------------------------------------------------------ jobs come and go

    def admit(self, now_s: float) -> bool:
        """Admit what has arrived; says whether anything has."""
        rows = self.agenda.arrived(now_s)
        self.state.admit(rows)
        for row in rows:
            self.demand.add(row, 1)
        return bool(rows)

    def start(self, grant: Grant, now_s: float, *, moves: bool = False) -> None:
        """Start a waiting job on GPUs that the caller has taken from the room.

        ``moves`` says that it was stopped at this very instant to run elsewhere.
        """
        row, kind, gpus, hosts, lease_end_s, guaranteed = grant
        floats, ints = self.state.floats, self.state.ints
        before = int(ints[row, KIND])
        base = float(floats[row, BASE])
        rate = self._rate(row, kind, gpus, len(hosts))
        stall = self._stall(row, before, kind, moves)
        since = now_s + stall
        if floats[row, FIRST] < 0:
            floats[row, FIRST] = now_s
        if self.jobs.first_start_s[row] < 0:
            self.jobs.first_start_s[row] = now_s
        if before >= 0 and (before != kind or self._moved(row, hosts)):
            self.jobs.migrations[row] += 1
        floats[row, RATE] = rate
        floats[row, SINCE] = since
        floats[row, LEASE_START] = now_s
        floats[row, LEASE_END] = lease_end_s
        floats[row, LEASE_BASE] = base
        ints[row] = (kind, gpus, guaranteed, self.state.lie_on(row, hosts))
        self.running[row] = Stretch(now_s, kind, gpus, hosts, stall, rate, base)
        self._last[row] = hosts
        self.ledger.shift(HELD, kind, gpus, now_s)
        if stall > 0:
            self.ledger.stall(row, kind, gpus, now_s, since)
        self.demand.add(row, -1)
        left = max(0.0, float(self._truth[row]) - base)
        self.agenda.expect_end(row, since + left / rate if rate > 0 else math.inf)
        self.agenda.expect_lease_end(row, lease_end_s)

    def stop(self, row: int, now_s: float, ended: str, lost: float = 0.0) -> Stretch:
        """End a job's stretch and record it; its GPUs stay taken until the caller gives them."""
        stretch = self.running.pop(row)
        floats, ints = self.state.floats, self.state.ints
        since = stretch.start_s + stretch.stall_s
        if ended == "completed":
            reached = max(float(self._truth[row]), stretch.base)
        else:
            reached = stretch.base + stretch.rate * max(0.0, now_s - since) - lost
        held = stretch.gpus * (now_s - stretch.start_s)
        self.leases.add(
            (row, stretch.kind, stretch.gpus, len(stretch.hosts)),
            (
                stretch.start_s, now_s, min(stretch.stall_s, now_s - stretch.start_s),
                stretch.rate, reached - stretch.base, lost,
            ),
            ended,
        )  # fmt: skip
        self.jobs.work[row] += reached - stretch.base
        self.jobs.gpu_s[row] += held
        attained = stretch.gpus * (now_s - float(floats[row, LEASE_START]))
        floats[row] = (
            reached, 0.0, 0.0, floats[row, FIRST], -1.0, -1.0, floats[row, ATTAINED] + attained,
            reached,
        )  # fmt: skip
        ints[row, GPUS] = ints[row, SURE] = 0
        ints[row, NODE] = NOWHERE
        self.state.leave(row, stretch.hosts)
        self.ledger.shift(HELD, stretch.kind, -stretch.gpus, now_s)
        self.ledger.end_stall(row, now_s)
        self.agenda.forget(row)
        if ended == "completed":
            self.jobs.finish_s[row] = now_s
            self.unfinished -= 1
            self.state.finish(row)
        else:
            self.demand.add(row, 1)
            self.jobs.preemptions[row] += ended in ("preempted", "expired")
        return stretch

    def retire(self, row: int, now_s: float, ended: str, lost: float = 0.0) -> None:
        """Stop a job between decisions; nobody gets its GPUs before ``release``."""
        stretch = self.stop(row, now_s, ended, lost)
        self._ended.append((row, stretch.kind, stretch.hosts))
        self.ledger.shift(ENDED, stretch.kind, stretch.gpus, now_s)

    def release(self, now_s: float) -> None:
        """Free the GPUs of jobs that have ended since the last decision."""
        for row, kind, hosts in self._ended:
            self.room.give(row, hosts)
            self.ledger.shift(ENDED, kind, -sum(count for _, count in hosts), now_s)
        self._ended = []

    def renew(self, rows: Ints, lease_end_s: Floats, guaranteed: Bools, now_s: float) -> None:
        """Give running jobs other lease ends; a lease that has run out begins anew.

        Parameters
        ----------
        rows, lease_end_s, guaranteed
            Scenario rows and their leases, shape (m,).
        """
        floats, ints = self.state.floats, self.state.ints
        over = rows[floats[rows, LEASE_END] <= now_s]
        if over.size:
            done, attained = self.state.amounts(over, now_s)
            floats[over, ATTAINED], floats[over, LEASE_BASE] = attained, done
            floats[over, LEASE_START] = now_s
        floats[rows, LEASE_END] = lease_end_s
        ints[rows, SURE] = guaranteed
        for row, end in zip(rows.tolist(), lease_end_s.tolist(), strict=True):
            self.agenda.expect_lease_end(row, end)

    def lease_over(self, row: int, now_s: float) -> bool:
        """Whether the lease of a running job has run out."""
        return bool(self.state.floats[row, LEASE_END] <= now_s)

    def expire(self, rows: list[int], now_s: float) -> bool:
        """Stop the jobs whose lease has run out and was not renewed; says whether any was."""
        over = [row for row in rows if row in self.running and self.lease_over(row, now_s)]
        for row in over:
            self.retire(row, now_s, "expired")
        return bool(over)

    # ------------------------------------------------------------------ nodes

    def fail(self, node: int, now_s: float) -> None:
        """Take a node out of service; its jobs lose what they did since the last boundary."""
        self._outages[node] += 1
        if self._outages[node] > 1:
            return
        index = boundary_before(now_s, self.options.round_s)
        saved_s = index * self.options.round_s
        for row in [r for r, s in self.running.items() if any(n == node for n, _ in s.hosts)]:
            stretch = self.running[row]
            since = max(saved_s, stretch.start_s + stretch.stall_s)
            self.retire(row, now_s, "failed", stretch.rate * max(0.0, now_s - since))
        self._give_back(node, now_s)
        self.room.fail(node)
        self.state.set_up(node, False)
        self.ledger.shift(DOWN, self._node_kind[node], self._node_gpus[node], now_s)

    def repair(self, node: int, now_s: float) -> None:
        """Put a node back into service once nothing keeps it out."""
        self._outages[node] -= 1
        if self._outages[node] == 0:
            self.room.repair(node)
            self.state.set_up(node, True)
            self.ledger.shift(DOWN, self._node_kind[node], -self._node_gpus[node], now_s)

    def _give_back(self, node: int, now_s: float) -> None:
        kept: list[tuple[int, int, Hosts]] = []
        for row, kind, hosts in self._ended:
            here = tuple(host for host in hosts if host[0] == node)
            rest = tuple(host for host in hosts if host[0] != node)
            if here:
                self.room.give(row, here)
                self.ledger.shift(ENDED, kind, -here[0][1], now_s)
            if rest:
                kept.append((row, kind, rest))
        self._ended = kept

    # ------------------------------------------------------------------ laws

    def blame(self, now_s: float) -> None:
        """Bring the causes of idleness up to date."""
        self.ledger.blame(self.demand.least(), now_s)

    def _rate(self, row: int, kind: int, gpus: int, hosts: int) -> float:
        jobs = self.scenario.jobs
        rate = float(self._speed[row, kind])
        told = float(jobs.throughput_per_s[row, kind])
        if gpus != jobs.gang[row] or told <= 0:
            cut = slice(int(jobs.config_offsets[row]), int(jobs.config_offsets[row + 1]))
            here = (jobs.config_gpus[cut] == gpus) & (jobs.config_type[cut] == kind)
            listed = float(jobs.config_throughput_per_s[cut][here].max(initial=0.0))
            # the table is a report: it is off by as much as the report for the gang is
            rate = listed * (rate / told if told > 0 else 1.0)
        cut = slice(int(jobs.spread_offsets[row]), int(jobs.spread_offsets[row + 1]))
        if cut.start != cut.stop:
            rate *= spread_speed(hosts, jobs.spread_hosts[cut], jobs.spread_speed[cut])
        return rate

    def _stall(self, row: int, before: int, kind: int, moves: bool) -> float:
        cost = self.options.switch
        if before < 0:
            charged = cost.charge_start
        elif before != kind:
            charged = True
        else:
            charged = cost.charge_move if moves else cost.charge_resume
        if not charged:
            return 0.0
        jobs = self.scenario.jobs
        return float(cost.switch_s(jobs.state_gb[row], jobs.restart_s[row]))

    def _moved(self, row: int, hosts: Hosts) -> bool:
        last = self._last.get(row)
        return last is not None and [n for n, _ in last] != [n for n, _ in hosts]

    def finished(self, rows: Ints) -> Bools:
        """Which of some jobs are done."""
        finish = np.frombuffer(self.jobs.finish_s)
        return finish[rows] >= 0
