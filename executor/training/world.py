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
    KIND,
    LEASE_BASE,
    LEASE_END,
    LEASE_START,
    NOWHERE,
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
        truth = jobs.work if scenario.true_work is None else scenario.true_work
        given = scenario.true_throughput_per_s
        # a list gives a Python number several times faster than a column does
        self._truth: list[float] = truth.tolist()
        self._speed = jobs.throughput_per_s if given is None else given
        self._gang: list[int] = jobs.gang.tolist()
        self._spreads = bool(jobs.spread_hosts.size)
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
        base, _, _, first, _, _, attained, _ = floats[row].tolist()
        before = int(ints[row, KIND])
        rate = self._rate(row, kind, gpus, len(hosts))
        stall = self._stall(row, before, kind, moves)
        since = now_s + stall
        if self.jobs.first_start_s[row] < 0:
            self.jobs.first_start_s[row] = now_s
        if before >= 0 and (before != kind or self._moved(row, hosts)):
            self.jobs.migrations[row] += 1
        floats[row] = (
            base, rate, since, now_s if first < 0 else first, now_s, lease_end_s, attained, base
        )  # fmt: skip
        ints[row] = (kind, gpus, guaranteed, self.state.lie_on(row, hosts))
        self.running[row] = Stretch(now_s, kind, gpus, hosts, stall, rate, base)
        self.ledger.shift(HELD, kind, gpus, now_s)
        if stall > 0:
            self.ledger.stall(row, kind, gpus, now_s, since)
        self.demand.add(row, -1)
        left = max(0.0, self._truth[row] - base)
        self.agenda.expect(row, since + left / rate if rate > 0 else math.inf, lease_end_s)

    def stop(self, row: int, now_s: float, ended: str, lost: float = 0.0) -> Stretch:
        """End a job's stretch and record it; its GPUs stay taken until the caller gives them."""
        stretch = self.running.pop(row)
        start_s, kind, gpus, base = stretch.start_s, stretch.kind, stretch.gpus, stretch.base
        if ended == "completed":
            reached = max(self._truth[row], base)
        else:
            since = start_s + stretch.stall_s
            reached = base + stretch.rate * max(0.0, now_s - since) - lost
        length = now_s - start_s
        self.leases.add(
            (row, kind, gpus, len(stretch.hosts)),
            (
                start_s, now_s, min(stretch.stall_s, length), stretch.rate, reached - base, lost
            ),
            ended,
        )  # fmt: skip
        self.jobs.work[row] += reached - base
        self.jobs.gpu_s[row] += gpus * length
        self._rest(row, reached, now_s)
        self.state.leave(row, stretch.hosts)
        self._last[row] = stretch.hosts
        self.ledger.end_stall(row, now_s)
        self.agenda.forget(row)
        if ended == "completed":
            self.jobs.finish_s[row] = now_s
            self.unfinished -= 1
            self.state.finish(row)
            self._last.pop(row)
        else:
            self.demand.add(row, 1)
            self.jobs.preemptions[row] += ended in ("preempted", "expired")
        return stretch

    def _rest(self, row: int, reached: float, now_s: float) -> None:
        """Enter that a job holds nothing any more."""
        floats, ints = self.state.floats, self.state.ints
        _, _, _, first, lease_start_s, _, attained, _ = floats[row].tolist()
        kind, gpus = ints[row, :2].tolist()
        attained += gpus * (now_s - lease_start_s)
        floats[row] = (reached, 0.0, 0.0, first, -1.0, -1.0, attained, reached)
        ints[row] = (kind, 0, 0, NOWHERE)

    def preempt(self, row: int, now_s: float, ended: str, lost: float = 0.0) -> None:
        """Stop a job by a decision that has already given its GPUs back to the room."""
        stretch = self.stop(row, now_s, ended, lost)
        self.ledger.shift(HELD, stretch.kind, -stretch.gpus, now_s)

    def retire(self, row: int, now_s: float, ended: str, lost: float = 0.0) -> None:
        """Stop a job between decisions; nobody gets its GPUs before ``release``."""
        stretch = self.stop(row, now_s, ended, lost)
        self._ended.append((row, stretch.kind, stretch.hosts))
        self.ledger.keep(stretch.kind, stretch.gpus, now_s)

    def release(self, now_s: float) -> None:
        """Free the GPUs of jobs that have ended since the last decision."""
        for row, _, hosts in self._ended:
            self.room.give(row, hosts)
        if self._ended:
            self._ended = []
            self.ledger.free_ended(now_s)

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
        if gpus != self._gang[row] or not rate > 0:
            rate = self._listed_rate(row, kind, gpus, rate)
        if self._spreads:
            cut = slice(int(jobs.spread_offsets[row]), int(jobs.spread_offsets[row + 1]))
            rate *= spread_speed(hosts, jobs.spread_hosts[cut], jobs.spread_speed[cut])
        return rate

    def _listed_rate(self, row: int, kind: int, gpus: int, rate: float) -> float:
        """Speed by the table of configurations, where the gang's own throughput does not hold."""
        jobs = self.scenario.jobs
        told = float(jobs.throughput_per_s[row, kind])
        if gpus == self._gang[row] and told > 0:
            return rate
        cut = slice(int(jobs.config_offsets[row]), int(jobs.config_offsets[row + 1]))
        here = (jobs.config_gpus[cut] == gpus) & (jobs.config_type[cut] == kind)
        listed = float(jobs.config_throughput_per_s[cut][here].max(initial=0.0))
        # the table is a report: it is off by as much as the report for the gang is
        return listed * (rate / told if told > 0 else 1.0)

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
        return np.frombuffer(self.jobs.finish_s)[rows] >= 0
