"""What the world does between decisions, on cases small enough to count by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.executor.training import InvalidAllocation, run
from apportion.instances import Decision
from apportion.instances.training import (
    Allocation,
    Cluster,
    ExecutorOptions,
    Failure,
    Jobs,
    Placement,
    Scenario,
    Tenants,
)
from apportion.instances.training.laws import SwitchCost

pytestmark = pytest.mark.quick

TABLES = (
    "busy_gpu_s", "stalled_gpu_s", "idle_no_demand_gpu_s", "idle_no_pack_gpu_s",
    "idle_policy_gpu_s", "idle_finished_gpu_s", "down_gpu_s",
)  # fmt: skip


def scenario(
    work, *, gang=None, arrival=None, gpus=4, per_node=4, options=None, truth=None, **more
):
    n = len(work)
    columns = {"throughput_per_s": np.ones((n, 1))} | more
    return Scenario(
        name="t",
        cluster=gpus if isinstance(gpus, Cluster)
        else Cluster.uniform({"gpu": gpus}, gpus_per_node=per_node),
        jobs=Jobs(
            id=[f"j{i}" for i in range(n)], gang=gang or [1] * n, work=work,
            arrival_s=arrival or [0.0] * n, **columns,
        ),
        tenants=Tenants.named("all"),
        options=options or ExecutorOptions(round_s=10.0),
        true_work=truth,
    )  # fmt: skip


def conserved(done):
    """Every row of leases and of GPU-seconds adds up."""
    leases, rounds, cluster = done.leases, done.rounds, done.scenario.cluster
    length = leases.end_s - leases.start_s
    work = leases.rate_per_s * (length - leases.stall_s) - leases.lost_work
    np.testing.assert_allclose(leases.work, work, rtol=1e-9, atol=1e-9)
    n = len(done.scenario.jobs)
    by_job = np.bincount(leases.job, weights=leases.work, minlength=n)
    np.testing.assert_allclose(done.jobs.work, by_job, rtol=1e-9, atol=1e-9)
    held = np.bincount(leases.job, weights=leases.gpus * length, minlength=n)
    np.testing.assert_allclose(done.jobs.gpu_s, held, rtol=1e-9, atol=1e-9)
    truth = done.scenario.true_work
    truth = done.scenario.jobs.work if truth is None else truth
    over = done.jobs.finish_s >= 0
    np.testing.assert_allclose(done.jobs.work[over], truth[over], rtol=1e-9)
    total = sum(getattr(rounds, name) for name in TABLES)
    capacity = (rounds.end_s - rounds.now_s)[:, None] * cluster.gpus[None, :]
    np.testing.assert_allclose(total, capacity, rtol=1e-9, atol=1e-6)
    for name in TABLES:
        assert (getattr(rounds, name) >= -1e-6).all(), name
    busy = np.bincount(
        leases.gpu_type, weights=leases.gpus * (length - leases.stall_s),
        minlength=cluster.types.size,
    )  # fmt: skip
    np.testing.assert_allclose(rounds.busy_gpu_s.sum(axis=0), busy, rtol=1e-9, atol=1e-6)
    assert (rounds.now_s[1:] == rounds.end_s[:-1]).all()
    return done


class TestBoundaries:
    def test_arrivals_wait_and_one_on_the_boundary_is_in_it(self, toys):
        done = conserved(run(scenario([5.0] * 3, arrival=[0.0, 10.0, 10.5]), toys.Fifo()))
        assert done.jobs.first_start_s.tolist() == [0.0, 10.0, 20.0]
        assert done.jobs.finish_s.tolist() == [5.0, 15.0, 25.0]

    def test_completions_come_before_decisions_on_a_boundary(self, toys):
        """The second job gets the GPUs of one that ends on the very boundary."""
        done = conserved(run(scenario([10.0, 5.0], gang=[4, 4]), toys.Fifo()))
        assert done.jobs.finish_s.tolist() == [10.0, 15.0]
        assert done.rounds.reasons.tolist() == ["boundary+arrival", "boundary+completion"]

    def test_freed_gpus_wait_for_the_boundary(self, toys):
        done = conserved(run(scenario([3.0, 5.0], gang=[4, 4]), toys.Fifo()))
        assert done.jobs.finish_s.tolist() == [3.0, 15.0]
        assert done.rounds.idle_finished_gpu_s[0, 0] == 4 * 7.0

    def test_rounds_without_change_are_skipped(self, toys):
        done = conserved(run(scenario([95.0, 5.0], arrival=[0.0, 42.0]), toys.Fifo()))
        assert done.rounds.now_s.tolist() == [0.0, 50.0, 60.0]
        assert done.rounds.index.tolist() == [0, 5, 6]

    def test_a_policy_that_wants_every_round_gets_it(self, toys):
        done = conserved(run(scenario([25.0]), toys.Fifo(next_decision_s=None)))
        assert done.rounds.now_s.tolist() == [0.0, 10.0, 20.0]

    def test_empty_stretches_are_skipped(self, toys):
        late = scenario([5.0, 5.0], arrival=[0.0, 1e6 + 1])
        for wish in (None, np.inf):
            done = conserved(run(late, toys.Fifo(next_decision_s=wish)))
            assert done.rounds.now_s.tolist() == [0.0, 1e6 + 10]
            assert done.rounds.end_s.tolist() == [1e6 + 10, 1e6 + 15]
            assert done.rounds.idle_no_demand_gpu_s[0, 0] == 3 * (1e6 + 10)

    def test_a_run_may_stop_early(self, toys):
        options = ExecutorOptions(round_s=10.0, until_s=25.0)
        done = conserved(run(scenario([5.0, 99.0], options=options), toys.Fifo()))
        assert done.stopped == "until_s = 25 was reached"
        assert done.jobs.finish_s.tolist() == [5.0, -1.0]
        assert done.jobs.work.tolist() == [5.0, 25.0]
        assert done.leases.ended.tolist() == ["completed", "stopped"]

    def test_no_jobs_at_all(self, toys):
        done = run(scenario([]), toys.Fifo())
        assert done.rounds.index.size == 0
        assert done.stopped == ""


class TestIdleness:
    def test_causes(self, toys):
        """Two GPUs are free: no demand; then a gang of 3 waits; then one of 1 does."""
        run_ = run(scenario([100.0, 5.0, 5.0], gang=[2, 3, 1], arrival=[0, 1, 11]), toys.Fifo())
        rounds = conserved(run_).rounds
        assert rounds.idle_no_demand_gpu_s[0, 0] == 2 * 10.0
        assert rounds.idle_no_pack_gpu_s[1, 0] == 2 * 10.0
        assert rounds.idle_policy_gpu_s[2, 0] == 2 * 80.0


class TestBackfill:
    def test_waiting_gangs_take_freed_gpus_at_once_in_order_of_arrival(self, toys):
        options = ExecutorOptions(round_s=10.0, backfill=True)
        jobs = scenario([3.0, 9.0, 4.0, 1.0], gang=[4, 3, 2, 1], options=options)
        done = conserved(run(jobs, toys.Fifo()))
        # at 3 s the gang of 3 starts, that of 2 does not fit, that of 1 does
        assert done.jobs.first_start_s.tolist() == [0.0, 3.0, 12.0, 3.0]
        assert done.jobs.finish_s.tolist() == [3.0, 12.0, 16.0, 4.0]

    def test_late_arrivals_still_wait_for_the_boundary(self, toys):
        options = ExecutorOptions(round_s=10.0, backfill=True)
        done = run(scenario([3.0, 9.0], gang=[4, 4], arrival=[0, 1], options=options), toys.Fifo())
        assert done.jobs.first_start_s.tolist() == [0.0, 10.0]


class TestFailures:
    def test_work_since_the_boundary_is_lost_and_the_node_is_out(self, toys):
        options = ExecutorOptions(round_s=10.0, failures=(Failure(0, 14.0, 33.0),))
        done = conserved(run(scenario([30.0], options=options), toys.Fifo()))
        assert done.leases.ended.tolist() == ["failed", "completed"]
        assert done.leases.lost_work.tolist() == [4.0, 0.0]
        assert done.leases.start_s.tolist() == [0.0, 40.0]
        assert done.jobs.finish_s.tolist() == [60.0]
        assert done.rounds.down_gpu_s.sum() == 4 * 19.0
        assert done.jobs.preemptions.tolist() == [0]

    def test_the_other_node_goes_on_and_takes_over(self, toys):
        options = ExecutorOptions(round_s=10.0, failures=(Failure(0, 5.0),))
        done = conserved(
            run(scenario([30.0, 30.0], gang=[4, 4], gpus=8, options=options), toys.Fifo())
        )
        assert done.jobs.finish_s.tolist() == [60.0, 30.0]
        assert done.jobs.migrations.tolist() == [1, 0]

    def test_a_job_that_ends_at_the_instant_of_the_failure_is_done(self, toys):
        options = ExecutorOptions(round_s=10.0, failures=(Failure(0, 7.0),))
        done = run(scenario([7.0], options=options), toys.Fifo())
        assert done.jobs.finish_s.tolist() == [7.0]

    def test_overlapping_outages(self, toys):
        failures = (Failure(0, 1.0, 20.0), Failure(0, 5.0, 30.0), Failure(1, 2.0, 4.0))
        options = ExecutorOptions(round_s=10.0, failures=failures)
        done = conserved(run(scenario([8.0], gang=[8], gpus=8, options=options), toys.Fifo()))
        assert done.jobs.finish_s.tolist() == [38.0]

    def test_an_outage_before_anybody_arrives(self, toys):
        options = ExecutorOptions(
            round_s=10.0, failures=(Failure(0, 1.0, 2.0), Failure(0, 3.0, 40.0))
        )
        done = conserved(run(scenario([5.0], arrival=[11.0], options=options), toys.Fifo()))
        assert done.jobs.finish_s.tolist() == [45.0]

    def test_what_can_never_run_again_ends_the_run(self, toys):
        options = ExecutorOptions(round_s=10.0, failures=(Failure(0, 5.0),))
        for wish, why in ((np.inf, "can never start"), (None, "can never start")):
            done = run(scenario([9.0], options=options), toys.Fifo(next_decision_s=wish))
            assert why in done.stopped
            assert done.jobs.finish_s.tolist() == [-1.0]


@dataclass
class Script:
    """Plays allocations by time; each entry is (rows, types, GPUs[, placement])."""

    plays: dict
    default: object = None
    subscribes: frozenset = frozenset()
    reacts_to: frozenset = frozenset()
    next_decision_s: float | None = None

    def decide(self, round_, memory):
        play = self.plays.get(round_.now_s, self.default)
        codes = round_.jobs.code.tolist()
        live = [i for i, row in enumerate(play[0]) if row in codes]
        rows = [codes.index(play[0][i]) for i in live]
        placement = None
        if len(play) > 3:
            entries = [(codes.index(j), n, g) for j, n, g in play[3] if j in codes]
            placement = Placement.of(*zip(*entries, strict=True))
        allocation = Allocation.of(
            rows, [play[1][i] for i in live], [play[2][i] for i in live], placement=placement
        )
        return Decision(allocation, next_decision_s=self.next_decision_s)

    def remember(self, memory, round_, decision, outcome):
        return None

    def react(self, plan, event, view):
        return None, plan


TWO = Cluster.uniform({"fast": 4, "slow": 4}, gpus_per_node=2)


class TestSpeed:
    def test_a_change_of_type_stalls(self):
        options = ExecutorOptions(round_s=10.0, switch=SwitchCost(1.25, fixed_s=2.0))
        s = scenario([50.0], gpus=TWO, throughput_per_s=[[2.0, 1.0]], state_gb=[2.5],
                     restart_s=[1.0], options=options)  # fmt: skip
        plays = {0.0: ([0], [1], [1]), 10.0: ([0], [0], [1])}
        done = conserved(run(s, Script(plays, default=([0], [0], [1]))))
        # 10 at 1/s, then a stall of 2 + 1 + 2 s, then 40 at 2/s
        assert done.leases.ended.tolist() == ["moved", "completed"]
        assert done.leases.stall_s.tolist() == [0.0, 5.0]
        assert done.jobs.finish_s.tolist() == [35.0]
        assert done.rounds.stalled_gpu_s.sum() == 5.0
        assert done.jobs.migrations.tolist() == [1]

    @pytest.mark.parametrize(
        ("charge", "stalls"),
        [("charge_start", [3.0, 0.0, 0.0]), ("charge_resume", [0.0, 0.0, 3.0]),
         ("charge_move", [0.0, 3.0, 0.0])],
    )  # fmt: skip
    def test_other_restarts_stall_where_asked(self, charge, stalls):
        cost = SwitchCost(fixed_s=3.0, **{charge: True})
        s = scenario([35.0], gpus=TWO, throughput_per_s=[[1.0, 1.0]],
                     options=ExecutorOptions(round_s=10.0, switch=cost))  # fmt: skip
        plays = {
            0.0: ([0], [0], [1], [(0, 0, 1)]),
            10.0: ([0], [0], [1], [(0, 1, 1)]),
            20.0: ([], [], []),
        }
        done = conserved(run(s, Script(plays, default=([0], [0], [1]))))
        assert done.leases.ended.tolist() == ["moved", "preempted", "completed"]
        assert done.leases.stall_s.tolist() == stalls

    def test_a_spread_gang_is_slower(self):
        s = scenario([30.0], gang=[4], gpus=TWO, throughput_per_s=[[1.0, 1.0]],
                     spread_offsets=[0, 1], spread_hosts=[2], spread_speed=[0.5])  # fmt: skip
        done = conserved(run(s, Script({}, default=([0], [0], [4]), next_decision_s=np.inf)))
        assert done.leases.hosts.tolist() == [2]
        assert done.jobs.finish_s.tolist() == [60.0]

    def test_a_configuration_has_its_own_speed(self):
        s = scenario([30.0], gang=[2], gpus=TWO, throughput_per_s=[[1.0, 1.0]],
                     min_gpus=[1], max_gpus=[4], config_offsets=[0, 1], config_gpus=[4],
                     config_type=[0], config_throughput_per_s=[1.5])  # fmt: skip
        plays = {0.0: ([0], [0], [2])}
        done = conserved(run(s, Script(plays, default=([0], [0], [4]))))
        assert done.leases.rate_per_s.tolist() == [1.0, 1.5]
        assert done.jobs.finish_s.tolist() == pytest.approx([10 + 20 / 1.5])

    def test_the_truth_decides_not_the_report(self, toys):
        s = replace(scenario([10.0]), true_work=[7.0], true_throughput_per_s=[[0.5]])
        done = conserved(run(s, toys.Fifo()))
        assert done.jobs.finish_s.tolist() == [14.0]

    def test_a_job_that_makes_no_progress_does_not_hang_the_run(self, toys):
        s = replace(scenario([10.0]), true_throughput_per_s=[[0.0]])
        for wish in (None, np.inf):
            done = run(s, toys.Fifo(next_decision_s=wish))
            assert done.stopped
            assert done.leases.ended.tolist() == ["stopped"]


class TestDecisions:
    def test_an_invalid_allocation_is_never_carried_out(self):
        with pytest.raises(InvalidAllocation, match="type_capacity: gpu: 5 GPUs given") as caught:
            run(scenario([9.0], gang=[5], gpus=4), Script({}, default=([0], [0], [5])))
        assert [one.rule for one in caught.value.violations] == ["type_capacity"]

    def test_the_next_decision_must_lie_ahead(self, toys):
        with pytest.raises(InvalidAllocation, match="next_decision"):
            run(scenario([9.0]), toys.Fifo(next_decision_s=0.0))

    def test_explicit_placements_are_taken_as_they_are(self):
        s = scenario([9.0], gpus=TWO, throughput_per_s=[[1.0, 1.0]], gang=[2])
        where = [(0, 0, 1), (0, 1, 1)]
        done = conserved(run(s, Script({}, default=([0], [0], [2], where))))
        assert done.leases.hosts.tolist() == [2]

    def test_gangs_without_room_for_their_cpus_wait(self):
        """Each node has 4 cores for 2 GPUs; the first job takes 3 of them with one GPU."""
        cluster = Cluster.uniform({"gpu": 4}, gpus_per_node=2, cpus_per_node=4)
        s = scenario([5.0] * 3, gpus=cluster, cpus=[3.0, 3.0, 3.0])
        done = conserved(run(s, Script({}, default=([0, 1, 2], [0] * 3, [1] * 3))))
        assert done.rounds.unplaced.tolist() == [1, 0]
        assert done.jobs.finish_s.tolist() == [5.0, 5.0, 15.0]

    def test_a_job_that_stays_keeps_its_gpus_and_rows_may_come_in_any_order(self):
        s = scenario([40.0, 5.0, 40.0], gpus=TWO, throughput_per_s=[[1.0, 1.0]] * 3)
        done = conserved(run(s, Script({}, default=([2, 0, 1], [0] * 3, [1] * 3))))
        assert done.jobs.migrations.tolist() == [0, 0, 0]
        assert done.leases.job.tolist() == [1, 0, 2]


MANY = st.lists(
    st.tuples(
        st.integers(0, 80), st.sampled_from([1, 1, 2, 3, 5]), st.integers(1, 60),
        st.floats(0.3, 3.0), st.floats(0.0, 3.0),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(
    jobs=MANY,
    outages=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90), st.integers(1, 50)), max_size=4),
    backfill=st.booleans(),
    every=st.booleans(),
    srtf=st.booleans(),
    lease=st.sampled_from([np.inf, 10.0, 17.0]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_work_and_gpu_seconds_are_conserved(toys, jobs, outages, backfill, every, srtf, lease):
    arrival, gang, work, speed, state = (list(column) for column in zip(*jobs, strict=True))
    s = scenario(
        [float(w) for w in work], gang=gang, arrival=[float(a) for a in arrival], gpus=7,
        per_node=2, throughput_per_s=np.array(speed)[:, None], state_gb=state,
        spread_offsets=np.arange(len(work) + 1), spread_hosts=[2] * len(work),
        spread_speed=[0.7] * len(work),
        options=ExecutorOptions(
            round_s=10.0, backfill=backfill,
            switch=SwitchCost(fixed_s=1.0, charge_start=True, charge_resume=True, charge_move=True),
            failures=tuple(Failure(node, float(at), at + float(n)) for node, at, n in outages),
            until_s=5000.0,
        ),
    )  # fmt: skip
    wish = None if every else np.inf
    kind = toys.Srtf if srtf else toys.Fifo
    done = conserved(run(s, kind(next_decision_s=wish, lease_s=lease)))
    assert done.stopped in ("", "until_s = 5000 was reached")
    assert (done.jobs.finish_s >= 0).all() or done.stopped
