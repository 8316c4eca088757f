"""Leases, reservations and reactions: two toy policies and a reactive one, honoured by the executor."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from apportion.executor.training import InvalidAllocation, run
from apportion.instances import Decision
from apportion.instances.training import (
    Allocation,
    Cluster,
    Commitments,
    ExecutorOptions,
    Failure,
    Jobs,
    Scenario,
    Tenants,
)

pytestmark = pytest.mark.quick


def scenario(work, *, gang=None, arrival=None, gpus=4, options=None, **more):
    n = len(work)
    return Scenario(
        name="t",
        cluster=Cluster.uniform({"gpu": gpus}, gpus_per_node=4),
        jobs=Jobs(
            id=[f"j{i}" for i in range(n)], gang=gang or [1] * n, work=work,
            throughput_per_s=np.ones((n, 1)), arrival_s=arrival or [0.0] * n, **more,
        ),
        tenants=Tenants.named("all"),
        options=options or ExecutorOptions(round_s=300.0),
    )  # fmt: skip


@dataclass
class Unsynchronised:
    """Each job that starts gets a lease of its own; nobody waits for a boundary.

    A waiting gang heavier than a running job takes its GPUs if that job's lease is young (less
    than ``young_s`` old); the young job loses what the lease has done.
    """

    lease_s: float = 700.0
    young_s: float = 200.0
    subscribes: frozenset = frozenset({"lease_end", "arrival", "completion"})
    reacts_to: frozenset = frozenset()
    log: list = field(default_factory=list)

    def decide(self, round_, memory):
        jobs, now = round_.jobs, round_.now_s
        self.log.append((now, round_.reasons))
        ends = np.where(jobs.running, jobs.lease_end_s, -1.0)
        keep = jobs.running & (ends > now)
        free = int(round_.capacity[0] - jobs.gang[keep].sum())
        lost = {}
        for row in np.lexsort((jobs.arrival_s, -jobs.weight)).tolist():
            if keep[row]:
                continue
            if jobs.gang[row] > free:
                young = keep & (now - jobs.lease_start_s < self.young_s)
                for victim in np.flatnonzero(young & (jobs.weight < jobs.weight[row])).tolist():
                    keep[victim] = False
                    free += int(jobs.gang[victim])
                    lost[victim] = float(jobs.work_in_lease[victim])
            if jobs.gang[row] <= free and row not in lost:
                keep[row] = True
                ends[row] = now + self.lease_s
                free -= int(jobs.gang[row])
        rows = np.flatnonzero(keep)
        return Decision(
            Allocation.of(
                rows, np.zeros(rows.size, dtype=int), jobs.gang[rows], lease_end_s=ends[rows],
                lost_job=list(lost), lost_work=list(lost.values()),
            ),
            next_decision_s=np.inf,
        )  # fmt: skip

    def remember(self, memory, round_, decision, outcome):
        return [*(memory or []), (outcome.start_s, outcome.end_s, outcome.work.tolist())]

    def react(self, plan, event, view):
        return None, plan


class TestUnsynchronisedLeases:
    def test_leases_end_off_the_boundary_and_are_renewed_without_a_break(self):
        policy = Unsynchronised()
        done = run(scenario([1000.0], arrival=[10.0]), policy)
        # the subscription to arrivals is for those between decisions: the first waits for 300
        assert policy.log == [
            (300.0, ("boundary", "arrival")), (1000.0, ("lease_end",)),
        ]  # fmt: skip
        assert done.leases.start_s.tolist() == [300.0]
        assert done.leases.end_s.tolist() == [1300.0]

    def test_a_young_job_is_preempted_and_loses_its_lease(self):
        s = scenario([900.0, 100.0], gang=[4, 4], arrival=[0.0, 130.0], weight=[1.0, 2.0])
        done = run(s, Unsynchronised())
        assert done.leases.job.tolist() == [0, 1, 0, 0][: done.leases.job.size]
        assert done.leases.ended.tolist()[:2] == ["preempted", "completed"]
        assert done.leases.lost_work.tolist()[0] == 130.0
        assert done.leases.work.tolist()[0] == 0.0
        # restarts from nothing at 230, is done 900 s later although its lease ends at 930
        assert done.jobs.finish_s.tolist() == [1130.0, 230.0]
        assert done.jobs.preemptions.tolist() == [1, 0]

    def test_an_old_job_keeps_its_lease(self):
        s = scenario([900.0, 100.0], gang=[4, 4], arrival=[0.0, 250.0], weight=[1.0, 2.0])
        done = run(s, Unsynchronised())
        # the lease of the first ends at 700, then the heavier job goes first
        assert done.leases.ended.tolist() == ["expired", "completed", "completed"]
        assert done.jobs.finish_s.tolist() == [1000.0, 800.0]
        assert done.leases.lost_work.tolist() == [0.0, 0.0, 0.0]
        assert done.jobs.preemptions.tolist() == [1, 0]

    def test_nobody_listens_and_the_job_stops_with_its_lease(self, toys):
        """Without a decision the lease ends on time; the next boundary starts the job again."""
        done = run(scenario([1000.0]), toys.Fifo(lease_s=450.0))
        assert done.leases.end_s.tolist() == [450.0, 1050.0, 1300.0]
        assert done.leases.ended.tolist() == ["expired", "expired", "completed"]
        assert done.rounds.idle_finished_gpu_s[:2, 0].tolist() == [150.0, 150.0]

    def test_a_lease_may_be_extended_before_it_ends(self, toys):
        done = run(scenario([1000.0]), toys.Fifo(lease_s=450.0, next_decision_s=None))
        assert done.leases.end_s.tolist() == [1000.0]

    def test_losing_more_than_the_lease_did_is_refused(self):
        class Greedy(Unsynchronised):
            def decide(self, round_, memory):
                out = super().decide(round_, memory)
                a = out.allocation
                return replace(out, allocation=replace(a, lost_work=a.lost_work + 1.0))

        s = scenario([900.0, 100.0], gang=[4, 4], arrival=[0.0, 130.0], weight=[1.0, 2.0])
        with pytest.raises(InvalidAllocation, match="lost_work: job 'j0' loses 131"):
            run(s, Greedy())


@dataclass
class TwoTimeScales:
    """SLO jobs in guaranteed leases of 20 minutes, reserved ahead; the rest in slots of 5.

    At a planning point (every 20 minutes) each waiting SLO job gets a reservation of the whole
    next lease; slots in between leave the reserved GPUs alone.
    """

    lease_s: float = 1200.0
    slot_s: float = 300.0
    subscribes: frozenset = frozenset()
    reacts_to: frozenset = frozenset()
    log: list = field(default_factory=list)
    promised: list = field(default_factory=list)

    def decide(self, round_, memory):
        jobs, now = round_.jobs, round_.now_s
        self.log.append((now, round_.reasons))
        c = round_.commitments
        self.promised.append(
            list(zip(c.job.tolist(), c.start_s.tolist(), c.end_s.tolist(), strict=True))
        )
        plans = now % self.lease_s == 0
        kept = np.flatnonzero(jobs.running & jobs.guaranteed & (jobs.lease_end_s > now))
        ends = {row: float(jobs.lease_end_s[row]) for row in kept.tolist()}
        for i in c.active(now).tolist():
            ends.setdefault(int(c.job[i]), float(c.end_s[i]))
        reserve = []
        if plans:
            for row in np.flatnonzero(jobs.slo & (jobs.gang <= round_.capacity[0])).tolist():
                begun = row in ends
                reserve.append((row, now + self.lease_s * (not begun), int(jobs.gang[row])))
        free = int(round_.capacity[0]) - sum(int(jobs.gang[row]) for row in ends)
        rest = []
        for row in np.flatnonzero(~jobs.slo).tolist():
            if jobs.gang[row] <= free:
                free -= int(jobs.gang[row])
                rest.append(row)
        rows = [*ends, *rest]
        promises = None
        if plans:
            promises = Commitments.of(
                [r for r, _, _ in reserve], [s for _, s, _ in reserve],
                [s + self.lease_s for _, s, _ in reserve], [g for _, _, g in reserve],
            )  # fmt: skip
        return Decision(
            Allocation.of(
                rows, [0] * len(rows), jobs.gang[rows] if rows else [],
                lease_end_s=[*ends.values(), *[now + self.slot_s] * len(rest)],
                guaranteed=[True] * len(ends) + [False] * len(rest),
            ),
            commitments=promises, next_decision_s=now + self.slot_s,
        )  # fmt: skip

    def remember(self, memory, round_, decision, outcome):
        return None

    def react(self, plan, event, view):
        return None, plan


class TestTwoTimeScales:
    def run(self, **more):
        policy = TwoTimeScales()
        s = scenario([900.0, 3000.0], gang=[3, 2], slo=[True, False],
                     options=ExecutorOptions(round_s=60.0, **more))  # fmt: skip
        return policy, run(s, policy)

    def test_the_reservation_is_given_and_honoured(self):
        policy, done = self.run()
        assert done.jobs.finish_s.tolist() == [2100.0, 3900.0]
        assert done.leases.job.tolist() == [1, 0, 1]
        assert done.leases.start_s.tolist() == [0.0, 1200.0, 2100.0]
        # every round until it is over or the job is done shows it
        shown = [p[0] for p in policy.promised if p]
        assert shown == [(0, 1200.0, 2400.0)] * 6
        assert [now for now, _ in policy.log][:4] == [0.0, 300.0, 600.0, 900.0]
        assert policy.log[1] == (300.0, ("boundary", "slot", "lease_end"))

    def test_slots_may_fall_off_the_boundary(self):
        policy = TwoTimeScales(slot_s=100.0)
        done = run(scenario([150.0], options=ExecutorOptions(round_s=60.0)), policy)
        assert policy.log == [(0.0, ("boundary", "arrival")), (100.0, ("slot", "lease_end"))]
        assert done.leases.end_s.tolist() == [150.0]

    def test_breaking_the_reservation_is_refused(self, toys):
        class Forgetful(TwoTimeScales):
            def decide(self, round_, memory):
                if round_.now_s < 1200:
                    return super().decide(round_, memory)
                return Decision(Allocation.empty())

        s = scenario([900.0, 3000.0], gang=[3, 2], slo=[True, False],
                     options=ExecutorOptions(round_s=60.0))  # fmt: skip
        with pytest.raises(InvalidAllocation, match="commitment: job 'j0': 3 GPUs are promised"):
            run(s, Forgetful())

    def test_cutting_the_guaranteed_lease_is_refused(self):
        class Impatient(TwoTimeScales):
            def decide(self, round_, memory):
                if round_.now_s < 1500:
                    return super().decide(round_, memory)
                return Decision(Allocation.empty(), commitments=Commitments())

        s = scenario([900.0, 3000.0], gang=[3, 2], slo=[True, False],
                     options=ExecutorOptions(round_s=60.0))  # fmt: skip
        with pytest.raises(InvalidAllocation, match="guaranteed_lease"):
            run(s, Impatient())

    def test_too_many_promises_are_refused(self):
        class Generous(TwoTimeScales):
            def decide(self, round_, memory):
                out = super().decide(round_, memory)
                much = Commitments.of([0, 1], [1200.0] * 2, [1500.0] * 2, [3, 2])
                return replace(out, commitments=much)

        s = scenario([900.0, 3000.0], gang=[3, 2], slo=[True, False])
        with pytest.raises(InvalidAllocation, match="commitment_capacity"):
            run(s, Generous())

    def test_promises_that_a_failure_makes_impossible_are_given_up(self):
        policy, done = self.run(failures=(Failure(0, 650.0, 1900.0),))
        assert policy.promised[3] == []
        assert done.jobs.finish_s.max() > 3900.0
        assert done.stopped == ""


@dataclass
class Reactive:
    """Decides every 1000 s; in between, a waiting gang that arrives starts at once if it fits."""

    subscribes: frozenset = frozenset()
    reacts_to: frozenset = frozenset({"arrival"})
    log: list = field(default_factory=list)
    spoil: bool = False

    def decide(self, round_, memory):
        return Decision(self.fill(round_), next_decision_s=round_.now_s + 1000.0, carry=("plan", 0))

    def react(self, plan, event, view):
        self.log.append((view.now_s, event, plan, view.reasons))
        if plan[1] == 2:
            return None, plan
        allocation = self.fill(view)
        if self.spoil:
            allocation = replace(allocation, gpus=allocation.gpus + 1)
        return allocation, ("plan", plan[1] + 1)

    def fill(self, round_):
        jobs, free, rows = round_.jobs, int(round_.capacity[0]), []
        for row in np.lexsort((jobs.code, ~jobs.running)).tolist():
            if jobs.gang[row] <= free:
                free -= int(jobs.gang[row])
                rows.append(row)
        rows = sorted(rows)
        return Allocation.of(rows, [0] * len(rows), jobs.gang[rows])

    def remember(self, memory, round_, decision, outcome):
        return None


class TestReactions:
    def test_an_action_is_carried_out_at_once_and_the_plan_goes_on(self):
        policy = Reactive()
        s = scenario([500.0, 50.0, 50.0, 50.0], arrival=[0.0, 70.0, 80.0, 90.0])
        done = run(s, policy)
        assert done.jobs.first_start_s.tolist() == [0.0, 70.0, 80.0, 1000.0]
        assert [entry[2] for entry in policy.log] == [("plan", 0), ("plan", 1), ("plan", 2)]
        assert policy.log[0] == (70.0, "arrival", ("plan", 0), ("arrival",))
        assert done.rounds.now_s.tolist() == [0.0, 1000.0]

    def test_an_action_is_checked_before_it_is_carried_out(self):
        s = scenario([500.0, 50.0], arrival=[0.0, 70.0])
        with pytest.raises(InvalidAllocation, match="decided at 70 s"):
            run(s, Reactive(spoil=True))


class TestTruth:
    @pytest.mark.parametrize("kind", ["Fifo", "Srtf"])
    def test_hidden_truth_changes_nothing_before_it_is_seen(self, toys, kind):
        """Two worlds that differ in what jobs really need, until the first one ends early."""

        class Recording(getattr(toys, kind)):
            def decide(self, round_, memory):
                out = super().decide(round_, memory)
                seen = [getattr(round_.jobs, name).tolist() for name in (
                    "code", "work", "work_done", "throughput_per_s", "running", "attained_gpu_s",
                )]  # fmt: skip
                self.seen.append((round_.now_s, seen, out.allocation.job.tolist()))
                return out

        rng = np.random.default_rng(3)
        n = 30
        plain = scenario(
            rng.integers(900, 4000, n).astype(float), gang=rng.integers(1, 4, n).tolist(),
            arrival=np.sort(rng.integers(0, 3000, n)).astype(float).tolist(), gpus=12,
        )  # fmt: skip
        told, hidden = Recording(next_decision_s=None), Recording(next_decision_s=None)
        first = run(plain, told)
        ends = first.jobs.finish_s
        other = replace(plain, true_work=plain.jobs.work * rng.uniform(1.0, 3.0, n))
        run(other, hidden)
        seen_before = [entry for entry in told.seen if entry[0] <= ends.min()]
        assert len(seen_before) > 3
        same = [entry for entry in hidden.seen if entry[0] < ends.min()]
        assert same == [entry for entry in told.seen if entry[0] < ends.min()]
        assert told.seen != hidden.seen
