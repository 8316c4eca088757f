"""The checker, by mutation: a valid allocation is corrupted in one way, and caught by its name."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from apportion.executor.training import check, check_commitments, place
from apportion.instances.training import (
    Allocation,
    Cluster,
    Commitments,
    Jobs,
    Placement,
    TrainingRound,
)

pytestmark = pytest.mark.quick

FAST, SLOW = 0, 1


@pytest.fixture
def cluster():
    """Nodes 0 and 1 are fast, 2 and 3 slow, four GPUs each; node 4 is fast and out of service."""
    return Cluster(
        types=["fast", "slow"], type_memory_gib=[40.0, 16.0],
        nodes=[f"n{i}" for i in range(5)], node_type=[0, 0, 1, 1, 0], node_gpus=[4] * 5,
        node_cpus=[16.0] * 5, node_memory_gib=[64.0] * 5, node_rack=[0] * 5, racks=["r"],
    )  # fmt: skip


@pytest.fixture
def round_(cluster):
    """Row 0 runs and is not preemptible, row 1 has a guaranteed lease, row 2 runs freely."""
    jobs = Jobs(
        id=[f"job{i}" for i in range(7)],
        gang=[2, 2, 1, 4, 1, 2, 1],
        work=[100.0] * 7,
        throughput_per_s=[[2, 1], [2, 1], [2, 1], [2, 1], [2, 0], [2, 1], [2, 1]],
        gpu_memory_gib=[8, 8, 8, 8, 8, 32, 8],
        cpus=[8, 8, 4, 16, 4, 4, 4],
        memory_gib=[16, 16, 8, 32, 8, 8, 8],
        min_gpus=[2, 2, 1, 2, 1, 2, 1], max_gpus=[2, 2, 1, 4, 1, 2, 1],
        config_offsets=[0, 0, 0, 0, 2, 2, 2, 2], config_gpus=[2, 3], config_type=[1, 1],
        config_throughput_per_s=[0.6, 0.0],
        preemptible=[False] + [True] * 6,
        running=[True, True, True] + [False] * 4,
        previous_type=[0, 0, 1, -1, -1, -1, -1], held_gpus=[2, 2, 1, 0, 0, 0, 0],
        lease_end_s=[np.inf, 900, np.inf, -1, -1, -1, -1],
        guaranteed=[False, True] + [False] * 5,
        work_in_lease=[5, 5, 5, 0, 0, 0, 0], work_done=[5, 5, 5, 0, 0, 0, 0],
    )  # fmt: skip
    return TrainingRound(
        cluster=cluster, jobs=jobs, now_s=600.0,
        commitments=Commitments.of([4], [300.0], [900.0], [1], [FAST]),
        placement=Placement.of([0, 1, 2], [0, 0, 2], [2, 2, 1]),
        node_up=[True, True, True, True, False],
    )  # fmt: skip


@pytest.fixture
def good(round_):
    """Row 3 on two slow GPUs by its table, rows 4 and 5 on fast ones; row 6 waits."""
    plain = Allocation.of(
        [0, 1, 2, 3, 4, 5], [FAST, FAST, SLOW, SLOW, FAST, FAST], [2, 2, 1, 2, 1, 2],
        lease_end_s=[np.inf, 900, 900, 900, np.inf, np.inf],
        guaranteed=[False, True, False, False, False, False],
    )  # fmt: skip
    placed, missing = place(round_, plain)
    assert missing == []
    return placed


def test_the_valid_allocation_passes(round_, good):
    assert check(round_, good) == []
    assert check(round_, replace(good, placement=None)) == []


def poke(name, at, value):
    def change(a):
        column = np.array(getattr(a, name))
        column[at] = value
        return replace(a, **{name: column})

    return change


def bare(change):
    """Without nodes: the rules of types alone must find it."""
    return lambda a: replace(change(a), placement=None)


def drop(row):
    def change(a):
        keep = a.job != row
        names = ("job", "gpu_type", "gpus", "lease_end_s", "guaranteed")
        return replace(a, placement=None, **{name: getattr(a, name)[keep] for name in names})

    return change


def lose(row, work):
    def change(a):
        return replace(drop(row)(a), lost_job=np.array([row]), lost_work=np.array([work]))

    return change


def moved(name, at, value):
    def change(a):
        column = np.array(getattr(a.placement, name))
        column[at] = value
        return replace(a, placement=replace(a.placement, **{name: column}))

    return change


def extra(job, node, gpus):
    def change(a):
        p = a.placement
        return replace(
            a, placement=Placement.of(
                [*p.job.tolist(), job], [*p.node.tolist(), node], [*p.gpus.tolist(), gpus]
            )
        )  # fmt: skip

    return change


def whole(job, nodes, gpus):
    """Put one job on other nodes, leaving the rest."""

    def change(a):
        keep = a.placement.job != job
        p = Placement.of(
            [*a.placement.job[keep].tolist(), *[job] * len(nodes)],
            [*a.placement.node[keep].tolist(), *nodes],
            [*a.placement.gpus[keep].tolist(), *gpus],
        )
        return replace(a, placement=p)

    return change


CORRUPTIONS = {
    "a column too short": (lambda a: replace(a, gpus=a.gpus[:-1]), "shape"),
    "half a GPU": (lambda a: replace(a, gpus=a.gpus + 0.5), "shape"),
    "NaN GPUs": (lambda a: replace(a, gpus=np.where(a.job == 2, np.nan, 1.0)), "nan"),
    "a row that does not exist": (poke("job", -1, 7), "job_exists"),
    "a negative row": (poke("job", 0, -1), "job_exists"),
    "a job twice": (poke("job", -1, 4), "job_twice"),
    "an unknown type": (poke("gpu_type", 2, 2), "gpu_type"),
    "a negative type": (poke("gpu_type", 2, -1), "gpu_type"),
    "fewer GPUs than the gang": (poke("gpus", 5, 1), "gpus"),
    "zero GPUs": (poke("gpus", 5, 0), "gpus"),
    "a number of GPUs that is not listed": (poke("gpus", 3, 1), "gpus"),
    "a listed configuration that cannot run": (poke("gpus", 3, 3), "throughput"),
    "a type that cannot run the job": (bare(poke("gpu_type", 4, SLOW)), "throughput"),
    "a model larger than a GPU": (bare(poke("gpu_type", 5, SLOW)), "gpu_memory"),
    "more than a type has": (bare(poke("gpu_type", slice(None), FAST)), "type_capacity"),
    "a lease that has ended": (poke("lease_end_s", 3, 600.0), "lease_end"),
    "a lease that ends at NaN": (poke("lease_end_s", 3, np.nan), "nan"),
    "stopping what is not preemptible": (drop(0), "non_preemptible"),
    "moving what is not preemptible": (bare(poke("gpu_type", 0, SLOW)), "non_preemptible"),
    "other nodes for what is not preemptible": (whole(0, [1], [2]), "non_preemptible"),
    "stopping a guaranteed lease": (drop(1), "guaranteed_lease"),
    "shortening a guaranteed lease": (poke("lease_end_s", 1, 899.0), "guaranteed_lease"),
    "taking a guarantee back": (poke("guaranteed", 1, False), "guaranteed_lease"),
    "breaking a reservation": (drop(4), "commitment"),
    "losing more than was done": (lose(2, 5.1), "lost_work"),
    "losing less than nothing": (lose(2, -0.1), "lost_work"),
    "losing NaN": (lose(2, np.nan), "nan"),
    "a loss of a job that runs on": (
        lambda a: replace(a, lost_job=np.array([2]), lost_work=np.array([1.0])), "lost_work",
    ),
    "a loss of a job that did not run": (
        lambda a: replace(a, lost_job=np.array([6]), lost_work=np.array([0.0])), "lost_work",
    ),
    "a node that does not exist": (moved("node", 0, 5), "placement_node"),
    "a job row on nodes that does not exist": (moved("job", 0, 7), "placement_job"),
    "a node out of service": (whole(5, [4], [2]), "node_down"),
    "a negative piece": (whole(5, [0, 1], [3, -1]), "placement_gpus"),
    "a node of another type": (whole(5, [3], [2]), "node_type"),
    "two entries on one node": (whole(5, [1, 1], [1, 1]), "placement_twice"),
    "more placed than given": (extra(2, 3, 1), "placement_sum"),
    "less placed than given": (moved("gpus", 0, 1), "placement_sum"),
    "GPUs for a job that waits": (extra(6, 1, 1), "placement_sum"),
    "a node too full": (whole(5, [0], [2]), "node_capacity"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_each_corruption_is_caught_by_name(round_, good, kind):
    corrupt, rule = CORRUPTIONS[kind]
    found = check(round_, corrupt(good))
    assert rule in {one.rule for one in found}, found
    assert all("\n" not in one.message and one.message for one in found)


@pytest.mark.parametrize(
    ("column", "rule"), [("node_cpus", "node_cpus"), ("node_memory_gib", "node_memory")]
)
def test_hosts_that_are_too_small(round_, good, column, rule):
    small = replace(round_.cluster, **{column: np.full(5, 11.9)})
    found = check(replace(round_, cluster=small), good)
    assert {one.rule for one in found} >= {rule}
    assert any("n0" in one.message for one in found)


def test_a_message_names_job_value_and_limit(round_, good):
    (one,) = check(round_, lose(2, 5.1)(good))
    assert one.message == "job 'job2' loses 5.1, its present lease did 5"


def test_capacity_counts_nodes_in_service_only(round_, good):
    everything = replace(round_, node_up=[True] * 5)
    more = Allocation.of([0, 1, 3, 4, 5], [FAST] * 5, [2, 2, 4, 1, 2],
                         lease_end_s=[np.inf, 900, 900, 900, 900],
                         guaranteed=[False, True, False, False, False])  # fmt: skip
    assert check(everything, more) == []
    (one,) = check(round_, more)
    assert one.rule == "type_capacity"
    assert one.message == "fast: 11 GPUs given, 8 in service (3 too many)"


class TestCommitments:
    def test_what_fits_passes(self, round_):
        c = Commitments.of([3, 4], [600.0, 900.0], [900.0, 1200.0], [4, 8], [FAST, FAST])
        assert check_commitments(round_, c) == []

    @pytest.mark.parametrize(
        ("changes", "rule"),
        [
            ({"job": [3, 7]}, "commitment_job"),
            ({"end_s": [600.0, 1200.0]}, "commitment_interval"),
            ({"gpus": [4, 0]}, "commitment_gpus"),
            ({"gpu_type": [0, 2]}, "commitment_type"),
            ({"gpus": [4, 9]}, "commitment_capacity"),
            ({"start_s": [600.0, 899.0]}, "commitment_capacity"),
        ],
    )
    def test_what_does_not_is_named(self, round_, changes, rule):
        given = {
            "job": [3, 4], "start_s": [600.0, 900.0], "end_s": [900.0, 1200.0],
            "gpus": [4, 8], "gpu_type": [0, 0],
        }  # fmt: skip
        found = check_commitments(round_, Commitments.of(**(given | changes)))
        assert rule in {one.rule for one in found}

    def test_any_type_counts_against_all(self, round_):
        fits = Commitments.of([3, 4, 5], [700.0] * 3, [800.0] * 3, [8, 4, 4])
        assert check_commitments(round_, fits) == []
        over = Commitments.of([3, 4, 5], [700.0] * 3, [800.0] * 3, [8, 8, 1])
        assert "commitment_capacity" in {v.rule for v in check_commitments(round_, over)}

    def test_guaranteed_leases_take_room(self, round_, good):
        c = Commitments.of([3], [700.0], [800.0], [7], [FAST])
        assert check_commitments(round_, c) == []
        found = check_commitments(round_, c, good)
        assert {one.rule for one in found} == {"commitment_capacity"}

    def test_what_begins_now_must_be_given(self, round_, good):
        c = Commitments.of([6], [600.0], [800.0], [1])
        assert {one.rule for one in check_commitments(round_, c, good)} == {"commitment"}


def test_a_long_list_is_counted(round_, good):
    n = 50
    jobs = Jobs(
        id=[f"j{i}" for i in range(n)], gang=[1] * n, work=[1.0] * n,
        throughput_per_s=np.zeros((n, 2)),
    )  # fmt: skip
    many = TrainingRound(cluster=round_.cluster, jobs=jobs)
    found = check(many, Allocation.of(range(n), [0] * n, [1] * n, lease_end_s=0.0))
    ended = [one.message for one in found if one.rule == "lease_end"]
    assert len(ended) == 21
    assert ended[-1] == "and 30 more"


def test_a_legal_allocation_of_2500_jobs_is_checked_quickly():
    """About 0.1 ms; bounded loosely so that a busy machine does not fail it."""
    n = 2500
    jobs = Jobs(id=[f"j{i}" for i in range(n)], gang=np.ones(n, dtype=int), work=np.ones(n),
                throughput_per_s=np.ones((n, 1)))  # fmt: skip
    round_ = TrainingRound(cluster=Cluster.uniform({"gpu": n}), jobs=jobs)
    allocation = Allocation.of(np.arange(n), np.zeros(n, dtype=int), np.ones(n, dtype=int))
    times = []
    for _ in range(20):
        began = time.process_time()
        assert check(round_, allocation) == []
        times.append(time.process_time() - began)
    assert min(times) < 2e-3


def test_a_job_that_may_not_stop_keeps_what_it_holds_without_a_speed():
    """It cannot run elsewhere and may not be stopped: there must be an allocation that passes."""
    jobs = Jobs.of(
        id=["held", "free"], gang=[1, 1], work=[10.0, 10.0], throughput_per_s=[[0.0], [0.0]],
        running=[True, False], previous_type=[0, -1], held_gpus=[1, 0],
        preemptible=[False, True], gpu_memory_gib=[64.0, 1.0],
    )  # fmt: skip
    cluster = Cluster.uniform({"only": 2}, memory_gib={"only": 16.0})
    asked = TrainingRound(cluster=cluster, jobs=jobs)
    assert check(asked, Allocation.of([0], [0], [1])) == []
    assert [one.rule for one in check(asked, Allocation.of([], [], []))] == ["non_preemptible"]
    assert [one.rule for one in check(asked, Allocation.of([0, 1], [0, 0], [1, 1]))] == [
        "throughput"
    ]
